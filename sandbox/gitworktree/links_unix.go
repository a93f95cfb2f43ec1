//go:build unix

package gitworktree

import (
	"os"
	"syscall"
)

// hasOtherLinks reports whether a file has more than one name.
func hasOtherLinks(path string) bool {
	fi, err := os.Lstat(path)
	if err != nil {
		return false
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	return ok && st.Nlink > 1
}
