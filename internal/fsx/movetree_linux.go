package fsx

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/failpoint"
)

// tree is an open directory below which paths are found component by
// component, following no symbolic link.
type tree struct {
	path string
	fd   int
	last string // the directory that lastFD is, to open it once for all its entries
	cur  int    // -1 = none
}

func openTree(dir string) (*tree, error) {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: dir, Err: err}
	}
	return &tree{path: dir, fd: fd, cur: -1}, nil
}

func (t *tree) close() {
	t.forget()
	unix.Close(t.fd)
}

// forget closes the remembered directory.
func (t *tree) forget() {
	if t.cur >= 0 {
		unix.Close(t.cur)
		t.cur = -1
	}
}

// dir returns a handle on the directory rel, "" being the tree itself. It is
// good for names in it until the next call.
func (t *tree) dir(rel string) (int, error) {
	if rel == "" {
		return t.fd, nil
	}
	if t.cur >= 0 && t.last == rel {
		return t.cur, nil
	}
	t.forget()
	fd, err := openBelow(t.fd, rel)
	if err != nil {
		return -1, err
	}
	t.last, t.cur = rel, fd
	return fd, nil
}

// openBelow opens the directory rel below fd without following links.
func openBelow(fd int, rel string) (int, error) {
	const flags = unix.O_PATH | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	how := unix.OpenHow{Flags: flags, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS}
	got, err := unix.Openat2(fd, rel, &how)
	switch {
	case err == nil:
		return got, nil
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP), errors.Is(err, unix.EACCES):
		return -1, err
	}
	// An old kernel, a filter of system calls, or a path longer than one call takes.
	at := fd
	for _, name := range strings.Split(rel, "/") {
		next, err := unix.Openat(at, name, flags, 0)
		if at != fd {
			unix.Close(at)
		}
		if err != nil {
			return -1, err
		}
		at = next
	}
	return at, nil
}

// here is dir for a directory that was just seen; -1 when it is gone.
func (t *tree) here(rel string) int {
	fd, err := t.dir(rel)
	if err != nil {
		return -1
	}
	return fd
}

// parent returns a handle on the directory of rel, and rel's last component.
func (t *tree) parent(rel string) (int, string, error) {
	dir, name := splitPath(rel)
	fd, err := t.dir(dir)
	return fd, name, err
}

// identify returns what lies at rel. A missing parent, or one that is no
// directory or a link, is an error.
func (t *tree) identify(rel string) (id Identity, links uint64, err error) {
	fd, name, err := t.parent(rel)
	if err != nil {
		return Identity{}, 0, err
	}
	return identifyAt(fd, name)
}

// absent takes the error of a path that cannot exist for "nothing there".
func absent(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP)
}

func identifyAt(fd int, name string) (Identity, uint64, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		if errors.Is(err, unix.ENOENT) {
			return Identity{}, 0, nil
		}
		return Identity{}, 0, err
	}
	id := identityOfStat(&st)
	if id.Kind == KindSymlink {
		buf := make([]byte, unix.PathMax)
		n, err := unix.Readlinkat(fd, name, buf)
		if err != nil {
			return Identity{}, 0, err
		}
		id.Target = buf[:n:n]
	}
	return id, uint64(st.Nlink), nil
}

func identityOfStat(st *unix.Stat_t) Identity {
	id := Identity{
		Dev: uint64(st.Dev), Ino: st.Ino, Size: st.Size, Mode: uint32(st.Mode) & 0o7777,
		Mtime: st.Mtim.Nano(), Ctime: st.Ctim.Nano(),
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		id.Kind = KindFile
	case unix.S_IFDIR:
		id.Kind = KindDir
	case unix.S_IFLNK:
		id.Kind = KindSymlink
	default:
		id.Kind = KindOther
	}
	return id
}

