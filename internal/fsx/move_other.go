//go:build !linux

package fsx

import (
	"context"
	"fmt"
	"runtime"

	agents "github.com/cleveragents/agents"
)

// Move is not there on this system: it needs renames that exchange two names
// or refuse to replace one.
type Move struct{}

// PrepareMove is agents.ErrUnsupported on this system.
func PrepareMove(journalDir string, roots []string, hold string, ops []Op) (*Move, error) {
	return nil, errNoMove()
}

// LoadMove is agents.ErrUnsupported on this system.
func LoadMove(journalDir string) (*Move, error) { return nil, errNoMove() }

// State is MovePrepared on this system.
func (m *Move) State() MoveState { return MovePrepared }

// Run is agents.ErrUnsupported on this system.
func (m *Move) Run(ctx context.Context) error { return errNoMove() }

// Undo is agents.ErrUnsupported on this system.
func (m *Move) Undo() error { return errNoMove() }

// UndoLeaving is agents.ErrUnsupported on this system.
func (m *Move) UndoLeaving(dir string) ([]Left, error) { return nil, errNoMove() }

// Commit is agents.ErrUnsupported on this system.
func (m *Move) Commit() error { return errNoMove() }

// Forget is agents.ErrUnsupported on this system.
func (m *Move) Forget() error { return errNoMove() }

// LateWrites is agents.ErrUnsupported on this system.
func (m *Move) LateWrites() ([]Late, error) { return nil, errNoMove() }

// ForgetButLate is agents.ErrUnsupported on this system.
func (m *Move) ForgetButLate(dir string) ([]Late, error) { return nil, errNoMove() }

// KeepLate is agents.ErrUnsupported on this system.
func (m *Move) KeepLate(dir string) ([]Late, error) { return nil, errNoMove() }

func errNoMove() error {
	return fmt.Errorf("move of many files: %s has no atomic exchange that is tried: %w", runtime.GOOS, agents.ErrUnsupported)
}
