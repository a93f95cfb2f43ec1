package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/fsx"
)

// readTries is how often a file that changes while it is read is read again.
const readTries = 4

// streamAt is the size in bytes from which a file is not held in memory.
const streamAt = 1 << 20

// recorder reads what a scan found to be changed and writes objects.
type recorder struct {
	*scanner
	pack   *packWriter
	clones *cloneWriter     // nil = contents go into the pack
	seeds  map[string]*seed // by root
	base   map[oid]bool     // objects that the store lacks and the base commit reaches

	jobs  []readJob
	next  atomic.Int64
	files atomic.Int64 // read
	bytes atomic.Int64 // read
}

// readJob is an entry to read.
type readJob struct {
	d    *dir
	i    int
	root *scanRoot
	path string // of the directory
	name []byte // a NUL follows
	was  entry  // as the scan left it
}

// slash returns the path below the root.
func (j readJob) slash() string { return join(j.path, string(j.name)) }

func (j readJob) String() string {
	return filepath.Join(j.root.Dir, filepath.FromSlash(j.slash()))
}

// read reads the content of all changed files into the pack.
func (r *recorder) read() error {
	for _, d := range r.changed {
		if !r.reached(d) {
			continue
		}
		root, path := r.locate(d)
		for i := range d.entries {
			if d.entries[i].flags&flagRead != 0 {
				r.jobs = append(r.jobs, readJob{d, i, root, path, d.name(i), d.entries[i]})
			}
		}
	}
	n := min(len(r.jobs)/4+1, max(2, runtime.GOMAXPROCS(0)))
	errs := make([]error, n)
	ctx, cancel := context.WithCancel(r.ctx)
	defer cancel()
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			w := &reader{recorder: r, ctx: ctx, dirfd: -1}
			if errs[i] = w.work(); errs[i] != nil {
				cancel()
			}
		})
	}
	all.Wait()
	return firstCause(r.ctx, errs)
}

