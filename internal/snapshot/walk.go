package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sort"
	"strings"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/fsx"
)

// item is one entry of a directory as a state has it: what the tree says and
// what the attributes add.
type item struct {
	name  string
	mode  uint32 // git's
	perm  uint32 // permission bits, setuid, setgid, sticky
	id    oid
	owner owner
	xattr string
	exact     // what an exact root says beside that
	attrs oid // of a directory: the attributes below it
}

// exact is what states say of an exact root alone.
type exact struct {
	times  bool // mtime is known
	mtime  int64
	link   string
	sparse bool
}

func (a attr) exact() exact {
	e := exact{link: a.link, sparse: a.sparse}
	if a.mtime != nil {
		e.times, e.mtime = true, *a.mtime
	}
	return e
}

func (i item) exists() bool { return i.mode != 0 }
func (i item) isDir() bool  { return i.mode == modeTree }

// isFile tells files from links and directories.
func (i item) isFile() bool { return i.mode == modeFile || i.mode == modeExec }

// node is a directory of a state, and the owner that its root's top has.
type node struct {
	tree, attrs oid
	owner       owner
}

// state is a commit opened for reading.
type state struct {
	s     *Store
	roots map[string]item // a root's top by name
	nodes map[string]node
}

// openState reads the top of the commit ref; the empty ref has no roots.
func (s *Store) openState(ctx context.Context, ref string) (*state, error) {
	st := &state{s: s, roots: map[string]item{}, nodes: map[string]node{}}
	if ref == "" {
		return st, nil
	}
	c, err := s.readCommit(ctx, ref)
	if err != nil {
		return nil, err
	}
	top, err := s.readTree(ctx, c.tree)
	if err != nil {
		return nil, err
	}
	attrs := map[string]oid{}
	for _, e := range top {
		if e.name != attributesName {
			continue
		}
		below, err := s.readTree(ctx, e.id)
		if err != nil {
			return nil, err
		}
		for _, a := range below {
			attrs[a.name] = a.id
		}
	}
	for _, e := range top {
		if e.name == attributesName {
			continue
		}
		if e.mode != modeTree {
			return nil, fmt.Errorf("state %s: root %q: %w", ref, clip(e.name), agents.ErrDamaged)
		}
		if err := st.addRoot(ctx, e, attrs[e.name]); err != nil {
			return nil, fmt.Errorf("state %s: root %s: %w", ref, e.name, err)
		}
	}
	return st, nil
}

func (st *state) addRoot(ctx context.Context, e treeEntry, attrs oid) error {
	d, _, err := st.s.readAttrs(ctx, attrs)
	if err != nil {
		return err
	}
	if d.self == nil || d.self.owner == nil || d.self.perm == nil {
		return fmt.Errorf("attributes of the top: %w", agents.ErrDamaged)
	}
	st.roots[e.name] = item{mode: modeTree, perm: *d.self.perm, id: e.id, owner: *d.self.owner, xattr: d.self.xattr, exact: d.self.exact(), attrs: attrs}
	st.nodes[e.name] = node{e.id, attrs, *d.self.owner}
	return nil
}

// readAttrs reads a directory's attributes and the trees of those below it.
func (s *Store) readAttrs(ctx context.Context, tree oid) (dirAttrs, map[string]oid, error) {
	d := dirAttrs{perms: usual()}
	entries, err := s.readTree(ctx, tree)
	if err != nil {
		return d, nil, err
	}
	below := map[string]oid{}
	for _, e := range entries {
		if name, ok := strings.CutPrefix(e.name, belowPrefix); ok && e.mode == modeTree {
			below[name] = e.id
			continue
		}
		if e.name != entriesName {
			return d, nil, fmt.Errorf("attributes entry %q: %w", clip(e.name), agents.ErrDamaged)
		}
		b, err := s.readObject(ctx, e.id, kindBlob)
		if err != nil {
			return d, nil, err
		}
		if d, err = decodeAttrs(b); err != nil {
			return d, nil, err
		}
	}
	return d, below, nil
}

