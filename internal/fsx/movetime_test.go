//go:build linux

package fsx_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"pgregory.net/rapid"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/fsx"
)

// timed gives ops times: every directory that stays or comes gets one, also
// those that nothing else happens to, and kept files do.
func timed(t testing.TB, root string, list []fsx.Op, from, to plain, at func(path string) *int64) ([]fsx.Op, map[string]*int64) {
	t.Helper()
	want := map[string]*int64{}
	for i := range list {
		if op := &list[i]; op.Dir {
			op.Mtime = at(op.Path)
			want[op.Path] = op.Mtime
		}
	}
	for path, n := range to {
		if from[path] != n || n.kind != fsx.KindDir && n.kind != fsx.KindFile {
			continue
		}
		id, err := fsx.Identify(filepath.Join(root, path))
		must(t, err)
		dir := n.kind == fsx.KindDir
		list = append(list, fsx.Op{Path: path, Before: id, Dir: dir, Keep: !dir, Perm: n.mode, Mtime: at(path)})
		want[path] = at(path)
	}
	return list, want
}

func sameTimes(t testing.TB, root string, want map[string]*int64) {
	t.Helper()
	for path, mtime := range want {
		id, err := fsx.Identify(filepath.Join(root, path))
		must(t, err)
		if mtime != nil && id.Mtime != *mtime {
			t.Fatalf("%q has the time %d, want %d", path, id.Mtime, *mtime)
		}
	}
}

func TestMoveTimes(t *testing.T) {
	base := memoryDir(t)
	rapid.Check(t, func(rt *rapid.T) {
		at, err := os.MkdirTemp(base, "")
		must(t, err)
		defer func() { must(t, fsx.RemoveAll(at)) }()
		from, to := genTree(rt, "from"), genTree(rt, "to")
		b := newBenchIn(t, at, from)
		list := ops(t, b.root, b.stage, from, to)
		times := map[string]*int64{}
		list, want := timed(t, b.root, list, from, to, func(path string) *int64 {
			if _, ok := times[path]; !ok {
				times[path] = nil
				if at := rapid.SampledFrom([]int64{-1, 0, 1, -5e9 - 1, 1e18 + 123456789, 1700000000987654321}).Draw(rt, "time"); at != -1 {
					times[path] = &at
				}
			}
			return times[path]
		})
		_, before := read(t, b.root)
		m, err := fsx.PrepareMove(b.journal, []string{b.root}, b.hold, list)
		must(t, err)
		must(t, m.Run(t.Context()))
		compare(t, b.root, to)
		sameTimes(t, b.root, want)
		if rapid.Bool().Draw(rt, "commit") {
			loaded, err := fsx.LoadMove(b.journal)
			must(t, err)
			must(t, loaded.Commit()) // all steps count as made
			sameTimes(t, b.root, want)
			m = loaded
		}
		must(t, m.Undo())
		sameListing(t, b.root, before)
		must(t, m.Forget())
		b.empty(t)
	})
}

// TestMoveOfManyTimes goes the way that syncs the file system as a whole.
func TestMoveOfManyTimes(t *testing.T) {
	tree := plain{}
	for i := range 120 {
		tree[string(rune('A'+i))] = file("x")
	}
	b := newBench(t, tree)
	list, want := timed(t, b.root, nil, tree, tree, func(path string) *int64 { at := int64(1e18) + int64(path[0]); return &at })
	_, before := read(t, b.root)
	m, err := fsx.PrepareMove(b.journal, []string{b.root}, b.hold, list)
	must(t, err)
	must(t, m.Run(t.Context()))
	sameTimes(t, b.root, want)
	must(t, m.Undo())
	sameListing(t, b.root, before)
}

// TestMoveTimesAmongStrangers: a time that somebody else's work set stays.
func TestMoveTimesAmongStrangers(t *testing.T) {
	tree := plain{"f": file("1"), "d": dir(0o755), "d/x": file("2"), "w": dir(0o755), "w/x": file("3")}
	to := plain{"f": file("1"), "d": dir(0o755), "d/x": file("2"), "w": dir(0o755)}
	b := newBench(t, tree)
	list, _ := timed(t, b.root, ops(t, b.root, b.stage, tree, to), tree, to, func(string) *int64 { at := int64(1e18); return &at })
	m, err := fsx.PrepareMove(b.journal, []string{b.root}, b.hold, list)
	must(t, err)
	must(t, m.Run(t.Context()))
	must(t, os.WriteFile(b.root+"/d/new", nil, 0o644))
	must(t, os.WriteFile(b.root+"/f", []byte("later"), 0o644))
	mine := time.Unix(1234567890, 0)
	must(t, errors.Join(os.Chtimes(b.root+"/d", mine, mine), os.Chtimes(b.root+"/f", mine, mine)))
	must(t, m.Undo())
	want := mine.UnixNano()
	sameTimes(t, b.root, map[string]*int64{"d": &want, "f": &want})
	got, _ := read(t, b.root)
	if got["f"].content != "later" || got["w/x"].content != "3" {
		t.Errorf("tree = %v", got)
	}
}

// TestMoveRefusesTimes where a staged thing brings its own, or nothing is left
// to have one.
func TestMoveRefusesTimes(t *testing.T) {
	b := newBench(t, plain{"f": file("1")})
	id, err := fsx.Identify(b.root + "/f")
	must(t, err)
	staged := filepath.Join(b.stage, "s")
	must(t, os.WriteFile(staged, nil, 0o644))
	for name, op := range map[string]fsx.Op{
		"staged": {Path: "f", Before: id, Staged: staged, Mtime: new(int64)},
		"gone":   {Path: "f", Before: id, Mtime: new(int64)},
	} {
		if _, err := fsx.PrepareMove(b.journal, []string{b.root}, b.hold, []fsx.Op{op}); !errors.Is(err, agents.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
	}
	id.Mode = 0o600
	if _, err := fsx.PrepareMove(b.journal, []string{b.root}, b.hold, []fsx.Op{{Path: "f", Before: id, Keep: true, Perm: 0o600, Mtime: new(int64)}}); !errors.Is(err, agents.ErrConflict) {
		t.Errorf("another file: %v, want ErrConflict", err)
	}
	if _, err := os.Stat(filepath.Join(b.journal, "move-prepared")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("journal after refusals: %v", err)
	}
}
