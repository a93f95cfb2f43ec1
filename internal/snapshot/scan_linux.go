package snapshot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// errMoving says that a file or directory went away between being seen and
// being read: the scan begins again.
var errMoving = errors.New("the tree changes while it is recorded")

// scanner brings a cache up to date with what is on the disk: it finds which
// files must be read and which directories' trees must be made again.
type scanner struct {
	ctx   context.Context // of the one scan it serves
	c     *cache
	roots []*scanRoot
	exact bool  // a root is
	start int64 // of the scan, by the clock that stamps files

	links map[linkKey]string // what file each name of a linked one is

	mu      sync.Mutex
	idle    *sync.Cond
	queue   []scanTask
	working int
	changed []*dir // with a file to read
	fresh   []*dir // found by this scan; c.dirs stays as it is while workers read it
	err     error
	stop    bool
}

// scanRoot is a Root while it is scanned.
type scanRoot struct {
	Root
	fd    int
	skip  map[string]map[string]bool // names by the directory they are in
	owner owner
}

// scanTask is a directory to look at.
type scanTask struct {
	d    *dir
	root *scanRoot
	path string
	list bool   // its names may have changed
	want *wants // nil = everything below it
}

// wants is a tree of path components to look at. One without branches stands
// for the listing alone.
type wants struct {
	all   bool // everything from here on
	names map[string]*wants
}

func (w *wants) add(path string) {
	if path == "" {
		w.all = true
		return
	}
	name, rest, _ := strings.Cut(path, "/")
	if w.names == nil {
		w.names = map[string]*wants{}
	}
	if w.names[name] == nil {
		w.names[name] = &wants{}
	}
	w.names[name].add(rest)
}

// openRoots opens the directories to scan; close them with closeRoots.
func openRoots(roots []Root) ([]*scanRoot, error) {
	var open []*scanRoot
	for _, r := range roots {
		fd, err := unix.Open(r.Dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			closeRoots(open)
			return nil, &fs.PathError{Op: "open", Path: r.Dir, Err: err}
		}
		skip := map[string]map[string]bool{}
		for _, p := range r.Skip {
			dir, name := "", p
			if i := strings.LastIndexByte(p, '/'); i >= 0 {
				dir, name = p[:i], p[i+1:]
			}
			if skip[dir] == nil {
				skip[dir] = map[string]bool{}
			}
			skip[dir][name] = true
		}
		open = append(open, &scanRoot{Root: r, fd: fd, skip: skip})
	}
	return open, nil
}

func closeRoots(roots []*scanRoot) {
	for _, r := range roots {
		_ = unix.Close(r.fd)
	}
}

// openDir opens a directory below the root without following any link.
func (r *scanRoot) openDir(path string) (int, error) {
	if path == "" {
		path = "."
	}
	how := unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_BENEATH,
	}
	for {
		fd, err := unix.Openat2(r.fd, path, &how)
		switch {
		case err == unix.EAGAIN || err == unix.EINTR:
			continue
		case err == unix.ENOSYS || err == unix.EPERM || err == unix.ENAMETOOLONG:
			return r.openSteps(path)
		}
		return fd, err
	}
}

// openSteps is openDir for kernels without openat2, and for paths that are
// longer than a kernel takes at once.
func (r *scanRoot) openSteps(path string) (int, error) {
	fd, err := unix.Openat(r.fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	for _, name := range strings.Split(path, "/") {
		if err != nil || name == "." {
			continue
		}
		below, berr := unix.Openat(fd, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		_ = unix.Close(fd)
		fd, err = below, berr
	}
	return fd, err
}

// failure names a path in an error of the file system, and tells what went
// away in between from what cannot be read.
func (r *scanRoot) failure(op, path string, err error) error {
	switch err {
	case unix.ENOENT, unix.ENOTDIR, unix.ELOOP:
		return errMoving
	}
	return &fs.PathError{Op: op, Path: filepath.Join(r.Dir, filepath.FromSlash(path)), Err: err}
}

// fileClock returns the time by the coarse clock that stamps files.
func fileClock() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &ts); err != nil {
		return time.Now().UnixNano() - int64(10*time.Millisecond)
	}
	return ts.Nano()
}

