package proc_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/proc"
)

// descendants are ways to get away from the command that starts one. Each
// runs $1 as a shell line in the background.
var descendants = map[string]string{
	"background":                      `sh -c "$1" &`,
	"closed output":                   `sh -c "$1" >/dev/null 2>&1 </dev/null &`,
	"nohup":                           `nohup sh -c "$1" >/dev/null 2>&1 &`,
	"double fork":                     `(sh -c "$1" >/dev/null 2>&1 &)`,
	"own session":                     `setsid sh -c "$1" >/dev/null 2>&1 &`,
	"double fork, own session":        `(setsid sh -c "$1 & wait" >/dev/null 2>&1 &) &`,
	"daemon without an environment":   `(cd /; exec env -i /usr/bin/setsid /bin/sh -c "$1" >/dev/null 2>&1 &)`,
	"daemon's child, empty environ":   `(cd /; env -i /usr/bin/setsid /bin/sh -c "($1) & exit 0" >/dev/null 2>&1 &)`,
	"ignores SIGTERM":                 `sh -c "trap '' TERM HUP; $1" >/dev/null 2>&1 &`,
	"stopped":                         `sh -c "kill -STOP \$\$; $1" >/dev/null 2>&1 &`,
	"grandchild of a stopped session": `setsid sh -c "($1) & kill -STOP \$\$" >/dev/null 2>&1 &`,
}

func TestRunEndsEveryDescendant(t *testing.T) {
	for name, start := range descendants {
		t.Run(name, func(t *testing.T) {
			c := shell(t, "")
			pidfile := filepath.Join(c.Dir, "pid")
			line := fmt.Sprintf("echo $$ > %s; while :; do sleep 1000; done", pidfile)
			// The command itself ends at once, or when the other is up.
			wait := fmt.Sprintf("while ! [ -s %s ]; do sleep 0.005; done", pidfile)
			if name == "stopped" {
				wait = ""
			}
			c.Argv = []string{"/bin/sh", "-c", start + "\n" + wait, "sh", line}
			c.Grace = 200 * time.Millisecond
			got, err := proc.Run(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			if len(got.Notices) != 1 || !strings.Contains(got.Notices[0], "ended: ") {
				t.Errorf("got notices %q, want one that says what was ended", got.Notices)
			}
			if b, err := os.ReadFile(pidfile); err == nil {
				wantGone(t, strings.TrimSpace(string(b)))
			}
			wantNoChildren(t)
		})
	}
}

// wantGone reports a process that still lives.
func wantGone(t *testing.T, pid string) {
	t.Helper()
	n, err := strconv.Atoi(pid)
	if err != nil {
		t.Fatalf("pid %q: %v", pid, err)
	}
	if err := syscall.Kill(n, 0); err != syscall.ESRCH {
		t.Errorf("process %d: got %v, want it gone", n, err)
	}
}

// wantNoChildren reports any child of the test, dead ones included.
func wantNoChildren(t *testing.T) {
	t.Helper()
	files, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if b, _ := os.ReadFile(f); len(strings.TrimSpace(string(b))) > 0 {
			t.Errorf("got children %q, want none", b)
		}
	}
}

