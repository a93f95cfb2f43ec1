package fsx

import (
	"errors"
	"io/fs"
	"os"
	"strconv"
	"time"
)

// Kind says what lies at a path.
type Kind uint8

// The kinds. KindNone is the zero value: nothing is there.
const (
	KindNone Kind = iota
	KindFile
	KindDir
	KindSymlink
	KindOther // a FIFO, socket or device
)

// String returns the kind as messages name it.
func (k Kind) String() string {
	switch k {
	case KindNone:
		return "nothing"
	case KindFile:
		return "a file"
	case KindDir:
		return "a directory"
	case KindSymlink:
		return "a symbolic link"
	}
	return "a special file"
}

// Identity is what a caller saw at a path: enough to notice that somebody has
// changed it since. The zero value says that nothing was there. A Ctime of
// zero is not compared.
type Identity struct {
	Kind   Kind   `json:"k,omitempty"`
	Dev    uint64 `json:"d,omitempty"`
	Ino    uint64 `json:"i,omitempty"`
	Size   int64  `json:"s,omitempty"`
	Mode   uint32 `json:"m,omitempty"` // the permission, setuid, setgid and sticky bits as Unix numbers them
	Mtime  int64  `json:"t,omitempty"` // nanoseconds since 1970
	Ctime  int64  `json:"c,omitempty"` // nanoseconds since 1970
	Target []byte `json:"l,omitempty"` // of a symbolic link
}

// Identify returns the identity of what lies at path, following no link at its
// end. Nothing there is the zero Identity and no error.
func Identify(path string) (Identity, error) {
	fi, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Identity{}, nil
	}
	if err != nil {
		return Identity{}, err
	}
	id := identityOf(fi)
	if id.Kind == KindSymlink {
		target, err := os.Readlink(path)
		if err != nil {
			return Identity{}, err
		}
		id.Target = []byte(target)
	}
	return id, nil
}

// IdentifyTarget is Identify of what a path leads to.
func IdentifyTarget(path string) (Identity, error) {
	fi, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Identity{}, nil
	}
	if err != nil {
		return Identity{}, err
	}
	return identityOf(fi), nil
}

// Op is the change of one path in a Move. Exactly one of these is meant:
//
//   - Staged set: the path becomes what lies at Staged, a file or symbolic
//     link, which may be a further name of a file that stays; with Dir too, an empty directory that replaces no other directory.
//     With InPlace the bytes, permission bits and modification time of the
//     staged file go into the file that is there, which keeps its inode, and
//     so its owner, its other names, and a mount on it. Both must be readable.
//     Ops for several names of one file must agree in all three. A file with
//     capabilities, which a write takes away, is agents.ErrUnsupported.
//   - Dir: the path becomes a directory with the bits Perm; one that is there
//     already stays and only its bits and its time change. Times of directories
//     are set when all else is done.
//   - Keep: the file that is there keeps its bytes and gets the bits Perm and the
//     time Mtime.
//   - none of them: the path goes away; a directory only if the other ops
//     empty it.
type Op struct {
	Root    int         // index into the roots given to PrepareMove
	Path    string      // relative, raw bytes, "/" between components; "." only with Dir
	Before  Identity    // what the caller saw at Path; zero = nothing there
	Staged  string      // absolute path of a finished, synced thing on the same file system; the Move owns it from now on
	Dir     bool        // see above
	Keep    bool        // see above
	InPlace bool        // see above
	Perm    fs.FileMode // permission bits (with setuid, setgid and sticky) for Dir and Keep; a staged file brings its own
	Mtime   *int64      // modification time for Dir and Keep, in nanoseconds since 1970; nil = as it comes, which for Keep is as it was
}

// MoveState is how far a Move is.
type MoveState string

