package checkpoint_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/checkpoint"
	"github.com/cleveragents/agents/internal/fsx"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newID() string { return agents.NewID(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)) }

// fakeObjects is an ObjectStore in which a state is a file of its name.
type fakeObjects struct{}

func (fakeObjects) Verify(_ context.Context, dir string, refs []string) error {
	for _, ref := range refs {
		if b, err := os.ReadFile(filepath.Join(dir, "objects", ref)); err != nil || string(b) != "state "+ref {
			return errors.Join(err, agents.ErrDamaged)
		}
	}
	return nil
}

func (fakeObjects) Collect(_ context.Context, dir string, keep []string) (freed int64, err error) {
	entries, err := os.ReadDir(filepath.Join(dir, "objects"))
	for _, e := range entries {
		if slices.Contains(keep, e.Name()) {
			continue
		}
		fi, ierr := e.Info()
		freed += fi.Size()
		err = errors.Join(err, ierr, os.Remove(filepath.Join(dir, "objects", e.Name())))
	}
	return freed, err
}

func newStore(t testing.TB) *checkpoint.Store {
	t.Helper()
	return storeAt(t, filepath.Join(t.TempDir(), "checkpoints"))
}

func storeAt(t testing.TB, dir string) *checkpoint.Store {
	t.Helper()
	s, err := checkpoint.Open(dir, checkpoint.Options{Objects: fakeObjects{}})
	must(t, err)
	return s
}

// put publishes a checkpoint of one sandbox whose state is called ref.
func put(t testing.TB, s *checkpoint.Store, plan, sandbox, ref string) checkpoint.Manifest {
	t.Helper()
	m := checkpoint.Manifest{CheckpointID: newID(), PlanID: plan, CreatedAt: time.Now().UTC().Round(0)}
	st, err := s.Stage(plan)
	must(t, err)
	state(t, s, plan, sandbox, ref)
	dir, err := st.Dir(sandbox)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "extra \xff"), []byte("extra "+ref), 0o600))
	must(t, os.Symlink("nowhere", filepath.Join(dir, "link")))
	m.Parts = []checkpoint.Part{{
		SandboxID: sandbox, ResourceID: newID(), Ref: ref, SizeBytes: 7,
		LeftOut: []agents.PathReason{{Resource: "r", Path: "a\xfe\nb", Reason: "is a FIFO"}},
	}}
	must(t, st.Publish(t.Context(), m))
	return m
}

// state writes what the state ref needs.
func state(t testing.TB, s *checkpoint.Store, plan, sandbox, ref string) {
	t.Helper()
	objects := filepath.Join(s.Objects(plan, sandbox), "objects")
	must(t, os.MkdirAll(objects, 0o700))
	must(t, os.WriteFile(filepath.Join(objects, ref), []byte("state "+ref), 0o600))
}

func TestPublishedIsWhatWasStaged(t *testing.T) {
	s, plan, sandbox := newStore(t), newID(), newID()
	want := put(t, s, plan, sandbox, "one")
	got, err := storeAt(t, s.Dir()).Manifest(plan, want.CheckpointID)
	must(t, err)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("manifest (-want +got):\n%s", diff)
	}
	must(t, s.Verify(t.Context(), plan, want.CheckpointID))
	extra, err := os.ReadFile(filepath.Join(s.PartDir(plan, want.CheckpointID, sandbox), "extra \xff"))
	if err != nil || string(extra) != "extra one" {
		t.Errorf("extra = %q, %v", extra, err)
	}
	plans, err := s.Plans()
	must(t, err)
	if !slices.Equal(plans, []string{plan}) {
		t.Errorf("plans = %v", plans)
	}
	leftovers(t, s, plan)
}

// leftovers fails the test if stages or things to delete are left.
func leftovers(t testing.TB, s *checkpoint.Store, plan string) {
	t.Helper()
	for _, dir := range []string{filepath.Join(s.Dir(), plan, "stages"), filepath.Join(s.Dir(), "trash")} {
		entries, err := os.ReadDir(dir)
		if err == nil && len(entries) > 0 {
			t.Errorf("%s is left in %s", entries[0].Name(), dir)
		}
	}
}

