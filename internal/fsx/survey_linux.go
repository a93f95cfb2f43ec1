package fsx

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	agents "github.com/cleveragents/agents"
)

// SurveyTree looks at everything below the directory dir and opens no file. A
// path that may not be read is fs.ErrPermission; the error names the first and
// counts the rest. FIFOs, sockets, devices and other mounted file systems are
// listed as skipped, and so are directories for which skip gives a reason (nil =
// none), and whatever goes away meanwhile. Several goroutines call skip.
func SurveyTree(ctx context.Context, dir string, skip func(SurveyEntry) (why string)) (*Survey, error) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: dir, Err: err}
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, &os.PathError{Op: "stat", Path: dir, Err: err}
	}
	w := &surveyor{ctx: ctx, fd: fd, mount: mountID(fd), dev: uint64(st.Dev), root: os.Geteuid() == 0, skip: func(SurveyEntry) string { return "" }}
	if skip != nil {
		w.skip = skip
	}
	w.idle = sync.NewCond(&w.mu)
	w.found = append(w.found, surveyEntry("", &st))
	w.queue = []string{""}
	var all sync.WaitGroup
	for range min(2, runtime.GOMAXPROCS(0)) {
		all.Go(w.work)
	}
	all.Wait()
	if w.err != nil {
		return nil, w.err
	}
	if len(w.closed) > 0 {
		slices.Sort(w.closed)
		return nil, unreadable(dir, w.closed)
	}
	return surveyOf(dir, w.found, w.skipped), nil
}

// SurveyFile is SurveyTree of a single file, as if it were alone in its
// directory: the survey's Dir is that directory.
func SurveyFile(path string) (*Survey, error) {
	dir, name := splitPath(path)
	if dir == "" {
		dir = "/"
	}
	var top, st unix.Stat_t
	if err := errors.Join(unix.Stat(dir, &top), unix.Lstat(path, &st)); err != nil {
		return nil, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, fmt.Errorf("%s is %s, not a file: %w", showPath(path), identityOfStat(&st).Kind, agents.ErrInvalid)
	}
	if unix.Faccessat(unix.AT_FDCWD, path, unix.R_OK, unix.AT_EACCESS) != nil {
		return nil, unreadable(dir, []string{name})
	}
	return surveyOf(dir, []SurveyEntry{surveyEntry("", &top), surveyEntry(name, &st)}, nil), nil
}

func surveyEntry(path string, st *unix.Stat_t) SurveyEntry {
	return SurveyEntry{
		Path: path, Identity: identityOfStat(st), UID: st.Uid, GID: st.Gid,
		Links: uint64(st.Nlink), Blocks: st.Blocks * 512,
	}
}

// surveyOf sorts and sums up what was found.
func surveyOf(dir string, found []SurveyEntry, skipped []Skipped) *Survey {
	s := &Survey{Dir: dir, Entries: found, Skipped: skipped}
	slices.SortFunc(s.Entries, func(a, b SurveyEntry) int { return strings.Compare(a.Path, b.Path) })
	slices.SortFunc(s.Skipped, func(a, b Skipped) int { return strings.Compare(a.Path, b.Path) })
	linked := map[uint64]bool{}
	for i := range s.Entries {
		e := &s.Entries[i]
		if e.Kind != KindFile {
			continue
		}
		s.Files++
		if e.Links > 1 {
			if linked[e.Ino] {
				continue
			}
			linked[e.Ino] = true
		}
		s.Bytes += e.Blocks
	}
	return s
}

// surveyor walks a tree with several workers.
type surveyor struct {
	ctx   context.Context // of the one walk
	fd    int             // of the top
	mount uint64
	dev   uint64
	root  bool // nothing is closed to root
	skip  func(SurveyEntry) string

	mu      sync.Mutex
	idle    *sync.Cond
	queue   []string // directories
	working int
	found   []SurveyEntry
	skipped []Skipped
	closed  []string // what may not be read
	err     error
}

func (w *surveyor) work() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		for len(w.queue) == 0 && w.working > 0 && w.err == nil {
			w.idle.Wait()
		}
		if len(w.queue) == 0 || w.err != nil {
			w.idle.Broadcast()
			return
		}
		dir := w.queue[len(w.queue)-1]
		w.queue = w.queue[:len(w.queue)-1]
		w.working++
		w.mu.Unlock()
		found, err := w.look(dir)
		w.mu.Lock()
		w.working--
		w.take(found)
		if err != nil && w.err == nil {
			w.err = err
		}
		w.idle.Broadcast()
	}
}

