package metastore_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/metastore"
)

func TestPlans(t *testing.T) {
	f := newFixture(t)
	a, b := f.resource("a"), f.resource("b")
	b.Boundary, b.SubPath = a.ID, "deep\xff/b" // a plan's own knowledge: the stored resource has none
	want := agents.Plan{
		Name: "tidy", Action: "local/tidy", Arguments: map[string]string{"path": "a\xff\\x41\nb", "": "empty"},
		Phase: agents.PhaseExecute, State: agents.PlanErrored, Actor: "me", Profile: "ci",
		RequireCheckpoints: true, ReadOnly: true, IncludeUncommitted: true,
		Projects: []string{"web", "api"}, Resources: []agents.Resource{b, a},
		Steps: []agents.Step{
			{ID: "one", Tool: "builtin/shell", With: map[string]any{"command": "true"}, OnFailure: agents.FailRollback, Status: agents.StepPending},
			{ID: "two", Tool: "builtin/file-read", Status: agents.StepSkipped, BeforeCheckpointID: id(1), AfterCheckpointID: id(2), Error: "why"},
		},
		Error:     &agents.PlanError{Message: "no", Tool: "t", Step: "one", Checkpoint: id(3), Recoverable: true},
		AppliedAt: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC),
	}
	f.write(func(tx *metastore.Tx) error { return tx.Plans().Insert(&want) })
	f.clock = f.clock.Add(time.Minute)
	newer := f.plan("newer", 0)
	f.read(func(tx *metastore.Tx) error {
		got, err := tx.Plans().Get(want.ID)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("Get: %v -want +got\n%s", err, diff)
		}
		all, err := tx.Plans().List()
		if diff := cmp.Diff([]agents.Plan{newer, want}, all); diff != "" {
			t.Errorf("List: -want +got\n%s", diff)
		}
		return err
	})
	want.Name, want.Actor, want.Profile = "tidier", "you", "auto"
	want.Phase, want.State, want.Error, want.AppliedAt = agents.PhaseApply, agents.PlanApplied, nil, f.clock
	f.write(func(tx *metastore.Tx) error { return tx.Plans().Update(&want) })
	if !want.UpdatedAt.Equal(f.clock) {
		t.Errorf("UpdatedAt = %v, want %v", want.UpdatedAt, f.clock)
	}
	f.read(func(tx *metastore.Tx) error {
		got, err := tx.Plans().Get(want.ID)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("after Update: %v -want +got\n%s", err, diff)
		}
		live, err := tx.Plans().Live()
		if diff := cmp.Diff([]agents.Plan{newer}, live); diff != "" {
			t.Errorf("Live: -want +got\n%s", diff)
		}
		return err
	})
}

func TestPlanRefusals(t *testing.T) {
	f := newFixture(t)
	p := f.plan("taken", 1)
	queued := agents.Plan{Phase: agents.PhaseExecute, State: agents.PlanQueued}
	insert := func(change func(*agents.Plan)) func(tx *metastore.Tx) error {
		q := queued
		change(&q)
		return func(tx *metastore.Tx) error { return tx.Plans().Insert(&q) }
	}
	f.refuse(agents.ErrExists, insert(func(q *agents.Plan) { q.Name = "taken" }))
	f.refuse(agents.ErrExists, insert(func(q *agents.Plan) { q.ID = p.ID }))
	f.refuse(agents.ErrExists, insert(func(q *agents.Plan) { q.Resources = []agents.Resource{p.Resources[0], p.Resources[0]} }))
	f.refuse(agents.ErrExists, insert(func(q *agents.Plan) { q.Steps = []agents.Step{{ID: "a"}, {ID: "a"}} }))
	f.refuse(agents.ErrInvalid, insert(func(q *agents.Plan) { q.Steps = []agents.Step{{}} }))
	f.refuse(agents.ErrInvalid, insert(func(q *agents.Plan) { q.ID = "../../etc" }))
	f.refuse(agents.ErrNotFound, func(tx *metastore.Tx) error {
		q := queued
		return tx.Plans().Update(&q)
	})
}

// TestU089PositionOutsideTheTableIsRefused: a plan in action/processing is never stored.
func TestU089PositionOutsideTheTableIsRefused(t *testing.T) {
	f := newFixture(t)
	p := f.plan("p", 0)
	f.refuse(agents.ErrInvalid, func(tx *metastore.Tx) error {
		return tx.Plans().Insert(&agents.Plan{Phase: agents.PhaseAction, State: agents.PlanProcessing})
	})
	p.Phase, p.State = agents.PhaseAction, agents.PlanProcessing
	f.refuse(agents.ErrInvalid, func(tx *metastore.Tx) error { return tx.Plans().Update(&p) })
}

