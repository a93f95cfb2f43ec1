package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/engine"
	"github.com/cleveragents/agents/internal/oracle"
	"github.com/cleveragents/agents/sandbox"
	"github.com/cleveragents/agents/sandbox/gitworktree"
	"github.com/cleveragents/agents/tool"
)

// The specification's rules about checkpoints that the compliance suites do
// not name: which are made when, and who is refused without them.

// plain is a tool of the test's own.
type plain struct {
	name string
	can  agents.Capability
}

func (p plain) Spec() tool.Spec {
	return tool.Spec{Name: p.name, Capability: p.can, Input: json.RawMessage(`{"type":"object"}`)}
}

func (p plain) Call(_ context.Context, env tool.Env, _ json.RawMessage) (tool.Result, error) {
	return tool.Result{}, os.WriteFile(filepath.Join(env.Path, "called-"+p.name), []byte("x"), 0o644)
}

// required makes a plan that requires checkpoints.
func (c *compliance) required(repo *oracle.Repo) agents.Plan {
	c.t.Helper()
	p, err := c.CreatePlan(c.t.Context(), engine.PlanRequest{RequireCheckpoints: true, Resources: []agents.Resource{
		{Name: "repo", Type: agents.TypeGitCheckout, Location: repo.Dir},
	}})
	c.must(err)
	return p
}

// "The require_checkpoints plan flag, when enabled, rejects tools that declare
// checkpointable: false."
func TestU115RequireCheckpoints(t *testing.T) {
	blunt := plain{"blunt", agents.Capability{Writes: true, RollbackMechanism: agents.MechNone}}
	keen := plain{"keen", agents.Capability{Writes: true, Checkpointable: true, RollbackMechanism: agents.MechSnapshot}}
	looks := plain{"looks", agents.Capability{ReadOnly: true, RollbackMechanism: agents.MechNone}}
	c := newCompliance(t, nil, blunt, keen, looks)
	repo := oracle.NewRepo(t)
	p := c.required(repo)
	call := func(plan, name string) error {
		_, err := c.RunTool(t.Context(), engine.ToolRequest{Plan: plan, Tool: name})
		return err
	}
	if err := call(p.ID, "blunt"); !errors.Is(err, agents.ErrBlocked) || agents.KindOf(err) != agents.BusinessRuleViolation {
		t.Errorf("a tool that is not checkpointable: got %v of kind %q", err, agents.KindOf(err))
	}
	if got := c.sandboxes(p.ID); len(got) > 0 {
		t.Errorf("a refused call made sandboxes: %+v", got)
	}
	c.must(call(p.ID, "keen"))
	c.must(call(p.ID, "looks"))
	c.must(call(c.plan(repo).ID, "blunt")) // where nothing is required

	// An action with such a tool is refused before its first step runs.
	_, err := c.CreateAction(t.Context(), []byte("name: local/two\nrequire_checkpoints: true\nsteps:\n  - {id: a, tool: keen, with: {}}\n  - {id: b, tool: blunt, with: {}}\n"))
	c.must(err)
	two := c.use("local/two", repo)
	_, err = c.Execute(t.Context(), engine.ExecuteRequest{Plan: two.ID})
	if !errors.Is(err, agents.ErrBlocked) || len(c.sandboxes(two.ID)) > 0 {
		t.Errorf("execute: got %v and sandboxes %+v, want agents.ErrBlocked before anything runs", err, c.sandboxes(two.ID))
	}
}

// use makes a plan from an action on one repository.
func (c *compliance) use(action string, repo *oracle.Repo) agents.Plan {
	c.t.Helper()
	name := strings.ReplaceAll(action, "/", "-")
	_, err := c.CreateProject(c.t.Context(), name)
	c.must(err)
	r, err := c.AddResource(c.t.Context(), agents.Resource{Name: name, Type: agents.TypeGitCheckout, Location: repo.Dir})
	c.must(err)
	_, err = c.LinkResource(c.t.Context(), name, r.ID)
	c.must(err)
	p, err := c.UseAction(c.t.Context(), engine.UseRequest{Action: action, Projects: []string{name}})
	c.must(err)
	return p
}

