package metastore_test

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/metastore"
)

func TestCheckpoints(t *testing.T) {
	f := newFixture(t)
	p := f.plan("p", 2)
	a, b := f.sandbox(p, 0), f.sandbox(p, 1)
	want := agents.Checkpoint{
		PlanID: p.ID, SandboxRef: "0123abcd", DecisionID: id(5), Type: agents.CheckpointPreWrite, ResourceID: p.Resources[0].ID,
		FilesystemPath: "p/c", SizeBytes: 1 << 40,
		Metadata: agents.CheckpointMetadata{
			Reason: "before \"x\" \\ y", SourceTool: "builtin/shell", Phase: "execute", Extra: map[string]string{"path": "\xff\\x41"},
		},
		Refs: []agents.CheckpointRef{
			{SandboxID: b.ID, ResourceID: b.ResourceID, Resource: "p-r1", Ref: "rb", SizeBytes: 2},
			{SandboxID: a.ID, ResourceID: a.ResourceID, Resource: "p-r0", Ref: "ra", SizeBytes: 1},
		},
	}
	f.write(func(tx *metastore.Tx) error { return tx.Checkpoints().Insert(&want) })
	if want.Seq != 1 || !want.Active {
		t.Errorf("Insert gave seq %d and active %v, want 1 and true", want.Seq, want.Active)
	}
	want.Pinned = true // active, and it names a decision
	f.read(func(tx *metastore.Tx) error {
		got, err := tx.Checkpoints().Get(want.ID)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("Get: %v -want +got\n%s", err, diff)
		}
		got, err = tx.Checkpoints().Active(p.ID)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("Active: -want +got\n%s", diff)
		}
		return err
	})
	second := f.checkpoint(p, a)
	second.Refs[0].Resource, second.Pinned = "p-r0", true
	want.Active = false
	f.read(func(tx *metastore.Tx) error {
		all, err := tx.Checkpoints().List(p.ID)
		if diff := cmp.Diff([]agents.Checkpoint{want, second}, all); diff != "" {
			t.Errorf("List: -want +got\n%s", diff)
		}
		n, err2 := tx.Checkpoints().Count(p.ID)
		if n != 2 || err2 != nil {
			t.Errorf("Count = %d, %v; want 2", n, err2)
		}
		return err
	})
}

func TestCheckpointOrderIgnoresTheClock(t *testing.T) {
	f := newFixture(t)
	p := f.plan("p", 0)
	var want []string
	for range 4 {
		f.clock = f.clock.Add(-time.Hour)
		want = append(want, f.checkpoint(p).ID)
	}
	// A number is never given out twice, even when the newest is gone.
	f.write(func(tx *metastore.Tx) error {
		if err := tx.Checkpoints().SetActive(p.ID, want[0]); err != nil {
			return err
		}
		return tx.Checkpoints().Delete(want[3])
	})
	last := f.checkpoint(p)
	if last.Seq != 5 {
		t.Errorf("seq after a delete = %d, want 5", last.Seq)
	}
	want = append(want[:3], last.ID)
	f.read(func(tx *metastore.Tx) error {
		all, err := tx.Checkpoints().List(p.ID)
		var got []string
		for _, cp := range all {
			got = append(got, cp.ID)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("List: -want +got\n%s", diff)
		}
		return err
	})
}