func TestStageLife(t *testing.T) {
	s, plan, sandbox := newStore(t), newID(), newID()
	st, err := s.Stage(plan)
	must(t, err)
	_, err = st.Dir(sandbox)
	must(t, err)
	must(t, st.Discard())
	must(t, st.Discard())
	leftovers(t, s, plan)
	if _, err := st.Dir(sandbox); !errors.Is(err, agents.ErrState) {
		t.Errorf("dir of a discarded stage: %v, want ErrState", err)
	}
	if err := st.Publish(t.Context(), checkpoint.Manifest{CheckpointID: newID(), PlanID: plan}); !errors.Is(err, agents.ErrState) {
		t.Errorf("publish of a discarded stage: %v, want ErrState", err)
	}

	first := put(t, s, plan, sandbox, "one")
	st, err = s.Stage(plan)
	must(t, err)
	if err := st.Publish(t.Context(), checkpoint.Manifest{CheckpointID: first.CheckpointID, PlanID: plan}); !errors.Is(err, agents.ErrExists) {
		t.Errorf("publish under a taken id: %v, want ErrExists", err)
	}
	must(t, st.Discard())
	must(t, s.Verify(t.Context(), plan, first.CheckpointID))
}

func TestNoTextBecomesAPath(t *testing.T) {
	s, plan := newStore(t), newID()
	must(t, s.Writable())
	for _, bad := range []string{"", "..", "../x", "a/b", "x\x00y", strings.ToLower(plan), plan + "/..", "/etc"} {
		_, stage := s.Stage(bad)
		_, manifest := s.Manifest(plan, bad)
		_, manifest2 := s.Manifest(bad, plan)
		_, del := s.Delete(t.Context(), plan, []string{bad}, nil)
		_, del2 := s.Delete(t.Context(), bad, nil, nil)
		_, remove := s.RemovePlan(t.Context(), bad)
		_, usage := s.Usage(bad)
		_, check := s.Check(bad, checkpoint.Quota{})
		_, list := s.Checkpoints(bad)
		st, err := s.Stage(plan)
		must(t, err)
		_, dir := st.Dir(bad)
		publish := st.Publish(t.Context(), checkpoint.Manifest{CheckpointID: bad, PlanID: plan})
		part := st.Publish(t.Context(), checkpoint.Manifest{CheckpointID: newID(), PlanID: plan, Parts: []checkpoint.Part{{SandboxID: bad}}})
		must(t, st.Discard())
		for what, err := range map[string]error{
			"stage": stage, "manifest": manifest, "manifest of plan": manifest2, "delete": del, "delete of plan": del2, "remove": remove, "usage": usage,
			"check": check, "list": list, "dir": dir, "publish": publish, "part": part, "verify": s.Verify(t.Context(), bad, bad),
		} {
			if !errors.Is(err, agents.ErrInvalid) {
				t.Errorf("%s with id %q: %v, want ErrInvalid", what, bad, err)
			}
		}
		for _, path := range []string{s.Objects(bad, plan), s.Objects(plan, bad), s.PartDir(plan, bad, plan), s.PartDir(plan, plan, bad)} {
			if err := os.MkdirAll(path, 0o700); err == nil {
				t.Errorf("id %q gives the usable path %q", bad, path)
			}
		}
	}
}

// TestB113DamagedPayload empties one thing after the other: what is damaged
// says so, everything else works, and new checkpoints can be made.
func TestB113DamagedPayload(t *testing.T) {
	s, plan, sandbox := newStore(t), newID(), newID()
	var all []checkpoint.Manifest
	for _, ref := range []string{"one", "two", "three", "four", "five"} {
		all = append(all, put(t, s, plan, sandbox, ref))
	}
	dir := func(i int) string { return filepath.Join(s.Dir(), plan, all[i].CheckpointID) }
	part := func(i int) string { return s.PartDir(plan, all[i].CheckpointID, sandbox) }
	must(t, os.Truncate(filepath.Join(dir(0), "manifest.json"), 0))
	must(t, os.Truncate(filepath.Join(part(1), "extra \xff"), 0))
	must(t, os.Truncate(filepath.Join(s.Objects(plan, sandbox), "objects", "three"), 0))
	must(t, os.WriteFile(filepath.Join(part(3), "more"), nil, 0o600))
	for i, m := range all {
		err := s.Verify(t.Context(), plan, m.CheckpointID)
		if got, want := errors.Is(err, agents.ErrDamaged), i < 4; got != want {
			t.Errorf("checkpoint %d: %v, want damaged %v", i, err, want)
		}
	}
	if _, err := s.Manifest(plan, all[0].CheckpointID); !errors.Is(err, agents.ErrDamaged) {
		t.Errorf("manifest of the first: %v, want ErrDamaged", err)
	}
	if err := s.Verify(t.Context(), plan, newID()); !errors.Is(err, agents.ErrNotFound) {
		t.Errorf("verify of none: %v, want ErrNotFound", err)
	}
	six := put(t, s, plan, sandbox, "six")
	must(t, s.Verify(t.Context(), plan, six.CheckpointID))
	_, err := s.Delete(t.Context(), plan, []string{all[0].CheckpointID}, map[string][]string{sandbox: nil})
	must(t, err)
	must(t, s.Verify(t.Context(), plan, all[4].CheckpointID))

	// A manifest that was exchanged for another, or edited.
	data, err := os.ReadFile(filepath.Join(dir(4), "manifest.json"))
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir(1), "manifest.json"), data, 0o600))
	must(t, os.WriteFile(filepath.Join(dir(4), "manifest.json"), []byte(strings.Replace(string(data), `"five"`, `"fife"`, 1)), 0o600))
	for _, i := range []int{1, 4} {
		if _, err := s.Manifest(plan, all[i].CheckpointID); !errors.Is(err, agents.ErrDamaged) {
			t.Errorf("manifest %d: %v, want ErrDamaged", i, err)
		}
	}
	must(t, os.RemoveAll(s.Objects(plan, sandbox)))
	if err := s.Verify(t.Context(), plan, six.CheckpointID); err != nil {
		t.Errorf("a part with files of its own needs no object store: %v", err)
	}
}

