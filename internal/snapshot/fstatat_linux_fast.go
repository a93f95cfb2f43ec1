//go:build linux && (amd64 || arm64)

package snapshot

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// fstatat is fstatat(2) without following a link, for a name that a NUL
// follows in memory. It is a raw system call without an allocation: a scan
// makes one a file.
func fstatat(dirfd int, name []byte, st *unix.Stat_t) error {
	for {
		_, _, errno := unix.RawSyscall6(sysFstatat, uintptr(dirfd), uintptr(unsafe.Pointer(unsafe.SliceData(name))),
			uintptr(unsafe.Pointer(st)), unix.AT_SYMLINK_NOFOLLOW, 0, 0)
		switch errno {
		case 0:
			return nil
		case unix.EINTR:
			continue
		}
		return errno
	}
}
