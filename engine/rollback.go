package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/metastore"
	"github.com/cleveragents/agents/sandbox"
)

// Rollback puts a plan's sandboxes into the state that a checkpoint recorded
// (checkpointing.md, "Rollback"; DESIGN §6). All sandboxes or none; on error
// the state is what it was. The present state is recorded first, so that a
// rollback can be rolled back. With Resource it narrows to that resource's
// files: decisions, child plans and steps stay as they are.
func (e *Engine) Rollback(ctx context.Context, req RollbackRequest) (agents.RollbackResult, error) {
	cp, err := e.guardRollback(ctx, req)
	if err != nil {
		return agents.RollbackResult{}, err
	}
	s, err := e.open(ctx, cp.PlanID, "plan rollback")
	if err != nil {
		return agents.RollbackResult{}, err
	}
	defer s.close()
	boxes, err := s.rollbackBoxes(ctx, cp, req.Resource)
	if err != nil {
		return agents.RollbackResult{}, err
	}
	if err := e.verify(ctx, cp); err != nil {
		return agents.RollbackResult{}, err
	}
	if req.DryRun {
		changed, err := s.restoreAll(ctx, rowRefs(cp), cp.ID, boxes, true)
		if err != nil {
			return agents.RollbackResult{}, err
		}
		return s.rollbackResult(ctx, cp, boxes, changed, agents.RollbackResult{DryRun: true})
	}
	return s.rollback(ctx, cp, boxes, req.Resource != "")
}

// guardRollback refuses, with the specification's words, what cannot be rolled
// back, before anything is locked or touched.
func (e *Engine) guardRollback(ctx context.Context, req RollbackRequest) (cp agents.Checkpoint, err error) {
	var p agents.Plan
	err = e.store.Read(ctx, func(tx *metastore.Tx) error {
		if p, err = tx.Plans().Resolve(req.Plan); err != nil {
			return err
		}
		cp, err = tx.Checkpoints().Resolve(p.ID, req.Checkpoint)
		return err
	})
	if err != nil {
		return cp, err
	}
	if p.State == agents.PlanApplied {
		return cp, &agents.Error{
			Kind: agents.BusinessRuleViolation, Message: "Rollback blocked: plan is already applied", Err: agents.ErrBlocked,
			Hint: fmt.Sprintf("agents plan undo %s takes the apply back where nothing has moved since", p.ID),
		}
	}
	return cp, nil
}

// rollbackBoxes lists the sandboxes to restore. Each must be there, and every
// one that the checkpoint recorded: a part of a state is not that state.
func (s *session) rollbackBoxes(ctx context.Context, cp agents.Checkpoint, resource string) ([]*box, error) {
	missing := &agents.Error{
		Kind: agents.BusinessRuleViolation, Message: "Rollback blocked: sandbox is missing", Err: agents.ErrBlocked,
		Hint: s.wayBack(),
	}
	boxes := s.boxes
	if resource != "" {
		r, err := s.whole(resource)
		if err != nil {
			return nil, err
		}
		boxes = slices.DeleteFunc(slices.Clone(boxes), func(b *box) bool { return b.Resource().ID != r.ID })
	}
	if len(boxes) == 0 || resource == "" && s.lacks(cp) {
		return nil, missing
	}
	for _, b := range boxes {
		if b.applied() {
			return nil, &agents.Error{
				Kind: agents.BusinessRuleViolation, Message: fmt.Sprintf("Rollback blocked: resource %s is already applied", b.Resource().Name), Err: agents.ErrBlocked,
				Hint: fmt.Sprintf("--resource narrows the rollback to another one; agents plan undo %s takes the apply back", s.plan.ID),
			}
		}
		if err := b.Open(ctx); err != nil {
			if errors.Is(err, agents.ErrBlocked) {
				return nil, missing
			}
			return nil, err
		}
		if err := s.baseOf(ctx, b); err != nil {
			return nil, err
		}
	}
	return boxes, nil
}