func TestU029RequiredCheckpointsThatCannotBeMade(t *testing.T) {
	t.Run("off", func(t *testing.T) {
		c := newCompliance(t, func(s *engine.Settings) { s.Checkpoints = false })
		p := c.required(oracle.NewRepo(t))
		if _, err := c.tryWrite(p.ID, "", "a.txt", "v2\n"); !errors.Is(err, agents.ErrBlocked) || len(c.sandboxes(p.ID)) > 0 {
			t.Errorf("got %v and sandboxes %+v, want agents.ErrBlocked and none", err, c.sandboxes(p.ID))
		}
	})
	t.Run("store cannot be written", func(t *testing.T) {
		c := newCompliance(t, nil)
		p := c.required(oracle.NewRepo(t))
		store := filepath.Join(c.data, "checkpoints")
		c.must(os.RemoveAll(store))
		c.must(os.WriteFile(store, nil, 0o600)) // root is stopped by this too
		if _, err := c.tryWrite(p.ID, "", "a.txt", "v2\n"); !errors.Is(err, agents.ErrBlocked) || len(c.sandboxes(p.ID)) > 0 {
			t.Errorf("got %v and sandboxes %+v, want agents.ErrBlocked and none", err, c.sandboxes(p.ID))
		}
	})
}

// Without checkpoints everything runs, nothing can be taken back, and that is
// said each time.
func TestU023CheckpointsAreOffAloud(t *testing.T) {
	c := newCompliance(t, func(s *engine.Settings) { s.Checkpoints = false })
	repo := oracle.NewRepo(t)
	p := c.plan(repo)
	said := func(when string) {
		t.Helper()
		if !slices.ContainsFunc(c.told, func(s string) bool { return strings.Contains(s, "checkpoints are off") }) {
			t.Errorf("%s: nobody said that checkpoints are off: %q", when, c.told)
		}
		c.told = nil
	}
	c.write(p.ID, "", "a.txt", "v2\n")
	said("after a call")
	if _, err := c.CreateCheckpoint(t.Context(), engine.CheckpointRequest{Plan: p.ID}); !errors.Is(err, agents.ErrBlocked) {
		t.Errorf("a checkpoint by hand: got %v, want agents.ErrBlocked", err)
	}
	inv, err := c.shell(p.ID, "echo half > a.txt; exit 3")
	if !errors.Is(err, agents.ErrToolFailed) || inv.RolledBack || c.content(p.ID, "a.txt") != "half\n" {
		t.Errorf("a failed command: got %v, rolled back %t, a.txt %q", err, inv.RolledBack, c.content(p.ID, "a.txt"))
	}
	said("after a failed call")
	_, err = c.Execute(t.Context(), engine.ExecuteRequest{Plan: p.ID})
	c.must(err)
	said("after execute")
	_, err = c.Apply(t.Context(), engine.ApplyRequest{Plan: p.ID})
	c.must(err)
	said("after apply")
	if got := len(c.checkpoints(p.ID)); got != 0 {
		t.Errorf("checkpoints: got %d", got)
	}
}

// The hooks of sandbox.md, in order, and what each holds.
func TestPhaseHooks(t *testing.T) {
	c := newCompliance(t, nil)
	repo := oracle.NewRepo(t)
	p := c.plan(repo)
	c.write(p.ID, "", "a.txt", "v2\n")
	_, err := c.Execute(t.Context(), engine.ExecuteRequest{Plan: p.ID})
	c.must(err)
	_, err = c.Apply(t.Context(), engine.ApplyRequest{Plan: p.ID})
	c.must(err)
	var got []string
	for _, cp := range c.checkpoints(p.ID) {
		if strings.HasPrefix(cp.Metadata.Phase, "pre_") || strings.HasPrefix(cp.Metadata.Phase, "post_") {
			got = append(got, cp.Metadata.Phase+" "+cp.Metadata.Extra["status"])
			if len(cp.Refs) != 1 || cp.SandboxRef == "" {
				t.Errorf("%s: refs %+v", cp.Metadata.Phase, cp.Refs)
			}
		}
	}
	if want := []string{"pre_execute ", "post_execute success", "pre_apply "}; !slices.Equal(got, want) {
		t.Errorf("hooks: got %q, want %q", got, want)
	}
}