func TestPlanNameIsFreeAgainWhenItsPlanHasEnded(t *testing.T) {
	f := newFixture(t)
	first := f.plan("again", 0)
	f.move(&first, agents.PhaseExecute, agents.PlanCancelled)
	f.clock = f.clock.Add(time.Second)
	second := f.plan("again", 0)
	resolve := func(want string) {
		t.Helper()
		f.read(func(tx *metastore.Tx) error {
			got, err := tx.Plans().Resolve("again")
			if got.ID != want {
				t.Errorf("Resolve(again) = %s, want %s", got.ID, want)
			}
			return err
		})
	}
	resolve(second.ID)
	// Reopening the first would make the name ambiguous.
	first.State = agents.PlanQueued
	f.refuse(agents.ErrExists, func(tx *metastore.Tx) error { return tx.Plans().Update(&first) })
	f.move(&second, agents.PhaseApply, agents.PlanApplied)
	err := f.refuse(agents.ErrInvalid, func(tx *metastore.Tx) error { _, err := tx.Plans().Resolve("again"); return err })
	for _, id := range []string{first.ID, second.ID} {
		if !strings.Contains(err.Error(), id) {
			t.Errorf("message %q does not list %s", err, id)
		}
	}
	// Plans without a name do not get in each other's way.
	f.plan("", 0)
	f.plan("", 0)
}

func TestResolvePlan(t *testing.T) {
	f := newFixture(t)
	named := func(n int, name string) agents.Plan {
		p := agents.Plan{ID: id(n), Name: name, Phase: agents.PhaseExecute, State: agents.PlanQueued}
		f.write(func(tx *metastore.Tx) error { return tx.Plans().Insert(&p) })
		return p
	}
	named(12, "twelve")
	named(13, "thirteen")
	named(2_000_000, id(12)[:20]) // its name is a prefix of the others' ids
	lone := agents.Plan{ID: "7ZABCDEFGH0000000000000000", Phase: agents.PhaseExecute, State: agents.PlanQueued}
	f.write(func(tx *metastore.Tx) error { return tx.Plans().Insert(&lone) })
	impostor := named(3_000_000, "7ZABCDEF") // its name is a prefix of lone's id

	for ref, want := range map[string]string{
		id(12):                  id(12),
		strings.ToLower(id(13)): id(13),
		"twelve":                id(12),
		"7zabcdefg":             lone.ID,
		lone.ID:                 lone.ID,
		impostor.ID:             impostor.ID,
	} {
		f.read(func(tx *metastore.Tx) error {
			got, err := tx.Plans().Resolve(ref)
			if got.ID != want {
				t.Errorf("Resolve(%s) = %s, want %s", ref, got.ID, want)
			}
			return err
		})
	}
	for ref, want := range map[string][]string{
		id(12)[:25]: {id(12), "twelve", id(13), "thirteen"},
		id(12)[:20]: {id(12), id(13), id(2_000_000)},
		"7ZABCDEF":  {lone.ID, impostor.ID},
	} {
		err := f.refuse(agents.ErrInvalid, func(tx *metastore.Tx) error { _, err := tx.Plans().Resolve(ref); return err })
		for _, part := range want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("Resolve(%s): message %q does not list %s", ref, err, part)
			}
		}
	}
	for _, ref := range []string{"nobody", "01TES", id(99), "--help", "../x", "a'b", "%", "01TEST%", "01TEST_", strings.Repeat("0", 27), "\x00", "\xff"} {
		err := f.refuse(agents.ErrNotFound, func(tx *metastore.Tx) error { _, err := tx.Plans().Resolve(ref); return err })
		if !strings.Contains(agents.HintOf(err), "agents plan list") {
			t.Errorf("Resolve(%q): hint = %q", ref, agents.HintOf(err))
		}
	}
	f.refuse(agents.ErrInvalid, func(tx *metastore.Tx) error { _, err := tx.Plans().Resolve(""); return err })
}

func TestResolveListsNotTooMany(t *testing.T) {
	f := newFixture(t)
	for n := range 30 {
		p := agents.Plan{ID: id(n), Phase: agents.PhaseExecute, State: agents.PlanQueued}
		f.write(func(tx *metastore.Tx) error { return tx.Plans().Insert(&p) })
	}
	err := f.refuse(agents.ErrInvalid, func(tx *metastore.Tx) error { _, err := tx.Plans().Resolve("01test"); return err })
	if !strings.HasSuffix(err.Error(), "and more") || strings.Count(err.Error(), "01TEST") != 10 {
		t.Errorf("message = %q, want ten ids and more", err)
	}
}

