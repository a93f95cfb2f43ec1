//go:build unix

package builtin_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	agents "github.com/cleveragents/agents"
)

// is reports whether err is of a class and says something.
func is(err, class error, says string) bool {
	return errors.Is(err, class) && strings.Contains(err.Error()+" "+agents.HintOf(err), says)
}

func TestShell(t *testing.T) {
	w := newWorld(t)
	w.put("dir/f", "x")
	t.Setenv("GIT_DIR", "/nowhere")
	for _, tt := range []struct {
		name, input, stdout, stderr string
		code                        int
		class                       error
		says                        string
	}{
		{name: "command", input: `{"command": "echo out; echo err >&2"}`, stdout: "out\n", stderr: "err\n"},
		{name: "argv", input: `{"argv": ["echo", "-n", "$HOME", "a b"]}`, stdout: "$HOME a b"},
		{name: "exit code", input: `{"command": "echo x; exit 3"}`, stdout: "x\n", code: 3, class: agents.ErrToolFailed, says: "exit status 3"},
		{name: "not found", input: `{"argv": ["no-such-program"]}`, code: 127, class: agents.ErrToolFailed, says: "not found"},
		{name: "directory", input: `{"command": "pwd -P"}`, stdout: w.sandbox + "\n"},
		{name: "cwd", input: `{"command": "pwd -P; ls", "cwd": "dir"}`, stdout: w.sandbox + "/dir\nf\n"},
		{name: "environment", input: `{"command": "echo $A ${GIT_DIR-none} $PWD", "env": {"A": "b"}}`, stdout: "b none " + w.sandbox + "\n"},
		{name: "raw bytes", input: `{"argv": ["printf", "%s", "caf\\xe9 \\\\"], "escaped": true}`, stdout: "caf\xe9 \\"},
		{name: "badly escaped", input: `{"argv": ["\\q"], "escaped": true}`, code: 1, class: agents.ErrInvalid, says: "argv"},
		{name: "plan", input: `{"command": "echo $AGENTS_PLAN"}`, stdout: "01\n"},
		{name: "time-out", input: `{"command": "echo x; sleep 1000", "timeout": "50ms"}`, stdout: "x\n", code: 143, class: agents.ErrToolFailed, says: "timed out after 50ms"},
		{name: "both", input: `{"command": "true", "argv": ["true"]}`, code: 1, class: agents.ErrInvalid, says: "exactly one"},
		{name: "neither", input: `{}`, code: 1, class: agents.ErrInvalid, says: "exactly one"},
		{name: "cwd is a file", input: `{"command": "true", "cwd": "dir/f"}`, code: 1, class: agents.ErrToolFailed, says: "not a directory"},
		{name: "cwd leaves", input: `{"command": "true", "cwd": "../sb-10"}`, code: 1, class: agents.ErrInvalid, says: "leads out"},
		{name: "no time", input: `{"command": "true", "timeout": "5"}`, code: 1, class: agents.ErrInvalid, says: "30s"},
		{name: "time of nothing", input: `{"command": "true", "timeout": "0s"}`, code: 1, class: agents.ErrInvalid, says: "no time"},
		{name: "name of a variable", input: `{"command": "true", "env": {"A=B": "c"}}`, code: 1, class: agents.ErrInvalid, says: "env"},
		{name: "value of a variable", input: `{"command": "true", "env": {"A": 1}}`, class: agents.ErrInvalid, says: `"env"`},
		{name: "on_failure", input: `{"command": "true", "on_failure": "maybe"}`, class: agents.ErrInvalid, says: `"on_failure"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			res, err := w.call("shell", tt.input)
			if res.Stdout != tt.stdout || res.Stderr != tt.stderr || res.ExitCode != tt.code {
				t.Errorf("got %d %q %q, want %d %q %q", res.ExitCode, res.Stdout, res.Stderr, tt.code, tt.stdout, tt.stderr)
			}
			if tt.class == nil && err != nil || tt.class != nil && !is(err, tt.class, tt.says) {
				t.Errorf("got %v, want %v that says %q", err, tt.class, tt.says)
			}
		})
	}
}

func TestShellStreams(t *testing.T) {
	w := newWorld(t)
	var out, errs bytes.Buffer
	w.env.Stdin, w.env.Stdout, w.env.Stderr = strings.NewReader("in"), &out, &errs
	res, err := w.call("shell", `{"command": "cat; echo e >&2; head -c 3000000 /dev/zero"}`)
	if err != nil {
		t.Fatal(err)
	}
	if out.Len() != 3000002 || !strings.HasPrefix(out.String(), "in") || errs.String() != "e\n" {
		t.Errorf("live: got %d bytes and %q, want all", out.Len(), errs.String())
	}
	if len(res.Stdout) > 1<<20+200 || !strings.HasSuffix(res.Stdout, "bytes left out after the first 524288]\n") {
		t.Errorf("record: got %d bytes, want 1 MiB and what was cut", len(res.Stdout))
	}
}

func TestShellBesideASingleFile(t *testing.T) {
	w := newWorld(t)
	w.put("dir/f", "x")
	w.env.Path, w.env.Files = filepath.Join(w.sandbox, "dir/f"), false
	if res, err := w.call("shell", `{"command": "ls"}`); res.Stdout != "f\n" || err != nil {
		t.Errorf("got %q, %v, want the file's own directory", res.Stdout, err)
	}
	if _, err := w.call("shell", `{"command": "ls", "cwd": "x"}`); !errors.Is(err, agents.ErrUnsupported) {
		t.Errorf("cwd: got %v, want ErrUnsupported", err)
	}
}

func TestShellInterrupted(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	tl, err := w.tools.Lookup("shell")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tl.Call(ctx, w.env, []byte(`{"command": "true"}`)); !errors.Is(err, agents.ErrInterrupted) {
		t.Errorf("got %v, want ErrInterrupted", err)
	}
}

func TestB012U099ShellLeavesNothingRunning(t *testing.T) {
	w := newWorld(t)
	res, err := w.call("shell", `{"command": "(sleep 0.2; echo late > late) >/dev/null 2>&1 &"}`)
	if err != nil || len(res.Notices) != 1 {
		t.Errorf("got %v, notices %q, want one that says what was waited for", err, res.Notices)
	}
	if b, err := os.ReadFile(filepath.Join(w.sandbox, "late")); string(b) != "late\n" {
		t.Errorf("got %q, %v, want the late write to have happened", b, err)
	}
}
