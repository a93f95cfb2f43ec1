package gitworktree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/git"
	"github.com/cleveragents/agents/sandbox"
)

// target is where a result goes: a branch or a detached head, and the work
// tree that has it checked out, if any has.
type target struct {
	found  git.Found // of the work tree; of the resource itself where none is touched
	repo   git.Repo
	root   string // the work tree; "" = none is touched
	ref    string // refs/heads/…, or HEAD when detached
	branch string // short name; "" = detached
	tip    string // the commit that ref holds

	settings []git.Setting // of repo, once it was found
}

// wanted names the target of an apply: the branch that was recorded at
// creation, or another one that the user asked for.
func wanted(ws sandbox.Workspace, into string) (string, error) {
	if into == "" {
		into = ws.Metadata["original_branch"]
	}
	into = strings.TrimPrefix(into, "refs/heads/")
	if into == "HEAD" || into == "" {
		return "HEAD", nil
	}
	if strings.HasPrefix(into, "cleveragents/") {
		return "", fmt.Errorf("branch %q belongs to a plan: %w", into, agents.ErrInvalid)
	}
	return "refs/heads/" + into, nil
}

// findTarget looks up the ref and the work tree that has it checked out.
// Errors are agents.ErrConflict with a hint wherever the user can go on.
func findTarget(ctx context.Context, runner *git.Runner, location, ref string) (target, error) {
	found, err := git.Discover(ctx, runner, location)
	if err != nil {
		return target{}, err
	}
	t := target{found: found, repo: found.Repo(runner), ref: ref}
	if ref == "HEAD" {
		err = t.findDetached(ctx)
	} else {
		err = t.findBranch(ctx, runner)
	}
	if err != nil {
		return target{}, err
	}
	if t.settings, err = t.repo.Settings(ctx); err != nil {
		return target{}, err
	}
	return t, t.atRest()
}

// findBranch fills in a branch's tip and work tree.
func (t *target) findBranch(ctx context.Context, runner *git.Runner) (err error) {
	t.branch = strings.TrimPrefix(t.ref, "refs/heads/")
	if t.tip, err = branchTip(ctx, t.repo, t.ref); err != nil {
		return err
	}
	return t.findTree(ctx, runner)
}

// findDetached fills in the head of the resource itself, where it is on no branch.
func (t *target) findDetached(ctx context.Context) error {
	head, err := t.repo.Head(ctx)
	switch {
	case err != nil:
		return err
	case head.Ref != "":
		return agents.WithHint(
			fmt.Errorf("the plan began on a detached HEAD, and %s is checked out now: %w", head.Branch(), agents.ErrConflict),
			"name the branch to apply to with --into BRANCH, for example --into %s", head.Branch())
	case head.Commit == "":
		return fmt.Errorf("HEAD names no commit: %w", agents.ErrConflict)
	}
	t.tip = head.Commit
	if !t.found.Bare {
		t.root = t.found.Root
	}
	return nil
}

// branchTip returns the commit of a branch that is neither gone nor an alias.
func branchTip(ctx context.Context, repo git.Repo, ref string) (string, error) {
	refs, err := repo.Refs(ctx, ref)
	if err != nil {
		return "", err
	}
	name := strings.TrimPrefix(ref, "refs/heads/")
	for _, r := range refs {
		if r.Name != ref {
			continue
		}
		if r.Symref != "" {
			return "", agents.WithHint(fmt.Errorf("branch %q is another name for %s: %w", name, r.Symref, agents.ErrConflict),
				"name the branch itself with --into %s", strings.TrimPrefix(r.Symref, "refs/heads/"))
		}
		return r.ID, nil
	}
	return "", agents.WithHint(fmt.Errorf("branch %q is gone or was renamed: %w", name, agents.ErrConflict),
		"name the branch to apply to with --into BRANCH")
}

