//go:build linux

package fsx_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/fsx"
)

var (
	faultFrom = plain{"a": file("1"), "b": dir(0o755), "b/c": file("2"), "d": dir(0o555), "d/e": file("3"), "z": file("4")}
	faultTo   = plain{"a": file("11"), "b": file("22"), "d": dir(0o700), "d/e": file("33"), "d/n": file("44"), "z": file("55")}
)

// TestB123FailureInTheMiddle: a path that cannot be changed is named, and
// everything is as before; once it can, the same move goes through.
func TestB123FailureInTheMiddle(t *testing.T) {
	b := newBench(t, faultFrom)
	block, unblock := immutable(filepath.Join(b.root, "d", "e"))
	path := "d/e"
	if os.Getuid() != 0 { // only root can make a file immutable: let nothing come out of the stage instead
		block, unblock = func() error { return os.Chmod(b.stage, 0o555) }, func() error { return os.Chmod(b.stage, 0o700) }
		path = ""
	}
	if path != "" {
		must(t, block())
	}
	list := ops(t, b.root, b.stage, faultFrom, faultTo)
	_, before := read(t, b.root)
	m, err := fsx.PrepareMove(b.journal, []string{b.root}, b.hold, list)
	must(t, err)
	if path == "" {
		must(t, block())
	}
	err = m.Run(t.Context())
	must(t, unblock())
	var at *fsx.MoveError
	if !errors.Is(err, fs.ErrPermission) || !errors.As(err, &at) || path != "" && at.Path != path {
		t.Errorf("run: %v, want a permission error that names %s", err, path)
	}
	if got := m.State(); got != fsx.MoveUndone {
		t.Errorf("state = %s, want undone", got)
	}
	sameListing(t, b.root, before)
	must(t, m.Forget())
	m = b.prepareAgain(t, faultFrom, faultTo)
	must(t, m.Run(t.Context()))
	compare(t, b.root, faultTo)
}

// fsImmutable is FS_IMMUTABLE_FL.
const fsImmutable = 0x10

// immutable returns what sets and clears the attribute that chattr +i sets.
func immutable(path string) (set, clear func() error) {
	change := func(flags int) error {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		return unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, flags)
	}
	return func() error { return change(fsImmutable) }, func() error { return change(0) }
}

// lateContext ends after some looks at it.
type lateContext struct {
	context.Context
	left atomic.Int64
}

func endsAfter(looks int) *lateContext {
	c := &lateContext{Context: context.Background()}
	c.left.Store(int64(looks))
	return c
}

func (c *lateContext) Err() error {
	if c.left.Add(-1) < 0 {
		return context.Canceled
	}
	return nil
}

func TestMoveInterruptedBetweenSteps(t *testing.T) {
	base := memoryDir(t)
	for looks := 0; ; looks++ {
		b := newBenchIn(t, mkdir(t, base, looks), faultFrom)
		m := b.prepare(t, faultFrom, faultTo)
		_, before := read(t, b.root)
		err := m.Run(endsAfter(looks))
		if err == nil {
			if looks < 5 {
				t.Fatalf("only %d looks at the context", looks)
			}
			return
		}
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("run: %v, want context.Canceled", err)
		}
		sameListing(t, b.root, before)
	}
}

// TestMoveWithoutRenameFlags goes the way of file systems that can neither
// exchange nor refuse to replace.
func TestMoveWithoutRenameFlags(t *testing.T) {
	for name, turn := range turns {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, turn.from)
			_, before := read(t, b.root)
			m := b.prepare(t, turn.from, turn.to)
			fsx.WithoutRenameFlags(m)
			must(t, m.Run(t.Context()))
			compare(t, b.root, turn.to)
			must(t, m.Undo())
			sameListing(t, b.root, before)
			must(t, m.Forget())
			b.empty(t)
		})
	}
}

