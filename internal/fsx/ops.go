// Package fsx has the file system work of the product: single operations that
// tests can make fail, atomic publishing, locks between processes, the guard
// that keeps paths inside a folder, faithful copies, and the journalled move
// that changes many files of a tree or none.
//
// Every change that the product makes to a file system goes through this
// package, so that a test can stop it at each one.
package fsx

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/cleveragents/agents/internal/failpoint"
)

// Rename is os.Rename.
func Rename(from, to string) error {
	if err := failpoint.Hit("fsx.rename", to); err != nil {
		return err
	}
	return os.Rename(from, to)
}

// Link is os.Link.
func Link(from, to string) error {
	if err := failpoint.Hit("fsx.link", to); err != nil {
		return err
	}
	return os.Link(from, to)
}

// Symlink is os.Symlink.
func Symlink(target, path string) error {
	if err := failpoint.Hit("fsx.symlink", path); err != nil {
		return err
	}
	return os.Symlink(target, path)
}

// Mkdir makes one directory with exactly these permission bits, whatever the
// umask. An existing one is fs.ErrExist.
func Mkdir(path string, perm fs.FileMode) error {
	if err := failpoint.Hit("fsx.mkdir", path); err != nil {
		return err
	}
	if err := os.Mkdir(path, perm|0o700); err != nil {
		return err
	}
	return os.Chmod(path, perm)
}

// MkdirAll is os.MkdirAll.
func MkdirAll(path string, perm fs.FileMode) error {
	if fi, err := os.Stat(path); err == nil && fi.IsDir() {
		return nil
	}
	if err := failpoint.Hit("fsx.mkdir", path); err != nil {
		return err
	}
	return os.MkdirAll(path, perm)
}

// Remove removes a file or an empty directory. One that is not there is no error.
func Remove(path string) error {
	if err := failpoint.Hit("fsx.remove", path); err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Chmod is os.Chmod; it follows links, so callers give it no link.
func Chmod(path string, perm fs.FileMode) error {
	if err := failpoint.Hit("fsx.chmod", path); err != nil {
		return err
	}
	return os.Chmod(path, perm)
}

// Chtimes sets the modification time of a file or directory, to the nanosecond.
func Chtimes(path string, mtime time.Time) error {
	if err := failpoint.Hit("fsx.chtimes", path); err != nil {
		return err
	}
	return os.Chtimes(path, time.Time{}, mtime)
}

// Create makes a new file for writing; one that is there already is
// fs.ErrExist. Writes through it pass failpoints.
func Create(path string, perm fs.FileMode) (*File, error) {
	return OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
}

// OpenFile opens a file for writing. Writes through it pass failpoints.
func OpenFile(path string, flag int, perm fs.FileMode) (*File, error) {
	if err := failpoint.Hit("fsx.open", path); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, flag, perm)
	if err != nil {
		return nil, err
	}
	return &File{f}, nil
}

// File is an open file whose effects tests can make fail.
type File struct{ *os.File }

// Write is os.File.Write.
func (f *File) Write(p []byte) (int, error) {
	if err := failpoint.Hit("fsx.write", f.Name()); err != nil {
		return 0, err
	}
	return f.File.Write(p)
}

// WriteAt is os.File.WriteAt.
func (f *File) WriteAt(p []byte, off int64) (int, error) {
	if err := failpoint.Hit("fsx.write", f.Name()); err != nil {
		return 0, err
	}
	return f.File.WriteAt(p, off)
}

// WriteString is os.File.WriteString.
func (f *File) WriteString(s string) (int, error) { return f.Write([]byte(s)) }

// ReadFrom copies r into the file, in the kernel where it can.
func (f *File) ReadFrom(r io.Reader) (int64, error) {
	if err := failpoint.Hit("fsx.write", f.Name()); err != nil {
		return 0, err
	}
	return f.File.ReadFrom(r)
}

// Sync is os.File.Sync.
func (f *File) Sync() error {
	if err := failpoint.Hit("fsx.sync", f.Name()); err != nil {
		return err
	}
	return f.File.Sync()
}

// Truncate is os.File.Truncate.
func (f *File) Truncate(size int64) error {
	if err := failpoint.Hit("fsx.truncate", f.Name()); err != nil {
		return err
	}
	return f.File.Truncate(size)
}

// SyncDir makes the names in a directory durable.
func SyncDir(path string) error {
	if err := failpoint.Hit("fsx.syncdir", path); err != nil {
		return err
	}
	return syncDir(path)
}

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	err = d.Sync()
	if cerr := d.Close(); err == nil {
		err = cerr
	}
	return err
}

// RemoveAll removes a tree, however deep. It makes directories without owner
// permission writable first, never follows a link, never crosses into another
// file system or what is mounted there, and takes a missing tree for done.
func RemoveAll(path string) error {
	path = filepath.Clean(path)
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	in, err := openLevel(os.OpenRoot(filepath.Dir(path)))
	if err != nil {
		return err
	}
	defer in.close()
	name := filepath.Base(path)
	fi, err := in.root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	dev, ok := device(fi)
	return removal{dev, ok, mountIn(in.dir, ".")}.remove(in, name, path, fi)
}

// level is a directory on the way down.
type level struct {
	root *os.Root
	dir  *os.File
}

func openLevel(root *os.Root, err error) (level, error) {
	if err != nil {
		return level{}, err
	}
	dir, err := root.Open(".")
	if err != nil {
		return level{}, errors.Join(err, root.Close())
	}
	return level{root, dir}, nil
}

func (l level) close() { _ = errors.Join(l.dir.Close(), l.root.Close()) }

// removal is where a RemoveAll stays.
type removal struct {
	dev   uint64
	known bool   // dev is
	mount uint64 // of the directory that the tree is in; 0 = not known
}

// remove removes the entry name of a directory, which path shows to people.
func (r removal) remove(in level, name, path string, fi fs.FileInfo) error {
	if fi.IsDir() {
		if err := r.empty(in, name, path, fi); err != nil {
			return err
		}
	}
	if err := failpoint.Hit("fsx.remove", path); err != nil {
		return err
	}
	if err := in.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (r removal) empty(in level, name, path string, fi fs.FileInfo) error {
	if d, _ := device(fi); r.known && d != r.dev || r.mount != mountIn(in.dir, name) {
		return &fs.PathError{Op: "remove", Path: path, Err: errors.New("is a mount point")}
	}
	if fi.Mode().Perm()&0o700 != 0o700 {
		if err := failpoint.Hit("fsx.chmod", path); err != nil {
			return err
		}
		if err := in.root.Chmod(name, fi.Mode().Perm()|0o700); err != nil {
			return err
		}
	}
	here, err := openLevel(in.root.OpenRoot(name))
	if err != nil {
		return err
	}
	defer here.close()
	names, err := here.dir.Readdirnames(-1)
	if err != nil {
		return err
	}
	for _, child := range names {
		fi, err := here.root.Lstat(child)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if err := r.remove(here, child, filepath.Join(path, child), fi); err != nil {
			return err
		}
	}
	return nil
}

// ClearDir empties a directory, the entry last last. The directory stays.
func ClearDir(dir, last string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() != last {
			if err := RemoveAll(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	if last == "" {
		return nil
	}
	return Remove(filepath.Join(dir, last))
}
