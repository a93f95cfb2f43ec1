//go:build !unix

package fsx

import "io/fs"

// device is not known on this system.
func device(fi fs.FileInfo) (uint64, bool) { return 0, false }

// inode is not known on this system.
func inode(fi fs.FileInfo) (dev, ino uint64, ctime int64) { return 0, 0, 0 }
