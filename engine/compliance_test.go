package engine_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/checkpoint"
	"github.com/cleveragents/agents/engine"
	"github.com/cleveragents/agents/internal/oracle"
	"github.com/cleveragents/agents/metastore"
	"github.com/cleveragents/agents/sandbox"
	"github.com/cleveragents/agents/sandbox/gitworktree"
	"github.com/cleveragents/agents/sandbox/none"
	"github.com/cleveragents/agents/tool"
	"github.com/cleveragents/agents/tool/builtin"
)

// The five compliance suites of ADR-015, over the engine with real repositories.

// compliance is an engine over a data directory of its own.
type compliance struct {
	*engine.Engine
	t          *testing.T
	data       string
	strategies *sandbox.Registry
	told       []string
}

func newCompliance(t *testing.T, change func(*engine.Settings), also ...tool.Tool) *compliance {
	t.Helper()
	return newComplianceOf(t, gitworktree.New(), change, also...)
}

// newComplianceOf is newCompliance with another strategy for repositories.
func newComplianceOf(t *testing.T, repositories sandbox.Strategy, change func(*engine.Settings), also ...tool.Tool) *compliance {
	t.Helper()
	return newComplianceWith(t, []sandbox.Strategy{repositories, none.New()}, change, also...)
}

// newComplianceWith is newCompliance with these strategies.
func newComplianceWith(t *testing.T, strategies []sandbox.Strategy, change func(*engine.Settings), also ...tool.Tool) *compliance {
	t.Helper()
	t.Setenv("GIT_CONFIG_GLOBAL", os.DevNull)
	t.Setenv("GIT_CONFIG_NOSYSTEM", "1")
	c := &compliance{t: t, data: filepath.Join(t.TempDir(), "data")}
	c.must(os.Mkdir(c.data, 0o700))
	store, err := metastore.Open(t.Context(), filepath.Join(c.data, "agents.db"), metastore.Options{})
	c.must(err)
	t.Cleanup(func() { store.Close() })
	payloads, err := checkpoint.Open(filepath.Join(c.data, "checkpoints"))
	c.must(err)
	c.strategies, err = sandbox.NewRegistry(strategies...)
	c.must(err)
	tools, err := tool.NewRegistry(append(builtin.All(), also...)...)
	c.must(err)
	set := engine.Settings{
		DataDir: c.data, SandboxDir: filepath.Join(c.data, "sandboxes"), Cleanup: engine.CleanOnApply,
		Checkpoints: true, Triggers: agents.Triggers(), Retention: agents.DefaultRetention(), Enforce: "off",
	}
	if change != nil {
		change(&set)
	}
	c.Engine, err = engine.New(engine.Config{
		Store: store, Checkpoints: payloads, Strategies: c.strategies, Tools: tools, Settings: set,
		Notify: func(s string) { c.told = append(c.told, s) },
	})
	c.must(err)
	c.must(c.Start(t.Context()))
	return c
}

func (c *compliance) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// plan makes a plan on repositories, which are named repo-1, repo-2 …
func (c *compliance) plan(repos ...*oracle.Repo) agents.Plan {
	c.t.Helper()
	var resources []agents.Resource
	for i, r := range repos {
		resources = append(resources, agents.Resource{Name: fmt.Sprintf("repo-%d", i+1), Type: agents.TypeGitCheckout, Location: r.Dir})
	}
	p, err := c.CreatePlan(c.t.Context(), engine.PlanRequest{Resources: resources})
	c.must(err)
	return p
}

// write writes a file of a plan's resource with the built-in tool.
func (c *compliance) write(plan, resource, path, content string) agents.Invocation {
	c.t.Helper()
	inv, err := c.tryWrite(plan, resource, path, content)
	c.must(err)
	return inv
}

func (c *compliance) tryWrite(plan, resource, path, content string) (agents.Invocation, error) {
	input, err := json.Marshal(map[string]string{"path": path, "content": content})
	c.must(err)
	return c.RunTool(c.t.Context(), engine.ToolRequest{Plan: plan, Tool: "file-write", Resource: resource, Input: input})
}

