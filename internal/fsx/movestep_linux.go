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
		return m.bring(s, unix.AT_FDCWD, string(s.From), fd, name)
	case verbSwap:
		return m.swap(s, fd, name)
	case verbWrite:
		return m.write(s, fd, name)
	}
	return m.setMode(s, fd, name)
}

// bring moves the new thing to its path, which must be free.
func (m *Move) bring(s *moveStep, fromFD int, from string, fd int, name string) error {
	err := m.moveInto(fromFD, from, fd, name, string(s.Path))
	if errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("something is there that was not: %w", agents.ErrConflict)
	}
	return err
}

// before is what the caller saw. Its ctime counts no more once an Undo has
// moved it away and back.
func (m *Move) before(s *moveStep) Identity {
	id := s.Before
	if m.undoing {
		id.Ctime = 0
	}
	return id
}

// expect compares what is at the path with what the caller saw. A change of
// ctime alone counts, unless other names of the same inode explain it.
func (m *Move) expect(s *moveStep, fd int, name string) error {
	have, links, err := identifyAt(fd, name)
	if err != nil {
		return err
	}
	if s.Before.Kind == KindDir {
		have.Mode = s.Before.Mode // it was made writable for the time
	}
	if !m.before(s).same(have, links == 1) {
		return differs(s.Before, have)
	}
	return nil
}

// take moves what is there into the hold and looks at it again there, where
// nobody else reaches it.
func (m *Move) take(s *moveStep, fd int, name string) error {
	if err := m.expect(s, fd, name); err != nil {
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
	if err := m.expect(s, fd, name); err != nil {
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
	if err := m.expect(s, fd, name); err != nil {
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
	if err := m.expect(s, fd, name); err != nil {
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

// isThere reports whether the directory still is where it was or was made.
func (m *Move) isThere(d *moveDir) bool {
	id, err := m.roots[d.Root].identifyDir(string(d.Path))
	return err == nil && (d.Made || id.Ino == d.Ino)
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
		if d.Gone || m.undoing && !m.isThere(d) {
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
