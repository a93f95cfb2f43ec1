package fsx

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	agents "github.com/cleveragents/agents"
)

// CopyFile makes dst, which must not exist, a faithful copy of the file src:
// content (shared with src where the file system can, holes stay holes),
// permission bits, modification time, extended attributes, and owner where the
// process may set it. It does not sync. A src that is no regular file is
// agents.ErrUnsupported, and is not opened; one that keeps changing while it
// is read is agents.ErrConflict. On error there is no dst.
func CopyFile(src, dst string) error {
	const attempts = 3
	for range attempts {
		same, err := copyOnce(src, dst)
		if err == nil && same {
			return nil
		}
		if !errors.Is(err, fs.ErrExist) {
			err = errors.Join(err, Remove(dst))
		}
		if err != nil {
			return fmt.Errorf("copy %s: %w", showPath(src), err)
		}
	}
	return fmt.Errorf("copy %s: it changes while it is read: %w", showPath(src), agents.ErrConflict)
}

// copyOnce copies, and reports whether src was the same all the while.
func copyOnce(src, dst string) (bool, error) {
	in, err := openRegular(src)
	if err != nil {
		return false, err
	}
	defer in.Close()
	fi, err := in.Stat()
	if err != nil {
		return false, err
	}
	out, err := Create(dst, 0o600)
	if err != nil {
		return false, err
	}
	err = fillFile(in, out, fi)
	if err == nil {
		err = dressFile(in, out, fi)
	}
	if cerr := out.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return false, err
	}
	after, err := in.Stat()
	return err == nil && after.Size() == fi.Size() && after.ModTime().Equal(fi.ModTime()), err
}

// openRegular opens a regular file for reading. Nothing else is opened: a FIFO
// would block, a device could do anything.
func openRegular(path string) (*os.File, error) {
	fi, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !fi.Mode().IsRegular() {
		return nil, fmt.Errorf("is %s: %w", kindOf(fi.Mode()), agents.ErrUnsupported)
	}
	f, err := os.OpenFile(path, os.O_RDONLY|openCarefully, 0)
	if err != nil {
		return nil, err
	}
	now, err := f.Stat()
	if err == nil && !os.SameFile(fi, now) {
		err = fmt.Errorf("was replaced while it was opened: %w", agents.ErrConflict)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// fillFile copies the content, holes as holes.
func fillFile(in *os.File, out *File, fi fs.FileInfo) error {
	if fi.Size() == 0 {
		return nil
	}
	if done, err := cloneFile(in, out); done || err != nil {
		return err
	}
	if err := copyExtents(in, out, fi.Size()); err != nil {
		return err
	}
	return out.Truncate(fi.Size())
}

// dressFile gives out what is not content. The owner comes first, since
// changing it drops setuid bits, and the time last.
func dressFile(in *os.File, out *File, fi fs.FileInfo) error {
	if err := copyOwner(out.Name(), fi); err != nil {
		return err
	}
	if err := copyXattrs(in.Name(), out.Name()); err != nil {
		return err
	}
	if err := Chmod(out.Name(), fi.Mode()); err != nil {
		return err
	}
	return Chtimes(out.Name(), fi.ModTime())
}

// CopyTree makes dst, which must not exist, a copy of the directory src, as
// Survey.Copy does, and makes it durable. A file that keeps changing while it
// is copied is agents.ErrConflict. On error nothing is left.
func CopyTree(ctx context.Context, src, dst string) (CopyReport, error) {
	fi, err := os.Lstat(src)
	if err == nil && !fi.IsDir() {
		err = fmt.Errorf("copy %s: is %s, not a directory: %w", showPath(src), kindOf(fi.Mode()), agents.ErrInvalid)
	}
	if err != nil {
		return CopyReport{}, err
	}
	s, err := SurveyTree(ctx, src, nil)
	if err != nil {
		return CopyReport{}, err
	}
	report, err := s.Copy(ctx, dst, CopyOptions{})
	if err != nil {
		return CopyReport{}, err
	}
	if len(report.Unsteady) > 0 {
		err = fmt.Errorf("copy %s: %s changes while it is read: %w", showPath(src), showPath(report.Unsteady[0]), agents.ErrConflict)
	}
	if err == nil {
		err = syncTree(dst)
	}
	if err != nil {
		return CopyReport{}, errors.Join(err, RemoveAll(dst))
	}
	return report, nil
}
