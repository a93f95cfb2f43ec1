package metastore

import (
	"fmt"

	agents "github.com/cleveragents/agents"
)

// Steps is the repository of the steps of plans. Plans.Insert makes them.
type Steps struct{ tx *Tx }

const stepColumns = "step_id, tool, resource, with_json, on_failure, continue_on_failure, status, before_checkpoint_id, after_checkpoint_id, error"

// Update stores the record of a step's last run: status, checkpoints, error.
func (r Steps) Update(planID string, s agents.Step) error {
	return r.tx.change(fmt.Sprintf("step %s of plan %s", clip(s.ID), clip(planID)),
		"UPDATE plan_steps SET status = ?, before_checkpoint_id = ?, after_checkpoint_id = ?, error = ? WHERE plan_id = ? AND step_id = ?",
		string(s.Status), s.BeforeCheckpointID, s.AfterCheckpointID, s.Error, planID, s.ID)
}

// List returns the plan's steps in their order.
func (r Steps) List(planID string) ([]agents.Step, error) {
	return selectAll(r.tx, func(row scanner) (agents.Step, error) {
		var s agents.Step
		err := row.Scan(stepFields(&s)...)
		return s, err
	}, "SELECT "+stepColumns+" FROM plan_steps WHERE plan_id = ? ORDER BY position", planID)
}

func (r Steps) insert(planID string, position int, s agents.Step) error {
	if s.ID == "" {
		return fmt.Errorf("step %d of plan %s has no id: %w", position+1, planID, agents.ErrInvalid)
	}
	if s.Status == "" {
		s.Status = agents.StepPending
	}
	with, err := encode(s.With)
	if err != nil {
		return err
	}
	return r.tx.insert(fmt.Sprintf("step %s of plan %s", clip(s.ID), planID),
		"INSERT INTO plan_steps (plan_id, position, "+stepColumns+") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
		planID, position, s.ID, s.Tool, s.Resource, with, string(s.OnFailure), s.Continue,
		string(s.Status), s.BeforeCheckpointID, s.AfterCheckpointID, s.Error)
}

func stepFields(s *agents.Step) []any {
	return []any{
		&s.ID, &s.Tool, &s.Resource, jsonColumn(&s.With), &s.OnFailure, &s.Continue,
		&s.Status, &s.BeforeCheckpointID, &s.AfterCheckpointID, &s.Error,
	}
}
