//go:build !linux

package snapshot

import (
	"context"
	"fmt"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/fsx"
)

// Capture is agents.ErrUnsupported on this system.
func (t *Tracker) Capture(ctx context.Context, opts CaptureOptions) (Captured, error) {
	return Captured{}, errSystem("capture")
}

// Restore is agents.ErrUnsupported on this system.
func (t *Tracker) Restore(ctx context.Context, ref string, opts RestoreOptions) (Restored, error) {
	return Restored{}, errSystem("restore")
}

// Recover has nothing to do on this system, where nothing is restored.
func Recover(ctx context.Context, journal string) error { return nil }

// Contents is agents.ErrUnsupported on this system.
func (t *Tracker) Contents(root string, fn func(path, id string)) error {
	return errSystem("read what was captured")
}

// Transferring is not there on this system.
type Transferring struct{}

// Prepare is agents.ErrUnsupported on this system.
func (s *Store) Prepare(ctx context.Context, t Transfer) (*Transferring, error) {
	return nil, errSystem("transfer")
}

// LoadTransfer is agents.ErrUnsupported on this system.
func LoadTransfer(journal string) (*Transferring, error) { return nil, errSystem("transfer") }

// Run is agents.ErrUnsupported on this system.
func (t *Transferring) Run(ctx context.Context) error { return errSystem("transfer") }

// State is MovePrepared on this system.
func (t *Transferring) State() fsx.MoveState { return fsx.MovePrepared }

// CanUndo is agents.ErrUnsupported on this system.
func (t *Transferring) CanUndo() error { return errSystem("transfer") }

// Undo is agents.ErrUnsupported on this system.
func (t *Transferring) Undo() error { return errSystem("transfer") }

// UndoLeaving is agents.ErrUnsupported on this system.
func (t *Transferring) UndoLeaving(dir string) ([]fsx.Left, error) { return nil, errSystem("transfer") }

// Late is agents.ErrUnsupported on this system.
func (t *Transferring) Late() ([]fsx.Late, error) { return nil, errSystem("transfer") }

// Forget is agents.ErrUnsupported on this system.
func (t *Transferring) Forget(late string) ([]fsx.Late, error) { return nil, errSystem("transfer") }

// Stage is nowhere on this system.
func (t *Transferring) Stage() string { return "" }

// Look is agents.ErrUnsupported on this system.
func (s *Store) Look(ctx context.Context, path string) (Entry, fsx.SurveyEntry, error) {
	return Entry{}, fsx.SurveyEntry{}, errSystem("look")
}

// Add is agents.ErrUnsupported on this system.
func (s *Store) Add(ctx context.Context, content []byte) (string, error) {
	return "", errSystem("add")
}

// LinkOf is nothing on this system, where no state has links.
func LinkOf(first string) string { return "" }

func errSystem(op string) error {
	return fmt.Errorf("%s: states of directories are recorded on Linux only: %w", op, agents.ErrUnsupported)
}
