package fsx

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	agents "github.com/cleveragents/agents"
)

// CanUndo returns the error that Undo would refuse with now, from
// MoveCommitted: a path was changed since. It changes nothing.
func (m *Move) CanUndo() error {
	if m.state != MoveCommitted {
		return nil
	}
	if err := m.openTrees(); err != nil {
		return err
	}
	defer m.closeTrees()
	return m.checkUndo()
}

// Undo puts everything back as it was before Run, with the same inodes, modes
// and directory times, and makes that durable. It works from every state,
// after a kill at any moment of Run or Undo, as often as wanted.
//
// Work of somebody else is never overwritten. From MoveCommitted, Undo checks
// first and refuses with agents.ErrConflict, changing nothing, when a path was
// changed since. Where that happens in the middle, it moves forward again what
// it took back, and the Move is MoveCommitted as before; only if that fails too
// it stays MoveUndoing. From MovePrepared it takes back all it can, leaves such
// paths as they are, and the error names them; the Move then is not MoveUndone,
// and UndoLeaving is the way out. What was written late to a before-image is
// back with it.
func (m *Move) Undo() error {
	blocked, err := m.takeBack()
	return errors.Join(blockedErrors(blocked), err)
}

// UndoLeaving is Undo that comes to an end: where it leaves paths of a
// MovePrepared as they are, since somebody has changed them, or all of them,
// since a root is gone or another directory, it moves what was there before the
// Move into dir, as KeepLate does, returns those paths, and the Move is
// MoveUndone. A before-image that somebody took from the hold is not to be had.
func (m *Move) UndoLeaving(dir string) (left []Left, err error) {
	if m.state != MovePrepared && m.state != MoveUndoing {
		return nil, m.Undo()
	}
	blocked, rootless, err := m.leave()
	if err != nil || len(blocked) == 0 {
		return nil, err
	}
	m.closeTrees()
	if m.hold, err = openTree(m.j.Hold); err != nil {
		return nil, err
	}
	defer m.closeTrees()
	for _, b := range blocked {
		kept, err := m.keepBefore(b.step, dir)
		if err != nil {
			return nil, b.step.fail(err)
		}
		l := Left{Root: b.step.Root, Path: string(b.step.Path), Kept: kept, Err: b.err}
		// A path with two steps, one that takes and one that brings, is one.
		if i := slices.IndexFunc(left, func(o Left) bool { return o.Root == l.Root && o.Path == l.Path }); i < 0 {
			left = append(left, l)
		} else if kept != "" {
			left[i].Kept = kept
		}
	}
	if rootless { // what is kept is all there is to say
		left = slices.DeleteFunc(left, func(l Left) bool { return l.Kept == "" })
	}
	if err := m.hold.sync(m); err != nil {
		return nil, err
	}
	return left, m.setState(MoveUndone)
}

// leave is takeBack that answers what there is no way back for; rootless says
// that it is everything.
func (m *Move) leave() (blocked []blockedStep, rootless bool, err error) {
	lost := m.openTrees()
	m.closeTrees()
	if errors.Is(lost, agents.ErrConflict) {
		for i := range m.j.Steps {
			blocked = append(blocked, blockedStep{&m.j.Steps[i], lost})
		}
		return blocked, true, nil
	}
	if blocked, err = m.takeBack(); m.state == MoveCommitted {
		return nil, false, errors.Join(err, blockedErrors(blocked)) // it went forward again
	}
	for _, b := range blocked {
		if !errors.Is(b.err, agents.ErrConflict) && !errors.Is(b.err, agents.ErrDamaged) {
			err = errors.Join(err, b.step.fail(b.err))
		}
	}
	return blocked, false, err
}

func blockedErrors(blocked []blockedStep) error {
	var errs []error
	for _, b := range blocked {
		errs = append(errs, b.step.fail(b.err))
	}
	return errors.Join(errs...)
}

// keepBefore moves a before-image that has no way back into dir and says where
// it is; "" = there is none. Of a swap that was cut off it still is where the
// new thing was staged. That of a write is a copy, which has another inode.
func (m *Move) keepBefore(s *moveStep, dir string) (string, error) {
	if s.Before.Kind != KindFile && s.Before.Kind != KindSymlink {
		return "", nil
	}
	for _, at := range append(m.heldAt(s), filepath.Join(m.j.Hold, s.Slot)) {
		id, err := Identify(at)
		if err != nil {
			return "", err
		}
		if id.Kind == s.Before.Kind && (id.Ino == s.Before.Ino || s.Do == verbWrite) {
			return m.keep(Late{Root: s.Root, Path: string(s.Path), Held: at}, dir)
		}
	}
	return "", nil
}

// blockedStep is a step that could not be taken back, and why.
type blockedStep struct {
	step *moveStep
	err  error
}

