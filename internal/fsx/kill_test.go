//go:build linux && failpoint

package fsx_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/fsx"
)

// killFrom and killTo have every kind of step, read-only directories, and
// directories that lose and get their bits.
var (
	killFrom = plain{
		"a": file("1"), "b": file("2"), "gone": file("3"), "l": link("a"), "mode": file("4"),
		"ro": dir(0o555), "ro/x": file("5"), "ro/sub": dir(0o500), "ro/sub/y": file("6"),
		"old": dir(0o555), "old/deep": dir(0o555), "old/deep/z": file("7"),
		"f2d": file("8"), "d2f": dir(0o755), "d2f/in": file("9"), "closed": dir(0o755), "\xff": file("10"),
		"still": file("11"), "calm": dir(0o755), "calm/x": file("12"),
		"w": file(strings.Repeat("old", 50<<10)), "w1": file("13"), "w2": file("13"), "wr": {fsx.KindFile, "14", 0o444},
	}
	killTo = plain{
		"a": file("2"), "b": link("a"), "l": link("b"), "mode": {fsx.KindFile, "4", 0o755},
		"ro": dir(0o555), "ro/x": file("55"), "ro/sub": dir(0o700), "ro/sub/new": file("66"),
		"new": dir(0o555), "new/deep": dir(0o500), "new/deep/z": file("77"),
		"f2d": dir(0o755), "f2d/in": file("88"), "d2f": file("99"), "closed": dir(closed()), "\xff": file("100"),
		"still": file("11"), "calm": dir(0o755), "calm/x": file("12"),
		"w": file(strings.Repeat("new", 45<<10)), "w1": {fsx.KindFile, "9999", 0o600}, "w2": {fsx.KindFile, "9999", 0o600}, "wr": {fsx.KindFile, "1", 0o444},
	}
	killTimes = map[string]int64{"mode": 1e18, "still": 2e18, "ro": 3e17, "calm": 4e17, "new": 5e17, "new/deep": 6e17}
	inPlace   = map[string]bool{"w": true, "w1": true, "w2": true, "wr": true} // w has a name outside too, w1 and w2 are one
)

// closed is the mode of a directory that nobody may enter; the tests themselves
// can only look into it as root.
func closed() fs.FileMode {
	if os.Getuid() == 0 || os.Getenv("FSX_CHILD") != "" && os.Getenv("FSX_ROOT") != "" {
		return 0
	}
	return 0o500
}

// TestMain lets the test binary be the process that is killed.
func TestMain(m *testing.M) {
	if what := os.Getenv("FSX_CHILD"); what != "" {
		os.Exit(child(what, os.Getenv("FSX_DIR")))
	}
	os.Exit(m.Run())
}

// child does one thing with the bench in dir; 3 = the move failed and took
// itself back, 4 = it failed otherwise.
func child(what, base string) int {
	b := benchAt(base)
	var err error
	switch what {
	case "move":
		err = b.move(func(m *fsx.Move) error { return errors.Join(m.Commit(), m.Forget()) })
	case "undo":
		err = b.move(func(m *fsx.Move) error { return errors.Join(m.Commit(), m.Undo(), m.Forget()) })
	case "strange undo":
		err = b.move(func(m *fsx.Move) error {
			if err := m.Commit(); err != nil {
				return err
			}
			m.Beside(nil, b.meddle)
			if err := m.Undo(); !errors.Is(err, agents.ErrConflict) || m.State() != fsx.MoveCommitted {
				return fmt.Errorf("undo: %w, %s", err, m.State())
			}
			return m.Forget()
		})
	case "recover":
		err = b.recover()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 3
	}
	return 0
}

func benchAt(base string) bench {
	return bench{filepath.Join(base, "root"), filepath.Join(base, "stage"), filepath.Join(base, "hold"), filepath.Join(base, "journal")}
}

// move makes the move from the contents that the parent staged.
func (b bench) move(then func(*fsx.Move) error) error {
	var list []fsx.Op
	for path := range union(killFrom, killTo) {
		n := killTo[path]
		mtime, timed := killTimes[path]
		if n == killFrom[path] && !timed {
			continue
		}
		op := fsx.Op{Path: path, InPlace: inPlace[path]}
		if timed {
			op.Mtime = &mtime
		}
		if killFrom[path].kind != fsx.KindNone {
			id, err := fsx.Identify(filepath.Join(b.root, path))
			if err != nil {
				return err
			}
			op.Before = id
		}
		switch {
		case n.kind == fsx.KindDir:
			op.Dir, op.Perm = true, n.mode
		case path == "mode", path == "still":
			op.Keep, op.Perm = true, n.mode
		case n.kind != fsx.KindNone:
			op.Staged = filepath.Join(b.stage, stageName(path))
		}
		list = append(list, op)
	}
	m, err := fsx.PrepareMove(b.journal, []string{b.root}, b.hold, list)
	if err != nil {
		return err
	}
	if err := m.Run(context.Background()); err != nil {
		return err
	}
	return then(m)
}

func stageName(path string) string { return fmt.Sprintf("%x", path) }

