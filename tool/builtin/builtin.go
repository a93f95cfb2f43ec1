// Package builtin has the tools that every plan can call: files, git and the
// shell. The SQL tools are not among them: they belong to the database
// strategies.
//
// File tools stay inside the workspace, whatever their input says: paths go
// through fsx.Root. An absolute path below the resource's real location means
// the same file in the workspace, and results name paths as the caller wrote
// them. Writing tools touch nothing called .git. Bytes of names that are not
// UTF-8 are spelt as agents.EscapePath spells them, in inputs and outputs.
package builtin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/git"
	"github.com/cleveragents/agents/tool"
)

// All returns the built-in tools, each with the prefix builtin/ (ADR-015,
// "Checkpointing"; CLI "Built-in tools"). They hold no state and may be called
// from several goroutines for different workspaces.
//
// An error of a Call is agents.ErrInvalid when the input makes no sense and
// nothing was changed; agents.ErrToolFailed when the tool could not do what it
// was asked; agents.ErrInterrupted when its context ended;
// agents.ErrUnsupported when the workspace is no directory of files.
func All() []tool.Tool {
	return []tool.Tool{
		fileRead(), fileWrite(), fileEdit(), filePatch(), fileDelete(), fileMove(), fileCopy(),
		dirCreate(), fileList(), fileSearch(), fileInfo(),
		gitStatus(), gitDiff(), gitLog(), gitCommit(), gitBranch(), gitCheckout(), gitReset(),
		shell(),
	}
}

// builtin is a tool whose input is an In.
type builtin[In any] struct {
	name string // without the prefix
	spec tool.Spec
	run  func(ctx context.Context, env tool.Env, in In) (tool.Result, error)
}

// define makes a tool. Properties are the properties of its JSON Schema, and
// required their names that must be there.
func define[In any](name, description string, c agents.Capability, properties string, required []string,
	run func(ctx context.Context, env tool.Env, in In) (tool.Result, error)) builtin[In] {
	if required == nil {
		required = []string{}
	}
	schema, err := json.Marshal(map[string]any{
		"$schema":              "https://json-schema.org/draft/2020-12/schema",
		"type":                 "object",
		"additionalProperties": false,
		"required":             required,
		"properties":           json.RawMessage(properties),
	})
	if err != nil {
		schema = nil // a typing mistake in this package; its test finds it
	}
	return builtin[In]{
		name: name, run: run,
		spec: tool.Spec{Name: tool.BuiltinPrefix + name, Description: description, Capability: c, Input: schema},
	}
}

// Spec describes the tool.
func (b builtin[In]) Spec() tool.Spec { return b.spec }

// Call runs the tool.
func (b builtin[In]) Call(ctx context.Context, env tool.Env, input json.RawMessage) (tool.Result, error) {
	var in In
	if len(bytes.TrimSpace(input)) > 0 {
		dec := json.NewDecoder(bytes.NewReader(input))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&in); err != nil {
			return tool.Result{ExitCode: 1}, fmt.Errorf("%s: input: %w: %w", b.name, err, agents.ErrInvalid)
		}
	}
	res, err := b.run(ctx, env, in)
	if err == nil {
		return res, nil
	}
	if res.ExitCode == 0 {
		res.ExitCode = 1
	}
	var ge *git.Error
	if errors.As(err, &ge) {
		res.Stderr = ge.Stderr
	}
	return res, fmt.Errorf("%s: %w", b.name, classify(ctx, err))
}

// classify gives an error without a class of its own that of a tool that failed.
func classify(ctx context.Context, err error) error {
	for _, class := range []error{agents.ErrToolFailed, agents.ErrInvalid, agents.ErrInterrupted, agents.ErrUnsupported} {
		if errors.Is(err, class) {
			return err
		}
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return fmt.Errorf("%w: %w", err, agents.ErrInterrupted)
	}
	return fmt.Errorf("%w: %w", err, agents.ErrToolFailed)
}

// failed is a tool's own no.
func failed(format string, args ...any) error {
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), agents.ErrToolFailed)
}

// invalid says that an input makes no sense.
func invalid(format string, args ...any) error {
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), agents.ErrInvalid)
}

// What the tools declare about themselves.
func reads() agents.Capability {
	return agents.Capability{ReadOnly: true, Checkpointable: true, RollbackMechanism: agents.MechNone}
}

func writesFiles() agents.Capability {
	return agents.Capability{Writes: true, Checkpointable: true, CheckpointScope: agents.ScopeFile, RollbackMechanism: agents.MechGitCommit}
}

func writesGit() agents.Capability {
	return agents.Capability{Writes: true, Checkpointable: true, CheckpointScope: agents.ScopeCommit, RollbackMechanism: agents.MechGitReflog}
}

func writesAnything() agents.Capability {
	return agents.Capability{Writes: true, Checkpointable: true, CheckpointScope: agents.ScopeSnapshot, RollbackMechanism: agents.MechSnapshot}
}