// names lists the entries of directory rel.
func (t *tree) names(rel string) ([]string, error) {
	fd, err := t.dir(rel)
	if err != nil {
		return nil, err
	}
	readable, err := unix.Openat(fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	d := os.NewFile(uintptr(readable), path.Join(t.path, rel))
	defer d.Close()
	return d.Readdirnames(-1)
}

// accessible reports whether names in directory rel can be read and changed.
func (t *tree) accessible(rel string) bool {
	fd, err := t.dir(rel)
	if err != nil {
		return false
	}
	return unix.Faccessat(fd, ".", unix.R_OK|unix.W_OK|unix.X_OK, unix.AT_EACCESS) == nil
}

// identifyDir returns the identity of directory rel itself.
func (t *tree) identifyDir(rel string) (Identity, error) {
	fd, err := t.dir(rel)
	if err != nil {
		return Identity{}, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return Identity{}, err
	}
	return identityOfStat(&st), nil
}

// settle gives directory rel these bits and, unless it is nil, this
// modification time, and makes them and its names durable, or leaves that to
// syncRoots. The time of a directory that is another user's stays as it comes.
// A directory that may not be read cannot be synced by itself; its file
// system's journal has it.
func (t *tree) settle(m *Move, rel string, mode uint32, mtime *int64) error {
	fd, err := t.dir(rel)
	if err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	readable, err := unix.Openat(fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil && !errors.Is(err, unix.EACCES) {
		return err
	}
	defer unix.Close(readable)
	have := identityOfStat(&st)
	if have.Mode != mode {
		if err := t.chmodDir(m, rel, mode); err != nil {
			return err
		}
	}
	if mtime != nil && have.Mtime != *mtime {
		if err := m.chtimesFD(fd, *mtime, path.Join(t.path, rel)); err != nil && !errors.Is(err, unix.EPERM) {
			return err
		}
	}
	if m.bulk || readable < 0 {
		return nil
	}
	if err := m.hit("fsx.syncdir", path.Join(t.path, rel)); err != nil {
		return err
	}
	return unix.Fsync(readable)
}

// isBulk reports whether syncing the whole file system once costs less than
// syncing each directory and each file with other bits or another time.
func (j *journal) isBulk() bool {
	n := len(j.Dirs)
	for i := range j.Steps {
		if j.Steps[i].Do == verbMode {
			n++
		}
	}
	return n > 100
}

// syncRoots syncs the file system of each root, if what changed was not synced
// one by one.
func (m *Move) syncRoots() error {
	if !m.bulk {
		return nil
	}
	for _, t := range m.roots {
		if err := m.hit("fsx.sync", t.path); err != nil {
			return err
		}
		if err := syncFileSystem(t.path); err != nil {
			return err
		}
	}
	return nil
}

// sync makes the names in the tree's own directory durable.
func (t *tree) sync(m *Move) error {
	if err := m.hit("fsx.syncdir", t.path); err != nil {
		return err
	}
	return syncDir(t.path)
}

// chmodDir sets the bits of directory rel.
func (t *tree) chmodDir(m *Move, rel string, mode uint32) error {
	fd, err := t.dir(rel)
	if err != nil {
		return err
	}
	if err := m.hit("fsx.chmod", path.Join(t.path, rel)); err != nil {
		return err
	}
	return chmodFD(fd, mode)
}

// chtimesFD sets the modification time of what an O_PATH handle stands for.
func (m *Move) chtimesFD(fd int, mtime int64, what string) error {
	if err := m.hit("fsx.chtimes", what); err != nil {
		return err
	}
	times := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, unix.NsecToTimespec(mtime)}
	err := unix.UtimesNanoAt(fd, "", times, unix.AT_EMPTY_PATH)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) { // before Linux 5.8
		return unix.UtimesNanoAt(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), times, 0)
	}
	return err
}

// chmodFD sets the bits of what an O_PATH handle stands for.
func chmodFD(fd int, mode uint32) error {
	err := unix.Fchmodat(fd, "", mode, unix.AT_EMPTY_PATH)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		return unix.Chmod(fmt.Sprintf("/proc/self/fd/%d", fd), mode)
	}
	return err
}

