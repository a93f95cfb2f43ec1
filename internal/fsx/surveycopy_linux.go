package fsx

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cleveragents/agents/internal/failpoint"
)

// copyTries is how often a file that changes while it is copied is copied.
const copyTries = 3

// Copy makes dst, which must not exist, a copy of what was surveyed: bytes
// (shared with the original where the file system can, holes as holes),
// permission bits, modification times, extended attributes with ACLs, owners
// where the process may set them, symbolic links as links, and hard links
// among the files. SQLite databases are copied with their logs as of one
// moment. Nothing is synced. Afterwards the survey's entries say what was
// there when each was copied; what changed after that has another identity. A
// file that changed in the tick of the clock in which it was copied has a Ctime
// that no file has.
//
// Room that will not suffice is agents.ErrNoSpace before the first byte. On
// error there is no dst.
func (s *Survey) Copy(ctx context.Context, dst string, opts CopyOptions) (CopyReport, error) {
	c := &surveyCopy{s: s, ctx: ctx, dst: dst, opts: opts, came: map[string]*SurveyEntry{}, uid: uint32(os.Geteuid()), gid: uint32(os.Getegid())}
	c.report.Skipped = slices.Clone(s.Skipped)
	c.clone.Store(true)
	if err := c.checkRoom(); err != nil {
		return CopyReport{}, err
	}
	if err := Mkdir(dst, 0o700); err != nil {
		return CopyReport{}, err
	}
	if err := c.copy(); err != nil {
		return CopyReport{}, errors.Join(fmt.Errorf("copy %s: %w", showPath(s.Dir), err), RemoveAll(dst))
	}
	return c.report, nil
}

// surveyCopy is one Copy.
type surveyCopy struct {
	s    *Survey
	ctx  context.Context // of the one call that made it
	dst  string
	opts CopyOptions

	uid, gid uint32 // what new files get
	src, to  int    // the two directories
	clone    atomic.Bool
	next     atomic.Int64
	batches  [][]int // entries that are no directories, those of one directory together
	files    atomic.Int64
	bytes    atomic.Int64

	mu     sync.Mutex
	links  map[uint64][]int        // names of one file, by inode; the first is copied
	came   map[string]*SurveyEntry // what was copied and not surveyed, by path
	report CopyReport
}

// checkRoom fails where not even a copy without shared bytes would fit and the
// file system cannot share any.
func (c *surveyCopy) checkRoom() error {
	parent := filepath.Dir(c.dst)
	have, err := SpaceOf(parent)
	if err != nil || c.s.Bytes <= have.Free || CanClone(c.s.Dir, parent) {
		return err
	}
	return needRoom(parent, c.s.Bytes, have)
}

func (c *surveyCopy) copy() (err error) {
	if c.src, err = unix.Open(c.s.Dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		return &os.PathError{Op: "open", Path: c.s.Dir, Err: err}
	}
	defer unix.Close(c.src)
	if c.to, err = unix.Open(c.dst, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0); err != nil {
		return &os.PathError{Op: "open", Path: c.dst, Err: err}
	}
	defer unix.Close(c.to)
	if err := c.makeDirs(); err != nil {
		return err
	}
	c.plan()
	if err := c.fill(); err != nil {
		return err
	}
	if err := c.link(); err != nil {
		return err
	}
	if err := c.dressDirs(); err != nil {
		return err
	}
	c.settleEntries()
	c.report.Files, c.report.Bytes = int(c.files.Load()), c.bytes.Load()
	slices.Sort(c.report.Unsteady)
	slices.Sort(c.report.Gone)
	return nil
}

// makeDirs makes all directories, open to their owner alone until the end.
func (c *surveyCopy) makeDirs() error {
	for i := range c.s.Entries {
		e := &c.s.Entries[i]
		if e.Kind != KindDir || e.Path == "" {
			continue
		}
		if err := c.ctx.Err(); err != nil {
			return err
		}
		if err := failpoint.Hit("fsx.mkdir", e.Path); err != nil {
			return err
		}
		if err := unix.Mkdirat(c.to, e.Path, 0o700); err != nil {
			return &os.PathError{Op: "mkdir", Path: e.Path, Err: err}
		}
	}
	return nil
}

// batchSize is how many files of a directory one worker takes at once.
const batchSize = 256

