package gitworktree

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/fsx"
	"github.com/cleveragents/agents/internal/git"
	"github.com/cleveragents/agents/sandbox"
	"github.com/cleveragents/agents/sandbox/internal/folder"
)

var _ sandbox.Strategy = (*Strategy)(nil)

// Create makes the worktree on the plan's branch (git-worktree-sandbox.md,
// "create"). A location that is not the root of a repository is
// agents.ErrInvalid and the message names the root; a repository without
// commits, or no git, is agents.ErrUnsupported; a branch of the plan's name
// that is in use is agents.ErrConflict. Commits that an earlier life of the
// plan left on the branch are kept: the sandbox starts from them.
func (s *Strategy) Create(ctx context.Context, req sandbox.CreateRequest) (sandbox.Workspace, error) {
	b, err := s.plan(ctx, req)
	if err != nil {
		return sandbox.Workspace{}, err
	}
	if err := b.build(ctx, req); err != nil {
		detached, cancel := sandbox.Detach(ctx)
		defer cancel()
		return sandbox.Workspace{}, errors.Join(err, s.Remove(detached, b.ws))
	}
	return b.ws, nil
}

// plan finds out everything that Create needs, and makes nothing; what an
// earlier, killed Create left in the same private folder goes first.
func (s *Strategy) plan(ctx context.Context, req sandbox.CreateRequest) (*box, error) {
	branch, err := branchOf(req.PlanID)
	if err != nil {
		return nil, err
	}
	run := s.runner(req.Options)
	found, err := git.Discover(ctx, run, req.Resource.Location)
	if err != nil {
		return nil, err
	}
	if err := folder.Outside(req.Dir, found.Root); err != nil {
		return nil, err
	}
	if err := s.clearKilled(ctx, req); err != nil {
		return nil, err
	}
	entry := newEntry(req.PlanID)
	b := &box{run: run, states: &s.states, rec: record{
		SandboxID: req.SandboxID, PlanID: req.PlanID, Entry: entry, Branch: branch, Path: filepath.Join(req.Dir, entry),
		User: userRepo{Root: found.Root, GitDir: found.GitDir, CommonDir: found.CommonDir, Objects: found.Objects,
			Bare: found.Bare, Format: found.ObjectFormat},
	}}
	b.ws = sandbox.Workspace{SandboxID: req.SandboxID, PlanID: req.PlanID, Resource: req.Resource,
		Path: b.rec.Path, PrivateDir: req.PrivateDir, Options: req.Options}
	if b.rec.Near, err = folder.Beside(req.Dir, req.PrivateDir, entry); err != nil {
		return nil, err
	}
	if err := b.findBase(ctx, req.Like); err != nil {
		return nil, err
	}
	return b, b.earlierLife(ctx, req.Notify)
}

// clearKilled removes what a Create that was killed left in the private folder.
func (s *Strategy) clearKilled(ctx context.Context, req sandbox.CreateRequest) error {
	left := sandbox.Workspace{SandboxID: req.SandboxID, PlanID: req.PlanID, Resource: req.Resource,
		PrivateDir: req.PrivateDir, Options: req.Options}
	if err := s.Remove(ctx, left); err != nil {
		return fmt.Errorf("clear what a killed creation left: %w", err)
	}
	return nil
}

// findBase settles the commit that the plan starts from, and the branch that
// its result goes to: those of the earlier life where there was one.
func (b *box) findBase(ctx context.Context, like map[string]string) error {
	user := b.user()
	if commit := like["base_commit"]; commit != "" {
		id, err := user.Commit(ctx, commit)
		if err != nil {
			return fmt.Errorf("base commit of the plan: %w", err)
		}
		b.rec.Base = id
		if name := like["original_branch"]; name != "" {
			b.rec.OriginalRef = "refs/heads/" + name
		}
		return nil
	}
	if name := b.ws.Resource.Branch; name != "" {
		id, err := user.Commit(ctx, "refs/heads/"+name)
		if err != nil {
			return fmt.Errorf("base branch %q: %w", name, err)
		}
		b.rec.Base, b.rec.OriginalRef = id, "refs/heads/"+name
		return nil
	}
	head, err := user.Head(ctx)
	if err != nil {
		return fmt.Errorf("read HEAD of %s: %w", b.rec.User.Root, err)
	}
	if head.Commit == "" {
		return b.unborn(ctx)
	}
	b.rec.Base, b.rec.OriginalRef = head.Commit, head.Ref
	return nil
}

// unborn refuses a repository without commits in git's own words.
func (b *box) unborn(ctx context.Context) error {
	_, said := b.user().Read(ctx, "log", "-1")
	if said == nil {
		said = errors.New("HEAD names no commit")
	}
	return agents.WithHint(fmt.Errorf("repository %s has no commit to start from: %w: %w", b.rec.User.Root, said, agents.ErrUnsupported),
		"make a first commit: git commit --allow-empty -m start")
}

