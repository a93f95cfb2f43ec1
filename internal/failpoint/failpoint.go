//go:build !failpoint

// Package failpoint lets tests stop the program, or fill its disk, at the n-th
// outside effect: every write, rename, link, unlink, sync, git call and SQL
// commit passes through Hit. Built without the tag failpoint, it costs nothing
// and can do nothing.
package failpoint

// Enabled says whether this build can fail on purpose.
const Enabled = false

// Hit marks the moment before an outside effect. It returns nil.
func Hit(op, detail string) error { return nil }
