package snapshot

import (
	"crypto/sha256"
	"encoding/hex"
)

// linkKey is a name in a directory of the cache.
type linkKey struct {
	d *dir
	i int
}

// findLinks finds out which names of an exact root are one file, and has the
// attributes of their directories made again. A state names such a file by the
// first of its paths, so that equal trees are equal states, whatever their
// inodes.
func (sc *scanner) findLinks() {
	if !sc.exact {
		return
	}
	type found struct {
		first string
		names []linkKey
	}
	files := map[*scanRoot]map[uint64]*found{}
	for _, d := range sc.c.dirs {
		if d == nil || d.parent == nil || !sc.linked(d) || !sc.reached(d) {
			continue
		}
		root, path := sc.locate(d)
		if !root.Exact {
			continue
		}
		d.hash = true
		if files[root] == nil {
			files[root] = map[uint64]*found{}
		}
		for i := range d.entries {
			e := &d.entries[i]
			if e.flags&flagLinked == 0 {
				continue
			}
			f := files[root][e.ino]
			name := join(path, string(d.name(i)))
			if f == nil {
				f = &found{first: name}
				files[root][e.ino] = f
			}
			f.first = min(f.first, name)
			f.names = append(f.names, linkKey{d, i})
		}
	}
	sc.links = map[linkKey]string{}
	for _, of := range files {
		for _, f := range of {
			for _, name := range f.names {
				if len(f.names) > 1 {
					sc.links[name] = LinkOf(f.first)
				}
			}
		}
	}
}

// readsLinked reports whether a file with several names is to be read.
func (sc *scanner) readsLinked() bool {
	for _, d := range sc.changed {
		for i := range d.entries {
			if d.entries[i].flags&(flagRead|flagLinked) == flagRead|flagLinked {
				return true
			}
		}
	}
	return false
}

// linked reports whether a directory has a name of a file with several.
func (sc *scanner) linked(d *dir) bool {
	for i := range d.entries {
		if d.entries[i].flags&flagLinked != 0 {
			return true
		}
	}
	return false
}

// LinkOf returns the Entry.Link of a file whose first path is this.
func LinkOf(first string) string {
	sum := sha256.Sum256([]byte(first))
	return hex.EncodeToString(sum[:8])
}
