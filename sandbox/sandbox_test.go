package sandbox_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/oracle"
	"github.com/cleveragents/agents/sandbox"
	"github.com/cleveragents/agents/sandbox/none"
	"github.com/cleveragents/agents/sandbox/sandboxtest"
)

// bench is a sandbox under test, with the folders that it is given.
type bench struct {
	*sandbox.Sandbox
	t        *testing.T
	dir      string
	resource agents.Resource
	cfg      sandbox.Config
	stored   []agents.SandboxRecord // every record that was stored, in order
	refuse   int                    // the n-th time that a record is stored fails; 0 = never
}

func newBench(t *testing.T, strategy sandbox.Strategy) *bench {
	t.Helper()
	b := &bench{t: t, dir: t.TempDir()}
	real := filepath.Join(b.dir, "real")
	for _, dir := range []string{real, filepath.Join(b.dir, "sandboxes")} {
		must(t, os.Mkdir(dir, 0o755))
	}
	must(t, sandboxtest.WriteSeed(real))
	b.resource = agents.Resource{ID: agents.NewID(clock()), Name: "shop", Type: agents.TypeDirectory, Location: real}
	b.cfg = sandbox.Config{
		Dir: filepath.Join(b.dir, "sandboxes"), PrivateDir: filepath.Join(b.dir, "private"),
		Objects: filepath.Join(b.dir, "objects"), JournalDir: filepath.Join(b.dir, "journal"),
		Now: clock, OnChange: b.store,
	}
	b.Sandbox = sandbox.New(strategy, agents.SandboxRecord{ID: agents.NewID(clock())}, b.resource, b.cfg)
	return b
}

func (b *bench) store(_ context.Context, rec agents.SandboxRecord) error {
	if b.refuse--; b.refuse == 0 {
		return errStore
	}
	b.stored = append(b.stored, rec)
	return nil
}

var errStore = errors.New("the store is full")

func clock() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }

// created returns a bench whose sandbox is CREATED.
func created(t *testing.T, strategy sandbox.Strategy) *bench {
	t.Helper()
	b := newBench(t, strategy)
	if _, err := b.Create(t.Context(), "plan"); err != nil {
		t.Fatalf("Create: %v", err)
	}
	return b
}

// write writes a file by the path that the sandbox hands out.
func (b *bench) write(rel, content string) {
	b.t.Helper()
	path, err := b.Path(b.t.Context(), rel)
	must(b.t, err)
	must(b.t, os.WriteFile(path, []byte(content), 0o644))
}

func (b *bench) read(dir, rel string) string {
	b.t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, rel))
	must(b.t, err)
	return string(data)
}

func (b *bench) wantStatus(want agents.SandboxStatus) {
	b.t.Helper()
	if got := b.Status(); got != want {
		b.t.Fatalf("status: got %s, want %s", got, want)
	}
	if last := b.stored[len(b.stored)-1]; last.Status != want {
		b.t.Fatalf("stored status: got %s, want %s", last.Status, want)
	}
}

