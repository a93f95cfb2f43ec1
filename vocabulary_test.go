package agents_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	agents "github.com/cleveragents/agents"
)

// The moves of the specification's state machines, retyped, and beside them
// those that docs/SPEC.md names as deviations.
func TestSandboxStateTable(t *testing.T) {
	const (
		pending    = agents.SandboxPending
		created    = agents.SandboxCreated
		active     = agents.SandboxActive
		committed  = agents.SandboxCommitted
		rolledBack = agents.SandboxRolledBack
		errored    = agents.SandboxErrored
		cleanedUp  = agents.SandboxCleanedUp
	)
	type move struct{ from, to agents.SandboxStatus }
	all := []agents.SandboxStatus{pending, created, active, committed, rolledBack, errored, cleanedUp}
	allowed := []move{
		{pending, created}, {created, active}, {active, committed}, {committed, cleanedUp},
		{active, rolledBack}, {rolledBack, active}, {active, errored}, {errored, cleanedUp}, {committed, rolledBack},
		// Beside the specification's.
		{created, pending}, {errored, rolledBack},
		{pending, cleanedUp}, {created, cleanedUp}, {active, cleanedUp}, {rolledBack, cleanedUp},
		{pending, errored}, {created, errored}, {committed, errored}, {rolledBack, errored},
	}
	for _, from := range all {
		for _, to := range all {
			want := from == to || slices.Contains(allowed, move{from, to})
			if got := from.CanMove(to); got != want {
				t.Errorf("%s to %s: allowed %t, want %t", from, to, got, want)
			}
			rec := agents.SandboxRecord{ID: "s", Status: from}
			err := rec.Move(to)
			if (err == nil) != want || err != nil && (rec.Status != from || agents.KindOf(err) != agents.SandboxStateError || !errors.Is(err, agents.ErrState)) {
				t.Errorf("move %s to %s: %v of kind %q, the record is %s", from, to, err, agents.KindOf(err), rec.Status)
			}
		}
	}
}

func TestU089PlanPositions(t *testing.T) {
	for _, c := range []struct {
		position agents.PlanPosition
		valid    bool
	}{
		{agents.PlanPosition{Phase: agents.PhaseAction, State: agents.PlanProcessing}, false},
		{agents.PlanPosition{Phase: agents.PhaseExecute, State: agents.PlanApplied}, false},
		{agents.PlanPosition{Phase: "", State: ""}, false},
		{agents.PlanPosition{Phase: agents.PhaseExecute, State: agents.PlanQueued}, true},
		{agents.PlanPosition{Phase: agents.PhaseApply, State: agents.PlanApplied}, true},
	} {
		if got := c.position.Valid(); got != c.valid {
			t.Errorf("%s: valid %t, want %t", c.position, got, c.valid)
		}
	}
	p := agents.Plan{ID: "p", Phase: agents.PhaseApply, State: agents.PlanApplied}
	if err := p.Move(agents.PhaseExecute, agents.PlanQueued); !errors.Is(err, agents.ErrState) || p.State != agents.PlanApplied || !p.Terminal() {
		t.Errorf("an applied plan that is queued again: %v, and it is %s", err, p.Position())
	}
}

// Oldest interior ones go; the first, the newest and pinned ones stay.
func TestRetention(t *testing.T) {
	row := func(names string) (out []agents.Checkpoint) {
		for _, name := range strings.Fields(names) {
			out = append(out, agents.Checkpoint{ID: strings.TrimSuffix(name, "!"), Pinned: strings.HasSuffix(name, "!")})
		}
		return out
	}
	for _, c := range []struct {
		max    int
		prune  bool
		rows   string
		remove string
		over   int
	}{
		{3, true, "a b c", "", 0},
		{3, true, "a b c d", "b", 0},
		{3, true, "a b c d e f", "b c d", 0},
		{3, true, "a b! c d e", "c d", 0},
		{3, true, "a b! c! d! e", "", 2},
		{2, true, "a b c", "b", 0},
		{1, true, "a b c", "b", 1},
		{1, true, "a b", "", 1},
		{1, true, "a", "", 0},
		{2, true, "", "", 0},
		{3, false, "a b c d e", "", 2},
	} {
		t.Run(fmt.Sprintf("%d of %s", c.max, c.rows), func(t *testing.T) {
			remove, over := agents.RetentionPolicy{MaxCheckpoints: c.max, AutoPrune: c.prune}.Prune(row(c.rows))
			if got := strings.Join(remove, " "); got != c.remove || over != c.over {
				t.Errorf("remove %q, over %d; want %q, %d", got, over, c.remove, c.over)
			}
		})
	}
	if got, want := agents.DefaultRetention(), (agents.RetentionPolicy{MaxCheckpoints: 50, AutoPrune: true}); got != want {
		t.Errorf("default %+v, want %+v", got, want)
	}
	for n, ok := range map[int]bool{-1: false, 0: false, 1: true, 50: true, 100: true, 101: false} {
		if err := (agents.RetentionPolicy{MaxCheckpoints: n}).Validate(); (err == nil) != ok || err != nil && !errors.Is(err, agents.ErrInvalid) {
			t.Errorf("max checkpoints %d: %v, want it valid: %t", n, err, ok)
		}
	}
}

