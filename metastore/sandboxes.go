package metastore

import (
	"fmt"

	agents "github.com/cleveragents/agents"
)

// Sandboxes is the repository of sandboxes.
type Sandboxes struct{ tx *Tx }

const sandboxColumns = "sandbox_id, plan_id, resource_id, strategy, status, path, private_dir, metadata_json, base_ref, sealed_ref, apply_state, created_at, updated_at"

// present is the condition that a sandbox stands for its resource: it is not
// cleaned up, or it is the last one that there was.
const present = `(s.status <> 'CLEANED_UP' OR NOT EXISTS (
	SELECT 1 FROM sandboxes o WHERE o.plan_id = s.plan_id AND o.resource_id = s.resource_id
	AND (o.status <> 'CLEANED_UP' OR o.created_at > s.created_at OR o.created_at = s.created_at AND o.sandbox_id > s.sandbox_id)))`

// Insert stores a new sandbox. While the plan has one for the resource that is
// not cleaned up, it is agents.ErrExists.
func (r Sandboxes) Insert(s *agents.SandboxRecord) error {
	if err := r.tx.setID("sandbox", &s.ID); err != nil {
		return err
	}
	r.tx.setTime(&s.CreatedAt)
	r.tx.setTime(&s.UpdatedAt)
	metadata, err := encodeMap(s.Metadata)
	if err != nil {
		return err
	}
	return r.tx.insert(fmt.Sprintf("sandbox of plan %s for resource %s", s.PlanID, s.ResourceID),
		"INSERT INTO sandboxes ("+sandboxColumns+") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
		s.ID, s.PlanID, s.ResourceID, string(s.Strategy), string(s.Status), []byte(s.Path), []byte(s.PrivateDir), metadata,
		s.BaseRef, s.SealedRef, string(s.ApplyState), stamp(s.CreatedAt), stamp(s.UpdatedAt))
}

// Update stores everything but the sandbox's id, plan, resource and time of
// creation, and sets UpdatedAt to Now.
func (r Sandboxes) Update(s *agents.SandboxRecord) error {
	metadata, err := encodeMap(s.Metadata)
	if err != nil {
		return err
	}
	if err := r.tx.change("sandbox "+s.ID,
		`UPDATE sandboxes SET strategy = ?, status = ?, path = ?, private_dir = ?, metadata_json = ?, base_ref = ?,
		sealed_ref = ?, apply_state = ?, updated_at = ? WHERE sandbox_id = ?`,
		string(s.Strategy), string(s.Status), []byte(s.Path), []byte(s.PrivateDir), metadata, s.BaseRef,
		s.SealedRef, string(s.ApplyState), stamp(r.tx.now), s.ID); err != nil {
		return err
	}
	s.UpdatedAt = r.tx.now
	return nil
}

// Get returns the sandbox with that whole id.
func (r Sandboxes) Get(id string) (agents.SandboxRecord, error) {
	return selectOne(r.tx, "sandbox "+clip(id), scanSandbox, "SELECT "+sandboxColumns+" FROM sandboxes WHERE sandbox_id = ?", id)
}

// ByPlan returns the plan's sandboxes, oldest first, one a resource: the one
// that is not cleaned up, else the last one that there was.
func (r Sandboxes) ByPlan(planID string) ([]agents.SandboxRecord, error) {
	return selectAll(r.tx, scanSandbox,
		"SELECT "+sandboxColumns+" FROM sandboxes s WHERE plan_id = ? AND "+present+" ORDER BY created_at, sandbox_id", planID)
}

// ByResource returns the plan's sandbox of that resource, chosen as ByPlan does.
func (r Sandboxes) ByResource(planID, resourceID string) (agents.SandboxRecord, error) {
	return selectOne(r.tx, fmt.Sprintf("sandbox of plan %s for resource %s", clip(planID), clip(resourceID)), scanSandbox,
		"SELECT "+sandboxColumns+" FROM sandboxes s WHERE plan_id = ? AND resource_id = ? AND "+present, planID, resourceID)
}

// Live returns the sandboxes of all plans that exist on disk
// (SandboxStatus.Live), oldest first.
func (r Sandboxes) Live() ([]agents.SandboxRecord, error) {
	all, err := r.All()
	if err != nil {
		return nil, err
	}
	var live []agents.SandboxRecord
	for _, s := range all {
		if s.Status.Live() {
			live = append(live, s)
		}
	}
	return live, nil
}

// All returns the sandboxes of all plans that are not cleaned up, those that
// are still to be created too, oldest first.
func (r Sandboxes) All() ([]agents.SandboxRecord, error) {
	return selectAll(r.tx, scanSandbox,
		"SELECT "+sandboxColumns+" FROM sandboxes WHERE status <> ? ORDER BY created_at, sandbox_id", string(agents.SandboxCleanedUp))
}

func scanSandbox(row scanner) (agents.SandboxRecord, error) {
	var s agents.SandboxRecord
	err := row.Scan(&s.ID, &s.PlanID, &s.ResourceID, &s.Strategy, &s.Status, textColumn(&s.Path), textColumn(&s.PrivateDir),
		mapColumn(&s.Metadata), &s.BaseRef, &s.SealedRef, &s.ApplyState, timeColumn(&s.CreatedAt), timeColumn(&s.UpdatedAt))
	return s, err
}
