//go:build linux

package fsx

// WithoutRenameFlags makes m work as on a file system that knows only plain
// renames.
func WithoutRenameFlags(m *Move) { m.plain = true }
