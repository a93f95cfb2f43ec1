package fsx

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	agents "github.com/cleveragents/agents"
)

// Move is a change of many paths, all or none, with a journal that lets a
// later process take back what a killed one began. One goroutine at a time
// may use it.
//
// What is there is exchanged with what was staged in one system call, and what
// came out is looked at: if it is not what the caller saw, it goes back. It
// then waits in the hold folder, untouched, as the before-image. Whether a
// step was done is decided by inode numbers alone, so neither a kill nor a
// power loss between two steps can mislead Undo. Where an inode has to stay,
// its bits and times tell, and for bytes written in place their hashes.
type Move struct {
	dir     string // of the journal
	j       journal
	state   MoveState
	fresh   bool // prepared by this process and not yet run
	ran     bool // Run succeeded in this process
	undoing bool
	plain   bool // a test wants the way of file systems without rename flags
	bulk    bool // so much changes that whole file systems are synced
	roots   []*tree
	hold    *tree
	beside  besideMove
}

// besideMove is what a caller does beside the steps; nil = nothing.
type besideMove struct{ do, undo func() error }

// Beside has do called after all steps, before the Move can be committed, and
// undo before steps are taken back. Both must be fit to be called again, and
// undo also where do was not called. A loaded Move has to be told anew.
func (m *Move) Beside(do, undo func() error) { m.beside = besideMove{do, undo} }

func call(f func() error) error {
	if f == nil {
		return nil
	}
	return f()
}

// PrepareMove checks ops against what is on the disk and writes the intent
// into journalDir, durably, before anything of the roots is touched. A path
// that is not what its Before says is agents.ErrConflict (a *MoveError names
// it); ops that contradict each other are agents.ErrInvalid; a hold folder
// (made if missing) or staged file on another file system than the roots is
// agents.ErrUnsupported; a journalDir that has a Move already is
// agents.ErrExists. Paths are never resolved through symbolic links.
func PrepareMove(journalDir string, roots []string, hold string, ops []Op) (*Move, error) {
	journalDir, err := filepath.Abs(journalDir)
	if err != nil {
		return nil, err
	}
	if found, _, err := findJournal(journalDir); err != nil {
		return nil, err
	} else if found != "" {
		return nil, fmt.Errorf("prepare move: %s has the journal of another: %w", journalDir, agents.ErrExists)
	}
	m := &Move{dir: journalDir, state: MovePrepared, fresh: true}
	defer m.closeTrees()
	if err := m.prepare(roots, hold, ops); err != nil {
		return nil, errors.Join(err, m.abandon())
	}
	return m, nil
}

// abandon removes what a failed PrepareMove made: the journal first, so that
// none is left that points to a hold that is gone.
func (m *Move) abandon() error {
	if m.j.Hold == "" {
		return nil
	}
	if err := Remove(filepath.Join(m.dir, journalName(MovePrepared))); err != nil {
		return err
	}
	return RemoveAll(m.j.Hold)
}

func (m *Move) prepare(roots []string, hold string, ops []Op) error {
	if err := m.openHold(hold); err != nil {
		return fmt.Errorf("prepare move: %w", err)
	}
	for _, root := range roots {
		if err := m.addRoot(root); err != nil {
			return fmt.Errorf("prepare move: %w", err)
		}
	}
	p, err := planMove(m, ops)
	if err != nil {
		return err
	}
	m.j.Steps, m.j.Dirs = p.steps, p.dirList()
	if err := m.hold.sync(m); err != nil {
		return fmt.Errorf("prepare move: %w", err)
	}
	return m.j.write(m.dir)
}

// LoadMove returns the Move whose journal is in journalDir, or fs.ErrNotExist
// when there is none: an intent that was not written to its end counts as
// never begun. It finishes a Forget that was killed, unless late writes came
// since: such a Move is MoveForgotten, and left are KeepLate and Forget. A
// journal that fails its checksum is agents.ErrDamaged. A loaded Move can be
// undone, committed and forgotten, not run.
func LoadMove(journalDir string) (*Move, error) {
	found, state, err := findJournal(journalDir)
	if err != nil {
		return nil, err
	}
	if found == "" {
		return nil, fmt.Errorf("load move: no journal in %s: %w", journalDir, fs.ErrNotExist)
	}
	m := &Move{dir: journalDir, state: state}
	if m.j, err = readJournal(found); err != nil {
		return nil, err
	}
	if state != MoveForgotten {
		return m, nil
	}
	switch err := m.Forget(); {
	case errors.Is(err, agents.ErrBlocked):
		return m, nil
	case err != nil:
		return nil, err
	}
	return nil, fmt.Errorf("load move: no journal in %s: %w", journalDir, fs.ErrNotExist)
}

