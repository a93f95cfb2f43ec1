package builtin

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/proc"
	"github.com/cleveragents/agents/tool"
)

type shellInput struct {
	Command   string            `json:"command"`
	Argv      []string          `json:"argv"`
	Escaped   bool              `json:"escaped"`
	Cwd       string            `json:"cwd"`
	Env       map[string]string `json:"env"`
	Timeout   string            `json:"timeout"`
	OnFailure string            `json:"on_failure"` // read by the engine
}

func shell() tool.Tool {
	return define("shell",
		"Run a command in the sandbox: a line for /bin/sh, or a program with its arguments (exactly one of command and argv). Processes it leaves behind are waited for two seconds, then ended. An exit code other than 0 is a failure.",
		writesAnything(), `{
			"command": {"type": "string", "minLength": 1, "description": "a line for /bin/sh"},
			"argv": {"type": "array", "minItems": 1, "items": {"type": "string"}, "description": "a program and its arguments"},
			"escaped": {"type": "boolean", "description": "argv is spelt as names in results are: \\xHH for a byte that is not UTF-8, a backslash doubled"},
			"cwd": {"type": "string", "minLength": 1, "description": "a directory of the resource; its top if not said"},
			"env": {"type": "object", "additionalProperties": {"type": "string"}},
			"timeout": {"type": "string", "pattern": "^[0-9]", "description": "such as 30s or 5m; none if not said"},
			"on_failure": {"enum": ["rollback", "keep"], "description": "what becomes of its changes when it fails"}
		}`, nil, runShell)
}

func runShell(ctx context.Context, env tool.Env, in shellInput) (tool.Result, error) {
	c, err := in.process(env)
	if err != nil {
		return tool.Result{}, err
	}
	got, err := proc.Run(ctx, c)
	return tool.Result{Stdout: got.Stdout, Stderr: got.Stderr, ExitCode: got.ExitCode, Notices: got.Notices}, err
}

// process turns the input into a command.
func (in shellInput) process(env tool.Env) (proc.Command, error) {
	argv, err := in.arguments()
	if err != nil {
		return proc.Command{}, err
	}
	if (in.Command == "") == (len(argv) == 0) {
		return proc.Command{}, invalid("want exactly one of command and argv")
	}
	if in.Command != "" {
		argv = []string{"/bin/sh", "-c", in.Command}
	}
	timeout, err := in.timeout()
	if err != nil {
		return proc.Command{}, err
	}
	dir, err := in.dir(env)
	if err != nil {
		return proc.Command{}, err
	}
	vars, err := in.variables(env.PlanID, dir)
	if err != nil {
		return proc.Command{}, err
	}
	return proc.Command{
		Argv: argv, Dir: dir, Env: append(slices.Clone(env.Environ), vars...),
		Stdin: env.Stdin, Stdout: env.Stdout, Stderr: env.Stderr, TTY: env.TTY,
		Timeout: timeout,
	}, nil
}

// arguments are the raw bytes of argv.
func (in shellInput) arguments() ([]string, error) {
	if !in.Escaped {
		return in.Argv, nil
	}
	var argv []string
	for _, arg := range in.Argv {
		raw, err := agents.UnescapePath(arg)
		if err != nil {
			return nil, invalid("argv: %q is not escaped as it should be", arg)
		}
		argv = append(argv, raw)
	}
	return argv, nil
}

func (in shellInput) timeout() (time.Duration, error) {
	if in.Timeout == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(in.Timeout)
	if err != nil || d <= 0 {
		return 0, agents.WithHint(invalid("timeout %q is no time", in.Timeout), "write it as 30s, 5m or 1h")
	}
	return d, nil
}

// dir is where the command runs: the workspace, or beside it where that is a
// single file. Only a workspace of files has directories to choose from.
func (in shellInput) dir(env tool.Env) (string, error) {
	if in.Cwd == "" {
		if fi, err := os.Stat(env.Path); err == nil && !fi.IsDir() {
			return filepath.Dir(env.Path), nil
		}
		return env.Path, nil
	}
	p, s, err := enterDir(env, in.Cwd)
	if err != nil {
		return "", err
	}
	p.leave()
	return filepath.Join(env.Path, filepath.FromSlash(s.rel)), nil
}

// variables are the plan, PWD, and the input's own.
func (in shellInput) variables(plan, dir string) ([]string, error) {
	vars := []string{proc.PlanVariable + "=" + plan, "PWD=" + dir}
	for name, value := range in.Env {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.ContainsRune(value, 0) {
			return nil, invalid("env: %q is no name or value of a variable", name)
		}
		vars = append(vars, name+"="+value)
	}
	slices.Sort(vars[2:])
	return vars, nil
}