// lacks reports whether a sandbox that the checkpoint recorded was removed.
func (s *session) lacks(cp agents.Checkpoint) bool {
	refs := rowRefs(cp)
	return slices.ContainsFunc(s.gone, func(rec agents.SandboxRecord) bool { return refs[rec.ID] != "" && s.find(rec.ResourceID) == nil })
}

// wayBack says how a plan gets a sandbox that is missing again.
func (s *session) wayBack() string {
	if _, err := s.e.archiveManifest(s.plan.ID); err == nil {
		return "agents cleanup archive restore " + s.plan.ID + " brings its work back"
	}
	if s.plan.Terminal() {
		return ""
	}
	return fmt.Sprintf("agents plan execute %s or agents plan exec %s makes it again from its newest checkpoint", s.plan.ID, s.plan.ID)
}

// verify makes sure that a checkpoint's payload is whole, and marks one that
// is not.
func (e *Engine) verify(ctx context.Context, cp agents.Checkpoint) error {
	if e.payloads == nil {
		return fmt.Errorf("checkpoints are off: %w", agents.ErrBlocked)
	}
	err := e.payloads.Verify(ctx, cp.PlanID, cp.ID)
	if errors.Is(err, agents.ErrDamaged) {
		merr := e.store.Write(ctx, func(tx *metastore.Tx) error { return tx.Checkpoints().MarkDamaged(cp.ID) })
		err = errors.Join(err, merr)
	}
	if err != nil {
		return &agents.Error{
			Kind: agents.SandboxRollbackError, Message: fmt.Sprintf("checkpoint %s cannot be restored", cp.ID), Err: err,
			Hint: fmt.Sprintf("agents plan checkpoint list %s shows the others", cp.PlanID),
		}
	}
	return nil
}

func (s *session) rollback(ctx context.Context, cp agents.Checkpoint, boxes []*box, narrow bool) (agents.RollbackResult, error) {
	out := agents.RollbackResult{}
	s.hold = append(s.hold, cp.ID)
	meta := agents.CheckpointMetadata{Reason: "before rollback to " + cp.ID, Phase: string(s.plan.Phase)}
	safetyID, safety, err := s.checkpoint(ctx, mark{kind: agents.CheckpointManual, meta: meta, always: true})
	if err != nil {
		return out, fmt.Errorf("record the present state: %w", err)
	}
	if safety == nil {
		return out, fmt.Errorf("checkpoints are off (sandbox.checkpoint.enabled): %w", agents.ErrBlocked)
	}
	out.SafetyCheckpointID = safetyID
	note := inflight{What: "rollback to " + cp.ID, CheckpointID: safetyID, OnFailure: agents.FailRollback, Refs: safety.refs()}
	if !narrow {
		note.Target = cp.ID
	}
	if err := s.begin(note); err != nil {
		return out, err
	}
	changed, err := s.restoreAll(ctx, rowRefs(cp), cp.ID, boxes, false)
	if err != nil {
		return out, errors.Join(err, s.done())
	}
	// The files are back: what follows must happen too, even if the user stops us.
	after, cancel := sandbox.Detach(ctx)
	defer cancel()
	if narrow {
		err = s.recordMixed(after, cp)
	} else {
		err = s.rewind(after, cp, &out)
	}
	if err != nil {
		// Rows and files must agree: the files go forward again.
		return out, errors.Join(err, s.putBack(after, safety.refs(), safetyID), s.done())
	}
	if err := s.done(); err != nil {
		return out, err
	}
	s.event(after, "rollback", "rolled back to "+cp.ID, map[string]string{"checkpoint_id": cp.ID, "safety_checkpoint_id": safetyID})
	return s.rollbackResult(after, cp, boxes, changed, out)
}

