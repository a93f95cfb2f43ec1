package gitworktree_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/oracle"
	"github.com/cleveragents/agents/sandbox"
	"github.com/cleveragents/agents/sandbox/gitworktree"
	"github.com/cleveragents/agents/sandbox/sandboxtest"
)

func TestConformance(t *testing.T) {
	t.Setenv("GIT_CONFIG_GLOBAL", "/dev/null")
	t.Setenv("GIT_CONFIG_NOSYSTEM", "1")
	sandboxtest.Run(t, sandboxtest.Config{
		New:      func(testing.TB) sandbox.Strategy { return gitworktree.New() },
		Resource: seededRepository,
		Digest:   digestRepository,
		Marks:    marksIn,
		Edit:     commitEdit,
		Hidden:   &sandboxtest.Hidden{Change: changeGitState, Digest: digestGitState},
	})
}

// seededRepository is a repository of the seed, with ignored and untracked
// files of the user beside it, a stash, a tag and another branch.
func seededRepository(t testing.TB, dir string) agents.Resource {
	t.Helper()
	repo := oracle.EmptyRepo(t, filepath.Join(dir, "repo"))
	if err := sandboxtest.WriteSeed(repo.Dir); err != nil {
		t.Fatal(err)
	}
	repo.Commit("seed")
	repo.Git("tag", "v1")
	repo.Git("branch", "other")
	repo.Write("README.md", "set aside\n")
	repo.Git("stash", "-q")
	repo.Write("mine.log", "ignored\n")
	repo.Write("scratch.txt", "untracked\n")
	return agents.Resource{
		ID: "01HZZZZZZZZZZZZZZZZZZZZZZZ", Name: "repo", Type: agents.TypeGitCheckout, Location: repo.Dir,
	}
}

// digestRepository is everything of the user's repository to the last byte,
// but the placeholder and the objects, which only ever come.
func digestRepository(t testing.TB, r agents.Resource) string {
	t.Helper()
	skip := append(oracle.Placeholder(), ".git/objects", ".git/worktrees")
	lines := oracle.Digest(t, r.Location, skip...)
	repo := oracle.At(t, r.Location)
	return strings.Join(append(lines, repo.Git("rev-list", "--objects", "--single-worktree", "--exclude=refs/heads/cleveragents/*", "--all")), "\n")
}

// marksIn lists branches, entries of worktrees and logs of a plan.
func marksIn(t testing.TB, r agents.Resource) []string {
	t.Helper()
	repo := oracle.At(t, r.Location)
	marks := strings.Fields(repo.Git("for-each-ref", "--format=%(refname)", "refs/heads/cleveragents/"))
	for _, pattern := range []string{".git/worktrees/*", ".git/refs/heads/cleveragents", ".git/logs/refs/heads/cleveragents"} {
		found, err := filepath.Glob(filepath.Join(r.Location, pattern))
		if err != nil {
			t.Fatal(err)
		}
		marks = append(marks, found...)
	}
	return marks
}

// commitEdit is a commit of the user's on the base branch.
func commitEdit(t testing.TB, r agents.Resource, path, content string) {
	t.Helper()
	repo := oracle.At(t, r.Location)
	repo.Write(path, content)
	repo.Git("add", "--", path)
	repo.Git("commit", "-q", "-m", "the user's own")
}

// changeGitState does what a plan does with git.
func changeGitState(t testing.TB, ws sandbox.Workspace, n int) {
	t.Helper()
	repo := oracle.At(t, ws.Path)
	switch n {
	case 0:
		repo.Write("committed.txt", "1\n")
		repo.Commit("the plan's own")
	case 1:
		repo.Write("README.md", "stashed\n")
		repo.Git("stash", "-q")
	case 2:
		repo.Write("staged.txt", "staged\n")
		repo.Git("add", "staged.txt")
		repo.Write("staged.txt", "and changed again\n")
		repo.Git("tag", "mark")
	case 3:
		repo.Git("stash", "drop", "-q")
		repo.Git("reset", "-q", "--hard", "HEAD~1")
		repo.Git("checkout", "-q", "-b", "topic")
	}
}

// digestGitState sums up HEAD, index, refs, stash and reflogs of the sandbox.
func digestGitState(t testing.TB, ws sandbox.Workspace) string {
	t.Helper()
	repo := oracle.At(t, ws.Path)
	var b strings.Builder
	for _, args := range [][]string{
		{"rev-parse", "HEAD"},
		{"symbolic-ref", "HEAD"},
		{"for-each-ref"},
		{"ls-files", "--stage", "-v", "-z"},
		{"--no-optional-locks", "status", "--porcelain=v2", "--branch"},
		{"reflog", "show", "--all"},
		{"stash", "list"},
		{"config", "--local", "--list"},
	} {
		fmt.Fprintf(&b, "%s:\n%s\n", strings.Join(args, " "), repo.Git(args...))
	}
	return b.String()
}