func TestPlansNotFound(t *testing.T) {
	f := newFixture(t)
	p := f.plan("p", 0)
	gone := agents.Plan{ID: id(9), Phase: agents.PhaseExecute, State: agents.PlanQueued}
	for name, try := range map[string]func(tx *metastore.Tx) error{
		"Get":           func(tx *metastore.Tx) error { _, err := tx.Plans().Get(id(9)); return err },
		"Update":        func(tx *metastore.Tx) error { return tx.Plans().Update(&gone) },
		"Parent":        func(tx *metastore.Tx) error { _, err := tx.Plans().Parent(id(9)); return err },
		"SetParent":     func(tx *metastore.Tx) error { return tx.Plans().SetParent(p.ID, id(9)) },
		"SetParent of":  func(tx *metastore.Tx) error { return tx.Plans().SetParent(id(9), p.ID) },
		"Steps.Update":  func(tx *metastore.Tx) error { return tx.Steps().Update(p.ID, agents.Step{ID: "none"}) },
		"Steps.Update2": func(tx *metastore.Tx) error { return tx.Steps().Update(id(9), agents.Step{ID: "none"}) },
	} {
		t.Run(name, func(t *testing.T) { f.refuse(agents.ErrNotFound, try) })
	}
}

func TestSteps(t *testing.T) {
	f := newFixture(t)
	p := f.plan("p", 0, agents.Step{ID: "b", Tool: "x"}, agents.Step{ID: "a", Tool: "y", With: map[string]any{"n": 1}})
	done := agents.Step{ID: "b", Tool: "ignored", Status: agents.StepDone, BeforeCheckpointID: id(1), AfterCheckpointID: id(2), Error: "e"}
	f.write(func(tx *metastore.Tx) error { return tx.Steps().Update(p.ID, done) })
	f.read(func(tx *metastore.Tx) error {
		got, err := tx.Steps().List(p.ID)
		done.Tool = "x"
		want := []agents.Step{done, {ID: "a", Tool: "y", With: map[string]any{"n": 1}, Status: agents.StepPending}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("List: -want +got\n%s", diff)
		}
		return err
	})
}

func TestChildPlans(t *testing.T) {
	f := newFixture(t)
	parent := f.plan("parent", 1)
	spawn := func(name string, of agents.Plan) agents.Plan {
		t.Helper()
		child := f.plan(name, 0)
		f.write(func(tx *metastore.Tx) error { return tx.Plans().SetParent(child.ID, of.ID) })
		return child
	}
	spawn("before", parent)
	cp := f.checkpoint(parent)
	after := spawn("after", parent)
	grandchild := spawn("grandchild", after)
	ended := spawn("ended", parent)
	f.move(&ended, agents.PhaseApply, agents.PlanApplied)
	below := spawn("below", ended)
	failed := spawn("failed", parent)
	f.move(&failed, agents.PhaseApply, agents.PlanErrored)

	f.read(func(tx *metastore.Tx) error {
		children, err := tx.Plans().Children(parent.ID)
		if len(children) != 4 {
			t.Errorf("Children = %d, want 4", len(children))
		}
		if got, err := tx.Plans().Parent(grandchild.ID); got != after.ID || err != nil {
			t.Errorf("Parent = %s, %v; want %s", got, err, after.ID)
		}
		if got, err := tx.Plans().Parent(parent.ID); got != "" || err != nil {
			t.Errorf("Parent of the top = %q, %v", got, err)
		}
		return err
	})
	f.write(func(tx *metastore.Tx) error {
		n, err := tx.Plans().CancelChildrenAfter(parent.ID, cp.Seq)
		if n != 4 { // after, grandchild, below, failed
			t.Errorf("cancelled = %d, want 4", n)
		}
		return err
	})
	f.read(func(tx *metastore.Tx) error {
		for name, want := range map[string]agents.PlanState{
			"before": agents.PlanQueued, after.ID: agents.PlanCancelled, grandchild.ID: agents.PlanCancelled,
			ended.ID: agents.PlanApplied, below.ID: agents.PlanCancelled, failed.ID: agents.PlanCancelled,
		} {
			p, err := tx.Plans().Resolve(name)
			if p.State != want || err != nil {
				t.Errorf("plan %s = %s, %v; want %s", name, p.State, err, want)
			}
		}
		return nil
	})
	f.write(func(tx *metastore.Tx) error {
		n, err := tx.Plans().CancelChildrenAfter(parent.ID, cp.Seq)
		if n != 0 {
			t.Errorf("cancelled again = %d, want 0", n)
		}
		return err
	})
}

