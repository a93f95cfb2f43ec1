package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/metastore"
	"github.com/cleveragents/agents/sandbox"
)

// Diff tells what a plan changed: from its base to its present state, or
// between two of its checkpoints. After an apply it tells what was applied, as
// long as the sandbox is there.
func (e *Engine) Diff(ctx context.Context, req DiffRequest) (agents.Diff, error) {
	s, err := e.open(ctx, req.Plan, "plan diff")
	if err != nil {
		return agents.Diff{}, err
	}
	defer s.close()
	from, err := s.refsAt(ctx, req.From)
	if err != nil {
		return agents.Diff{}, err
	}
	to, err := s.refsAt(ctx, req.To)
	if err != nil {
		return agents.Diff{}, err
	}
	boxes := s.boxes
	if req.Resource != "" {
		r, err := pickResource(s.plan.Resources, req.Resource)
		if err != nil {
			return agents.Diff{}, err
		}
		boundary := s.plan.Boundary(r)
		if boundary.ID != r.ID {
			s.say("resource %s shares the sandbox of %s: this is what changed in all of it", r.Name, boundary.Name)
		}
		boxes = slices.DeleteFunc(slices.Clone(boxes), func(b *box) bool { return b.Resource().ID != boundary.ID })
	}
	if len(boxes) == 0 {
		return agents.Diff{}, s.nothingToLookAt(ctx, req)
	}
	for _, b := range boxes {
		if err := b.Open(ctx); err != nil {
			return agents.Diff{}, err
		}
	}
	return s.diffRefs(ctx, boxes, from, to, req.Patch)
}

// nothingToLookAt is why a plan without sandboxes has no diff: nil where it
// never had one, which is a plan that changed nothing.
func (s *session) nothingToLookAt(ctx context.Context, req DiffRequest) error {
	var records []agents.SandboxRecord
	err := s.e.store.Read(ctx, func(tx *metastore.Tx) (err error) {
		records, err = tx.Sandboxes().ByPlan(s.plan.ID)
		return err
	})
	if err != nil || len(records) == 0 && req.From == "" && req.To == "" {
		return err
	}
	err = fmt.Errorf("plan %s has no sandbox any more: %w", s.plan.ID, agents.ErrBlocked)
	switch s.plan.State {
	case agents.PlanApplied:
		if !slices.ContainsFunc(records, func(r agents.SandboxRecord) bool { return r.Strategy == agents.GitWorktree }) {
			return agents.WithHint(err, "it was applied: agents plan events %s tells what came home", s.plan.ID)
		}
		return agents.WithHint(err, "it was applied: git log --grep=%s shows it, agents plan events %s tells the commits", s.plan.ID, s.plan.ID)
	case agents.PlanCancelled:
		return agents.WithHint(err, "agents cleanup archive restore %s brings archived work back", s.plan.ID)
	}
	return err
}

// refsAt is the state of each sandbox in a checkpoint; nil for "".
func (s *session) refsAt(ctx context.Context, checkpoint string) (map[string]string, error) {
	if checkpoint == "" {
		return nil, nil
	}
	cp, err := s.e.checkpointRow(ctx, s.plan.ID, checkpoint)
	if err != nil {
		return nil, err
	}
	return rowRefs(cp), nil
}

func (s *session) diff(ctx context.Context, boxes []*box, from, to string, patch bool) (agents.Diff, error) {
	fromRefs, err := s.refsAt(ctx, from)
	if err != nil {
		return agents.Diff{}, err
	}
	toRefs, err := s.refsAt(ctx, to)
	if err != nil {
		return agents.Diff{}, err
	}
	return s.diffRefs(ctx, boxes, fromRefs, toRefs, patch)
}

// diffRefs joins the diffs of several sandboxes. A sandbox that a checkpoint
// does not have was at its base then.
func (s *session) diffRefs(ctx context.Context, boxes []*box, from, to map[string]string, patch bool) (agents.Diff, error) {
	var d agents.Diff
	var text bytes.Buffer
	for _, b := range boxes {
		if !b.Capabilities().Files {
			continue
		}
		req := sandbox.DiffRequest{From: from[b.Record().ID], To: to[b.Record().ID], Counts: true}
		if to != nil && req.To == "" {
			req.To = b.Record().BaseRef
		}
		if patch {
			req.Patch = &text
		}
		if patch && len(boxes) > 1 {
			text.WriteString(patchTitle(b))
		}
		files, err := b.Diff(ctx, req)
		if errors.Is(err, agents.ErrUnsupported) {
			s.say("%v", err)
			continue
		}
		if err != nil {
			return d, err
		}
		d.Files = append(d.Files, files...)
	}
	d.Summary, d.Patch = agents.Summarize(d.Files), text.Bytes()
	return d, nil
}

// shellQuote makes s one word for a shell.
func shellQuote(s string) string {
	if s != "" && !strings.ContainsFunc(s, func(c rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:@%+=,", c)
	}) {
		return s
	}
	return fmt.Sprintf("'%s'", strings.ReplaceAll(s, "'", `'\''`))
}