// firstCause returns the error that made the others end.
func firstCause(ctx context.Context, errs []error) error {
	var first error
	for _, err := range errs {
		if err != nil && (first == nil || errors.Is(first, context.Canceled)) {
			first = err
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return first
}

// reader reads files, one at a time.
type reader struct {
	*recorder
	ctx   context.Context
	dirfd int // of the last job's directory
	of    *dir
	buf   []byte
	z     deflater
}

func (w *reader) work() error {
	defer w.leave()
	for {
		at := int(w.next.Add(1)) - 1
		if at >= len(w.jobs) {
			return nil
		}
		if err := w.ctx.Err(); err != nil {
			return err
		}
		if err := w.read(w.jobs[at]); err != nil {
			return err
		}
	}
}

// enter opens the directory of a job.
func (w *reader) enter(j readJob) error {
	if w.of == j.d {
		return nil
	}
	w.leave()
	fd, err := j.root.openDir(j.path)
	if err != nil {
		return j.root.failure("open", j.path, err)
	}
	w.of, w.dirfd = j.d, fd
	return nil
}

func (w *reader) leave() {
	if w.of != nil {
		_ = unix.Close(w.dirfd)
		w.of = nil
	}
}

// finding is what reading an entry found out.
type finding struct {
	id    oid
	base  bool // the store does not have it; the base commit reaches it
	xattr string
	holes bool
	stat  *unix.Stat_t // nil = as the scan saw it
}

// read reads one entry and notes what it found. Different jobs are different
// entries; what they share, the directory, is changed under a lock.
func (w *reader) read(j readJob) error {
	if err := w.enter(j); err != nil {
		return err
	}
	var found finding
	var err error
	switch known, ok := w.known(j); {
	case ok:
		found.id, found.base = known, true
		if j.was.mode&typeMask == typeFile && !plainAt(w.dirfd, j.name[:len(j.name)+1]) {
			found.xattr, err = nameXattrs(w.dirfd, string(j.name))
		}
		found.base = !w.pack.has(known)
		found.holes = err == nil && j.root.Exact && w.holes(j)
	case j.was.mode&typeMask == typeLink:
		found.id, err = w.readLink(j)
	default:
		found, err = w.readFile(j)
	}
	if err != nil {
		return err
	}
	w.note(j, found)
	return nil
}

// holes reports whether a file that is not read has holes; it is opened only
// if it takes less room than it has bytes.
func (w *reader) holes(j readJob) bool {
	var st unix.Stat_t
	if fstatat(w.dirfd, j.name[:len(j.name)+1], &st) != nil || st.Blocks*512 >= st.Size {
		return false
	}
	f, err := openFile(w.dirfd, j.name)
	if err != nil {
		return false
	}
	defer f.Close()
	return hasHoles(int(f.Fd()), st.Size)
}

// known looks an entry up in what was seeded.
func (w *reader) known(j readJob) (oid, bool) {
	s := w.seeds[j.root.Name]
	if s == nil || j.was.id != (oid{}) {
		return oid{}, false
	}
	f, ok := s.files[j.slash()]
	return f.id, ok && f.mode == gitMode(j.was.mode)
}

func (w *reader) note(j readJob, found finding) {
	w.scanner.mu.Lock()
	defer w.scanner.mu.Unlock()
	d := j.d
	e := &d.entries[j.i]
	if found.stat != nil {
		w.see(e, found.stat)
	}
	e.flags &^= flagRead
	if e.id != found.id {
		e.id = found.id
		e.flags &^= flagInBase
		d.hash = true
	}
	if found.base || w.base[e.id] {
		e.flags |= flagInBase
	}
	if found.xattr != d.entryXattr(j.i) {
		d.setXattr(j.i, found.xattr)
		d.hash = true
	}
	e.flags = e.flags&^flagSparse | onlyIf(found.holes, flagSparse)
}

// keeps reports whether the base commit reaches what was read, as far as that
// is known: it need not be stored then.
func (w *reader) keeps(j readJob, id oid) bool {
	return w.base[id] || j.was.flags&flagInBase != 0 && j.was.id == id
}

func (w *reader) readLink(j readJob) (oid, error) {
	for size := 256; ; size *= 2 {
		b := make([]byte, size)
		n, err := unix.Readlinkat(w.dirfd, string(j.name), b)
		if err == unix.EINVAL {
			return oid{}, errMoving
		}
		if err != nil {
			return oid{}, j.root.failure("readlink", j.slash(), err)
		}
		if n == size {
			continue
		}
		return w.blob(j, b[:n])
	}
}

func (w *reader) f() format { return w.pack.f }

// errUnsteady says that a file changed while it was read.
var errUnsteady = errors.New("changes while it is read")

func (w *reader) readFile(j readJob) (finding, error) {
	for range readTries {
		found, err := w.readOnce(j)
		if !errors.Is(err, errUnsteady) {
			return found, err
		}
		if err := w.ctx.Err(); err != nil {
			return finding{}, err
		}
	}
	return finding{}, agents.WithHint(
		fmt.Errorf("record %s: the file changes while it is read: %w", j, agents.ErrConflict),
		"stop the program that writes the file and try again")
}

// readOnce reads a file and makes sure that it stayed the same meanwhile.
func (w *reader) readOnce(j readJob) (finding, error) {
	path := j.slash()
	f, err := openFile(w.dirfd, j.name)
	if err != nil {
		return finding{}, w.unreadable(j, j.root.failure("open", path, err))
	}
	defer f.Close()
	fd := int(f.Fd())
	var before, after unix.Stat_t
	if err := unix.Fstat(fd, &before); err != nil {
		return finding{}, j.root.failure("stat", path, err)
	}
	if before.Mode&unix.S_IFMT != unix.S_IFREG {
		return finding{}, errMoving
	}
	// A page of a shared mapping that is dirty already changes without a new
	// time of change. Written back, its next change gives the file one.
	_ = unix.SyncFileRange(fd, 0, 0, unix.SYNC_FILE_RANGE_WRITE)
	id, err := w.content(j, f, before.Size)
	if err != nil {
		return finding{}, fmt.Errorf("record %s: %w", j, err)
	}
	xattr, err := fdXattrs(fd)
	if err != nil {
		return finding{}, j.root.failure("read attributes of", path, err)
	}
	if err := unix.Fstat(fd, &after); err != nil {
		return finding{}, j.root.failure("stat", path, err)
	}
	if before.Size != after.Size || before.Mtim != after.Mtim || before.Ctim != after.Ctim {
		return finding{}, errUnsteady
	}
	w.files.Add(1)
	return finding{id: id, xattr: xattr, holes: j.root.Exact && hasHoles(fd, before.Size), stat: &before}, nil
}

// hasHoles reports whether a part of an open file is not there.
func hasHoles(fd int, size int64) bool {
	hole, err := unix.Seek(fd, 0, unix.SEEK_HOLE)
	return err == nil && hole < size
}

// unreadable adds what to do about a file that may not be read.
func (w *reader) unreadable(j readJob, err error) error {
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	return agents.WithHint(fmt.Errorf("record %s: %w", j, err), "make the file readable (chmod u+r) or remove it")
}

// content reads the whole of a file of this size into the pack.
func (w *reader) content(j readJob, f *os.File, size int64) (oid, error) {
	counted := &countingReader{ctx: w.ctx, r: f, n: &w.bytes}
	if w.clones != nil && size >= cloneFrom {
		id, err := w.clone(j, f, size, counted)
		if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, errLonger) {
			return oid{}, errUnsteady
		}
		return id, err
	}
	if size >= streamAt {
		id, err := w.pack.stream(kindBlob, size, counted, &w.z)
		if fsx.IsNoSpace(err) {
			id, err = w.stored(f, size, err)
		}
		if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, errLonger) {
			return oid{}, errUnsteady
		}
		return id, err
	}
	if w.buf == nil {
		w.buf = make([]byte, streamAt)
	}
	n, err := io.ReadFull(counted, w.buf[:size+1])
	if err == nil || int64(n) != size {
		if err != nil && err != io.ErrUnexpectedEOF && err != io.EOF {
			return oid{}, err
		}
		return oid{}, errUnsteady
	}
	if err != io.ErrUnexpectedEOF && err != io.EOF {
		return oid{}, err
	}
	return w.blob(j, w.buf[:n])
}