// findTree finds the work tree that has t's branch checked out: the resource's
// own or another one of its repository.
func (t *target) findTree(ctx context.Context, runner *git.Runner) error {
	if !t.found.Bare {
		head, err := t.repo.Head(ctx)
		if err != nil {
			return err
		}
		if head.Ref == t.ref {
			t.root = t.found.Root
		}
	}
	trees, err := listWorktrees(ctx, t.repo)
	if err != nil {
		return err
	}
	var paths []string
	for _, w := range trees {
		if w.ref == t.ref && !w.bare {
			paths = append(paths, w.path)
		}
	}
	switch {
	case len(paths) > 1:
		return fmt.Errorf("branch %q is checked out more than once, in %s: %w", t.branch, strings.Join(paths, " and "), agents.ErrConflict)
	case t.root != "" || len(paths) == 0:
		return nil
	}
	return t.enter(ctx, runner, paths[0])
}

// enter makes the work tree at path t's own.
func (t *target) enter(ctx context.Context, runner *git.Runner, path string) error {
	found, err := git.Discover(ctx, runner, path)
	if err != nil {
		return agents.WithHint(
			fmt.Errorf("branch %q is checked out in %s, which cannot be used (%v): %w", t.branch, path, err, agents.ErrConflict),
			"git worktree prune forgets a work tree that is gone")
	}
	if !sameFile(found.CommonDir, t.found.CommonDir) {
		return fmt.Errorf("branch %q is checked out in %s, which is now another repository: %w", t.branch, path, agents.ErrConflict)
	}
	t.found, t.repo, t.root = found, found.Repo(runner), found.Root
	return nil
}

// atRest refuses a target in the middle of another operation.
func (t target) atRest() error {
	var under []string
	if t.root != "" {
		under = git.Operations(t.found.GitDir)
	}
	if len(under) == 0 && t.branch != "" {
		under = t.inUse()
	}
	if len(under) == 0 {
		return nil
	}
	where := t.root
	if where == "" {
		where = t.found.CommonDir
	}
	return agents.WithHint(
		fmt.Errorf("a %s is in progress in %s: %w", strings.Join(under, " and a "), where, agents.ErrConflict),
		"finish or abort it, then apply again")
}

// inUse returns the operations of other work trees that will move t's branch
// when they end: git shows such a branch as not checked out.
func (t target) inUse() []string {
	dirs := []string{t.found.CommonDir}
	linked, _ := os.ReadDir(filepath.Join(t.found.CommonDir, "worktrees"))
	for _, d := range linked {
		dirs = append(dirs, filepath.Join(t.found.CommonDir, "worktrees", d.Name()))
	}
	var under []string
	for _, dir := range dirs {
		for _, o := range []struct{ file, name string }{
			{"rebase-merge/head-name", "rebase"}, {"rebase-apply/head-name", "rebase"}, {"BISECT_START", "bisect"},
		} {
			b, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(o.file)))
			name := strings.TrimSpace(string(b))
			if err == nil && (name == t.ref || name == t.branch) {
				under = append(under, o.name)
			}
		}
	}
	return under
}

// checkout is one entry of git's list of work trees.
type checkout struct {
	path string
	ref  string // "" = detached
	bare bool
}

func listWorktrees(ctx context.Context, repo git.Repo) ([]checkout, error) {
	out, err := repo.Read(ctx, "worktree", "list", "--porcelain", "-z")
	if err != nil {
		return nil, err
	}
	var all []checkout
	for _, f := range git.Fields(out) {
		key, value, _ := strings.Cut(f, " ")
		switch {
		case key == "worktree":
			all = append(all, checkout{path: value})
		case len(all) == 0:
		case key == "branch":
			all[len(all)-1].ref = value
		case key == "bare":
			all[len(all)-1].bare = true
		}
	}
	return all, nil
}

// sameFile reports whether two paths lead to one file; a missing one does not.
func sameFile(a, b string) bool {
	x, err := os.Stat(a)
	if err != nil {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}

// lstatOrNil is os.Lstat that takes a missing path, or one below a file, for no answer.
func lstatOrNil(path string) (fs.FileInfo, error) {
	fi, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil, nil
	}
	return fi, err
}