// A failed apply leaves what it found, and the state before it is listed.
func TestPreApplyHookOfAFailedApply(t *testing.T) {
	c := newCompliance(t, nil)
	repo := oracle.NewRepo(t)
	p := c.plan(repo)
	c.write(p.ID, "", "a.txt", "ours\n")
	repo.Write("a.txt", "theirs\n")
	repo.Commit("theirs")
	before := c.realState(repo)
	if _, err := c.Apply(t.Context(), engine.ApplyRequest{Plan: p.ID}); !errors.Is(err, agents.ErrConflict) {
		t.Fatalf("Apply: got %v, want agents.ErrConflict", err)
	}
	c.wantUntouched(before, "by a failed apply")
	rows := c.checkpoints(p.ID)
	last := rows[len(rows)-1]
	if last.Metadata.Phase != string(agents.PhasePreApply) || c.content(p.ID, "a.txt") != "ours\n" {
		t.Errorf("newest checkpoint of phase %q, a.txt %q", last.Metadata.Phase, c.content(p.ID, "a.txt"))
	}
	c.rollback(p.ID, last.ID)
	if got := c.content(p.ID, "a.txt"); got != "ours\n" {
		t.Errorf("a.txt after a rollback to pre_apply: %q", got)
	}
}

// Each trigger alone makes its own checkpoints and no others; a step's
// transaction does not depend on them.
func TestTriggers(t *testing.T) {
	const action = "name: local/half\nsteps:\n  - {id: a, tool: file-write, with: {path: a.txt, content: \"v2\\n\"}}\n" +
		"  - {id: b, tool: shell, with: {command: \"echo half > a.txt; exit 3\"}}\n"
	for _, row := range []struct {
		triggers []agents.Trigger
		want     []string // reasons, without the hooks
	}{
		{nil, nil},
		{[]agents.Trigger{agents.BeforeToolExecute}, []string{"before builtin/shell"}},
		{[]agents.Trigger{agents.AfterToolExecute}, []string{"after builtin/file-write"}},
		{[]agents.Trigger{agents.OnError}, []string{"error in builtin/shell"}},
		{agents.Triggers(), []string{"after builtin/file-write", "error in builtin/shell"}},
	} {
		name := "none"
		if len(row.triggers) > 0 {
			name = string(row.triggers[0])
		}
		t.Run(name, func(t *testing.T) {
			c := newCompliance(t, func(s *engine.Settings) { s.Triggers = row.triggers })
			_, err := c.CreateAction(t.Context(), []byte(action))
			c.must(err)
			p := c.use("local/half", oracle.NewRepo(t))
			if _, err := c.Execute(t.Context(), engine.ExecuteRequest{Plan: p.ID}); !errors.Is(err, agents.ErrToolFailed) {
				t.Fatalf("Execute: got %v, want agents.ErrToolFailed", err)
			}
			if got := c.content(p.ID, "a.txt"); got != "v2\n" {
				t.Errorf("a.txt after the failed step: got %q, want v2", got)
			}
			var got []string
			for _, cp := range c.checkpoints(p.ID) {
				if cp.Metadata.Phase == string(agents.PhaseExecute) {
					got = append(got, cp.Metadata.Reason)
				}
			}
			for _, want := range row.want {
				if !slices.Contains(got, want) {
					t.Errorf("checkpoints %q, want %q among them", got, want)
				}
			}
			if len(row.triggers) < 2 {
				for _, reason := range got {
					if len(row.want) == 0 || !strings.HasPrefix(reason, strings.Fields(row.want[0])[0]) {
						t.Errorf("checkpoint %q, which no trigger asked for", reason)
					}
				}
			}
		})
	}
}

func TestRollbackWithoutASandbox(t *testing.T) {
	c := newCompliance(t, nil)
	p := c.plan(oracle.NewRepo(t))
	c.write(p.ID, "", "a.txt", "v2\n")
	cp := c.checkpoints(p.ID)[0]
	c.must(os.RemoveAll(c.sandbox(p.ID).Path))
	_, err := c.Rollback(t.Context(), engine.RollbackRequest{Plan: p.ID, Checkpoint: cp.ID})
	if !errors.Is(err, agents.ErrBlocked) || agents.KindOf(err) != agents.BusinessRuleViolation ||
		!strings.Contains(err.Error(), "Rollback blocked: sandbox is missing") {
		t.Errorf("got %v of kind %q", err, agents.KindOf(err))
	}
	// The hint's way works: the next call makes the sandbox again.
	c.write(p.ID, "", "b.txt", "b\n")
	if got := c.content(p.ID, "a.txt"); got != "v2\n" {
		t.Errorf("a.txt in the sandbox that was made again: got %q", got)
	}
	c.rollback(p.ID, cp.ID)
	if got := c.content(p.ID, "a.txt"); got != "v1\n" {
		t.Errorf("a.txt after the rollback: got %q", got)
	}
}