// stored looks whether the store has the content of a file that it had no room
// to take in once more: what a big file holds is known at its end only.
func (w *reader) stored(f *os.File, size int64, full error) (oid, error) {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return oid{}, err
	}
	id, err := w.f().idOfStream(kindBlob, size, &countingReader{ctx: w.ctx, r: f, n: &w.bytes})
	if err == nil && !w.pack.has(id) {
		err = full
	}
	return id, err
}

// blob stores what was read, unless nobody needs that.
func (w *reader) blob(j readJob, content []byte) (oid, error) {
	id := w.f().idOf(kindBlob, content)
	if w.keeps(j, id) || w.pack.aside != nil || w.pack.has(id) {
		return id, nil
	}
	return id, w.pack.put(id, kindBlob, content, &w.z)
}

// countingReader counts bytes and ends with the context.
type countingReader struct {
	ctx context.Context // of the one file it serves
	r   io.Reader
	n   *atomic.Int64
}

func (c *countingReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := c.r.Read(p)
	c.n.Add(int64(n))
	return n, err
}

// gitMode returns git's mode for a file's.
func gitMode(mode uint32) uint32 {
	switch mode & typeMask {
	case typeDir:
		return modeTree
	case typeLink:
		return modeLink
	}
	if mode&0o100 != 0 {
		return modeExec
	}
	return modeFile
}

// trees makes the trees of all directories that changed, the deepest first,
// and returns the tree of the whole state.
func (r *recorder) trees() (oid, error) {
	var levels [][]*dir
	queue := func(d *dir) {
		depth := 0
		for p := d; p.parent != nil; p = p.parent {
			depth++
		}
		for len(levels) <= depth {
			levels = append(levels, nil)
		}
		levels[depth] = append(levels[depth], d)
	}
	for _, d := range r.c.dirs {
		if d != nil && d.hash && d.parent != nil && r.reached(d) {
			queue(d)
		}
	}
	var z deflater
	for depth := len(levels) - 1; depth > 0; depth-- {
		for _, d := range levels[depth] {
			d.hash = false
			changed, err := r.tree(d, &z)
			if err != nil {
				return oid{}, err
			}
			if p := d.parent; changed && p.parent != nil && !p.hash {
				p.hash = true
				queue(p)
			}
		}
	}
	return r.topTree(&z)
}

// tree makes the trees of one directory and enters them in its parent. It
// reports whether that makes the parent's trees others.
func (r *recorder) tree(d *dir, z *deflater) (bool, error) {
	root, _ := r.rootOf(d)
	content := make([]byte, 0, len(d.names)+len(d.entries)*(r.pack.f.size+8))
	for i := range d.entries {
		e := &d.entries[i]
		if !special(e.mode) {
			content = r.pack.f.appendTreeEntry(content, gitMode(e.mode), d.name(i), e.id)
		}
	}
	at := d.parent.index(d)
	e := &d.parent.entries[at]
	id := r.pack.f.idOf(kindTree, content)
	base := r.base[id] || e.id == id && e.flags&flagInBase != 0
	if s := r.seeds[root.Name]; s != nil && s.trees[id] {
		base = true
	}
	if !base && !r.pack.has(id) {
		if err := r.pack.put(id, kindTree, content, z); err != nil {
			return false, err
		}
	}
	attrs, err := r.attributes(d, root, z)
	if err != nil {
		return false, err
	}
	changed := e.id != id || d.attrs != attrs || d.outer
	if d.attrs != attrs {
		d.own()
		d.attrs = attrs
	}
	if flags := e.flags&^flagInBase | onlyIf(base, flagInBase); e.id != id || e.flags != flags {
		d.parent.own()
		e = &d.parent.entries[at]
		e.id, e.flags = id, flags
	}
	return changed, nil
}