// shell runs a shell line in a plan's sandbox.
func (c *compliance) shell(plan, line string) (agents.Invocation, error) {
	return c.Exec(c.t.Context(), engine.CommandRequest{Plan: plan, Argv: []string{"sh", "-c", line}, OnFailure: agents.FailRollback})
}

// sandbox returns the only sandbox of a plan.
func (c *compliance) sandbox(plan string) agents.SandboxState {
	c.t.Helper()
	all := c.sandboxes(plan)
	if len(all) != 1 {
		c.t.Fatalf("sandboxes: got %+v, want one", all)
	}
	return all[0]
}

func (c *compliance) sandboxes(plan string) []agents.SandboxState {
	c.t.Helper()
	st, err := c.Status(c.t.Context(), plan)
	c.must(err)
	return slices.DeleteFunc(st.Sandboxes, func(s agents.SandboxState) bool { return !s.Status.Live() })
}

// content reads a file of a plan's only sandbox; "" = there is none.
func (c *compliance) content(plan, path string) string {
	c.t.Helper()
	data, err := os.ReadFile(filepath.Join(c.sandbox(plan).Path, path))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		c.t.Fatal(err)
	}
	return string(data)
}

func (c *compliance) checkpoints(plan string) []agents.Checkpoint {
	c.t.Helper()
	all, err := c.Checkpoints(c.t.Context(), plan, "")
	c.must(err)
	return all
}

func (c *compliance) manual(plan, reason string) agents.Checkpoint {
	c.t.Helper()
	cp, err := c.CreateCheckpoint(c.t.Context(), engine.CheckpointRequest{Plan: plan, Reason: reason})
	c.must(err)
	return cp
}

func (c *compliance) rollback(plan, id string) agents.RollbackResult {
	c.t.Helper()
	res, err := c.Rollback(c.t.Context(), engine.RollbackRequest{Plan: plan, Checkpoint: id})
	c.must(err)
	return res
}

// realState is everything of a user's repository but what a sandbox may leave
// there until cleanup.
type realState struct {
	repo  *oracle.Repo
	lines []string
}

func (c *compliance) realState(repo *oracle.Repo) realState {
	c.t.Helper()
	return realState{repo, oracle.Digest(c.t, repo.Dir, c.allowed()...)}
}

func (*compliance) allowed() []string {
	return append(oracle.Placeholder(), ".git/objects", ".git/worktrees")
}

func (c *compliance) wantUntouched(was realState, when string) {
	c.t.Helper()
	oracle.Same(c.t, when, was.repo.Dir, was.lines, c.allowed()...)
}

// wantNoTrace fails when a branch or worktree entry of a plan is in the repository.
func (c *compliance) wantNoTrace(repo *oracle.Repo) {
	c.t.Helper()
	if refs := repo.Git("for-each-ref", "refs/heads/cleveragents/"); refs != "" {
		c.t.Errorf("branches are left: %s", refs)
	}
	if list := repo.Git("worktree", "list"); strings.Count(list, "\n") > 0 {
		c.t.Errorf("worktrees are left:\n%s", list)
	}
}

