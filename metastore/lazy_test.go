package metastore

import (
	"errors"
	"path/filepath"
	"testing"

	agents "github.com/cleveragents/agents"
)

// TestWriteLazily: the unit is whole and seen by others at once, a failed one
// leaves nothing, and only a Write waits for the disk, also on a connection
// that was lazy before.
func TestWriteLazily(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agents.db")
	s, err := Open(t.Context(), path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	const normal, full = 1, 2
	level := func(want int, kind string) func(tx *Tx) error {
		return func(tx *Tx) error {
			var got int
			if err := tx.conn.QueryRowContext(t.Context(), "PRAGMA synchronous").Scan(&got); err != nil {
				return err
			}
			if got != want {
				t.Errorf("%s: synchronous is %d, want %d", kind, got, want)
			}
			return tx.Events().Append(&agents.Event{Kind: kind})
		}
	}
	for range 2 {
		if err := s.WriteLazily(t.Context(), level(normal, "lazy")); err != nil {
			t.Fatal(err)
		}
		if err := s.Write(t.Context(), level(full, "durable")); err != nil {
			t.Fatal(err)
		}
	}
	failed := errors.New("no")
	err = s.WriteLazily(t.Context(), func(tx *Tx) error {
		return errors.Join(tx.Events().Append(&agents.Event{Kind: "failed"}), failed)
	})
	if !errors.Is(err, failed) {
		t.Errorf("got %v", err)
	}
	other, err := Open(t.Context(), path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	var kinds []string
	err = other.Read(t.Context(), func(tx *Tx) error {
		rows, err := tx.conn.QueryContext(t.Context(), "SELECT kind FROM events ORDER BY rowid")
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var kind string
			if err := rows.Scan(&kind); err != nil {
				return err
			}
			kinds = append(kinds, kind)
		}
		return rows.Err()
	})
	if err != nil || len(kinds) != 4 || kinds[0] != "lazy" || kinds[3] != "durable" {
		t.Errorf("another store sees %q, %v", kinds, err)
	}
}
