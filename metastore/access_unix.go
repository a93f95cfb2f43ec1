//go:build unix

package metastore

import (
	"io/fs"

	"golang.org/x/sys/unix"
)

// mayWrite returns why path cannot be written, or nil. It asks without opening
// the file: closing it again would drop the locks that this process holds.
func mayWrite(path string) error {
	if err := unix.Access(path, unix.W_OK); err != nil {
		return &fs.PathError{Op: "write", Path: path, Err: err}
	}
	return nil
}