func TestDeleteFreesWhatNothingNeeds(t *testing.T) {
	s, plan, a, b := newStore(t), newID(), newID(), newID()
	one, two := put(t, s, plan, a, "one"), put(t, s, plan, a, "two")
	put(t, s, plan, b, "other")
	state(t, s, plan, a, "base")
	before, err := s.Usage(plan)
	must(t, err)
	freed, err := s.Delete(t.Context(), plan, []string{one.CheckpointID, newID()}, map[string][]string{a: {"base"}})
	must(t, err)
	after, err := s.Usage(plan)
	must(t, err)
	if freed != before-after || freed < int64(len("state one")+len("extra one")) {
		t.Errorf("freed = %d, usage went from %d to %d", freed, before, after)
	}
	if _, err := s.Manifest(plan, one.CheckpointID); !errors.Is(err, agents.ErrNotFound) {
		t.Errorf("deleted checkpoint: %v, want ErrNotFound", err)
	}
	must(t, s.Verify(t.Context(), plan, two.CheckpointID))
	must(t, fakeObjects{}.Verify(t.Context(), s.Objects(plan, a), []string{"base", "two"}))
	must(t, fakeObjects{}.Verify(t.Context(), s.Objects(plan, b), []string{"other"}))
	if fakeObjects.Verify(fakeObjects{}, t.Context(), s.Objects(plan, a), []string{"one"}) == nil {
		t.Error("the state of the deleted checkpoint is still there")
	}

	_, err = s.Delete(t.Context(), plan, []string{two.CheckpointID}, map[string][]string{a: nil})
	must(t, err)
	if _, err := os.Stat(s.Objects(plan, a)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the object store of a sandbox without states: %v", err)
	}
	freed, err = s.RemovePlan(t.Context(), plan)
	must(t, err)
	if total, err := s.TotalUsage(); err != nil || freed == 0 || total > 100 {
		t.Errorf("after the plan went, %d bytes are left (%d freed): %v", total, freed, err)
	}
	freed, err = s.RemovePlan(t.Context(), plan)
	if freed != 0 || err != nil {
		t.Errorf("removing a plan that has nothing: %d, %v", freed, err)
	}
	leftovers(t, s, plan)
}

