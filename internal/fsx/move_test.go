//go:build linux

package fsx_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/fsx"
)

var long = strings.Repeat("n", 255)

// turns are pairs of trees between which a Move must go, there and back.
var turns = map[string]struct{ from, to plain }{
	"nothing":          {plain{}, plain{}},
	"content":          {plain{"a": file("1")}, plain{"a": file("2")}},
	"new file":         {plain{}, plain{"a": file("1")}},
	"deletion":         {plain{"a": file("1"), "b": file("2")}, plain{"b": file("2")}},
	"mode of a file":   {plain{"a": file("1")}, plain{"a": {fsx.KindFile, "1", 0o755}}},
	"odd modes":        {plain{"a": {fsx.KindFile, "1", 0o444}}, plain{"a": {fsx.KindFile, "2", 0o000}}},
	"new directories":  {plain{}, plain{"d": dir(0o755), "d/e": dir(0o700), "d/e/f": file("1"), "x": dir(0o555)}},
	"tree goes":        {plain{"d": dir(0o755), "d/e": dir(0o700), "d/e/f": file("1"), "x": dir(0o555)}, plain{}},
	"directory mode":   {plain{"d": dir(0o755), "d/f": file("1")}, plain{"d": dir(0o500), "d/f": file("1")}},
	"read-only parent": {plain{"d": dir(0o555), "d/f": file("1"), "d/g": file("2")}, plain{"d": dir(0o555), "d/f": file("9"), "d/h": file("3")}},
	"read-only tree": {
		plain{"d": dir(0o555), "d/e": dir(0o555), "d/e/f": {fsx.KindFile, "1", 0o444}},
		plain{"n": dir(0o555), "n/e": dir(0o555), "n/e/f": {fsx.KindFile, "1", 0o444}},
	},
	"file to directory": {plain{"a": file("1")}, plain{"a": dir(0o755), "a/b": file("2"), "a/c": dir(0o755)}},
	"directory to file": {plain{"a": dir(0o755), "a/b": file("2"), "a/c": dir(0o755), "a/c/d": link("x")}, plain{"a": file("1")}},
	"link to directory": {plain{"a": link("b"), "b": dir(0o755)}, plain{"a": dir(0o755), "a/f": file("1"), "b": dir(0o755)}},
	"directory to link": {plain{"a": dir(0o755), "a/f": file("1")}, plain{"a": link("../../outside")}},
	"file to link":      {plain{"a": file("1")}, plain{"a": link("a")}},
	"link target":       {plain{"a": link("1")}, plain{"a": link("2")}},
	"swap":              {plain{"a": file("1"), "b": file("2")}, plain{"a": file("2"), "b": file("1")}},
	"swap of kinds":     {plain{"a": file("1"), "b": dir(0o755), "b/c": file("2")}, plain{"b": file("1"), "a": dir(0o755), "a/c": file("2")}},
	"case only":         {plain{"Readme": file("1"), "d": dir(0o755), "d/x": file("2")}, plain{"README": file("1"), "D": dir(0o755), "D/x": file("2")}},
	"odd names": {
		plain{"\xfe": file("1"), "\xff": file("2"), "new\nline": file("3"), "-rf": file("4"), long: file("5"), " ": file("6")},
		plain{"\xfe": file("a"), "\xff": file("b"), "new\nline": link("\xfe"), "-rf": dir(0o755), long: file("e"), "\t": file("7")},
	},
}

// TestB069MoveThereAndBack also has names that are no UTF-8.
func TestB069MoveThereAndBack(t *testing.T) {
	for name, turn := range turns {
		t.Run(name, func(t *testing.T) { thereAndBack(t, newBench(t, turn.from), turn.from, turn.to) })
	}
}

// TestMoveInManyDirectories goes the way that syncs the file system as a whole.
func TestMoveInManyDirectories(t *testing.T) {
	from, to := plain{}, plain{}
	for i := range 120 {
		d := fmt.Sprint("d", i)
		from[d], to[d] = dir(0o755), dir(0o755)
		from[d+"/f"], to[d+"/f"] = file("old"), file("new")
	}
	thereAndBack(t, newBench(t, from), from, to)
}

