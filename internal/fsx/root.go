package fsx

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/failpoint"
)

// Root is a directory that paths from outside cannot leave. It stands on
// os.Root: even a link that is planted between a check and its use leads
// nowhere else. Several goroutines may use it.
//
// A path is relative to the directory, or absolute and then must lie in it by
// identity, whatever names lead there; the text of paths is never compared.
// Symbolic links are followed while they stay inside, absolute ones too. A
// path that has a "..", is empty, has a NUL, or leads out by a link is
// agents.ErrInvalid. Where an operation finds nothing, the error is
// fs.ErrNotExist.
type Root struct {
	dir  *os.Root
	self fs.FileInfo
}

// OpenRoot opens the directory dir. The caller closes the Root.
func OpenRoot(dir string) (*Root, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	self, err := root.Stat(".")
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return &Root{dir: root, self: self}, nil
}

// Close closes the directory.
func (r *Root) Close() error { return r.dir.Close() }

// Resolve returns where path leads, relative to the directory, with all links
// on the way and at the end followed. What it names need not exist.
func (r *Root) Resolve(path string) (string, error) { return r.resolve(path, true) }

// maxLinks is how many symbolic links a path may lead through, as in Linux.
const maxLinks = 40

func (r *Root) resolve(path string, followLast bool) (string, error) {
	todo, err := r.components(path)
	if err != nil {
		return "", err
	}
	var done []string
	for links := 0; len(todo) > 0; {
		name := todo[0]
		todo = todo[1:]
		if name == ".." {
			if len(done) == 0 {
				return "", leaves(path)
			}
			done = done[:len(done)-1]
			continue
		}
		here := filepath.Join(filepath.Join(done...), name)
		fi, err := r.dir.Lstat(here)
		if err != nil && !absentName(err) {
			return "", fmt.Errorf("path %s: %w", showPath(path), err)
		}
		if err != nil || fi.Mode()&fs.ModeSymlink == 0 || len(todo) == 0 && !followLast {
			done = append(done, name)
			continue
		}
		if links++; links > maxLinks {
			return "", fmt.Errorf("path %s: too many symbolic links: %w", showPath(path), agents.ErrInvalid)
		}
		target, err := r.dir.Readlink(here)
		if err != nil {
			return "", fmt.Errorf("path %s: %w", showPath(path), err)
		}
		ahead, absolute, err := r.follow(target)
		if err != nil {
			return "", leaves(path)
		}
		if absolute {
			done = nil
		}
		todo = append(ahead, todo...)
	}
	return filepath.Join(append([]string{"."}, done...)...), nil
}

// absentName reports that a path names nothing, also because something above
// it is a file: then what is done with the path fails by itself.
func absentName(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || notDirectory(err)
}

// components splits a path from outside into the names below the directory.
func (r *Root) components(path string) ([]string, error) {
	if path == "" {
		return nil, fmt.Errorf("path is empty: %w", agents.ErrInvalid)
	}
	if strings.ContainsRune(path, 0) {
		return nil, fmt.Errorf("path %s has a NUL: %w", showPath(path), agents.ErrInvalid)
	}
	names := splitNames(path)
	for _, name := range names {
		if name == ".." {
			return nil, leaves(path)
		}
	}
	if !filepath.IsAbs(path) {
		if len(names) > 0 && !filepath.IsLocal(filepath.Join(names...)) { // C:x and NUL on Windows
			return nil, leaves(path)
		}
		return names, nil
	}
	return r.within(path)
}

// follow splits the target of a link; absolute says that it starts at the
// directory again.
func (r *Root) follow(target string) (names []string, absolute bool, err error) {
	if filepath.IsAbs(target) {
		names, err = r.within(target)
		return names, true, err
	}
	return splitNames(target), false, nil
}

// within returns what of an absolute path lies below the directory. Each
// directory above the path is compared with it by identity.
func (r *Root) within(path string) ([]string, error) {
	above := filepath.VolumeName(path) + string(filepath.Separator)
	names := splitNames(path[len(filepath.VolumeName(path)):])
	for i := 0; ; i++ {
		fi, err := os.Stat(above)
		switch {
		case err == nil && os.SameFile(fi, r.self):
			return names[i:], nil
		case err != nil, i == len(names):
			return nil, leaves(path)
		}
		above = filepath.Join(above, names[i])
	}
}

func leaves(path string) error {
	return fmt.Errorf("path %s leads out of the directory: %w", showPath(path), agents.ErrInvalid)
}

// splitNames splits at separators and drops what means nothing.
func splitNames(path string) []string {
	all := strings.FieldsFunc(path, func(c rune) bool { return c < 0x80 && os.IsPathSeparator(uint8(c)) })
	names := all[:0]
	for _, name := range all {
		if name != "." {
			names = append(names, name)
		}
	}
	return names
}