func TestSweepTakesOnlyWhatNobodyHolds(t *testing.T) {
	s, plan, sandbox := newStore(t), newID(), newID()
	known, unknown := put(t, s, plan, sandbox, "one"), put(t, s, plan, sandbox, "two")
	live, err := s.Stage(plan)
	must(t, err)
	_, err = live.Dir(sandbox)
	must(t, err)
	dead := filepath.Join(s.Dir(), plan, "stages", "dead")
	must(t, os.MkdirAll(filepath.Join(dead, "parts"), 0o700))
	must(t, os.WriteFile(filepath.Join(dead, "parts", "x"), []byte("12345"), 0o400))
	must(t, os.WriteFile(dead+".lock", []byte("somebody"), 0o600))
	must(t, os.MkdirAll(filepath.Join(s.Dir(), "trash", "old"), 0o700))
	must(t, os.WriteFile(filepath.Join(s.Dir(), "trash", "old", "x"), []byte("12345"), 0o600))

	freed, err := storeAt(t, s.Dir()).Sweep(t.Context(), func(p, id string) bool { return p == plan && id == known.CheckpointID })
	must(t, err)
	if freed < 10 {
		t.Errorf("freed = %d", freed)
	}
	must(t, s.Verify(t.Context(), plan, known.CheckpointID))
	if _, err := s.Manifest(plan, unknown.CheckpointID); !errors.Is(err, agents.ErrNotFound) {
		t.Errorf("payload without a row: %v, want ErrNotFound", err)
	}
	m := checkpoint.Manifest{CheckpointID: newID(), PlanID: plan, Parts: []checkpoint.Part{{SandboxID: sandbox, Ref: "one"}}}
	must(t, live.Publish(t.Context(), m))
	must(t, s.Verify(t.Context(), plan, m.CheckpointID))
	leftovers(t, s, plan)
}

// TestForeignStageKeepsObjects: while another process captures, nothing is
// collected and the plan is not removed.
func TestForeignStageKeepsObjects(t *testing.T) {
	s, plan, sandbox := newStore(t), newID(), newID()
	m := put(t, s, plan, sandbox, "one")
	other := storeAt(t, s.Dir())
	stage, err := other.Stage(plan)
	must(t, err)
	state(t, other, plan, sandbox, "being captured")
	_, err = s.Delete(t.Context(), plan, []string{m.CheckpointID}, map[string][]string{sandbox: nil})
	must(t, err)
	must(t, fakeObjects{}.Verify(t.Context(), s.Objects(plan, sandbox), []string{"being captured"}))
	if _, err := s.RemovePlan(t.Context(), plan); !errors.Is(err, agents.ErrLocked) {
		t.Errorf("remove plan: %v, want ErrLocked", err)
	}
	must(t, stage.Discard())
	_, err = s.RemovePlan(t.Context(), plan)
	must(t, err)
}

func TestQuota(t *testing.T) {
	s, plan, sandbox := newStore(t), newID(), newID()
	put(t, s, newID(), sandbox, "one")
	put(t, s, plan, sandbox, "one")
	used, err := s.Usage(plan)
	must(t, err)
	total, err := s.TotalUsage()
	must(t, err)
	if total <= used {
		t.Fatalf("total %d, plan %d", total, used)
	}
	for name, c := range map[string]struct {
		q          checkpoint.Quota
		warn, full bool
	}{
		"none":           {checkpoint.Quota{}, false, false},
		"plan roomy":     {checkpoint.Quota{PerPlan: used * 2}, false, false},
		"plan nearly":    {checkpoint.Quota{PerPlan: used*5/4 - 1}, true, false},
		"plan full":      {checkpoint.Quota{PerPlan: used}, true, true},
		"total nearly":   {checkpoint.Quota{PerPlan: used * 2, Total: total * 9 / 8}, true, false},
		"total full":     {checkpoint.Quota{PerPlan: used*5/4 - 1, Total: total}, true, true},
		"disk roomy":     {checkpoint.Quota{MinFreePercent: 0.0001}, false, false},
		"disk too full":  {checkpoint.Quota{MinFreePercent: 100}, true, true},
		"several at one": {checkpoint.Quota{PerPlan: 1, Total: 1, MinFreePercent: 100}, true, true},
	} {
		v, err := s.Check(plan, c.q)
		must(t, err)
		if v.Warn != c.warn || v.Full != c.full || (v.Reason != "") != c.warn {
			t.Errorf("%s: verdict = %+v, want warn %v full %v", name, v, c.warn, c.full)
		}
	}
	if v, err := newStore(t).Check(plan, checkpoint.Quota{PerPlan: 1, Total: 1, MinFreePercent: 0.0001}); err != nil || v.Warn {
		t.Errorf("a store that is not there yet: %+v, %v", v, err)
	}
}

func TestWritable(t *testing.T) {
	s := newStore(t)
	must(t, s.Writable())
	entries, err := os.ReadDir(s.Dir())
	must(t, err)
	if len(entries) != 0 {
		t.Errorf("the probe left %v", entries)
	}
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, nil, 0o600))
	if _, err := checkpoint.Open(file); !errors.Is(err, agents.ErrInvalid) {
		t.Errorf("open of a file: %v, want ErrInvalid", err)
	}
	if _, err := checkpoint.Open("relative"); !errors.Is(err, agents.ErrInvalid) {
		t.Errorf("open of a relative path: %v, want ErrInvalid", err)
	}
	below := storeAt(t, filepath.Join(file, "below"))
	if below.Writable() == nil {
		t.Error("a store below a file is said to be writable")
	}
}

