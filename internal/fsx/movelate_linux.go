package fsx

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	agents "github.com/cleveragents/agents"
)

// LateWrites returns the before-images that were written to after they had
// left their paths, sorted by root and path: a program that had a file open before the
// Move can go on writing to what is in the hold now, and believes that it is
// saved. It works in any state, also on a loaded Move. After Undo nothing is
// held, so nothing is late: such bytes are at their path then.
func (m *Move) LateWrites() ([]Late, error) {
	if m.state == MoveUndone {
		return nil, nil
	}
	own := map[inodeKey]Identity{} // what the Move itself made of a file through another name
	for i := range m.j.Steps {
		if s := &m.j.Steps[i]; s.Do == verbMode || s.Do == verbWrite {
			own[s.Before.key()] = s.After
		}
	}
	var all []Late
	for i := range m.j.Steps {
		s := &m.j.Steps[i]
		if s.Do != verbTake && s.Do != verbSwap || s.Before.Kind != KindFile {
			continue
		}
		held := filepath.Join(m.j.Hold, s.Slot)
		id, err := Identify(held)
		if err != nil {
			return nil, s.fail(err)
		}
		if id.Kind != KindFile || id.Ino != s.Before.Ino || sameBytes(id, s.Before) {
			continue
		}
		if made, ok := own[s.Before.key()]; ok && sameBytes(id, made) {
			continue
		}
		all = append(all, Late{Root: s.Root, Path: string(s.Path), Held: held})
	}
	slices.SortFunc(all, func(a, b Late) int {
		return cmp.Or(cmp.Compare(a.Root, b.Root), cmp.Compare(a.Path, b.Path))
	})
	return all, nil
}

// refuseLate is agents.ErrBlocked while the hold has what is nowhere else.
func (m *Move) refuseLate() error {
	late, err := m.LateWrites()
	if err != nil || len(late) == 0 {
		return err
	}
	l := late[0]
	return &MoveError{Root: l.Root, Path: l.Path, Do: "forget", Err: fmt.Errorf("a program wrote to the old file after it was replaced or removed: %w", agents.ErrBlocked)}
}

// ForgetButLate is Forget that keeps what LateWrites tells of in dir first.
func (m *Move) ForgetButLate(dir string) error {
	err := m.Forget()
	if !errors.Is(err, agents.ErrBlocked) {
		return err
	}
	if err := m.KeepLate(dir); err != nil {
		return err
	}
	return m.Forget()
}

// KeepLate moves the before-images that LateWrites tells of into dir, durably,
// each to its path in there, or to that with ".1", ".2" … where something else
// has the name. What is written to them even later is in dir too, if dir is on
// the file system of the hold. After it the Move can be forgotten, but not be
// undone. It is agents.ErrState while the Move is MovePrepared, and may be
// called again after a failure or a kill.
func (m *Move) KeepLate(dir string) error {
	if m.state == MovePrepared {
		return &agents.StateError{What: "move", From: string(m.state), To: "keep late writes"}
	}
	late, err := m.LateWrites()
	if err != nil || len(late) == 0 {
		return err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	if err := MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := SyncDir(filepath.Dir(dir)); err != nil {
		return err
	}
	for _, l := range late {
		if err := m.keepLate(l, dir); err != nil {
			return &MoveError{Root: l.Root, Path: l.Path, Do: "keep", Err: err}
		}
	}
	return SyncDir(m.j.Hold)
}

// keepLate moves one before-image below dir.
func (m *Move) keepLate(l Late, dir string) error {
	at := dir
	above, name := path.Split(l.Path)
	for _, part := range strings.FieldsFunc(above, func(c rune) bool { return c == '/' }) {
		next, err := freeName(at, part, fs.FileInfo.IsDir)
		if err != nil {
			return err
		}
		if err := Mkdir(next, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if err := SyncDir(at); err != nil {
			return err
		}
		at = next
	}
	to, err := freeName(at, name, func(fs.FileInfo) bool { return false })
	if err != nil {
		return err
	}
	if err := syncContent(l.Held); err != nil {
		return err
	}
	err = m.moveInto(unix.AT_FDCWD, l.Held, unix.AT_FDCWD, to, to)
	if errors.Is(err, unix.EXDEV) {
		return l.copy(to)
	}
	if err != nil {
		return err
	}
	return SyncDir(at)
}

// copy is for a folder on another file system.
func (l Late) copy(to string) error {
	if err := CopyFile(l.Held, to); err != nil {
		return err
	}
	if err := errors.Join(syncContent(to), SyncDir(filepath.Dir(to))); err != nil {
		return err
	}
	return Remove(l.Held)
}

// syncContent makes a file durable that others write. One that may not be read
// cannot be synced by itself.
func syncContent(path string) error {
	f, err := os.OpenFile(path, os.O_RDONLY|openCarefully, 0)
	if errors.Is(err, fs.ErrPermission) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join((&File{f}).Sync(), f.Close())
}

// freeName returns a path in dir that is free, or fit: name itself, or with a
// number behind it.
func freeName(dir, name string, fit func(fs.FileInfo) bool) (string, error) {
	const longest = 255
	for n := 0; ; n++ {
		suffix := ""
		if n > 0 {
			suffix = "." + strconv.Itoa(n)
		}
		at := filepath.Join(dir, name[:min(len(name), longest-len(suffix))]+suffix)
		fi, err := os.Lstat(at)
		if errors.Is(err, fs.ErrNotExist) {
			return at, nil
		}
		if err != nil || fit(fi) {
			return at, err
		}
	}
}