// scan looks at everything, or at the paths alone.
func (sc *scanner) scan(paths []Path) error {
	sc.idle = sync.NewCond(&sc.mu)
	want := map[string]*wants{}
	for _, p := range paths {
		if want[p.Root] == nil {
			want[p.Root] = &wants{}
		}
		want[p.Root].add(p.Path)
	}
	for _, r := range sc.roots {
		w := want[r.Name]
		if w != nil && w.all || paths == nil {
			w = nil
		} else if w == nil {
			w = &wants{}
		}
		if err := sc.beginRoot(r, w); err != nil {
			return err
		}
	}
	sort.SliceStable(sc.c.top().entries, func(i, j int) bool {
		return bytes.Compare(sc.c.top().name(i), sc.c.top().name(j)) < 0
	})
	sc.run(paths)
	return sc.err
}

// run lets workers empty the queue. Two are the fastest by measure; known
// paths need no second one.
func (sc *scanner) run(paths []Path) {
	n := min(2, runtime.GOMAXPROCS(0))
	if paths != nil {
		n = 1
	}
	var all sync.WaitGroup
	for range n {
		all.Go(func() { (&scanWorker{scanner: sc}).work() })
	}
	all.Wait()
	sc.c.dirs = append(sc.c.dirs, sc.fresh...)
}

// freshDir returns a new directory below parent.
func (sc *scanner) freshDir(parent *dir) *dir {
	d := &dir{parent: parent, owned: true, dirty: true, hash: true}
	sc.mu.Lock()
	defer sc.mu.Unlock()
	d.number = uint32(len(sc.c.dirs) + len(sc.fresh))
	sc.fresh = append(sc.fresh, d)
	return d
}

// beginRoot looks at a root's directory itself.
func (sc *scanner) beginRoot(r *scanRoot, want *wants) error {
	var st unix.Stat_t
	if err := unix.Fstat(r.fd, &st); err != nil {
		return r.failure("stat", "", err)
	}
	r.owner = owner{st.Uid, st.Gid}
	top := sc.c.top()
	at := slices.IndexFunc(top.entries, func(e entry) bool {
		return string(top.names[e.nameOff:e.nameOff+uint32(e.nameLen)]) == r.Name
	})
	if at < 0 {
		top.own()
		e := entry{nameOff: uint32(len(top.names)), nameLen: uint16(len(r.Name)), child: sc.c.addDir(top).number}
		top.names = append(append(top.names, r.Name...), 0)
		top.entries = append(top.entries, e)
		at = len(top.entries) - 1
		want = nil
	}
	e := &top.entries[at]
	task := scanTask{d: sc.c.dirs[e.child], root: r, want: want}
	if !same(e, &st) || e.flags&flagRacy != 0 {
		if e.uid != st.Uid || e.gid != st.Gid {
			sc.forceHash(task.d)
		}
		top.own()
		task.list = true
		task.d.hash = true
		sc.see(&top.entries[at], &st)
	}
	sc.queue = append(sc.queue, task)
	return nil
}

// forceHash has all trees below d made again: what their attributes are
// compared with has changed.
func (sc *scanner) forceHash(d *dir) {
	d.hash = true
	for i := range d.entries {
		if n := d.entries[i].child; n != 0 {
			sc.forceHash(sc.c.dirs[n])
		}
	}
}

// same reports whether a file is what the cache knows.
func same(e *entry, st *unix.Stat_t) bool {
	return e.ino == uint64(st.Ino) && e.ctime == st.Ctim.Nano() && e.mtime == st.Mtim.Nano() &&
		e.size == uint64(st.Size) && e.mode == uint32(st.Mode) && e.uid == st.Uid && e.gid == st.Gid
}

// see takes over what a file is now.
func (sc *scanner) see(e *entry, st *unix.Stat_t) {
	e.ino, e.size, e.mode = uint64(st.Ino), uint64(st.Size), uint32(st.Mode)
	e.mtime, e.ctime, e.uid, e.gid = st.Mtim.Nano(), st.Ctim.Nano(), st.Uid, st.Gid
	e.flags &^= flagRacy | flagLinked
	if e.ctime >= sc.start {
		e.flags |= flagRacy
	}
	if e.mode&typeMask == typeFile && st.Nlink > 1 {
		e.flags |= flagLinked
	}
}

// scanWorker looks at directories, one at a time.
type scanWorker struct {
	*scanner
	buf []byte // for listings
}

