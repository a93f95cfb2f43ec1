package fsx

import (
	"errors"
	"fmt"
	"io/fs"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/failpoint"
)

// Place returns where path lies, relative to the directory: links on the way
// are followed, one at the end is not. What it names need not exist.
func (r *Root) Place(path string) (string, error) { return r.resolve(path, false) }

// Readlink returns the target of the symbolic link at path.
func (r *Root) Readlink(path string) (string, error) {
	rel, err := r.resolve(path, false)
	if err != nil {
		return "", err
	}
	return r.dir.Readlink(rel)
}

// Symlink makes a symbolic link at path. The target is kept as it is given and
// not looked at. Something that is there already is agents.ErrExists.
func (r *Root) Symlink(target, path string) error {
	rel, err := r.resolve(path, false)
	if err != nil {
		return err
	}
	if err := failpoint.Hit("fsx.symlink", rel); err != nil {
		return err
	}
	err = r.dir.Symlink(target, rel)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("path %s: %w", showPath(path), agents.ErrExists)
	}
	return err
}

// Chmod sets the permission bits of a file or directory. A link at the end is
// agents.ErrInvalid.
func (r *Root) Chmod(path string, perm fs.FileMode) error {
	rel, err := r.resolve(path, false)
	if err != nil {
		return err
	}
	fi, err := r.dir.Lstat(rel)
	if err != nil {
		return err
	}
	if fi.Mode()&fs.ModeSymlink != 0 {
		return notFile(path, fi)
	}
	if err := failpoint.Hit("fsx.chmod", rel); err != nil {
		return err
	}
	return r.dir.Chmod(rel, perm)
}