// "Isolation tests: Integration tests verify that sandbox modifications are
// invisible to the real project until Apply."
func TestComplianceIsolation(t *testing.T) {
	c := newCompliance(t, nil)
	repo := oracle.NewRepo(t)
	repo.Write(".gitignore", "*.log\n")
	repo.Commit("ignore logs")
	repo.Write("mine.log", "the user's\n")
	repo.Write("scratch.txt", "untracked\n")
	before := c.realState(repo)
	one, other := c.plan(repo), c.plan(repo)
	c.wantUntouched(before, "by creating plans")

	c.write(one.ID, "", "a.txt", "one\n")
	c.wantUntouched(before, "by a tool")
	_, err := c.shell(one.ID, "echo new > new.txt; echo x > made.log; mkdir -p d/e; git add -A; git commit -qm own; git stash list; git tag mark; git config user.name Plan")
	c.must(err)
	c.wantUntouched(before, "by a command")
	if _, err := c.shell(one.ID, "rm -rf a.txt; exit 3"); !errors.Is(err, agents.ErrToolFailed) {
		t.Fatalf("a failing command: got %v, want agents.ErrToolFailed", err)
	}
	c.wantUntouched(before, "by a failing command")
	if got := c.content(one.ID, "a.txt"); got != "one\n" {
		t.Errorf("a.txt after a failed command: got %q, want what was there before it", got)
	}

	c.write(other.ID, "", "a.txt", "other\n")
	if got := c.content(one.ID, "a.txt"); got != "one\n" {
		t.Errorf("a.txt of one plan: got %q, which another plan wrote", got)
	}
	if got := c.content(other.ID, "new.txt"); got != "" {
		t.Errorf("new.txt of one plan is visible to another: %q", got)
	}
	c.rollback(one.ID, c.checkpoints(one.ID)[0].ID)
	c.wantUntouched(before, "by a rollback")
	c.write(one.ID, "", "a.txt", "one\n")

	_, err = c.Diff(t.Context(), engine.DiffRequest{Plan: one.ID, Patch: true})
	c.must(err)
	res, err := c.Apply(t.Context(), engine.ApplyRequest{Plan: one.ID, DryRun: true})
	c.must(err)
	c.wantUntouched(before, "by a dry run")
	if res.Artifacts != 1 {
		t.Errorf("dry run: got %+v, want one artifact", res)
	}
	_, err = c.Apply(t.Context(), engine.ApplyRequest{Plan: one.ID})
	c.must(err)
	if got := repo.Read("a.txt"); got != "one\n" {
		t.Errorf("a.txt after apply: got %q", got)
	}
	if got := repo.Read("mine.log") + repo.Read("scratch.txt"); got != "the user's\nuntracked\n" {
		t.Errorf("the user's own files after apply: got %q", got)
	}
	after := c.realState(repo)
	if _, err := c.Apply(t.Context(), engine.ApplyRequest{Plan: other.ID}); !errors.Is(err, agents.ErrConflict) {
		t.Errorf("Apply of a plan that conflicts: got %v, want agents.ErrConflict", err)
	}
	c.wantUntouched(after, "by an apply that conflicts")
}

// "Strategy tests: Each of the five strategies has tests for creation,
// modification, rollback, and cleanup." What is not in a build is refused by
// name, before anything is made.
func TestComplianceStrategy(t *testing.T) {
	for _, name := range agents.Strategies() {
		t.Run(string(name), func(t *testing.T) {
			c := newCompliance(t, func(s *engine.Settings) { s.Profile = "full-auto" })
			repo := oracle.NewRepo(t)
			before := c.realState(repo)
			strategy, err := c.strategies.Lookup(name)
			if errors.Is(err, agents.ErrUnsupported) {
				c.strategyNotHere(name, repo, before)
				return
			}
			c.must(err)
			p, err := c.CreatePlan(t.Context(), engine.PlanRequest{Resources: []agents.Resource{
				{Name: "repo", Type: agents.TypeGitCheckout, Location: repo.Dir, Strategy: name},
			}})
			c.must(err)
			c.write(p.ID, "", "a.txt", "changed\n")
			box := c.sandbox(p.ID)
			if box.Strategy != name || box.Status != agents.SandboxActive {
				t.Errorf("sandbox: got %+v, want an ACTIVE one of %s", box, name)
			}
			if strategy.Capabilities().Isolates {
				c.strategyIsolates(p, repo, before)
			} else {
				c.strategyWritesThrough(p, repo)
			}
		})
	}
}