// Open opens a regular file for reading. Anything else is agents.ErrInvalid
// and is not waited for.
func (r *Root) Open(path string) (*os.File, error) {
	rel, err := r.resolve(path, true)
	if err != nil {
		return nil, err
	}
	f, err := r.dir.OpenFile(rel, os.O_RDONLY|openCarefully, 0)
	if err != nil {
		return nil, err
	}
	fi, err := f.Stat()
	if err == nil && !fi.Mode().IsRegular() {
		err = notFile(path, fi)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func notFile(path string, fi fs.FileInfo) error {
	return fmt.Errorf("path %s is %s: %w", showPath(path), kindOf(fi.Mode()), agents.ErrInvalid)
}

// ReadFile returns the content of a regular file.
func (r *Root) ReadFile(path string) ([]byte, error) {
	f, err := r.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}

// Stat tells of what path leads to.
func (r *Root) Stat(path string) (fs.FileInfo, error) {
	rel, err := r.resolve(path, true)
	if err != nil {
		return nil, err
	}
	return r.dir.Lstat(rel)
}

// Lstat tells of what is at path itself, which may be a link that leads out.
func (r *Root) Lstat(path string) (fs.FileInfo, error) {
	rel, err := r.resolve(path, false)
	if err != nil {
		return nil, err
	}
	return r.dir.Lstat(rel)
}

// List returns the entries of a directory, sorted by name.
func (r *Root) List(path string) ([]fs.DirEntry, error) {
	rel, err := r.resolve(path, true)
	if err != nil {
		return nil, err
	}
	return fs.ReadDir(r.dir.FS(), filepath.ToSlash(rel))
}

// WriteFile makes path a file with this content, by a temporary file beside it
// that takes its place, so that no reader sees a half. A file that is there
// keeps its permission bits and, where the process may, its owner; a new one
// gets perm. Where path is a link that stays inside, what it leads to is
// written. A directory or special file there is agents.ErrInvalid.
func (r *Root) WriteFile(path string, data []byte, perm fs.FileMode) error {
	rel, err := r.resolve(path, true)
	if err != nil {
		return err
	}
	old, err := r.replaceable(path, rel)
	if err != nil {
		return err
	}
	return r.publish(rel, perm, old, func(f *File) error {
		if len(data) == 0 {
			return nil
		}
		_, err := f.Write(data)
		return err
	})
}

// replaceable returns what a new file at rel would replace; nil = nothing.
func (r *Root) replaceable(path, rel string) (fs.FileInfo, error) {
	fi, err := r.dir.Lstat(rel)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case !fi.Mode().IsRegular():
		return nil, notFile(path, fi)
	}
	return fi, nil
}

// publish fills a temporary file and puts it at rel.
func (r *Root) publish(rel string, perm fs.FileMode, old fs.FileInfo, fill func(*File) error) error {
	tmp := filepath.Join(filepath.Dir(rel), ".agents-"+strconv.FormatUint(rand.Uint64(), 36))
	if err := failpoint.Hit("fsx.open", tmp); err != nil {
		return err
	}
	raw, err := r.dir.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = fill(&File{raw})
	if old != nil {
		perm = old.Mode()
		giveOwner(raw, old)
	}
	if err == nil {
		err = failpoint.Hit("fsx.chmod", tmp)
	}
	if err == nil {
		err = raw.Chmod(perm)
	}
	if cerr := raw.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = r.rename(tmp, rel)
	}
	if err != nil {
		return errors.Join(err, r.dropTemp(tmp))
	}
	return nil
}

func (r *Root) rename(from, to string) error {
	if err := failpoint.Hit("fsx.rename", to); err != nil {
		return err
	}
	return r.dir.Rename(from, to)
}

func (r *Root) dropTemp(tmp string) error {
	if err := failpoint.Hit("fsx.remove", tmp); err != nil {
		return err
	}
	return r.dir.Remove(tmp)
}

// MkdirAll makes a directory and those above it that are missing, with the
// bits perm as the umask leaves them. One that is there is no error.
func (r *Root) MkdirAll(path string, perm fs.FileMode) error {
	rel, err := r.resolve(path, true)
	if err != nil {
		return err
	}
	if fi, err := r.dir.Lstat(rel); err == nil && fi.IsDir() {
		return nil
	}
	if err := failpoint.Hit("fsx.mkdir", rel); err != nil {
		return err
	}
	return r.dir.MkdirAll(rel, perm)
}

// Remove removes a file, a link itself, or a directory: one that is not empty
// only with recursive, read-only directories in it too. The Root's own
// directory, and a mount point, are refused with agents.ErrInvalid.
func (r *Root) Remove(path string, recursive bool) error {
	rel, err := r.resolve(path, false)
	if err != nil {
		return err
	}
	if rel == "." {
		return fmt.Errorf("path %s is the directory itself: %w", showPath(path), agents.ErrInvalid)
	}
	fi, err := r.dir.Lstat(rel)
	if err != nil {
		return err
	}
	if recursive && fi.IsDir() {
		return r.removeAll(rel, fi)
	}
	return r.remove(rel)
}

func (r *Root) remove(rel string) error {
	if err := failpoint.Hit("fsx.remove", rel); err != nil {
		return err
	}
	return r.dir.Remove(rel)
}

