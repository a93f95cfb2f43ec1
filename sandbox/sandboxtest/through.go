package sandboxtest

import (
	"errors"
	"testing"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/sandbox"
)

// through asserts what holds where nothing is isolated: a write is in the
// resource at once, and there is nothing to bring home.
func (s suite) through(t *testing.T) {
	t.Run("WritesGoThrough", s.writesGoThrough)
	t.Run("NothingToApply", s.nothingToApply)
}

func (s suite) writesGoThrough(t *testing.T) {
	b := s.open(t)
	if !s.caps.Files {
		return
	}
	b.do(write("src/main.go", "x"), remove("data.bin"), mkdir("hollow"))
	if diff := Explain(b.home(), b.oracle(write("src/main.go", "x"), remove("data.bin"), mkdir("hollow"))); diff != "" {
		t.Errorf("the resource does not hold what was written:\n%s", diff)
	}
	if b.Digest(t, b.request.Resource) == b.before {
		t.Error("the resource is untouched, and the strategy says that it does not isolate")
	}
	home := b.home()
	b.discard()
	if diff := Explain(b.home(), home); diff != "" {
		t.Errorf("Remove changed the resource:\n%s", diff)
	}
}

func (s suite) nothingToApply(t *testing.T) {
	b := s.open(t)
	defer b.discard()
	b.do(write("src/main.go", "x"))
	b.before = b.Digest(t, b.request.Resource)
	sealed := b.seal()
	if !sealed.Unchanged {
		t.Errorf("Seal: got %+v, want Unchanged", sealed)
	}
	for _, dry := range []bool{true, false} {
		req := b.applyRequest(sealed.Ref)
		req.DryRun = dry
		if res := b.apply(req); res.State != agents.ApplyUnchanged {
			t.Errorf("Apply: got %+v, want unchanged", res)
		}
	}
	b.wantUntouched("by an apply of nothing")
}

// nothingTakenBack asserts what holds where states cannot be captured:
// "else they are agents.ErrUnsupported", and nothing happens.
func (s suite) nothingTakenBack(t *testing.T) {
	b := s.open(t)
	defer b.discard()
	if _, err := b.strategy.Capture(b.ctx(), b.ws, sandbox.CaptureRequest{Objects: b.objects(), Dir: b.fresh("captures")}); !errors.Is(err, agents.ErrUnsupported) {
		t.Errorf("Capture: got %v, want agents.ErrUnsupported", err)
	}
	if _, err := b.tryRestore(b.ctx(), state{}); !errors.Is(err, agents.ErrUnsupported) {
		t.Errorf("Restore: got %v, want agents.ErrUnsupported", err)
	}
	if _, err := b.strategy.Diff(b.ctx(), b.ws, sandbox.DiffRequest{}); !errors.Is(err, agents.ErrUnsupported) {
		t.Errorf("Diff: got %v, want agents.ErrUnsupported", err)
	}
	b.wantUntouched("by what is not supported")
}
