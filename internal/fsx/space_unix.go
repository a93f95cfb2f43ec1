//go:build linux || darwin

package fsx

import (
	"errors"
	"math"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// SpaceOf returns the room on the file system that path is on.
func SpaceOf(path string) (Space, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return Space{}, &os.PathError{Op: "statfs", Path: path, Err: err}
	}
	return Space{Free: bytesOf(st.Bavail, uint64(st.Bsize)), Total: bytesOf(st.Blocks, uint64(st.Bsize))}, nil
}

func bytesOf(blocks, size uint64) int64 {
	if size != 0 && blocks > math.MaxInt64/size {
		return math.MaxInt64
	}
	return int64(blocks * size)
}

func isDiskFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// notDirectory reports that something above a path is no directory.
func notDirectory(err error) bool { return errors.Is(err, syscall.ENOTDIR) }

// giveOwner gives f the owner of old, if that is another and the process may.
func giveOwner(f *os.File, old os.FileInfo) {
	want, ok := old.Sys().(*syscall.Stat_t)
	if !ok || int(want.Uid) == os.Geteuid() && int(want.Gid) == os.Getegid() {
		return
	}
	_ = f.Chown(int(want.Uid), int(want.Gid)) // a user may not give files away: the content matters more
}
