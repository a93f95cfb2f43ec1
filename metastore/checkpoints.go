package metastore

import (
	"fmt"
	"slices"
	"time"

	agents "github.com/cleveragents/agents"
)

// Checkpoints is the repository of checkpoints: their rows, one ref for each
// sandbox, and the triggers that found them (checkpointing.md, "Database
// Schema"). A row never changes, apart from the note that its payload is
// damaged.
type Checkpoints struct{ tx *Tx }

const checkpointColumns = "c.checkpoint_id, c.plan_id, c.seq, c.sandbox_ref, c.decision_id, c.checkpoint_type, c.resource_id, " +
	"c.filesystem_path, c.size_bytes, c.created_at, c.metadata_json, c.damaged"

// Insert stores a checkpoint with its refs, gives it the plan's next Seq, and
// makes it the one that the plan stands on.
func (r Checkpoints) Insert(cp *agents.Checkpoint) error {
	if err := r.tx.setID("checkpoint", &cp.ID); err != nil {
		return err
	}
	types := []agents.CheckpointType{agents.CheckpointPreWrite, agents.CheckpointPostStep, agents.CheckpointManual}
	if !slices.Contains(types, cp.Type) {
		return fmt.Errorf("checkpoint type %q: want one of %v: %w", clip(string(cp.Type)), types, agents.ErrInvalid)
	}
	r.tx.setTime(&cp.CreatedAt)
	if err := r.tx.change("plan "+clip(cp.PlanID),
		"UPDATE v3_plans SET checkpoint_seq = checkpoint_seq + 1, active_checkpoint_id = ? WHERE plan_id = ?", cp.ID, cp.PlanID); err != nil {
		return err
	}
	seq, err := r.tx.Plans().lastSeq(cp.PlanID)
	if err != nil {
		return err
	}
	cp.Seq, cp.Active = seq, true
	return r.insertRow(cp)
}

