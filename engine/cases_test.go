package engine_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/engine"
	"github.com/cleveragents/agents/internal/fsx"
	"github.com/cleveragents/agents/internal/oracle"
	"github.com/cleveragents/agents/sandbox"
	"github.com/cleveragents/agents/sandbox/gitworktree"
)

// Cases that need several resources, plans or processes at once.

// states maps each resource of a result to what became of it.
func states(results []agents.ResourceResult) map[string]agents.ApplyState {
	out := map[string]agents.ApplyState{}
	for _, r := range results {
		out[r.Resource] = r.State
	}
	return out
}

func (c *compliance) wantStates(got []agents.ResourceResult, first, second, third agents.ApplyState) {
	c.t.Helper()
	want := map[string]agents.ApplyState{"repo-1": first, "repo-2": second, "repo-3": third}
	if have := states(got); fmt.Sprint(have) != fmt.Sprint(want) {
		c.t.Errorf("resources: got %v, want %v", have, want)
	}
}

// Half of an apply to several repositories is never taken for the whole: the
// default is all or nothing, part of it is asked for, and a later apply does
// the rest.
func TestB063U053ApplyOfSeveralRepositories(t *testing.T) {
	c := newCompliance(t, nil)
	repos := []*oracle.Repo{oracle.NewRepo(t), oracle.NewRepo(t), oracle.NewRepo(t)}
	p := c.plan(repos...)
	for i := range repos {
		c.write(p.ID, fmt.Sprintf("repo-%d", i+1), "a.txt", "ours\n")
	}
	repos[1].Write("a.txt", "theirs\n")
	repos[1].Commit("theirs")
	var before []realState
	for _, r := range repos {
		before = append(before, c.realState(r))
	}
	res, err := c.Apply(t.Context(), engine.ApplyRequest{Plan: p.ID})
	if !errors.Is(err, agents.ErrConflict) {
		t.Fatalf("Apply: got %v, want agents.ErrConflict", err)
	}
	c.wantStates(res.Resources, agents.ApplyNotTried, agents.ApplyConflict, agents.ApplyNotTried)
	for _, was := range before {
		c.wantUntouched(was, "by an apply that fails in one of three")
	}

	res, err = c.Apply(t.Context(), engine.ApplyRequest{Plan: p.ID, Partial: true})
	if !errors.Is(err, agents.ErrPartial) {
		t.Fatalf("Apply with Partial: got %v, want agents.ErrPartial", err)
	}
	c.wantStates(res.Resources, agents.ApplyApplied, agents.ApplyConflict, agents.ApplyApplied)
	c.wantUntouched(before[1], "by a partial apply")
	st, err := c.Status(t.Context(), p.ID)
	c.must(err)
	if st.Plan.State == agents.PlanApplied || len(c.sandboxes(p.ID)) != 3 {
		t.Errorf("after a partial apply: the plan is %s with %d sandboxes", st.Plan.Position(), len(c.sandboxes(p.ID)))
	}
	for i, want := range []agents.ApplyState{agents.ApplyApplied, agents.ApplyConflict, agents.ApplyApplied} {
		if st.Resources[i].ApplyState != want {
			t.Errorf("status of repo-%d: got %s, want %s", i+1, st.Resources[i].ApplyState, want)
		}
	}

	// The user mends the second, and the second apply does that one only.
	done := repos[0].Git("rev-parse", "HEAD") + repos[2].Git("rev-parse", "HEAD")
	repos[1].Git("revert", "--no-edit", "HEAD")
	res, err = c.Apply(t.Context(), engine.ApplyRequest{Plan: p.ID})
	c.must(err)
	c.wantStates(res.Resources, agents.ApplyApplied, agents.ApplyApplied, agents.ApplyApplied)
	if res.AppliedAt.IsZero() || res.Artifacts != 1 {
		t.Errorf("summary: got %+v, want the one artifact of this apply, and when", res)
	}
	if got := repos[0].Git("rev-parse", "HEAD") + repos[2].Git("rev-parse", "HEAD"); got != done {
		t.Error("a repository that had been applied got another commit")
	}
	for i, r := range repos {
		if got := r.Read("a.txt"); got != "ours\n" {
			t.Errorf("a.txt of repo-%d: got %q", i+1, got)
		}
		c.wantNoTrace(r)
	}
}

