//go:build unix

package fsx

import (
	"io/fs"
	"syscall"
)

// device returns the number of the file system that fi is on.
func device(fi fs.FileInfo) (uint64, bool) {
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return uint64(st.Dev), true
}

// inode returns fi's file system, inode number and change time in nanoseconds.
func inode(fi fs.FileInfo) (dev, ino uint64, ctime int64) {
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0, 0
	}
	return uint64(st.Dev), st.Ino, changeTime(st)
}