// rewind brings the rows to the moment of a checkpoint, in one transaction.
func (s *session) rewind(ctx context.Context, cp agents.Checkpoint, out *agents.RollbackResult) error {
	p := s.plan
	if p.Position() != (agents.PlanPosition{Phase: agents.PhaseExecute, State: agents.PlanQueued}) {
		if err := p.Move(agents.PhaseExecute, agents.PlanQueued); err != nil {
			return err
		}
	}
	p.Error = nil
	seqs, err := s.seqs(ctx)
	if err != nil {
		return err
	}
	err = s.e.store.Write(ctx, func(tx *metastore.Tx) (err error) {
		if out.DecisionsSuperseded, err = tx.Decisions().SupersedeAfter(p.ID, cp.Seq); err != nil {
			return err
		}
		if out.ChildPlansCancelled, err = tx.Plans().CancelChildrenAfter(p.ID, cp.Seq); err != nil {
			return err
		}
		for i := range p.Steps {
			if rewindStep(&p.Steps[i], cp.Seq, seqs) {
				if err := tx.Steps().Update(p.ID, p.Steps[i]); err != nil {
					return err
				}
			}
		}
		if err := tx.Checkpoints().SetActive(p.ID, cp.ID); err != nil {
			return err
		}
		return tx.Plans().Update(&p)
	})
	if err == nil {
		s.plan = p
	}
	return err
}

// seqs maps the plan's checkpoints to their order.
func (s *session) seqs(ctx context.Context) (map[string]int64, error) {
	rows, err := s.rows(ctx)
	out := make(map[string]int64, len(rows))
	for _, cp := range rows {
		out[cp.ID] = cp.Seq
	}
	return out, err
}

// rewindStep makes a step pending that was not done yet at the checkpoint with
// this order: its state after is later, or is not known and its state before
// is not earlier.
func rewindStep(step *agents.Step, seq int64, seqs map[string]int64) bool {
	if step.Status == agents.StepPending {
		return false
	}
	after, known := seqs[step.AfterCheckpointID]
	if !known {
		before, ok := seqs[step.BeforeCheckpointID]
		known, after = true, before+1
		if !ok {
			after = seq + 1
		}
	}
	if step.Status == agents.StepDone && after <= seq {
		return false
	}
	step.Status, step.AfterCheckpointID, step.Error = agents.StepPending, "", ""
	return true
}

// recordMixed records, as a checkpoint of its own, the state that a rollback
// of one resource leaves.
func (s *session) recordMixed(ctx context.Context, cp agents.Checkpoint) error {
	meta := agents.CheckpointMetadata{Reason: "one resource rolled back to " + cp.ID, Phase: string(s.plan.Phase)}
	_, c, err := s.checkpoint(ctx, mark{kind: agents.CheckpointManual, meta: meta, always: true})
	c.drop()
	return err
}

// rollbackResult tells what really changed.
func (s *session) rollbackResult(ctx context.Context, cp agents.Checkpoint, boxes []*box, changed map[*box]sandbox.Restored, out agents.RollbackResult) (agents.RollbackResult, error) {
	out.PlanID, out.FromCheckpointID, out.Phase, out.State = s.plan.ID, cp.ID, s.plan.Phase, s.plan.State
	for _, b := range boxes {
		for _, c := range changed[b].Changes {
			c.Resource = b.Resource().Name
			out.Changes = append(out.Changes, c)
			path := c.Path
			if len(s.boxes) > 1 {
				path = c.Resource + ":" + path
			}
			out.ChangedPaths = append(out.ChangedPaths, path)
		}
	}
	out.RestoredFilesCount = len(out.ChangedPaths)
	err := s.e.store.Read(ctx, func(tx *metastore.Tx) (err error) {
		active, err := tx.Checkpoints().Active(s.plan.ID)
		if err != nil && !errors.Is(err, agents.ErrNotFound) {
			return err
		}
		out.ActiveCheckpointID = active.ID
		if out.ToolCallsAfter, err = tx.Invocations().CountAfter(s.plan.ID, cp.Seq); err != nil {
			return err
		}
		out.CheckpointsRemaining, err = tx.Checkpoints().Count(s.plan.ID)
		return err
	})
	out.Messages = append([]string{"Rollback completed successfully."}, s.notices...)
	if out.DryRun {
		out.Messages = append([]string{"Nothing was changed (dry run)."}, s.notices...)
	}
	return out, err
}
