package fsx_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"

	"github.com/cleveragents/agents/internal/fsx"
)

// node is one entry of a tree as the tests describe it.
type node struct {
	kind    fsx.Kind
	content string // of a file, or the target of a link
	mode    fs.FileMode
}

// plain is a tree: path → node. Directories are listed.
type plain map[string]node

func file(content string) node  { return node{fsx.KindFile, content, 0o644} }
func dir(mode fs.FileMode) node { return node{fsx.KindDir, "", mode} }
func link(target string) node   { return node{fsx.KindSymlink, target, 0} }

// paths returns the paths of the tree, parents first.
func (p plain) paths() []string {
	var out []string
	for path := range p {
		out = append(out, path)
	}
	sort.Strings(out)
	return out
}

// write makes the tree below root.
func (p plain) write(t testing.TB, root string) {
	t.Helper()
	for _, path := range p.paths() {
		n := p[path]
		if n.kind == fsx.KindDir {
			must(t, os.Mkdir(filepath.Join(root, path), 0o700))
			continue
		}
		n.write(t, filepath.Join(root, path))
	}
	paths := p.paths()
	for i := len(paths) - 1; i >= 0; i-- {
		if n := p[paths[i]]; n.kind == fsx.KindDir {
			must(t, os.Chmod(filepath.Join(root, paths[i]), n.mode))
		}
	}
}

func (n node) write(t testing.TB, at string) {
	t.Helper()
	if n.kind == fsx.KindSymlink {
		must(t, os.Symlink(n.content, at))
		return
	}
	must(t, os.WriteFile(at, []byte(n.content), 0o600))
	must(t, os.Chmod(at, n.mode))
}

// read returns the tree below root, and a listing with inodes and times too.
func read(t testing.TB, root string) (plain, string) {
	t.Helper()
	p := plain{}
	var listing []string
	must(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		id, err := fsx.Identify(path)
		must(t, err)
		rel, err := filepath.Rel(root, path)
		must(t, err)
		n := node{kind: id.Kind, mode: fs.FileMode(id.Mode)}
		switch id.Kind {
		case fsx.KindFile:
			n.content = content(t, path, id)
		case fsx.KindSymlink:
			n.content, n.mode = string(id.Target), 0
		}
		if rel != "." {
			p[rel] = n
		}
		listing = append(listing, fmt.Sprintf("%q %v %o %q ino=%d mtime=%d", rel, n.kind, n.mode, n.content, id.Ino, id.Mtime))
		return nil
	}))
	return p, strings.Join(listing, "\n")
}

// content reads a file, also one that its owner may not read.
func content(t testing.TB, path string, id fsx.Identity) string {
	t.Helper()
	if id.Mode&0o400 == 0 {
		must(t, os.Chmod(path, 0o600))
		defer func() { must(t, os.Chmod(path, fs.FileMode(id.Mode))) }()
	}
	b, err := os.ReadFile(path)
	must(t, err)
	return string(b)
}

// ops returns what turns from into to below root, with new contents staged in
// the folder stage.
func ops(t testing.TB, root, stage string, from, to plain) []fsx.Op {
	t.Helper()
	all := map[string]bool{}
	for path := range from {
		all[path] = true
	}
	for path := range to {
		all[path] = true
	}
	var out []fsx.Op
	for path := range all {
		if from[path] == to[path] {
			continue
		}
		op := fsx.Op{Path: path}
		if from[path].kind != fsx.KindNone {
			id, err := fsx.Identify(filepath.Join(root, path))
			must(t, err)
			op.Before = id
		}
		switch n := to[path]; n.kind {
		case fsx.KindDir:
			op.Dir, op.Perm = true, n.mode
		case fsx.KindNone:
		default:
			op.Staged = filepath.Join(stage, fmt.Sprint("s", len(out)))
			n.write(t, op.Staged)
		}
		out = append(out, op)
	}
	return out
}

// bench is a root with a tree, and the folders a Move needs.
type bench struct{ root, stage, hold, journal string }

func newBench(t testing.TB, p plain) bench {
	t.Helper()
	base := t.TempDir()
	t.Cleanup(func() { fsx.RemoveAll(base) })
	return newBenchIn(t, base, p)
}

func newBenchIn(t testing.TB, base string, p plain) bench {
	t.Helper()
	b := bench{filepath.Join(base, "root"), filepath.Join(base, "stage"), filepath.Join(base, "hold"), filepath.Join(base, "journal")}
	for _, d := range []string{b.root, b.stage, b.hold, b.journal} {
		must(t, os.Mkdir(d, 0o700))
	}
	p.write(t, b.root)
	return b
}

func (b bench) prepare(t testing.TB, from, to plain) *fsx.Move {
	t.Helper()
	m, err := fsx.PrepareMove(b.journal, []string{b.root}, b.hold, ops(t, b.root, b.stage, from, to))
	must(t, err)
	return m
}

// union returns the paths of both trees.
func union(a, b plain) map[string]bool {
	all := map[string]bool{}
	for path := range a {
		all[path] = true
	}
	for path := range b {
		all[path] = true
	}
	return all
}

// memoryDir is a folder for many attempts, in memory where there is such a file
// system, since each attempt syncs a lot.
func memoryDir(t testing.TB) string {
	t.Helper()
	base, err := os.MkdirTemp("/dev/shm", "fsx-test-")
	if err != nil {
		base, err = os.MkdirTemp("", "fsx-test-")
	}
	must(t, err)
	t.Cleanup(func() { fsx.RemoveAll(base) })
	return base
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
