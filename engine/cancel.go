package engine

import (
	"context"
	"slices"

	agents "github.com/cleveragents/agents"
)

// Cancel ends a plan without applying it. Its sandboxes stay unless the
// cleanup policy is on_terminal or Discard asks; unapplied work is archived
// before they go, and the result names the command that brings it back.
func (e *Engine) Cancel(ctx context.Context, req CancelRequest) (agents.CancelResult, error) {
	s, err := e.open(ctx, req.Plan, "plan cancel")
	if err != nil {
		return agents.CancelResult{}, err
	}
	defer s.close()
	out := agents.CancelResult{Plan: s.plan, Reason: req.Reason}
	if s.plan.State == agents.PlanCancelled && !req.Discard {
		return out, s.refused("be cancelled again; --discard archives and removes its sandboxes")
	}
	if s.plan.State == agents.PlanApplied {
		return out, s.refused("be cancelled")
	}
	discard := req.Discard || e.set.Cleanup == CleanOnTerminal
	var archived *agents.Archive
	if discard {
		if archived, err = s.archiveUnapplied(ctx); err != nil {
			return out, err
		}
	}
	if s.plan.State != agents.PlanCancelled {
		if err := s.move(ctx, agents.PhaseExecute, agents.PlanCancelled, nil); err != nil {
			return out, err
		}
		s.event(ctx, "plan.cancelled", "plan cancelled: "+req.Reason, nil)
	}
	out.Plan = s.plan
	if !discard {
		for _, b := range s.boxes {
			out.Sandboxes = append(out.Sandboxes, agents.CancelledSandbox{Resource: b.Resource().Name, Status: b.Status(), Kept: true})
		}
		if len(s.boxes) > 0 {
			out.Recovery = []string{"agents plan rollback " + s.plan.ID + " CHECKPOINT   # reopens the plan", "agents cleanup   # archives and removes it"}
		}
		return out, nil
	}
	boxes := slices.Clone(s.boxes)
	if archived != nil {
		out.Recovery = []string{archived.Restore}
	}
	if slices.ContainsFunc(boxes, (*box).applied) {
		out.Recovery = append(out.Recovery, "agents plan undo "+s.plan.ID+"   # takes back what was applied")
	}
	_, err = s.removeAll(ctx)
	for _, b := range boxes {
		out.Sandboxes = append(out.Sandboxes, agents.CancelledSandbox{Resource: b.Resource().Name, Status: b.Status(), Kept: b.Status().Live()})
	}
	return out, err
}