// meddle is somebody who edits files in place.
func (b bench) meddle() error {
	var errs []error
	for _, path := range meddled {
		errs = append(errs, os.WriteFile(filepath.Join(b.root, path), []byte("meddled"), 0))
	}
	return errors.Join(errs...)
}

// meddled are files that somebody else edits; w2 is one with w1.
var meddled = []string{"a", "ro/sub/new", "w1"}

// recover ends what a killed process began.
func (b bench) recover() error {
	m, err := fsx.LoadMove(b.journal)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if s := m.State(); s == fsx.MovePrepared || s == fsx.MoveUndoing {
		err := m.Undo()
		if err != nil && m.State() != fsx.MoveCommitted {
			return err
		}
	}
	return m.Forget()
}

// attempt is a fresh bench on which children run.
type attempt struct {
	bench
	base   string
	before string
	cred   *syscall.Credential
}

func newAttempt(t *testing.T, base string, cred *syscall.Credential) *attempt {
	t.Helper()
	at, err := os.MkdirTemp(base, "")
	must(t, err)
	a := &attempt{bench: newBenchIn(t, at, killFrom), base: at, cred: cred}
	for path, n := range killTo {
		if n != killFrom[path] && n.kind != fsx.KindDir {
			n.write(t, filepath.Join(a.stage, stageName(path)))
		}
		if inPlace[path] {
			must(t, os.Chtimes(filepath.Join(a.stage, stageName(path)), time.Time{}, time.Unix(7e8, 0)))
		}
	}
	must(t, os.Link(filepath.Join(a.root, "w"), a.outside()))
	must(t, os.Remove(filepath.Join(a.root, "w2")))
	must(t, os.Link(filepath.Join(a.root, "w1"), filepath.Join(a.root, "w2")))
	if cred != nil {
		must(t, os.Chmod(base, 0o755))
		must(t, filepath.WalkDir(at, func(path string, _ fs.DirEntry, err error) error {
			return errors.Join(err, os.Lchown(path, int(cred.Uid), int(cred.Gid)))
		}))
	}
	_, a.before = read(t, a.root)
	return a
}

// outside is the other name of a file that is written in place.
func (a *attempt) outside() string { return filepath.Join(a.base, "outside") }

// run starts the child with a failpoint and returns its exit code, -1 when it
// was killed, and how many effects it had.
func (a *attempt) run(t *testing.T, what, failpoint string) (code, hits int) {
	t.Helper()
	exe, err := os.Executable()
	must(t, err)
	log := filepath.Join(a.base, "log")
	if a.cred != nil {
		exe = shared(t, exe)
	}
	must(t, errors.Join(os.RemoveAll(log), os.WriteFile(log, nil, 0o666), os.Chmod(log, 0o666)))
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), "FSX_CHILD="+what, rootMark(), "FSX_DIR="+a.base, "CLEVERAGENTS_FAILPOINT="+failpoint, "CLEVERAGENTS_FAILPOINT_LOG="+log)
	cmd.Dir = a.base
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: a.cred}
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if cmd.ProcessState.ExitCode() > 3 {
		t.Fatalf("child %s: %s", what, out)
	}
	if failpoint == "" && err != nil {
		t.Fatalf("child %s: %v: %s", what, err, out)
	}
	trace, err := os.ReadFile(log)
	must(t, err)
	return cmd.ProcessState.ExitCode(), bytes.Count(trace, []byte("\n"))
}

// rootMark tells a child whether its parent is root.
func rootMark() string {
	if os.Getuid() == 0 {
		return "FSX_ROOT=1"
	}
	return "FSX_ROOT="
}

// shared copies the test binary to where another user may run it.
func shared(t *testing.T, exe string) string {
	t.Helper()
	to := filepath.Join(os.TempDir(), fmt.Sprintf("fsx-test-%d", os.Getpid()))
	if _, err := os.Stat(to); err == nil {
		return to
	}
	must(t, fsx.CopyFile(exe, to))
	must(t, os.Chmod(to, 0o755))
	t.Cleanup(func() { os.Remove(to) })
	return to
}

// eachUser runs fn as the user of the test and, where that is root, as nobody.
func eachUser(t *testing.T, fn func(t *testing.T, cred *syscall.Credential)) {
	t.Run("same user", func(t *testing.T) { fn(t, nil) })
	if os.Getuid() == 0 {
		t.Run("nobody", func(t *testing.T) { fn(t, &syscall.Credential{Uid: 65534, Gid: 65534}) })
	}
}

// eachEffect runs the child once for each of its effects.
func eachEffect(t *testing.T, cred *syscall.Credential, what, how string, check func(t *testing.T, a *attempt, code int)) {
	base := memoryDir(t)
	for n := 1; ; n++ {
		a := newAttempt(t, base, cred)
		code, hits := a.run(t, what, fmt.Sprintf("%d:%s", n, how))
		if hits < n {
			if n < 20 {
				t.Fatalf("only %d effects: the failpoints are not where they should be", hits)
			}
			if code != 0 {
				t.Fatalf("nothing was made to fail, and the child ended with %d", code)
			}
			return
		}
		check(t, a, code)
		if t.Failed() {
			t.Fatalf("at effect %d (%s)", n, how)
		}
		must(t, fsx.RemoveAll(a.base))
	}
}

