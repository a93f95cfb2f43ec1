package fsx

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	agents "github.com/cleveragents/agents"
)

// do makes one step.
func (m *Move) do(s *moveStep) error {
	t := m.roots[s.Root]
	fd, name, err := t.parent(string(s.Path))
	if absent(err) {
		return fmt.Errorf("the directory above it is gone, or a link: %w", agents.ErrConflict)
	}
	if err != nil {
		return err
	}
	switch s.Do {
	case verbTake:
		return m.take(s, fd, name)
	case verbRmdir:
		defer t.forget()
		return m.takeDir(s, fd, name)
	case verbMkdir, verbNew:
		err := m.moveInto(unix.AT_FDCWD, string(s.From), fd, name, string(s.Path))
		if errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("something is there that was not: %w", agents.ErrConflict)
		}
		return err
	case verbSwap:
		return m.swap(s, fd, name)
	case verbWrite:
		return m.write(s, fd, name)
	}
	return m.setMode(s, fd, name)
}

// expect compares what is at the path with what the caller saw. A change of
// ctime alone counts, unless other names of the same inode explain it.
func (s *moveStep) expect(fd int, name string) error {
	have, links, err := identifyAt(fd, name)
	if err != nil {
		return err
	}
	if s.Before.Kind == KindDir {
		have.Mode = s.Before.Mode // it was made writable for the time
	}
	if !s.Before.same(have, links == 1) {
		return differs(s.Before, have)
	}
	return nil
}

// take moves what is there into the hold and looks at it again there, where
// nobody else reaches it.
func (m *Move) take(s *moveStep, fd int, name string) error {
	if err := s.expect(fd, name); err != nil {
		return err
	}
	if err := m.moveInto(fd, name, m.hold.fd, s.Slot, string(s.Path)); err != nil {
		return err
	}
	have, _, err := identifyAt(m.hold.fd, s.Slot)
	if err == nil && s.isBefore(have) {
		return nil
	}
	return errors.Join(err, differs(s.Before, have), m.moveInto(m.hold.fd, s.Slot, fd, name, string(s.Path)))
}

// takeDir is take for a directory, which must be empty.
func (m *Move) takeDir(s *moveStep, fd int, name string) error {
	if err := s.expect(fd, name); err != nil {
		return err
	}
	return m.holdEmpty(s, fd, name)
}

// holdEmpty moves an empty directory into the hold. One that is not empty, or
// is no longer when it is out of reach, stays where it is.
func (m *Move) holdEmpty(s *moveStep, fd int, name string) error {
	at, err := openBelow(fd, name)
	if err != nil {
		return err
	}
	defer unix.Close(at)
	dir := &tree{path: name, fd: at, cur: -1}
	if err := dir.empty(); err != nil {
		return err
	}
	if err := m.moveInto(fd, name, m.hold.fd, s.Slot, string(s.Path)); err != nil {
		return err
	}
	if err := dir.empty(); err != nil {
		return errors.Join(err, m.moveInto(m.hold.fd, s.Slot, fd, name, string(s.Path)))
	}
	return nil
}

// empty is agents.ErrConflict when the tree's directory holds something.
func (t *tree) empty() error {
	names, err := t.names("")
	if err != nil {
		return err
	}
	if len(names) > 0 {
		return fmt.Errorf("directory is not empty: it holds %s: %w", showPath(names[0]), agents.ErrConflict)
	}
	return nil
}

// swap exchanges the staged thing with what is there. What came out goes back
// if it is not what the caller saw.
func (m *Move) swap(s *moveStep, fd int, name string) error {
	if err := s.expect(fd, name); err != nil {
		return err
	}
	from, what := string(s.From), string(s.Path)
	err := m.exchange(unix.AT_FDCWD, from, fd, name, what)
	if noFlags(err) {
		if err := m.take(s, fd, name); err != nil {
			return err
		}
		return m.moveInto(unix.AT_FDCWD, from, fd, name, what)
	}
	if err != nil {
		return err
	}
	have, _, err := identifyAt(unix.AT_FDCWD, from)
	if err != nil || !s.isBefore(have) {
		return errors.Join(err, differs(s.Before, have), m.exchange(unix.AT_FDCWD, from, fd, name, what))
	}
	return m.moveInto(unix.AT_FDCWD, from, m.hold.fd, s.Slot, what)
}

// setMode changes the bits and the time of a file. Another name of the same
// file may have been first.
func (m *Move) setMode(s *moveStep, fd int, name string) error {
	have, links, err := identifyAt(fd, name)
	if err != nil {
		return err
	}
	if s.isAfter(have) && links > 1 {
		return nil
	}
	if err := s.expect(fd, name); err != nil {
		return err
	}
	return m.dressPath(s, fd, name, s.After.Mode, s.After.Mtime)
}