// list returns a directory's entries, sorted by name.
func (s *Store) list(ctx context.Context, n node) ([]item, error) {
	entries, err := s.readTree(ctx, n.tree)
	if err != nil {
		return nil, err
	}
	d, below, err := s.readAttrs(ctx, n.attrs)
	if err != nil {
		return nil, err
	}
	items := make([]item, 0, len(entries))
	for _, e := range entries {
		it := item{name: e.name, mode: e.mode, perm: d.perms.of(e.mode), id: e.id, owner: n.owner}
		a := d.entries[e.name]
		if a.perm != nil {
			it.perm = *a.perm
		}
		if a.owner != nil {
			it.owner = *a.owner
		}
		it.xattr, it.exact = a.xattr, a.exact()
		if it.isDir() {
			it.attrs = below[e.name]
		}
		items = append(items, it)
	}
	sort.Slice(items, func(i, j int) bool { return items[i].name < items[j].name })
	return items, nil
}

// entry turns an item into what callers see.
func (s *Store) entry(it item) (Entry, error) {
	if !it.exists() {
		return Entry{}, nil
	}
	xattr, err := decodeXattrs(it.xattr)
	if err != nil {
		return Entry{}, err
	}
	return Entry{
		Mode: fileMode(it.mode, it.perm), ID: s.f.hex(it.id), UID: it.owner.uid, GID: it.owner.gid, Xattr: xattr,
		Mtime: it.mtime, Link: it.link, Sparse: it.sparse,
	}, nil
}

// fileMode joins git's mode and permission bits.
func fileMode(gitMode, perm uint32) fs.FileMode {
	m := fsx.PermissionMode(perm)
	switch gitMode {
	case modeTree:
		m |= fs.ModeDir
	case modeLink:
		m |= fs.ModeSymlink
	}
	return m
}

// change is a Change before it is spelled for callers.
type change struct {
	root, path string
	old, new   item
}

// Compare lists the paths that differ between two states, sorted by root and
// path. The empty ref is the state without anything.
func (s *Store) Compare(ctx context.Context, from, to string) ([]Change, error) {
	c, err := s.comparison(ctx, from, to)
	if err != nil {
		return nil, fmt.Errorf("compare states: %w", err)
	}
	out := make([]Change, len(c.out))
	for i, c := range c.out {
		old, oerr := s.entry(c.old)
		new, nerr := s.entry(c.new)
		if err := errors.Join(oerr, nerr); err != nil {
			return nil, fmt.Errorf("compare states: %s: %w", c.path, err)
		}
		out[i] = Change{Root: c.root, Path: c.path, Old: old, New: new}
	}
	return out, nil
}

// comparison is Compare with what both states have in their own words.
func (s *Store) comparison(ctx context.Context, from, to string) (*comparer, error) {
	a, err := s.openState(ctx, from)
	if err != nil {
		return nil, err
	}
	b, err := s.openState(ctx, to)
	if err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for name := range a.roots {
		names[name] = true
	}
	for name := range b.roots {
		names[name] = true
	}
	cmp := &comparer{s: s, ctx: ctx, to: map[oid]bool{}}
	for name := range names {
		cmp.root = name
		if err := cmp.items("", a.roots[name], b.roots[name], a.nodes[name].owner, b.nodes[name].owner); err != nil {
			return nil, err
		}
	}
	sort.Slice(cmp.out, func(i, j int) bool {
		x, y := cmp.out[i], cmp.out[j]
		return x.root < y.root || x.root == y.root && x.path < y.path
	})
	return cmp, nil
}

// comparer walks two states side by side and skips what both share.
type comparer struct {
	s    *Store
	ctx  context.Context // of the one call that made it
	root string
	out  []change
	to   map[oid]bool // the objects of the second state that the first has not at the same path
}

// items compares what two states have at one path; either may be nothing.
func (c *comparer) items(path string, a, b item, aOwner, bOwner owner) error {
	if err := c.ctx.Err(); err != nil {
		return err
	}
	if b.exists() && a.id != b.id {
		c.to[b.id] = true
	}
	same := a.mode == b.mode && a.perm == b.perm && a.owner == b.owner && a.xattr == b.xattr && a.exact == b.exact
	if !same || !a.isDir() && a.id != b.id {
		c.out = append(c.out, change{root: c.root, path: path, old: a, new: b})
	}
	if !a.isDir() && !b.isDir() || a.id == b.id && a.attrs == b.attrs && aOwner == bOwner {
		return nil
	}
	below, err := c.below(a, aOwner)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	other, err := c.below(b, bOwner)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	for len(below) > 0 || len(other) > 0 {
		var x, y item
		if len(other) == 0 || len(below) > 0 && below[0].name <= other[0].name {
			x = below[0]
		}
		if len(below) == 0 || len(other) > 0 && other[0].name <= below[0].name {
			y = other[0]
		}
		name := x.name
		if x.exists() {
			below = below[1:]
		}
		if y.exists() {
			name, other = y.name, other[1:]
		}
		if err := c.items(join(path, name), x, y, aOwner, bOwner); err != nil {
			return err
		}
	}
	return nil
}

