//go:build linux

package fsx_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/fsx"
)

// rewriting is a file that a Move writes in place.
type rewriting struct {
	bench
	at string
	op fsx.Op
}

func newRewriting(t testing.TB, b bench, old, new node) rewriting {
	t.Helper()
	r := rewriting{bench: b, at: filepath.Join(b.root, "f")}
	old.write(t, r.at)
	r.op = r.inPlace(t, "f", new)
	return r
}

// inPlace returns the op that writes to path what it stages.
func (b bench) inPlace(t testing.TB, path string, new node) fsx.Op {
	t.Helper()
	id, err := fsx.Identify(filepath.Join(b.root, path))
	must(t, err)
	op := fsx.Op{Path: path, Before: id, Staged: filepath.Join(b.stage, "new-"+path), InPlace: true}
	new.write(t, op.Staged)
	must(t, os.Chtimes(op.Staged, time.Time{}, time.Unix(7e8, 123456789)))
	return op
}

func (r rewriting) begin(t testing.TB, more ...fsx.Op) *fsx.Move {
	t.Helper()
	m, err := fsx.PrepareMove(r.journal, []string{r.root}, r.hold, append(more, r.op))
	must(t, err)
	return m
}

func TestMoveInPlace(t *testing.T) {
	big := strings.Repeat("0123456789abcdef", 20<<10)
	for name, c := range map[string]struct{ old, new node }{
		"same length":    {file("1"), file("2")},
		"grows":          {file("1"), file(big)},
		"shrinks":        {file(big), file("1")},
		"from nothing":   {file(""), file("1")},
		"to nothing":     {file("1"), file("")},
		"to zeros":       {file(big), file(string(make([]byte, 300<<10)))},
		"grows by zeros": {file("1"), file("1" + string(make([]byte, 600<<10)))},
		"bits":           {file("1"), node{fsx.KindFile, "2", 0o755}},
		"read-only":      {node{fsx.KindFile, "1", 0o444}, node{fsx.KindFile, "2", 0o400}},
		"bits alone":     {file("1"), node{fsx.KindFile, "1", 0o600}},
		"time alone":     {file("1"), file("1")},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRewriting(t, newBench(t, plain{}), c.old, c.new)
			outside := filepath.Join(filepath.Dir(r.root), "outside")
			must(t, os.Link(r.at, outside))
			r.op.Before = identity(t, r.at)
			_, before := read(t, r.root)
			m := r.begin(t)
			must(t, m.Run(t.Context()))
			compare(t, r.root, plain{"f": c.new})
			must(t, sameName(outside, r.at))
			if id := identity(t, r.at); id.Mtime != time.Unix(7e8, 123456789).UnixNano() {
				t.Errorf("time = %v, want that of the staged file", id.ModTime())
			}
			must(t, m.Undo())
			sameListing(t, r.root, before)
			must(t, m.Forget())
			r.empty(t)

			r.op = r.inPlace(t, "f", c.new)
			must(t, r.begin(t).Run(t.Context()))
			loaded, err := fsx.LoadMove(r.journal) // a killed process made it
			must(t, err)
			must(t, loaded.Commit())
			must(t, loaded.Undo())
			sameListing(t, r.root, before)
			must(t, loaded.Forget())

			r.op = r.inPlace(t, "f", c.new)
			m = r.begin(t)
			must(t, errors.Join(m.Run(t.Context()), m.Commit(), m.Forget()))
			compare(t, r.root, plain{"f": c.new})
			must(t, sameName(outside, r.at))
			r.empty(t)
		})
	}
}

func identity(t testing.TB, path string) fsx.Identity {
	t.Helper()
	id, err := fsx.Identify(path)
	must(t, err)
	return id
}

func sameName(a, b string) error {
	x, err := os.Stat(a)
	y, yerr := os.Stat(b)
	if err == nil && yerr == nil && !os.SameFile(x, y) {
		err = errors.New("the two names are two files now")
	}
	return errors.Join(err, yerr)
}