// stuck is git_worktree whose n-th removal fails.
type stuck struct {
	*gitworktree.Strategy
	removals, failing int
}

func (s *stuck) Remove(ctx context.Context, ws sandbox.Workspace) error {
	if s.removals++; s.removals == s.failing {
		return errors.New("it does not go")
	}
	return s.Strategy.Remove(ctx, ws)
}

// A discard that stopped after the first of two sandboxes leaves no checkpoint
// that could be restored by half. The archive brings the missing one back, and
// then all of it can be.
func TestRollbackAfterHalfADiscard(t *testing.T) {
	strategy := &stuck{Strategy: gitworktree.New()}
	c := newComplianceOf(t, strategy, nil)
	p := c.plan(oracle.NewRepo(t), oracle.NewRepo(t))
	c.write(p.ID, "repo-1", "a.txt", "v2\n")
	c.write(p.ID, "repo-2", "a.txt", "v2\n")
	both := c.manual(p.ID, "both")
	c.write(p.ID, "repo-1", "a.txt", "v3\n")
	c.write(p.ID, "repo-2", "a.txt", "v3\n")
	strategy.failing = strategy.removals + 2
	if _, err := c.Cancel(t.Context(), engine.CancelRequest{Plan: p.ID, Discard: true}); err == nil {
		t.Fatal("the second sandbox went")
	}
	_, err := c.Rollback(t.Context(), engine.RollbackRequest{Plan: p.ID, Checkpoint: both.ID})
	if !errors.Is(err, agents.ErrBlocked) || !strings.Contains(err.Error(), "sandbox is missing") ||
		!strings.Contains(agents.HintOf(err), "agents cleanup archive restore "+p.ID) {
		t.Fatalf("got %v with the hint %q", err, agents.HintOf(err))
	}
	_, err = c.RestoreArchive(t.Context(), p.ID)
	c.must(err)
	want := func(content, when string) {
		t.Helper()
		for _, st := range c.sandboxes(p.ID) {
			if got, err := os.ReadFile(filepath.Join(st.Path, "a.txt")); string(got) != content {
				t.Errorf("%s, %s has %q, %v", when, st.Resource, got, err)
			}
		}
	}
	want("v3\n", "brought back")
	c.rollback(p.ID, both.ID)
	want("v2\n", "rolled back")
	if _, err := c.RestoreArchive(t.Context(), p.ID); !errors.Is(err, agents.ErrExists) {
		t.Errorf("brought back again: got %v", err)
	}
}

// Where one of two resources has moved on since the apply, neither is taken back.
func TestUndoOfTwoIsAllOrNothing(t *testing.T) {
	c := newCompliance(t, nil)
	one, two := oracle.NewRepo(t), oracle.NewRepo(t)
	p := c.plan(one, two)
	c.write(p.ID, "repo-1", "a.txt", "v2\n")
	c.write(p.ID, "repo-2", "a.txt", "v2\n")
	_, err := c.Apply(t.Context(), engine.ApplyRequest{Plan: p.ID})
	c.must(err)
	for _, moved := range []*oracle.Repo{one, two} {
		before := moved.Git("rev-parse", "HEAD")
		moved.Git("commit", "-q", "--allow-empty", "-m", "later")
		states := []realState{c.realState(one), c.realState(two)}
		if _, err := c.UndoApply(t.Context(), p.ID); !errors.Is(err, agents.ErrConflict) {
			t.Fatalf("undo of a branch that moved on: got %v", err)
		}
		for _, st := range states {
			c.wantUntouched(st, "after the refused undo")
		}
		moved.Git("reset", "-q", "--soft", before)
	}
	_, err = c.UndoApply(t.Context(), p.ID)
	c.must(err)
	for _, r := range []*oracle.Repo{one, two} {
		if got := r.Git("show", "HEAD:a.txt"); got == "v2" {
			t.Error("the apply was not taken back")
		}
	}
}

