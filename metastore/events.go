package metastore

import (
	agents "github.com/cleveragents/agents"
)

// Events is the log of what happened to plans. Entries never change.
type Events struct{ tx *Tx }

const eventColumns = "event_id, plan_id, kind, message, data_json, created_at"

// Append adds an entry. One without a plan belongs to none.
func (r Events) Append(e *agents.Event) error {
	if err := r.tx.setID("event", &e.ID); err != nil {
		return err
	}
	r.tx.setTime(&e.CreatedAt)
	data, err := encodeMap(e.Data)
	if err != nil {
		return err
	}
	return r.tx.insert("event "+e.ID, "INSERT INTO events ("+eventColumns+") VALUES (?, ?, ?, ?, ?, ?)",
		e.ID, textOrNull(e.PlanID), e.Kind, e.Message, data, stamp(e.CreatedAt))
}

// List returns the plan's entries in the order in which they were added; for
// "" those that belong to no plan.
func (r Events) List(planID string) ([]agents.Event, error) {
	if planID == "" {
		return selectAll(r.tx, scanEvent, "SELECT "+eventColumns+" FROM events WHERE plan_id IS NULL ORDER BY ord")
	}
	return selectAll(r.tx, scanEvent, "SELECT "+eventColumns+" FROM events WHERE plan_id = ? ORDER BY ord", planID)
}

func scanEvent(row scanner) (agents.Event, error) {
	var e agents.Event
	err := row.Scan(&e.ID, textColumn(&e.PlanID), &e.Kind, &e.Message, mapColumn(&e.Data), timeColumn(&e.CreatedAt))
	return e, err
}
