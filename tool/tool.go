// Package tool says what a tool is: its schema, its capability, a call and a
// result. The built-in tools are in package builtin below it. Running one with
// checkpoints around it is the engine's work.
package tool

import (
	"context"
	"encoding/json"
	"io"

	agents "github.com/cleveragents/agents"
)

// Spec describes a tool.
type Spec struct {
	Name        string // with its prefix: builtin/file-write
	Description string
	Capability  agents.Capability
	Input       json.RawMessage // JSON Schema (2020-12) of the input object
}

// Tool is something that a plan can call.
type Tool interface {
	Spec() Spec
	// Call runs the tool in env. Input already fits Spec().Input. An error
	// that wraps agents.ErrToolFailed says that the tool ran and failed;
	// agents.ErrInvalid that its input makes no sense (nothing was changed).
	// A result may come with an error: what there is of output.
	Call(ctx context.Context, env Env, input json.RawMessage) (Result, error)
}

// Env is where a call runs.
type Env struct {
	PlanID   string
	Resource agents.Resource
	Path     string   // the workspace; every path of an input is relative to it
	Files    bool     // Path is a directory of files
	Environ  []string // for processes: complete, nothing is inherited
	Stdin    io.Reader
	Stdout   io.Writer // live output; nil = none. The result holds the capped copy
	Stderr   io.Writer
	TTY      bool // stdin, stdout and stderr are the user's terminal: pass it through
}

// Result is what a call gave back.
type Result struct {
	Output   any // marshalled into the record; nil = none
	Stdout   string
	Stderr   string
	ExitCode int
	// Paths are the paths, relative to the workspace, that the call changed
	// or may have changed. It counts only for tools of ScopeFile.
	Paths   []string
	Notices []string // such as: a background child was ended
}
