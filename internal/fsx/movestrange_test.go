//go:build linux

package fsx_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/fsx"
)

// stranger changes a tree at random. It writes contents that nobody else does,
// so that a test can see whether one was lost.
type stranger struct {
	root    string
	written map[string]bool // contents that must be found in the end
}

func (s *stranger) act(t testing.TB, rt *rapid.T, tree plain) {
	t.Helper()
	for n := range rapid.IntRange(1, 3).Draw(rt, "acts") {
		names := append(tree.paths(), "a", "B", "a/new", "\xff/B")
		at := filepath.Join(s.root, rapid.SampledFrom(names).Draw(rt, "at"))
		if fi, err := os.Lstat(filepath.Dir(at)); err != nil || !fi.IsDir() {
			continue
		}
		switch rapid.IntRange(0, 4).Draw(rt, "act") {
		case 0: // an editor's save, or a new file
			if fi, err := os.Lstat(at); err == nil && fi.IsDir() {
				continue
			}
			s.forget(t, at)
			content := fmt.Sprintf("stranger %d %d", len(s.written), n)
			tmp := at[:len(at)-len(filepath.Base(at))] + "tmp"
			if os.WriteFile(tmp, []byte(content), 0o644) != nil {
				continue
			}
			must(t, os.Rename(tmp, at))
			s.written[content] = true
		case 1:
			s.forget(t, at)
			_ = os.Remove(at)
		case 2:
			_ = os.Mkdir(at, 0o755)
		case 3:
			if fi, err := os.Lstat(at); err == nil && fi.Mode().IsRegular() {
				must(t, os.Chmod(at, 0o640))
			}
		case 4:
			s.forget(t, at)
			if os.Remove(at) == nil {
				must(t, os.Symlink("elsewhere", at))
			}
		}
	}
}

// forget notes that the stranger itself destroys what is at a path.
func (s *stranger) forget(t testing.TB, at string) {
	t.Helper()
	if b, err := os.ReadFile(at); err == nil {
		delete(s.written, string(b))
	}
}

// lost fails the test if something that the stranger wrote is nowhere.
func (s *stranger) lost(t testing.TB, where string) {
	t.Helper()
	tree, _ := read(t, s.root)
	found := map[string]bool{}
	for _, n := range tree {
		found[n.content] = true
	}
	for content := range s.written {
		if !found[content] {
			t.Fatalf("%s: %q is lost", where, content)
		}
	}
}

// TestMoveAmongStrangers lets somebody change the tree between the look and the
// move, and between the move and its undo. The move is whole or not at all,
// and nothing that the stranger wrote is lost.
func TestMoveAmongStrangers(t *testing.T) {
	base := memoryDir(t)
	rapid.Check(t, func(rt *rapid.T) {
		at, err := os.MkdirTemp(base, "")
		must(t, err)
		defer func() { must(t, fsx.RemoveAll(at)) }()
		from, to := genTree(rt, "from"), genTree(rt, "to")
		b := newBenchIn(t, at, from)
		m := b.prepare(t, from, to)
		s := &stranger{b.root, map[string]bool{}}
		if rapid.Bool().Draw(rt, "early") {
			s.act(t, rt, from)
		}
		mid, before := read(t, b.root)
		err = m.Run(t.Context())
		if err != nil {
			if !errors.Is(err, agents.ErrConflict) {
				rt.Fatalf("run: %v, want a conflict", err)
			}
			if diff := cmp.Diff(withoutTimes(before), withoutTimes(second(read(t, b.root)))); diff != "" {
				rt.Fatalf("after a refused move (%v) (-want +got):\n%s", err, diff)
			}
			return
		}
		for path := range union(from, to) {
			if from[path] != to[path] {
				mid[path] = to[path]
			}
			if mid[path].kind == fsx.KindNone {
				delete(mid, path)
			}
		}
		compare(t, b.root, mid)
		s.act(t, rt, to)
		if rapid.Bool().Draw(rt, "commit") {
			must(t, m.Commit())
			_, before = read(t, b.root)
			if err := m.Undo(); errors.Is(err, agents.ErrConflict) {
				sameListing(t, b.root, before)
			} else {
				must(t, err)
			}
		} else if err := m.Undo(); err != nil && !errors.Is(err, agents.ErrConflict) {
			rt.Fatalf("undo: %v", err)
		}
		s.lost(t, "after undo")
	})
}

func second(_ plain, listing string) string { return listing }