func (w *scanWorker) work() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		for len(w.queue) == 0 && w.working > 0 && !w.stop {
			w.idle.Wait()
		}
		if len(w.queue) == 0 || w.stop {
			w.idle.Broadcast()
			return
		}
		t := w.queue[len(w.queue)-1]
		w.queue = w.queue[:len(w.queue)-1]
		w.working++
		w.mu.Unlock()
		err := w.ctx.Err()
		if err == nil {
			err = w.look(t)
		}
		w.mu.Lock()
		w.working--
		if err != nil && w.err == nil {
			w.err, w.stop = err, true
		}
		if w.working == 0 {
			w.idle.Broadcast()
		}
	}
}

// push queues directories.
func (sc *scanner) push(tasks ...scanTask) {
	if len(tasks) == 0 {
		return
	}
	sc.mu.Lock()
	sc.queue = append(sc.queue, tasks...)
	sc.mu.Unlock()
	sc.idle.Broadcast()
}

// look brings one directory up to date.
func (w *scanWorker) look(t scanTask) error {
	if !t.list && (len(t.d.entries) == 0 || t.want != nil && len(t.want.names) == 0) {
		return nil
	}
	fd, err := t.root.openDir(t.path)
	if err != nil {
		return t.root.failure("open", t.path, err)
	}
	defer unix.Close(fd)
	if t.list {
		return w.relist(t, fd)
	}
	before := *t.d
	tasks, fits, err := w.restat(t, fd)
	if err == nil && !fits {
		*t.d = before
		return w.relist(t, fd)
	}
	w.push(tasks...)
	return err
}

// restat looks at the known names of a directory whose listing has not
// changed. fits is false where it has all the same, or a name is another type
// of file now.
func (w *scanWorker) restat(t scanTask, fd int) (tasks []scanTask, fits bool, err error) {
	var st unix.Stat_t
	d := t.d
	reads := false
	for i := range d.entries {
		want := t.want
		if want != nil {
			if want = want.names[string(d.name(i))]; want == nil {
				continue
			}
			if want.all {
				want = nil
			}
		}
		e := &d.entries[i]
		if err := fstatat(fd, d.names[e.nameOff:], &st); err != nil {
			if err == unix.ENOENT {
				return nil, false, nil
			}
			return nil, false, t.root.failure("stat", join(t.path, string(d.name(i))), err)
		}
		unchanged := same(e, &st) && e.flags&flagRacy == 0
		if !unchanged {
			if e.mode&typeMask != uint32(st.Mode)&typeMask {
				return nil, false, nil
			}
			d.own()
			e = &d.entries[i]
			reads = w.update(d, e, &st) || reads
		}
		if e.child != 0 {
			tasks = append(tasks, scanTask{w.c.dirs[e.child], t.root, join(t.path, string(d.name(i))), !unchanged, want})
		}
	}
	if reads {
		w.noteReads(d)
	}
	return tasks, true, nil
}

// update takes over a changed entry of an owned directory and reports whether
// its content must be read.
func (sc *scanner) update(d *dir, e *entry, st *unix.Stat_t) bool {
	if sc.exact || e.mode != uint32(st.Mode) || e.uid != st.Uid || e.gid != st.Gid {
		d.hash = true
	}
	sc.see(e, st)
	if t := e.mode & typeMask; t != typeFile && t != typeLink {
		return false
	}
	e.flags |= flagRead
	return true
}

func (sc *scanner) noteReads(d *dir) {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	if !slices.Contains(sc.changed[max(0, len(sc.changed)-2):], d) {
		sc.changed = append(sc.changed, d)
	}
}

// relist reads a directory's names and attributes anew.
func (w *scanWorker) relist(t scanTask, fd int) error {
	names, err := w.names(fd)
	if err != nil {
		return t.root.failure("list", t.path, err)
	}
	xattr, err := fdXattrs(fd)
	if err != nil {
		return t.root.failure("read attributes of", t.path, err)
	}
	d, old := t.d, *t.d
	if xattr != d.xattr {
		d.xattr, d.outer = xattr, true
	}
	known := make(map[string]int, len(old.entries))
	for i := range old.entries {
		known[string(old.name(i))] = i
	}
	d.entries, d.names = make([]entry, 0, len(names)), make([]byte, 0, len(old.names)+64)
	d.owned, d.dirty, d.hash, d.special = true, true, true, false
	skip := t.root.skip[t.path]
	r := relisting{scanWorker: w, t: t, old: &old}
	for _, name := range names {
		if skip[name] {
			continue
		}
		at, was := known[name]
		if !was {
			at = -1
		}
		if err := r.add(fd, name, at); err != nil {
			return err
		}
	}
	d.sort()
	if r.reads {
		w.noteReads(d)
	}
	w.push(r.tasks...)
	return nil
}

