package gitworktree_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/git"
	"github.com/cleveragents/agents/internal/oracle"
	"github.com/cleveragents/agents/sandbox"
	"github.com/cleveragents/agents/sandbox/gitworktree"
)

const planID = "01JQABCDEFGHJKMNPQRSTVWXYZ"

// bench is one plan on one repository, with the folders that the engine would give.
type bench struct {
	t        *testing.T
	repo     *oracle.Repo
	strategy *gitworktree.Strategy
	req      sandbox.CreateRequest
	ws       sandbox.Workspace
	objects  string
	told     []string
}

// cleanHome is an environment without a user: what git finds is the
// repository's own.
func cleanHome(t *testing.T) []string {
	home := t.TempDir()
	env := slices.DeleteFunc(os.Environ(), func(kv string) bool {
		return strings.HasPrefix(kv, "HOME=") || strings.HasPrefix(kv, "XDG_") || strings.HasPrefix(kv, "GIT_")
	})
	return append(env, "HOME="+home)
}

// newBench prepares a plan on the repository without creating its sandbox.
func newBench(t *testing.T, repo *oracle.Repo) *bench {
	t.Helper()
	data := t.TempDir()
	b := &bench{t: t, repo: repo, objects: filepath.Join(data, "objects"),
		strategy: &gitworktree.Strategy{Git: git.Runner{Env: cleanHome(t)}}}
	private := filepath.Join(data, "private")
	if err := os.Mkdir(private, 0o700); err != nil {
		t.Fatal(err)
	}
	b.req = sandbox.CreateRequest{
		SandboxID: "01JQSANDBOX", PlanID: planID, Dir: filepath.Join(data, "sandboxes"), PrivateDir: private,
		Resource: agents.Resource{Name: "repo", Type: agents.TypeGitCheckout, Location: repo.Dir},
		Notify:   func(s string) { b.told = append(b.told, s) },
	}
	return b
}

// created is newBench with a sandbox.
func created(t *testing.T, repo *oracle.Repo) *bench {
	t.Helper()
	b := newBench(t, repo)
	b.create()
	return b
}

func (b *bench) create() {
	b.t.Helper()
	ws, err := b.strategy.Create(b.t.Context(), b.req)
	if err != nil {
		b.t.Fatalf("create: %v", err)
	}
	b.ws = ws
}

// plan is a handle on the sandbox for the plan's own work.
func (b *bench) plan() *oracle.Repo { return oracle.At(b.t, b.ws.Path) }

func (b *bench) capture(paths ...string) sandbox.Captured {
	b.t.Helper()
	c, err := b.strategy.Capture(b.t.Context(), b.ws, sandbox.CaptureRequest{Objects: b.objects, Paths: paths})
	if err != nil {
		b.t.Fatalf("capture: %v", err)
	}
	return c
}

func (b *bench) restore(ref string) sandbox.Restored {
	b.t.Helper()
	r, err := b.strategy.Restore(b.t.Context(), b.ws, sandbox.RestoreRequest{Objects: b.objects, Ref: ref})
	if err != nil {
		b.t.Fatalf("restore: %v", err)
	}
	return r
}

func (b *bench) seal() sandbox.Sealed {
	b.t.Helper()
	s, err := b.strategy.Seal(b.t.Context(), b.ws, sandbox.SealRequest{Message: "plan's work", When: time.Unix(1700000001, 0)})
	if err != nil {
		b.t.Fatalf("seal: %v", err)
	}
	return s
}

func (b *bench) remove() {
	b.t.Helper()
	if err := b.strategy.Remove(b.t.Context(), b.ws); err != nil {
		b.t.Fatalf("remove: %v", err)
	}
}

func (b *bench) prepare() {
	b.t.Helper()
	if _, err := b.strategy.Prepare(b.t.Context(), b.ws); err != nil {
		b.t.Fatalf("prepare: %v", err)
	}
}

func (b *bench) diff(req sandbox.DiffRequest) []agents.FileChange {
	b.t.Helper()
	req.Objects = b.objects
	d, err := b.strategy.Diff(b.t.Context(), b.ws, req)
	if err != nil {
		b.t.Fatalf("diff: %v", err)
	}
	return d
}

// whole is the state that a restore must bring back: files and git state.
func (b *bench) whole() []string {
	b.t.Helper()
	return append(oracle.Digest(b.t, b.ws.Path), oracle.Digest(b.t, filepath.Join(b.ws.PrivateDir, "git"))...)
}

// userDigest is every file of the user's repository but the placeholder.
func userDigest(t testing.TB, dir string) []string {
	t.Helper()
	return oracle.Digest(t, dir, oracle.Placeholder()...)
}

// withoutObjects leaves out what gc would remove.
func withoutObjects() []string {
	return append(oracle.Placeholder(), ".git/objects", ".git/worktrees")
}

func nothingLeft(t *testing.T, b *bench) {
	t.Helper()
	if out := b.repo.Git("for-each-ref", "refs/heads/cleveragents"); out != "" {
		t.Errorf("refs left: %s", out)
	}
	for _, dir := range []string{b.req.Dir, b.req.PrivateDir} {
		entries, err := os.ReadDir(dir)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		for _, e := range entries {
			t.Errorf("left in %s: %s", dir, e.Name())
		}
	}
}

func reasons(list []agents.PathReason) map[string]string {
	m := map[string]string{}
	for _, p := range list {
		m[p.Path] = p.Reason
	}
	return m
}

func mustContain(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one with %q", parts)
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("error %q, want %q in it", err, p)
		}
	}
}