// plan makes the batches, and leaves out names of files that have been named.
func (c *surveyCopy) plan() {
	c.links = map[uint64][]int{}
	byDir, byPath := map[string]int{}, map[string]int{}
	for i := range c.s.Entries {
		e := &c.s.Entries[i]
		if e.Kind == KindDir {
			continue
		}
		if at, ok := byPath[databaseOf(e.Path)]; ok {
			c.batches[at] = append(c.batches[at], i) // its worker takes it with the database
			continue
		}
		if e.Kind == KindFile && e.Links > 1 {
			c.links[e.Ino] = append(c.links[e.Ino], i)
			if len(c.links[e.Ino]) > 1 {
				continue
			}
		}
		dir, _ := splitPath(e.Path)
		at, ok := byDir[dir]
		if !ok || len(c.batches[at]) >= batchSize {
			at = len(c.batches)
			byDir[dir] = at
			c.batches = append(c.batches, nil)
		}
		c.batches[at] = append(c.batches[at], i)
		byPath[e.Path] = at
	}
}

// fill copies files and links with several workers.
func (c *surveyCopy) fill() error {
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	defer c.tell()()
	n := max(2, runtime.GOMAXPROCS(0))
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			w := copyWorker{surveyCopy: c, ctx: ctx, in: -1, out: -1}
			defer w.leave()
			if errs[i] = w.work(); errs[i] != nil {
				cancel()
			}
		})
	}
	all.Wait()
	for _, err := range errs {
		if err != nil && !errors.Is(err, context.Canceled) {
			return err
		}
	}
	return errors.Join(c.ctx.Err(), errors.Join(errs...))
}

// tell reports progress until the returned function is called.
func (c *surveyCopy) tell() (end func()) {
	if c.opts.Progress == nil {
		return func() {}
	}
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				c.opts.Progress(int(c.files.Load()), c.bytes.Load())
			}
		}
	}()
	return func() { close(done); <-ended }
}

// copyWorker copies what is in one directory at a time.
type copyWorker struct {
	*surveyCopy
	ctx     context.Context
	in, out int // the directory on both sides
	buf     []byte
	logs    map[string]int  // of databases in the batch, by path
	taken   map[string]bool // those of them that were copied with their database
}

func (w *copyWorker) leave() {
	if w.in >= 0 {
		unix.Close(w.in)
		unix.Close(w.out)
		w.in, w.out = -1, -1
	}
}

func (w *copyWorker) work() error {
	w.buf = make([]byte, 256<<10)
	for {
		at := int(w.next.Add(1)) - 1
		if at >= len(w.batches) {
			return nil
		}
		if err := w.batch(w.batches[at]); err != nil {
			return err
		}
	}
}

// batch copies entries of one directory.
func (w *copyWorker) batch(entries []int) error {
	dir, _ := splitPath(w.s.Entries[entries[0]].Path)
	if dir == "" {
		dir = "."
	}
	w.leave()
	in, err := openBelow(w.src, dir)
	if absent(err) {
		w.lose(entries...)
		return nil
	}
	if err != nil {
		return &os.PathError{Op: "open", Path: dir, Err: err}
	}
	if w.out, err = openBelow(w.to, dir); err != nil {
		unix.Close(in)
		return &os.PathError{Op: "open", Path: dir, Err: err}
	}
	w.in = in
	w.logs, w.taken = deferred(w.s.Entries, entries), map[string]bool{}
	later := make([]int, 0, len(w.logs))
	for _, i := range entries {
		if _, log := w.logs[w.s.Entries[i].Path]; log {
			later = append(later, i)
			continue
		}
		if err := w.entry(i); err != nil {
			return fmt.Errorf("%s: %w", showPath(w.s.Entries[i].Path), err)
		}
	}
	for _, i := range later {
		if w.taken[w.s.Entries[i].Path] {
			continue
		}
		if err := w.entry(i); err != nil {
			return fmt.Errorf("%s: %w", showPath(w.s.Entries[i].Path), err)
		}
	}
	return nil
}

// lose notes what is not there any more.
func (c *surveyCopy) lose(entries ...int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, i := range entries {
		c.s.Entries[i].Kind = KindNone
		c.report.Gone = append(c.report.Gone, c.s.Entries[i].Path)
	}
}

