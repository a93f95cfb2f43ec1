// Package snapshot records the raw state of directories and puts it back.
//
// A state is a commit in a bare git object store of the product's own, written
// without git: its tree holds one sub-tree a Root with the bytes that are on
// the disk (no filters, no line-end conversion, no ignore rules), and a blob
// "attributes" with what git trees cannot say. Unchanged content is shared
// between states, and with the repositories named as alternates.
package snapshot
