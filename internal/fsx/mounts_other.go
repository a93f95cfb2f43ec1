//go:build !linux

package fsx

import "os"

// MountsBelow is not known here.
func MountsBelow(dir string) ([]string, error) { return nil, nil }

// mountIn is not known here.
func mountIn(dir *os.File, name string) uint64 { return 0 }