// relisting is the listing of one directory while it is made.
type relisting struct {
	*scanWorker
	t     scanTask
	old   *dir
	tasks []scanTask
	reads bool
}

// add takes in one name, which was at this place of the old listing, or is
// new with -1.
func (r *relisting) add(fd int, name string, at int) error {
	d := r.t.d
	off := uint32(len(d.names))
	d.names = append(append(d.names, name...), 0)
	var st unix.Stat_t
	if err := fstatat(fd, d.names[off:], &st); err != nil {
		d.names = d.names[:off]
		if err == unix.ENOENT {
			return nil // gone in between: the directory's times say so to the next scan
		}
		return r.t.root.failure("stat", join(r.t.path, name), err)
	}
	var e entry
	unchanged := false
	if at >= 0 && r.old.entries[at].mode&typeMask == uint32(st.Mode)&typeMask {
		e = r.old.entries[at]
		unchanged = same(&e, &st) && e.flags&flagRacy == 0
	}
	isNew := e.mode == 0
	xattr := ""
	if !isNew {
		xattr = r.old.entryXattr(at)
	}
	e.nameOff, e.nameLen = off, uint16(len(name))
	if !unchanged {
		r.reads = r.update(d, &e, &st) || r.reads
	}
	d.entries = append(d.entries, e)
	i := len(d.entries) - 1
	d.setXattr(i, xattr)
	d.special = d.special || special(e.mode)
	if e.mode&typeMask == typeDir {
		r.addDir(i, isNew, unchanged)
	}
	return nil
}

// addDir queues a directory that was listed.
func (r *relisting) addDir(i int, isNew, unchanged bool) {
	d := r.t.d
	e := &d.entries[i]
	task := scanTask{root: r.t.root, path: join(r.t.path, string(d.name(i))), list: !unchanged, want: r.t.want}
	if isNew {
		task.d = r.freshDir(d)
		e.child = task.d.number
		task.want = nil
	} else {
		task.d = r.c.dirs[e.child]
	}
	if task.want != nil {
		want := task.want.names[string(d.name(i))]
		switch {
		case want == nil && unchanged:
			return
		case want == nil:
			want = &wants{}
		case want.all:
			want = nil
		}
		task.want = want
	}
	r.tasks = append(r.tasks, task)
}

// names lists the open directory.
func (w *scanWorker) names(fd int) ([]string, error) {
	if w.buf == nil {
		w.buf = make([]byte, 64<<10)
	}
	var names []string
	for {
		n, err := unix.Getdents(fd, w.buf)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return nil, err
		case n == 0:
			return names, nil
		}
		_, _, names = unix.ParseDirent(w.buf[:n], -1, names)
	}
}

// sort puts the entries into the order of tree objects.
func (d *dir) sort() {
	slices.SortFunc(d.entries, func(a, b entry) int {
		x := d.names[a.nameOff : a.nameOff+uint32(a.nameLen)]
		y := d.names[b.nameOff : b.nameOff+uint32(b.nameLen)]
		n := min(len(x), len(y))
		if c := bytes.Compare(x[:n], y[:n]); c != 0 {
			return c
		}
		return last(x, n, a.child != 0) - last(y, n, b.child != 0)
	})
}

// last returns what git compares after n equal bytes.
func last(name []byte, n int, isDir bool) int {
	switch {
	case len(name) > n:
		return int(name[n])
	case isDir:
		return '/'
	}
	return -1
}

// locate returns the root and path of a directory.
func (sc *scanner) locate(d *dir) (*scanRoot, string) {
	path := ""
	for d.parent != sc.c.top() {
		path = join(string(d.parent.name(d.parent.index(d))), path)
		d = d.parent
	}
	name := string(sc.c.top().name(sc.c.top().index(d)))
	i := slices.IndexFunc(sc.roots, func(r *scanRoot) bool { return r.Name == name })
	return sc.roots[i], strings.TrimSuffix(path, "/")
}