func TestMoveOtherFileSystem(t *testing.T) {
	other, err := os.MkdirTemp("/dev/shm", "fsx-test-")
	if err != nil {
		t.Fatalf("no second file system to test with: %v", err)
	}
	t.Cleanup(func() { os.RemoveAll(other) })
	b := newBench(t, faultFrom)
	_, before := read(t, b.root)
	list := ops(t, b.root, b.stage, faultFrom, faultTo)
	if _, err := fsx.PrepareMove(b.journal, []string{b.root}, filepath.Join(other, "hold"), list); !errors.Is(err, agents.ErrUnsupported) {
		t.Errorf("hold elsewhere: %v, want ErrUnsupported", err)
	}
	staged := filepath.Join(other, "staged")
	must(t, os.WriteFile(staged, []byte("x"), 0o600))
	if _, err := fsx.PrepareMove(b.journal, []string{b.root}, b.hold, []fsx.Op{{Path: "new", Staged: staged}}); !errors.Is(err, agents.ErrUnsupported) {
		t.Errorf("staged elsewhere: %v, want ErrUnsupported", err)
	}
	sameListing(t, b.root, before)
	if entries, err := os.ReadDir(b.hold); err != nil || len(entries) > 0 {
		t.Errorf("hold has %v, %v", entries, err)
	}
}

func TestMoveRefusesOpsThatMakeNoSense(t *testing.T) {
	b := newBench(t, plain{"f": file("1"), "d": dir(0o755), "d/x": file("2")})
	staged := filepath.Join(b.stage, "s")
	must(t, os.WriteFile(staged, []byte("x"), 0o600))
	id := func(path string) fsx.Identity {
		id, err := fsx.Identify(filepath.Join(b.root, path))
		must(t, err)
		return id
	}
	for name, list := range map[string][]fsx.Op{
		"empty path":             {{Path: "", Staged: staged}},
		"dot":                    {{Path: ".", Staged: staged}},
		"up":                     {{Path: "../x", Staged: staged}},
		"absolute":               {{Path: "/x", Staged: staged}},
		"not clean":              {{Path: "d//y", Staged: staged}},
		"NUL":                    {{Path: "a\x00b", Staged: staged}},
		"root":                   {{Root: 1, Path: "y", Staged: staged}},
		"relative stage":         {{Path: "y", Staged: "s"}},
		"nothing staged":         {{Path: "y", Staged: staged + "none"}},
		"directory as a file":    {{Path: "y", Staged: b.stage}},
		"file as a directory":    {{Path: "y", Staged: staged, Dir: true}},
		"keep what is not there": {{Path: "y", Keep: true}},
		"keep and stage":         {{Path: "f", Before: id("f"), Keep: true, Staged: staged}},
		"twice":                  {{Path: "y", Staged: staged}, {Path: "y", Dir: true}},
		"below a file":           {{Path: "y", Staged: staged}, {Path: "y/z", Dir: true}},
		"below what goes":        {{Path: "d", Before: id("d")}, {Path: "d/x", Before: id("d/x"), Keep: true}},
		"no directory above":     {{Path: "f", Before: id("f"), Dir: true}, {Path: "f/a/b", Dir: true}},
		"below what was a file":  {{Path: "f", Before: id("f"), Dir: true}, {Path: "f/a", Before: id("d/x")}},
	} {
		if _, err := fsx.PrepareMove(b.journal, []string{b.root}, b.hold, list); !errors.Is(err, agents.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
	}
	for name, list := range map[string][]fsx.Op{
		"directory that is not emptied": {{Path: "d", Before: id("d")}},
		"directory above is not there":  {{Path: "n/y", Staged: staged}},
		"nothing there":                 {{Path: "y", Before: id("f")}},
		"something there":               {{Path: "f", Staged: staged}},
	} {
		if _, err := fsx.PrepareMove(b.journal, []string{b.root}, b.hold, list); !errors.Is(err, agents.ErrConflict) {
			t.Errorf("%s: %v, want ErrConflict", name, err)
		}
	}
	for _, d := range []string{b.hold, b.journal} {
		if entries, err := os.ReadDir(d); err != nil || len(entries) > 0 {
			t.Errorf("%s has %v, %v", d, entries, err)
		}
	}
}

func TestMoveJournals(t *testing.T) {
	b := newBench(t, faultFrom)
	if _, err := fsx.LoadMove(b.journal); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no journal: %v, want ErrNotExist", err)
	}
	must(t, os.WriteFile(filepath.Join(b.journal, "move-prepared.tmp-1"), []byte("half"), 0o600))
	if _, err := fsx.LoadMove(b.journal); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("half a journal: %v, want ErrNotExist", err)
	}
	must(t, os.Remove(filepath.Join(b.journal, "move-prepared.tmp-1")))
	m := b.prepare(t, faultFrom, faultTo)
	if _, err := fsx.PrepareMove(b.journal, []string{b.root}, b.hold, nil); !errors.Is(err, agents.ErrExists) {
		t.Errorf("second prepare: %v, want ErrExists", err)
	}
	if err := m.Commit(); !errors.Is(err, agents.ErrState) {
		t.Errorf("commit before run: %v, want ErrState", err)
	}
	loaded, err := fsx.LoadMove(b.journal)
	must(t, err)
	if err := loaded.Run(t.Context()); !errors.Is(err, agents.ErrState) {
		t.Errorf("run of a loaded move: %v, want ErrState", err)
	}
	if err := loaded.Commit(); !errors.Is(err, agents.ErrState) {
		t.Errorf("commit of a loaded move that never ran: %v, want ErrState", err)
	}
	must(t, m.Run(t.Context()))
	must(t, loaded.Commit()) // all steps are made
	must(t, loaded.Forget())
	compare(t, b.root, faultTo)
	b.empty(t)

	b = newBench(t, faultFrom)
	b.prepare(t, faultFrom, faultTo)
	path := filepath.Join(b.journal, "move-prepared")
	data, err := os.ReadFile(path)
	must(t, err)
	for name, bad := range map[string][]byte{"empty": nil, "cut": data[:len(data)/2], "changed": []byte(strings.Replace(string(data), `"version":2`, `"version":3`, 1))} {
		must(t, os.WriteFile(path, bad, 0o600))
		if _, err := fsx.LoadMove(b.journal); !errors.Is(err, agents.ErrDamaged) {
			t.Errorf("%s journal: %v, want ErrDamaged", name, err)
		}
	}
}