func TestU053ApplyOfOneResourceOnly(t *testing.T) {
	c := newCompliance(t, nil)
	one, two := oracle.NewRepo(t), oracle.NewRepo(t)
	p := c.plan(one, two)
	c.write(p.ID, "repo-1", "a.txt", "ours\n")
	c.write(p.ID, "repo-2", "a.txt", "ours\n")
	before := c.realState(two)
	_, err := c.Apply(t.Context(), engine.ApplyRequest{Plan: p.ID, Only: []string{"repo-1"}})
	if err != nil && !errors.Is(err, agents.ErrPartial) {
		t.Fatalf("Apply of repo-1 only: %v", err)
	}
	c.wantUntouched(before, "by an apply of the other")
	if got := one.Read("a.txt"); got != "ours\n" {
		t.Errorf("a.txt of repo-1: got %q", got)
	}
	st, err := c.Status(t.Context(), p.ID)
	c.must(err)
	if st.Plan.State == agents.PlanApplied || st.Resources[1].ApplyState != agents.ApplyNotTried {
		t.Errorf("after it the plan is %s and repo-2 %s", st.Plan.Position(), st.Resources[1].ApplyState)
	}
	_, err = c.Apply(t.Context(), engine.ApplyRequest{Plan: p.ID})
	c.must(err)
	if got := two.Read("a.txt"); got != "ours\n" {
		t.Errorf("a.txt of repo-2: got %q", got)
	}
}

func TestU083AppliesOfOnePlanAtOnce(t *testing.T) {
	c := newCompliance(t, nil)
	repo := oracle.NewRepo(t)
	p := c.plan(repo)
	c.write(p.ID, "", "a.txt", "v2\n")
	errs := make([]error, 4)
	var all sync.WaitGroup
	for i := range errs {
		all.Add(1)
		go func() {
			defer all.Done()
			_, errs[i] = c.Apply(t.Context(), engine.ApplyRequest{Plan: p.ID})
		}()
	}
	all.Wait()
	won := 0
	for _, err := range errs {
		switch {
		case err == nil:
			won++
		case !errors.Is(err, agents.ErrLocked) && !errors.Is(err, agents.ErrBlocked):
			t.Errorf("a loser: got %v, want that it is locked or applied already", err)
		}
	}
	if won != 1 {
		t.Errorf("%d of %d applies succeeded: %v", won, len(errs), errs)
	}
	if got := repo.Git("rev-list", "--count", "--merges", "HEAD"); got != "1" {
		t.Errorf("merge commits: got %s, want one", got)
	}
}

// fullDisk is git_worktree whose checkpoint store finds no room while full is set.
type fullDisk struct {
	*gitworktree.Strategy
	full *bool
}

func (f fullDisk) Capture(ctx context.Context, ws sandbox.Workspace, req sandbox.CaptureRequest) (sandbox.Captured, error) {
	if *f.full && strings.HasPrefix(req.Label, "after") {
		return sandbox.Captured{}, fmt.Errorf("write objects: %w", syscall.ENOSPC)
	}
	return f.Strategy.Capture(ctx, ws, req)
}

func (f fullDisk) Restore(ctx context.Context, ws sandbox.Workspace, req sandbox.RestoreRequest) (sandbox.Restored, error) {
	if *f.full {
		return sandbox.Restored{}, fmt.Errorf("write objects: %w", syscall.ENOSPC)
	}
	return f.Strategy.Restore(ctx, ws, req)
}

// A call whose changes can neither be recorded nor taken back, since the disk
// is full, is taken back by the plan's next command that finds room; until
// then nothing goes on over them.
func TestB031FullDiskIsSettledOnceThereIsRoom(t *testing.T) {
	full := false
	c := newComplianceOf(t, fullDisk{gitworktree.New(), &full}, nil)
	p := c.plan(oracle.NewRepo(t))
	c.write(p.ID, "", "a.txt", "v2\n")
	count := len(c.checkpoints(p.ID))
	full = true
	inv, err := c.shell(p.ID, "echo half > a.txt; echo x > new")
	if !errors.Is(err, agents.ErrNoSpace) || inv.RolledBack {
		t.Fatalf("a call on a full disk: got %v, rolled back %t", err, inv.RolledBack)
	}
	for range 2 {
		if _, err := c.shell(p.ID, "echo over it > a.txt"); err == nil {
			t.Error("a call went on over changes that were to be taken back")
		}
	}
	if got := len(c.checkpoints(p.ID)); got != count {
		t.Errorf("checkpoints: got %d, want the %d from before", got, count)
	}
	full = false
	inv2, err := c.shell(p.ID, "cat a.txt; test ! -e new")
	if err != nil || inv2.Stdout != "v2\n" {
		t.Errorf("a call once there is room: got %v, it saw %q", err, inv2.Stdout)
	}
	all, err := c.Invocations(t.Context(), p.ID)
	c.must(err)
	i := slices.IndexFunc(all, func(one agents.Invocation) bool { return one.ID == inv.ID })
	if i < 0 || !all[i].RolledBack || all[i].EndedAt.IsZero() || !strings.Contains(all[i].Error, "checkpoint after") {
		t.Errorf("the record of the call that was taken back late: %+v", all)
	}
}