// moveInto renames a name to one that is free in another directory. Where the
// file system has no such rename, it looks first.
func (m *Move) moveInto(fromFD int, from string, toFD int, to string, what string) error {
	if err := m.hit("fsx.rename", what); err != nil {
		return err
	}
	err := m.rename2(fromFD, from, toFD, to, unix.RENAME_NOREPLACE)
	if !noFlags(err) {
		return err
	}
	if id, _, err := identifyAt(toFD, to); err != nil || id.Kind != KindNone {
		return errors.Join(err, unix.EEXIST)
	}
	return unix.Renameat(fromFD, from, toFD, to)
}

// exchange makes two existing names trade what they stand for.
func (m *Move) exchange(aFD int, a string, bFD int, b string, what string) error {
	if err := m.hit("fsx.exchange", what); err != nil {
		return err
	}
	return m.rename2(aFD, a, bFD, b, unix.RENAME_EXCHANGE)
}

func (m *Move) rename2(aFD int, a string, bFD int, b string, flag uint) error {
	if m.plain {
		return unix.EINVAL
	}
	return unix.Renameat2(aFD, a, bFD, b, flag)
}

// noFlags reports whether a file system knows only plain renames.
func noFlags(err error) bool {
	return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EOPNOTSUPP)
}

// hit marks an effect; taking back has a name of its own, since a full disk
// hinders it as little as it hinders deleting.
func (m *Move) hit(op, detail string) error {
	if m.undoing {
		op = "fsx.undo"
	}
	return failpoint.Hit(op, detail)
}

// openHold makes the Move's own folder in the caller's hold folder.
func (m *Move) openHold(hold string) error {
	hold, err := filepath.Abs(hold)
	if err != nil {
		return err
	}
	if err := MkdirAll(hold, 0o700); err != nil {
		return err
	}
	if err := m.hit("fsx.mkdir", hold); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(hold, "move-")
	if err != nil {
		return err
	}
	m.j.Hold = dir
	m.hold, err = openTree(dir)
	return err
}

// addRoot opens a root and refuses one on another file system than the hold.
func (m *Move) addRoot(root string) error {
	root, err := filepath.Abs(root)
	if err != nil {
		return err
	}
	t, err := openTree(root)
	if err != nil {
		return err
	}
	m.roots = append(m.roots, t)
	id, err := t.identifyDir("")
	if err != nil {
		return err
	}
	held, err := m.hold.identifyDir("")
	if err != nil {
		return err
	}
	if id.Dev != held.Dev || mountID(t.fd) != mountID(m.hold.fd) {
		return fmt.Errorf("%s and %s are on different file systems: %w", m.hold.path, root, agents.ErrUnsupported)
	}
	m.j.Roots = append(m.j.Roots, rootRecord{Path: []byte(root), Ino: id.Ino})
	return nil
}

// mountID tells mounts of one file system apart, between which nothing can be
// renamed; 0 where the kernel does not say.
func mountID(fd int) uint64 {
	var st unix.Statx_t
	if unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_MNT_ID, &st) != nil {
		return 0
	}
	return st.Mnt_id
}

// openTrees opens the roots and the hold, if they still are what they were.
func (m *Move) openTrees() error {
	m.closeTrees()
	m.bulk = m.j.isBulk()
	for _, r := range m.j.Roots {
		t, err := openTree(string(r.Path))
		if absent(err) {
			err = fmt.Errorf("%s is gone: %w", r.Path, agents.ErrConflict)
		}
		if err != nil {
			m.closeTrees()
			return err
		}
		m.roots = append(m.roots, t)
		if id, err := t.identifyDir(""); err != nil || id.Ino != r.Ino {
			m.closeTrees()
			return errors.Join(err, fmt.Errorf("%s is another directory than the one the move began in: %w", r.Path, agents.ErrConflict))
		}
	}
	var err error
	if m.hold, err = openTree(m.j.Hold); err != nil {
		m.closeTrees()
	}
	return err
}

func (m *Move) closeTrees() {
	for _, t := range m.roots {
		t.close()
	}
	m.roots = nil
	if m.hold != nil {
		m.hold.close()
		m.hold = nil
	}
}

// splitPath returns the directory of rel ("" = the root) and its last component.
func splitPath(rel string) (dir, name string) {
	if i := strings.LastIndexByte(rel, '/'); i >= 0 {
		return rel[:i], rel[i+1:]
	}
	return "", rel
}