func (c *compliance) strategyNotHere(name agents.StrategyName, repo *oracle.Repo, before realState) {
	c.t.Helper()
	types := map[agents.StrategyName]agents.ResourceType{
		agents.CopyOnWrite: agents.TypeDirectory, agents.Overlay: agents.TypeMount, agents.TransactionRollback: agents.TypeSQLite,
	}
	location := repo.Dir
	if name == agents.TransactionRollback {
		location = filepath.Join(repo.Dir, "a.txt")
	}
	_, err := c.CreatePlan(c.t.Context(), engine.PlanRequest{Resources: []agents.Resource{
		{Name: "thing", Type: types[name], Location: location, Strategy: name},
	}})
	if !errors.Is(err, agents.ErrUnsupported) {
		c.t.Errorf("a plan with strategy %s, which is not in this build: got %v, want agents.ErrUnsupported", name, err)
	}
	c.wantUntouched(before, "by a refused plan")
}

func (c *compliance) strategyIsolates(p agents.Plan, repo *oracle.Repo, before realState) {
	c.t.Helper()
	c.wantUntouched(before, "by a modification")
	c.rollback(p.ID, c.checkpoints(p.ID)[0].ID)
	if got := c.content(p.ID, "a.txt"); got != "v1\n" {
		c.t.Errorf("a.txt after the rollback: got %q, want v1", got)
	}
	if got := c.sandbox(p.ID).Status; got != agents.SandboxRolledBack {
		c.t.Errorf("status after the rollback: got %s", got)
	}
	path := c.sandbox(p.ID).Path
	_, err := c.Cancel(c.t.Context(), engine.CancelRequest{Plan: p.ID, Discard: true})
	c.must(err)
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		c.t.Errorf("%s after cleanup: got %v, want that it is gone", path, err)
	}
	c.wantNoTrace(repo)
	c.wantUntouched(before, "by a cleanup")
}

func (c *compliance) strategyWritesThrough(p agents.Plan, repo *oracle.Repo) {
	c.t.Helper()
	if got := repo.Read("a.txt"); got != "changed\n" {
		c.t.Errorf("a.txt: got %q, want that the write went through", got)
	}
	if got := c.sandbox(p.ID).Path; got != repo.Dir {
		c.t.Errorf("path: got %q, want the resource's own %q", got, repo.Dir)
	}
	_, err := c.Cancel(c.t.Context(), engine.CancelRequest{Plan: p.ID, Discard: true})
	c.must(err)
	if got := repo.Read("a.txt"); got != "changed\n" {
		c.t.Errorf("a.txt after cleanup: got %q, want that the resource is left alone", got)
	}
	// The same under a profile that requires a sandbox is refused.
	_, err = c.CreatePlan(c.t.Context(), engine.PlanRequest{Profile: "supervised", Resources: p.Resources})
	if !errors.Is(err, agents.ErrBlocked) {
		c.t.Errorf("strategy none under a profile that requires a sandbox: got %v, want agents.ErrBlocked", err)
	}
}

