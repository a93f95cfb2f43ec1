//go:build unix

package proc_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/proc"
)

// shell is a command that sh runs in a directory of the test.
func shell(t *testing.T, script string) proc.Command {
	t.Helper()
	dir := t.TempDir()
	return proc.Command{
		Argv:   []string{"/bin/sh", "-c", script},
		Dir:    dir,
		Env:    proc.Environ(os.Environ(), dir),
		Linger: -1,
	}
}

func TestRunResult(t *testing.T) {
	for _, tt := range []struct {
		name, script, stdin   string
		code                  int
		wantOut, wantErr, msg string
		class                 error
	}{
		{name: "success", script: "echo out; echo err >&2", wantOut: "out\n", wantErr: "err\n"},
		{name: "exit code", script: "echo x; exit 7", code: 7, wantOut: "x\n", class: agents.ErrToolFailed, msg: "sh: exit status 7: tool failed"},
		{name: "signal", script: "kill -KILL $$", code: 137, class: agents.ErrToolFailed, msg: "sh: signal: killed: tool failed"},
		{name: "stdin", script: "cat", stdin: "hello", wantOut: "hello"},
		{name: "stdin not read", script: "exit 0", stdin: strings.Repeat("x", 1<<20)},
		{name: "no stdin", script: "cat"},
		{name: "no newline", script: "printf x", wantOut: "x"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := shell(t, tt.script)
			if tt.stdin != "" {
				c.Stdin = strings.NewReader(tt.stdin)
			}
			got, err := proc.Run(t.Context(), c)
			if got.ExitCode != tt.code || got.Stdout != tt.wantOut || got.Stderr != tt.wantErr {
				t.Errorf("got %d %q %q, want %d %q %q", got.ExitCode, got.Stdout, got.Stderr, tt.code, tt.wantOut, tt.wantErr)
			}
			if !errors.Is(err, tt.class) || tt.msg != "" && err.Error() != tt.msg {
				t.Errorf("got error %v, want %q (%v)", err, tt.msg, tt.class)
			}
			if len(got.Notices) > 0 {
				t.Errorf("got notices %q, want none", got.Notices)
			}
		})
	}
}

func TestRunDoesNotStart(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{"plain": "x", "noexec": "\x00\x01"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(dir, "noexec"), 0o755); err != nil {
		t.Fatal(err)
	}
	env := []string{"PATH=" + dir + ":" + os.Getenv("PATH")}
	for _, tt := range []struct {
		name string
		c    proc.Command
		code int
		want error
	}{
		{"no argv", proc.Command{}, 126, agents.ErrInvalid},
		{"empty name", proc.Command{Argv: []string{""}}, 126, agents.ErrInvalid},
		{"nul", proc.Command{Argv: []string{"sh", "a\x00b"}}, 126, agents.ErrInvalid},
		{"nul in env", proc.Command{Argv: []string{"sh"}, Env: []string{"A=\x00"}}, 126, agents.ErrInvalid},
		{"terminal that is none", proc.Command{Argv: []string{"sh"}, TTY: true}, 126, agents.ErrInvalid},
		{"not on PATH", proc.Command{Argv: []string{"no-such-program"}, Env: env}, 127, agents.ErrToolFailed},
		{"no PATH", proc.Command{Argv: []string{"sh"}}, 127, agents.ErrToolFailed},
		{"PATH has a relative entry", proc.Command{Argv: []string{"noexec"}, Dir: dir, Env: []string{"PATH=.:"}}, 127, agents.ErrToolFailed},
		{"no such file", proc.Command{Argv: []string{"./nothing"}, Dir: dir}, 127, agents.ErrToolFailed},
		{"not executable", proc.Command{Argv: []string{"./plain"}, Dir: dir}, 126, agents.ErrToolFailed},
		{"a directory", proc.Command{Argv: []string{dir}}, 126, agents.ErrToolFailed},
		{"no program", proc.Command{Argv: []string{"noexec"}, Dir: dir, Env: env}, 126, agents.ErrToolFailed},
		{"no such directory", proc.Command{Argv: []string{"/bin/sh"}, Dir: dir + "/none"}, 126, agents.ErrToolFailed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := proc.Run(t.Context(), tt.c)
			if got.ExitCode != tt.code || !errors.Is(err, tt.want) {
				t.Errorf("got %d, %v, want %d, %v", got.ExitCode, err, tt.code, tt.want)
			}
		})
	}
}