func (r Checkpoints) insertRow(cp *agents.Checkpoint) error {
	metadata, err := encode(metadataJSON(cp.Metadata))
	if err != nil {
		return err
	}
	if err := r.tx.insert("checkpoint "+cp.ID,
		`INSERT INTO checkpoint_metadata (checkpoint_id, plan_id, decision_id, checkpoint_type, resource_id, sandbox_ref,
		filesystem_path, size_bytes, created_at, metadata_json, seq, damaged) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		cp.ID, cp.PlanID, textOrNull(cp.DecisionID), string(cp.Type), textOrNull(cp.ResourceID), cp.SandboxRef,
		cp.FilesystemPath, cp.SizeBytes, stamp(cp.CreatedAt), metadata, cp.Seq, cp.Damaged); err != nil {
		return err
	}
	for i, ref := range cp.Refs {
		if err := r.tx.insert("ref of checkpoint "+cp.ID+" to sandbox "+ref.SandboxID,
			"INSERT INTO checkpoint_refs (checkpoint_id, position, sandbox_id, resource_id, ref, size_bytes) VALUES (?, ?, ?, ?, ?, ?)",
			cp.ID, i, ref.SandboxID, ref.ResourceID, ref.Ref, ref.SizeBytes); err != nil {
			return err
		}
	}
	return nil
}

// Get returns the checkpoint with that whole id.
func (r Checkpoints) Get(id string) (agents.Checkpoint, error) {
	planID, err := selectOne(r.tx, "checkpoint "+clip(id), scanValue[string],
		"SELECT plan_id FROM checkpoint_metadata WHERE checkpoint_id = ?", id)
	if err != nil {
		return agents.Checkpoint{}, err
	}
	all, err := r.where(planID, "c.checkpoint_id = ?", id)
	if err != nil || len(all) == 0 {
		return agents.Checkpoint{}, err
	}
	return all[0], nil
}

// List returns the plan's checkpoints in the order of Seq, each with its refs
// and their resources' names, and with Active and Pinned filled in.
func (r Checkpoints) List(planID string) ([]agents.Checkpoint, error) {
	return r.where(planID, "1 = 1")
}

// Active returns the checkpoint that the plan stands on; agents.ErrNotFound
// when it has none.
func (r Checkpoints) Active(planID string) (agents.Checkpoint, error) {
	id, err := selectOne(r.tx, "plan "+clip(planID), scanValue[string],
		"SELECT COALESCE(active_checkpoint_id, '') FROM v3_plans WHERE plan_id = ?", planID)
	if err != nil {
		return agents.Checkpoint{}, err
	}
	if id == "" {
		return agents.Checkpoint{}, notFound("checkpoint of plan " + planID)
	}
	return r.Get(id)
}

// SetActive says which of its checkpoints the plan stands on now, after a
// rollback to it. One of another plan is ValidationError.
func (r Checkpoints) SetActive(planID, id string) error {
	if _, err := r.Resolve(planID, id); err != nil {
		return err
	}
	return r.tx.change("plan "+planID, "UPDATE v3_plans SET active_checkpoint_id = ? WHERE plan_id = ?", id, planID)
}

// Resolve returns the checkpoint of the plan that ref, a whole id or a unique
// prefix, means. planID is a whole id. What there is not is agents.ErrNotFound,
// and one of another plan is of kind ValidationError and wraps
// agents.ErrInvalid (checkpointing.md, "Error Cases").
func (r Checkpoints) Resolve(planID, ref string) (agents.Checkpoint, error) {
	from, to, ok := idRange(ref)
	if !ok {
		return agents.Checkpoint{}, r.unknown(planID, ref)
	}
	own, err := r.between(from, to, "plan_id = ?", planID)
	if err != nil {
		return agents.Checkpoint{}, err
	}
	if len(own) == 0 {
		foreign, err := r.between(from, to, "plan_id <> ?", planID)
		if err != nil {
			return agents.Checkpoint{}, err
		}
		if len(foreign) > 0 {
			return agents.Checkpoint{}, foreignCheckpoint(planID, ref)
		}
		return agents.Checkpoint{}, r.unknown(planID, ref)
	}
	if len(own) > 1 {
		return agents.Checkpoint{}, ambiguous("checkpoint", ref, own)
	}
	return r.Get(own[0].id)
}

func (r Checkpoints) between(from, to, condition, planID string) ([]candidate, error) {
	return selectAll(r.tx, func(row scanner) (candidate, error) {
		var id string
		err := row.Scan(&id)
		return candidate{id, id}, err
	}, "SELECT checkpoint_id FROM checkpoint_metadata WHERE checkpoint_id >= ? AND checkpoint_id <= ? AND "+condition+" ORDER BY seq LIMIT ?",
		from, to, planID, maxCandidates+1)
}

func (r Checkpoints) unknown(planID, ref string) error {
	return &agents.Error{
		Message: "Not found: checkpoint " + clip(ref),
		Hint:    "see what there is with: agents plan checkpoint list " + planID,
		Err:     agents.ErrNotFound,
	}
}

func foreignCheckpoint(planID, ref string) error {
	return &agents.Error{
		Kind:    agents.ValidationError,
		Message: fmt.Sprintf("checkpoint %s does not belong to plan %s", ref, planID),
		Hint:    "see the plan's own with: agents plan checkpoint list " + planID,
		Err:     agents.ErrInvalid,
	}
}

// Delete removes a checkpoint with its refs and events. The one that the plan
// stands on is agents.ErrBlocked.
func (r Checkpoints) Delete(id string) error {
	cp, err := r.Get(id)
	if err != nil {
		return err
	}
	if cp.Active {
		return blocked("checkpoint "+id, "the state that plan "+cp.PlanID+" stands on", "go to another checkpoint first: agents plan rollback "+cp.PlanID+" CHECKPOINT")
	}
	return r.tx.change("checkpoint "+id, "DELETE FROM checkpoint_metadata WHERE checkpoint_id = ?", id)
}

// MarkDamaged notes that the checkpoint's payload failed its verification.
func (r Checkpoints) MarkDamaged(id string) error {
	return r.tx.change("checkpoint "+clip(id), "UPDATE checkpoint_metadata SET damaged = ? WHERE checkpoint_id = ?", true, id)
}

// Count returns how many checkpoints the plan has.
func (r Checkpoints) Count(planID string) (int, error) {
	return selectOne(r.tx, "plan "+clip(planID), scanValue[int], "SELECT COUNT(*) FROM checkpoint_metadata WHERE plan_id = ?", planID)
}

// IDs returns the ids of the checkpoints of all plans.
func (r Checkpoints) IDs() ([]string, error) {
	return selectAll(r.tx, scanValue[string], "SELECT checkpoint_id FROM checkpoint_metadata")
}

// CheckpointEvent says that an automatic trigger fired and which checkpoint
// holds the state of that moment.
type CheckpointEvent struct {
	PlanID       string
	CheckpointID string
	Trigger      agents.Trigger
	CreatedAt    time.Time
}

// AddEvent records that the trigger fired now and found the state that the
// checkpoint with that whole id holds.
func (r Checkpoints) AddEvent(id string, trigger agents.Trigger) error {
	if !slices.Contains(agents.Triggers(), trigger) {
		return fmt.Errorf("checkpoint trigger %q: want one of %v: %w", clip(string(trigger)), agents.Triggers(), agents.ErrInvalid)
	}
	return r.tx.change("checkpoint "+clip(id),
		"INSERT INTO checkpoint_events (plan_id, checkpoint_id, trigger_name, created_at) SELECT plan_id, checkpoint_id, ?, ? FROM checkpoint_metadata WHERE checkpoint_id = ?",
		string(trigger), stamp(r.tx.now), id)
}

// Events returns what the plan's triggers found, oldest first.
func (r Checkpoints) Events(planID string) ([]CheckpointEvent, error) {
	return selectAll(r.tx, func(row scanner) (e CheckpointEvent, err error) {
		return e, row.Scan(&e.PlanID, &e.CheckpointID, &e.Trigger, timeColumn(&e.CreatedAt))
	}, "SELECT plan_id, checkpoint_id, trigger_name, created_at FROM checkpoint_events WHERE plan_id = ? ORDER BY ord", planID)
}

// where returns those of the plan's checkpoints that fit the condition, whole.
func (r Checkpoints) where(planID, condition string, args ...any) ([]agents.Checkpoint, error) {
	args = append([]any{planID}, args...)
	all, err := selectAll(r.tx, scanCheckpoint,
		"SELECT "+checkpointColumns+", CASE WHEN c.checkpoint_id = p.active_checkpoint_id THEN 1 ELSE 0 END"+
			" FROM checkpoint_metadata c JOIN v3_plans p ON p.plan_id = c.plan_id WHERE c.plan_id = ? AND "+condition+" ORDER BY c.seq", args...)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	if err := r.pin(planID, all); err != nil {
		return nil, err
	}
	byID := make(map[string]*agents.Checkpoint, len(all))
	for i := range all {
		byID[all[i].ID] = &all[i]
	}
	_, err = selectAll(r.tx, func(row scanner) (struct{}, error) {
		var id string
		var ref agents.CheckpointRef
		err := row.Scan(&id, &ref.SandboxID, &ref.ResourceID, &ref.Resource, &ref.Ref, &ref.SizeBytes)
		if cp := byID[id]; cp != nil {
			cp.Refs = append(cp.Refs, ref)
		}
		return struct{}{}, err
	}, `SELECT c.checkpoint_id, f.sandbox_id, f.resource_id, COALESCE(u.name, ''), f.ref, f.size_bytes
		FROM checkpoint_metadata c JOIN checkpoint_refs f ON f.checkpoint_id = c.checkpoint_id
		LEFT JOIN plan_resources u ON u.plan_id = c.plan_id AND u.resource_id = f.resource_id
		WHERE c.plan_id = ? AND `+condition+" ORDER BY c.seq, f.position", args...)
	return all, err
}

// pin marks the checkpoints that retention must keep: those that a decision
// names or that name one, the one that the plan stands on, and the resume
// point, which is what the last step that was done left behind.
func (r Checkpoints) pin(planID string, all []agents.Checkpoint) error {
	ids, err := selectAll(r.tx, scanValue[string],
		`SELECT checkpoint_id FROM decisions WHERE plan_id = ?
		UNION SELECT s.after_checkpoint_id FROM plan_steps s WHERE s.plan_id = ? AND s.position =
			(SELECT MAX(position) FROM plan_steps WHERE plan_id = ? AND status = 'done' AND after_checkpoint_id <> '')`,
		planID, planID, planID)
	if err != nil {
		return err
	}
	for i := range all {
		all[i].Pinned = all[i].Active || all[i].DecisionID != "" || slices.Contains(ids, all[i].ID)
	}
	return nil
}

// metadataJSON is the checkpoint's metadata with its free part in a form that
// JSON can hold.
func metadataJSON(m agents.CheckpointMetadata) agents.CheckpointMetadata {
	m.Extra = convertMap(m.Extra, escape)
	return m
}

func scanCheckpoint(row scanner) (agents.Checkpoint, error) {
	var cp agents.Checkpoint
	err := row.Scan(&cp.ID, &cp.PlanID, &cp.Seq, &cp.SandboxRef, textColumn(&cp.DecisionID), &cp.Type, textColumn(&cp.ResourceID),
		&cp.FilesystemPath, &cp.SizeBytes, timeColumn(&cp.CreatedAt), jsonColumn(&cp.Metadata), &cp.Damaged, &cp.Active)
	cp.Metadata.Extra = convertMap(cp.Metadata.Extra, unescape)
	return cp, err
}