// dressPath gives the file that was there before the step these bits and this
// modification time, durably.
func (m *Move) dressPath(s *moveStep, fd int, name string, mode uint32, mtime int64) error {
	file, err := unix.Openat(fd, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(file)
	var st unix.Stat_t
	if err := unix.Fstat(file, &st); err != nil {
		return err
	}
	if st.Ino != s.Before.Ino {
		return differs(s.Before, identityOfStat(&st))
	}
	if err := m.dress(file, identityOfStat(&st), mode, mtime, string(s.Path)); err != nil {
		return err
	}
	if m.bulk {
		return nil // syncRoots does it
	}
	return m.syncFile(fd, name, string(s.Path))
}

// dress sets what differs of the bits and the modification time of what a
// handle stands for, the time last.
func (m *Move) dress(fd int, have Identity, mode uint32, mtime int64, what string) error {
	if have.Mode != mode {
		if err := m.hit("fsx.chmod", what); err != nil {
			return err
		}
		if err := chmodFD(fd, mode); err != nil {
			return err
		}
	}
	if have.Mtime != mtime {
		return m.chtimesFD(fd, mtime, what)
	}
	return nil
}

// syncFile makes a file durable. As with a directory, what may not be read is
// left to the journal of its file system.
func (m *Move) syncFile(fd int, name string, what string) error {
	file, err := unix.Openat(fd, name, unix.O_RDONLY|openCarefully|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.EACCES) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(file)
	if err := m.hit("fsx.sync", what); err != nil {
		return err
	}
	return unix.Fsync(file)
}

// done reports whether the step was made and not taken back.
func (m *Move) done(s *moveStep) (bool, error) {
	switch s.Do {
	case verbTake, verbRmdir:
		return m.held(s), nil
	case verbMkdir, verbNew:
		return !m.waiting(s), nil
	case verbSwap:
		return m.held(s) && !m.isNew(s), nil
	case verbWrite:
		fd, name, err := m.roots[s.Root].parent(string(s.Path))
		if err != nil || !m.held(s) {
			return false, err
		}
		return m.written(s, fd, name)
	}
	have, _, err := m.roots[s.Root].identify(string(s.Path))
	return s.isAfter(have), err
}

// syncStep makes durable what a step did to a file that stays where it is: the
// process that made it may have been killed before it did.
func (m *Move) syncStep(s *moveStep) error {
	if s.Do != verbMode && s.Do != verbWrite {
		return nil
	}
	fd, name, err := m.roots[s.Root].parent(string(s.Path))
	if err != nil {
		return err
	}
	return m.syncFile(fd, name, string(s.Path))
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
	return m.moveInto(fd, name, m.hold.fd, s.Slot, string(s.Path))
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
	err := m.exchange(fromFD, from, fd, name, string(s.Path))
	switch {
	case errors.Is(err, unix.ENOENT):
		return fmt.Errorf("the before-image is missing: %w", agents.ErrDamaged)
	case noFlags(err):
		return m.replaceBack(s, fd, name, fromFD, from)
	}
	return err
}

// replaceBack is exchangeBack on a file system that cannot exchange.
func (m *Move) replaceBack(s *moveStep, fd int, name string, fromFD int, from string) error {
	aside := s.Slot + "-new"
	if err := m.moveInto(fd, name, m.hold.fd, aside, string(s.Path)); err != nil {
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

// makeWritable gives the owner all rights in directories where names change
// and the rights are missing. Directories above come first, so that those
// below can be reached. While taking back, ones that are not there are passed
// over: they were never made, or wait in the hold. So are ones that are
// another user's: what could not be changed in them is not taken back either,
// and a step that was made there fails by itself.
func (m *Move) makeWritable() error {
	for i := range m.j.Dirs {
		d := &m.j.Dirs[i]
		if d.Made && !m.undoing {
			continue
		}
		t, rel := m.roots[d.Root], string(d.Path)
		id, err := t.identifyDir(rel)
		switch {
		case absent(err) && m.undoing, err == nil && id.Ino != d.Ino && m.undoing:
			continue
		case absent(err), err == nil && id.Ino != d.Ino:
			return d.fail(fmt.Errorf("the directory was replaced: %w", agents.ErrConflict))
		case err != nil:
			return d.fail(err)
		case !d.Work && !m.undoing, t.accessible(rel):
			continue
		}
		err = t.chmodDir(m, rel, id.Mode|0o700)
		if err != nil && !(m.undoing && errors.Is(err, unix.EPERM)) {
			return d.fail(err)
		}
	}
	return nil
}

func (d *moveDir) fail(err error) error {
	path := string(d.Path)
	if path == "" {
		path = "."
	}
	return &MoveError{Root: d.Root, Path: path, Do: "change directory", Err: err}
}

// settleDirs gives all directories their bits and the times that were asked
// for, deepest first, and makes what happened in them durable.
func (m *Move) settleDirs() error {
	for i := range slices.Backward(m.j.Dirs) {
		d := &m.j.Dirs[i]
		if d.Gone {
			continue
		}
		mode := d.Mode
		if d.Sets {
			mode = d.Final
		}
		if err := m.roots[d.Root].settle(m, string(d.Path), mode, d.Time); err != nil {
			return d.fail(err)
		}
	}
	return m.syncRoots()
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
