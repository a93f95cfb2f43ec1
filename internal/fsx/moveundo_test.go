//go:build linux

package fsx_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/fsx"
)

// canMeddle reports whether somebody can change what a Move made at path.
func canMeddle(made plain, path string) bool {
	above, below := made[filepath.Dir(path)], filepath.Dir(path) != "."
	return made[path].kind != fsx.KindNone || !below || above.kind == fsx.KindDir && above.mode&0o200 != 0
}

// meddle changes what a Move made at path.
func meddle(t testing.TB, root, path string, made node) {
	t.Helper()
	at := filepath.Join(root, path)
	switch made.kind {
	case fsx.KindFile: // an editor that saves in place
		must(t, os.Chmod(at, 0o600))
		must(t, os.WriteFile(at, []byte("meddled"), 0))
		must(t, os.Chmod(at, made.mode))
	case fsx.KindDir:
		must(t, os.Chmod(at, 0o700))
		must(t, os.WriteFile(filepath.Join(at, "strange"), nil, 0o600))
		must(t, os.Chmod(at, made.mode))
	case fsx.KindSymlink:
		must(t, os.Remove(at))
		must(t, os.WriteFile(at, nil, 0o600))
	default:
		must(t, os.Mkdir(at, 0o700))
	}
}

// TestUndoThatMeetsAStranger changes, for every path of every turn, that path
// when Undo has looked at all and has taken nothing back yet: the move is whole
// again, but for that change.
func TestUndoThatMeetsAStranger(t *testing.T) {
	tried := 0
	for name, turn := range turns {
		for path := range union(turn.from, turn.to) {
			if from, to := turn.from[path], turn.to[path]; from == to || from.kind == fsx.KindDir && to.kind == fsx.KindDir || !canMeddle(turn.to, path) {
				continue
			}
			for _, plain := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%.9q/%v", name, path, plain), func(t *testing.T) {
					b := newBench(t, turn.from)
					m := b.prepare(t, turn.from, turn.to)
					if plain {
						fsx.WithoutRenameFlags(m)
					}
					must(t, m.Run(t.Context()))
					must(t, m.Commit())
					var meddled string
					m.Beside(nil, func() error {
						meddle(t, b.root, path, turn.to[path])
						_, meddled = read(t, b.root)
						return nil
					})
					conflictAt(t, m.Undo(), path)
					if got, want := m.State(), fsx.MoveCommitted; got != want {
						t.Fatalf("state = %s, want %s", got, want)
					}
					sameButTimesOfDirs(t, b.root, meddled)
					if err := m.CanUndo(); !errors.Is(err, agents.ErrConflict) {
						t.Errorf("can undo: %v, want a conflict", err)
					}
					must(t, m.Forget())
					b.empty(t)
					tried++
				})
			}
		}
	}
	if tried < 80 {
		t.Errorf("%d cases, want at least 80", tried)
	}
}

// sameButTimesOfDirs compares a tree with a listing of it.
func sameButTimesOfDirs(t testing.TB, root, want string) {
	t.Helper()
	_, got := read(t, root)
	if diff := cmp.Diff(withoutTimes(want), withoutTimes(got)); diff != "" {
		t.Fatalf("(-want +got):\n%s", diff)
	}
}

// TestUndoOfWritingThatMeetsAStranger is the same for files that are written in
// place: three of them, of which one is changed.
func TestUndoOfWritingThatMeetsAStranger(t *testing.T) {
	from := plain{"a": file("1"), "b": file("2"), "c": file("3"), "other": file("4")}
	b := newBench(t, from)
	var list []fsx.Op
	for _, path := range []string{"a", "b", "c"} {
		list = append(list, b.inPlace(t, path, file("new "+path)))
	}
	m, err := fsx.PrepareMove(b.journal, []string{b.root}, b.hold, list)
	must(t, err)
	must(t, m.Run(t.Context()))
	must(t, m.Commit())
	var meddled string
	m.Beside(nil, func() error {
		meddle(t, b.root, "b", file("new b"))
		_, meddled = read(t, b.root)
		return nil
	})
	conflictAt(t, m.Undo(), "b")
	sameButTimesOfDirs(t, b.root, meddled)
	if got, want := m.State(), fsx.MoveCommitted; got != want {
		t.Errorf("state = %s, want %s", got, want)
	}
	must(t, m.Forget())
	b.empty(t)
}