// dirSandbox is a directory with one file.
type dirSandbox struct {
	id, resource, dir string
	fail              error
}

func (d *dirSandbox) SandboxID() string  { return d.id }
func (d *dirSandbox) ResourceID() string { return d.resource }
func (d *dirSandbox) BaseRef() string    { return "" }

func (d *dirSandbox) Capture(_ context.Context, _, dir, _ string) (string, int64, error) {
	if d.fail != nil {
		return "", 0, d.fail
	}
	return "copy", 7, fsx.CopyFile(filepath.Join(d.dir, "f"), filepath.Join(dir, "f"))
}

func (d *dirSandbox) Restore(_ context.Context, _, dir, _ string) error {
	if err := fsx.Remove(filepath.Join(d.dir, "f")); err != nil {
		return err
	}
	return fsx.CopyFile(filepath.Join(dir, "f"), filepath.Join(d.dir, "f"))
}

func newDirSandbox(t testing.TB) *dirSandbox {
	t.Helper()
	d := &dirSandbox{id: newID(), resource: newID(), dir: filepath.Join(t.TempDir(), "box")}
	must(t, os.Mkdir(d.dir, 0o755))
	return d
}

func (d *dirSandbox) set(t testing.TB, content string) {
	t.Helper()
	must(t, os.WriteFile(filepath.Join(d.dir, "f"), []byte(content), 0o644))
}

func (d *dirSandbox) get(t testing.TB) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(d.dir, "f"))
	must(t, err)
	return string(b)
}

// TestManagerLifecycle follows sandbox.md, "CheckpointManager API".
func TestManagerLifecycle(t *testing.T) {
	s, plan, box := newStore(t), newID(), newDirSandbox(t)
	m := checkpoint.NewManager(s, nil)
	box.set(t, "before")
	cp, err := m.CreateCheckpoint(t.Context(), box, plan, "pre_execute", nil)
	must(t, err)
	box.set(t, "after")
	cp2, err := m.CreateCheckpoint(t.Context(), box, plan, "post_execute", map[string]string{"status": "success"})
	must(t, err)
	if cp2.Metadata["status"] != "success" || cp2.Phase != "post_execute" || cp2.PlanID != plan || cp2.SandboxID != box.id || !agents.ValidID(cp2.CheckpointID) || cp2.CreatedAt.IsZero() {
		t.Errorf("checkpoint = %+v", cp2)
	}
	if _, err := os.Stat(cp2.SnapshotPath); err != nil {
		t.Error(err)
	}
	must(t, m.RollbackTo(t.Context(), cp))
	if got := box.get(t); got != "before" {
		t.Errorf("after the rollback the file holds %q", got)
	}

	again := checkpoint.NewManager(storeAt(t, s.Dir()), nil) // another process
	list, err := again.ListCheckpoints(box.id)
	must(t, err)
	if diff := cmp.Diff([]checkpoint.SandboxCheckpoint{cp, cp2}, list); diff != "" {
		t.Errorf("list (-want +got):\n%s", diff)
	}
	if err := again.RollbackTo(t.Context(), cp2); !errors.Is(err, agents.ErrNotFound) {
		t.Errorf("rollback of a sandbox that is not attached: %v, want ErrNotFound", err)
	}
	again.Attach(box)
	must(t, again.RollbackTo(t.Context(), cp2))
	must(t, again.DeleteCheckpoint(t.Context(), cp.CheckpointID))
	if err := again.DeleteCheckpoint(t.Context(), cp.CheckpointID); !errors.Is(err, agents.ErrNotFound) {
		t.Errorf("second delete: %v, want ErrNotFound", err)
	}
	if err := m.RollbackTo(t.Context(), cp); !errors.Is(err, agents.ErrNotFound) {
		t.Errorf("rollback to a deleted checkpoint: %v, want ErrNotFound", err)
	}
	if got := box.get(t); got != "after" {
		t.Errorf("a refused rollback changed the file to %q", got)
	}
	if _, err := m.CreateCheckpoint(t.Context(), box, plan, "whenever", nil); !errors.Is(err, agents.ErrInvalid) {
		t.Errorf("unknown phase: %v, want ErrInvalid", err)
	}
	box.fail = errors.New("cannot read")
	if _, err := m.CreateCheckpoint(t.Context(), box, plan, "pre_apply", nil); !errors.Is(err, box.fail) {
		t.Errorf("failed capture: %v", err)
	}
	leftovers(t, s, plan)
}