// "Checkpoint tests: Tests verify checkpoint creation, rollback to specific
// checkpoints, and pruning behavior."
func TestComplianceCheckpoint(t *testing.T) {
	t.Run("Creation", func(t *testing.T) {
		c := newCompliance(t, nil)
		p := c.plan(oracle.NewRepo(t))
		inv := c.write(p.ID, "", "a.txt", "v2\n")
		if inv.BeforeCheckpointID == "" || inv.AfterCheckpointID == "" || inv.BeforeCheckpointID == inv.AfterCheckpointID {
			t.Errorf("a tool's checkpoints: before %q, after %q, want two", inv.BeforeCheckpointID, inv.AfterCheckpointID)
		}
		count := len(c.checkpoints(p.ID))
		again := c.write(p.ID, "", "a.txt", "v2\n")
		if again.AfterCheckpointID != inv.AfterCheckpointID || len(c.checkpoints(p.ID)) != count {
			t.Errorf("a tool that changed nothing: got checkpoint %q and %d rows, want %q and %d",
				again.AfterCheckpointID, len(c.checkpoints(p.ID)), inv.AfterCheckpointID, count)
		}
		cp := c.manual(p.ID, "by hand")
		if cp.Type != agents.CheckpointManual || cp.Metadata.Reason != "by hand" || cp.PlanID != p.ID || cp.SandboxRef == "" || len(cp.Refs) != 1 {
			t.Errorf("a manual checkpoint: got %+v", cp)
		}
	})
	t.Run("Rollback", func(t *testing.T) {
		c := newCompliance(t, nil)
		p := c.plan(oracle.NewRepo(t))
		var states []agents.Checkpoint
		for i := range 5 {
			_, err := c.shell(p.ID, fmt.Sprintf("echo %d > a.txt; echo %d > only-%d; git add -A; git commit -qm %d", i, i, i, i))
			c.must(err)
			states = append(states, c.manual(p.ID, fmt.Sprint(i)))
		}
		for _, i := range []int{3, 0, 4, 1, 2} {
			res := c.rollback(p.ID, states[i].ID)
			if want := fmt.Sprintf("%d\n", i); c.content(p.ID, "a.txt") != want {
				t.Errorf("a.txt after a rollback to %d: got %q", i, c.content(p.ID, "a.txt"))
			}
			for j := range 5 {
				if there := c.content(p.ID, fmt.Sprintf("only-%d", j)) != ""; there != (j <= i) {
					t.Errorf("only-%d after a rollback to %d: there is %t", j, i, there)
				}
			}
			if res.FromCheckpointID != states[i].ID || res.RestoredFilesCount != len(res.ChangedPaths) || res.SafetyCheckpointID == "" ||
				res.Phase != agents.PhaseExecute || res.State != agents.PlanQueued {
				t.Errorf("rollback to %d: got %+v", i, res)
			}
			box := oracle.At(t, c.sandbox(p.ID).Path)
			if got, want := box.Git("log", "-1", "--format=%s"), fmt.Sprint(i); got != want {
				t.Errorf("HEAD after a rollback to %d: got commit %q", i, got)
			}
			if got := box.Git("status", "--porcelain"); got != "" {
				t.Errorf("git status after a rollback to %d:\n%s", i, got)
			}
		}
	})
	t.Run("Guards", func(t *testing.T) {
		c := newCompliance(t, nil)
		repo := oracle.NewRepo(t)
		p, other := c.plan(repo), c.plan(repo)
		c.write(p.ID, "", "a.txt", "v2\n")
		c.write(other.ID, "", "b.txt", "b\n")
		foreign, own := c.checkpoints(other.ID)[0], c.checkpoints(p.ID)[0]
		for name, want := range map[string]struct {
			id    string
			class error
		}{
			"unknown":         {"01ZZZZZZZZZZZZZZZZZZZZZZZZ", agents.ErrNotFound},
			"of another plan": {foreign.ID, agents.ErrInvalid},
		} {
			if _, err := c.Rollback(t.Context(), engine.RollbackRequest{Plan: p.ID, Checkpoint: want.id}); !errors.Is(err, want.class) {
				t.Errorf("rollback to a checkpoint %s: got %v, want %v", name, err, want.class)
			}
		}
		_, err := c.Apply(t.Context(), engine.ApplyRequest{Plan: p.ID})
		c.must(err)
		_, err = c.Rollback(t.Context(), engine.RollbackRequest{Plan: p.ID, Checkpoint: own.ID})
		if !errors.Is(err, agents.ErrBlocked) || agents.KindOf(err) != agents.BusinessRuleViolation ||
			!strings.Contains(err.Error(), "Rollback blocked: plan is already applied") {
			t.Errorf("rollback of an applied plan: got %v of kind %q", err, agents.KindOf(err))
		}
	})
	t.Run("Pruning", func(t *testing.T) {
		c := newCompliance(t, func(s *engine.Settings) { s.Retention.MaxCheckpoints = 4 })
		p := c.plan(oracle.NewRepo(t))
		var made []string
		for i := range 8 {
			c.write(p.ID, "", "a.txt", fmt.Sprint(i))
			made = append(made, c.manual(p.ID, fmt.Sprint(i)).ID)
		}
		first := c.checkpoints(p.ID)[0]
		var left []string
		for _, cp := range c.checkpoints(p.ID) {
			left = append(left, cp.ID)
		}
		if len(left) != 4 || left[len(left)-1] != made[7] || first.Seq != 1 {
			t.Errorf("left: %q of %q, the first of number %d; want 4 with the first and the newest", left, made, first.Seq)
		}
		if _, err := c.Rollback(t.Context(), engine.RollbackRequest{Plan: p.ID, Checkpoint: made[0]}); !errors.Is(err, agents.ErrNotFound) {
			t.Errorf("rollback to a pruned checkpoint: got %v, want agents.ErrNotFound", err)
		}
		c.rollback(p.ID, first.ID)
		if got := c.content(p.ID, "a.txt"); got != "v1\n" {
			t.Errorf("a.txt at the first checkpoint: got %q, want v1", got)
		}
	})
}