// TestUndoLeaving ends a move in whose result somebody has changed, for each
// path, that path: the rest is as before, and what was there is kept.
func TestUndoLeaving(t *testing.T) {
	for name, turn := range turns {
		for path := range union(turn.from, turn.to) {
			if from, to := turn.from[path], turn.to[path]; from == to || from.kind == fsx.KindDir && to.kind == fsx.KindDir || !canMeddle(turn.to, path) {
				continue
			}
			t.Run(fmt.Sprintf("%s/%.9q", name, path), func(t *testing.T) {
				b := newBench(t, turn.from)
				m := b.prepare(t, turn.from, turn.to)
				must(t, m.Run(t.Context()))
				meddle(t, b.root, path, turn.to[path])
				m, err := fsx.LoadMove(b.journal)
				must(t, err)
				keep := filepath.Join(filepath.Dir(b.root), "kept")
				left, err := m.UndoLeaving(keep)
				must(t, err)
				if len(left) == 0 || !slices.ContainsFunc(left, func(l fsx.Left) bool { return l.Path == path }) {
					t.Fatalf("left %v, want %q", left, path)
				}
				for _, l := range left {
					was := turn.from[l.Path]
					if kept := was.kind == fsx.KindFile || was.kind == fsx.KindSymlink; kept != (l.Kept != "") {
						t.Errorf("%q is kept in %q; it was %v", l.Path, l.Kept, was)
					}
					if l.Kept == "" {
						continue
					}
					id, err := fsx.Identify(l.Kept)
					must(t, err)
					if was.kind == fsx.KindFile && content(t, l.Kept, id) != was.content || was.kind == fsx.KindSymlink && string(id.Target) != was.content {
						t.Errorf("%q is not what it was: %v", l.Path, id)
					}
				}
				got, _ := read(t, b.root)
				for at := range union(turn.from, turn.to) {
					below := func(l fsx.Left) bool {
						return at == l.Path || strings.HasPrefix(at, l.Path+"/") || strings.HasPrefix(l.Path, at+"/")
					}
					if !slices.ContainsFunc(left, below) && got[at] != turn.from[at] {
						t.Errorf("%q = %v, want %v", at, got[at], turn.from[at])
					}
				}
				if got, want := m.State(), fsx.MoveUndone; got != want {
					t.Errorf("state = %s, want %s", got, want)
				}
				must(t, m.Forget())
				b.empty(t)
			})
		}
	}
}

// TestUndoHoldsWhatItTookAway: a program may have opened what the move brought.
func TestUndoHoldsWhatItTookAway(t *testing.T) {
	b := newBench(t, lateFrom)
	m := b.prepare(t, lateFrom, lateTo)
	must(t, m.Run(t.Context()))
	must(t, m.Commit())
	write := openAll(t, b.root, []string{"d2f", "quiet", "swap"})
	must(t, m.Undo())
	if got := latePaths(t, m); got != nil {
		t.Fatalf("late = %q before anybody wrote", got)
	}
	write()
	m, err := fsx.LoadMove(b.journal)
	must(t, err)
	late, err := m.ForgetButLate(filepath.Join(filepath.Dir(b.root), "kept"))
	must(t, err)
	var paths []string
	for _, l := range late {
		paths = append(paths, l.Path)
		if got, err := os.ReadFile(l.Held); err != nil || string(got) != lateTo[l.Path].content+" late" {
			t.Errorf("%s = %q, %v", l.Path, got, err)
		}
	}
	if diff := cmp.Diff([]string{"d2f", "quiet", "swap"}, paths); diff != "" {
		t.Errorf("late (-want +got):\n%s", diff)
	}
	compare(t, b.root, lateFrom)
	b.empty(t)
}

