//go:build !unix

package metastore

// mayWrite returns why path cannot be written, or nil. Here only the attempt tells.
func mayWrite(path string) error { return nil }