// build makes everything, in this order: the record of what is about to be,
// private files, the sandbox's directory, the placeholder, the finished record.
func (b *box) build(ctx context.Context, req sandbox.CreateRequest) error {
	if err := b.save(); err != nil {
		return err
	}
	settings, err := b.makePrivate(ctx)
	if err != nil {
		return fmt.Errorf("make private git directory: %w", err)
	}
	if req.IncludeUncommitted {
		if err := b.foldUncommitted(ctx); err != nil {
			return fmt.Errorf("take over uncommitted changes: %w", err)
		}
		if err := b.warnStaged(ctx, req.Notify); err != nil {
			return err
		}
	}
	if err := b.makeTree(ctx, req.Dir); err != nil {
		return err
	}
	b.rec.RawOnly = convertsLineEnds(settings)
	if err := b.include(ctx, req); err != nil {
		return fmt.Errorf("copy in ignored files: %w", err)
	}
	if err := b.placeholder(ctx); err != nil {
		return err
	}
	b.rec.Ready = true
	b.rec.Bases = map[string]string{b.rec.Base: b.rec.Uncommitted}
	b.ws.Metadata = b.rec.metadata()
	return b.save()
}

// makeTree makes the sandbox's directory and checks the files out.
func (b *box) makeTree(ctx context.Context, dir string) error {
	if err := fsx.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := fsx.Mkdir(b.rec.Path, 0o700); err != nil {
		return err
	}
	if err := b.point(); err != nil {
		return err
	}
	if err := b.checkout(ctx); err != nil {
		return err
	}
	if err := b.unlinkShared(); err != nil {
		return err
	}
	return copyOver(filepath.Join(b.planGitDir(), "index"), b.private("trusted", "index"))
}

// point writes the sandbox's .git file.
func (b *box) point() error {
	return fsx.Publish(filepath.Join(b.rec.Path, ".git"), b.pointer(), 0o644)
}

func (b *box) pointer() []byte { return []byte("gitdir: " + b.planGitDir() + "\n") }

// checkout fills the sandbox. This is the one call that runs with the private
// directory's configuration: no plan has touched it yet.
func (b *box) checkout(ctx context.Context) error {
	at := git.Repo{Git: b.run, GitDir: b.planGitDir(), WorkTree: b.rec.Path, Alternates: []string{b.private("trusted", "objects")},
		Config: []string{"checkout.workers=0"}} // one a processor
	from := "HEAD"
	if b.rec.Uncommitted != "" {
		from = b.rec.Uncommitted
	}
	res, err := at.Do(ctx, git.Call{Args: []string{"read-tree", "--reset", "-u", "--no-recurse-submodules", from}, Writes: true})
	if err != nil {
		return checkoutError(err)
	}
	if name := filterOf(res.Stderr); name != "" {
		return fmt.Errorf("filter %s cannot run: %s: %w", name, strings.TrimSpace(res.Stderr), agents.ErrUnsupported)
	}
	if b.rec.Uncommitted == "" {
		return nil
	}
	if _, err := at.Write(ctx, "read-tree", "HEAD"); err != nil {
		return err
	}
	_, err = at.Do(ctx, git.Call{Args: []string{"update-index", "-q", "--refresh"}, Writes: true, OK: []int{1}})
	return err
}

// checkoutError names the filter that a checkout failed on.
func checkoutError(err error) error {
	var said *git.Error
	if !errors.As(err, &said) || said.Err != nil {
		return fmt.Errorf("check out: %w", err)
	}
	if name := filterOf(said.Stderr); name != "" {
		return agents.WithHint(fmt.Errorf("check out: the filter %s that the repository requires does not work: %w: %w", name, err, agents.ErrUnsupported),
			"install the program of filter.%s, or see git config filter.%s.smudge", name, name)
	}
	return fmt.Errorf("check out: %w", err)
}

// filterOf finds the name of the filter that git complains about as
// "<path>: smudge filter <name> failed".
func filterOf(stderr string) string {
	for line := range strings.Lines(stderr) {
		if _, rest, ok := strings.Cut(line, "smudge filter "); ok {
			if name, _, ok := strings.Cut(rest, " failed"); ok {
				return name
			}
		}
	}
	return ""
}

// convertsLineEnds reports whether a checkout writes other line ends than the
// blobs hold, whatever the attributes say.
func convertsLineEnds(all []git.Setting) bool {
	auto, _ := git.Value(all, "core.autocrlf")
	eol, _ := git.Value(all, "core.eol")
	return strings.EqualFold(eol, "crlf") || !strings.EqualFold(auto, "input") && git.True(all, "core.autocrlf")
}