// wantNothingLeft fails when a file of the sandbox is anywhere.
func (b *bench) wantNothingLeft() {
	b.t.Helper()
	for _, dir := range []string{b.cfg.Dir, b.cfg.PrivateDir} {
		if entries, _ := os.ReadDir(dir); len(entries) > 0 {
			b.t.Errorf("%s is left: %v", dir, entries)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestLifeFromCreateToCleanup(t *testing.T) {
	b := newBench(t, sandboxtest.NewPlain())
	before := oracle.Digest(t, b.resource.Location)
	got, err := b.Create(t.Context(), "plan")
	must(t, err)
	if got.SandboxID != b.Record().ID || got.SandboxPath != b.Workspace().Path || got.OriginalPath != b.resource.Location ||
		got.ResourceID != b.resource.ID || got.PlanID != "plan" || !got.CreatedAt.Equal(clock()) || got.Metadata["strategy"] != "copy_on_write" {
		t.Errorf("Create: got %+v", got)
	}
	if first := b.stored[0]; first.Status != agents.SandboxPending || first.PrivateDir != b.cfg.PrivateDir || first.PlanID != "plan" {
		t.Errorf("the first stored record is %+v, want a PENDING one that names the plan and the private folder", first)
	}
	b.wantStatus(agents.SandboxCreated)
	b.write("src/main.go", "changed\n")
	b.wantStatus(agents.SandboxActive)
	oracle.Same(t, "before the commit", b.resource.Location, before)
	res, err := b.Commit(t.Context(), "change the shop")
	must(t, err)
	if !res.Success || res.Error != nil || res.CommitRef == "" || !slices.Equal(res.ChangedFiles, []string{"src/main.go"}) ||
		len(res.AddedFiles)+len(res.DeletedFiles) > 0 || !res.Timestamp.Equal(clock()) {
		t.Errorf("Commit: got %+v", res)
	}
	b.wantStatus(agents.SandboxCommitted)
	if got := b.read(b.resource.Location, "src/main.go"); got != "changed\n" {
		t.Errorf("src/main.go: got %q", got)
	}
	for range 2 {
		must(t, b.Cleanup(t.Context()))
	}
	b.wantStatus(agents.SandboxCleanedUp)
	b.wantNothingLeft()
}

func TestCommitOfNothing(t *testing.T) {
	b := created(t, sandboxtest.NewPlain())
	res, err := b.Commit(t.Context(), "nothing")
	if err != nil || !res.Success || res.CommitRef != "" || len(res.AddedFiles)+len(res.ChangedFiles)+len(res.DeletedFiles) > 0 {
		t.Errorf("Commit: got %+v and %v, want a success with empty lists", res, err)
	}
	b.wantStatus(agents.SandboxCreated)
}

func TestCommitConflictLeavesTheSandboxUsable(t *testing.T) {
	b := created(t, sandboxtest.NewPlain())
	b.write("README.md", "ours\n")
	must(t, os.WriteFile(filepath.Join(b.resource.Location, "README.md"), []byte("theirs\n"), 0o644))
	res, err := b.Commit(t.Context(), "conflict")
	if !errors.Is(err, agents.ErrConflict) || agents.KindOf(err) != agents.SandboxCommitError {
		t.Errorf("Commit: got %v of kind %q, want agents.ErrConflict as SandboxCommitError", err, agents.KindOf(err))
	}
	if res.Success || res.Error == nil {
		t.Errorf("Commit: got %+v, want no success and an error", res)
	}
	b.wantStatus(agents.SandboxActive)
	if got := b.Record().ApplyState; got != agents.ApplyConflict {
		t.Errorf("apply state: got %s, want conflict", got)
	}
	if got := b.read(b.resource.Location, "README.md"); got != "theirs\n" {
		t.Errorf("the real README.md: got %q", got)
	}
}

func TestU013PathAfterRollbackIsActive(t *testing.T) {
	b := created(t, sandboxtest.NewPlain())
	b.write("src/main.go", "changed\n")
	must(t, b.Rollback(t.Context()))
	b.wantStatus(agents.SandboxRolledBack)
	b.write("src/main.go", "again\n")
	b.wantStatus(agents.SandboxActive)
}

func TestRollback(t *testing.T) {
	const seed = "package main\n\nfunc main() {}\n"
	for _, c := range []struct {
		name string
		make func(*bench)
		want agents.SandboxStatus
	}{
		{"created", func(*bench) {}, agents.SandboxCreated},
		{"active", func(b *bench) { b.write("src/main.go", "x") }, agents.SandboxRolledBack},
		{"twice", func(b *bench) { b.write("src/main.go", "x"); must(t, b.Rollback(t.Context())) }, agents.SandboxRolledBack},
		{"errored", func(b *bench) { b.write("src/main.go", "x"); must(t, b.Fail(t.Context())) }, agents.SandboxRolledBack},
		{"committed", func(b *bench) { b.write("src/main.go", "x"); _, err := b.Commit(t.Context(), "x"); must(t, err) }, agents.SandboxRolledBack},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := created(t, sandboxtest.NewPlain())
			before := oracle.Digest(t, b.resource.Location)
			c.make(b)
			must(t, b.Rollback(t.Context()))
			b.wantStatus(c.want)
			oracle.Same(t, "after the rollback", b.resource.Location, before)
			if got := b.read(b.Workspace().Path, "src/main.go"); got != seed {
				t.Errorf("src/main.go in the sandbox: got %q, want %q", got, seed)
			}
		})
	}
}

func TestRollbackOfACommitThatWasBuiltOnIsRefused(t *testing.T) {
	b := created(t, sandboxtest.NewPlain())
	b.write("README.md", "ours\n")
	_, err := b.Commit(t.Context(), "x")
	must(t, err)
	must(t, os.WriteFile(filepath.Join(b.resource.Location, "README.md"), []byte("later\n"), 0o644))
	if err := b.Rollback(t.Context()); !errors.Is(err, agents.ErrConflict) || agents.KindOf(err) != agents.SandboxRollbackError {
		t.Errorf("Rollback: got %v of kind %q, want agents.ErrConflict as SandboxRollbackError", err, agents.KindOf(err))
	}
	b.wantStatus(agents.SandboxCommitted)
	if got := b.read(b.Workspace().Path, "README.md"); got != "ours\n" {
		t.Errorf("README.md in the sandbox: got %q", got)
	}
}

func TestNoteApply(t *testing.T) {
	b := newBench(t, sandboxtest.NewPlain())
	if err := b.NoteApply(t.Context(), agents.ApplyConflict); !errors.Is(err, agents.ErrState) {
		t.Errorf("before there is a sandbox: got %v, want agents.ErrState", err)
	}
	_, err := b.Create(t.Context(), "plan")
	must(t, err)
	b.write("README.md", "ours\n")
	must(t, b.NoteApply(t.Context(), agents.ApplyConflict))
	b.wantStatus(agents.SandboxActive)
	if got := b.stored[len(b.stored)-1].ApplyState; got != agents.ApplyConflict {
		t.Errorf("stored apply state: got %s, want conflict", got)
	}
	if err := b.NoteApply(t.Context(), agents.ApplyApplied); !errors.Is(err, agents.ErrState) {
		t.Errorf("applied: got %v, want agents.ErrState", err)
	}
	_, err = b.Commit(t.Context(), "x")
	must(t, err)
	if err := b.NoteApply(t.Context(), agents.ApplyConflict); !errors.Is(err, agents.ErrState) || b.Record().ApplyState != agents.ApplyApplied {
		t.Errorf("after an apply: got %v, and the state is %s", err, b.Record().ApplyState)
	}
}

func TestUndoneApplyCanBeAppliedAgain(t *testing.T) {
	b := created(t, sandboxtest.NewPlain())
	b.write("README.md", "ours\n")
	_, err := b.Commit(t.Context(), "x")
	must(t, err)
	must(t, b.Undo(t.Context(), ""))
	b.wantStatus(agents.SandboxRolledBack)
	if got := b.Record().ApplyState; got != agents.ApplyReverted {
		t.Errorf("apply state: got %s, want reverted", got)
	}
	if got := b.read(b.Workspace().Path, "README.md"); got != "ours\n" {
		t.Errorf("README.md in the sandbox: got %q", got)
	}
	_, err = b.Commit(t.Context(), "x")
	must(t, err)
	b.wantStatus(agents.SandboxCommitted)
	if got := b.read(b.resource.Location, "README.md"); got != "ours\n" {
		t.Errorf("the real README.md: got %q", got)
	}
}

func TestFailedCreateLeavesNothing(t *testing.T) {
	b := newBench(t, sandboxtest.NewFaulty(sandboxtest.NewPlain(), 1, nil))
	_, err := b.Create(t.Context(), "plan")
	if !errors.Is(err, sandboxtest.ErrFault) || agents.KindOf(err) != agents.SandboxCreationError {
		t.Errorf("Create: got %v of kind %q, want the fault as SandboxCreationError", err, agents.KindOf(err))
	}
	b.wantStatus(agents.SandboxPending)
	b.wantNothingLeft()
	if _, err := b.Create(t.Context(), "plan"); err != nil {
		t.Errorf("Create again: %v", err)
	}
	b.wantStatus(agents.SandboxCreated)
}

func TestCreateForAnotherPlanIsRefused(t *testing.T) {
	b := newBench(t, sandboxtest.NewPlain())
	s := sandbox.New(sandboxtest.NewPlain(), agents.SandboxRecord{ID: "s", PlanID: "mine"}, b.resource, b.cfg)
	if _, err := s.Create(t.Context(), "yours"); !errors.Is(err, agents.ErrInvalid) {
		t.Errorf("Create: got %v, want agents.ErrInvalid", err)
	}
	b.wantNothingLeft()
}

// life is a whole life of a sandbox, up to its first failure.
func (b *bench) life(ctx context.Context) error {
	if _, err := b.Create(ctx, "plan"); err != nil {
		return err
	}
	path, err := b.Path(ctx, "README.md")
	if err != nil {
		return err
	}
	must(b.t, os.MkdirAll(b.cfg.Objects, 0o700))
	cp, err := b.Capture(ctx, sandbox.CaptureRequest{Dir: b.t.TempDir()})
	if err != nil {
		return err
	}
	must(b.t, os.WriteFile(path, []byte("ours\n"), 0o644))
	if _, err := b.Restore(ctx, sandbox.RestoreRequest{Dir: b.dir, Ref: cp.Ref}); err != nil {
		return err
	}
	if _, err := b.Prepare(ctx); err != nil {
		return err
	}
	must(b.t, os.WriteFile(path, []byte("ours\n"), 0o644))
	if _, err := b.Diff(ctx, sandbox.DiffRequest{Counts: true}); err != nil {
		return err
	}
	if _, err := b.Commit(ctx, "life"); err != nil {
		return err
	}
	if err := b.Rollback(ctx); err != nil {
		return err
	}
	return b.Cleanup(ctx)
}

// Whatever call of the strategy or of the store fails: a failed step changes
// no state, the resource is as before or wholly changed, and Cleanup works.
func TestEveryFault(t *testing.T) {
	for _, kind := range []string{"strategy", "store"} {
		t.Run(kind, func(t *testing.T) {
			for n := 1; ; n++ {
				faulty := sandboxtest.NewFaulty(sandboxtest.NewPlain(), 0, nil)
				if kind == "strategy" {
					faulty = sandboxtest.NewFaulty(sandboxtest.NewPlain(), n, nil)
				}
				b := newBench(t, faulty)
				if kind == "store" {
					b.refuse = n
				}
				before := oracle.Digest(t, b.resource.Location)
				err := b.life(t.Context())
				if !faulty.Fired() && b.refuse > 0 || kind == "strategy" && !faulty.Fired() {
					must(t, err)
					if n < 9 {
						t.Fatalf("only %d calls could fail: %v", n-1, faulty.Calls())
					}
					return
				}
				if err == nil {
					t.Fatalf("fault %d was swallowed after %v", n, faulty.Calls())
				}
				if b.Status() == agents.SandboxErrored {
					t.Errorf("fault %d made the sandbox ERRORED", n)
				}
				home := oracle.Digest(t, b.resource.Location)
				if applied := slices.Contains(faulty.Calls(), "Apply"); !applied && oracle.Diff(before, home) != "" {
					t.Errorf("fault %d after %v: the resource changed without an apply", n, faulty.Calls())
				}
				must(t, b.Cleanup(t.Context()))
				b.wantStatus(agents.SandboxCleanedUp)
				b.wantNothingLeft()
			}
		})
	}
}

func TestPath(t *testing.T) {
	b := created(t, sandboxtest.NewPlain())
	root := b.Workspace().Path
	sibling := root + "-sibling"
	must(t, os.Mkdir(sibling, 0o755))
	for name, target := range map[string]string{
		"out": "../..", "etc": "/etc", "sibling": sibling, "in": "src", "dangling-out": "../nowhere", "dangling": "src/nowhere",
		"chain": "out", "loop": "loop",
	} {
		must(t, os.Symlink(target, filepath.Join(root, name)))
	}
	for _, c := range []struct{ rel, want string }{
		{"", root}, {".", root}, {root, root},
		{"README.md", root + "/README.md"},
		{"src/../README.md", ""},
		{"no/such/file", root + "/no/such/file"},
		{root + "/src/main.go", root + "/src/main.go"},
		{"./src//main.go", root + "/src/main.go"},
		{"in/main.go", root + "/in/main.go"},
		{"dangling", root + "/dangling"},
		{"..dots", root + "/..dots"},
		{"-rf", root + "/-rf"},
		{"..", ""}, {"../real/README.md", ""}, {"src/../../x", ""},
		{"/etc/passwd", ""}, {sibling, ""}, {sibling + "/x", ""}, {root + "/../x", ""}, {b.resource.Location, ""},
		{"out", ""}, {"out/x", ""}, {"etc/passwd", ""}, {"sibling/x", ""}, {"dangling-out", ""}, {"chain/x", ""}, {"loop", ""},
		{"nul\x00byte", ""},
	} {
		got, err := b.Path(t.Context(), c.rel)
		switch {
		case c.want == "" && !errors.Is(err, agents.ErrInvalid):
			t.Errorf("Path(%q): got %q and %v, want agents.ErrInvalid", c.rel, got, err)
		case c.want != "" && (err != nil || got != c.want):
			t.Errorf("Path(%q): got %q and %v, want %q", c.rel, got, err, c.want)
		}
	}
}

func TestRefusedPathChangesNoState(t *testing.T) {
	b := created(t, sandboxtest.NewPlain())
	if _, err := b.Path(t.Context(), "../x"); err == nil {
		t.Fatal("Path: want an error")
	}
	b.wantStatus(agents.SandboxCreated)
}

// in returns a bench whose sandbox is in the state.
func in(t *testing.T, state agents.SandboxStatus) *bench {
	t.Helper()
	b := newBench(t, sandboxtest.NewPlain())
	must(t, os.MkdirAll(b.cfg.Objects, 0o700))
	step := func(err error) { t.Helper(); must(t, err) }
	if state != agents.SandboxPending {
		_, err := b.Create(t.Context(), "plan")
		step(err)
	}
	switch state {
	case agents.SandboxActive, agents.SandboxCommitted, agents.SandboxRolledBack:
		b.write("README.md", "ours\n")
	case agents.SandboxErrored:
		step(b.Fail(t.Context()))
	case agents.SandboxCleanedUp:
		step(b.Cleanup(t.Context()))
	}
	switch state {
	case agents.SandboxCommitted:
		_, err := b.Commit(t.Context(), "x")
		step(err)
	case agents.SandboxRolledBack:
		step(b.Rollback(t.Context()))
	}
	if b.Status() != state {
		t.Fatalf("status: got %s, want %s", b.Status(), state)
	}
	return b
}

// The state table decides which method is allowed; a refusal is a StateError
// and does nothing.
func TestMethodsByState(t *testing.T) {
	const (
		pending    = agents.SandboxPending
		created    = agents.SandboxCreated
		active     = agents.SandboxActive
		committed  = agents.SandboxCommitted
		rolledBack = agents.SandboxRolledBack
		errored    = agents.SandboxErrored
		cleanedUp  = agents.SandboxCleanedUp
	)
	all := []agents.SandboxStatus{pending, created, active, committed, rolledBack, errored, cleanedUp}
	for _, c := range []struct {
		name    string
		call    func(*bench) error
		allowed []agents.SandboxStatus
		after   agents.SandboxStatus // "" = as before
	}{
		{"Create", func(b *bench) error { _, err := b.Create(b.t.Context(), "plan"); return err }, []agents.SandboxStatus{pending}, created},
		{"Path", func(b *bench) error { _, err := b.Path(b.t.Context(), "x"); return err }, []agents.SandboxStatus{created, active, rolledBack}, active},
		{"Prepare", func(b *bench) error { _, err := b.Prepare(b.t.Context()); return err }, []agents.SandboxStatus{created, active, rolledBack}, active},
		{"Capture", func(b *bench) error {
			_, err := b.Capture(b.t.Context(), sandbox.CaptureRequest{Dir: b.t.TempDir()})
			return err
		}, []agents.SandboxStatus{created, active, committed, rolledBack, errored}, ""},
		{"Diff", func(b *bench) error { _, err := b.Diff(b.t.Context(), sandbox.DiffRequest{}); return err }, []agents.SandboxStatus{created, active, committed, rolledBack, errored}, ""},
		{"Restore", func(b *bench) error { _, err := b.Restore(b.t.Context(), sandbox.RestoreRequest{}); return err }, []agents.SandboxStatus{created, active, rolledBack, errored}, ""},
		{"Rollback", func(b *bench) error { return b.Rollback(b.t.Context()) }, []agents.SandboxStatus{created, active, committed, rolledBack, errored}, ""},
		{"Seal", func(b *bench) error { _, err := b.Seal(b.t.Context(), sandbox.SealRequest{}); return err }, []agents.SandboxStatus{created, active, committed, rolledBack}, ""},
		{"Commit", func(b *bench) error { _, err := b.Commit(b.t.Context(), "x"); return err }, []agents.SandboxStatus{created, active, rolledBack}, ""},
		{"Undo", func(b *bench) error { return b.Undo(b.t.Context(), "") }, []agents.SandboxStatus{committed}, rolledBack},
		{"Fail", func(b *bench) error { return b.Fail(b.t.Context()) }, []agents.SandboxStatus{pending, created, active, committed, rolledBack, errored}, errored},
		{"Cleanup", func(b *bench) error { return b.Cleanup(b.t.Context()) }, all, cleanedUp},
	} {
		for _, state := range all {
			t.Run(c.name+"/"+string(state), func(t *testing.T) {
				b := in(t, state)
				before := oracle.Digest(t, b.dir)
				err := c.call(b)
				if !slices.Contains(c.allowed, state) {
					var se *agents.StateError
					if !errors.As(err, &se) || agents.KindOf(err) != agents.SandboxStateError {
						t.Errorf("got %v, want a StateError", err)
					}
					oracle.Same(t, "by a refused call", b.dir, before)
					if b.Status() != state {
						t.Errorf("status: got %s, want %s", b.Status(), state)
					}
					return
				}
				if err != nil {
					t.Fatalf("got %v, want no error", err)
				}
				if c.after != "" && b.Status() != c.after {
					t.Errorf("status: got %s, want %s", b.Status(), c.after)
				}
			})
		}
	}
}

func TestApplyNeedsASeal(t *testing.T) {
	b := created(t, sandboxtest.NewPlain())
	b.write("README.md", "ours\n")
	_, err := b.Seal(t.Context(), sandbox.SealRequest{Message: "x"})
	must(t, err)
	b.write("README.md", "later\n")
	if got := b.Record().SealedRef; got != "" {
		t.Errorf("a path was handed out and the seal %q still holds", got)
	}
	_, err = b.Apply(t.Context(), sandbox.ApplyRequest{})
	if !errors.Is(err, agents.ErrState) || agents.HintOf(err) == "" {
		t.Errorf("Apply: got %v with hint %q, want agents.ErrState with a hint", err, agents.HintOf(err))
	}
}

func TestDryRunRecordsNothing(t *testing.T) {
	b := created(t, sandboxtest.NewPlain())
	b.write("README.md", "ours\n")
	_, err := b.Seal(t.Context(), sandbox.SealRequest{Message: "x"})
	must(t, err)
	stored := len(b.stored)
	res, err := b.Apply(t.Context(), sandbox.ApplyRequest{DryRun: true})
	if err != nil || res.State != agents.ApplyApplied || res.Resource != "shop" {
		t.Errorf("Apply: got %+v and %v", res, err)
	}
	if _, err := b.Restore(t.Context(), sandbox.RestoreRequest{DryRun: true}); err != nil {
		t.Errorf("Restore: %v", err)
	}
	if len(b.stored) != stored || b.Status() != agents.SandboxActive {
		t.Errorf("a dry run stored %+v", b.stored[stored:])
	}
}

func TestOpen(t *testing.T) {
	reopen := func(b *bench) *sandbox.Sandbox {
		return sandbox.New(sandboxtest.NewPlain(), b.Record(), b.resource, b.cfg)
	}
	t.Run("there", func(t *testing.T) {
		b := created(t, sandboxtest.NewPlain())
		b.write("README.md", "ours\n")
		s := reopen(b)
		must(t, s.Open(t.Context()))
		res, err := s.Commit(t.Context(), "by another process")
		if err != nil || !res.Success {
			t.Errorf("Commit: got %+v and %v", res, err)
		}
	})
	for _, gone := range []string{"directory", "private folder", "all"} {
		t.Run("missing "+gone, func(t *testing.T) {
			b := created(t, sandboxtest.NewPlain())
			switch gone {
			case "directory":
				must(t, os.RemoveAll(b.Workspace().Path))
			case "private folder":
				must(t, os.RemoveAll(b.cfg.PrivateDir))
			case "all":
				must(t, b.Cleanup(t.Context()))
			}
			err := reopen(b).Open(t.Context())
			if !errors.Is(err, agents.ErrBlocked) || agents.KindOf(err) != agents.BusinessRuleViolation || err.Error() != "sandbox is missing" {
				t.Errorf("Open: got %v of kind %q, want agents.ErrBlocked: sandbox is missing", err, agents.KindOf(err))
			}
		})
	}
	t.Run("pending", func(t *testing.T) {
		b := newBench(t, sandboxtest.NewPlain())
		if err := b.Open(t.Context()); !errors.Is(err, agents.ErrState) {
			t.Errorf("Open: got %v, want agents.ErrState", err)
		}
	})
}

// A process that was killed within Create left a PENDING record and files.
func TestCleanupOfAHalfMadeSandbox(t *testing.T) {
	b := newBench(t, sandboxtest.NewPlain())
	must(t, os.Mkdir(b.cfg.PrivateDir, 0o700))
	_, err := sandboxtest.NewPlain().Create(t.Context(), sandbox.CreateRequest{
		SandboxID: b.Record().ID, PlanID: "plan", Resource: b.resource, Dir: b.cfg.Dir, PrivateDir: b.cfg.PrivateDir, Notify: func(string) {},
	})
	must(t, err)
	must(t, b.Cleanup(t.Context()))
	b.wantStatus(agents.SandboxCleanedUp)
	b.wantNothingLeft()
}

func TestCleanupThatFailsIsTriedAgain(t *testing.T) {
	faulty := sandboxtest.NewFaulty(sandboxtest.NewPlain(), 2, nil)
	b := created(t, faulty)
	if err := b.Cleanup(t.Context()); !errors.Is(err, sandboxtest.ErrFault) {
		t.Fatalf("Cleanup: got %v, want the fault", err)
	}
	b.wantStatus(agents.SandboxCleanedUp)
	if _, err := os.Stat(b.cfg.PrivateDir); err != nil {
		t.Errorf("the private folder, which tells that something is left: %v", err)
	}
	must(t, b.Cleanup(t.Context()))
	b.wantNothingLeft()
}

func TestAbilitiesThatAStrategyLacks(t *testing.T) {
	b := created(t, none.New())
	ctx := t.Context()
	for name, call := range map[string]func() error{
		"Update":       func() error { _, err := b.Update(ctx, clock()); return err },
		"ExportBranch": func() error { return b.ExportBranch(ctx, "ref", "branch") },
		"ExportPatch":  func() error { return b.ExportPatch(ctx, "ref", io.Discard) },
		"Archive":      func() error { return b.Archive(ctx, t.TempDir()) },
		"Unapplied":    func() error { _, err := b.Unapplied(ctx); return err },
		"Unarchive":    func() error { _, err := b.Unarchive(ctx, "plan", t.TempDir()); return err },
		"Recover":      func() error { _, err := b.Recover(ctx, ""); return err },
		"Capture":      func() error { _, err := b.Capture(ctx, sandbox.CaptureRequest{}); return err },
		"Restore":      func() error { _, err := b.Restore(ctx, sandbox.RestoreRequest{}); return err },
		"Diff":         func() error { _, err := b.Diff(ctx, sandbox.DiffRequest{}); return err },
	} {
		if err := call(); !errors.Is(err, agents.ErrUnsupported) {
			t.Errorf("%s: got %v, want agents.ErrUnsupported", name, err)
		}
	}
	if env, err := b.Prepare(ctx); err != nil || len(env) > 0 {
		t.Errorf("Prepare: got %q and %v, want nothing", env, err)
	}
}

func TestNoneWritesThroughAndCommitsNothing(t *testing.T) {
	b := created(t, none.New())
	b.write("README.md", "through\n")
	if got := b.read(b.resource.Location, "README.md"); got != "through\n" {
		t.Errorf("README.md: got %q", got)
	}
	res, err := b.Commit(t.Context(), "x")
	if err != nil || !res.Success || res.CommitRef != "" {
		t.Errorf("Commit: got %+v and %v", res, err)
	}
	must(t, b.Cleanup(t.Context()))
	if got := b.read(b.resource.Location, "README.md"); got != "through\n" {
		t.Errorf("README.md after Cleanup: got %q", got)
	}
}

func TestAnAPIHasNoPaths(t *testing.T) {
	b := newBench(t, none.New())
	b.resource.Type, b.resource.Location = agents.TypeAPI, "https://api.example.com"
	s := sandbox.New(none.New(), agents.SandboxRecord{ID: "s"}, b.resource, b.cfg)
	_, err := s.Create(t.Context(), "plan")
	must(t, err)
	must(t, s.Open(t.Context()))
	if got, err := s.Path(t.Context(), ""); err != nil || got != b.resource.Location {
		t.Errorf("Path: got %q and %v", got, err)
	}
	if _, err := s.Path(t.Context(), "x"); !errors.Is(err, agents.ErrUnsupported) {
		t.Errorf("Path of a file: got %v, want agents.ErrUnsupported", err)
	}
}

func TestSeveralGoroutines(t *testing.T) {
	b := created(t, sandboxtest.NewPlain())
	must(t, os.MkdirAll(b.cfg.Objects, 0o700))
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if _, err := b.Path(t.Context(), "README.md"); err != nil && !errors.Is(err, agents.ErrState) {
				t.Errorf("Path: %v", err)
			}
			b.Status()
			if _, err := b.Capture(t.Context(), sandbox.CaptureRequest{}); err != nil {
				t.Errorf("Capture: %v", err)
			}
			if err := b.Rollback(t.Context()); err != nil {
				t.Errorf("Rollback: %v", err)
			}
			_ = strings.Clone(b.Record().Metadata["strategy"])
		})
	}
	wg.Wait()
	must(t, b.Cleanup(t.Context()))
	b.wantNothingLeft()
}