// A sandbox belongs to who holds the plan's lock, whatever its age.
func TestB110TheSweepLeavesWhatIsHeld(t *testing.T) {
	c := newCompliance(t, nil)
	repo := oracle.NewRepo(t)
	p := c.plan(repo)
	c.write(p.ID, "", "a.txt", "v2\n")
	_, err := c.Cancel(t.Context(), engine.CancelRequest{Plan: p.ID}) // now a cleanup would take it
	c.must(err)
	path, count := c.sandbox(p.ID).Path, len(c.checkpoints(p.ID))
	lock, err := fsx.TryLock(filepath.Join(c.data, "locks", "plan-"+p.ID+".lock"), "another process")
	c.must(err)
	defer lock.Release()
	old := time.Now().Add(-30 * 24 * time.Hour)
	c.must(os.Chtimes(path, old, old))

	c.must(c.Start(t.Context()))
	c.plan(repo)
	res, err := c.Cleanup(t.Context(), engine.CleanupRequest{})
	c.must(err)
	if len(res.Removed) > 0 || len(res.Kept) != 1 || !strings.Contains(res.Kept[0].Why, "running") {
		t.Errorf("Cleanup: got %+v, want one kept since it is running", res)
	}
	c.wantGone(path, false, "while another process holds the plan")
	if got := len(c.checkpoints(p.ID)); got != count || c.content(p.ID, "a.txt") != "v2\n" {
		t.Errorf("%d checkpoints, a.txt %q; want %d and v2", got, c.content(p.ID, "a.txt"), count)
	}
	lock.Release()
	res, err = c.Cleanup(t.Context(), engine.CleanupRequest{})
	c.must(err)
	if len(res.Removed) != 1 || len(res.Archived) != 1 {
		t.Errorf("Cleanup once nobody holds it: got %+v, want it archived and removed", res)
	}
}

// After many plans only what holds unapplied work is left.
func TestB112NothingAccumulates(t *testing.T) {
	c := newCompliance(t, nil)
	repo := oracle.NewRepo(t)
	for i := range 3 {
		p := c.plan(repo)
		c.write(p.ID, "", fmt.Sprintf("discarded-%d", i), "x")
		_, err := c.Cancel(t.Context(), engine.CancelRequest{Plan: p.ID, Discard: true})
		c.must(err)
	}
	for i := range 2 {
		p := c.plan(repo)
		c.write(p.ID, "", fmt.Sprintf("applied-%d", i), "x")
		_, err := c.Apply(t.Context(), engine.ApplyRequest{Plan: p.ID})
		c.must(err)
	}
	cancelled, alive := c.plan(repo), c.plan(repo)
	c.write(cancelled.ID, "", "cancelled", "x")
	c.write(alive.ID, "", "alive", "x")
	_, err := c.Cancel(t.Context(), engine.CancelRequest{Plan: cancelled.ID})
	c.must(err)
	c.must(c.Start(t.Context()))
	res, err := c.Cleanup(t.Context(), engine.CleanupRequest{})
	c.must(err)
	if len(res.Removed) != 1 || len(res.Kept) != 1 || !strings.Contains(res.Kept[0].Why, alive.ID) || res.FreedBytes <= 0 {
		t.Errorf("Cleanup: got %+v, want one removed, one kept, and the bytes it freed", res)
	}
	box := c.sandbox(alive.ID)
	if got := repo.Git("branch", "--list", "--format=%(refname:short)", "cleveragents/*"); got != box.Branch {
		t.Errorf("branches: got %q, want %q alone", got, box.Branch)
	}
	if got := strings.Count(repo.Git("worktree", "list"), "\n"); got != 1 {
		t.Errorf("worktrees beside the user's: got %d, want 1", got)
	}
	for _, place := range []string{"sandboxes", "private"} {
		entries, err := os.ReadDir(filepath.Join(c.data, place))
		c.must(err)
		if len(entries) != 1 {
			t.Errorf("%s holds %v, want one entry", place, entries)
		}
	}
}