// TestMoveInPlaceTwoNames also replaces a third name of the file, and takes a
// fourth away.
func TestMoveInPlaceTwoNames(t *testing.T) {
	b := newBench(t, plain{"a": file("old")})
	for _, name := range []string{"b", "swapped", "gone"} {
		must(t, os.Link(b.root+"/a", filepath.Join(b.root, name)))
	}
	list := []fsx.Op{b.inPlace(t, "a", file("newer")), b.inPlace(t, "b", file("newer")), b.inPlace(t, "swapped", file("other")), {Path: "gone", Before: identity(t, b.root+"/gone")}}
	list[2].InPlace = false
	_, before := read(t, b.root)
	for _, then := range []func(*fsx.Move) error{(*fsx.Move).Undo, func(m *fsx.Move) error { return errors.Join(m.Commit(), m.Undo()) }} {
		m, err := fsx.PrepareMove(b.journal, []string{b.root}, b.hold, list)
		must(t, err)
		must(t, m.Run(t.Context()))
		compare(t, b.root, plain{"a": file("newer"), "b": file("newer"), "swapped": file("other")})
		must(t, sameName(b.root+"/a", b.root+"/b"))
		if late, err := m.LateWrites(); err != nil || len(late) > 0 {
			t.Errorf("late = %v, %v: want none, the move wrote itself", late, err)
		}
		must(t, then(m))
		sameListing(t, b.root, before)
		must(t, m.Forget())
		list[0], list[1], list[2] = b.inPlace(t, "a", file("newer")), b.inPlace(t, "b", file("newer")), b.inPlace(t, "swapped", file("other"))
		list[2].InPlace = false
		list[3].Before = identity(t, b.root+"/gone")
	}
	must(t, os.WriteFile(list[1].Staged, []byte("third"), 0o644))
	if _, err := fsx.PrepareMove(b.journal, []string{b.root}, b.hold, list); !errors.Is(err, agents.ErrInvalid) {
		t.Errorf("one file with two contents: %v, want ErrInvalid", err)
	}
}

// TestMoveInPlaceOfMount: a mounted file cannot be replaced, but written.
func TestMoveInPlaceOfMount(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can mount")
	}
	r := newRewriting(t, newBench(t, plain{}), file("below"), file("new"))
	source := filepath.Join(filepath.Dir(r.root), "source")
	must(t, os.WriteFile(source, []byte("old"), 0o644))
	if err := unix.Mount(source, r.at, "", unix.MS_BIND, ""); errors.Is(err, unix.EPERM) {
		t.Skip("this root may not mount")
	} else {
		must(t, err)
	}
	defer unix.Unmount(r.at, unix.MNT_DETACH)
	r.op.Before = identity(t, r.at)
	m := r.begin(t)
	must(t, m.Run(t.Context()))
	if got, err := os.ReadFile(source); err != nil || string(got) != "new" {
		t.Errorf("mounted file = %q, %v", got, err)
	}
	must(t, m.Undo())
	if got, err := os.ReadFile(source); err != nil || string(got) != "old" {
		t.Errorf("mounted file after undo = %q, %v", got, err)
	}
}

// TestMoveInPlaceHalfWritten: what a kill or a power loss left of a write, one
// way or back, becomes the old content again; nothing else is touched.
func TestMoveInPlaceHalfWritten(t *testing.T) {
	base := memoryDir(t)
	rapid.Check(t, func(rt *rapid.T) {
		at, err := os.MkdirTemp(base, "")
		must(t, err)
		defer func() { must(t, fsx.RemoveAll(at)) }()
		size := rapid.SampledFrom([]int{0, 1, 5, 4095, 4096, 9000, 20000})
		old, new := bytes.Repeat([]byte("o"), size.Draw(rt, "old")), bytes.Repeat([]byte("n"), size.Draw(rt, "new"))
		r := newRewriting(t, newBenchIn(t, at, plain{}), node{fsx.KindFile, string(old), 0o444}, node{fsx.KindFile, string(new), 0o400})
		_, before := read(t, r.root)
		m := r.begin(t)
		must(t, m.Run(t.Context()))
		cut := rapid.IntRange(0, len(new)).Draw(rt, "cut")
		now := append([]byte{}, new[:cut]...)
		if cut < len(old) {
			now = append(now, old[cut:]...)
		}
		if rapid.Bool().Draw(rt, "back") { // an undo was killed too: whole blocks are old again
			copy(now, old[:min(len(old), cut&^4095)])
		}
		foreign := rapid.Bool().Draw(rt, "foreign") && len(now) > 0
		if foreign {
			now[rapid.IntRange(0, len(now)-1).Draw(rt, "where")] = 'x'
		} else if rapid.Bool().Draw(rt, "longer") {
			now, foreign = append(now, old...), true
			now = append(now, new...)
			now = append(now, 'x')
		}
		must(t, os.Chmod(r.at, 0o644)) // rights that the step gives for the time
		must(t, os.WriteFile(r.at, now, 0))
		loaded, err := fsx.LoadMove(r.journal)
		must(t, err)
		err = loaded.Undo()
		if foreign {
			var me *fsx.MoveError
			if !errors.Is(err, agents.ErrConflict) || !errors.As(err, &me) || me.Path != "f" {
				rt.Fatalf("undo: %v, want a conflict at f", err)
			}
			if got, err := os.ReadFile(r.at); err != nil || !bytes.Equal(got, now) {
				rt.Fatalf("somebody's work was changed: %v", err)
			}
			return
		}
		if err != nil {
			rt.Fatalf("undo: %v", err)
		}
		sameListing(t, r.root, before)
		must(t, loaded.Forget())
		r.empty(t)
	})
}