// With one of two resources applied, the plan goes on in the other: a failed
// call there is taken back, a call on the applied one is refused before it
// runs, and the apply can be undone.
func TestPartlyAppliedPlanGoesOn(t *testing.T) {
	c := newCompliance(t, nil)
	one, two := oracle.NewRepo(t), oracle.NewRepo(t)
	before := one.Git("rev-parse", "HEAD")
	p := c.plan(one, two)
	c.write(p.ID, "repo-1", "a.txt", "v2\n")
	c.write(p.ID, "repo-2", "a.txt", "v2\n")
	_, err := c.Apply(t.Context(), engine.ApplyRequest{Plan: p.ID, Only: []string{"repo-1"}})
	c.must(err)
	line := func(repo, script string) error {
		_, err := c.Exec(t.Context(), engine.CommandRequest{Plan: p.ID, Resources: []string{repo}, Argv: []string{"sh", "-c", script}, OnFailure: agents.FailRollback})
		return err
	}
	if err := line("repo-2", "echo half >a.txt; exit 1"); !errors.Is(err, agents.ErrToolFailed) {
		t.Errorf("a failing call: got %v", err)
	}
	if err := line("repo-1", "true"); !errors.Is(err, agents.ErrState) {
		t.Errorf("a call on the applied resource: got %v", err)
	}
	if err := line("repo-2", "grep -qx v2 a.txt"); err != nil {
		t.Errorf("a call after that: %v", err)
	}
	if _, err := c.Rollback(t.Context(), engine.RollbackRequest{Plan: p.ID, Checkpoint: c.checkpoints(p.ID)[0].ID}); !errors.Is(err, agents.ErrBlocked) {
		t.Errorf("a rollback of both: got %v", err)
	}
	if _, err := c.Update(t.Context(), p.ID, ""); err != nil {
		t.Errorf("an update: %v", err)
	}
	_, err = c.UndoApply(t.Context(), p.ID)
	c.must(err)
	if got := one.Git("rev-parse", "HEAD"); got != before {
		t.Errorf("after the undo HEAD is %s, want %s", got, before)
	}
	_, err = c.Apply(t.Context(), engine.ApplyRequest{Plan: p.ID})
	c.must(err)
}

// cannotUndo is git_worktree whose Undo of one resource fails.
type cannotUndo struct {
	*gitworktree.Strategy
	resource string
	err      error
}

func (s *cannotUndo) Undo(ctx context.Context, ws sandbox.Workspace, journalDir string) error {
	if ws.Resource.Name == s.resource {
		return s.err
	}
	return s.Strategy.Undo(ctx, ws, journalDir)
}

// An undo that got half way and cannot go on, since the user went on, leaves a
// plan that is partly applied, and whose other resource is open.
func TestUndoThatStaysHalf(t *testing.T) {
	strategy := &cannotUndo{Strategy: gitworktree.New(), resource: "repo-1", err: errors.New("disk error")}
	c := newComplianceOf(t, strategy, nil)
	one, two := oracle.NewRepo(t), oracle.NewRepo(t)
	p := c.plan(one, two)
	c.write(p.ID, "repo-1", "a.txt", "v2\n")
	c.write(p.ID, "repo-2", "a.txt", "v2\n")
	_, err := c.Apply(t.Context(), engine.ApplyRequest{Plan: p.ID})
	c.must(err)
	if _, err := c.UndoApply(t.Context(), p.ID); err == nil {
		t.Fatal("the undo went through")
	}
	strategy.err = agents.ErrConflict
	inv := c.write(p.ID, "repo-2", "b.txt", "more\n")
	if inv.Error != "" {
		t.Errorf("a call in the resource that was taken back: %s", inv.Error)
	}
	res, err := c.Apply(t.Context(), engine.ApplyRequest{Plan: p.ID})
	c.must(err)
	if got := two.Git("show", "HEAD:a.txt", "HEAD:b.txt"); got != "v2\nmore" {
		t.Errorf("repo-2 holds %q after %+v", got, res)
	}
}

