package gitworktree

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/fsx"
)

// A journal folder of an apply holds, in the order in which they are written:
//
//	begin.json   where the move goes, between which commits, and where its stage is
//	before/      the bytes of every file that changes, as they were on the disk
//	intent.json  every path with its old and new content; nothing was touched before it
//	move/        the journal of the files' move
//	done.json    how it ended
//	undo/        the same again for taking the apply back
//
// Each file is published whole and synced.
const (
	beginFile  = "begin.json"
	intentFile = "intent.json"
	doneFile   = "done.json"
	beforeDir  = "before"
	moveDir    = "move"
	undoDir    = "undo"
)

// rawPath is a path in a journal: names that are not UTF-8 survive.
type rawPath string

// MarshalText spells the path as agents.EscapePath does.
func (p rawPath) MarshalText() ([]byte, error) { return []byte(agents.EscapePath(string(p))), nil }

// UnmarshalText reads what MarshalText wrote.
func (p *rawPath) UnmarshalText(b []byte) error {
	s, err := agents.UnescapePath(string(b))
	*p = rawPath(s)
	return err
}

// beginning is begin.json.
type beginning struct {
	Version   int     `json:"version"`
	Plan      string  `json:"plan"`
	Location  rawPath `json:"location"` // the resource
	GitDir    rawPath `json:"git_dir"`
	CommonDir rawPath `json:"common_dir"`
	Root      rawPath `json:"root"` // the work tree; "" = none is touched
	Ref       string  `json:"ref"`
	From      string  `json:"from"`
	To        string  `json:"to"`
	Stage     rawPath `json:"stage"` // on the work tree's file system
	Pin       rawPath `json:"pin"`   // our second name of index.lock, so that its inode is ours alone
	Seen      bool    `json:"seen"`  // the ref's reflog had To before; it proves nothing then
}

// pathIntent is one path of intent.json. Modes and ids are git's; an absent
// side has mode 000000.
type pathIntent struct {
	Path      rawPath    `json:"path"`
	OldMode   string     `json:"old_mode"`
	OldID     string     `json:"old_id"`
	NewMode   string     `json:"new_mode"`
	NewID     string     `json:"new_id"`
	IndexOnly bool       `json:"index_only,omitempty"`
	Outside   bool       `json:"outside_sparse,omitempty"` // a new path that the sparse checkout keeps out
	Flags     indexFlags `json:"flags"`
	OldRaw    string     `json:"old_raw,omitempty"` // id of the unfiltered bytes
	NewRaw    string     `json:"new_raw,omitempty"`
	Edits     bool       `json:"edits,omitempty"` // uncommitted edits were merged into the new bytes
	Before    *savedFile `json:"before,omitempty"`
}

// savedFile is a before-image.
type savedFile struct {
	File  string  `json:"file,omitempty"`   // its name in before/
	Link  rawPath `json:"link,omitempty"`   // of a symbolic link
	Perm  uint32  `json:"perm,omitempty"`   // permission bits
	Mtime int64   `json:"mtime,omitempty"`  // nanoseconds since 1970
	IsDir bool    `json:"is_dir,omitempty"` // an emptied directory: only Perm counts
}

// intent is intent.json.
type intent struct {
	Paths []pathIntent `json:"paths"`
	Dirs  []pathIntent `json:"dirs,omitempty"` // emptied directories that go, with their bits in Before
}

// ending is done.json.
type ending struct {
	State  agents.ApplyState `json:"state"` // applied or reverted
	Commit string            `json:"commit,omitempty"`
}

const journalVersion = 1

// putJSON publishes v as a journal file.
func putJSON(dir, name string, v any) error {
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return err
	}
	return fsx.Publish(filepath.Join(dir, name), append(b, '\n'), 0o600)
}

// getJSON reads a journal file; false = it was not written.
func getJSON(dir, name string, v any) (bool, error) {
	b, err := os.ReadFile(filepath.Join(dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return false, fmt.Errorf("journal %s: %v: %w", filepath.Join(dir, name), err, agents.ErrDamaged)
	}
	return true, nil
}

// loadBeginning reads begin.json and refuses one of a newer version.
func loadBeginning(dir string) (beginning, bool, error) {
	var b beginning
	ok, err := getJSON(dir, beginFile, &b)
	if ok && b.Version > journalVersion {
		return b, false, fmt.Errorf("journal %s: %w", dir, agents.ErrNewerData)
	}
	return b, ok, err
}
