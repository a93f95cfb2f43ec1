package metastore

import (
	agents "github.com/cleveragents/agents"
)

// Decisions is the repository of decisions.
type Decisions struct{ tx *Tx }

// The states of a decision.
const (
	DecisionActive     = "active"
	DecisionSuperseded = "superseded"
)

const decisionColumns = "decision_id, plan_id, parent_id, kind, question, choice, checkpoint_id, status, created_at"

// Insert stores a decision. One with a checkpoint belongs to that checkpoint of
// the plan; one without was made after all checkpoints that the plan has now.
// An empty Status becomes DecisionActive.
func (r Decisions) Insert(d *agents.Decision) error {
	if err := r.tx.setID("decision", &d.ID); err != nil {
		return err
	}
	r.tx.setTime(&d.CreatedAt)
	if d.Status == "" {
		d.Status = DecisionActive
	}
	seq, err := r.place(d)
	if err != nil {
		return err
	}
	return r.tx.insert("decision "+d.ID,
		"INSERT INTO decisions ("+decisionColumns+", made_seq) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
		d.ID, d.PlanID, d.ParentID, d.Kind, d.Question, d.Choice, d.CheckpointID, d.Status, stamp(d.CreatedAt), seq)
}

// place returns the decision's place among the plan's checkpoints.
func (r Decisions) place(d *agents.Decision) (int64, error) {
	if d.CheckpointID == "" {
		seq, err := r.tx.Plans().lastSeq(d.PlanID)
		return seq + 1, err
	}
	cp, err := r.tx.Checkpoints().Resolve(d.PlanID, d.CheckpointID)
	return cp.Seq, err
}

// Get returns the decision with that whole id.
func (r Decisions) Get(id string) (agents.Decision, error) {
	return selectOne(r.tx, "decision "+clip(id), scanDecision, "SELECT "+decisionColumns+" FROM decisions WHERE decision_id = ?", id)
}

// List returns the plan's decisions in the order in which they were stored,
// superseded ones too.
func (r Decisions) List(planID string) ([]agents.Decision, error) {
	return selectAll(r.tx, scanDecision, "SELECT "+decisionColumns+" FROM decisions WHERE plan_id = ? ORDER BY ord", planID)
}

// SupersedeAfter marks the plan's active decisions that were made after its
// checkpoint with that seq as superseded and returns how many there were. The
// decision that belongs to that checkpoint itself stays.
func (r Decisions) SupersedeAfter(planID string, seq int64) (int, error) {
	return r.tx.exec("UPDATE decisions SET status = ? WHERE plan_id = ? AND made_seq > ? AND status = ?",
		DecisionSuperseded, planID, seq, DecisionActive)
}

func scanDecision(row scanner) (agents.Decision, error) {
	var d agents.Decision
	err := row.Scan(&d.ID, &d.PlanID, &d.ParentID, &d.Kind, &d.Question, &d.Choice, &d.CheckpointID, &d.Status, timeColumn(&d.CreatedAt))
	return d, err
}
