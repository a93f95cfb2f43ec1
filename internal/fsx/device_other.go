//go:build !unix

package fsx

import "io/fs"

// device is not known on this system.
func device(fi fs.FileInfo) (uint64, bool) { return 0, false }