func TestPinned(t *testing.T) {
	f := newFixture(t)
	p := f.plan("p", 0, agents.Step{ID: "one"}, agents.Step{ID: "two"}, agents.Step{ID: "three"})
	var cps []agents.Checkpoint
	for range 7 {
		cps = append(cps, f.checkpoint(p))
	}
	f.write(func(tx *metastore.Tx) error {
		steps := []agents.Step{
			{ID: "one", Status: agents.StepDone, AfterCheckpointID: cps[1].ID}, // not the newest step done
			{ID: "two", Status: agents.StepDone, AfterCheckpointID: cps[2].ID}, // the resume point
			{ID: "three", Status: agents.StepFailed, AfterCheckpointID: cps[3].ID},
		}
		for _, s := range steps {
			if err := tx.Steps().Update(p.ID, s); err != nil {
				return err
			}
		}
		if err := tx.Decisions().Insert(&agents.Decision{PlanID: p.ID, CheckpointID: cps[4].ID}); err != nil {
			return err
		}
		return tx.Checkpoints().SetActive(p.ID, cps[5].ID)
	})
	f.read(func(tx *metastore.Tx) error {
		all, err := tx.Checkpoints().List(p.ID)
		var pinned, active []int
		for i, cp := range all {
			if cp.Pinned {
				pinned = append(pinned, i)
			}
			if cp.Active {
				active = append(active, i)
			}
		}
		if diff := cmp.Diff([]int{2, 4, 5}, pinned); diff != "" {
			t.Errorf("pinned: -want +got\n%s", diff)
		}
		if diff := cmp.Diff([]int{5}, active); diff != "" {
			t.Errorf("active: -want +got\n%s", diff)
		}
		return err
	})
}

func TestResolveCheckpoint(t *testing.T) {
	f := newFixture(t)
	p, other := f.plan("p", 0), f.plan("other", 0)
	insert := func(plan agents.Plan, n int) {
		t.Helper()
		f.write(func(tx *metastore.Tx) error {
			return tx.Checkpoints().Insert(&agents.Checkpoint{ID: id(n), PlanID: plan.ID, Type: agents.CheckpointManual})
		})
	}
	insert(p, 10)
	insert(p, 11)
	insert(p, 200)
	insert(other, 12)
	insert(other, 201)
	resolve := func(ref string) func(tx *metastore.Tx) error {
		return func(tx *metastore.Tx) error { _, err := tx.Checkpoints().Resolve(p.ID, ref); return err }
	}
	for ref, want := range map[string]string{
		id(10): id(10), strings.ToLower(id(11)): id(11),
		id(200)[:24]: id(200), // the other plan's 201 is no candidate
	} {
		f.read(func(tx *metastore.Tx) error {
			got, err := tx.Checkpoints().Resolve(p.ID, ref)
			if got.ID != want {
				t.Errorf("Resolve(%s) = %s, want %s", ref, got.ID, want)
			}
			return err
		})
	}
	t.Run("unknown", func(t *testing.T) {
		for _, ref := range []string{id(99), "", "nope", "01TES", "--", "../../x", "latest"} {
			err := f.refuse(agents.ErrNotFound, resolve(ref))
			if !strings.Contains(agents.HintOf(err), "agents plan checkpoint list "+p.ID) {
				t.Errorf("hint = %q", agents.HintOf(err))
			}
			if !strings.HasPrefix(err.Error(), "Not found: checkpoint ") {
				t.Errorf("message = %q, want the specification's words", err)
			}
		}
	})
	t.Run("ambiguous", func(t *testing.T) {
		err := f.refuse(agents.ErrInvalid, resolve(id(10)[:25]))
		if !strings.Contains(err.Error(), id(10)) || !strings.Contains(err.Error(), id(11)) || strings.Contains(err.Error(), id(12)) {
			t.Errorf("message = %q, want the plan's own two", err)
		}
		if agents.KindOf(err) != "" {
			t.Errorf("kind = %s, want none", agents.KindOf(err))
		}
	})
	t.Run("of another plan", func(t *testing.T) {
		err := f.refuse(agents.ErrInvalid, resolve(id(12)))
		if got, want := agents.KindOf(err), agents.ValidationError; got != want {
			t.Errorf("kind = %q, want %q", got, want)
		}
		if got, want := err.Error(), "checkpoint "+id(12)+" does not belong to plan "+p.ID; got != want {
			t.Errorf("message = %q, want %q", got, want)
		}
	})
}

