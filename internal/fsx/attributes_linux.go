package fsx

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"github.com/pkg/xattr"
	"golang.org/x/sys/unix"

	"github.com/cleveragents/agents/internal/failpoint"
)

// Lchown gives path another owner and group; a link itself, not its target.
func Lchown(path string, uid, gid int) error {
	if err := failpoint.Hit("fsx.chown", path); err != nil {
		return err
	}
	return os.Lchown(path, uid, gid)
}

// SetXattr sets one extended attribute of path, which it does not follow. What
// its owner may not write is made writable for it: the caller sets the
// permission bits afterwards.
func SetXattr(path, name string, value []byte) error {
	if err := failpoint.Hit("fsx.setxattr", path); err != nil {
		return err
	}
	return permitted(path, func() error { return xattr.LSet(path, name, value) })
}

// RemoveXattr removes one extended attribute of path, which it does not
// follow. One that is not there is no error. Like SetXattr it may leave path
// writable.
func RemoveXattr(path, name string) error {
	if err := failpoint.Hit("fsx.setxattr", path); err != nil {
		return err
	}
	return removeXattr(path, name)
}

func removeXattr(path, name string) error {
	err := permitted(path, func() error { return xattr.LRemove(path, name) })
	if errors.Is(err, xattr.ENOATTR) {
		return nil
	}
	return err
}

// permitted does something to path that needs permission to write it, which
// an owner who has given it away takes back.
func permitted(path string, do func() error) error {
	err := do()
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	fi, lerr := os.Lstat(path)
	if lerr != nil || fi.Mode()&fs.ModeSymlink != 0 || fi.Mode()&0o200 != 0 || os.Chmod(path, fi.Mode()|0o200) != nil {
		return err
	}
	return do()
}

// SyncFS makes everything durable that was written to the file system of dir:
// cheaper than Sync for each of very many new files.
func SyncFS(dir string) error {
	if err := failpoint.Hit("fsx.sync", dir); err != nil {
		return err
	}
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: dir, Err: err}
	}
	defer unix.Close(fd)
	if err := unix.Syncfs(fd); err != nil {
		return &fs.PathError{Op: "syncfs", Path: dir, Err: err}
	}
	return nil
}

// Attributes are what a directory had before it was changed.
type Attributes struct {
	UID, GID int
	Perm     fs.FileMode
	Set      map[string]string // extended attributes to set …
	Remove   []string          // … and to remove
}

// UndoAttributes gives path back what it had. It counts as the undoing of an
// effect, which a full disk does not stop, and may be repeated. What path has
// already is not set, so it succeeds where nothing could be changed before.
func UndoAttributes(path string, a Attributes) error {
	if err := failpoint.Hit("fsx.undo", path); err != nil {
		return err
	}
	fi, err := os.Lstat(path)
	if err != nil {
		return err
	}
	have, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return fmt.Errorf("attributes of %s: %w", path, errors.ErrUnsupported)
	}
	chowns := int(have.Uid) != a.UID || int(have.Gid) != a.GID
	if chowns {
		if err := os.Lchown(path, a.UID, a.GID); err != nil {
			return err
		}
	}
	for _, name := range a.Remove {
		if err := removeXattr(path, name); err != nil {
			return err
		}
	}
	for name, value := range a.Set {
		if err := permitted(path, func() error { return xattr.LSet(path, name, []byte(value)) }); err != nil {
			return err
		}
	}
	if fi, err = os.Lstat(path); err != nil {
		return err
	}
	if chowns || fi.Mode()&(fs.ModePerm|fs.ModeSetuid|fs.ModeSetgid|fs.ModeSticky) != a.Perm {
		return os.Chmod(path, a.Perm)
	}
	return nil
}