// TestUndoLeavingWithoutItsRoot: somebody has removed the whole tree, put another
// one there, or a file.
func TestUndoLeavingWithoutItsRoot(t *testing.T) {
	for name, change := range map[string]func(root string) error{
		"gone":     os.RemoveAll,
		"replaced": func(root string) error { return errors.Join(os.Rename(root, root+"2"), os.Mkdir(root, 0o755)) },
		"a file":   func(root string) error { return errors.Join(os.RemoveAll(root), os.WriteFile(root, nil, 0o644)) },
	} {
		for _, undoing := range []bool{false, true} {
			t.Run(fmt.Sprint(name, undoing), func(t *testing.T) {
				b := newBench(t, lateFrom)
				m := b.prepare(t, lateFrom, lateTo)
				must(t, m.Run(t.Context()))
				if undoing {
					must(t, m.Commit())
					must(t, os.Rename(filepath.Join(b.journal, "move-committed"), filepath.Join(b.journal, "move-undoing")))
				}
				must(t, change(b.root))
				m, err := fsx.LoadMove(b.journal)
				must(t, err)
				if err := m.Undo(); !errors.Is(err, agents.ErrConflict) {
					t.Errorf("undo: %v, want a conflict", err)
				}
				keep := filepath.Join(filepath.Dir(b.root), "kept")
				left, err := m.UndoLeaving(keep)
				must(t, err)
				if len(left) != 7 {
					t.Errorf("left %v", left)
				}
				if got, err := os.ReadFile(filepath.Join(keep, "d2f/x")); err != nil || string(got) != "5" {
					t.Errorf("kept is %q, %v", got, err)
				}
				must(t, m.Forget())
				b.empty(t)
			})
		}
	}
}

// TestLateNamesInDirectories: a program works in a directory that is taken away.
func TestLateNamesInDirectories(t *testing.T) {
	from, to := plain{"d": dir(0o755)}, plain{"n": dir(0o755)}
	b := newBench(t, from)
	at := func(path string) *os.File {
		f, err := os.Open(filepath.Join(b.root, path))
		must(t, err)
		t.Cleanup(func() { f.Close() })
		return f
	}
	write := func(f *os.File) {
		fd, err := syscall.Openat(int(f.Fd()), "notes", os.O_WRONLY|os.O_CREATE, 0o644)
		must(t, err)
		_, err = syscall.Write(fd, []byte("mine"))
		must(t, errors.Join(err, syscall.Close(fd)))
	}
	old := at("d")
	m := b.prepare(t, from, to)
	must(t, m.Run(t.Context()))
	must(t, m.Commit())
	write(old)
	late, err := m.LateWrites()
	must(t, err)
	if len(late) != 1 || late[0].Path != "d" {
		t.Errorf("late after the move: %v", late)
	}
	made := at("n")
	must(t, m.Undo())
	write(made)
	if err := m.Forget(); !errors.Is(err, agents.ErrBlocked) {
		t.Errorf("forget: %v, want it blocked", err)
	}
	keep := filepath.Join(filepath.Dir(b.root), "kept")
	if late, err = m.ForgetButLate(keep); err != nil || len(late) != 1 || late[0].Path != "n" {
		t.Errorf("late after the undo: %v, %v", late, err)
	}
	for _, path := range []string{filepath.Join(keep, "n/notes"), filepath.Join(b.root, "d/notes")} {
		if got, err := os.ReadFile(path); err != nil || string(got) != "mine" {
			t.Errorf("%s = %q, %v", path, got, err)
		}
	}
	b.empty(t)
}