// TestB008DamagedPayloadLeavesTheSandbox: what cannot be restored is found
// before anything is touched, and the checkpoint stays listed.
func TestB008DamagedPayloadLeavesTheSandbox(t *testing.T) {
	s, plan, box := newStore(t), newID(), newDirSandbox(t)
	m := checkpoint.NewManager(s, nil)
	box.set(t, "before")
	cp, err := m.CreateCheckpoint(t.Context(), box, plan, "pre_execute", nil)
	must(t, err)
	box.set(t, "after")
	must(t, os.Truncate(filepath.Join(cp.SnapshotPath, "f"), 0))
	if err := m.RollbackTo(t.Context(), cp); !errors.Is(err, agents.ErrDamaged) {
		t.Errorf("rollback to a damaged checkpoint: %v, want ErrDamaged", err)
	}
	if got := box.get(t); got != "after" {
		t.Errorf("a refused rollback changed the file to %q", got)
	}
	if list, err := m.ListCheckpoints(box.id); err != nil || len(list) != 1 {
		t.Errorf("list = %v, %v, want the checkpoint", list, err)
	}
}

// TestU031ManagerFromManyGoroutines: no race, and none lost.
func TestU031ManagerFromManyGoroutines(t *testing.T) {
	const workers = 50
	s, plan := newStore(t), newID()
	m := checkpoint.NewManager(s, nil)
	boxes := make([]*dirSandbox, workers)
	for i := range boxes {
		boxes[i] = newDirSandbox(t)
		boxes[i].set(t, boxes[i].id)
	}
	var wg sync.WaitGroup
	for _, box := range boxes {
		wg.Go(func() {
			ctx := t.Context()
			cp, err := m.CreateCheckpoint(ctx, box, plan, "pre_execute", map[string]string{"box": box.id})
			if err != nil {
				t.Error(err)
				return
			}
			box.set(t, "changed")
			second, err := m.CreateCheckpoint(ctx, box, plan, "post_execute", nil)
			err = errors.Join(err, m.RollbackTo(ctx, cp), m.DeleteCheckpoint(ctx, second.CheckpointID))
			list, lerr := m.ListCheckpoints(box.id)
			if err = errors.Join(err, lerr); err != nil {
				t.Error(err)
			}
			if len(list) != 1 || list[0].CheckpointID != cp.CheckpointID || list[0].Metadata["box"] != box.id {
				t.Errorf("list = %+v, want the first alone", list)
			}
			if got := box.get(t); got != box.id {
				t.Errorf("file = %q, want %q", got, box.id)
			}
		})
	}
	wg.Wait()
	published, err := s.Checkpoints(plan)
	must(t, err)
	if len(published) != workers {
		t.Errorf("%d checkpoints, want %d", len(published), workers)
	}
	leftovers(t, s, plan)
}

// TestTotalFollowsOtherPlans: what other plans use is known without a walk, and
// follows what other processes add and remove.
func TestTotalFollowsOtherPlans(t *testing.T) {
	s, other, own, sandbox := newStore(t), newID(), newID(), newID()
	total := func() int64 {
		t.Helper()
		v, err := storeAt(t, s.Dir()).Check(own, checkpoint.Quota{Total: 1 << 40})
		must(t, err)
		all, err := s.TotalUsage()
		must(t, err)
		notes, err := filepath.Glob(filepath.Join(s.Dir(), "usage", "*"))
		must(t, err)
		for _, note := range notes {
			text, err := os.ReadFile(note)
			must(t, err)
			all -= int64(len(text))
		}
		if off := v.TotalBytes - all; off < -all/10 || off > all/10 { // what a stage says that it adds is no measure
			t.Errorf("total %d, want %d", v.TotalBytes, all)
		}
		return v.TotalBytes
	}
	var last int64
	for _, content := range []string{"one", "two", "three"} {
		_, err := s.Check(other, checkpoint.Quota{Total: 1})
		must(t, err)
		put(t, s, other, sandbox, content)
		now := total()
		if now <= last {
			t.Errorf("total %d after %d, and more was stored", now, last)
		}
		last = now
	}
	_, err := s.RemovePlan(t.Context(), other)
	must(t, err)
	if now := total(); now >= last {
		t.Errorf("total %d after the plan went, before it %d", now, last)
	}
}