// TestMoveOfReplacedRoot: a root that is another directory now is left alone.
func TestMoveOfReplacedRoot(t *testing.T) {
	b := newBench(t, faultFrom)
	m := b.prepare(t, faultFrom, faultTo)
	must(t, m.Run(t.Context()))
	must(t, os.Rename(b.root, b.root+"-moved"))
	must(t, os.Mkdir(b.root, 0o755))
	if err := m.Undo(); !errors.Is(err, agents.ErrConflict) {
		t.Errorf("undo: %v, want a conflict", err)
	}
	must(t, os.Remove(b.root))
	must(t, os.Rename(b.root+"-moved", b.root))
	must(t, m.Undo())
	compare(t, b.root, faultFrom)
}

func TestMoveTwoRootsHardLinksAndModes(t *testing.T) {
	b := newBench(t, plain{"one": file("1"), "keep": file("2"), "same": {fsx.KindFile, "3", 0o444}})
	must(t, os.Link(b.root+"/one", b.root+"/two"))
	must(t, os.Link(b.root+"/keep", b.root+"/kept"))
	second := filepath.Join(filepath.Dir(b.root), "second")
	must(t, os.Mkdir(second, 0o755))
	id := func(path string) fsx.Identity {
		id, err := fsx.Identify(filepath.Join(b.root, path))
		must(t, err)
		return id
	}
	_, before := read(t, b.root)
	stage := func(name string) string {
		at := filepath.Join(b.stage, name)
		must(t, os.WriteFile(at, []byte(name), 0o640))
		return at
	}
	rootDir := id(".")
	m, err := fsx.PrepareMove(b.journal, []string{b.root, second}, b.hold, []fsx.Op{
		{Path: "one", Before: id("one"), Staged: stage("n1")}, {Path: "two", Before: id("two"), Staged: stage("n2")},
		{Path: "keep", Before: id("keep"), Keep: true, Perm: 0o755}, {Path: "kept", Before: id("kept"), Keep: true, Perm: 0o755},
		{Path: "same", Before: id("same"), Keep: true, Perm: 0o444},
		{Root: 1, Path: "one", Staged: stage("n3")}, {Root: 1, Path: "d", Dir: true, Perm: 0o750 | fs.ModeSetgid},
		{Path: ".", Before: rootDir, Dir: true, Perm: 0o711},
	})
	must(t, err)
	must(t, m.Run(t.Context()))
	got, _ := read(t, b.root)
	if got["one"].content != "n1" || got["two"].content != "n2" || got["keep"].mode != 0o755 || got["kept"].mode != 0o755 || id(".").Mode != 0o711 {
		t.Errorf("tree = %v, root %o", got, id(".").Mode)
	}
	compare(t, second, plain{"one": {fsx.KindFile, "n3", 0o640}, "d": dir(0o2750)})
	must(t, m.Commit())
	must(t, m.Undo())
	sameListing(t, b.root, before)
	compare(t, second, plain{})
}

