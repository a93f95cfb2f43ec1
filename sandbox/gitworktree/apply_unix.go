//go:build unix

package gitworktree

import "golang.org/x/sys/unix"

// writable reports whether names in a directory can be changed by us.
func writable(dir string) bool { return unix.Access(dir, unix.W_OK|unix.X_OK) == nil }