// Work that only the index or a checkpoint holds is archived before it goes.
func TestDiscardArchivesRecordedWork(t *testing.T) {
	for name, script := range map[string]string{
		"staged alone":    "echo precious >n; git add n; rm n",
		"in the reflog":   "echo p >n; git add n; git commit -qm c; git reset -q --hard HEAD~1",
		"in a checkpoint": "echo hours >n",
	} {
		t.Run(name, func(t *testing.T) {
			c := newCompliance(t, nil)
			p := c.plan(oracle.NewRepo(t))
			_, err := c.shell(p.ID, script)
			c.must(err)
			if name == "in a checkpoint" {
				c.rollback(p.ID, c.checkpoints(p.ID)[0].ID)
			}
			res, err := c.Cancel(t.Context(), engine.CancelRequest{Plan: p.ID, Discard: true})
			c.must(err)
			if len(res.Recovery) == 0 {
				t.Fatal("nothing was archived")
			}
			_, err = c.RestoreArchive(t.Context(), p.ID)
			c.must(err)
			all := c.checkpoints(p.ID)
			c.rollback(p.ID, all[1].ID)
		})
	}
}

// After a discard there is nothing to roll back but what was archived.
func TestRollbackAfterDiscard(t *testing.T) {
	c := newCompliance(t, nil)
	p := c.plan(oracle.NewRepo(t))
	c.write(p.ID, "", "a.txt", "v2\n")
	cp := c.checkpoints(p.ID)[0]
	_, err := c.Cancel(t.Context(), engine.CancelRequest{Plan: p.ID, Discard: true})
	c.must(err)
	_, err = c.Rollback(t.Context(), engine.RollbackRequest{Plan: p.ID, Checkpoint: cp.ID})
	if !errors.Is(err, agents.ErrBlocked) || !strings.Contains(err.Error(), "sandbox is missing") ||
		!strings.Contains(agents.HintOf(err), "agents cleanup archive restore "+p.ID) {
		t.Errorf("got %v with the hint %q", err, agents.HintOf(err))
	}
	_, err = c.RestoreArchive(t.Context(), p.ID)
	c.must(err)
	if got := c.content(p.ID, "a.txt"); got != "v2\n" {
		t.Errorf("a.txt brought back: got %q", got)
	}
}

// full is git_worktree on a disk that has no room for a sandbox that is made
// again.
type full struct {
	*gitworktree.Strategy
	isFull bool
}

func (f *full) Create(ctx context.Context, req sandbox.CreateRequest) (sandbox.Workspace, error) {
	if f.isFull && req.Like != nil {
		return sandbox.Workspace{}, agents.ErrNoSpace
	}
	return f.Strategy.Create(ctx, req)
}

// TestUndoWithoutRoom: an undo that cannot make its sandbox again changes nothing.
func TestUndoWithoutRoom(t *testing.T) {
	strategy := &full{Strategy: gitworktree.New()}
	c := newComplianceOf(t, strategy, nil)
	repo := oracle.NewRepo(t)
	before := repo.Read("a.txt")
	p := c.plan(repo)
	c.write(p.ID, "", "a.txt", "v2\n")
	_, err := c.Apply(t.Context(), engine.ApplyRequest{Plan: p.ID})
	c.must(err)
	strategy.isFull = true
	for range 2 {
		if _, err := c.UndoApply(t.Context(), p.ID); !errors.Is(err, agents.ErrNoSpace) {
			t.Fatalf("undo: %v, want no space", err)
		}
		if got := repo.Read("a.txt"); got != "v2\n" {
			t.Fatalf("a.txt = %q after an undo that failed", got)
		}
		if got, err := c.Plan(t.Context(), p.ID); err != nil || got.State != agents.PlanApplied {
			t.Fatalf("the plan is %s, %v", got.State, err)
		}
	}
	strategy.isFull = false
	_, err = c.UndoApply(t.Context(), p.ID)
	c.must(err)
	if got := repo.Read("a.txt"); got != before {
		t.Errorf("a.txt = %q after the undo", got)
	}
	if got := c.content(p.ID, "a.txt"); got != "v2\n" {
		t.Errorf("a.txt in the sandbox = %q", got)
	}
}