// settleEntries has the survey say what was copied: without what went away,
// and with what came.
func (c *surveyCopy) settleEntries() {
	c.s.Entries = slices.DeleteFunc(c.s.Entries, func(e SurveyEntry) bool { return e.Kind == KindNone })
	for _, e := range c.came {
		if e.Kind == KindFile && !slices.ContainsFunc(c.s.Entries, func(o SurveyEntry) bool { return o.Path == e.Path }) {
			c.s.Entries = append(c.s.Entries, *e)
		}
	}
	if len(c.came) > 0 {
		slices.SortFunc(c.s.Entries, func(a, b SurveyEntry) int { return strings.Compare(a.Path, b.Path) })
	}
}

func (w *copyWorker) entry(i int) error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	e := &w.s.Entries[i]
	if e.Kind == KindSymlink {
		return w.symlink(e)
	}
	_, name := splitPath(e.Path)
	for range copyTries {
		err := w.file(i, name)
		switch {
		case err == nil:
			w.files.Add(1)
			w.bytes.Add(e.Size)
			return nil
		case errors.Is(err, errGone):
			w.lose(i)
			return nil
		case !errors.Is(err, errChanging):
			return err
		}
		if err := unix.Unlinkat(w.out, name, 0); err != nil {
			return err
		}
	}
	if err := w.unsteady(i, name); err != nil {
		return err
	}
	w.files.Add(1)
	return nil
}

// errGone says that a file went away or became another thing.
var errGone = errors.New("is gone")

// unsteady copies a file for the last time, as it comes, and flags it. Its
// identity is one that no file has.
func (w *copyWorker) unsteady(i int, name string) error {
	err := w.file(i, name)
	if errors.Is(err, errGone) {
		w.lose(i)
		return nil
	}
	if err != nil && !errors.Is(err, errChanging) {
		return err
	}
	w.s.Entries[i].Ctime = unknownCtime
	w.mu.Lock()
	defer w.mu.Unlock()
	w.report.Unsteady = append(w.report.Unsteady, w.s.Entries[i].Path)
	return nil
}

func (w *copyWorker) symlink(e *SurveyEntry) error {
	_, name := splitPath(e.Path)
	target := string(e.Target)
	if w.opts.Link != nil {
		target = w.opts.Link(e.Path, target)
	}
	if err := failpoint.Hit("fsx.symlink", e.Path); err != nil {
		return err
	}
	if err := unix.Symlinkat(target, w.out, name); err != nil {
		return err
	}
	if e.UID != w.uid || e.GID != w.gid {
		if err := allowed(unix.Fchownat(w.out, name, int(e.UID), int(e.GID), unix.AT_SYMLINK_NOFOLLOW)); err != nil {
			return err
		}
	}
	return setTime(w.out, name, e.Mtime)
}

// allowed takes the error of an owner that may not be given for none: a copy
// keeps owners where the process may.
func allowed(err error) error {
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EINVAL) {
		return nil
	}
	return err
}

func setTime(dir int, name string, mtime int64) error {
	times := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, unix.NsecToTimespec(mtime)}
	return unix.UtimesNanoAt(dir, name, times, unix.AT_SYMLINK_NOFOLLOW)
}

// file copies one file, a database with its logs.
func (w *copyWorker) file(i int, name string) error {
	in, st, err := openFileAt(w.in, name)
	if err != nil {
		return err
	}
	defer unix.Close(in)
	if isDatabase(in, st.Size) {
		return w.database(i, name, in)
	}
	return w.plainFile(&w.s.Entries[i], name, in, st)
}

// plainFile copies an open file to a new one of this name.
func (w *copyWorker) plainFile(e *SurveyEntry, name string, in int, st unix.Stat_t) error {
	*e = surveyEntry(e.Path, &st)
	now := clockTick()
	if err := failpoint.Hit("fsx.create", e.Path); err != nil {
		return err
	}
	out, err := unix.Openat(w.out, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	err = w.content(e, in, out)
	if err == nil {
		err = w.dress(e, in, out)
	}
	if cerr := unix.Close(out); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	if err := setTime(w.out, name, e.Mtime); err != nil {
		return err
	}
	var after unix.Stat_t
	if err := unix.Fstat(in, &after); err != nil {
		return err
	}
	if after.Size != st.Size || after.Mtim != st.Mtim || after.Ctim != st.Ctim {
		return errChanging
	}
	if e.Ctime >= now {
		e.Ctime = unknownCtime // another write within this tick would not show
	}
	return nil
}

// unknownCtime is one that no file has: whoever compares must read the file.
const unknownCtime = -1

// clockTick returns the time that a file would get that is changed now.
func clockTick() int64 {
	var now unix.Timespec
	if unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &now) != nil {
		return 0
	}
	return now.Nano()
}

