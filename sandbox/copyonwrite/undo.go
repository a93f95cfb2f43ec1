package copyonwrite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/fsx"
	"github.com/cleveragents/agents/internal/snapshot"
	"github.com/cleveragents/agents/sandbox"
	"github.com/cleveragents/agents/sandbox/internal/folder"
)

var (
	_ sandbox.Undoer    = (*Strategy)(nil)
	_ sandbox.Recoverer = (*Strategy)(nil)
	_ sandbox.Preparer  = (*Strategy)(nil)
)

// undoneName is the file that says, in a journal's folder, that the apply was
// taken back and forgotten.
const undoneName = "undone"

// Undo takes an apply back from its before-images: bytes, bits, times, owners.
// A path that somebody changed since is agents.ErrConflict, and then nothing
// changes, also where that shows in the middle. It needs the journal and the
// resource, not the sandbox. Undoing twice is no error.
//
// What it took away is held beside the journal until Recover, for programs
// that have it open; on another file system, where it would be the user's to
// look at, no longer than the undo takes.
func (s *Strategy) Undo(ctx context.Context, ws sandbox.Workspace, journalDir string) error {
	tr, err := s.applied(ctx, ws, journalDir)
	if err != nil || tr == nil {
		return err
	}
	if err := tr.Undo(); err != nil {
		return undoError(ws, err)
	}
	if strings.HasPrefix(tr.Stage(), journalDir) {
		return nil
	}
	// Said before the journal goes: a second Undo has to find one of the two.
	if err := fsx.Publish(filepath.Join(journalDir, undoneName), []byte("undone\n"), 0o600); err != nil {
		return err
	}
	if _, err := forget(tr, journalDir); err != nil {
		return fmt.Errorf("undo the apply to %s: %w", ws.Resource.Location, err)
	}
	return nil
}

// forget ends a transfer, with the folders that were made for it, and returns
// what it kept of it.
func forget(tr *snapshot.Transferring, journalDir string) ([]fsx.Late, error) {
	kept, err := tr.Forget(sandbox.LateDir(journalDir))
	if err != nil {
		return kept, err
	}
	tidyStage(tr.Stage())
	return kept, nil
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
// was undone and forgotten already.
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
// anything else is taken back, and of one that was taken back nothing is held
// any longer. Paths that somebody changed since stay as they are.
func (s *Strategy) Recover(ctx context.Context, ws sandbox.Workspace, journalDir string) (sandbox.Recovered, error) {
	out := sandbox.Recovered{State: agents.ApplyReverted}
	tr, err := snapshot.LoadTransfer(journalDir)
	if errors.Is(err, fs.ErrNotExist) {
		return out, ctx.Err()
	}
	if err == nil {
		out, err = recovered(tr, journalDir)
	}
	if err != nil {
		return sandbox.Recovered{}, fmt.Errorf("end the apply to %s: %w", ws.Resource.Location, err)
	}
	return out, nil
}

// recovered ends a transfer.
func recovered(tr *snapshot.Transferring, journalDir string) (sandbox.Recovered, error) {
	applied := sandbox.Recovered{State: agents.ApplyApplied}
	if tr.State() == fsx.MoveCommitted {
		return applied, nil
	}
	left, err := tr.UndoLeaving(sandbox.LateDir(journalDir))
	if tr.State() == fsx.MoveCommitted { // an undo that cannot be, since somebody changed what was applied
		return applied, ifNoConflict(err)
	}
	if err != nil {
		return sandbox.Recovered{}, err
	}
	kept, err := forget(tr, journalDir)
	if err != nil {
		return sandbox.Recovered{}, err
	}
	return sandbox.Recovered{State: agents.ApplyReverted, Notices: append(folder.LeftNotices(left), folder.LateNotices(kept)...)}, nil
}

func ifNoConflict(err error) error {
	if errors.Is(err, agents.ErrConflict) {
		return nil
	}
	return err
}

// readBlob returns a content of a store.
func readBlob(ctx context.Context, store *snapshot.Store, id string) ([]byte, error) {
	var text bytes.Buffer
	err := store.ReadObject(ctx, id, &text)
	return text.Bytes(), err
}
