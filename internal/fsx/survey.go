package fsx

import (
	"errors"
	"fmt"
	"io/fs"

	agents "github.com/cleveragents/agents"
)

// Survey is what SurveyTree found in a directory: all that a copy of it will
// hold, and what it takes.
type Survey struct {
	Dir     string
	Entries []SurveyEntry // by path; a directory before what is in it; the first is the directory itself, with the path ""
	Files   int
	Bytes   int64 // what the files take on their disk; a hard-linked file once
	Skipped []Skipped
}

// SurveyEntry is one path of a Survey.
type SurveyEntry struct {
	Path string // raw bytes, "/" between components
	Identity
	UID, GID uint32
	Links    uint64 // names of the file
	Blocks   int64  // bytes that it takes on the disk
}

// Skipped is something that a copy left out, and why.
type Skipped struct {
	Path string // relative, raw bytes
	Why  string
}

// CopyOptions say how Survey.Copy copies.
type CopyOptions struct {
	Link     func(path, target string) string // what a link's copy leads to; nil = the same
	Progress func(files int, bytes int64)     // called now and then with what is done; nil = not
}

// CopyReport says what a copy did.
type CopyReport struct {
	Files    int
	Bytes    int64    // sizes of the files, each hard-linked file once
	Cloned   int      // files that share their bytes with the original
	Unsteady []string // files that went on changing while they were copied, by path: their copies may be torn
	Gone     []string // what was there when the directory was surveyed and was gone or another thing when it was copied
	Skipped  []Skipped
}

// unreadable is the error of a tree that may not be read whole.
func unreadable(dir string, paths []string) error {
	what := fmt.Sprintf("%s may not be read", showPath(paths[0]))
	if len(paths) > 1 {
		what = fmt.Sprintf("%s and %d other paths may not be read", showPath(paths[0]), len(paths)-1)
	}
	return agents.WithHint(fmt.Errorf("%s: %s: %w", showPath(dir), what, fs.ErrPermission), "make them readable, or move them out of the directory")
}

// needRoom is agents.ErrNoSpace when a disk has not so many bytes free.
func needRoom(path string, bytes int64, have Space) error {
	if have.Total <= 0 || bytes <= have.Free {
		return nil
	}
	return agents.WithHint(fmt.Errorf("a copy takes %d bytes and %s has %d free: %w", bytes, showPath(path), have.Free, agents.ErrNoSpace),
		"free %d bytes there", bytes-have.Free)
}

// errChanging says that a file changed while it was copied.
var errChanging = errors.New("changes while it is copied")
