package fsx

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	agents "github.com/cleveragents/agents"
)

// An edit of the same size whose time was put back shows in the ctime alone,
// and a file gets another one when it is moved. So a Commit notes the ctimes
// that the files then have, beside the journal, for an Undo much later.

func (m *Move) arrivedFile() string { return filepath.Join(m.dir, "move-arrived") }

// arrives reports whether the step brings a file or link whose ctime is noted.
func (s *moveStep) arrives() bool {
	return (s.Do == verbNew || s.Do == verbSwap) && s.After.Kind != KindDir
}

// noteArrived writes the ctimes of what arrived, by step; zero = not noted.
func (m *Move) noteArrived() error {
	if err := m.openTrees(); err != nil {
		return err
	}
	defer m.closeTrees()
	ctimes := make([]int64, len(m.j.Steps))
	for i := range m.j.Steps {
		s := &m.j.Steps[i]
		if !s.arrives() {
			continue
		}
		// What is another thing already is found by every Undo.
		if id, _, err := m.roots[s.Root].identify(string(s.Path)); err == nil && s.isAfter(id) {
			ctimes[i] = id.Ctime
		}
	}
	data, err := json.Marshal(ctimes)
	if err != nil {
		return err
	}
	return Publish(m.arrivedFile(), data, 0o600)
}

// readArrived gives the steps of a committed Move the ctimes that were noted.
// A journal of before there were any has none.
func (m *Move) readArrived() ([]int64, error) {
	data, err := os.ReadFile(m.arrivedFile())
	if errors.Is(err, fs.ErrNotExist) {
		return make([]int64, len(m.j.Steps)), nil
	}
	if err != nil {
		return nil, err
	}
	var ctimes []int64
	if json.Unmarshal(data, &ctimes) != nil || len(ctimes) != len(m.j.Steps) {
		return nil, fmt.Errorf("%s: %w", m.arrivedFile(), agents.ErrDamaged)
	}
	return ctimes, nil
}

// checkDatabase refuses to take back a database's file from under a program
// that has it open, or away from a log that is newer.
func (m *Move) checkDatabase(s *moveStep, arrived map[place]bool) error {
	at := filepath.Join(m.roots[s.Root].path, string(s.Path))
	if !IsDatabase(at) {
		return nil
	}
	if DatabaseInUse(at) {
		return fmt.Errorf("a program has the database open: %w", agents.ErrConflict)
	}
	for _, end := range DatabaseLogs() {
		if arrived[place{s.Root, string(s.Path) + end}] {
			continue // compared by itself
		}
		if log, err := Identify(at + end); err != nil || log.Size > 0 {
			return errors.Join(err, fmt.Errorf("the database has a log, %s, which is newer: %w", showPath(string(s.Path)+end), agents.ErrConflict))
		}
	}
	return nil
}
