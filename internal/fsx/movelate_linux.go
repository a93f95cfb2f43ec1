package fsx

import (
	"cmp"
	"context"
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

// LateWrites returns the files and directories that were written to after the
// Move had taken them from their paths, sorted by root and path: a program that
// had one open, or works in it, can go on writing to what is in the hold now, and
// believes that it is saved. Those are before-images, and after Undo what had
// arrived. It works in any state, also on a loaded Move.
func (m *Move) LateWrites() ([]Late, error) {
	own := map[inodeKey]Identity{} // what the Move itself made of a file through another name
	for i := range m.j.Steps {
		if s := &m.j.Steps[i]; s.Do == verbMode || s.Do == verbWrite {
			own[s.Before.key()] = s.After
		}
	}
	var all []Late
	for i := range m.j.Steps {
		s := &m.j.Steps[i]
		for _, at := range m.heldAt(s) {
			id, err := Identify(at)
			if err != nil {
				return nil, s.fail(err)
			}
			late, err := s.isLate(at, id, own)
			if err != nil {
				return nil, s.fail(err)
			}
			if !late {
				continue
			}
			all = append(all, Late{Root: s.Root, Path: string(s.Path), Held: at})
		}
	}
	slices.SortFunc(all, func(a, b Late) int {
		return cmp.Or(cmp.Compare(a.Root, b.Root), cmp.Compare(a.Path, b.Path))
	})
	return all, nil
}

// heldAt lists where a step keeps what it took from its path.
func (m *Move) heldAt(s *moveStep) []string {
	switch s.Do {
	case verbTake, verbNew, verbRmdir, verbMkdir:
		return []string{filepath.Join(m.j.Hold, s.Slot)}
	case verbSwap:
		slot := filepath.Join(m.j.Hold, s.Slot)
		return []string{slot, slot + asideSuffix, string(s.From)}
	}
	return nil
}

// isLate reports whether somebody has written to what is held at a path: into a
// file, or a new name into a directory, which was empty when it came.
func (s *moveStep) isLate(at string, id Identity, own map[inodeKey]Identity) (bool, error) {
	if id.Kind == KindDir {
		names, err := os.ReadDir(at)
		return len(names) > 0, err
	}
	was, ok := s.wasHeld(id)
	if !ok || sameBytes(id, was) {
		return false, nil
	}
	made, ok := own[was.key()]
	return !ok || !sameBytes(id, made), nil
}

// wasHeld returns what the step knows of a file in the hold.
func (s *moveStep) wasHeld(id Identity) (Identity, bool) {
	for _, was := range []Identity{s.Before, s.After} {
		if id.Kind == KindFile && was.Kind == KindFile && id.Ino == was.Ino {
			return was, true
		}
	}
	return Identity{}, false
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

// ForgetButLate is Forget that moves what LateWrites tells of into dir first,
// and returns that.
func (m *Move) ForgetButLate(dir string) ([]Late, error) {
	err := m.Forget()
	if !errors.Is(err, agents.ErrBlocked) {
		return nil, err
	}
	kept, err := m.KeepLate(dir)
	if err != nil {
		return kept, err
	}
	return kept, m.Forget()
}

// KeepLate moves the files that LateWrites tells of into dir, durably, each to
// its path in there, or to that with ".1", ".2" … where something else has the
// name, and returns them with their new places. What is written to them even
// later is in dir too, if dir is on the file system of the hold. After it the
// Move can be forgotten, but not be undone. It is agents.ErrState while Forget
// is, and may be called again after a failure or a kill.
func (m *Move) KeepLate(dir string) ([]Late, error) {
	if m.state.unended() {
		return nil, &agents.StateError{What: "move", From: string(m.state), To: "keep late writes"}
	}
	late, err := m.LateWrites()
	if err != nil || len(late) == 0 {
		return nil, err
	}
	for i, l := range late {
		if late[i].Held, err = m.keep(l, dir); err != nil {
			return late[:i], &MoveError{Root: l.Root, Path: l.Path, Do: "keep", Err: err}
		}
	}
	return late, SyncDir(m.j.Hold)
}

// keep moves a file or link from the hold to its path below dir, and says where
// it is now.
func (m *Move) keep(l Late, dir string) (string, error) {
	at, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	if err := MkdirAll(at, 0o700); err != nil {
		return "", err
	}
	if err := SyncDir(filepath.Dir(at)); err != nil {
		return "", err
	}
	above, name := path.Split(l.Path)
	for _, part := range strings.FieldsFunc(above, func(c rune) bool { return c == '/' }) {
		next, err := freeName(at, part, fs.FileInfo.IsDir)
		if err != nil {
			return "", err
		}
		if err := Mkdir(next, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return "", err
		}
		if err := SyncDir(at); err != nil {
			return "", err
		}
		at = next
	}
	to, err := freeName(at, name, func(fs.FileInfo) bool { return false })
	if err != nil {
		return "", err
	}
	if err := syncContent(l.Held); err != nil {
		return "", err
	}
	err = m.moveInto(unix.AT_FDCWD, l.Held, unix.AT_FDCWD, to, to)
	if errors.Is(err, unix.EXDEV) {
		return to, l.copy(to)
	}
	if err != nil {
		return "", err
	}
	return to, SyncDir(at)
}

// copy is for a folder on another file system.
func (l Late) copy(to string) error {
	if fi, err := os.Lstat(l.Held); err == nil && fi.IsDir() {
		if _, err := CopyTree(context.Background(), l.Held, to); err != nil {
			return err
		}
		return RemoveAll(l.Held)
	}
	if target, err := os.Readlink(l.Held); err == nil {
		if err := Symlink(target, to); err != nil {
			return err
		}
		return errors.Join(SyncDir(filepath.Dir(to)), Remove(l.Held))
	}
	if err := CopyFile(l.Held, to); err != nil {
		return err
	}
	if err := errors.Join(syncContent(to), SyncDir(filepath.Dir(to))); err != nil {
		return err
	}
	return Remove(l.Held)
}

// syncContent makes a file durable that others write. A link, and one that may
// not be read, cannot be synced by itself.
func syncContent(path string) error {
	f, err := os.OpenFile(path, os.O_RDONLY|openCarefully, 0)
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.ELOOP) {
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
