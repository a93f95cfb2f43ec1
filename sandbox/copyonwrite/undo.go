package copyonwrite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/fsx"
	"github.com/cleveragents/agents/internal/snapshot"
	"github.com/cleveragents/agents/sandbox"
)

var (
	_ sandbox.Undoer    = (*Strategy)(nil)
	_ sandbox.Recoverer = (*Strategy)(nil)
	_ sandbox.Preparer  = (*Strategy)(nil)
)

// undoneName is the file that says, in a journal's folder, that the apply was
// taken back.
const undoneName = "undone"

// Undo takes an apply back from its before-images: bytes, bits, times, owners.
// A path that somebody changed since is agents.ErrConflict, and then nothing
// changes. It needs the journal and the resource, not the sandbox. Undoing
// twice is no error.
func (s *Strategy) Undo(ctx context.Context, ws sandbox.Workspace, journalDir string) error {
	tr, err := s.applied(ctx, ws, journalDir)
	if err != nil || tr == nil {
		return err
	}
	if err := tr.Undo(); err != nil {
		return undoError(ws, err)
	}
	// Said before the journal goes: a second Undo has to find one of the two.
	if err := fsx.Publish(filepath.Join(journalDir, undoneName), []byte("undone\n"), 0o600); err != nil {
		return err
	}
	if err := forget(tr); err != nil {
		return fmt.Errorf("undo the apply to %s: %w", ws.Resource.Location, err)
	}
	return nil
}

// forget ends a transfer, with the folders that were made for it.
func forget(tr *snapshot.Transferring) error {
	if err := tr.Forget(); err != nil {
		return err
	}
	tidyStage(tr.Stage())
	return nil
}

// CanUndo looks at every path that Undo would put back.
func (s *Strategy) CanUndo(ctx context.Context, ws sandbox.Workspace, journalDir string) error {
	tr, err := s.applied(ctx, ws, journalDir)
	if err != nil || tr == nil {
		return err
	}
	return undoError(ws, tr.CanUndo())
}

// undoError says which path is in the way.
func undoError(ws sandbox.Workspace, err error) error {
	if err == nil {
		return nil
	}
	wrapped := &agents.Error{Kind: agents.SandboxRollbackError, Err: fmt.Errorf("undo the apply to %s: %w", ws.Resource.Location, err)}
	if errors.Is(err, agents.ErrConflict) {
		wrapped.Hint = "what was changed since stays, and so does the apply; take back what you need by hand, or in a new plan on " + ws.Resource.Location
	}
	return wrapped
}

// applied returns the transfer of an apply that is to be undone; nil when it
// was undone already.
func (s *Strategy) applied(ctx context.Context, ws sandbox.Workspace, journalDir string) (*snapshot.Transferring, error) {
	undone := exists(filepath.Join(journalDir, undoneName))
	tr, err := snapshot.LoadTransfer(journalDir)
	if undone && errors.Is(err, fs.ErrNotExist) {
		return nil, ctx.Err()
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("undo: the journal of the apply to %s is not in %s: %w", ws.Resource.Location, journalDir, agents.ErrNotFound)
	}
	if err != nil {
		return nil, err
	}
	return tr, ctx.Err()
}

// Recover ends an Apply or Undo that was killed: a move that was whole stays,
// anything else is taken back. Paths that somebody changed since stay as they
// are, and the error names them.
func (s *Strategy) Recover(ctx context.Context, ws sandbox.Workspace, journalDir string) (agents.ApplyState, string, error) {
	tr, err := snapshot.LoadTransfer(journalDir)
	if errors.Is(err, fs.ErrNotExist) {
		return agents.ApplyReverted, "", ctx.Err()
	}
	if err != nil {
		return "", "", fmt.Errorf("end the apply to %s: %w", ws.Resource.Location, err)
	}
	switch tr.State() {
	case fsx.MoveCommitted:
		return agents.ApplyApplied, "", nil
	case fsx.MovePrepared:
		if err := tr.Undo(); err != nil {
			return "", "", fmt.Errorf("end the apply to %s: %w", ws.Resource.Location, err)
		}
	}
	if err := forget(tr); err != nil {
		return "", "", fmt.Errorf("end the apply to %s: %w", ws.Resource.Location, err)
	}
	return agents.ApplyReverted, "", nil
}

// readBlob returns a content of a store.
func readBlob(ctx context.Context, store *snapshot.Store, id string) ([]byte, error) {
	var text bytes.Buffer
	err := store.ReadObject(ctx, id, &text)
	return text.Bytes(), err
}