// "Lazy sandbox tests: Tests verify that sandbox creation is deferred until
// first resource access and handles creation failures gracefully."
func TestComplianceLazy(t *testing.T) {
	t.Run("Deferred", func(t *testing.T) {
		c := newCompliance(t, nil)
		repos := []*oracle.Repo{oracle.NewRepo(t), oracle.NewRepo(t), oracle.NewRepo(t)}
		var before [][]string
		for _, r := range repos {
			before = append(before, oracle.Digest(t, r.Dir))
		}
		p := c.plan(repos...)
		_, err := c.Diff(t.Context(), engine.DiffRequest{Plan: p.ID})
		c.must(err)
		if got := c.sandboxes(p.ID); len(got) > 0 {
			t.Errorf("sandboxes of a plan that touched nothing: %+v", got)
		}
		c.write(p.ID, "repo-2", "a.txt", "v2\n")
		got := c.sandboxes(p.ID)
		if len(got) != 1 || got[0].Resource != "repo-2" {
			t.Errorf("sandboxes after a write into repo-2: %+v", got)
		}
		for _, i := range []int{0, 2} {
			oracle.Same(t, "a repository that the plan never touched", repos[i].Dir, before[i])
		}
		c.write(p.ID, "repo-1", "a.txt", "v2\n")
		if got := c.sandboxes(p.ID); len(got) != 2 {
			t.Errorf("sandboxes after a write into repo-1 too: %+v", got)
		}
		entries, err := os.ReadDir(filepath.Join(c.data, "sandboxes"))
		c.must(err)
		if len(entries) != 2 {
			t.Errorf("directories of sandboxes: got %v, want two", entries)
		}
	})
	t.Run("CreationFails", func(t *testing.T) {
		c := newCompliance(t, nil)
		good, bad := oracle.NewRepo(t), oracle.NewRepo(t)
		p := c.plan(good, bad)
		c.write(p.ID, "repo-1", "a.txt", "v2\n")
		aside := bad.Dir + "-aside"
		c.must(os.Rename(bad.Dir, aside))
		if inv, err := c.tryWrite(p.ID, "repo-2", "a.txt", "v2\n"); err == nil {
			t.Errorf("a tool on a resource that cannot be sandboxed: got %+v, want an error", inv)
		}
		st, err := c.Status(t.Context(), p.ID)
		c.must(err)
		if len(c.sandboxes(p.ID)) != 1 || st.Plan.State != agents.PlanQueued {
			t.Errorf("after a failed creation: got %+v, want a queued plan with one sandbox", st)
		}
		if entries, _ := os.ReadDir(filepath.Join(c.data, "sandboxes")); len(entries) != 1 {
			t.Errorf("a failed creation left something: %v", entries)
		}
		if _, err := os.Lstat(bad.Dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("a failed creation made %s: %v", bad.Dir, err)
		}
		c.must(os.Rename(aside, bad.Dir))
		c.write(p.ID, "repo-2", "a.txt", "v2\n")
		c.write(p.ID, "repo-1", "a.txt", "v3\n")
		res, err := c.Apply(t.Context(), engine.ApplyRequest{Plan: p.ID})
		c.must(err)
		if good.Read("a.txt") != "v3\n" || bad.Read("a.txt") != "v2\n" || len(res.Resources) != 2 {
			t.Errorf("Apply: got %+v, with %q and %q", res, good.Read("a.txt"), bad.Read("a.txt"))
		}
	})
}