// thereAndBack moves, looks, takes it back in the two ways, and looks again.
func thereAndBack(t testing.TB, b bench, from, to plain) {
	t.Helper()
	_, before := read(t, b.root)
	m := b.prepare(t, from, to)
	must(t, m.Run(t.Context()))
	compare(t, b.root, to)
	must(t, m.Undo())
	sameListing(t, b.root, before)
	must(t, m.Forget())

	m = b.prepareAgain(t, from, to)
	must(t, m.Run(t.Context()))
	must(t, m.Commit())
	loaded, err := fsx.LoadMove(b.journal)
	must(t, err)
	if got, want := loaded.State(), fsx.MoveCommitted; got != want {
		t.Fatalf("state = %s, want %s", got, want)
	}
	must(t, loaded.Undo())
	sameListing(t, b.root, before)
	must(t, loaded.Forget())

	m = b.prepareAgain(t, from, to)
	must(t, m.Run(t.Context()))
	must(t, m.Commit())
	must(t, m.Forget())
	compare(t, b.root, to)
	b.empty(t)
}

// prepareAgain stages everything anew.
func (b bench) prepareAgain(t testing.TB, from, to plain) *fsx.Move {
	t.Helper()
	b.empty(t)
	return b.prepare(t, from, to)
}

// empty fails the test if a Move left something in the folders it was lent.
func (b bench) empty(t testing.TB) {
	t.Helper()
	for _, d := range []string{b.stage, b.hold, b.journal} {
		entries, err := os.ReadDir(d)
		must(t, err)
		if len(entries) > 0 {
			t.Fatalf("%s was left in %s", entries[0].Name(), filepath.Base(d))
		}
	}
}

func compare(t testing.TB, root string, want plain) {
	t.Helper()
	got, _ := read(t, root)
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(node{})); diff != "" {
		t.Fatalf("tree (-want +got):\n%s", diff)
	}
}

