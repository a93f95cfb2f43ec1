//go:build linux && !amd64 && !arm64

package snapshot

import "golang.org/x/sys/unix"

// fstatat is fstatat(2) without following a link.
func fstatat(dirfd int, name []byte, st *unix.Stat_t) error {
	return unix.Fstatat(dirfd, string(name), st, unix.AT_SYMLINK_NOFOLLOW)
}
