package gitworktree

import (
	"context"
	"fmt"
	"slices"
	"strings"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/fsx"
	"github.com/cleveragents/agents/internal/git"
	"github.com/cleveragents/agents/internal/statediff"
	"github.com/cleveragents/agents/sandbox"
)

// Diff compares the base with the present as git would, through its filters:
// counts, hunks and renames are git's own, and ignored files do not show.
// Captured states are compared by their raw bytes, ignored files included.
func (s *Strategy) Diff(ctx context.Context, ws sandbox.Workspace, req sandbox.DiffRequest) ([]agents.FileChange, error) {
	b, err := s.open(ws)
	if err != nil {
		return nil, err
	}
	list := b.diffStates
	if req.From == "" && req.To == "" {
		list = b.diffBase
	}
	changes, err := list(ctx, req)
	if err != nil {
		return nil, fmt.Errorf("diff of sandbox %s: %w", ws.SandboxID, err)
	}
	for i := range changes {
		changes[i].Resource = ws.Resource.Name
	}
	slices.SortFunc(changes, func(x, y agents.FileChange) int { return strings.Compare(x.Path, y.Path) })
	return changes, nil
}

// diffBase stages the present tree in a quarantine that goes afterwards.
func (b *box) diffBase(ctx context.Context, req sandbox.DiffRequest) ([]agents.FileChange, error) {
	at, drop, err := b.quarantine()
	if err != nil {
		return nil, err
	}
	defer drop()
	st, err := b.stage(ctx, at)
	if err != nil {
		return nil, err
	}
	return statediff.Git(ctx, at, statediff.Request{From: b.from(), To: st.tree, Counts: req.Counts, Patch: req.Patch})
}

// quarantine returns trusted calls whose new objects go to a folder that drop
// removes.
func (b *box) quarantine() (at git.Repo, drop func(), err error) {
	dir := b.private("trusted", "quarantine")
	if err := fsx.RemoveAll(dir); err != nil {
		return at, nil, err
	}
	if err := fsx.Mkdir(dir, 0o700); err != nil {
		return at, nil, err
	}
	at = b.trusted()
	at.ObjectDir = dir
	at.Alternates = []string{b.private("trusted", "objects")}
	return at, func() { _ = fsx.RemoveAll(dir) }, nil
}

// diffStates compares two captured states; the present becomes one first.
func (b *box) diffStates(ctx context.Context, req sandbox.DiffRequest) ([]agents.FileChange, error) {
	r, err := b.recorder(ctx, req.Objects)
	if err != nil {
		return nil, err
	}
	defer r.close()
	from, to := req.From, req.To
	if from == "" {
		from = b.rec.BaseState
	}
	if from == "" {
		return nil, fmt.Errorf("the base state was not captured: %w", agents.ErrNotFound)
	}
	if to == "" {
		c, err := b.capture(ctx, r, sandbox.CaptureRequest{Objects: req.Objects, Label: "for a comparison"})
		if err != nil {
			return nil, err
		}
		to = c.Ref
	}
	if req.Counts || req.Patch != nil {
		store := git.Repo{Git: b.run, GitDir: req.Objects}
		return statediff.Git(ctx, store, statediff.Request{From: from + ":files", To: to + ":files", Counts: req.Counts, Patch: req.Patch})
	}
	changes, err := r.store.Compare(ctx, from, to)
	if err != nil {
		return nil, err
	}
	return statediff.Files(changes, "files"), nil
}
