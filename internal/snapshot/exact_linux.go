package snapshot

import (
	"bytes"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/fsx"
)

// What the restore of an exact root needs beside bytes and bits: times of
// directories whose names it changes, all names of a file together, and holes.

// time returns the modification time for a directory or a kept file: nil where
// none was recorded.
func (it item) time() *int64 {
	if !it.times {
		return nil
	}
	return &it.mtime
}

// quiet reports whether only times, links or holes differ, which nobody looks
// for in a list of changed files.
func (c change) quiet() bool {
	a, b := c.old, c.new
	a.exact, b.exact, a.attrs, b.attrs = exact{}, exact{}, oid{}, oid{}
	if a.isDir() && b.isDir() {
		a.id, b.id = oid{}, oid{} // what is in it is listed by itself
	}
	return a == b
}

// wholeLinks adds to the changes those names of a linked file that stay as
// they are: where one name is made anew, all are.
func (r *restorer) wholeLinks(changes []change) ([]change, error) {
	wanted, known := map[place]bool{}, map[place]bool{}
	for _, c := range changes {
		known[place{c.root, c.path}] = true
		if c.new.link != "" {
			wanted[place{c.root, c.new.link}] = true
		}
	}
	if len(wanted) == 0 {
		return changes, nil
	}
	for key, link := range r.present.links {
		root, dir := r.present.locate(key.d)
		name := join(dir, string(key.d.name(key.i)))
		if !wanted[place{root.Name, link}] || known[place{root.Name, name}] {
			continue
		}
		it, err := r.t.store.lookup(r.ctx, r.ref, Path{root.Name, name})
		if err != nil {
			return nil, err
		}
		changes = append(changes, change{root: root.Name, path: name, old: it, new: it})
	}
	slices.SortFunc(changes, func(a, b change) int {
		if a.root != b.root {
			return strings.Compare(a.root, b.root)
		}
		return strings.Compare(a.path, b.path)
	})
	return changes, nil
}

// keepTimes adds an operation for each directory of an exact root in which
// names change and which has the right time: the move would give it another.
func (r *restorer) keepTimes() error {
	planned := map[place]bool{}
	for _, op := range r.ops {
		planned[place{r.t.roots[op.Root].Name, op.Path}] = true
	}
	for _, op := range r.ops[:len(r.ops):len(r.ops)] {
		root, dir := r.t.roots[op.Root], path.Dir(op.Path)
		at := place{root.Name, dir}
		if !root.Exact || op.Keep || op.Path == "." || planned[at] {
			continue
		}
		planned[at] = true
		below := dir
		if dir == "." {
			below = ""
		}
		e := r.present.entryAt(root.Name, below)
		if e == nil || e.child == 0 {
			continue // it comes with the state
		}
		before, err := fsx.Identify(filepath.Join(root.Dir, filepath.FromSlash(dir)))
		if err == nil && (before.Ino != e.ino || before.Mtime != e.mtime) {
			err = fmt.Errorf("changed while it was restored: %w", agents.ErrConflict)
		}
		if err != nil {
			return fmt.Errorf("%s %q: %w", root.Name, dir, err)
		}
		r.ops = append(r.ops, fsx.Op{Root: op.Root, Path: dir, Before: before, Dir: true, Perm: fileMode(0, e.mode&0o7777), Mtime: &e.mtime})
	}
	return nil
}

// holeBlock is how many bytes of nothing make a hole.
const holeBlock = 4096

// holeWriter writes a file and leaves out blocks of zeros. The caller gives
// the file its size, which is at.
type holeWriter struct {
	f  *fsx.File
	at int64
}

func (w *holeWriter) Write(p []byte) (int, error) {
	done := 0
	for done < len(p) {
		n := min(holeBlock-int(w.at%holeBlock), len(p)-done)
		piece := p[done : done+n]
		if len(bytes.Trim(piece, "\x00")) > 0 {
			if _, err := w.f.WriteAt(piece, w.at); err != nil {
				return done, err
			}
		}
		w.at += int64(n)
		done += n
	}
	return done, nil
}