// TestMoveKilledAnywhere kills the move at each of its effects.
func TestMoveKilledAnywhere(t *testing.T) {
	eachUser(t, func(t *testing.T, cred *syscall.Credential) {
		eachEffect(t, cred, "move", "kill", func(t *testing.T, a *attempt, code int) {
			a.run(t, "recover", "")
			a.beforeOrAfter(t)
		})
	})
}

// TestMoveUndoKilledAnywhere kills a move that is taken back after Commit.
func TestMoveUndoKilledAnywhere(t *testing.T) {
	eachUser(t, func(t *testing.T, cred *syscall.Credential) {
		eachEffect(t, cred, "undo", "kill", func(t *testing.T, a *attempt, code int) {
			a.run(t, "recover", "")
			a.beforeOrAfter(t)
		})
	})
}

// TestStrangeUndoKilledAnywhere kills an undo that finds files edited when it has
// begun, and goes forward again: it ends where it began, but for those.
func TestStrangeUndoKilledAnywhere(t *testing.T) {
	eachUser(t, func(t *testing.T, cred *syscall.Credential) {
		eachEffect(t, cred, "strange undo", "kill", func(t *testing.T, a *attempt, code int) {
			a.run(t, "recover", "")
			if _, err := fsx.LoadMove(a.journal); !errors.Is(err, fs.ErrNotExist) {
				t.Fatalf("journal after recovery: %v", err)
			}
			_, now := read(t, a.root)
			if now == a.before {
				return // it was killed before it was committed
			}
			got, _ := read(t, a.root)
			for _, path := range append(meddled, "w2") {
				if got[path].content == "meddled" {
					got[path] = node{fsx.KindFile, killTo[path].content, got[path].mode}
				}
			}
			if diff := cmp.Diff(killTo, got, cmp.AllowUnexported(node{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	})
}

// TestMoveRecoveryKilledAnywhere kills the recovery of a killed move.
func TestMoveRecoveryKilledAnywhere(t *testing.T) {
	base := memoryDir(t)
	_, hits := newAttempt(t, base, nil).run(t, "move", "")
	for _, first := range []int{hits / 3, hits / 2, hits * 3 / 4} {
		for n := 1; ; n++ {
			a := newAttempt(t, base, nil)
			a.run(t, "move", fmt.Sprintf("%d:kill", first))
			_, hits := a.run(t, "recover", fmt.Sprintf("%d:kill", n))
			a.run(t, "recover", "")
			a.beforeOrAfter(t)
			must(t, fsx.RemoveAll(a.base))
			if hits < n {
				break
			}
		}
	}
}

// TestMoveOnFullDisk lets the disk be full from each effect on: the move says
// so and everything is as before, or it was through already.
func TestMoveOnFullDisk(t *testing.T) {
	for _, how := range []string{"enospc", "eio"} {
		t.Run(how, func(t *testing.T) {
			eachUser(t, func(t *testing.T, cred *syscall.Credential) {
				eachEffect(t, cred, "move", how, func(t *testing.T, a *attempt, code int) {
					if how == "enospc" {
						a.wholeTree(t) // the move took itself back without help
					}
					a.run(t, "recover", "")
					a.beforeOrAfter(t)
				})
			})
		})
	}
}

// beforeOrAfter fails the test if the tree is neither as before, to the inode
// and time, nor as it
// should become, or if a journal is left.
func (a *attempt) beforeOrAfter(t *testing.T) {
	t.Helper()
	if _, err := fsx.LoadMove(a.journal); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("journal after recovery: %v", err)
	}
	a.wholeTree(t)
}

func (a *attempt) wholeTree(t *testing.T) {
	t.Helper()
	must(t, sameFile(filepath.Join(a.root, "w"), a.outside()))
	must(t, sameFile(filepath.Join(a.root, "w1"), filepath.Join(a.root, "w2")))
	if _, got := read(t, a.root); got == a.before {
		return
	}
	got, listing := read(t, a.root)
	for path, n := range killTo {
		if got[path] != n {
			t.Errorf("%q = %v, want %v", path, got[path], n)
		}
	}
	for path, mtime := range killTimes {
		if id, err := fsx.Identify(filepath.Join(a.root, path)); err != nil || id.Mtime != mtime {
			t.Errorf("%q has the time %d, want %d (%v)", path, id.Mtime, mtime, err)
		}
	}
	if len(got) != len(killTo) {
		t.Errorf("%d paths, want %d", len(got), len(killTo))
	}
	if t.Failed() {
		t.Logf("before:\n%s\nnow:\n%s", a.before, strings.TrimSpace(listing))
	}
}

func sameFile(a, b string) error {
	x, err := os.Lstat(a)
	y, yerr := os.Lstat(b)
	if err == nil && yerr == nil && !os.SameFile(x, y) {
		err = fmt.Errorf("%s and %s are two files", a, b)
	}
	return errors.Join(err, yerr)
}