// TestMoveInPlaceNoticesStrangers at each moment.
func TestMoveInPlaceNoticesStrangers(t *testing.T) {
	strange := map[string]func(at string) error{
		"write":   func(at string) error { return os.WriteFile(at, []byte("str"), 0o644) },
		"replace": func(at string) error { return errors.Join(os.Remove(at), os.WriteFile(at, []byte("str"), 0o644)) },
		"link":    func(at string) error { return errors.Join(os.Remove(at), os.Symlink("f2", at)) },
		"remove":  os.Remove,
		"FIFO":    func(at string) error { return errors.Join(os.Remove(at), syscall.Mkfifo(at, 0o644)) },
	}
	for name, change := range strange {
		begin := func(t *testing.T) (rewriting, *fsx.Move) {
			r := newRewriting(t, newBench(t, plain{}), file("old"), file("new"))
			return r, r.begin(t)
		}
		t.Run("before prepare "+name, func(t *testing.T) {
			r := newRewriting(t, newBench(t, plain{}), file("old"), file("new"))
			must(t, change(r.at))
			_, err := fsx.PrepareMove(r.journal, []string{r.root}, r.hold, []fsx.Op{r.op})
			conflictAt(t, err, "f")
		})
		t.Run("before run "+name, func(t *testing.T) {
			r, m := begin(t)
			must(t, change(r.at))
			_, before := read(t, r.root)
			conflictAt(t, m.Run(t.Context()), "f")
			sameListing(t, r.root, before)
			if got := m.State(); got != fsx.MoveUndone {
				t.Errorf("state = %s, want undone: the step was not begun", got)
			}
		})
		for _, commit := range []bool{false, true} {
			t.Run("before undo "+name, func(t *testing.T) {
				r, m := begin(t)
				must(t, m.Run(t.Context()))
				if commit {
					must(t, m.Commit())
				}
				must(t, change(r.at))
				_, before := read(t, r.root)
				conflictAt(t, m.Undo(), "f")
				sameListing(t, r.root, before)
			})
		}
	}
}

// TestMoveInPlaceAgainstARacer: a file that somebody else puts at the path is
// there in the end, whenever it comes.
func TestMoveInPlaceAgainstARacer(t *testing.T) {
	base := memoryDir(t)
	for round := range 100 {
		r := newRewriting(t, newBenchIn(t, mkdir(t, base, round), plain{}), file("old"), file("new"))
		m := r.begin(t)
		done := make(chan error)
		go func() {
			time.Sleep(time.Duration(rand.IntN(300)) * time.Microsecond)
			tmp := filepath.Join(r.stage, "racer")
			done <- errors.Join(os.WriteFile(tmp, []byte("racer"), 0o644), os.Rename(tmp, r.at))
		}()
		run := m.Run(t.Context())
		must(t, <-done)
		if run != nil && !errors.Is(run, agents.ErrConflict) {
			t.Fatalf("run: %v", run)
		}
		if got, err := os.ReadFile(r.at); err != nil || string(got) != "racer" {
			t.Fatalf("round %d: %q, %v (run: %v)", round, got, err, run)
		}
	}
}

// TestMoveInPlaceTouched: a time that somebody touched before the step stays.
func TestMoveInPlaceTouched(t *testing.T) {
	r := newRewriting(t, newBench(t, plain{}), file("old"), file("new"))
	m := r.begin(t)
	must(t, os.Chtimes(r.at, time.Time{}, time.Unix(1, 0)))
	conflictAt(t, m.Run(t.Context()), "f")
	if got := identity(t, r.at).Mtime; got != 1e9 {
		t.Errorf("time = %d, want it untouched", got)
	}
}