// State says how far the Move is.
func (m *Move) State() MoveState { return m.state }

// Run moves everything and makes it durable. On any failure, or when ctx ends,
// it takes back what it did and returns the first error: agents.ErrConflict
// when a path is not what its Before says; a *MoveError names the path. If
// taking back failed too, the Move is not MoveUndone and Undo may be called
// again. After success the Move stays MovePrepared until Commit.
func (m *Move) Run(ctx context.Context) error {
	if !m.fresh || m.state != MovePrepared {
		return &agents.StateError{What: "move", From: string(m.state), To: "run"}
	}
	m.fresh = false
	err := m.forward(ctx)
	if err == nil {
		m.ran = true
		return nil
	}
	if uerr := m.Undo(); uerr != nil {
		return errors.Join(err, fmt.Errorf("take back a failed move: %w", uerr))
	}
	return err
}

func (m *Move) forward(ctx context.Context) error {
	if err := m.openTrees(); err != nil {
		return err
	}
	defer m.closeTrees()
	if err := m.makeWritable(); err != nil {
		return err
	}
	for i := range m.j.Steps {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("move: %w", err)
		}
		s := &m.j.Steps[i]
		if err := m.do(s); err != nil {
			return s.fail(err)
		}
	}
	return m.settle()
}

// settle does what comes after the steps.
func (m *Move) settle() error {
	if err := m.settleDirs(); err != nil {
		return err
	}
	if err := m.hold.sync(m); err != nil {
		return err
	}
	return call(m.beside.do)
}

// Commit records durably that everything is moved: from now on a process that
// finds the journal keeps the new state. It may be called again. On a loaded
// Move it first looks whether every step was done, which is agents.ErrState if
// not, and does what is left to do after the steps.
func (m *Move) Commit() error {
	switch {
	case m.state == MoveCommitted:
		return nil
	case m.state != MovePrepared, m.fresh:
		return &agents.StateError{What: "move", From: string(m.state), To: "commit"}
	case !m.ran:
		if err := m.finishRun(); err != nil {
			return err
		}
	}
	if err := m.noteArrived(); err != nil {
		return err
	}
	return m.setState(MoveCommitted)
}

// finishRun ends a Run of another process that made all steps.
func (m *Move) finishRun() error {
	if err := m.openTrees(); err != nil {
		return err
	}
	defer m.closeTrees()
	for i := range m.j.Steps {
		s := &m.j.Steps[i]
		if done, err := m.done(s); err != nil || !done {
			return s.fail(errors.Join(err, &agents.StateError{What: "move", From: "half done", To: "commit"}))
		}
		if err := m.syncStep(s); err != nil {
			return s.fail(err)
		}
	}
	return m.settle()
}

// Forget deletes the before-images and the journal; a killed Forget is
// finished by LoadMove. It is agents.ErrState while the Move is MovePrepared or
// MoveUndoing, and agents.ErrBlocked, deleting nothing, while LateWrites tells of
// something: a *MoveError names the path, and KeepLate is the way out.
func (m *Move) Forget() error {
	if m.state.unended() {
		return &agents.StateError{What: "move", From: string(m.state), To: "forget"}
	}
	if err := m.refuseLate(); err != nil {
		return err
	}
	if m.state != MoveForgotten {
		if err := m.setState(MoveForgotten); err != nil {
			return err
		}
	}
	return m.finishForget()
}

func (m *Move) finishForget() error {
	if err := m.removeStaged(); err != nil {
		return err
	}
	if err := RemoveAll(m.j.Hold); err != nil {
		return err
	}
	if err := Remove(m.arrivedFile()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := Remove(filepath.Join(m.dir, journalName(MoveForgotten))); err != nil {
		return err
	}
	return SyncDir(m.dir)
}

// removeStaged removes staged things that were never moved, or that an Undo
// put back: those that still are what was staged.
func (m *Move) removeStaged() error {
	for i := range m.j.Steps {
		s := &m.j.Steps[i]
		if len(s.From) == 0 {
			continue
		}
		id, err := Identify(string(s.From))
		if err != nil || id.Kind == KindNone || !s.isStaged(id) {
			continue
		}
		if err := Remove(string(s.From)); err != nil {
			return err
		}
	}
	return nil
}

// setState renames the journal, which takes no space on a full disk.
func (m *Move) setState(to MoveState) error {
	from := filepath.Join(m.dir, journalName(m.state))
	if err := m.hit("fsx.rename", from); err != nil {
		return err
	}
	if err := os.Rename(from, filepath.Join(m.dir, journalName(to))); err != nil {
		return err
	}
	m.state = to
	if err := m.hit("fsx.syncdir", m.dir); err != nil {
		return err
	}
	return syncDir(m.dir)
}
