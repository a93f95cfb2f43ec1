package metastore

import (
	agents "github.com/cleveragents/agents"
)

// Actions is the repository of actions.
type Actions struct{ tx *Tx }

const actionColumns = "action_id, name, description, arguments_json, require_checkpoints, read_only, steps_json, created_at"

// Insert stores a new action.
func (r Actions) Insert(a *agents.Action) error {
	if err := r.tx.setID("action", &a.ID); err != nil {
		return err
	}
	r.tx.setTime(&a.CreatedAt)
	arguments, err := encode(a.Arguments)
	if err != nil {
		return err
	}
	steps, err := encode(a.Steps)
	if err != nil {
		return err
	}
	return r.tx.insert("action "+a.Name, "INSERT INTO actions ("+actionColumns+") VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
		a.ID, a.Name, a.Description, arguments, a.RequireCheckpoints, a.ReadOnly, steps, stamp(a.CreatedAt))
}

// Get returns the action with that whole id.
func (r Actions) Get(id string) (agents.Action, error) {
	return selectOne(r.tx, "action "+id, scanAction, "SELECT "+actionColumns+" FROM actions WHERE action_id = ?", id)
}

// ByName returns the action with that name.
func (r Actions) ByName(name string) (agents.Action, error) {
	return selectOne(r.tx, "action "+name, scanAction, "SELECT "+actionColumns+" FROM actions WHERE name = ?", name)
}

// Resolve returns the action that ref means.
func (r Actions) Resolve(ref string) (agents.Action, error) {
	id, err := r.tx.resolve(actionKind(), ref, r.tx.named(actionKind()))
	if err != nil {
		return agents.Action{}, err
	}
	return r.Get(id)
}

// List returns all actions by name.
func (r Actions) List() ([]agents.Action, error) {
	return selectAll(r.tx, scanAction, "SELECT "+actionColumns+" FROM actions ORDER BY name")
}

func scanAction(row scanner) (agents.Action, error) {
	var a agents.Action
	err := row.Scan(&a.ID, &a.Name, &a.Description, jsonColumn(&a.Arguments), &a.RequireCheckpoints, &a.ReadOnly,
		jsonColumn(&a.Steps), timeColumn(&a.CreatedAt))
	for _, s := range a.Steps {
		plainNumbers(s.With)
	}
	return a, err
}
