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
	if err := b.removeTree(); err != nil {
		return err
	}
	if rec.Near != "" && filepath.Base(rec.Near) == nearName(rec.Entry) {
		if err := fsx.RemoveAll(rec.Near); err != nil {
			return err
		}
	}
	return fsx.ClearDir(ws.PrivateDir, "sandbox.json")
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
	if !strings.HasPrefix(b.rec.Entry, entryPrefix) || b.rec.Entry != filepath.Base(b.rec.Entry) {
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

// removeTree removes the sandbox's directory, after making sure that it is
// one: of the recorded name, and not the user's own tree by another spelling.
func (b *box) removeTree() error {
	fi, err := os.Lstat(b.rec.Path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if filepath.Base(b.rec.Path) != b.rec.Entry || !strings.HasPrefix(b.rec.Entry, entryPrefix) {
		return fmt.Errorf("%s is not a sandbox's directory: %w", b.rec.Path, agents.ErrDamaged)
	}
	if !fi.IsDir() {
		return fsx.Remove(b.rec.Path) // a plan put a link or a file in its place: that alone goes
	}
	for _, other := range []string{b.rec.User.Root, b.rec.User.CommonDir, b.ws.Resource.Location} {
		if real, err := os.Stat(other); err == nil && os.SameFile(real, fi) {
			return fmt.Errorf("%s is the user's own repository: %w", b.rec.Path, agents.ErrDamaged)
		}
	}
	return fsx.RemoveAll(b.rec.Path)
}