func TestCheckpointDeleteAndDamage(t *testing.T) {
	f := newFixture(t)
	p := f.plan("p", 1)
	s := f.sandbox(p, 0)
	first, second := f.checkpoint(p, s), f.checkpoint(p, s)
	f.write(func(tx *metastore.Tx) error {
		if err := tx.Checkpoints().AddEvent(first.ID, agents.OnError); err != nil {
			return err
		}
		return tx.Checkpoints().MarkDamaged(first.ID)
	})
	f.read(func(tx *metastore.Tx) error {
		got, err := tx.Checkpoints().Get(first.ID)
		if !got.Damaged {
			t.Error("Damaged = false after MarkDamaged")
		}
		return err
	})
	err := f.refuse(agents.ErrBlocked, func(tx *metastore.Tx) error { return tx.Checkpoints().Delete(second.ID) })
	if agents.HintOf(err) == "" {
		t.Error("no hint")
	}
	f.write(func(tx *metastore.Tx) error { return tx.Checkpoints().Delete(first.ID) })
	f.read(func(tx *metastore.Tx) error {
		n, err := tx.Checkpoints().Count(p.ID)
		if n != 1 {
			t.Errorf("Count = %d, want 1", n)
		}
		events, err2 := tx.Checkpoints().Events(p.ID)
		if len(events) != 0 || err2 != nil {
			t.Errorf("Events = %v, %v; want none", events, err2)
		}
		return err
	})
}

func TestCheckpointEvents(t *testing.T) {
	f := newFixture(t)
	p := f.plan("p", 0)
	cp := f.checkpoint(p)
	var want []metastore.CheckpointEvent
	for _, trigger := range agents.Triggers() {
		want = append(want, metastore.CheckpointEvent{PlanID: p.ID, CheckpointID: cp.ID, Trigger: trigger, CreatedAt: f.clock.UTC()})
		f.write(func(tx *metastore.Tx) error { return tx.Checkpoints().AddEvent(cp.ID, trigger) })
	}
	f.read(func(tx *metastore.Tx) error {
		got, err := tx.Checkpoints().Events(p.ID)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("Events: -want +got\n%s", diff)
		}
		return err
	})
}

func TestCheckpointRefusals(t *testing.T) {
	f := newFixture(t)
	p, other := f.plan("p", 0), f.plan("other", 0)
	cp := f.checkpoint(other)
	for name, c := range map[string]struct {
		want error
		try  func(r metastore.Checkpoints) error
	}{
		"no plan": {agents.ErrNotFound, func(r metastore.Checkpoints) error {
			return r.Insert(&agents.Checkpoint{PlanID: id(9), Type: "manual"})
		}},
		"no type":  {agents.ErrInvalid, func(r metastore.Checkpoints) error { return r.Insert(&agents.Checkpoint{PlanID: p.ID}) }},
		"odd type": {agents.ErrInvalid, func(r metastore.Checkpoints) error { return r.Insert(&agents.Checkpoint{PlanID: p.ID, Type: "auto"}) }},
		"taken id": {agents.ErrExists, func(r metastore.Checkpoints) error {
			return r.Insert(&agents.Checkpoint{ID: cp.ID, PlanID: p.ID, Type: "manual"})
		}},
		"no sandbox": {agents.ErrNotFound, func(r metastore.Checkpoints) error {
			return r.Insert(&agents.Checkpoint{PlanID: p.ID, Type: "manual", Refs: []agents.CheckpointRef{{SandboxID: id(8)}}})
		}},
		"get":              {agents.ErrNotFound, func(r metastore.Checkpoints) error { _, err := r.Get(id(9)); return err }},
		"no active":        {agents.ErrNotFound, func(r metastore.Checkpoints) error { _, err := r.Active(p.ID); return err }},
		"active of nobody": {agents.ErrNotFound, func(r metastore.Checkpoints) error { _, err := r.Active(id(9)); return err }},
		"set none active":  {agents.ErrNotFound, func(r metastore.Checkpoints) error { return r.SetActive(p.ID, id(9)) }},
		"set foreign":      {agents.ErrInvalid, func(r metastore.Checkpoints) error { return r.SetActive(p.ID, cp.ID) }},
		"delete":           {agents.ErrNotFound, func(r metastore.Checkpoints) error { return r.Delete(id(9)) }},
		"damage":           {agents.ErrNotFound, func(r metastore.Checkpoints) error { return r.MarkDamaged(id(9)) }},
		"event":            {agents.ErrNotFound, func(r metastore.Checkpoints) error { return r.AddEvent(id(9), agents.OnError) }},
		"odd trigger":      {agents.ErrInvalid, func(r metastore.Checkpoints) error { return r.AddEvent(cp.ID, "at_noon") }},
	} {
		t.Run(name, func(t *testing.T) {
			f.refuse(c.want, func(tx *metastore.Tx) error { return c.try(tx.Checkpoints()) })
		})
	}
	f.read(func(tx *metastore.Tx) error {
		n, err := tx.Checkpoints().Count(p.ID)
		if n != 0 {
			t.Errorf("refused inserts left %d rows", n)
		}
		return err
	})
}

