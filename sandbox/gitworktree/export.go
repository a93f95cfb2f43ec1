package gitworktree

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/git"
	"github.com/cleveragents/agents/sandbox"
)

var _ sandbox.Exporter = (*Strategy)(nil)

// ExportBranch makes a branch of the user's repository that holds the sealed
// commit ref. One of that name is agents.ErrExists; a name that git does not
// take, or of the plans' own, is agents.ErrInvalid.
func (s *Strategy) ExportBranch(ctx context.Context, ws sandbox.Workspace, ref, branch string) error {
	b, err := s.open(ws)
	if err != nil {
		return err
	}
	full := "refs/heads/" + branch
	if err := b.freeBranch(ctx, full); err != nil {
		return fmt.Errorf("branch %q: %w", branch, err)
	}
	if err := b.isSealed(ctx, ref); err != nil {
		return err
	}
	message := "agents: export plan " + b.rec.PlanID
	if err := b.user().UpdateRefs(ctx, message, git.RefChange{Ref: full, New: ref}); err != nil {
		return fmt.Errorf("export to branch %q: %w", branch, err)
	}
	return nil
}

func (b *box) freeBranch(ctx context.Context, full string) error {
	res, err := b.user().Do(ctx, git.Call{Args: []string{"check-ref-format", full}, OK: []int{1}})
	if err != nil {
		return err
	}
	if res.ExitCode != 0 || strings.HasPrefix(full, "refs/heads/-") || strings.HasPrefix(full, branchSpace) {
		return agents.ErrInvalid
	}
	switch _, err := b.user().Ref(ctx, full); {
	case err == nil:
		return agents.ErrExists
	case !errors.Is(err, agents.ErrNotFound):
		return err
	}
	return nil
}

// isSealed makes sure that ref is a commit in the user's store.
func (b *box) isSealed(ctx context.Context, ref string) error {
	if !isID(ref) {
		return fmt.Errorf("result %q: %w", ref, agents.ErrInvalid)
	}
	_, err := b.user().Commit(ctx, ref)
	return err
}

// ExportPatch writes the difference between the base and the sealed commit ref
// in git's patch format, as git apply takes it.
func (s *Strategy) ExportPatch(ctx context.Context, ws sandbox.Workspace, ref string, w io.Writer) error {
	b, err := s.open(ws)
	if err != nil {
		return err
	}
	if err := b.isSealed(ctx, ref); err != nil {
		return err
	}
	return b.trusted().Patch(ctx, w, b.rec.Base, ref)
}
