package copyonwrite

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/git"
	"github.com/cleveragents/agents/internal/snapshot"
	"github.com/cleveragents/agents/internal/statediff"
	"github.com/cleveragents/agents/sandbox"
)

// Diff compares two states by their files; git counts lines and finds renames.
// Between the base and the present, names that never come home do not show.
func (s *Strategy) Diff(ctx context.Context, ws sandbox.Workspace, req sandbox.DiffRequest) ([]agents.FileChange, error) {
	b, err := s.open(ws)
	if err != nil {
		return nil, err
	}
	changes, err := b.diff(ctx, req)
	if err != nil {
		return nil, fmt.Errorf("diff of sandbox %s: %w", ws.SandboxID, err)
	}
	return changes, nil
}

func (b *box) diff(ctx context.Context, req sandbox.DiffRequest) ([]agents.FileChange, error) {
	objects := orElse(req.Objects, b.sealStore())
	r, err := b.recorder(ctx, objects)
	if err != nil {
		return nil, err
	}
	result := req.From == "" && req.To == ""
	if req.From == "" {
		req.From = b.rec.BaseState
	}
	if req.To == "" {
		c, err := r.capture(ctx, sandbox.CaptureRequest{Label: "for a comparison"})
		if err != nil {
			return nil, err
		}
		req.To = c.Ref
	}
	var skip []string
	if result {
		if skip, err = b.notHome(ctx, r.store, req.From, req.To); err != nil {
			return nil, err
		}
	}
	changes, err := b.compare(ctx, r.store, objects, req, skip)
	for i := range changes {
		changes[i].Resource = b.ws.Resource.Name
	}
	slices.SortFunc(changes, func(x, y agents.FileChange) int { return strings.Compare(x.Path, y.Path) })
	return changes, err
}

// compare lists the files that differ between two states, but for those below
// the paths of skip.
func (b *box) compare(ctx context.Context, store *snapshot.Store, objects string, req sandbox.DiffRequest, skip []string) ([]agents.FileChange, error) {
	if !req.Counts && req.Patch == nil {
		changes, err := store.Compare(ctx, req.From, req.To)
		if err != nil {
			return nil, err
		}
		return slices.DeleteFunc(statediff.Files(changes, files), func(c agents.FileChange) bool { return statediff.Below(skip, c.Path) }), nil
	}
	if err := store.Unfold(ctx, req.From, req.To); err != nil {
		return nil, err
	}
	repo := git.Repo{Git: b.run, GitDir: objects}
	out, err := statediff.Git(ctx, repo, statediff.Request{From: req.From + ":" + files, To: req.To + ":" + files, Counts: req.Counts, Patch: req.Patch, Skip: skip})
	if err != nil {
		return nil, err
	}
	return b.withBits(ctx, store, req, skip, out)
}

// withBits adds the files of which git sees no change: other permission bits
// than the one to execute, owners and attributes.
func (b *box) withBits(ctx context.Context, store *snapshot.Store, req sandbox.DiffRequest, skip []string, out []agents.FileChange) ([]agents.FileChange, error) {
	changes, err := store.Compare(ctx, req.From, req.To)
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for _, c := range out {
		seen[c.Path] = true
	}
	for _, c := range statediff.Files(changes, files) {
		if c.Change == agents.ChangeMode && !seen[c.Path] && !statediff.Below(skip, c.Path) {
			out = append(out, c)
		}
	}
	return out, nil
}

// notHome lists the paths in which two states differ and which never come home:
// protected ones, each once and by its top, and what is beside a single file.
func (b *box) notHome(ctx context.Context, store *snapshot.Store, from, to string) ([]string, error) {
	changes, err := store.Compare(ctx, from, to)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, c := range changes {
		if top, ok := b.protects(c.Path); ok {
			out = append(out, top)
		} else if b.rec.File != "" && c.Path != b.rec.File && c.Path != "" {
			out = append(out, c.Path)
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

var _ sandbox.Exporter = (*Strategy)(nil)

// ExportBranch is agents.ErrUnsupported: a directory has no branches.
func (s *Strategy) ExportBranch(context.Context, sandbox.Workspace, string, string) error {
	return agents.WithHint(fmt.Errorf("a directory has no branches: %w", agents.ErrUnsupported), "agents plan export PLAN --patch FILE")
}

// ExportPatch writes the difference between the base and the sealed state ref
// in git's patch format, as git apply takes it.
func (s *Strategy) ExportPatch(ctx context.Context, ws sandbox.Workspace, ref string, w io.Writer) error {
	b, err := s.open(ws)
	if err != nil {
		return err
	}
	objects := b.sealStore()
	r, err := b.recorder(ctx, objects)
	if err != nil {
		return err
	}
	skip, err := b.notHome(ctx, r.store, b.rec.BaseState, ref)
	if err != nil {
		return err
	}
	_, err = b.compare(ctx, r.store, objects, sandbox.DiffRequest{From: b.rec.BaseState, To: ref, Patch: w}, skip)
	return err
}