// takeBack is Undo that tells the steps which stand in the way apart.
func (m *Move) takeBack() ([]blockedStep, error) {
	switch m.state {
	case MoveUndone:
		return nil, nil
	case MoveForgotten:
		return nil, &agents.StateError{What: "move", From: string(m.state), To: "undo"}
	}
	if err := m.openTrees(); err != nil {
		return nil, err
	}
	defer m.closeTrees()
	m.undoing, m.fresh = true, false
	defer func() { m.undoing = false }()
	if m.state == MoveCommitted {
		if err := m.checkUndo(); err != nil {
			return nil, err
		}
		if err := m.setState(MoveUndoing); err != nil {
			return nil, err
		}
	}
	blocked, err := m.backward()
	switch {
	case err == nil && len(blocked) == 0:
		return nil, m.setState(MoveUndone)
	case m.state == MoveUndoing:
		err = errors.Join(err, m.forwardAgain())
	}
	return blocked, err
}

// backward takes all steps back that it can.
func (m *Move) backward() (blocked []blockedStep, err error) {
	if err := call(m.beside.undo); err != nil {
		return nil, err
	}
	if err := m.makeWritable(); err != nil {
		return nil, err
	}
	for i := range slices.Backward(m.j.Steps) {
		s := &m.j.Steps[i]
		if err := m.undo(s); err != nil {
			blocked = append(blocked, blockedStep{s, err})
		}
	}
	return blocked, errors.Join(m.restoreDirs(), m.hold.sync(m))
}

// forwardAgain makes all steps again that an Undo took back before it met one
// that it could not, and then the Move is MoveCommitted again. Paths that
// somebody has changed in that very time stay, and the error names them.
func (m *Move) forwardAgain() error {
	if err := m.makeWritable(); err != nil {
		return err
	}
	var strange, errs []error
	for i := range m.j.Steps {
		s := &m.j.Steps[i]
		switch err := m.again(s); {
		case errors.Is(err, agents.ErrConflict):
			strange = append(strange, s.fail(err))
		case err != nil:
			errs = append(errs, s.fail(err))
		}
	}
	if err := errors.Join(append(errs, m.settle())...); err != nil {
		return errors.Join(append(strange, fmt.Errorf("the undo is half done: %w", err))...)
	}
	if err := m.noteArrived(); err != nil {
		return err
	}
	return errors.Join(append(strange, m.setState(MoveCommitted))...)
}

// again makes a step, unless it was not taken back.
func (m *Move) again(s *moveStep) error {
	t := m.roots[s.Root]
	fd, name, err := t.parent(string(s.Path))
	if absent(err) {
		if s.After.Kind == KindNone || !m.waiting(s) {
			return nil
		}
		return fmt.Errorf("the directory above it is gone: %w", agents.ErrConflict)
	}
	if err != nil {
		return err
	}
	have, _, err := identifyAt(fd, name)
	if err != nil {
		return err
	}
	switch s.Do {
	case verbTake, verbRmdir:
		if m.held(s) || have.Kind == KindNone {
			return nil
		}
		return m.do(s)
	case verbMkdir, verbNew:
		if s.isAfter(have) || !m.waiting(s) {
			return nil // it is there, or somebody made another thing of it
		}
		return m.bring(s, m.hold.fd, s.Slot, fd, name)
	case verbSwap:
		if s.isAfter(have) {
			return nil
		}
		return m.swapAgain(s, fd, name)
	case verbWrite:
		return m.writeAgain(s, fd, name, have)
	}
	if !s.isBefore(have) {
		return nil
	}
	return m.setMode(s, fd, name)
}

// swapAgain exchanges what an Undo put aside with what it put back.
func (m *Move) swapAgain(s *moveStep, fd int, name string) error {
	if aside, _, err := identifyAt(m.hold.fd, s.Slot+asideSuffix); err != nil || s.isAfter(aside) {
		if err == nil && !m.held(s) {
			err = m.take(s, fd, name)
		}
		if err == nil {
			err = m.bring(s, m.hold.fd, s.Slot+asideSuffix, fd, name)
		}
		return err
	}
	if !m.isNew(s) {
		return nil // it was not taken back: somebody made another thing of it
	}
	if err := m.expect(s, fd, name); err != nil {
		return err
	}
	return m.exchangeSeen(s, s.isBefore, fd, name, m.hold.fd, s.Slot)
}

