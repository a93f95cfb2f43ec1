//go:build !linux

package fsx

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// openCarefully is nothing here; openRegular looks twice instead.
const openCarefully = 0

// cloneFile leaves the work to copyExtents.
func cloneFile(in *os.File, out *File) (bool, error) { return false, nil }

// copyExtents copies everything; holes become zeros.
func copyExtents(in *os.File, out *File, size int64) error {
	_, err := io.Copy(out, in)
	return err
}

// copyOwner leaves the owner: a copy belongs to whoever makes it.
func copyOwner(path string, fi fs.FileInfo) error { return nil }

// copyXattrs copies none here.
func copyXattrs(from, to string) error { return nil }

// copyLinkTime leaves the time of a link.
func Lchtimes(path string, mtime time.Time) error { return nil }

// syncTree makes a finished tree durable, file by file.
func syncTree(path string) error {
	return filepath.WalkDir(path, func(at string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		f, err := os.Open(at)
		if err != nil {
			return err
		}
		defer f.Close()
		return f.Sync()
	})
}

// SyncFS is not there on this system.
func SyncFS(dir string) error { return errNoMove() }