// below lists a directory; anything else has nothing below it.
func (c *comparer) below(it item, top owner) ([]item, error) {
	if !it.isDir() {
		return nil, nil
	}
	return c.s.list(c.ctx, node{it.id, it.attrs, top})
}

// join adds a component to a slash path.
func join(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}

// Label returns the message of the commit ref, as CaptureOptions gave it.
func (s *Store) Label(ctx context.Context, ref string) (string, error) {
	c, err := s.readCommit(ctx, ref)
	return c.message, err
}

// Stat returns what the state ref says about a path; agents.ErrNotFound when
// it does not hold it.
func (s *Store) Stat(ctx context.Context, ref string, p Path) (Entry, error) {
	it, err := s.lookup(ctx, ref, p)
	if err != nil {
		return Entry{}, err
	}
	return s.entry(it)
}

func (s *Store) lookup(ctx context.Context, ref string, p Path) (item, error) {
	st, err := s.openState(ctx, ref)
	if err != nil {
		return item{}, err
	}
	missing := fmt.Errorf("%s %q in state %s: %w", p.Root, clip(p.Path), clip(ref), agents.ErrNotFound)
	it, ok := st.roots[p.Root]
	if !ok {
		return item{}, missing
	}
	if p.Path == "" {
		return it, nil
	}
	top := st.nodes[p.Root].owner
	for _, name := range strings.Split(p.Path, "/") {
		if !it.isDir() {
			return item{}, missing
		}
		items, err := s.list(ctx, node{it.id, it.attrs, top})
		if err != nil {
			return item{}, err
		}
		i := sort.Search(len(items), func(i int) bool { return items[i].name >= name })
		if i == len(items) || items[i].name != name {
			return item{}, missing
		}
		it = items[i]
	}
	return it, nil
}

// ReadFile writes the content of a file, or the target of a link, to w. A
// path that is neither is agents.ErrNotFound.
func (s *Store) ReadFile(ctx context.Context, ref string, p Path, w io.Writer) (Entry, error) {
	it, err := s.lookup(ctx, ref, p)
	if err != nil {
		return Entry{}, err
	}
	if it.isDir() {
		return Entry{}, fmt.Errorf("%s %q is a directory: %w", p.Root, clip(p.Path), agents.ErrNotFound)
	}
	if err := s.copyObject(ctx, it.id, kindBlob, w); err != nil {
		return Entry{}, fmt.Errorf("%s %q: %w", p.Root, clip(p.Path), err)
	}
	return s.entry(it)
}

// ReadObject writes the content of the blob id, as in Entry.ID, to w.
func (s *Store) ReadObject(ctx context.Context, id string, w io.Writer) error {
	o, err := s.f.parse(id)
	if err != nil {
		return err
	}
	return s.copyObject(ctx, o, kindBlob, w)
}

// Walk calls fn for every path of a root in the state ref, a directory before
// what is below it, siblings sorted; the root's directory is the path "". An
// error of fn ends the walk and is returned.
func (s *Store) Walk(ctx context.Context, ref, root string, fn func(path string, e Entry) error) error {
	st, err := s.openState(ctx, ref)
	if err != nil {
		return err
	}
	it, ok := st.roots[root]
	if !ok {
		return fmt.Errorf("root %s in state %s: %w", root, clip(ref), agents.ErrNotFound)
	}
	return s.walk(ctx, "", it, st.nodes[root].owner, fn)
}

func (s *Store) walk(ctx context.Context, path string, it item, top owner, fn func(string, Entry) error) error {
	e, err := s.entry(it)
	if err != nil {
		return err
	}
	if err := fn(path, e); err != nil || !it.isDir() {
		return err
	}
	items, err := s.list(ctx, node{it.id, it.attrs, top})
	if err != nil {
		return err
	}
	for _, child := range items {
		if err := s.walk(ctx, join(path, child.name), child, top, fn); err != nil {
			return err
		}
	}
	return nil
}