func TestU025ParseTriggers(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"before_tool_execute,after_tool_execute,on_subplan_spawn,on_error", "[before_tool_execute after_tool_execute on_subplan_spawn on_error]"},
		{" on_error , before_tool_execute,on_error", "[on_error before_tool_execute]"},
		{"", "[]"},
	} {
		got, err := agents.ParseTriggers(c.text)
		if err != nil || fmt.Sprint(got) != c.want {
			t.Errorf("%q: got %v and %v, want %s", c.text, got, err, c.want)
		}
	}
	for _, text := range []string{"before_write", "ON_ERROR", "on_error;before_tool_execute"} {
		_, err := agents.ParseTriggers(text)
		if !errors.Is(err, agents.ErrInvalid) || !strings.Contains(err.Error(), "before_tool_execute, after_tool_execute, on_subplan_spawn, on_error") {
			t.Errorf("%q: got %v, want agents.ErrInvalid that names the valid ones", text, err)
		}
	}
}

func TestU015ParseStrategy(t *testing.T) {
	for _, name := range agents.Strategies() {
		if got, err := agents.ParseStrategy(string(name)); got != name || err != nil {
			t.Errorf("%s: got %s and %v", name, got, err)
		}
	}
	if got, err := agents.ParseStrategy("filesystem_copy"); got != agents.CopyOnWrite || err != nil {
		t.Errorf("filesystem_copy: got %s and %v, want copy_on_write", got, err)
	}
	if _, err := agents.ParseStrategy("snapshot"); !errors.Is(err, agents.ErrInvalid) || !strings.Contains(err.Error(), "git_worktree") {
		t.Errorf("snapshot: got %v, want agents.ErrInvalid that names the valid ones", err)
	}
}

// The strategy is the resource's own, else the configured one where somebody
// set it and the type can use it, else the type's; none is never a fall-back.
func TestEffectiveStrategy(t *testing.T) {
	for _, c := range []struct {
		kind       agents.ResourceType
		own        agents.StrategyName
		configured agents.StrategyName
		want       agents.StrategyName
		said       bool
	}{
		{agents.TypeGitCheckout, "", "", agents.GitWorktree, false},
		{agents.TypeDirectory, "", "", agents.CopyOnWrite, false},
		{agents.TypeFile, "", "", agents.CopyOnWrite, false},
		{agents.TypeMount, "", "", agents.Overlay, false},
		{agents.TypePostgres, "", "", agents.TransactionRollback, false},
		{agents.TypeSQLite, "", "", agents.TransactionRollback, false},
		{agents.TypeAPI, "", "", agents.NoIsolation, false},
		{agents.TypeDirectory, "", agents.Overlay, agents.Overlay, false},
		{agents.TypeDirectory, "", agents.GitWorktree, agents.CopyOnWrite, true},
		{agents.TypePostgres, "", agents.CopyOnWrite, agents.TransactionRollback, true},
		{agents.TypeGitCheckout, "", agents.NoIsolation, agents.NoIsolation, false},
		{agents.TypeGitCheckout, agents.NoIsolation, agents.GitWorktree, agents.NoIsolation, false},
		{agents.TypeMount, agents.CopyOnWrite, agents.Overlay, agents.CopyOnWrite, false},
	} {
		r := agents.Resource{Name: "r", Type: c.kind, Strategy: c.own, Location: "/r"}
		got, said := r.EffectiveStrategy(c.configured)
		if got != c.want || (said != "") != c.said {
			t.Errorf("%s, own %q, configured %q: got %s, said %q; want %s", c.kind, c.own, c.configured, got, said, c.want)
		}
	}
	for _, info := range agents.ResourceTypes() {
		if info.Strategy == agents.NoIsolation && info.Type != agents.TypeAPI {
			t.Errorf("type %s has no isolation of its own", info.Type)
		}
		if !slices.Contains(info.Allowed, info.Strategy) {
			t.Errorf("type %s may not use its own strategy", info.Type)
		}
	}
	r := agents.Resource{Name: "r", Type: agents.TypeDirectory, Strategy: agents.GitWorktree, Location: "/r"}
	if err := r.Validate(); !errors.Is(err, agents.ErrInvalid) {
		t.Errorf("a directory with git_worktree: got %v, want agents.ErrInvalid", err)
	}
}