// undo takes one step back, if it was done.
func (m *Move) undo(s *moveStep) error {
	t := m.roots[s.Root]
	fd, name, err := t.parent(string(s.Path))
	if absent(err) {
		if s.Do == verbMkdir || s.Do == verbNew || s.Do == verbMode || !m.held(s) {
			return nil
		}
		return fmt.Errorf("the directory above it is gone: %w", agents.ErrConflict)
	}
	if err != nil {
		return err
	}
	switch s.Do {
	case verbTake, verbRmdir:
		defer t.forget()
		return m.giveBack(s, fd, name)
	case verbMkdir, verbNew:
		defer t.forget()
		return m.withdraw(s, fd, name)
	case verbSwap:
		return m.swapBack(s, fd, name)
	case verbWrite:
		return m.writeBack(s, fd, name)
	}
	return m.resetMode(s, fd, name)
}

// held reports whether something is in the step's place in the hold.
func (m *Move) held(s *moveStep) bool {
	id, _, err := identifyAt(m.hold.fd, s.Slot)
	return err == nil && id.Kind != KindNone
}

// waiting reports whether the new thing still is where it was staged, or was
// put aside by an earlier Undo.
func (m *Move) waiting(s *moveStep) bool {
	if id, _, err := identifyAt(unix.AT_FDCWD, string(s.From)); err == nil && s.isAfter(id) {
		return true
	}
	id, _, err := identifyAt(m.hold.fd, s.Slot)
	return err == nil && s.isAfter(id)
}

// giveBack moves what was taken, if it was, to its path.
func (m *Move) giveBack(s *moveStep, fd int, name string) error {
	if !m.held(s) {
		return nil
	}
	err := m.moveInto(m.hold.fd, s.Slot, fd, name, string(s.Path))
	if errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("something else is there now: %w", agents.ErrConflict)
	}
	return err
}

// withdraw moves what arrived, if it did, into the hold.
func (m *Move) withdraw(s *moveStep, fd int, name string) error {
	have, _, err := identifyAt(fd, name)
	switch {
	case err != nil:
		return err
	case have.Kind == KindNone:
		return nil
	case !s.isAfter(have) && m.waiting(s):
		return nil // it never arrived: this is somebody else's
	case !s.isAfter(have):
		return differs(s.After, have)
	case have.Kind == KindDir:
		return m.holdEmpty(s, fd, name)
	}
	return m.putAside(s, fd, name, s.Slot)
}

// putAside moves what arrived into the hold and looks at it again there.
func (m *Move) putAside(s *moveStep, fd int, name, slot string) error {
	if err := m.moveInto(fd, name, m.hold.fd, slot, string(s.Path)); err != nil {
		return err
	}
	have, _, err := identifyAt(m.hold.fd, slot)
	if err == nil && s.isAfter(have) {
		return nil
	}
	return errors.Join(err, differs(s.After, have), m.moveInto(m.hold.fd, slot, fd, name, string(s.Path)))
}

// swapBack exchanges the before-image, in the hold or still where the new
// thing was staged, with the new thing.
func (m *Move) swapBack(s *moveStep, fd int, name string) error {
	have, _, err := identifyAt(fd, name)
	held := m.held(s)
	switch {
	case err != nil:
		return err
	case s.isAfter(have) && held:
		return m.exchangeBack(s, fd, name, m.hold.fd, s.Slot)
	case s.isAfter(have):
		return m.exchangeBack(s, fd, name, unix.AT_FDCWD, string(s.From))
	case have.Kind == KindNone && held && !m.isNew(s):
		return m.giveBack(s, fd, name)
	case have.Ino == s.Before.Ino && have.Kind == s.Before.Kind, !held && m.waiting(s):
		return nil // never done, or undone before
	}
	return differs(s.After, have)
}

// isNew reports whether what the hold has is not the before-image but the new
// thing, put aside by an earlier Undo.
func (m *Move) isNew(s *moveStep) bool {
	id, _, err := identifyAt(m.hold.fd, s.Slot)
	return err == nil && s.isAfter(id) && !s.isBefore(id)
}

func (m *Move) exchangeBack(s *moveStep, fd int, name string, fromFD int, from string) error {
	err := m.exchangeSeen(s, s.isAfter, fd, name, fromFD, from)
	switch {
	case errors.Is(err, unix.ENOENT):
		return fmt.Errorf("the before-image is missing: %w", agents.ErrDamaged)
	case noFlags(err):
		return m.replaceBack(s, fd, name, fromFD, from)
	}
	return err
}

// exchangeSeen exchanges what is at the path with what waits elsewhere. What
// came out goes back if it is not what it should be.
func (m *Move) exchangeSeen(s *moveStep, fits func(Identity) bool, fd int, name string, fromFD int, from string) error {
	if err := m.exchange(fromFD, from, fd, name, string(s.Path)); err != nil {
		return err
	}
	have, _, err := identifyAt(fromFD, from)
	if err == nil && fits(have) {
		return nil
	}
	return errors.Join(err, fmt.Errorf("%s was put there meanwhile: %w", have.Kind, agents.ErrConflict), m.exchange(fromFD, from, fd, name, string(s.Path)))
}