// openFileAt opens a regular file for reading, without waiting, without
// following a link, and without a new access time where that is allowed.
func openFileAt(dir int, name string) (int, unix.Stat_t, error) {
	const flags = unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC
	var st unix.Stat_t
	fd, err := unix.Openat(dir, name, flags|unix.O_NOATIME, 0)
	if errors.Is(err, unix.EPERM) {
		fd, err = unix.Openat(dir, name, flags, 0)
	}
	switch {
	case absent(err), errors.Is(err, unix.ENXIO): // ENXIO: a socket is there now
		return -1, st, errGone
	case err != nil:
		return -1, st, err
	}
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return -1, st, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		unix.Close(fd)
		return -1, st, errGone
	}
	return fd, st, nil
}

// content gives out the bytes of in.
func (w *copyWorker) content(e *SurveyEntry, in, out int) error {
	if e.Size == 0 {
		return nil
	}
	if err := failpoint.Hit("fsx.write", e.Path); err != nil {
		return err
	}
	if w.clone.Load() {
		err := unix.IoctlFileClone(out, in)
		if err == nil {
			w.mu.Lock()
			w.report.Cloned++
			w.mu.Unlock()
			return nil
		}
		if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EXDEV) || errors.Is(err, unix.ENOTTY) {
			w.clone.Store(false) // nor will any other file be shared
		}
		if IsNoSpace(err) {
			return err
		}
	}
	if e.Blocks < e.Size {
		return w.extents(e, in, out)
	}
	return w.span(in, out, 0, e.Size)
}

// extents copies the parts that hold data, so that holes stay holes.
func (w *copyWorker) extents(e *SurveyEntry, in, out int) error {
	for at := int64(0); at < e.Size; {
		data, err := unix.Seek(in, at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			break // only a hole is left
		}
		if err != nil {
			return w.span(in, out, at, e.Size) // a file system that tells no holes
		}
		hole, err := unix.Seek(in, data, unix.SEEK_HOLE)
		if err != nil {
			return err
		}
		if err := w.span(in, out, data, min(hole, e.Size)); err != nil {
			return err
		}
		at = hole
	}
	return unix.Ftruncate(out, e.Size)
}

// inKernel is the size in bytes from which the kernel copies faster than a
// buffer of our own.
const inKernel = 1 << 20