// TestB066MoveOfFIFO takes away a FIFO and brings it back.
func TestB066MoveOfFIFO(t *testing.T) {
	b := newBench(t, plain{})
	must(t, syscall.Mkfifo(b.root+"/p", 0o644))
	_, before := read(t, b.root)
	id, err := fsx.Identify(b.root + "/p")
	must(t, err)
	staged := filepath.Join(b.stage, "s")
	must(t, os.WriteFile(staged, nil, 0o644))
	m, err := fsx.PrepareMove(b.journal, []string{b.root}, b.hold, []fsx.Op{{Path: "p", Before: id, Staged: staged}})
	must(t, err)
	must(t, m.Run(t.Context()))
	compare(t, b.root, plain{"p": file("")})
	must(t, m.Undo())
	sameListing(t, b.root, before)
}

// TestMoveFarBelow has a path that is longer than one system call takes.
func TestMoveFarBelow(t *testing.T) {
	b := newBench(t, plain{})
	at, rel := b.root, ""
	must(t, os.Chdir(at))
	t.Cleanup(func() { os.Chdir("/") })
	for len(rel) < 5000 {
		must(t, os.Mkdir(long, 0o755))
		must(t, os.Chdir(long))
		rel = filepath.Join(rel, long)
	}
	staged := filepath.Join(b.stage, "s")
	must(t, os.WriteFile(staged, []byte("far"), 0o644))
	m, err := fsx.PrepareMove(b.journal, []string{b.root}, b.hold, []fsx.Op{{Path: rel + "/f", Staged: staged}, {Path: rel + "/d", Dir: true, Perm: 0o755}})
	must(t, err)
	must(t, m.Run(t.Context()))
	if got, err := os.ReadFile("f"); err != nil || string(got) != "far" {
		t.Errorf("far file = %q, %v", got, err)
	}
	must(t, m.Undo())
	if entries, err := os.ReadDir("."); err != nil || len(entries) > 0 {
		t.Errorf("after undo: %v, %v", entries, err)
	}
	must(t, m.Forget())
	must(t, os.Chdir("/"))
	must(t, fsx.RemoveAll(b.root))
}

// TestMoveAgainstARacer: whatever moment somebody else puts a file of their own
// at a path, it is there in the end.
func TestMoveAgainstARacer(t *testing.T) {
	base := memoryDir(t)
	for round := range 150 {
		b := newBenchIn(t, mkdir(t, base, round), plain{"a": file("old"), "gone": file("old")})
		m := b.prepare(t, plain{"a": file("old"), "gone": file("old")}, plain{"a": file("ours"), "new": file("ours")})
		done := make(chan error)
		go func() {
			time.Sleep(time.Duration(rand.IntN(300)) * time.Microsecond)
			var err error
			for _, name := range []string{"a", "gone", "new"} {
				tmp := filepath.Join(b.stage, "racer-"+name)
				err = errors.Join(err, os.WriteFile(tmp, []byte("racer"), 0o644), os.Rename(tmp, filepath.Join(b.root, name)))
			}
			done <- err
		}()
		run := m.Run(t.Context())
		must(t, <-done)
		if run != nil && !errors.Is(run, agents.ErrConflict) {
			t.Fatalf("run: %v", run)
		}
		got, _ := read(t, b.root)
		for _, name := range []string{"a", "gone", "new"} {
			if got[name].content != "racer" {
				t.Fatalf("round %d: %s = %q (run: %v)", round, name, got[name].content, run)
			}
		}
	}
}

func mkdir(t *testing.T, base string, n int) string {
	t.Helper()
	at := filepath.Join(base, fmt.Sprint(n))
	must(t, os.Mkdir(at, 0o755))
	return at
}
