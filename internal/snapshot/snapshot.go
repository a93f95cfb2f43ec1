// Package snapshot records the raw state of directories and puts it back.
//
// A state is a commit in a bare git object store of the product's own, written
// without git: its tree holds one sub-tree a Root with the bytes that are on
// the disk (no filters, no line-end conversion, no ignore rules), and a tree
// "attributes" with what git trees cannot say. Unchanged content is shared
// between states, and with the repositories named as alternates.
//
// A Store keeps states; a Tracker knows a set of directories and makes states
// of them, cheaply when little has changed, and restores them. The package
// knows nothing of plans, checkpoints or branches: names, order and retention
// of states are the caller's.
//
// What a state holds: every regular file with its bytes, symbolic links as
// links, directories (empty ones too, and nested ".git" directories as plain
// ones), all permission bits, owner and group, and the extended attributes
// user.*, security.capability and POSIX ACLs. Of a Root that is Exact it also
// holds modification times, which files of the root are one file under several
// names, and which have holes. What it does not hold: other times; and FIFOs,
// sockets and devices, which Captured.LeftOut names and a restore leaves alone.
package snapshot

import (
	"context"
	"io"
	"io/fs"
	"time"

	agents "github.com/cleveragents/agents"
)

// Root is one directory of a state.
type Root struct {
	Name string   // the sub-tree's name, such as "files" or "git"; one plain path component, not "attributes"
	Dir  string   // the directory; an absolute path without a symbolic link as its last component
	Skip []string // slash paths below Dir that are neither recorded nor touched, with all below them

	Exact bool // record modification times, hard links among the files, and that a file has holes
}

// Path names a file or directory of a state: raw bytes, "/" between
// components, relative to the root's directory; "" is that directory itself.
type Path struct {
	Root string
	Path string
}

// Options say how a Store is made and read.
type Options struct {
	Below      string       // the folder of another store, made when missing, whose objects count as this one's, since nothing is ever collected there; recorded, so that "" is what it was
	Clones     bool         // keep contents of files as clones, where the file system can
	Format     string       // the objects' hash: "sha1" (also when empty) or "sha256"; an existing store must fit
	Alternates []string     // object directories that are read and never written; recorded in objects/info/alternates
	Reader     ObjectReader // reads the objects that lie in an alternate only; nil = there are none
}

// An ObjectReader reads objects that are not in the store's own packs. A
// Store calls it from one goroutine at a time and never closes it.
type ObjectReader interface {
	// StatObjects returns what is known of each of ids, which are
	// hexadecimal; a missing object has the Kind "".
	StatObjects(ctx context.Context, ids []string) ([]ObjectInfo, error)
	// CopyObject writes the object's content to w. One that is missing is
	// agents.ErrNotFound.
	CopyObject(ctx context.Context, id string, w io.Writer) (ObjectInfo, error)
}

// ObjectInfo is what an object is.
type ObjectInfo struct {
	Kind string // blob, tree, commit or tag
	Size int64  // bytes
}

// Entry is what a state says about one path. The zero Entry says that the
// path is not there.
type Entry struct {
	Mode  fs.FileMode       // type, permission bits, setuid, setgid, sticky
	ID    string            // the object that holds the content, link target or listing; hexadecimal
	UID   uint32            // owner
	GID   uint32            // group
	Xattr map[string]string // recorded extended attributes; nil = none

	// Of an exact root alone.
	Mtime  int64  // nanoseconds since 1970
	Link   string // the same for all names of one file; "" = it has no other in the root
	Sparse bool   // the file has holes
}

// Exists reports whether the path is there.
func (e Entry) Exists() bool { return e.ID != "" }

// Change is a path that differs between two states. Directories are paths of
// their own: one is listed when it came, went or changed its attributes, not
// when something below it did.
type Change struct {
	Root string
	Path string
	Old  Entry // the zero Entry: the path came
	New  Entry // the zero Entry: the path went
}

// CaptureOptions say what to record.
type CaptureOptions struct {
	Paths  []Path    // nil = look at everything; else the only paths that can have changed since the last Capture or Restore
	Parent string    // the commit that becomes the new commit's parent, hexadecimal; "" = none
	Label  string    // the commit's message: one line for people
	When   time.Time // the commit's time; zero = now
}

// Captured is a recorded state.
type Captured struct {
	Ref        string              // the commit's id, hexadecimal; the last one again when nothing has changed since
	TreeID     string              // the commit's tree: equal for equal states
	Changed    bool                // the state differs from the last one that this tracker captured or restored
	BytesAdded int64               // bytes of the files that were added to the store
	FilesRead  int                 // files whose content was read
	BytesRead  int64               // bytes read of them
	LeftOut    []agents.PathReason // Resource is the root's name; what the state does not hold and a restore leaves alone, sorted
	Notices    []string            // a sentence each: what the file system cannot guarantee
}

// RestoreOptions say how to restore.
type RestoreOptions struct {
	Stage   string // a folder on the roots' file system for new contents; made on demand, removed at the end
	Journal string // the file or folder of the move's intent, for Recover; gone at the end
	DryRun  bool   // list what would change and touch nothing
	Parent  string // of the commit that records the present state first; as in CaptureOptions
	When    time.Time
}

// Restored is what a restore did, or with DryRun would do.
type Restored struct {
	Changes []agents.RestoredPath // Resource is the root's name; each path whose bytes, mode or existence changed, sorted
	Before  string                // the commit that holds the state from before; "" where the store had no room for it
	LeftOut []agents.PathReason   // what was left alone because no state holds it
}

// Seeded is a path whose content is known to be stored in an alternate and
// reachable from the commit that the caller keeps alive.
type Seeded struct {
	Path string
	Mode uint32 // git's: 0o100644, 0o100755, 0o120000, or 0o040000 for a tree
	ID   string // hexadecimal
}