func TestCancelChildrenRefusesOneBeingApplied(t *testing.T) {
	f := newFixture(t)
	parent, child, other := f.plan("parent", 0), f.plan("child", 0), f.plan("other", 0)
	for _, c := range []agents.Plan{child, other} {
		f.write(func(tx *metastore.Tx) error { return tx.Plans().SetParent(c.ID, parent.ID) })
	}
	f.move(&child, agents.PhaseApply, agents.PlanProcessing)
	err := f.refuse(agents.ErrState, func(tx *metastore.Tx) error { _, err := tx.Plans().CancelChildrenAfter(parent.ID, 0); return err })
	var s *agents.StateError
	if !errors.As(err, &s) {
		t.Errorf("error = %v, want a StateError", err)
	}
	f.read(func(tx *metastore.Tx) error {
		got, err := tx.Plans().Get(other.ID)
		if got.State != agents.PlanQueued {
			t.Errorf("the refused unit of work left %s, want queued", got.State)
		}
		return err
	})
	f.refuse(agents.ErrInvalid, func(tx *metastore.Tx) error { return tx.Plans().SetParent(parent.ID, child.ID) })
	f.refuse(agents.ErrInvalid, func(tx *metastore.Tx) error { return tx.Plans().SetParent(parent.ID, parent.ID) })
}

func TestSandboxes(t *testing.T) {
	f := newFixture(t)
	p := f.plan("p", 2)
	want := agents.SandboxRecord{
		PlanID: p.ID, ResourceID: p.Resources[0].ID, Strategy: agents.GitWorktree, Status: agents.SandboxActive,
		Path: "/sand\xffbox", PrivateDir: "/private\n", BaseRef: "base", SealedRef: "sealed", ApplyState: agents.ApplyConflict,
		Metadata: map[string]string{"worktree_path": "/a\xfe\\b", "branch": "cleveragents/plan-x"},
	}
	f.write(func(tx *metastore.Tx) error { return tx.Sandboxes().Insert(&want) })
	second := f.sandbox(p, 1)
	f.read(func(tx *metastore.Tx) error {
		got, err := tx.Sandboxes().Get(want.ID)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("Get: %v -want +got\n%s", err, diff)
		}
		all, err := tx.Sandboxes().ByPlan(p.ID)
		if diff := cmp.Diff([]agents.SandboxRecord{want, second}, all); diff != "" {
			t.Errorf("ByPlan: -want +got\n%s", diff)
		}
		return err
	})
	f.clock = f.clock.Add(time.Second)
	want.Status, want.SealedRef, want.Metadata, want.ApplyState = agents.SandboxCommitted, "", nil, agents.ApplyApplied
	f.write(func(tx *metastore.Tx) error { return tx.Sandboxes().Update(&want) })
	f.read(func(tx *metastore.Tx) error {
		got, err := tx.Sandboxes().ByResource(p.ID, want.ResourceID)
		if diff := cmp.Diff(want, got); diff != "" || !got.UpdatedAt.Equal(f.clock) {
			t.Errorf("after Update: -want +got\n%s", diff)
		}
		return err
	})
}

func TestOneSandboxForEachResourceOfAPlan(t *testing.T) {
	f := newFixture(t)
	p, other := f.plan("p", 1), f.plan("other", 1)
	first := f.sandbox(p, 0)
	again := first
	again.ID = ""
	f.refuse(agents.ErrExists, func(tx *metastore.Tx) error { return tx.Sandboxes().Insert(&again) })
	foreign := first
	foreign.ID, foreign.PlanID = "", other.ID
	f.write(func(tx *metastore.Tx) error { return tx.Sandboxes().Insert(&foreign) })

	// Cleaned up, it is still found, until another takes its place.
	first.Status = agents.SandboxCleanedUp
	f.write(func(tx *metastore.Tx) error { return tx.Sandboxes().Update(&first) })
	stands := func(want string) {
		t.Helper()
		f.read(func(tx *metastore.Tx) error {
			all, err := tx.Sandboxes().ByPlan(p.ID)
			if len(all) != 1 || all[0].ID != want {
				t.Errorf("ByPlan = %+v, want only %s", all, want)
			}
			one, err2 := tx.Sandboxes().ByResource(p.ID, first.ResourceID)
			if one.ID != want {
				t.Errorf("ByResource = %s, want %s", one.ID, want)
			}
			return errors.Join(err, err2)
		})
	}
	stands(first.ID)
	next := first
	next.ID, next.Status, next.CreatedAt = "", agents.SandboxPending, time.Time{}
	f.write(func(tx *metastore.Tx) error { return tx.Sandboxes().Insert(&next) })
	stands(next.ID)
	first.Status = agents.SandboxActive
	f.refuse(agents.ErrExists, func(tx *metastore.Tx) error { return tx.Sandboxes().Update(&first) })
	next.Status = agents.SandboxCleanedUp
	f.write(func(tx *metastore.Tx) error { return tx.Sandboxes().Update(&next) })
	stands(next.ID)
}