func TestCapability(t *testing.T) {
	for _, c := range []struct {
		capability agents.Capability
		valid      bool
		scope      agents.Scope
	}{
		{agents.Capability{ReadOnly: true, RollbackMechanism: agents.MechNone}, true, ""},
		{agents.Capability{Writes: true}, true, agents.ScopeSnapshot},
		{agents.Capability{Writes: true, Checkpointable: true, CheckpointScope: agents.ScopeFile, RollbackMechanism: agents.MechGitCommit}, true, agents.ScopeFile},
		{agents.Capability{Writes: true, Checkpointable: true, RollbackMechanism: agents.MechNone}, false, agents.ScopeSnapshot},
		{agents.Capability{Writes: true, ReadOnly: true}, false, agents.ScopeSnapshot},
		{agents.Capability{}, false, ""},
	} {
		if err := c.capability.Validate(); (err == nil) != c.valid || err != nil && !errors.Is(err, agents.ErrInvalid) {
			t.Errorf("%+v: got %v, want it valid: %t", c.capability, err, c.valid)
		}
		if got := c.capability.EffectiveScope(); got != c.scope {
			t.Errorf("%+v: scope %q, want %q", c.capability, got, c.scope)
		}
	}
}

// The specification's names for errors are found through any wrapping, and the
// class beside them.
func TestErrorKinds(t *testing.T) {
	for _, kind := range []agents.Kind{
		agents.SandboxCreationError, agents.SandboxCommitError, agents.SandboxRollbackError,
		agents.BusinessRuleViolation, agents.ValidationError,
	} {
		err := fmt.Errorf("outside: %w", agents.WithHint(&agents.Error{Kind: kind, Message: "it is so", Err: agents.ErrBlocked}, "do this"))
		if agents.KindOf(err) != kind || !errors.Is(err, agents.ErrBlocked) || agents.HintOf(err) != "do this" || err.Error() != "outside: it is so" {
			t.Errorf("%s: kind %q, hint %q, %v", kind, agents.KindOf(err), agents.HintOf(err), err)
		}
	}
	var err error = &agents.StateError{What: "sandbox s", From: "PENDING", To: "COMMITTED"}
	if agents.KindOf(fmt.Errorf("x: %w", err)) != agents.SandboxStateError || !errors.Is(err, agents.ErrState) {
		t.Errorf("a state error has kind %q", agents.KindOf(err))
	}
	if agents.KindOf(errors.New("x")) != "" || agents.WithHint(nil, "x") != nil {
		t.Error("an error without a name has one")
	}
}

func TestU113Profiles(t *testing.T) {
	var free []string
	for _, p := range agents.Profiles() {
		got, err := agents.ProfileByName(p.Name)
		if got != p || err != nil {
			t.Errorf("%s: got %+v and %v", p.Name, got, err)
		}
		if !p.RequireSandbox {
			free = append(free, p.Name)
		}
	}
	if fmt.Sprint(free) != "[full-auto]" {
		t.Errorf("profiles with require_sandbox false: %v", free)
	}
	if p, err := agents.ProfileByName(""); p.Name != agents.DefaultProfile || err != nil {
		t.Errorf("the default: got %+v and %v", p, err)
	}
	if _, err := agents.ProfileByName("supervized"); !errors.Is(err, agents.ErrInvalid) || !strings.Contains(err.Error(), "supervised") {
		t.Errorf("a misspelt name: got %v", err)
	}
}

func TestCheckpointIDsAreULIDs(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	seen := map[string]bool{}
	for range 1000 {
		id := agents.NewID(now)
		if !agents.ValidID(id) || len(id) != 26 || seen[id] {
			t.Fatalf("id %q", id)
		}
		seen[id] = true
	}
}