// TestCheckpointTableIsTheSpecs: checkpointing.md, "Database Schema".
func TestCheckpointTableIsTheSpecs(t *testing.T) {
	f := newFixture(t)
	db := rawDB(t, f.path)
	columns := names(t, db, "SELECT name FROM pragma_table_info('checkpoint_metadata')")
	want := []string{
		"checkpoint_id", "plan_id", "decision_id", "checkpoint_type", "resource_id", "sandbox_ref",
		"filesystem_path", "size_bytes", "created_at", "metadata_json",
	}
	if len(columns) < len(want) {
		t.Fatalf("columns = %v", columns)
	}
	if diff := cmp.Diff(want, columns[:len(want)]); diff != "" {
		t.Errorf("columns: -want +got\n%s", diff)
	}
	indexes := strings.Join(names(t, db, "SELECT name FROM pragma_index_list('checkpoint_metadata')"), " ")
	for _, name := range []string{"idx_checkpoints_plan", "ix_checkpoint_metadata_created_at"} {
		if !strings.Contains(indexes, name) {
			t.Errorf("indexes %s lack %s", indexes, name)
		}
	}
	if got := names(t, db, `SELECT "table" || '.' || "to" FROM pragma_foreign_key_list('checkpoint_metadata')`); fmt.Sprint(got) != "[v3_plans.plan_id]" {
		t.Errorf("foreign keys = %v, want v3_plans.plan_id", got)
	}
	f.checkpoint(f.plan("p", 0))
	if got := names(t, db, "SELECT created_at FROM checkpoint_metadata"); len(got) != 1 || len(got[0]) != 30 || !strings.HasPrefix(got[0], "2026-11-30T11:00:00.1") {
		t.Errorf("created_at = %v, want 30 characters of ISO 8601 in UTC", got)
	}
}

func TestInvocations(t *testing.T) {
	f := newFixture(t)
	p := f.plan("p", 0)
	want := agents.Invocation{PlanID: p.ID, Tool: "builtin/shell", Resource: "app", StepID: "one", Input: []byte(`{"command":"x"}`)}
	f.write(func(tx *metastore.Tx) error { return tx.Invocations().Insert(&want) })
	f.read(func(tx *metastore.Tx) error {
		got, err := tx.Invocations().Get(want.ID)
		if diff := cmp.Diff(want, got); diff != "" || !got.EndedAt.IsZero() {
			t.Errorf("at the start: -want +got\n%s", diff)
		}
		return err
	})
	want.Output, want.ExitCode, want.Stdout, want.Stderr = []byte(`[]`), 3, "out\x00\xff", "err\n"
	want.BeforeCheckpointID, want.AfterCheckpointID = id(1), id(2)
	want.RolledBack, want.Enforced, want.Error, want.EndedAt = true, "none", "it said no", f.clock.UTC().Add(time.Second)
	for i := range 450 { // more than one statement takes
		want.Changed = append(want.Changed, agents.FileChange{
			Resource: "app", Path: fmt.Sprintf("dir/\xff%d", i), OldPath: "old\n", Change: agents.ChangeRenamed, Insertions: i, Deletions: 1, Binary: i%2 == 0,
		})
	}
	f.write(func(tx *metastore.Tx) error { return tx.Invocations().Update(&want) })
	second := agents.Invocation{PlanID: p.ID, Tool: "builtin/file-write", Changed: []agents.FileChange{{Path: "z", Change: agents.ChangeAdded}}, StartedAt: f.clock.UTC().Add(-time.Hour)}
	f.write(func(tx *metastore.Tx) error { return tx.Invocations().Insert(&second) })
	f.read(func(tx *metastore.Tx) error {
		all, err := tx.Invocations().List(p.ID)
		if diff := cmp.Diff([]agents.Invocation{want, second}, all); diff != "" {
			t.Errorf("List: -want +got\n%s", diff)
		}
		changes, err2 := tx.Invocations().Changes(p.ID)
		if diff := cmp.Diff(append(append([]agents.FileChange{}, want.Changed...), second.Changed...), changes); diff != "" || err2 != nil {
			t.Errorf("Changes: %v -want +got\n%s", err2, diff)
		}
		return err
	})
	want.Changed = want.Changed[:1]
	f.write(func(tx *metastore.Tx) error { return tx.Invocations().Update(&want) })
	f.read(func(tx *metastore.Tx) error {
		got, err := tx.Invocations().Get(want.ID)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("after a second Update: -want +got\n%s", diff)
		}
		return err
	})
}

