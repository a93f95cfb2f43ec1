//go:build !linux

package fsx

// MountsBelow is not known here.
func MountsBelow(dir string) ([]string, error) { return nil, nil }

// mountAt is not known here.
func mountAt(path string) uint64 { return 0 }