// dirFound is what one directory holds.
type dirFound struct {
	entries []SurveyEntry
	dirs    []string
	skipped []Skipped
	closed  []string
}

func (w *surveyor) take(f dirFound) {
	w.found = append(w.found, f.entries...)
	w.queue = append(w.queue, f.dirs...)
	w.skipped = append(w.skipped, f.skipped...)
	w.closed = append(w.closed, f.closed...)
}

// look lists one directory.
func (w *surveyor) look(dir string) (f dirFound, err error) {
	if err := w.ctx.Err(); err != nil {
		return f, err
	}
	fd, names, err := readNames(w.fd, dir)
	if err != nil {
		return w.lost(dir, err)
	}
	defer unix.Close(fd)
	for _, name := range names {
		var st unix.Stat_t
		path := name
		if dir != "" {
			path = dir + "/" + name
		}
		if err := unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			if errors.Is(err, unix.ENOENT) {
				continue
			}
			return f, &os.PathError{Op: "stat", Path: path, Err: err}
		}
		e := surveyEntry(path, &st)
		switch e.Kind {
		case KindDir:
			if e.Dev != w.dev || w.mounted(fd, name) {
				f.skipped = append(f.skipped, Skipped{Path: path, Why: "is another mounted file system"})
				continue
			}
			if why := w.skip(e); why != "" {
				f.skipped = append(f.skipped, Skipped{Path: path, Why: why})
				continue
			}
			f.dirs = append(f.dirs, path)
		case KindSymlink:
			buf := make([]byte, unix.PathMax)
			n, err := unix.Readlinkat(fd, name, buf)
			if err != nil {
				continue // it is something else by now
			}
			e.Target = slices.Clone(buf[:n])
		case KindFile:
			if !w.root && !w.readable(&st) && unix.Faccessat(fd, name, unix.R_OK, unix.AT_EACCESS) != nil {
				f.closed = append(f.closed, path)
			}
		default:
			f.skipped = append(f.skipped, Skipped{Path: path, Why: specialWhy(st.Mode)})
			continue
		}
		f.entries = append(f.entries, e)
	}
	return f, nil
}

// lost answers for a directory that cannot be listed.
func (w *surveyor) lost(dir string, err error) (f dirFound, _ error) {
	switch {
	case errors.Is(err, unix.EACCES):
		f.closed = []string{dir}
	case absent(err) && dir != "":
		f.skipped = []Skipped{{Path: dir, Why: "went away"}}
	default:
		return f, &os.PathError{Op: "list", Path: dir, Err: err}
	}
	return f, nil
}

// mounted reports whether a directory is a mount of the same file system.
func (w *surveyor) mounted(fd int, name string) bool {
	var st unix.Statx_t
	if unix.Statx(fd, name, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_MNT_ID, &st) != nil || w.mount == 0 {
		return false
	}
	return st.Mnt_id != w.mount
}

// readable reports whether the bits alone say that this user may read.
func (w *surveyor) readable(st *unix.Stat_t) bool {
	return int(st.Uid) == os.Geteuid() && st.Mode&0o400 != 0
}

func specialWhy(mode uint32) string {
	switch mode & unix.S_IFMT {
	case unix.S_IFIFO:
		return "is a FIFO"
	case unix.S_IFSOCK:
		return "is a socket"
	}
	return "is a device"
}

// readNames opens a directory below top without following links and lists it.
func readNames(top int, dir string) (int, []string, error) {
	if dir == "" {
		dir = "."
	}
	how, err := openBelow(top, dir)
	if err != nil {
		return -1, nil, err
	}
	fd, err := unix.Openat(how, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	unix.Close(how)
	if err != nil {
		return -1, nil, err
	}
	var names []string
	buf := make([]byte, 32<<10)
	for {
		n, err := unix.Getdents(fd, buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			unix.Close(fd)
			return -1, nil, err
		}
		if n == 0 {
			return fd, names, nil
		}
		_, _, names = unix.ParseDirent(buf[:n], -1, names)
	}
}
