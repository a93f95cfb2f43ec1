package copyonwrite

import (
	"context"
	"errors"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/fsx"
	"github.com/cleveragents/agents/sandbox"
	"github.com/cleveragents/agents/sandbox/internal/folder"
)

// Remove removes the copy and what lies in the private folder. The base store,
// where it is shared, stays for others; the caller removes it.
func (s *Strategy) Remove(ctx context.Context, ws sandbox.Workspace) error {
	if ws.PrivateDir == "" {
		return nil
	}
	rec, err := loadRecord(ws.PrivateDir)
	switch {
	case errors.Is(err, agents.ErrNotFound):
		return fsx.ClearDir(ws.PrivateDir, "")
	case err != nil:
		return err
	}
	if err := folder.RemoveTree(rec.Path, rec.Entry, rec.Dir, ws.Resource.Location); err != nil {
		return err
	}
	if err := folder.RemoveNear(rec.Near, rec.Entry); err != nil {
		return err
	}
	tidyStage(rec.Path)
	return errors.Join(fsx.ClearDir(ws.PrivateDir, folder.RecordName), ctx.Err())
}
