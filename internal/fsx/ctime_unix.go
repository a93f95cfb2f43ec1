//go:build unix && !darwin

package fsx

import "syscall"

// changeTime returns the time of the last change to the inode, in nanoseconds.
func changeTime(st *syscall.Stat_t) int64 { return st.Ctim.Nano() }
