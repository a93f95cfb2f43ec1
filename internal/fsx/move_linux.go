package fsx

import (
	"context"
	"fmt"

	agents "github.com/cleveragents/agents"
)

// Move is a change of many paths, all or none, with a journal that lets a
// later process take back what a killed one began. One goroutine at a time
// may use it.
type Move struct{}

// PrepareMove checks ops against what is on the disk and writes the intent
// into journalDir, durably, before anything of the roots is touched. A path
// that is not what its Before says is agents.ErrConflict; a hold folder (made
// if missing) or staged file on another file system than the roots is
// agents.ErrUnsupported; a journalDir that has a Move already is
// agents.ErrExists. Paths of ops are never resolved through symbolic links.
func PrepareMove(journalDir string, roots []string, hold string, ops []Op) (*Move, error) {
	return nil, errMoveUnfinished()
}

// LoadMove returns the Move whose journal is in journalDir, or fs.ErrNotExist
// when there is none: an intent that was not written to its end counts as
// never begun. A journal that fails its checksum is agents.ErrDamaged.
func LoadMove(journalDir string) (*Move, error) { return nil, errMoveUnfinished() }

// State says how far the Move is.
func (m *Move) State() MoveState { return MovePrepared }

// Run moves everything and makes it durable. On any failure, or when ctx ends,
// it takes back what it did and returns the first error: agents.ErrConflict
// naming the path when a path is not what its Before says. The Move stays
// MovePrepared until Commit.
func (m *Move) Run(ctx context.Context) error { return errMoveUnfinished() }

// Undo puts everything back as it was before Run, with the same inodes, modes
// and directory times, and makes that durable. It works from any state and
// after a kill at any moment of Run or Undo, as often as wanted. Paths that
// somebody else changed since are left as they are; the error then is
// agents.ErrConflict, names them, and the Move is not MoveUndone.
func (m *Move) Undo() error { return errMoveUnfinished() }

// Commit records durably that everything is moved: from now on a later process
// that finds the journal keeps the new state.
func (m *Move) Commit() error { return errMoveUnfinished() }

// Forget deletes the before-images and the journal. It is agents.ErrState
// while the Move is MovePrepared.
func (m *Move) Forget() error { return errMoveUnfinished() }

func errMoveUnfinished() error {
	return fmt.Errorf("move of many files: %w", agents.ErrUnsupported)
}