// TestU059EveryLookIsFresh: a sandbox made after a look is in the next one.
func TestU059EveryLookIsFresh(t *testing.T) {
	f := newFixture(t)
	p := f.plan("p", 3)
	live := func(want ...string) {
		t.Helper()
		f.read(func(tx *metastore.Tx) error {
			all, err := tx.Sandboxes().Live()
			var got []string
			for _, s := range all {
				got = append(got, s.ID)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("Live: -want +got\n%s", diff)
			}
			return err
		})
	}
	live()
	first := f.sandbox(p, 0)
	live(first.ID)
	second := f.sandbox(p, 1)
	pending := agents.SandboxRecord{PlanID: p.ID, ResourceID: p.Resources[2].ID, Status: agents.SandboxPending}
	f.write(func(tx *metastore.Tx) error { return tx.Sandboxes().Insert(&pending) })
	live(first.ID, second.ID)
	first.Status = agents.SandboxCleanedUp
	f.write(func(tx *metastore.Tx) error { return tx.Sandboxes().Update(&first) })
	live(second.ID)
	f.read(func(tx *metastore.Tx) error {
		all, err := tx.Sandboxes().All()
		if len(all) != 2 {
			t.Errorf("All = %d, want the second and the pending one", len(all))
		}
		return err
	})
}

func TestSandboxRefusals(t *testing.T) {
	f := newFixture(t)
	f.refuse(agents.ErrNotFound, func(tx *metastore.Tx) error { _, err := tx.Sandboxes().Get(id(9)); return err })
	f.refuse(agents.ErrNotFound, func(tx *metastore.Tx) error { _, err := tx.Sandboxes().ByResource(id(9), id(8)); return err })
	f.refuse(agents.ErrNotFound, func(tx *metastore.Tx) error { return tx.Sandboxes().Update(&agents.SandboxRecord{ID: id(9)}) })
	f.refuse(agents.ErrNotFound, func(tx *metastore.Tx) error {
		return tx.Sandboxes().Insert(&agents.SandboxRecord{PlanID: id(9), ResourceID: id(8)})
	})
}

// FuzzResolve holds that whatever is typed names one plan, none, or too many,
// and that a plan found is one that it may mean.
func FuzzResolve(f *testing.F) {
	for _, seed := range []string{"", "01test", id(12), "twelve", "--", "%", "_", "' OR 1=1", "01TEST0000000000000000001Z", "\x00", "\xff"} {
		f.Add(seed)
	}
	store, err := metastore.Open(f.Context(), f.TempDir()+"/agents.db", metastore.Options{})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { store.Close() })
	err = store.Write(f.Context(), func(tx *metastore.Tx) error {
		for n := range 20 {
			p := agents.Plan{ID: id(n * 7), Name: fmt.Sprintf("plan%d", n), Phase: agents.PhaseExecute, State: agents.PlanQueued}
			if err := tx.Plans().Insert(&p); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, ref string) {
		err := store.Read(t.Context(), func(tx *metastore.Tx) error {
			p, err := tx.Plans().Resolve(ref)
			if err == nil && p.Name != ref && (len(ref) < agents.MinPrefix || !strings.HasPrefix(p.ID, strings.ToUpper(ref))) {
				t.Errorf("Resolve(%q) = %s (%s)", ref, p.ID, p.Name)
			}
			if err != nil {
				return err
			}
			_, err = tx.Checkpoints().Resolve(p.ID, ref)
			return err
		})
		if err != nil && !errors.Is(err, agents.ErrNotFound) && !errors.Is(err, agents.ErrInvalid) {
			t.Errorf("Resolve(%q): %v", ref, err)
		}
	})
}