// leftOut lists what no state holds.
func (sc *scanner) leftOut(fn func(r *scanRoot, path string, mode uint32)) {
	for _, d := range sc.c.dirs {
		if d == nil || !d.special || !sc.reached(d) {
			continue
		}
		r, path := sc.locate(d)
		for i := range d.entries {
			if special(d.entries[i].mode) {
				fn(r, join(path, string(d.name(i))), d.entries[i].mode)
			}
		}
	}
}

// reached reports whether a directory is still a part of the tree: one whose
// parent dropped it stays in memory until the end.
func (sc *scanner) reached(d *dir) bool {
	for ; d != sc.c.top(); d = d.parent {
		if d.parent.index(d) < 0 {
			return false
		}
	}
	return true
}

// specialName says what a file that no state holds is.
func specialName(mode uint32) string {
	switch mode & typeMask {
	case unix.S_IFIFO:
		return "a FIFO is not recorded"
	case unix.S_IFSOCK:
		return "a socket is not recorded"
	}
	return "a device is not recorded"
}

// recorded reports whether a state holds an extended attribute.
func recorded(name string) bool {
	switch name {
	case "security.capability", "system.posix_acl_access", "system.posix_acl_default":
		return true
	}
	return strings.HasPrefix(name, "user.")
}

// fdXattrs returns the recorded extended attributes of an open file, encoded.
func fdXattrs(fd int) (string, error) {
	return readXattrs(
		func(b []byte) (int, error) { return unix.Flistxattr(fd, b) },
		func(name string, b []byte) (int, error) { return unix.Fgetxattr(fd, name, b) })
}

// nameXattrs is fdXattrs for a file in an open directory that is not to be
// opened itself.
func nameXattrs(dirfd int, name string) (string, error) {
	return pathXattrs(fmt.Sprintf("/proc/self/fd/%d/%s", dirfd, name))
}

// pathXattrs is fdXattrs for a path, whose end is not followed.
func pathXattrs(path string) (string, error) {
	return readXattrs(
		func(b []byte) (int, error) { return unix.Llistxattr(path, b) },
		func(attr string, b []byte) (int, error) { return unix.Lgetxattr(path, attr, b) })
}

func readXattrs(list func([]byte) (int, error), get func(string, []byte) (int, error)) (string, error) {
	names, err := readSized(list)
	if err == unix.ENOTSUP || err == nil && len(names) == 0 {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	values := map[string]string{}
	for _, name := range strings.Split(strings.TrimSuffix(string(names), "\x00"), "\x00") {
		if !recorded(name) {
			continue
		}
		value, err := readSized(func(b []byte) (int, error) { return get(name, b) })
		if err == unix.ENODATA {
			continue
		}
		if err != nil {
			return "", err
		}
		values[name] = string(value)
	}
	return encodeXattrs(values), nil
}

// readSized calls a function that first says how much there is.
func readSized(read func([]byte) (int, error)) ([]byte, error) {
	for {
		n, err := read(nil)
		if err != nil || n == 0 {
			return nil, err
		}
		b := make([]byte, n)
		n, err = read(b)
		if err == unix.ERANGE {
			continue
		}
		return b[:max(n, 0)], err
	}
}

// volatileRoots names roots on file systems that do not tell when a file that
// is mapped into memory changes.
func volatileRoots(roots []*scanRoot) []string {
	var notices []string
	for _, r := range roots {
		var st unix.Statfs_t
		if err := unix.Fstatfs(r.fd, &st); err == nil && int64(st.Type) == unix.TMPFS_MAGIC {
			notices = append(notices, fmt.Sprintf(
				"%s is on tmpfs: a change through a shared memory mapping that was open before a checkpoint can be missed", r.Name))
		}
	}
	return notices
}

// openFile opens a file of an open directory for reading, without waiting for
// anything and without following a link.
func openFile(dirfd int, name []byte) (*os.File, error) {
	for {
		fd, err := unix.Openat(dirfd, string(name), unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, err
		}
		return os.NewFile(uintptr(fd), string(name)), nil
	}
}
