package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/fsx"
	"github.com/cleveragents/agents/sandbox"
)

// Update brings the real resources' newer state into a plan's sandboxes, as a
// step with a checkpoint before and after it (DESIGN §7). Conflicts are
// agents.ErrConflict, are listed, and change nothing.
func (e *Engine) Update(ctx context.Context, plan, resource string) (agents.UpdateResult, error) {
	s, err := e.open(ctx, plan, "plan update")
	if err != nil {
		return agents.UpdateResult{}, err
	}
	defer s.close()
	out := agents.UpdateResult{Plan: s.plan}
	if err := s.drivable(); err != nil {
		return out, err
	}
	boxes, err := s.existing(ctx, resource)
	if err != nil {
		return out, err
	}
	if resource == "" {
		boxes = slices.DeleteFunc(slices.Clone(boxes), (*box).applied)
	}
	state := s.plan.State
	if err := s.move(ctx, agents.PhaseExecute, agents.PlanProcessing, nil); err != nil {
		return out, err
	}
	out.Resources, err = s.update(ctx, boxes)
	if err == nil || state == agents.PlanComplete || state == agents.PlanErrored {
		state = agents.PlanQueued
	}
	err = errors.Join(err, s.move(ctx, agents.PhaseExecute, state, nil))
	out.Plan, out.Messages = s.plan, s.notices
	return out, err
}

// existing lists the plan's sandboxes, or the one of a resource; all must be there.
func (s *session) existing(ctx context.Context, resource string) (boxes []*box, err error) {
	boxes = s.boxes
	if resource != "" {
		r, err := s.whole(resource)
		if err != nil {
			return nil, err
		}
		boxes = nil
		if b := s.find(r.ID); b != nil {
			boxes = []*box{b}
		}
	}
	if len(boxes) == 0 {
		return nil, agents.WithHint(fmt.Errorf("plan %s has no sandbox yet: %w", s.plan.ID, agents.ErrState),
			"a sandbox is made at the first tool call: agents plan exec %s -- CMD", s.plan.ID)
	}
	for _, b := range boxes {
		if err := b.Open(ctx); err != nil {
			return nil, err
		}
	}
	return boxes, nil
}

func (s *session) update(ctx context.Context, boxes []*box) ([]agents.ResourceResult, error) {
	meta := agents.CheckpointMetadata{Reason: "before plan update", Phase: string(s.plan.Phase)}
	id, before, err := s.checkpoint(ctx, mark{kind: agents.CheckpointPreWrite, meta: meta})
	if err != nil {
		return nil, err
	}
	defer before.drop()
	if before != nil {
		if err := s.begin(inflight{What: "plan update", CheckpointID: id, OnFailure: agents.FailRollback, Refs: before.refs()}); err != nil {
			return nil, err
		}
	}
	var out []agents.ResourceResult
	var failure error
	for _, b := range boxes {
		res, err := b.Update(ctx, s.e.now())
		if err != nil {
			res.Error = err.Error()
		}
		out = append(out, res)
		failure = errors.Join(failure, err)
		b.stale = true
	}
	if failure != nil {
		if before != nil && len(boxes) > 1 {
			detached, cancel := sandbox.Detach(ctx)
			defer cancel()
			if err := s.putBack(detached, before.refs(), id); err != nil {
				return out, errors.Join(failure, err) // the note stays: the next command tries again
			}
		}
		return out, errors.Join(failure, s.done())
	}
	meta.Reason = "after plan update"
	_, after, err := s.checkpoint(ctx, mark{kind: agents.CheckpointPostStep, meta: meta})
	after.drop()
	return out, errors.Join(err, s.done())
}

// Export seals a plan's result and writes it to a new branch of the real
// repository or to a patch file, and returns where it is. The plan stays as it
// is. A branch or file that exists is agents.ErrExists.
func (e *Engine) Export(ctx context.Context, req ExportRequest) (string, error) {
	if (req.Branch == "") == (req.Patch == "") {
		return "", fmt.Errorf("export: give exactly one of a branch and a patch file: %w", agents.ErrInvalid)
	}
	s, err := e.open(ctx, req.Plan, "plan export")
	if err != nil {
		return "", err
	}
	defer s.close()
	boxes, err := s.existing(ctx, req.Resource)
	if err != nil {
		return "", err
	}
	if req.Branch != "" && len(boxes) > 1 {
		return "", agents.WithHint(fmt.Errorf("export to a branch: plan %s has %d sandboxes: %w", s.plan.ID, len(boxes), agents.ErrInvalid),
			"name one with --resource: %s", boxNames(boxes))
	}
	for _, b := range boxes {
		if _, err := s.seal(ctx, b); err != nil {
			return "", err
		}
	}
	if req.Branch != "" {
		return req.Branch, boxes[0].ExportBranch(ctx, "", req.Branch)
	}
	return s.exportPatch(ctx, boxes, req.Patch)
}

// patchTitle stands before a resource's part of a patch over several; git apply
// passes over it.
func patchTitle(b *box) string {
	return fmt.Sprintf("# resource %s: %s\n", b.Resource().Name, agents.EscapePath(b.Resource().Location))
}

func boxNames(boxes []*box) string {
	var names []string
	for _, b := range boxes {
		names = append(names, b.Resource().Name)
	}
	return strings.Join(names, ", ")
}

func (s *session) exportPatch(ctx context.Context, boxes []*box, file string) (string, error) {
	path, err := filepath.Abs(file)
	if err != nil {
		return "", err
	}
	f, err := fsx.Create(path, 0o644)
	if errors.Is(err, os.ErrExist) {
		return "", fmt.Errorf("patch file %s: %w", path, agents.ErrExists)
	}
	if err != nil {
		return "", err
	}
	for _, b := range boxes {
		if err == nil && len(boxes) > 1 {
			_, err = io.WriteString(f, patchTitle(b))
		}
		if err == nil {
			err = b.ExportPatch(ctx, "", f)
		}
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return "", errors.Join(err, fsx.Remove(path))
	}
	return path, nil
}