// asideSuffix ends the name in the hold of a new thing for which the slot is
// not free yet.
const asideSuffix = "-new"

// replaceBack is exchangeBack on a file system that cannot exchange.
func (m *Move) replaceBack(s *moveStep, fd int, name string, fromFD int, from string) error {
	if err := m.putAside(s, fd, name, s.Slot+asideSuffix); err != nil {
		return err
	}
	return m.moveInto(fromFD, from, fd, name, string(s.Path))
}

// resetMode gives a file its old bits again, if it has the new ones, and its
// old time, if it has the new one: a kill may have come between the two, and
// one that somebody else set stays.
func (m *Move) resetMode(s *moveStep, fd int, name string) error {
	have, _, err := identifyAt(fd, name)
	if err != nil || have.Ino != s.Before.Ino || have.Kind != s.Before.Kind {
		return err
	}
	mode, mtime := have.Mode, have.Mtime
	if mode == s.After.Mode {
		mode = s.Before.Mode
	}
	if mtime == s.After.Mtime {
		mtime = s.Before.Mtime
	}
	return m.dressPath(s, fd, name, mode, mtime)
}

// restoreDirs gives the directories that were there before their bits and
// times again, deepest first, where nobody else changed the bits. The time of
// one in which the Move changed no names is put back only if it is the Move's:
// another one tells of names that somebody else changed.
func (m *Move) restoreDirs() error {
	var errs []error
	for i := range slices.Backward(m.j.Dirs) {
		d := &m.j.Dirs[i]
		t, rel := m.roots[d.Root], string(d.Path)
		id, err := t.identifyDir(rel)
		if d.Made || absent(err) || err == nil && id.Ino != d.Ino {
			continue
		}
		mode := id.Mode
		if mode == d.Mode|0o700 || d.Sets && (mode == d.Final || mode == d.Final|0o700) {
			mode = d.Mode
		}
		mtime := &d.Mtime
		if !d.Work && (d.Time == nil || id.Mtime != *d.Time) {
			mtime = nil
		}
		if err == nil {
			err = t.settle(m, rel, mode, mtime)
		}
		if err != nil {
			errs = append(errs, d.fail(err))
		}
	}
	return errors.Join(append(errs, m.syncRoots())...)
}

// checkUndo reports whether everything still is as Run left it, so that Undo
// can take all of it back.
func (m *Move) checkUndo() error {
	arrived := map[place]bool{}
	for i := range m.j.Steps {
		if s := &m.j.Steps[i]; s.After.Kind != KindNone {
			arrived[place{s.Root, string(s.Path)}] = true
		}
	}
	gone := map[place]bool{}
	for i := range m.j.Dirs {
		if d := &m.j.Dirs[i]; d.Gone {
			gone[place{d.Root, string(d.Path)}] = true
		}
	}
	ctimes, err := m.readArrived()
	if err != nil {
		return err
	}
	for i := range m.j.Steps {
		s := &m.j.Steps[i]
		if err := m.checkStep(s, arrived, gone, ctimes[i]); err != nil {
			return s.fail(err)
		}
	}
	return nil
}

func (m *Move) checkStep(s *moveStep, arrived, gone map[place]bool, ctime int64) error {
	t, at := m.roots[s.Root], place{s.Root, string(s.Path)}
	have, _, err := t.identify(at.path)
	if absent(err) {
		have, err = Identity{}, nil
		if s.After.Kind == KindNone && !gone[at.parent()] {
			return fmt.Errorf("the directory above it is gone: %w", agents.ErrConflict)
		}
	}
	if err != nil {
		return err
	}
	if s.Before.Kind != KindNone && s.Do != verbMode && !m.held(s) {
		return fmt.Errorf("the before-image is missing: %w", agents.ErrDamaged)
	}
	if s.After.Kind == KindNone {
		if have.Kind != KindNone && !arrived[at] {
			return differs(Identity{}, have)
		}
		return nil
	}
	if s.Do != verbMode && have.Kind == KindFile {
		if err := m.checkDatabase(s, arrived); err != nil {
			return err
		}
	}
	if s.Do == verbWrite {
		dir, name := splitPath(at.path)
		return m.checkWritten(s, t.here(dir), name, have)
	}
	if !s.isAfter(have) {
		return differs(s.After, have)
	}
	if ctime != 0 && have.Ctime != ctime {
		return fmt.Errorf("it was changed since: %w", agents.ErrConflict)
	}
	if have.Kind != KindDir {
		return nil
	}
	names, err := t.names(at.path)
	for _, name := range names {
		if !arrived[place{at.root, at.path + "/" + name}] {
			return fmt.Errorf("directory holds %s, which is newer: %w", showPath(name), agents.ErrConflict)
		}
	}
	return err
}