func TestMoveInPlaceRefuses(t *testing.T) {
	b := newBench(t, plain{"f": file("1"), "d": dir(0o755), "l": link("f")})
	op := b.inPlace(t, "f", file("2"))
	linked := filepath.Join(b.stage, "link")
	must(t, os.Symlink("x", linked))
	for name, op := range map[string]fsx.Op{
		"nothing there":  {Path: "n", Staged: op.Staged, InPlace: true},
		"directory":      {Path: "d", Before: identity(t, b.root+"/d"), Staged: op.Staged, InPlace: true},
		"link":           {Path: "l", Before: identity(t, b.root+"/l"), Staged: op.Staged, InPlace: true},
		"nothing staged": {Path: "f", Before: op.Before, InPlace: true},
		"staged link":    {Path: "f", Before: op.Before, Staged: linked, InPlace: true},
		"keep":           {Path: "f", Before: op.Before, Keep: true, InPlace: true},
	} {
		if _, err := fsx.PrepareMove(b.journal, []string{b.root}, b.hold, []fsx.Op{op}); !errors.Is(err, agents.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
	}
	m, err := fsx.PrepareMove(b.journal, []string{b.root}, b.hold, []fsx.Op{op})
	must(t, err)
	must(t, os.WriteFile(op.Staged, []byte("3"), 0o644))
	_, before := read(t, b.root)
	conflictAt(t, m.Run(context.Background()), "f")
	sameListing(t, b.root, before)
}

// TestMoveInPlaceOfAnothersFile: who may write a file but not set its time
// could not take the writing back, and does not begin it.
func TestMoveInPlaceOfAnothersFile(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can be two users")
	}
	b := newBenchIn(t, memoryDir(t), plain{})
	r := newRewriting(t, b, node{fsx.KindFile, "old", 0o666}, node{fsx.KindFile, "new", 0o666})
	must(t, os.Chmod(filepath.Dir(b.root), 0o755))
	for _, at := range []string{b.root, b.stage, b.hold, b.journal, r.op.Staged} {
		must(t, os.Chown(at, 65534, 65534))
	}
	_, before := read(t, b.root)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	must(t, unix.Setfsuid(65534))
	m := r.begin(t)
	err := m.Run(t.Context())
	must(t, unix.Setfsuid(0))
	if !errors.Is(err, fs.ErrPermission) || m.State() != fsx.MoveUndone {
		t.Errorf("run: %v, state %s: want a permission error, and undone", err, m.State())
	}
	sameListing(t, b.root, before)
	must(t, m.Forget())
	r.op = r.inPlace(t, "f", file("new"))
	must(t, unix.Lsetxattr(r.at, "security.capability", []byte{0, 0, 0, 2, 4: 1, 19: 0}, 0))
	r.op.Before = identity(t, r.at)
	if _, err := fsx.PrepareMove(b.journal, []string{b.root}, b.hold, []fsx.Op{r.op}); !errors.Is(err, agents.ErrUnsupported) {
		t.Errorf("file with capabilities: %v, want ErrUnsupported", err)
	}
}

// TestMoveInPlaceAgainstAWriter: what somebody writes into a big file, at its
// end, while it is written from its start, is never overwritten, one way or back.
func TestMoveInPlaceAgainstAWriter(t *testing.T) {
	size := 24 << 20
	if testing.Short() {
		size = 8 << 20
	}
	for _, back := range []bool{false, true} {
		met := false
		for round := range 4 {
			r := newRewriting(t, newBench(t, plain{}), file(strings.Repeat("o", size)), file(strings.Repeat("n", size)))
			m := r.begin(t)
			before := byte('o')
			if back {
				must(t, m.Run(t.Context()))
				before = 'n'
			}
			f, err := os.OpenFile(r.at, os.O_RDWR, 0)
			must(t, err)
			defer f.Close()
			wrote := make(chan error)
			go func() {
				for first := []byte{before}; first[0] == before; {
					if _, err := f.ReadAt(first, int64(round)<<17); err != nil {
						wrote <- err
						return
					}
				}
				_, err := f.WriteAt([]byte("mine"), int64(size)-4)
				wrote <- err
			}()
			if back {
				err = m.Undo()
			} else {
				err = m.Run(t.Context())
			}
			must(t, <-wrote)
			last := make([]byte, 4)
			_, rerr := f.ReadAt(last, int64(size)-4)
			must(t, rerr)
			if string(last) != "mine" {
				t.Fatalf("back %v, round %d: the end is %q (%v), and somebody has written there", back, round, last, err)
			}
			if errors.Is(err, agents.ErrConflict) {
				met = true
			} else if err != nil {
				t.Fatal(err)
			}
		}
		if !met {
			t.Errorf("back %v: nobody wrote in the middle", back)
		}
	}
}