func (r *Root) removeAll(rel string, fi fs.FileInfo) error {
	if !fi.IsDir() {
		return r.remove(rel)
	}
	if d, known := device(fi); known {
		if root, _ := device(r.self); root != d {
			return fmt.Errorf("path %s is a mount point: %w", showPath(rel), agents.ErrInvalid)
		}
	}
	if fi.Mode().Perm()&0o700 != 0o700 {
		if err := failpoint.Hit("fsx.chmod", rel); err != nil {
			return err
		}
		if err := r.dir.Chmod(rel, fi.Mode().Perm()|0o700); err != nil {
			return err
		}
	}
	entries, err := fs.ReadDir(r.dir.FS(), filepath.ToSlash(rel))
	if err != nil {
		return err
	}
	for _, e := range entries {
		at := filepath.Join(rel, e.Name())
		child, err := r.dir.Lstat(at)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if err := r.removeAll(at, child); err != nil {
			return err
		}
	}
	return r.remove(rel)
}

// Move renames a file, link or directory. Something that is at to already is
// agents.ErrExists, unless replace is set and it is no directory.
func (r *Root) Move(from, to string, replace bool) error {
	src, dst, err := r.pair(from, to, replace)
	if err != nil {
		return err
	}
	return r.rename(src, dst)
}

// pair resolves the two ends of a move or copy.
func (r *Root) pair(from, to string, replace bool) (src, dst string, err error) {
	if src, err = r.resolve(from, false); err != nil {
		return "", "", err
	}
	if dst, err = r.resolve(to, false); err != nil {
		return "", "", err
	}
	if src == "." || dst == src || strings.HasPrefix(dst, src+string(filepath.Separator)) {
		return "", "", fmt.Errorf("path %s lies in %s, or is it: %w", showPath(to), showPath(from), agents.ErrInvalid)
	}
	if _, err := r.dir.Lstat(src); err != nil {
		return "", "", err
	}
	fi, err := r.dir.Lstat(dst)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return src, dst, nil
	case err != nil:
		return "", "", err
	case !replace, fi.IsDir():
		return "", "", fmt.Errorf("path %s: %w", showPath(to), agents.ErrExists)
	}
	return src, dst, nil
}

// Copy copies a file with its bits, a link as a link, or a directory with all
// that is in it; special files are agents.ErrInvalid. What is at to is treated
// as by Move. What a failed copy of a directory made is removed again.
func (r *Root) Copy(from, to string, replace bool) error {
	src, dst, err := r.pair(from, to, replace)
	if err != nil {
		return err
	}
	fi, err := r.dir.Lstat(src)
	if err != nil {
		return err
	}
	if !fi.IsDir() {
		return r.copyEntry(src, dst, fi)
	}
	if err := r.copyDir(src, dst, fi); err != nil {
		made, lerr := r.dir.Lstat(dst)
		if lerr != nil {
			return err
		}
		return errors.Join(err, r.removeAll(dst, made))
	}
	return nil
}

func (r *Root) copyEntry(src, dst string, fi fs.FileInfo) error {
	switch kindOf(fi.Mode()) {
	case KindDir:
		return r.copyDir(src, dst, fi)
	case KindSymlink:
		return r.copyLink(src, dst)
	case KindFile:
		return r.copyFile(src, dst, fi)
	}
	return notFile(src, fi)
}

func (r *Root) copyFile(src, dst string, fi fs.FileInfo) error {
	in, err := r.dir.OpenFile(src, os.O_RDONLY|openCarefully, 0)
	if err != nil {
		return err
	}
	defer in.Close()
	return r.publish(dst, fi.Mode(), nil, func(f *File) error {
		_, err := f.ReadFrom(in)
		return err
	})
}

func (r *Root) copyLink(src, dst string) error {
	target, err := r.dir.Readlink(src)
	if err != nil {
		return err
	}
	if _, err := r.dir.Lstat(dst); err == nil {
		if err := r.remove(dst); err != nil {
			return err
		}
	}
	if err := failpoint.Hit("fsx.symlink", dst); err != nil {
		return err
	}
	return r.dir.Symlink(target, dst)
}

func (r *Root) copyDir(src, dst string, fi fs.FileInfo) error {
	if err := failpoint.Hit("fsx.mkdir", dst); err != nil {
		return err
	}
	if err := r.dir.Mkdir(dst, 0o700); err != nil {
		return err
	}
	entries, err := fs.ReadDir(r.dir.FS(), filepath.ToSlash(src))
	if err != nil {
		return err
	}
	for _, e := range entries {
		at := filepath.Join(src, e.Name())
		child, err := r.dir.Lstat(at)
		if err != nil {
			return err
		}
		if err := r.copyEntry(at, filepath.Join(dst, e.Name()), child); err != nil {
			return err
		}
	}
	if err := failpoint.Hit("fsx.chmod", dst); err != nil {
		return err
	}
	return r.dir.Chmod(dst, fi.Mode())
}
