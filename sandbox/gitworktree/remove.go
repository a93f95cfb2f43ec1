package gitworktree

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/fsx"
	"github.com/cleveragents/agents/internal/git"
	"github.com/cleveragents/agents/sandbox"
	"github.com/cleveragents/agents/sandbox/internal/folder"
)

// Remove takes away our branch and worktree entry in the user's repository,
// the sandbox's directory, and what lies in the private folder
// (git-worktree-sandbox.md, "cleanup"). Other worktrees are never touched, and
// nothing is pruned. A branch that somebody moved in the meantime stays, since
// it holds work that is not ours. A sandbox whose creation failed leaves a
// branch that was there before as it was.
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
	b := &box{ws: ws, rec: rec, run: s.runner(ws.Options), states: &s.states}
	if exists(rec.User.CommonDir) {
		if err := b.removePlaceholder(ctx); err != nil {
			return fmt.Errorf("remove from %s: %w", rec.User.Root, err)
		}
	}
	if err := folder.RemoveTree(rec.Path, rec.Entry, rec.User.Root, rec.User.CommonDir, ws.Resource.Location); err != nil {
		return err
	}
	if err := folder.RemoveNear(rec.Near, rec.Entry); err != nil {
		return err
	}
	return fsx.ClearDir(ws.PrivateDir, folder.RecordName)
}

// removePlaceholder removes our entry first: while it is there, git takes the
// branch for checked out.
func (b *box) removePlaceholder(ctx context.Context) error {
	if b.ownEntry() {
		if err := fsx.RemoveAll(b.entryDir()); err != nil {
			return err
		}
	}
	if entries, err := os.ReadDir(b.entriesDir()); err == nil && len(entries) == 0 {
		// As git itself does. Another sandbox may be quicker to fill it again.
		_ = fsx.Remove(b.entriesDir())
	}
	if err := b.removeBranch(ctx); err != nil {
		return err
	}
	b.removeEmptyRefs()
	return nil
}

// removeEmptyRefs removes the directories of our branch that a git which was
// stopped half way left empty. Others may fill them at the same moment: what is
// not empty stays, and git makes again what it misses.
func (b *box) removeEmptyRefs() {
	for ref := path.Dir(b.rec.Branch); strings.HasPrefix(ref+"/", branchSpace); ref = path.Dir(ref) {
		dir := filepath.Join(b.rec.User.CommonDir, filepath.FromSlash(ref))
		if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 || fsx.Remove(dir) != nil {
			return
		}
	}
}

// ownEntry reports whether the worktree entry is the one that the record
// means: of our name, and leading to our directory or nowhere yet.
func (b *box) ownEntry() bool {
	if !strings.HasPrefix(b.rec.Entry, folder.EntryPrefix) || b.rec.Entry != filepath.Base(b.rec.Entry) {
		return false
	}
	to, err := os.ReadFile(filepath.Join(b.entryDir(), "gitdir"))
	return err != nil || len(to) == 0 || strings.TrimSpace(string(to)) == filepath.Join(b.rec.Path, ".git")
}

// removeBranch deletes our branch, or puts it back to what it was before a
// creation that failed.
func (b *box) removeBranch(ctx context.Context) error {
	now, err := b.user().Ref(ctx, b.rec.Branch)
	if errors.Is(err, agents.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if b.rec.Tip == "" && b.rec.NextTip == "" || now != b.rec.Tip && now != b.rec.NextTip {
		return nil
	}
	to := ""
	if !b.rec.Ready {
		to = b.rec.Before
	}
	if now == to {
		return nil
	}
	return b.swapBranch(ctx, git.RefChange{Ref: b.rec.Branch, Old: now, New: to})
}
