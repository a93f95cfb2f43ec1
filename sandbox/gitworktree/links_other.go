//go:build !unix

package gitworktree

// hasOtherLinks takes every file for one with several names, where the system
// does not tell.
func hasOtherLinks(string) bool { return true }