func onlyIf(ok bool, flag uint16) uint16 {
	if ok {
		return flag
	}
	return 0
}

// rootOf returns the root that a directory is in.
func (r *recorder) rootOf(d *dir) (*scanRoot, *dir) {
	for d.parent != r.c.top() {
		d = d.parent
	}
	name := string(r.c.top().name(r.c.top().index(d)))
	for _, root := range r.roots {
		if root.Name == name {
			return root, d
		}
	}
	return nil, d
}

// attributes makes the tree of what trees cannot say about a directory, or
// returns the zero id where that is nothing.
func (r *recorder) attributes(d *dir, root *scanRoot, z *deflater) (oid, error) {
	var lines []treeEntry
	blob := r.describe(d, root).encode()
	if len(blob) > 0 {
		id, err := r.pack.add(kindBlob, blob, z)
		if err != nil {
			return oid{}, err
		}
		lines = append(lines, treeEntry{modeFile, entriesName, id})
	}
	for i := range d.entries {
		if n := d.entries[i].child; n != 0 && r.c.dirs[n].attrs != (oid{}) {
			lines = append(lines, treeEntry{modeTree, belowPrefix + string(d.name(i)), r.c.dirs[n].attrs})
		}
	}
	if len(lines) == 0 {
		return oid{}, nil
	}
	return r.pack.add(kindTree, r.pack.f.encodeTree(lines), z)
}

// describe says what a directory's tree leaves out.
func (r *recorder) describe(d *dir, root *scanRoot) dirAttrs {
	out := dirAttrs{perms: frequent(d), entries: map[string]attr{}}
	for i := range d.entries {
		e := &d.entries[i]
		if special(e.mode) {
			continue
		}
		var a attr
		if perm := e.mode & 0o7777; perm != out.perms.of(gitMode(e.mode)) && e.mode&typeMask != typeLink {
			a.perm = &perm
		}
		if own := (owner{e.uid, e.gid}); own != root.owner {
			a.owner = &own
		}
		if a.xattr = d.entryXattr(i); e.child != 0 {
			a.xattr = r.c.dirs[e.child].xattr
		}
		if root.Exact {
			a.mtime, a.sparse = &e.mtime, e.flags&flagSparse != 0
			a.link = r.links[linkKey{d, i}]
		}
		if !a.empty() {
			out.entries[string(d.name(i))] = a
		}
	}
	if d.parent == r.c.top() {
		e := &d.parent.entries[d.parent.index(d)]
		perm, own := e.mode&0o7777, root.owner
		out.self = &attr{perm: &perm, owner: &own, xattr: d.xattr}
		if root.Exact {
			out.self.mtime = &e.mtime
		}
	}
	return out
}

// frequent returns the permission bits that most entries of a directory have,
// the smaller ones where two are as frequent.
func frequent(d *dir) perms {
	counts := map[[2]uint32]int{}
	for i := range d.entries {
		if mode := d.entries[i].mode; !special(mode) && mode&typeMask != typeLink {
			counts[[2]uint32{gitMode(mode), mode & 0o7777}]++
		}
	}
	p := usual()
	for class, to := range map[uint32]*uint32{modeFile: &p.file, modeExec: &p.exec, modeTree: &p.dir} {
		best := 0
		for key, n := range counts {
			if key[0] == class && (n > best || n == best && key[1] < *to) {
				best, *to = n, key[1]
			}
		}
	}
	return p
}

// topTree makes the tree of the whole state.
func (r *recorder) topTree(z *deflater) (oid, error) {
	top := r.c.top()
	var roots, attrs []treeEntry
	for i := range top.entries {
		e := &top.entries[i]
		roots = append(roots, treeEntry{modeTree, string(top.name(i)), e.id})
		attrs = append(attrs, treeEntry{modeTree, string(top.name(i)), r.c.dirs[e.child].attrs})
	}
	id, err := r.pack.add(kindTree, r.pack.f.encodeTree(attrs), z)
	if err != nil {
		return oid{}, err
	}
	roots = append(roots, treeEntry{modeTree, attributesName, id})
	return r.pack.add(kindTree, r.pack.f.encodeTree(roots), z)
}
