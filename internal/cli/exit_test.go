package cli_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/cli"
)

func TestB119EveryErrorClassHasItsExitCode(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int
		code string
	}{
		{agents.ErrInvalid, 2, "invalid"},
		{agents.ErrNotFound, 3, "not_found"},
		{agents.ErrState, 4, "wrong_state"},
		{agents.ErrBlocked, 4, "blocked"},
		{agents.ErrConflict, 4, "conflict"},
		{agents.ErrLocked, 4, "locked"},
		{agents.ErrExists, 4, "exists"},
		{agents.ErrUnsupported, 1, "unsupported"},
		{agents.ErrDamaged, 1, "damaged"},
		{agents.ErrNoSpace, 1, "no_space"},
		{agents.ErrPartial, 5, "partial"},
		{agents.ErrToolFailed, 1, "tool_failed"},
		{agents.ErrInterrupted, 130, "interrupted"},
		{agents.ErrNewerData, 1, "newer_data"},
		{context.Canceled, 130, "interrupted"},
		{errors.New("disk on fire"), 1, "internal"},
		{&agents.StateError{What: "plan", From: "a", To: "b"}, 4, "SandboxStateError"},
		{&agents.Error{Kind: agents.BusinessRuleViolation, Err: agents.ErrBlocked}, 4, "BusinessRuleViolation"},
		{&agents.Error{Kind: agents.ValidationError, Err: agents.ErrInvalid}, 2, "ValidationError"},
		// Of several classes the one that matters to a caller wins.
		{fmt.Errorf("%w: %w", agents.ErrToolFailed, agents.ErrNotFound), 1, "tool_failed"},
		{errors.Join(agents.ErrConflict, agents.ErrPartial), 5, "partial"},
		{errors.Join(agents.ErrToolFailed, agents.ErrInterrupted), 130, "interrupted"},
	} {
		if got := cli.ExitCode(context.Background(), fmt.Errorf("do it: %w", c.err)); got != c.want {
			t.Errorf("%v: exit %d, want %d", c.err, got, c.want)
		}
		if got := cli.Problem(c.err).Code; got != c.code {
			t.Errorf("%v: code %s, want %s", c.err, got, c.code)
		}
	}
}

func TestWhatFailsAfterASignalIsInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for err, want := range map[error]int{
		agents.ErrToolFailed:             130,
		errors.New("signal: terminated"): 130,
		agents.ErrConflict:               4,
	} {
		if got := cli.ExitCode(ctx, err); got != want {
			t.Errorf("%v: exit %d, want %d", err, got, want)
		}
	}
}

func TestAProblemHasHintAndDetails(t *testing.T) {
	err := fmt.Errorf("outer: %w", &agents.Error{
		Message: "conflicts", Details: map[string]any{"n": 2}, Hint: "agents plan update",
		Err: &agents.Error{Hint: "inner", Details: map[string]any{"n": 1}, Err: agents.ErrConflict},
	})
	p := cli.Problem(err)
	if p.Hint != "agents plan update" || p.Details["n"] != 2 || p.Message != err.Error() {
		t.Errorf("got %+v", p)
	}
}

func TestAClassIsLeftOutWhereTheMessageSaysIt(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{fmt.Errorf("plan x: %w", agents.ErrNotFound), "plan x: not found"},
		{fmt.Errorf("branch main in repository /r: %w", agents.ErrNotFound), "branch main in repository /r: not found"},
		{fmt.Errorf("run needs a confirmation: %w", agents.ErrInvalid), "run needs a confirmation"},
		{fmt.Errorf("resource a: merge main: conflict: %w", agents.ErrConflict), "resource a: merge main: conflict"},
		{fmt.Errorf("what is odd: merge main: %w", agents.ErrConflict), "what is odd: merge main: conflict"},
		{errors.Join(fmt.Errorf("x has moved: %w", agents.ErrConflict), errors.New("y")), "x has moved; y"},
		{fmt.Errorf("the sandbox cannot be made: %w", agents.ErrNoSpace), "the sandbox cannot be made: not enough space"},
		{fmt.Errorf("plan x is locked by another process: %w", agents.ErrLocked), "plan x is locked by another process"},
		{agents.ErrConflict, "conflict"},
	} {
		if got := cli.Problem(c.err).Message; got != c.want {
			t.Errorf("%v: got %q, want %q", c.err, got, c.want)
		}
	}
}