func sameListing(t testing.TB, root, want string) {
	t.Helper()
	if _, got := read(t, root); got != want {
		t.Fatalf("tree is not as before:\n%s", cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n")))
	}
}

// genTree draws a small tree with all kinds, in which names of two trees meet.
func genTree(t *rapid.T, label string) plain {
	p := plain{}
	var fill func(at string, depth int)
	fill = func(at string, depth int) {
		for _, name := range []string{"a", "B", "\xff", "n\n"} {
			path := filepath.Join(at, name)
			switch rapid.IntRange(0, 5).Draw(t, label) {
			case 0, 1:
			case 2:
				p[path] = node{fsx.KindFile, rapid.SampledFrom([]string{"", "x", "yy"}).Draw(t, label), rapid.SampledFrom([]os.FileMode{0o644, 0o755, 0o400}).Draw(t, label)}
			case 3:
				p[path] = link(rapid.SampledFrom([]string{"a", "..", "/none"}).Draw(t, label))
			default:
				p[path] = dir(rapid.SampledFrom([]os.FileMode{0o755, 0o700, 0o555, 0o2755}).Draw(t, label) &^ 0o7000)
				if depth < 2 {
					fill(path, depth+1)
				}
			}
		}
	}
	fill("", 0)
	return p
}

func TestMoveRandomTrees(t *testing.T) {
	base := memoryDir(t)
	rapid.Check(t, func(rt *rapid.T) {
		at, err := os.MkdirTemp(base, "")
		must(t, err)
		from, to := genTree(rt, "from"), genTree(rt, "to")
		thereAndBack(t, newBenchIn(t, at, from), from, to)
		must(t, fsx.RemoveAll(at))
	})
}

// TestMoveNoticesStrangers changes the tree between the look and the move: the
// change stays, and all else is as before.
func TestMoveNoticesStrangers(t *testing.T) {
	from := plain{"a": file("1"), "b": file("2"), "d": dir(0o755), "d/e": file("3"), "l": link("a")}
	to := plain{"a": file("9"), "d": file("8"), "l": link("b"), "n": file("7"), "m": dir(0o755), "m/x": file("6")}
	strange := map[string]func(t *testing.T, root string){
		"a": func(t *testing.T, root string) { must(t, os.WriteFile(root+"/a", []byte("stranger"), 0o644)) },
		"b": func(t *testing.T, root string) { must(t, os.Chmod(root+"/b", 0o600)) },
		"l": func(t *testing.T, root string) { must(t, os.Remove(root+"/l")); must(t, os.Symlink("c", root+"/l")) },
		"n": func(t *testing.T, root string) { must(t, os.WriteFile(root+"/n", []byte("stranger"), 0o644)) },
		"m": func(t *testing.T, root string) { must(t, os.Symlink("d", root+"/m")) },
		"d": func(t *testing.T, root string) { must(t, os.WriteFile(root+"/d/new", []byte("stranger"), 0o644)) },
		"d/e": func(t *testing.T, root string) {
			must(t, os.Rename(root+"/d", root+"/elsewhere"))
			must(t, os.Symlink("elsewhere", root+"/d"))
		},
	}
	for path, change := range strange {
		t.Run("before prepare "+path, func(t *testing.T) {
			b := newBench(t, from)
			list := ops(t, b.root, b.stage, from, to)
			change(t, b.root)
			_, before := read(t, b.root)
			_, err := fsx.PrepareMove(b.journal, []string{b.root}, b.hold, list)
			conflictAt(t, err, names(path))
			sameListing(t, b.root, before)
		})
		t.Run("before run "+path, func(t *testing.T) {
			b := newBench(t, from)
			m := b.prepare(t, from, to)
			change(t, b.root)
			_, before := read(t, b.root)
			conflictAt(t, m.Run(t.Context()), names(path))
			if path != "d/e" && path != "d" {
				sameContent(t, b.root, before)
			}
			if m.State() == fsx.MoveUndone {
				must(t, m.Forget())
			}
		})
	}
}

// names returns the path that the error names for a change at path.
func names(path string) string {
	if path == "d/e" {
		return "d" // the directory itself was replaced
	}
	return path
}

// sameContent is sameListing without the times of directories, which a change
// by a stranger moved between the look and the move.
func sameContent(t testing.TB, root, want string) {
	t.Helper()
	_, got := read(t, root)
	if diff := cmp.Diff(withoutTimes(want), withoutTimes(got)); diff != "" {
		t.Fatalf("tree (-want +got):\n%s", diff)
	}
}

func withoutTimes(listing string) []string {
	lines := strings.Split(listing, "\n")
	for i, l := range lines {
		if strings.Contains(l, "a directory") {
			lines[i], _, _ = strings.Cut(l, " mtime=")
		}
	}
	return lines
}

func conflictAt(t *testing.T, err error, path string) {
	t.Helper()
	if !errors.Is(err, agents.ErrConflict) {
		t.Fatalf("error = %v, want a conflict", err)
	}
	var at *fsx.MoveError
	if !errors.As(err, &at) || at.Path != path {
		t.Fatalf("error = %v, want it to name %s", err, path)
	}
}

// TestMoveUndoKeepsLaterWork: what somebody did after the move is not lost.
func TestMoveUndoKeepsLaterWork(t *testing.T) {
	from := plain{"a": file("1"), "b": file("2"), "c": file("3")}
	to := plain{"a": file("9"), "b": file("8"), "n": dir(0o755), "n/f": file("7")}
	for _, path := range []string{"a", "c", "n/f", "n/g"} {
		t.Run(path, func(t *testing.T) {
			b := newBench(t, from)
			m := b.prepare(t, from, to)
			must(t, m.Run(t.Context()))
			must(t, os.WriteFile(filepath.Join(b.root, path), []byte("later"), 0o644))
			_, before := read(t, b.root)

			must(t, m.Commit())
			if err := m.Undo(); !errors.Is(err, agents.ErrConflict) {
				t.Fatalf("undo of a committed move: %v, want a conflict", err)
			}
			sameListing(t, b.root, before)
			if got := m.State(); got != fsx.MoveCommitted {
				t.Fatalf("state = %s, want it still committed", got)
			}
		})
		t.Run("uncommitted "+path, func(t *testing.T) {
			b := newBench(t, from)
			m := b.prepare(t, from, to)
			must(t, m.Run(t.Context()))
			must(t, os.WriteFile(filepath.Join(b.root, path), []byte("later"), 0o644))
			if err := m.Undo(); !errors.Is(err, agents.ErrConflict) {
				t.Fatalf("undo: %v, want a conflict", err)
			}
			got, _ := read(t, b.root)
			if got[path].content != "later" {
				t.Fatalf("%s = %v, want the later work", path, got[path])
			}
			if got["b"].content != "2" {
				t.Fatalf("b = %v, want it back", got["b"])
			}
			if err := m.Forget(); !errors.Is(err, agents.ErrState) {
				t.Fatalf("forget = %v, want ErrState while before-images are needed", err)
			}
		})
	}
}
