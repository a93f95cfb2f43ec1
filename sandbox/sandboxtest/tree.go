package sandboxtest

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Entry is what a Tree knows about one path.
type Entry struct {
	Mode   fs.FileMode // type and permission bits, setuid, setgid and sticky
	Target string      // of a symbolic link
	Sum    string      // SHA-256 of a regular file's bytes, hexadecimal
}

func (e Entry) String() string {
	switch {
	case e == Entry{}:
		return "nothing"
	case e.Mode&fs.ModeSymlink != 0:
		return "link to " + e.Target
	case e.Mode.IsDir():
		return e.Mode.String()
	}
	return e.Mode.String() + " " + e.Sum[:12]
}

// Tree is what is in a directory: an entry for each path below it, with "/"
// between components.
type Tree map[string]Entry

// ReadTree reads the directory at root with all below it, nested repositories
// too; the root's own ".git" is left out. A symbolic link's permission bits
// mean nothing and are left out.
func ReadTree(root string) (Tree, error) {
	t := Tree{}
	return t, t.read(root, "")
}

func (t Tree) read(root, dir string) error {
	entries, err := os.ReadDir(filepath.Join(root, filepath.FromSlash(dir)))
	if err != nil {
		return err
	}
	for _, d := range entries {
		name := d.Name()
		if dir == "" && name == ".git" {
			continue
		}
		if dir != "" {
			name = dir + "/" + name
		}
		e, err := readEntry(filepath.Join(root, filepath.FromSlash(name)))
		if err != nil {
			return err
		}
		t[name] = e
		if e.Mode.IsDir() {
			if err := t.read(root, name); err != nil {
				return err
			}
		}
	}
	return nil
}

func readEntry(path string) (Entry, error) {
	fi, err := os.Lstat(path)
	if err != nil {
		return Entry{}, err
	}
	const bits = fs.ModeType | fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky
	e := Entry{Mode: fi.Mode() & bits}
	switch {
	case e.Mode&fs.ModeSymlink != 0:
		e.Mode = fs.ModeSymlink
		e.Target, err = os.Readlink(path)
	case e.Mode.IsRegular():
		var data []byte
		data, err = os.ReadFile(path)
		e.Sum = fmt.Sprintf("%x", sha256.Sum256(data))
	}
	return e, err
}

// Changed returns the paths at which t and other differ, sorted.
func (t Tree) Changed(other Tree) []string {
	var paths []string
	for p, e := range t {
		if other[p] != e {
			paths = append(paths, p)
		}
	}
	for p := range other {
		if _, both := t[p]; !both {
			paths = append(paths, p)
		}
	}
	slices.Sort(paths)
	return paths
}

// Explain returns one line for each path at which got and want differ, at most
// twenty, and "" when they are equal.
func Explain(got, want Tree) string {
	var b strings.Builder
	for i, p := range got.Changed(want) {
		if i == 20 {
			b.WriteString("…\n")
			break
		}
		fmt.Fprintf(&b, "%q: got %v, want %v\n", p, got[p], want[p])
	}
	return b.String()
}

// Digest returns a single line for the whole tree, equal for equal trees.
func (t Tree) Digest() string {
	h := sha256.New()
	for _, p := range slices.Sorted(maps.Keys(t)) {
		fmt.Fprintf(h, "%q %v %q %s\n", p, t[p].Mode, t[p].Target, t[p].Sum)
	}
	return fmt.Sprintf("%d paths, %x", len(t), h.Sum(nil))
}

// files returns t without directories.
func (t Tree) files() Tree {
	out := Tree{}
	for p, e := range t {
		if !e.Mode.IsDir() {
			out[p] = e
		}
	}
	return out
}

// executable returns t with no permission bits of files but the executable one.
func (t Tree) executable() Tree {
	out := Tree{}
	for p, e := range t {
		switch {
		case e.Mode.IsRegular() && e.Mode&0o100 != 0:
			e.Mode = 0o755
		case e.Mode.IsRegular():
			e.Mode = 0o644
		case e.Mode.IsDir():
			e.Mode = fs.ModeDir | 0o755
		}
		out[p] = e
	}
	return out
}