// span copies bytes.
func (w *copyWorker) span(in, out int, from, to int64) error {
	for to-from >= inKernel {
		src, dst := from, from
		n, err := unix.CopyFileRange(in, &src, out, &dst, int(min(to-from, 64<<20)), 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if IsNoSpace(err) {
			return err
		}
		if err != nil || n == 0 {
			break
		}
		from += int64(n)
		if err := w.ctx.Err(); err != nil {
			return err
		}
	}
	for from < to {
		n, err := unix.Pread(in, w.buf[:min(to-from, int64(len(w.buf)))], from)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		if n == 0 {
			return nil // it has become shorter, which its new times tell
		}
		for b := w.buf[:n]; len(b) > 0; {
			m, err := unix.Pwrite(out, b, from)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if err != nil {
				return err
			}
			b, from = b[m:], from+int64(m)
		}
	}
	return nil
}

// dress gives out what is not content, and not time. The owner comes first,
// since changing it drops setuid bits.
func (w *copyWorker) dress(e *SurveyEntry, in, out int) error {
	if e.UID != w.uid || e.GID != w.gid {
		if err := failpoint.Hit("fsx.chown", e.Path); err != nil {
			return err
		}
		if err := allowed(unix.Fchown(out, int(e.UID), int(e.GID))); err != nil {
			return err
		}
	}
	if err := copyXattrsFD(in, out, e.Path); err != nil {
		return err
	}
	if err := failpoint.Hit("fsx.chmod", e.Path); err != nil {
		return err
	}
	return unix.Fchmod(out, e.Mode)
}

// copyXattrsFD gives the open file out the extended attributes of in: the
// user's own must come through, those of the system where the process may.
func copyXattrsFD(in, out int, path string) error {
	size, err := unix.Flistxattr(in, nil)
	if size == 0 || noXattrs(err) {
		return nil
	}
	if err != nil {
		return err
	}
	list := make([]byte, size+1024)
	if size, err = unix.Flistxattr(in, list); err != nil {
		return err
	}
	value := make([]byte, 64<<10)
	for _, name := range strings.Split(strings.TrimSuffix(string(list[:size]), "\x00"), "\x00") {
		n, err := unix.Fgetxattr(in, name, value)
		if errors.Is(err, unix.ENODATA) {
			continue
		}
		if err != nil {
			return err
		}
		if err := failpoint.Hit("fsx.setxattr", path); err != nil {
			return err
		}
		err = unix.Fsetxattr(out, name, value[:n], 0)
		if err != nil && (strings.HasPrefix(name, "user.") || !noXattrs(err) && !errors.Is(err, fs.ErrPermission)) {
			return err
		}
	}
	return nil
}

// link makes the further names of hard-linked files.
func (c *surveyCopy) link() error {
	for _, names := range c.links {
		first := c.s.Entries[names[0]]
		for _, i := range names[1:] {
			if first.Kind == KindNone {
				c.lose(i)
				continue
			}
			e := &c.s.Entries[i]
			if err := failpoint.Hit("fsx.link", e.Path); err != nil {
				return err
			}
			if err := unix.Linkat(c.to, first.Path, c.to, e.Path, 0); err != nil {
				return &os.LinkError{Op: "link", Old: first.Path, New: e.Path, Err: err}
			}
			e.Identity, e.Blocks = first.Identity, first.Blocks
		}
	}
	return nil
}

// dressDirs gives the directories owners, attributes, bits and times, the
// deepest first.
func (c *surveyCopy) dressDirs() error {
	for i := range slices.Backward(c.s.Entries) {
		e := &c.s.Entries[i]
		if e.Kind != KindDir {
			continue
		}
		if err := c.dressDir(e); err != nil {
			return fmt.Errorf("%s: %w", showPath(e.Path), err)
		}
	}
	return nil
}

func (c *surveyCopy) dressDir(e *SurveyEntry) error {
	rel := e.Path
	if rel == "" {
		rel = "."
	}
	to, err := unix.Openat(c.to, rel, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(to)
	if e.UID != c.uid || e.GID != c.gid {
		if err := allowed(unix.Fchown(to, int(e.UID), int(e.GID))); err != nil {
			return err
		}
	}
	if from, err := unix.Openat(c.src, rel, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0); err == nil {
		err = copyXattrsFD(from, to, e.Path)
		unix.Close(from)
		if err != nil {
			return err
		}
	}
	if err := failpoint.Hit("fsx.chmod", e.Path); err != nil {
		return err
	}
	if err := unix.Fchmod(to, e.Mode); err != nil {
		return err
	}
	times := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, unix.NsecToTimespec(e.Mtime)}
	if rel == "." {
		return unix.UtimesNanoAt(unix.AT_FDCWD, c.dst, times, unix.AT_SYMLINK_NOFOLLOW)
	}
	return unix.UtimesNanoAt(c.to, rel, times, unix.AT_SYMLINK_NOFOLLOW)
}

// CanClone reports whether a file of the directory from can share its bytes
// with one in the directory to: whether both are on one file system that can.
// It tries, with files that never have a name.
func CanClone(from, to string) bool {
	var a, b unix.Stat_t
	if unix.Stat(from, &a) != nil || unix.Stat(to, &b) != nil || a.Dev != b.Dev {
		return false
	}
	var fds [2]int
	for i := range fds {
		fd, err := unix.Open(to, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
		if err != nil {
			return false
		}
		defer unix.Close(fd)
		fds[i] = fd
	}
	if _, err := unix.Pwrite(fds[0], []byte("x"), 0); err != nil {
		return false
	}
	return unix.IoctlFileClone(fds[1], fds[0]) == nil
}
