//go:build linux

package fsx_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/fsx"
)

// meddle changes what a Move made at path; false = there is nothing to change.
func meddle(t testing.TB, root, path string, made node) bool {
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
		above := filepath.Dir(at)
		if fi, err := os.Lstat(above); err != nil || !fi.IsDir() || fi.Mode().Perm()&0o200 == 0 {
			return false
		}
		must(t, os.Mkdir(at, 0o700))
	}
	return true
}

// TestUndoThatMeetsAStranger changes, for every path of every turn, that path
// when Undo has looked at all and has taken nothing back yet: the move is whole
// again, but for that change.
func TestUndoThatMeetsAStranger(t *testing.T) {
	tried := 0
	for name, turn := range turns {
		for path := range union(turn.from, turn.to) {
			if from, to := turn.from[path], turn.to[path]; from == to || from.kind == fsx.KindDir && to.kind == fsx.KindDir {
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
						if !meddle(t, b.root, path, turn.to[path]) {
							t.Skip("nothing can come there")
						}
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
			if from, to := turn.from[path], turn.to[path]; from == to || from.kind == fsx.KindDir && to.kind == fsx.KindDir {
				continue
			}
			t.Run(fmt.Sprintf("%s/%.9q", name, path), func(t *testing.T) {
				b := newBench(t, turn.from)
				m := b.prepare(t, turn.from, turn.to)
				must(t, m.Run(t.Context()))
				if !meddle(t, b.root, path, turn.to[path]) {
					t.Skip("nothing can come there")
				}
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