// The states of a Move. A process that finds one MovePrepared, which it is
// between Run and Commit, or MoveUndoing must call Undo.
const (
	MovePrepared  MoveState = "prepared"  // the intent is written; nothing, a part or everything is moved
	MoveCommitted MoveState = "committed" // everything is moved and stays; Undo can still take it back
	MoveUndoing   MoveState = "undoing"   // a committed one, of which a part is taken back
	MoveUndone    MoveState = "undone"    // everything is as before
	MoveForgotten MoveState = "forgotten" // only deleting is left; seen where Forget was killed and late writes came since
)

// unended reports whether a Move is in the middle of something.
func (s MoveState) unended() bool { return s == MovePrepared || s == MoveUndoing }

// PermissionBits turns permission bits as Go spells them, setuid, setgid and
// sticky among them, into Unix numbers.
func PermissionBits(m fs.FileMode) uint32 {
	bits := uint32(m.Perm())
	if m&fs.ModeSetuid != 0 {
		bits |= 0o4000
	}
	if m&fs.ModeSetgid != 0 {
		bits |= 0o2000
	}
	if m&fs.ModeSticky != 0 {
		bits |= 0o1000
	}
	return bits
}

// PermissionMode turns permission bits as Unix numbers them, setuid, setgid and
// sticky among them, into Go's.
func PermissionMode(bits uint32) fs.FileMode {
	m := fs.FileMode(bits & 0o777)
	if bits&0o4000 != 0 {
		m |= fs.ModeSetuid
	}
	if bits&0o2000 != 0 {
		m |= fs.ModeSetgid
	}
	if bits&0o1000 != 0 {
		m |= fs.ModeSticky
	}
	return m
}

// identityOf returns the identity that fi tells, without a link's target.
func identityOf(fi fs.FileInfo) Identity {
	id := Identity{Size: fi.Size(), Mode: PermissionBits(fi.Mode()), Mtime: fi.ModTime().UnixNano(), Kind: kindOf(fi.Mode())}
	id.Dev, id.Ino, id.Ctime = inode(fi)
	return id
}

func kindOf(m fs.FileMode) Kind {
	switch {
	case m.IsRegular():
		return KindFile
	case m.IsDir():
		return KindDir
	case m&fs.ModeSymlink != 0:
		return KindSymlink
	}
	return KindOther
}

// ModTime returns the modification time.
func (id Identity) ModTime() time.Time { return time.Unix(0, id.Mtime) }

// same reports whether other is what id says. A change of ctime alone counts
// only with strict, since renaming a file changes it too.
func (id Identity) same(other Identity, strict bool) bool {
	if id.Kind != other.Kind || id.Dev != other.Dev || id.Ino != other.Ino {
		return false
	}
	if id.Kind == KindNone {
		return true
	}
	if id.Mode != other.Mode {
		return false
	}
	if id.Kind == KindDir {
		return true // its size and times follow its entries, which have identities of their own
	}
	if id.Size != other.Size || id.Mtime != other.Mtime || string(id.Target) != string(other.Target) {
		return false
	}
	return !strict || id.Ctime == 0 || id.Ctime == other.Ctime
}

// Late is a file or directory that somebody wrote to when the Move had taken it
// from its path.
type Late struct {
	Root int    // index into the roots of the Move
	Path string // raw bytes, relative to the root
	Held string // absolute path of the file now
}

// Left is a path that somebody changed and that was therefore not put back.
type Left struct {
	Root int    // index into the roots of the Move
	Path string // raw bytes, relative to the root
	Kept string // absolute path of what was there before the Move; "" = nothing was, or it is still there
	Err  error  // what was in the way
}

// MoveError says at which path a Move failed. It wraps the cause.
type MoveError struct {
	Root int    // index into the roots of the Move
	Path string // raw bytes, relative to the root
	Do   string // what was tried, such as "replace"
	Err  error
}

func (e *MoveError) Error() string { return e.Do + " " + showPath(e.Path) + ": " + e.Err.Error() }

func (e *MoveError) Unwrap() error { return e.Err }

// showPath returns a path for a message: as it is where that is plain text,
// else quoted with escapes.
func showPath(path string) string {
	if q := strconv.Quote(path); q[1:len(q)-1] != path {
		return q
	}
	return path
}