// "Cleanup tests: Tests verify that sandbox cleanup occurs at the correct
// lifecycle point (on_apply, on_terminal, manual)."
func TestComplianceCleanup(t *testing.T) {
	for _, row := range []struct {
		policy      engine.CleanupPolicy
		afterApply  bool // the sandbox is gone
		afterCancel bool
	}{
		{engine.CleanOnApply, true, false},
		{engine.CleanOnTerminal, true, true},
		{engine.CleanManual, false, false},
	} {
		t.Run(string(row.policy), func(t *testing.T) {
			t.Run("Apply", func(t *testing.T) {
				c := newCompliance(t, func(s *engine.Settings) { s.Cleanup = row.policy })
				repo := oracle.NewRepo(t)
				p := c.plan(repo)
				c.write(p.ID, "", "a.txt", "v2\n")
				c.wantKept(p, "while the plan is not ended")
				path := c.sandbox(p.ID).Path
				_, err := c.Apply(t.Context(), engine.ApplyRequest{Plan: p.ID})
				c.must(err)
				c.wantGone(path, row.afterApply, "after apply")
				c.cleanAll(path)
				c.wantNoTrace(repo)
				if got := repo.Read("a.txt"); got != "v2\n" {
					t.Errorf("a.txt: got %q", got)
				}
			})
			t.Run("Cancel", func(t *testing.T) {
				c := newCompliance(t, func(s *engine.Settings) { s.Cleanup = row.policy })
				repo := oracle.NewRepo(t)
				before := c.realState(repo)
				p := c.plan(repo)
				c.write(p.ID, "", "a.txt", "v2\n")
				path := c.sandbox(p.ID).Path
				_, err := c.Cancel(t.Context(), engine.CancelRequest{Plan: p.ID, Reason: "enough"})
				c.must(err)
				c.wantGone(path, row.afterCancel, "after cancel")
				c.cleanAll(path)
				c.wantNoTrace(repo)
				c.wantUntouched(before, "by a cancelled plan")
				c.wantArchived(p)
			})
		})
	}
}

// wantKept fails when Cleanup takes what is still needed.
func (c *compliance) wantKept(p agents.Plan, when string) {
	c.t.Helper()
	path := c.sandbox(p.ID).Path
	res, err := c.Cleanup(c.t.Context(), engine.CleanupRequest{})
	c.must(err)
	if len(res.Removed) > 0 || len(res.Kept) != 1 || res.Kept[0].Why == "" {
		c.t.Errorf("Cleanup %s: got %+v, want one kept with a reason", when, res)
	}
	c.wantGone(path, false, when)
}

func (c *compliance) wantGone(path string, gone bool, when string) {
	c.t.Helper()
	_, err := os.Lstat(path)
	if got := errors.Is(err, os.ErrNotExist); got != gone {
		c.t.Errorf("the sandbox is gone %s: got %t, want %t", when, got, gone)
	}
}

// cleanAll removes what the policy left, twice.
func (c *compliance) cleanAll(path string) {
	c.t.Helper()
	for range 2 {
		_, err := c.Cleanup(c.t.Context(), engine.CleanupRequest{})
		c.must(err)
		c.wantGone(path, true, "after Cleanup")
	}
	if entries, _ := os.ReadDir(filepath.Join(c.data, "sandboxes")); len(entries) > 0 {
		c.t.Errorf("directories of sandboxes are left: %v", entries)
	}
}

// wantArchived fails when a cancelled plan's work cannot be brought back.
func (c *compliance) wantArchived(p agents.Plan) {
	c.t.Helper()
	archives, err := c.Archives(c.t.Context())
	c.must(err)
	if len(archives) != 1 || archives[0].PlanID != p.ID {
		c.t.Fatalf("archives: got %+v, want the plan's unapplied work", archives)
	}
	back, err := c.RestoreArchive(c.t.Context(), archives[0].ID)
	c.must(err)
	if got := c.content(back.ID, "a.txt"); got != "v2\n" {
		c.t.Errorf("a.txt brought back from the archive: got %q", got)
	}
}