func TestB012LateWriterIsWaitedFor(t *testing.T) {
	for name, start := range descendants {
		if name == "stopped" || strings.Contains(name, "of a stopped") {
			continue
		}
		t.Run(name, func(t *testing.T) {
			c := shell(t, "")
			late := filepath.Join(c.Dir, "late")
			c.Argv = []string{"/bin/sh", "-c", start, "sh", "sleep 0.15; echo late > " + late}
			c.Linger = 10 * time.Second
			got, err := proc.Run(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			if b, err := os.ReadFile(late); string(b) != "late\n" || err != nil {
				t.Errorf("after Run: got %q, %v, want the late write", b, err)
			}
			if len(got.Notices) != 1 || !strings.HasPrefix(got.Notices[0], "waited for ") {
				t.Errorf("got notices %q, want one that says what was waited for", got.Notices)
			}
			wantNoChildren(t)
		})
	}
}

func TestRunKeepsOutputOfBackgroundProcess(t *testing.T) {
	c := shell(t, "(sleep 0.1; echo late) & echo early")
	c.Linger = 10 * time.Second
	if got, err := proc.Run(t.Context(), c); got.Stdout != "early\nlate\n" || err != nil {
		t.Errorf("got %q, %v, want early and late", got.Stdout, err)
	}
}

func TestRunInterruptedWhileWaiting(t *testing.T) {
	c := shell(t, "setsid sh -c 'echo up; exec sleep 1000' &")
	c.Linger = time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	c.Stdout = onWrite(cancel)
	_, err := proc.Run(ctx, c)
	if !errors.Is(err, agents.ErrInterrupted) {
		t.Errorf("got %v, want ErrInterrupted", err)
	}
	wantNoChildren(t)
}

func TestRunTimeoutEndsTheWholeTree(t *testing.T) {
	c := shell(t, "setsid sh -c 'trap \"\" TERM; sleep 1000; sleep 1000' & (sleep 1000 &) ; sleep 1000")
	c.Timeout, c.Grace = 100*time.Millisecond, 50*time.Millisecond
	got, err := proc.Run(t.Context(), c)
	if !got.TimedOut || !errors.Is(err, agents.ErrToolFailed) {
		t.Errorf("got %+v, %v, want a time-out", got, err)
	}
	wantNoChildren(t)
}

func TestRunsAtOnceKeepApart(t *testing.T) {
	long := shell(t, "")
	release := filepath.Join(long.Dir, "release")
	long.Argv = []string{"/bin/sh", "-c", `setsid sh -c 'while ! [ -e release ]; do sleep 0.005; done; echo done > result' >/dev/null 2>&1 & echo up`}
	long.Linger = time.Minute
	up := make(chan struct{})
	var once sync.Once
	long.Stdout = onWrite(func() { once.Do(func() { close(up) }) })

	ended := make(chan error, 1)
	go func() {
		_, err := proc.Run(t.Context(), long)
		ended <- err
	}()
	<-up
	for range 5 {
		if _, err := proc.Run(t.Context(), shell(t, "sleep 1000 & setsid sleep 1000 & exit 0")); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(release, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(long.Dir, "result")); string(b) != "done\n" || err != nil {
		t.Errorf("got %q, %v: want the other run's process left alone", b, err)
	}
	wantNoChildren(t)
}

func TestRunLeavesOtherChildrenAlone(t *testing.T) {
	plain := exec.Command("sleep", "1000")
	if err := plain.Start(); err != nil {
		t.Fatal(err)
	}
	before := exec.Command("sleep", "1000")
	before.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := before.Start(); err != nil {
		t.Fatal(err)
	}
	c := shell(t, "echo up; read x; sleep 1000 & exit 0")
	during := exec.Command("sleep", "1000")
	during.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	var done func()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	c.Stdin = r
	c.Stdout = onWrite(func() {
		if done, err = proc.Start(during); err != nil {
			t.Error(err)
		}
		w.Close()
	})
	if _, err := proc.Run(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	for name, cmd := range map[string]*exec.Cmd{"plain": plain, "before": before, "during": during} {
		if err := cmd.Process.Kill(); err != nil {
			t.Errorf("%s: got %v, want it alive", name, err)
		}
		if err := cmd.Wait(); err == nil || err.Error() != "signal: killed" {
			t.Errorf("%s: got %v, want it alive until now", name, err)
		}
	}
	done()
	r.Close()
	wantNoChildren(t)
}

func TestRunNested(t *testing.T) {
	c := shell(t, "echo $AGENTS_CALL")
	c.Env = append(c.Env, proc.MarkVariable+"=outer")
	got, err := proc.Run(t.Context(), c)
	if !strings.HasPrefix(got.Stdout, "outer/") || err != nil {
		t.Errorf("got %q, %v, want the outer mark and one more", got.Stdout, err)
	}
}
