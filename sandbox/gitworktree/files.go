package gitworktree

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/cleveragents/agents/internal/fsx"
)

// put makes or replaces a small file and the directories above it. It is not
// synced: for what a later step of the same call vouches for.
func put(path string, data []byte, perm fs.FileMode) error {
	if err := fsx.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := fsx.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, perm)
	if err != nil {
		return err
	}
	if len(data) > 0 {
		if _, err := f.Write(data); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	return f.Close()
}

// copyOver copies one regular file with its modification time, replacing what
// is at to. A missing source is no error and leaves to alone. The time matters
// of an index: git reads again what changed no earlier than the index did, and
// a younger copy would hide an edit of equal length within the same second.
func copyOver(from, to string) error {
	src, err := os.Open(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer src.Close()
	fi, err := src.Stat()
	if err != nil {
		return err
	}
	if err := fsx.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	dst, err := fsx.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	if _, err := dst.ReadFrom(src); err != nil {
		return errors.Join(err, dst.Close())
	}
	if err := dst.Close(); err != nil {
		return err
	}
	return fsx.Chtimes(to, fi.ModTime())
}

// exists reports whether something lies at path, a dangling link included.
func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// ensure publishes data at path unless it is there already. Something else
// than a regular file in its place is fs.ErrExist.
func ensure(path string, data []byte) error {
	fi, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case !fi.Mode().IsRegular():
		return fmt.Errorf("%s is no regular file: %w", path, fs.ErrExist)
	default:
		if got, err := os.ReadFile(path); err == nil && bytes.Equal(got, data) {
			return nil
		}
	}
	if err := fsx.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return fsx.Publish(path, data, 0o644)
}

// removeLocks removes the lock files of git below dir. Directories of objects
// are not entered: git's locks there are few and named.
func removeLocks(dir string) error {
	return filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case d.IsDir() && d.Name() == "objects":
			if err := fsx.Remove(filepath.Join(p, "maintenance.lock")); err != nil {
				return err
			}
			return fs.SkipDir
		case d.IsDir():
			return nil
		case strings.HasSuffix(d.Name(), ".lock") || d.Name() == "gc.pid":
			return fsx.Remove(p)
		}
		return nil
	})
}
