package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	agents "github.com/cleveragents/agents"
)

// guard returns the absolute path of rel within the workspace at root, or
// agents.ErrInvalid when it leads out of it (git-worktree-sandbox.md,
// "get_path"). A workspace that is not a directory of files has one path only.
func guard(root, rel string, files bool) (string, error) {
	if rel == "" || rel == "." || rel == root {
		return root, nil
	}
	if !files {
		return "", fmt.Errorf("path %q: the sandbox is not a directory: %w", rel, agents.ErrUnsupported)
	}
	local, err := localPath(root, rel)
	if err != nil {
		return "", err
	}
	dir, err := os.OpenRoot(root)
	if err != nil {
		return "", fmt.Errorf("path %q: %w", rel, err)
	}
	defer dir.Close()
	if _, err := dir.Stat(local); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", outside(rel, err)
	}
	return filepath.Join(root, local), nil
}

// localPath returns rel relative to root, without looking at the disk.
func localPath(root, rel string) (string, error) {
	if slices.Contains(strings.Split(filepath.ToSlash(rel), "/"), "..") {
		return "", outside(rel, errors.New(`".." is not allowed`))
	}
	if filepath.IsAbs(rel) {
		in, err := filepath.Rel(root, rel)
		if err != nil {
			return "", outside(rel, err)
		}
		rel = in
	}
	if !filepath.IsLocal(rel) {
		return "", outside(rel, errors.New("not a path within it"))
	}
	return filepath.Clean(rel), nil
}

func outside(rel string, why error) error {
	return fmt.Errorf("path %q leaves the sandbox: %w: %w", rel, why, agents.ErrInvalid)
}