// "Shared resources (linked to multiple projects in a multi-project plan) get
// a single sandbox."
func TestResourceOfSeveralProjects(t *testing.T) {
	c := newCompliance(t, nil)
	r, err := c.AddResource(t.Context(), agents.Resource{Name: "app", Type: agents.TypeGitCheckout, Location: oracle.NewRepo(t).Dir})
	c.must(err)
	for _, name := range []string{"one", "two"} {
		_, err := c.CreateProject(t.Context(), name)
		c.must(err)
		_, err = c.LinkResource(t.Context(), name, r.ID)
		c.must(err)
	}
	p, err := c.CreatePlan(t.Context(), engine.PlanRequest{Projects: []string{"one", "two"}})
	c.must(err)
	if len(p.Resources) != 1 {
		t.Errorf("resources: got %+v, want the one", p.Resources)
	}
	c.write(p.ID, "", "a.txt", "v2\n")
	c.write(p.ID, "app", "b.txt", "b\n")
	if box := c.sandbox(p.ID); box.Resource != "app" || c.content(p.ID, "a.txt")+c.content(p.ID, "b.txt") != "v2\nb\n" {
		t.Errorf("sandbox: got %+v", box)
	}
}

// One place under two names is one resource with one sandbox.
func TestOnePlaceUnderTwoNames(t *testing.T) {
	c := newCompliance(t, nil)
	repo := oracle.NewRepo(t)
	link := repo.Dir + "-link"
	c.must(os.Symlink(repo.Dir, link))
	var all []agents.Resource
	for name, place := range map[string]string{"app": repo.Dir, "same": repo.Dir, "link": link} {
		r, err := c.AddResource(t.Context(), agents.Resource{Name: name, Type: agents.TypeGitCheckout, Location: place})
		c.must(err)
		all = append(all, r)
	}
	p, err := c.CreatePlan(t.Context(), engine.PlanRequest{Resources: all})
	c.must(err)
	for i, r := range all {
		c.write(p.ID, r.Name, fmt.Sprintf("%d.txt", i), "x\n")
	}
	if got := c.content(p.ID, "0.txt") + c.content(p.ID, "1.txt") + c.content(p.ID, "2.txt"); got != "x\nx\nx\n" {
		t.Errorf("what was written under three names: got %q, want it in the one sandbox", got)
	}
	_, err = c.Rollback(t.Context(), engine.RollbackRequest{Plan: p.ID, Checkpoint: c.checkpoints(p.ID)[0].ID, Resource: all[1].Name})
	c.must(err)
	c.write(p.ID, all[2].Name, "3.txt", "y\n")
	res, err := c.Apply(t.Context(), engine.ApplyRequest{Plan: p.ID, Only: []string{all[2].Name}})
	c.must(err)
	if len(res.Resources) != 3 || res.Artifacts != 1 || repo.Read("3.txt") != "y\n" {
		t.Errorf("apply under one of the names: got %+v", res)
	}
	for _, r := range res.Resources {
		if r.State != agents.ApplyApplied {
			t.Errorf("%s is %s, want applied", r.Resource, r.State)
		}
	}
}

// What a row says of a checkpoint that a tool made (checkpointing.md, "Checkpoint").
func TestCheckpointRow(t *testing.T) {
	c := newCompliance(t, nil)
	p := c.plan(oracle.NewRepo(t), oracle.NewRepo(t))
	c.write(p.ID, "repo-1", "a.txt", "v2\n")
	start := time.Now().Add(-time.Minute)
	inv := c.write(p.ID, "repo-2", "a.txt", strings.Repeat("many bytes, all the same\n", 1000))
	rows := c.checkpoints(p.ID)
	i := slices.IndexFunc(rows, func(cp agents.Checkpoint) bool { return cp.ID == inv.AfterCheckpointID })
	if i < 0 {
		t.Fatalf("%s is not listed", inv.AfterCheckpointID)
	}
	cp := rows[i]
	second := p.Resources[1].ID
	if !agents.ValidID(cp.ID) || cp.PlanID != p.ID || cp.Type != agents.CheckpointPostStep || cp.ResourceID != second ||
		cp.FilesystemPath != p.ID+"/"+cp.ID || cp.SizeBytes <= 0 || cp.CreatedAt.Before(start) || cp.CreatedAt.Location() != time.UTC {
		t.Errorf("row: got %+v", cp)
	}
	if _, err := os.Stat(filepath.Join(c.data, "checkpoints", filepath.FromSlash(cp.FilesystemPath))); err != nil {
		t.Error(err)
	}
	if m := cp.Metadata; m.SourceTool != "builtin/file-write" || m.Phase != "execute" || m.Reason == "" {
		t.Errorf("metadata: got %+v", m)
	}
	if len(cp.Refs) != 2 || !slices.ContainsFunc(cp.Refs, func(r agents.CheckpointRef) bool { return r.ResourceID == second && r.Ref == cp.SandboxRef }) {
		t.Errorf("refs: got %+v, want one for each sandbox, and sandbox_ref %s of the call's resource", cp.Refs, cp.SandboxRef)
	}
}