func TestRunProgramRelativeToDir(t *testing.T) {
	c := shell(t, "")
	if err := os.WriteFile(filepath.Join(c.Dir, "run"), []byte("#!/bin/sh\npwd -P\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	c.Argv = []string{"./run"}
	want, err := filepath.EvalSymlinks(c.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := proc.Run(t.Context(), c); got.Stdout != want+"\n" || err != nil {
		t.Errorf("got %q, %v, want %q", got.Stdout, err, want)
	}
}

func TestRunStreamsLive(t *testing.T) {
	c := shell(t, "echo first; read answer; echo $answer")
	in, answer := io.Pipe()
	out, live := io.Pipe()
	c.Stdin, c.Stdout = in, live
	go func() {
		buf := make([]byte, 6)
		if _, err := io.ReadFull(out, buf); err != nil || string(buf) != "first\n" {
			t.Errorf("live output: got %q, %v, want first", buf, err)
		}
		io.WriteString(answer, "second\n")
		io.Copy(io.Discard, out)
	}()
	got, err := proc.Run(t.Context(), c)
	answer.Close()
	live.Close()
	if want := "first\nsecond\n"; got.Stdout != want || err != nil {
		t.Errorf("got %q, %v, want %q", got.Stdout, err, want)
	}
}

// broken is a live writer whose reader went away.
type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestRunLiveWriterFails(t *testing.T) {
	c := shell(t, "for i in 1 2 3; do echo $i; done")
	c.Stdout = broken{}
	if got, err := proc.Run(t.Context(), c); got.Stdout != "1\n2\n3\n" || err != nil {
		t.Errorf("got %q, %v, want all three lines", got.Stdout, err)
	}
}

func TestRunHugeOutput(t *testing.T) {
	c := shell(t, "echo begin; head -c 5000000 /dev/zero | tr '\\0' x; echo; echo end")
	c.Capture = 1000
	var live bytes.Buffer
	c.Stdout = &live
	got, err := proc.Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if want := 6 + 5000000 + 5; live.Len() != want {
		t.Errorf("live: got %d bytes, want %d", live.Len(), want)
	}
	if len(got.Stdout) > 1200 {
		t.Errorf("kept %d bytes, want at most 1000 and a note", len(got.Stdout))
	}
	for _, want := range []string{"begin\nxxx", "\n[…]\n", "xxx\nend\n", "[cut: 4999011 of 5000011 bytes left out after the first 500]"} {
		if !strings.Contains(got.Stdout, want) {
			t.Errorf("kept %q: want %q in it", got.Stdout, want)
		}
	}
}

func TestRunOutputAtTheCap(t *testing.T) {
	for _, n := range []string{"9", "10", "11", "14", "15", "16", "25"} {
		c := shell(t, "printf abcdefghijklmnopqrstuvwxyz | head -c "+n)
		c.Capture = 10
		got, err := proc.Run(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]string{
			"9": "abcdefghi", "10": "abcdefghij",
			"11": "abcde\n[…]\nghijk\n[cut: 1 of 11 bytes left out after the first 5]\n",
			"14": "abcde\n[…]\njklmn\n[cut: 4 of 14 bytes left out after the first 5]\n",
			"15": "abcde\n[…]\nklmno\n[cut: 5 of 15 bytes left out after the first 5]\n",
			"16": "abcde\n[…]\nlmnop\n[cut: 6 of 16 bytes left out after the first 5]\n",
			"25": "abcde\n[…]\nuvwxy\n[cut: 15 of 25 bytes left out after the first 5]\n",
		}[n]
		if got.Stdout != want {
			t.Errorf("%s bytes: got %q, want %q", n, got.Stdout, want)
		}
	}
}

func TestRunTimeout(t *testing.T) {
	c := shell(t, "echo before; sleep 1000")
	c.Timeout = 50 * time.Millisecond
	got, err := proc.Run(t.Context(), c)
	if !got.TimedOut || got.ExitCode != 143 || got.Stdout != "before\n" || !errors.Is(err, agents.ErrToolFailed) {
		t.Errorf("got %+v, %v, want a time-out with exit code 143", got, err)
	}
	if want := "timed out after 50ms"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q in it", err, want)
	}
}

func TestRunIgnoresTerm(t *testing.T) {
	c := shell(t, "trap '' TERM; echo ready; while :; do sleep 0.01; done")
	c.Grace = 20 * time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	c.Stdout = onWrite(cancel)
	got, err := proc.Run(ctx, c)
	if got.ExitCode != 137 || !errors.Is(err, agents.ErrInterrupted) {
		t.Errorf("got %d, %v, want 137 and ErrInterrupted", got.ExitCode, err)
	}
}

// onWrite calls f at each write.
type onWrite func()

func (f onWrite) Write(p []byte) (int, error) { f(); return len(p), nil }

func TestRunInterrupted(t *testing.T) {
	c := shell(t, `trap 'echo tidy; exit 3' TERM; echo ready; while :; do sleep 0.01; done`)
	ctx, cancel := context.WithCancel(t.Context())
	c.Stdout = onWrite(cancel)
	got, err := proc.Run(ctx, c)
	if got.ExitCode != 3 || got.Stdout != "ready\ntidy\n" || !errors.Is(err, agents.ErrInterrupted) {
		t.Errorf("got %d %q, %v, want 3, the trap's output and ErrInterrupted", got.ExitCode, got.Stdout, err)
	}
	if _, err := proc.Run(ctx, c); !errors.Is(err, agents.ErrInterrupted) {
		t.Errorf("with a context that has ended: got %v, want ErrInterrupted", err)
	}
}

func TestEnviron(t *testing.T) {
	got := proc.Environ([]string{"A=1", "GIT_DIR=/x", "GIT_AUTHOR_NAME=y", "PWD=/old", "A=2", "broken", "=C:=x", "GITHUB=z"}, "/new", "B=3", "A=4")
	want := []string{"A=4", "PWD=/new", "GITHUB=z", "B=3"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestRunEnvironmentIsComplete(t *testing.T) {
	t.Setenv("LEAK", "yes")
	t.Setenv("GIT_DIR", "/nowhere")
	c := shell(t, "echo ${LEAK-none} ${GIT_DIR-none} $A")
	c.Env = []string{"A=b"}
	if got, err := proc.Run(t.Context(), c); got.Stdout != "none none b\n" || err != nil {
		t.Errorf("got %q, %v, want nothing inherited", got.Stdout, err)
	}
}
