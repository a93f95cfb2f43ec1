package git

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	agents "github.com/cleveragents/agents"
)

// Found is a repository as git sees it from its root.
type Found struct {
	Root         string // absolute, links resolved by git; of a bare repository its git directory
	GitDir       string // absolute; of a linked worktree .git/worktrees/<name>
	CommonDir    string // absolute; what all worktrees share
	Objects      string // absolute
	Bare         bool
	Linked       bool   // a linked worktree
	ObjectFormat string // sha1 or sha256
}

// Discover looks at the repository whose root is path. A path below the root
// is agents.ErrInvalid and names the root; so is a path that is no repository,
// with git's own words. Roots are compared by file identity, so any spelling
// of the path will do.
func Discover(ctx context.Context, runner *Runner, path string) (Found, error) {
	fi, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Found{}, fmt.Errorf("repository %s: %w", path, agents.ErrNotFound)
	case err != nil:
		return Found{}, fmt.Errorf("repository %s: %w", path, err)
	case !fi.IsDir():
		return Found{}, fmt.Errorf("repository %s is not a directory: %w", path, agents.ErrInvalid)
	}
	at := Repo{Git: runner, Dir: path}
	out, err := at.Read(ctx, "rev-parse", "--path-format=absolute", "--is-bare-repository", "--show-object-format",
		"--git-dir", "--git-common-dir", "--git-path", "objects")
	if err != nil {
		return Found{}, notRepository(path, err)
	}
	f, err := parseFound(string(out))
	if err != nil {
		return Found{}, fmt.Errorf("repository %s: %w", path, err)
	}
	if !f.Bare {
		top, err := at.Read(ctx, "rev-parse", "--path-format=absolute", "--show-toplevel")
		if err != nil {
			return Found{}, notRepository(path, err)
		}
		f.Root = strings.TrimSuffix(string(top), "\n")
	}
	return f, rootIs(f.Root, path, fi)
}

// notRepository classes git's refusal; a missing git keeps its own class.
func notRepository(path string, err error) error {
	var said *Error
	if errors.As(err, &said) && said.Err == nil {
		return fmt.Errorf("%s is not the root of a usable git repository: %w: %w", path, err, agents.ErrInvalid)
	}
	return err
}

// parseFound reads rev-parse's five lines. Directories whose names hold line
// ends give more lines, and are refused.
func parseFound(out string) (Found, error) {
	lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	if len(lines) != 5 {
		return Found{}, fmt.Errorf("a line end in the name of the git directory: %w", agents.ErrUnsupported)
	}
	f := Found{
		Bare:         lines[0] == "true",
		ObjectFormat: lines[1],
		GitDir:       filepath.Clean(lines[2]),
		CommonDir:    filepath.Clean(lines[3]),
		Objects:      filepath.Clean(lines[4]),
	}
	f.Linked = f.GitDir != f.CommonDir
	f.Root = f.GitDir
	return f, nil
}

func rootIs(root, path string, fi fs.FileInfo) error {
	top, err := os.Stat(root)
	if err != nil {
		return fmt.Errorf("repository root %s: %w", root, err)
	}
	if !os.SameFile(top, fi) {
		return agents.WithHint(
			fmt.Errorf("%s is not the root of its repository, which is %s: %w", path, root, agents.ErrInvalid), "use %s", root)
	}
	return nil
}

// Repo returns calls on the found repository.
func (f Found) Repo(runner *Runner) Repo {
	r := Repo{Git: runner, GitDir: f.GitDir}
	if !f.Bare {
		r.WorkTree = f.Root
	}
	return r
}

// Head is what a repository has checked out.
type Head struct {
	Ref    string // refs/heads/… ; "" = detached
	Commit string // "" = unborn
}

// Branch returns the short name of the branch, or "" for a detached head.
func (h Head) Branch() string { return strings.TrimPrefix(h.Ref, "refs/heads/") }

// Head reads HEAD.
func (r Repo) Head(ctx context.Context) (Head, error) {
	res, err := r.Do(ctx, Call{Args: []string{"symbolic-ref", "--quiet", "HEAD"}, OK: []int{1}})
	if err != nil {
		return Head{}, err
	}
	h := Head{Ref: strings.TrimSuffix(string(res.Stdout), "\n")}
	h.Commit, err = r.Commit(ctx, "HEAD")
	if errors.Is(err, agents.ErrNotFound) {
		err = nil
	}
	return h, err
}

// Commit returns the id of the commit that name says, or agents.ErrNotFound.
func (r Repo) Commit(ctx context.Context, name string) (string, error) {
	res, err := r.Do(ctx, Call{
		Args: []string{"rev-parse", "--verify", "--quiet", "--end-of-options", name + "^{commit}"},
		OK:   []int{1, 128},
	})
	if err != nil {
		return "", err
	}
	if res.ExitCode != 0 {
		return "", fmt.Errorf("commit %q: %w", name, agents.ErrNotFound)
	}
	return strings.TrimSuffix(string(res.Stdout), "\n"), nil
}

// Operations returns the names of the operations that are in progress in a git
// directory: merge, rebase, am, cherry-pick, revert, bisect.
func Operations(gitDir string) []string {
	var under []string
	for _, o := range []struct{ file, name string }{
		{"MERGE_HEAD", "merge"},
		{"rebase-merge", "rebase"},
		{"rebase-apply/applying", "am"},
		{"rebase-apply/rebasing", "rebase"},
		{"CHERRY_PICK_HEAD", "cherry-pick"},
		{"REVERT_HEAD", "revert"},
		{"sequencer", "sequencer"},
		{"BISECT_LOG", "bisect"},
	} {
		if _, err := os.Lstat(filepath.Join(gitDir, filepath.FromSlash(o.file))); err == nil {
			under = append(under, o.name)
		}
	}
	return under
}
