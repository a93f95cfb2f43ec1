package fsx

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	agents "github.com/cleveragents/agents"
)

// journalVersion is the format of journals. A newer one is not read; those of
// the first format had no times and no writing in place.
const journalVersion = 2

// journal is the intent of a Move, written before its first step and never
// changed: its file name says the state.
type journal struct {
	Version int          `json:"version"`
	Roots   []rootRecord `json:"roots"`
	Hold    string       `json:"hold"` // the Move's own folder in the caller's hold folder
	Steps   []moveStep   `json:"steps"`
	Dirs    []moveDir    `json:"dirs"` // parents before their children
}

// rootRecord is a root and the inode that it must still be.
type rootRecord struct {
	Path []byte `json:"path"`
	Ino  uint64 `json:"ino"`
}

// verb is what a step does to its path.
type verb string

const (
	verbTake  verb = "remove"           // what is there (no directory) goes into the hold
	verbRmdir verb = "remove directory" // an empty directory goes into the hold
	verbMkdir verb = "make directory"   // a finished directory comes to a free path
	verbNew   verb = "create"           // a staged thing comes to a free path
	verbSwap  verb = "replace"          // a staged thing is exchanged with what is there (no directory)
	verbMode  verb = "change mode of"   // a file gets other permission bits or another time
	verbWrite verb = "write"            // the bytes of a staged file go into the file that is there
)

// moveStep is one change of one path.
type moveStep struct {
	Do     verb     `json:"do"`
	Root   int      `json:"r,omitempty"`
	Path   []byte   `json:"p"`
	Before Identity `json:"b,omitzero"`
	After  Identity `json:"a,omitzero"`
	From   []byte   `json:"f,omitempty"` // where the new thing waits: absolute
	Slot   string   `json:"s,omitempty"` // name in the hold for what leaves the path, forwards or backwards; of verbWrite, for a copy of the old bytes
	Staged uint64   `json:"n,omitempty"` // of verbWrite: the inode at From
	Old    []byte   `json:"o,omitempty"` // of verbWrite: the hash of the old content …
	New    []byte   `json:"w,omitempty"` // … and of the new one
}

// isAfter reports whether id is what the step put there, whatever its ctime
// and whatever number its file system has after a reboot.
func (s *moveStep) isAfter(id Identity) bool {
	id.Dev = s.After.Dev
	if id.Kind == KindDir && s.After.Kind == KindDir {
		return id.Ino == s.After.Ino // its bits were set last
	}
	return s.After.same(id, false)
}

// isBefore reports whether id is what was there before the step.
func (s *moveStep) isBefore(id Identity) bool {
	id.Dev = s.Before.Dev
	return s.Before.same(id, false)
}

// fail says at which path err happened.
func (s *moveStep) fail(err error) error {
	return &MoveError{Root: s.Root, Path: string(s.Path), Do: string(s.Do), Err: err}
}

// moveDir is a directory in which names change, or whose bits do.
type moveDir struct {
	Root  int    `json:"r,omitempty"`
	Path  []byte `json:"p,omitempty"` // empty = the root itself
	Ino   uint64 `json:"i"`
	Mode  uint32 `json:"m"`           // before
	Mtime int64  `json:"t,omitempty"` // before, in nanoseconds
	Made  bool   `json:"n,omitempty"` // by this Move
	Gone  bool   `json:"g,omitempty"` // removed by this Move
	Work  bool   `json:"w,omitempty"` // names in it change: it must be writable for the time
	Sets  bool   `json:"x,omitempty"` // gets the bits Final
	Final uint32 `json:"e,omitempty"`
	Time  *int64 `json:"u,omitempty"` // gets this modification time; nil = as it comes
}

// write publishes the journal as prepared.
func (j *journal) write(dir string) error {
	j.Version = journalVersion
	body, err := json.Marshal(j)
	if err != nil {
		return fmt.Errorf("write move journal: %w", err)
	}
	sum := sha256.Sum256(body)
	data := append([]byte(hex.EncodeToString(sum[:])+"\n"), body...)
	if err := Publish(filepath.Join(dir, journalName(MovePrepared)), data, 0o600); err != nil {
		return fmt.Errorf("write move journal: %w", err)
	}
	return nil
}

func readJournal(path string) (journal, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return journal{}, err
	}
	want, body, _ := bytes.Cut(data, []byte("\n"))
	sum := sha256.Sum256(body)
	if hex.EncodeToString(sum[:]) != string(want) {
		return journal{}, fmt.Errorf("move journal %s: checksum does not fit: %w", path, agents.ErrDamaged)
	}
	var j journal
	if err := json.Unmarshal(body, &j); err != nil {
		return journal{}, fmt.Errorf("move journal %s: %w: %w", path, err, agents.ErrDamaged)
	}
	if j.Version < 1 || j.Version > journalVersion {
		return journal{}, fmt.Errorf("move journal %s: format %d: %w", path, j.Version, agents.ErrNewerData)
	}
	return j, nil
}

// findJournal returns the path of the journal in dir and the state that its
// name says; "" when there is none.
func findJournal(dir string) (string, MoveState, error) {
	for _, state := range []MoveState{MovePrepared, MoveCommitted, MoveUndoing, MoveUndone, MoveForgotten} {
		path := filepath.Join(dir, journalName(state))
		_, err := os.Lstat(path)
		if err == nil {
			return path, state, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", "", err
		}
	}
	return "", "", nil
}

func journalName(state MoveState) string { return "move-" + string(state) }
