// Package gitworktree is the strategy for git repositories: a plan works in a
// worktree on a branch of its own, and its result comes home as a merge
// (git-worktree-sandbox.md; DESIGN §8).
//
// The worktree does not belong to the user's repository but to a private
// common directory of the sandbox: its own refs, stash, reflogs, config and
// objects, with the user's objects as a read-only alternate. So nothing that a
// plan does with git reaches the user's repository. What the user sees there
// until the sandbox is removed is a placeholder: the branch, which keeps the
// base commit and the sealed result from gc, and a locked worktree entry.
//
// The package's own calls that run filters or read what a plan could have
// configured go through a third, trusted git directory, whose configuration
// was copied from the user's at creation and which no tool can reach.
//
// Layout of a sandbox's private folder:
//
//	sandbox.json   what Create made or was about to make; the truth about the sandbox
//	git/           the private common directory; git/worktrees/sandbox is the worktree's own
//	trusted/       the trusted git directory, its index and the objects of sealed results
//	states/        caches of what the last scan saw
//	stage/, move/  new contents and the journal of a restore or update under way
//
// Where the sandbox's directory lies on another file system than the private
// folder, git/ and stage/ are beside the sandbox, in a folder .ca-private-…,
// since files move between them; git is then a link.
//
// Files, states and journalled moves are package snapshot's and fsx's; calls
// of git are internal/git's.
package gitworktree

import (
	"path/filepath"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/git"
	"github.com/cleveragents/agents/internal/snapshot"
	"github.com/cleveragents/agents/sandbox"
	"github.com/cleveragents/agents/sandbox/internal/folder"
)

// Strategy is sandbox.Strategy for git repositories. It may be used from
// several goroutines. The zero value is ready, and runs the git on PATH.
type Strategy struct {
	Git git.Runner // how git is started; Idle is taken from Options.GitTimeout where that is set

	states snapshot.Stores
}

// New returns the strategy.
func New() *Strategy { return &Strategy{} }

// Capabilities says what a git sandbox can do. What it leaves in the user's
// repository until Remove is the branch, the worktree entry, and objects that
// an ordinary gc removes afterwards.
func (s *Strategy) Capabilities() sandbox.Capabilities {
	return sandbox.Capabilities{
		Name:     agents.GitWorktree,
		Isolates: true, Rollback: true, Files: true, GitState: true,
		ProtectedNames: []string{".git"},
		Marks:          "a branch cleveragents/plan-<id>, a locked worktree entry, and git objects",
	}
}

// runner returns how git is started for one workspace, which has its own time limit.
func (s *Strategy) runner(o sandbox.Options) *git.Runner { return s.Git.WithIdle(o.GitTimeout) }

// box is an opened workspace: its record, and the git directories that calls go to.
type box struct {
	ws  sandbox.Workspace
	rec record
	run *git.Runner

	states *snapshot.Stores
}

// open reads the record of a workspace. One that was never made, or not to
// its end, is agents.ErrNotFound.
func (s *Strategy) open(ws sandbox.Workspace) (*box, error) {
	rec, err := loadRecord(ws.PrivateDir)
	if err != nil {
		return nil, err
	}
	if !rec.Ready {
		return nil, folder.HalfMade(ws.SandboxID)
	}
	b := &box{ws: ws, rec: rec, run: s.runner(ws.Options), states: &s.states}
	if err := folder.CheckOwn(b.rec.Path, rec.User.Root, rec.User.GitDir, rec.User.CommonDir); err != nil {
		return nil, err
	}
	b.settleBase()
	return b, nil
}

// private returns a path in the sandbox's private folder.
func (b *box) private(elem ...string) string {
	return filepath.Join(append([]string{b.ws.PrivateDir}, elem...)...)
}

// planDir is the private common directory, which the plan's own git uses and
// may write: none of our calls takes its configuration.
func (b *box) planDir() string { return b.near("git") }

// planGitDir is the git directory of the sandbox's worktree.
func (b *box) planGitDir() string { return b.near("git", "worktrees", "sandbox") }

// near returns a path in the part of the private folder that shares the
// sandbox's file system.
func (b *box) near(elem ...string) string {
	if b.rec.Near == "" {
		return b.private(elem...)
	}
	return filepath.Join(append([]string{b.rec.Near}, elem...)...)
}

// user returns calls on the user's repository, with its own configuration,
// index and work tree.
func (b *box) user() git.Repo { return b.rec.User.repo(b.run) }

// trusted returns calls on the sandbox's files with the trusted
// configuration and index. New objects go to the trusted store; the plan's
// and the user's can be read.
func (b *box) trusted() git.Repo {
	return git.Repo{
		Git: b.run, GitDir: b.private("trusted"), WorkTree: b.rec.Path,
		Config: []string{"core.untrackedCache=false", "index.sparse=false", "core.sparseCheckout=true", "sparse.expectFilesOutsideOfPatterns=false"},
	}
}