func TestInvocationRefusals(t *testing.T) {
	f := newFixture(t)
	p := f.plan("p", 0)
	f.refuse(agents.ErrNotFound, func(tx *metastore.Tx) error { return tx.Invocations().Insert(&agents.Invocation{PlanID: id(9)}) })
	f.refuse(agents.ErrNotFound, func(tx *metastore.Tx) error {
		return tx.Invocations().Update(&agents.Invocation{ID: id(9), PlanID: p.ID})
	})
	f.refuse(agents.ErrNotFound, func(tx *metastore.Tx) error { _, err := tx.Invocations().Get(id(9)); return err })
}

func TestToolCallsAfterACheckpoint(t *testing.T) {
	f := newFixture(t)
	p := f.plan("p", 0)
	call := func(before string) *agents.Invocation {
		t.Helper()
		inv := agents.Invocation{PlanID: p.ID, Tool: "t", BeforeCheckpointID: before}
		f.write(func(tx *metastore.Tx) error { return tx.Invocations().Insert(&inv) })
		return &inv
	}
	call("")
	late := call("") // learns its checkpoint when it ends
	first := f.checkpoint(p)
	late.BeforeCheckpointID = first.ID
	f.write(func(tx *metastore.Tx) error { return tx.Invocations().Update(late) })
	call(first.ID)
	second := f.checkpoint(p)
	call(second.ID)
	third := f.checkpoint(p)
	for seq, want := range map[int64]int{0: 4, first.Seq: 3, second.Seq: 1, third.Seq: 0} {
		f.read(func(tx *metastore.Tx) error {
			n, err := tx.Invocations().CountAfter(p.ID, seq)
			if n != want {
				t.Errorf("CountAfter(%d) = %d, want %d", seq, n, want)
			}
			return err
		})
	}
}

