package metastore

import (
	"time"
)

// Locks keeps notes about who holds which lock, so that a message can explain
// a wait. The held lock files are the truth: a note may outlive its holder, and
// nothing may be decided by it.
type Locks struct{ tx *Tx }

// LockNote says who took a lock.
type LockNote struct {
	Name       string // the lock file's name
	PlanID     string // the plan that it is about, or ""
	Holder     string // a sentence about the holder, with its process number
	AcquiredAt time.Time
}

// Put stores a note in place of an older one about the same lock. A zero
// AcquiredAt becomes Now.
func (r Locks) Put(n *LockNote) error {
	r.tx.setTime(&n.AcquiredAt)
	return r.tx.insert("note about lock "+n.Name,
		`INSERT INTO locks (name, plan_id, holder, acquired_at) VALUES (?, ?, ?, ?)
		ON CONFLICT (name) DO UPDATE SET plan_id = excluded.plan_id, holder = excluded.holder, acquired_at = excluded.acquired_at`,
		n.Name, n.PlanID, n.Holder, stamp(n.AcquiredAt))
}

// Drop removes the note about a lock. One that is not there is no error.
func (r Locks) Drop(name string) error {
	_, err := r.tx.exec("DELETE FROM locks WHERE name = ?", name)
	return err
}

// List returns all notes by name.
func (r Locks) List() ([]LockNote, error) {
	return selectAll(r.tx, func(row scanner) (n LockNote, err error) {
		return n, row.Scan(&n.Name, &n.PlanID, &n.Holder, timeColumn(&n.AcquiredAt))
	}, "SELECT name, plan_id, holder, acquired_at FROM locks ORDER BY name")
}
