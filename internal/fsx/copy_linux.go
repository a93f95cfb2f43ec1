package fsx

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/pkg/xattr"
	"golang.org/x/sys/unix"

	"github.com/cleveragents/agents/internal/failpoint"
)

// openCarefully keeps an open from following a link or waiting for a FIFO.
const openCarefully = unix.O_NOFOLLOW | unix.O_NONBLOCK

// cloneFile shares the content of in with out, if the file system can.
func cloneFile(in *os.File, out *File) (bool, error) {
	if err := failpoint.Hit("fsx.write", out.Name()); err != nil {
		return false, err
	}
	return unix.IoctlFileClone(int(out.Fd()), int(in.Fd())) == nil, nil
}

// Clone gives out all content of in by sharing it; an error other than of a
// full disk says that the file system cannot.
func Clone(out *File, in *os.File) error {
	if err := failpoint.Hit("fsx.write", out.Name()); err != nil {
		return err
	}
	return unix.IoctlFileClone(int(out.Fd()), int(in.Fd()))
}

// copyExtents copies the parts of in that hold data.
func copyExtents(in *os.File, out *File, size int64) error {
	fd := int(in.Fd())
	for at := int64(0); at < size; {
		data, err := unix.Seek(fd, at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return nil // only a hole is left
		}
		if err != nil {
			return copyRange(in, out, at, size) // a file system that tells no holes
		}
		hole, err := unix.Seek(fd, data, unix.SEEK_HOLE)
		if err != nil {
			return err
		}
		if err := copyRange(in, out, data, min(hole, size)); err != nil {
			return err
		}
		at = hole
	}
	return nil
}

// copyRange copies bytes, inside the kernel where it can.
func copyRange(in *os.File, out *File, from, to int64) error {
	if err := failpoint.Hit("fsx.write", out.Name()); err != nil {
		return err
	}
	src, dst := from, from
	for src < to {
		n, err := unix.CopyFileRange(int(in.Fd()), &src, int(out.Fd()), &dst, int(min(to-src, 1<<30)), 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n == 0 {
			return copyBytes(in, out, src, to)
		}
	}
	return nil
}

// copyBytes is for file systems between which the kernel does not copy.
func copyBytes(in *os.File, out *File, from, to int64) error {
	_, err := io.CopyBuffer(struct{ io.Writer }{io.NewOffsetWriter(out.File, from)}, io.NewSectionReader(in, from, to-from), make([]byte, 1<<20))
	return err
}

// copyOwner gives path the owner of fi, if that is another and the process may.
func copyOwner(path string, fi fs.FileInfo) error {
	want, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	now, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if have := now.Sys().(*syscall.Stat_t); have.Uid == want.Uid && have.Gid == want.Gid {
		return nil
	}
	if err := failpoint.Hit("fsx.chown", path); err != nil {
		return err
	}
	err = os.Lchown(path, int(want.Uid), int(want.Gid))
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EINVAL) { // a user namespace does not know the owner
		return nil
	}
	return err
}

// copyXattrs gives to the extended attributes of from: the user's own must
// come through, those of the system where the process may.
func copyXattrs(from, to string) error {
	names, err := xattr.LList(from)
	if noXattrs(err) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, name := range names {
		value, err := xattr.LGet(from, name)
		if errors.Is(err, xattr.ENOATTR) {
			continue
		}
		if err != nil {
			return err
		}
		if err := failpoint.Hit("fsx.setxattr", to); err != nil {
			return err
		}
		err = xattr.LSet(to, name, value)
		if err != nil && (strings.HasPrefix(name, "user.") || !noXattrs(err) && !errors.Is(err, fs.ErrPermission)) {
			return err
		}
	}
	return nil
}

func noXattrs(err error) bool {
	return errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS)
}

// Lchtimes sets the modification time of path, which it does not follow.
func Lchtimes(path string, mtime time.Time) error {
	if err := failpoint.Hit("fsx.chtimes", path); err != nil {
		return err
	}
	times := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, unix.NsecToTimespec(mtime.UnixNano())}
	return unix.UtimesNanoAt(unix.AT_FDCWD, path, times, unix.AT_SYMLINK_NOFOLLOW)
}

// syncTree makes a finished tree durable, and its name: one call for its whole
// file system, which is cheaper than one a file.
func syncTree(path string) error {
	if err := failpoint.Hit("fsx.sync", path); err != nil {
		return err
	}
	return syncFileSystem(path)
}

// syncFileSystem writes out everything of the file system that the directory
// path is on.
func syncFileSystem(path string) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Syncfs(fd)
}
