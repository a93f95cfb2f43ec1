package metastore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	agents "github.com/cleveragents/agents"
)

// Tx is one unit of work over all repositories, bound to the context of the
// Read or Write that made it. It serves one goroutine and ends with that call.
//
// The repositories agree on this. Insert fills an empty ID and empty times
// from Now; a taken id or name is agents.ErrExists. What is not there is
// agents.ErrNotFound. Resolve takes what a user typed: a whole id, a unique
// prefix of one (agents.MinPrefix or more characters, in either case), or a
// name where the thing has one; it never guesses: several candidates are
// agents.ErrInvalid and the message lists them.
type Tx struct {
	ctx   context.Context
	conn  *sql.Conn
	path  string
	write bool
	now   time.Time
}

// Now is the moment of the unit of work, in UTC, the same for all its rows.
func (tx *Tx) Now() time.Time { return tx.now }

// Resources returns the repository of resources.
func (tx *Tx) Resources() Resources { return Resources{tx} }

// Projects returns the repository of projects and their links.
func (tx *Tx) Projects() Projects { return Projects{tx} }

// Actions returns the repository of actions.
func (tx *Tx) Actions() Actions { return Actions{tx} }

// Plans returns the repository of plans.
func (tx *Tx) Plans() Plans { return Plans{tx} }

// Steps returns the repository of the steps of plans.
func (tx *Tx) Steps() Steps { return Steps{tx} }

// Sandboxes returns the repository of sandboxes.
func (tx *Tx) Sandboxes() Sandboxes { return Sandboxes{tx} }

// Checkpoints returns the repository of checkpoints (checkpointing.md,
// "Dependency Injection": the unit of work's checkpoints property).
func (tx *Tx) Checkpoints() Checkpoints { return Checkpoints{tx} }

// Invocations returns the repository of tool calls and their changes.
func (tx *Tx) Invocations() Invocations { return Invocations{tx} }

// Decisions returns the repository of decisions.
func (tx *Tx) Decisions() Decisions { return Decisions{tx} }

// Events returns the log.
func (tx *Tx) Events() Events { return Events{tx} }

// Locks returns the notes about held locks.
func (tx *Tx) Locks() Locks { return Locks{tx} }

// exec runs one statement that changes rows and returns how many it changed.
func (tx *Tx) exec(statement string, args ...any) (int, error) {
	switch {
	case tx.conn == nil:
		return 0, errEnded()
	case !tx.write:
		return 0, fmt.Errorf("change within a reading unit of work: %w", agents.ErrState)
	}
	res, err := tx.conn.ExecContext(tx.ctx, bind(statement), args...)
	if err != nil {
		return 0, explain(tx.path, err)
	}
	n, err := res.RowsAffected()
	return int(n), err
}

// insert runs an insert of the thing that what names.
func (tx *Tx) insert(what, statement string, args ...any) error {
	_, err := tx.exec(statement, args...)
	switch {
	case err == nil:
		return nil
	case isTaken(err):
		return &agents.Error{Message: what + ": already exists", Err: agents.ErrExists}
	case isDangling(err):
		return &agents.Error{Message: what + ": refers to something that is not there", Err: agents.ErrNotFound}
	}
	return fmt.Errorf("store %s: %w", what, err)
}

// change runs an update or delete of the one thing that what names.
func (tx *Tx) change(what, statement string, args ...any) error {
	n, err := tx.exec(statement, args...)
	switch {
	case isTaken(err):
		return &agents.Error{Message: what + ": its name is taken", Err: agents.ErrExists}
	case err != nil:
		return fmt.Errorf("change %s: %w", what, err)
	case n == 0:
		return notFound(what)
	}
	return nil
}

// scanner is a row to read: *sql.Row or *sql.Rows.
type scanner interface{ Scan(dest ...any) error }

// selectAll reads all rows of a query.
func selectAll[T any](tx *Tx, scan func(scanner) (T, error), query string, args ...any) ([]T, error) {
	if tx.conn == nil {
		return nil, errEnded()
	}
	rows, err := tx.conn.QueryContext(tx.ctx, bind(query), args...)
	if err != nil {
		return nil, explain(tx.path, err)
	}
	defer rows.Close()
	var out []T
	for rows.Next() {
		v, err := scan(rows)
		if err != nil {
			return nil, explain(tx.path, err)
		}
		out = append(out, v)
	}
	return out, explain(tx.path, rows.Err())
}

// selectOne reads the one row of the thing that what names.
func selectOne[T any](tx *Tx, what string, scan func(scanner) (T, error), query string, args ...any) (T, error) {
	var zero T
	if tx.conn == nil {
		return zero, errEnded()
	}
	v, err := scan(tx.conn.QueryRowContext(tx.ctx, bind(query), args...))
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return zero, notFound(what)
	case err != nil:
		return zero, fmt.Errorf("read %s: %w", what, explain(tx.path, err))
	}
	return v, nil
}

// scanValue reads a row of one column.
func scanValue[T any](row scanner) (T, error) {
	var v T
	err := row.Scan(&v)
	return v, err
}

func errEnded() error {
	return fmt.Errorf("unit of work has ended: %w", agents.ErrState)
}

func notFound(what string) error {
	return &agents.Error{Message: what + ": not found", Err: agents.ErrNotFound}
}

// setID gives a new row its id, or checks the one it has.
func (tx *Tx) setID(what string, id *string) error {
	if *id == "" {
		*id = agents.NewID(tx.now)
	}
	if !agents.ValidID(*id) {
		return fmt.Errorf("%s id %q: %w", what, clip(*id), agents.ErrInvalid)
	}
	return nil
}

// setTime gives a new row its time, unless it has one.
func (tx *Tx) setTime(t *time.Time) {
	if t.IsZero() {
		*t = tx.now
	}
}
