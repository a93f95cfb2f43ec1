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

// Skipped is something that a copy left out, and why.
type Skipped struct {
	Path string // relative, raw bytes
	Why  string
}

// CopyReport says what CopyTree did.
type CopyReport struct {
	Files   int
	Bytes   int64 // sizes of the files, each hard-linked file once
	Skipped []Skipped
}

// CopyTree makes dst, which must not exist, a faithful copy of the directory
// src: what CopyFile keeps, symbolic links as links, hard links among the
// files of the tree, directories with their bits and times, read-only ones
// too. FIFOs, sockets, devices and other mounted file systems are skipped and
// reported. Everything is durable when it returns. On error nothing is left.
func CopyTree(ctx context.Context, src, dst string) (CopyReport, error) {
	c := treeCopy{ctx: ctx, src: src, dst: dst, links: map[[2]uint64]string{}}
	fi, err := os.Lstat(src)
	if err == nil && !fi.IsDir() {
		err = fmt.Errorf("copy %s: is %s, not a directory: %w", showPath(src), kindOf(fi.Mode()), agents.ErrInvalid)
	}
	if err != nil {
		return CopyReport{}, err
	}
	c.dev, _ = device(fi)
	if err := Mkdir(dst, 0o700); err != nil {
		return CopyReport{}, err
	}
	if err := errors.Join(c.dir("", fi), ctx.Err()); err != nil {
		return CopyReport{}, errors.Join(err, RemoveAll(dst))
	}
	if err := syncTree(dst); err != nil {
		return CopyReport{}, errors.Join(err, RemoveAll(dst))
	}
	return c.report, nil
}

type treeCopy struct {
	ctx      context.Context
	src, dst string
	dev      uint64
	links    map[[2]uint64]string // file system and inode → where its copy is
	report   CopyReport
}

// dir copies what is in a directory, and then gives it its bits and times.
func (c *treeCopy) dir(rel string, fi fs.FileInfo) error {
	entries, err := os.ReadDir(filepath.Join(c.src, rel))
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := c.ctx.Err(); err != nil {
			return err
		}
		if err := c.entry(filepath.Join(rel, e.Name())); err != nil {
			return err
		}
	}
	return c.dress(rel, fi)
}

func (c *treeCopy) dress(rel string, fi fs.FileInfo) error {
	from, to := filepath.Join(c.src, rel), filepath.Join(c.dst, rel)
	if err := copyOwner(to, fi); err != nil {
		return err
	}
	if err := copyXattrs(from, to); err != nil {
		return err
	}
	if err := Chmod(to, fi.Mode()); err != nil {
		return err
	}
	return Chtimes(to, fi.ModTime())
}

func (c *treeCopy) entry(rel string) error {
	from, to := filepath.Join(c.src, rel), filepath.Join(c.dst, rel)
	fi, err := os.Lstat(from)
	if err != nil {
		return err
	}
	switch kindOf(fi.Mode()) {
	case KindDir:
		if dev, known := device(fi); known && dev != c.dev {
			c.skip(rel, "is on another file system")
			return nil
		}
		if err := Mkdir(to, 0o700); err != nil {
			return err
		}
		return c.dir(rel, fi)
	case KindSymlink:
		return c.link(from, to, fi)
	case KindFile:
		return c.file(from, to, fi)
	}
	c.skip(rel, "is a FIFO, socket or device")
	return nil
}

func (c *treeCopy) skip(rel, why string) {
	c.report.Skipped = append(c.report.Skipped, Skipped{Path: rel, Why: why})
}

func (c *treeCopy) link(from, to string, fi fs.FileInfo) error {
	target, err := os.Readlink(from)
	if err != nil {
		return err
	}
	if err := Symlink(target, to); err != nil {
		return err
	}
	if err := copyOwner(to, fi); err != nil {
		return err
	}
	return copyLinkTime(to, fi.ModTime())
}

func (c *treeCopy) file(from, to string, fi fs.FileInfo) error {
	dev, ino, _ := inode(fi)
	key := [2]uint64{dev, ino}
	if first, ok := c.links[key]; ok {
		return Link(first, to)
	}
	if err := CopyFile(from, to); err != nil {
		return err
	}
	if hardLinks(fi) > 1 {
		c.links[key] = to
	}
	c.report.Files++
	c.report.Bytes += fi.Size()
	return nil
}