func TestDecisions(t *testing.T) {
	f := newFixture(t)
	p, other := f.plan("p", 0), f.plan("other", 0)
	decide := func(plan agents.Plan, checkpoint string) agents.Decision {
		t.Helper()
		d := agents.Decision{PlanID: plan.ID, ParentID: id(3), Kind: "k", Question: "q?", Choice: "c", CheckpointID: checkpoint}
		f.write(func(tx *metastore.Tx) error { return tx.Decisions().Insert(&d) })
		return d
	}
	early := decide(p, "")
	cp := f.checkpoint(p)
	own := decide(p, cp.ID)
	later := decide(p, "")
	f.checkpoint(p)
	last := decide(p, "")
	foreign := decide(other, "")
	f.write(func(tx *metastore.Tx) error {
		n, err := tx.Decisions().SupersedeAfter(p.ID, cp.Seq)
		if n != 2 || err != nil {
			t.Errorf("SupersedeAfter = %d, %v; want 2", n, err)
		}
		n, err = tx.Decisions().SupersedeAfter(p.ID, cp.Seq)
		if n != 0 {
			t.Errorf("SupersedeAfter again = %d, want 0", n)
		}
		return err
	})
	later.Status, last.Status = metastore.DecisionSuperseded, metastore.DecisionSuperseded
	f.read(func(tx *metastore.Tx) error {
		all, err := tx.Decisions().List(p.ID)
		// The decision that the checkpoint belongs to stays with it, and so does the one before.
		want := []agents.Decision{early, own, later, last}
		if diff := cmp.Diff(want, all); diff != "" {
			t.Errorf("List: -want +got\n%s", diff)
		}
		got, err2 := tx.Decisions().Get(foreign.ID)
		if got.Status != metastore.DecisionActive || err2 != nil {
			t.Errorf("another plan's decision = %+v, %v", got, err2)
		}
		return err
	})
	f.refuse(agents.ErrNotFound, func(tx *metastore.Tx) error { _, err := tx.Decisions().Get(id(9)); return err })
	f.refuse(agents.ErrNotFound, func(tx *metastore.Tx) error { return tx.Decisions().Insert(&agents.Decision{PlanID: id(9)}) })
	f.refuse(agents.ErrInvalid, func(tx *metastore.Tx) error {
		return tx.Decisions().Insert(&agents.Decision{PlanID: other.ID, CheckpointID: cp.ID})
	})
}

func TestEvents(t *testing.T) {
	f := newFixture(t)
	p := f.plan("p", 0)
	want := []agents.Event{
		{PlanID: p.ID, Kind: "plan.created", Message: "made", Data: map[string]string{"path": "\xff"}},
		{PlanID: p.ID, Kind: "rollback", CreatedAt: f.clock.UTC().Add(-time.Hour)},
	}
	for i := range want {
		f.write(func(tx *metastore.Tx) error { return tx.Events().Append(&want[i]) })
	}
	f.write(func(tx *metastore.Tx) error { return tx.Events().Append(&agents.Event{Kind: "sweep"}) })
	f.read(func(tx *metastore.Tx) error {
		got, err := tx.Events().List(p.ID)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("List: -want +got\n%s", diff)
		}
		return err
	})
	f.refuse(agents.ErrNotFound, func(tx *metastore.Tx) error { return tx.Events().Append(&agents.Event{PlanID: id(9)}) })
	f.refuse(agents.ErrExists, func(tx *metastore.Tx) error { return tx.Events().Append(&agents.Event{ID: want[0].ID}) })
}

func TestLockNotes(t *testing.T) {
	f := newFixture(t)
	note := metastore.LockNote{Name: "plan-x.lock", PlanID: id(1), Holder: "agents plan apply, process 12"}
	f.write(func(tx *metastore.Tx) error {
		old := metastore.LockNote{Name: note.Name, Holder: "somebody else"}
		if err := tx.Locks().Put(&old); err != nil {
			return err
		}
		return tx.Locks().Put(&note)
	})
	f.read(func(tx *metastore.Tx) error {
		got, err := tx.Locks().List()
		if diff := cmp.Diff([]metastore.LockNote{note}, got); diff != "" {
			t.Errorf("List: -want +got\n%s", diff)
		}
		return err
	})
	f.write(func(tx *metastore.Tx) error {
		for range 2 {
			if err := tx.Locks().Drop(note.Name); err != nil {
				return err
			}
		}
		got, err := tx.Locks().List()
		if len(got) != 0 {
			t.Errorf("List after Drop = %v", got)
		}
		return err
	})
}

// rawDB opens the file beside the store, as a person with a SQLite shell does.
func rawDB(t *testing.T, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file://"+path+"?mode=rw")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// names reads a query of one column of text.
func names(t *testing.T, db *sql.DB, query string) []string {
	t.Helper()
	rows, err := db.Query(query)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var out []string
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			t.Fatal(err)
		}
		out = append(out, s)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}
