package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/engine"
	"github.com/cleveragents/agents/internal/oracle"
	"github.com/cleveragents/agents/sandbox"
	"github.com/cleveragents/agents/sandbox/gitworktree"
	"github.com/cleveragents/agents/sandbox/sandboxtest"
)

// failing fails the n-th real apply of several strategies, after something
// else has happened.
type failing struct {
	n     int
	meant func() // what happens just before the failure
	calls int
}

// watched is a strategy whose applies a failing counts.
type watched struct {
	*sandboxtest.Faulty // for the optional abilities of what it wraps
	by                  *failing
}

func (w watched) Apply(ctx context.Context, ws sandbox.Workspace, req sandbox.ApplyRequest) (agents.ResourceResult, error) {
	if req.DryRun {
		return w.Faulty.Apply(ctx, ws, req)
	}
	w.by.calls++
	if w.by.calls == w.by.n {
		w.by.meant()
		return agents.ResourceResult{Resource: ws.Resource.Name, State: agents.ApplyFailed}, sandboxtest.ErrFault
	}
	return w.Faulty.Apply(ctx, ws, req)
}

const places = 3

// several is a plan on repositories and directories in turn, each with a
// changed a.txt.
type several struct {
	*compliance
	fail  *failing
	plan  agents.Plan
	homes []*oracle.Repo
	heads []string
}

func newSeveral(t *testing.T) *several {
	t.Helper()
	s := &several{fail: &failing{meant: func() {}}}
	s.compliance = newComplianceWith(t, []sandbox.Strategy{
		watched{sandboxtest.NewFaulty(gitworktree.New(), 0, nil), s.fail}, watched{sandboxtest.NewFaulty(sandboxtest.NewPlain(), 0, nil), s.fail},
	}, nil)
	var resources []agents.Resource
	for i := range places {
		if i%2 == 0 {
			s.homes = append(s.homes, oracle.NewRepo(t))
			resources = append(resources, repo(nth(i), s.homes[i].Dir))
		} else {
			s.homes = append(s.homes, s.directory("b.txt"))
			s.homes[i].Write("a.txt", "v1\n")
			resources = append(resources, dir(nth(i), s.homes[i].Dir))
		}
		s.heads = append(s.heads, s.head(i))
	}
	s.plan = s.planOn(resources...)
	for i := range places {
		s.write(s.plan.ID, nth(i), "a.txt", "ours\n")
	}
	return s
}

func nth(i int) string { return fmt.Sprintf("r%d", i+1) }

func (s *several) head(i int) string {
	if i%2 == 1 {
		return ""
	}
	return s.homes[i].Git("rev-parse", "HEAD")
}

// wantBefore fails when a resource is not what it was before any apply.
func (s *several) wantBefore(i int) {
	s.t.Helper()
	if got := s.homes[i].Read("a.txt"); got != "v1\n" || s.head(i) != s.heads[i] {
		s.t.Errorf("%s: a.txt is %q at %s, want it as before", nth(i), got, s.head(i))
	}
	if i%2 == 0 {
		if got := s.homes[i].Git("diff", "HEAD", "--", "a.txt"); got != "" {
			s.t.Errorf("%s: git sees a change:\n%s", nth(i), got)
		}
	}
}

// wantAll applies what is left and fails when that is not the whole.
func (s *several) wantAll(but ...int) {
	s.t.Helper()
	s.fail.n = 0
	res, err := s.Apply(s.t.Context(), engine.ApplyRequest{Plan: s.plan.ID})
	s.must(err)
	for _, r := range res.Resources {
		if r.State != agents.ApplyApplied {
			s.t.Errorf("second apply: %s is %s", r.Resource, r.State)
		}
	}
	for i := range places {
		if got := s.homes[i].Read("a.txt"); got != "ours\n" && !slices.Contains(but, i) {
			s.t.Errorf("%s after the second apply: a.txt is %q", nth(i), got)
		}
	}
	st, err := s.Status(s.t.Context(), s.plan.ID)
	s.must(err)
	if st.Plan.State != agents.PlanApplied {
		s.t.Errorf("the plan is %s", st.Plan.Position())
	}
}

// A failure in the middle takes back what was applied, whatever else the user
// changed meanwhile stays, and a second apply does the whole.
func TestApplyOfSeveralFailsInTheMiddle(t *testing.T) {
	for n := 1; n <= places; n++ {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			s := newSeveral(t)
			s.fail.n, s.fail.meant = n, func() {
				for i := range places {
					s.homes[i].Write("b.txt", "the user's\n")
					s.homes[i].Write("mine.txt", "the user's\n")
				}
			}
			res, err := s.Apply(t.Context(), engine.ApplyRequest{Plan: s.plan.ID})
			if !errors.Is(err, sandboxtest.ErrFault) || !strings.Contains(err.Error(), "resource "+nth(n-1)) {
				t.Fatalf("got %v, want the fault of %s", err, nth(n-1))
			}
			for i, r := range res.Resources {
				want := agents.ApplyNotTried
				switch {
				case i < n-1:
					want = agents.ApplyReverted
				case i == n-1:
					want = agents.ApplyFailed
				}
				if r.State != want {
					t.Errorf("%s is %s, want %s", r.Resource, r.State, want)
				}
				s.wantBefore(i)
			}
			st, err := s.Status(t.Context(), s.plan.ID)
			s.must(err)
			if st.Plan.Position() != (agents.PlanPosition{Phase: agents.PhaseExecute, State: agents.PlanComplete}) {
				t.Errorf("the plan is %s, want that it can be applied again", st.Plan.Position())
			}
			s.wantAll()
			for i := range places {
				if got := s.homes[i].Read("b.txt") + s.homes[i].Read("mine.txt"); got != "the user's\nthe user's\n" {
					t.Errorf("%s: the user's own changes are %q", nth(i), got)
				}
			}
		})
	}
}

// What the user changed of an applied result is not taken away: that resource
// stays applied and is named, the others are as before, and a second apply does
// the rest.
func TestApplyOfSeveralThatCannotBeTakenBack(t *testing.T) {
	for n := 2; n <= places; n++ {
		for moved := range n - 1 {
			t.Run(fmt.Sprintf("%d fails, %d moved", n, moved+1), func(t *testing.T) {
				s := newSeveral(t)
				s.fail.n, s.fail.meant = n, func() { s.homes[moved].Write("a.txt", "ours and the user's\n") }
				res, err := s.Apply(t.Context(), engine.ApplyRequest{Plan: s.plan.ID})
				if !errors.Is(err, sandboxtest.ErrFault) || !errors.Is(err, agents.ErrConflict) || !strings.Contains(err.Error(), "resource "+nth(moved)+" stays applied") {
					t.Fatalf("got %v, want the fault, and that %s stays applied", err, nth(moved))
				}
				for i, r := range res.Resources {
					if i == moved {
						if r.State != agents.ApplyApplied {
							t.Errorf("%s is %s, want applied", r.Resource, r.State)
						}
						continue
					}
					s.wantBefore(i)
				}
				st, err := s.Status(t.Context(), s.plan.ID)
				s.must(err)
				if st.Resources[moved].ApplyState != agents.ApplyApplied || st.Plan.Terminal() {
					t.Errorf("status: %s is %s, the plan %s", nth(moved), st.Resources[moved].ApplyState, st.Plan.Position())
				}
				s.wantAll(moved)
				if got := s.homes[moved].Read("a.txt"); got != "ours and the user's\n" {
					t.Errorf("%s: the user's change is %q", nth(moved), got)
				}
			})
		}
	}
}

// In part, on purpose: what can be applied is, what fails is named, and a
// second apply does the rest.
func TestApplyOfSeveralInPart(t *testing.T) {
	for _, n := range []int{1, places} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			s := newSeveral(t)
			s.fail.n = n
			res, err := s.Apply(t.Context(), engine.ApplyRequest{Plan: s.plan.ID, Partial: true})
			if !errors.Is(err, agents.ErrPartial) || !errors.Is(err, sandboxtest.ErrFault) || !strings.Contains(err.Error(), nth(n-1)) {
				t.Fatalf("got %v, want agents.ErrPartial with the fault of %s", err, nth(n-1))
			}
			for i, r := range res.Resources {
				if (r.State == agents.ApplyApplied) != (i != n-1) {
					t.Errorf("%s is %s", r.Resource, r.State)
				}
			}
			s.wantBefore(n - 1)
			s.wantAll()
		})
	}
}

// Some first, by name, the rest later.
func TestApplyOfSeveralOnly(t *testing.T) {
	s := newSeveral(t)
	_, err := s.Apply(t.Context(), engine.ApplyRequest{Plan: s.plan.ID, Only: []string{"r2"}})
	s.must(err)
	s.wantBefore(0)
	s.wantBefore(2)
	if got := s.homes[1].Read("a.txt"); got != "ours\n" {
		t.Errorf("what was named: got %q", got)
	}
	// A failure among the rest leaves the first ones alone.
	s.fail.calls, s.fail.n = 0, 2
	if _, err := s.Apply(t.Context(), engine.ApplyRequest{Plan: s.plan.ID}); !errors.Is(err, sandboxtest.ErrFault) {
		t.Fatalf("got %v, want the fault", err)
	}
	s.wantBefore(0)
	if got := s.homes[1].Read("a.txt"); got != "ours\n" {
		t.Errorf("what an earlier apply did: got %q", got)
	}
	s.wantAll()
}

// A killed apply is taken back to what was before it, which an earlier apply
// may have made; what the user has changed since stays applied, and that is said.
func TestApplyOfSeveralIsKilled(t *testing.T) {
	for _, moved := range []bool{false, true} {
		t.Run(fmt.Sprintf("moved %t", moved), func(t *testing.T) {
			s := newSeveral(t)
			_, err := s.Apply(t.Context(), engine.ApplyRequest{Plan: s.plan.ID, Only: []string{"r2"}})
			s.must(err)
			s.fail.calls, s.fail.n, s.fail.meant = 0, 2, func() { panic("killed") }
			func() {
				defer func() { _ = recover() }()
				_, err := s.Apply(t.Context(), engine.ApplyRequest{Plan: s.plan.ID})
				t.Errorf("the apply ended: %v", err)
			}()
			if moved {
				s.homes[0].Write("a.txt", "ours and the user's\n")
			}
			s.told = nil
			s.must(s.Start(t.Context()))
			told := strings.Join(s.told, "\n")
			if got := s.homes[1].Read("a.txt"); got != "ours\n" {
				t.Errorf("what the earlier apply brought home: got %q", got)
			}
			s.wantBefore(2)
			if !moved {
				s.wantBefore(0)
				if !strings.Contains(told, "was taken back") {
					t.Errorf("told: %q", told)
				}
				s.wantAll()
				return
			}
			if !strings.Contains(told, "applied are r1, the rest is as before") {
				t.Errorf("told: %q", told)
			}
			s.wantAll(0)
			if got := s.homes[0].Read("a.txt"); got != "ours and the user's\n" {
				t.Errorf("the user's change: got %q", got)
			}
		})
	}
}

// A conflict found beforehand leaves everything as it was.
func TestApplyOfSeveralWithAConflict(t *testing.T) {
	for i := range places {
		s := newSeveral(t)
		s.homes[i].Write("a.txt", "theirs\n")
		res, err := s.Apply(t.Context(), engine.ApplyRequest{Plan: s.plan.ID})
		if !errors.Is(err, agents.ErrConflict) || res.Resources[i].State != agents.ApplyConflict || s.fail.calls > 0 {
			t.Fatalf("%s: got %v after %d applies: %+v", nth(i), err, s.fail.calls, res.Resources)
		}
		for j := range places {
			if j != i {
				s.wantBefore(j)
			}
		}
		res, err = s.Apply(t.Context(), engine.ApplyRequest{Plan: s.plan.ID, Partial: true})
		if !errors.Is(err, agents.ErrPartial) || s.fail.calls != places-1 {
			t.Errorf("%s in part: got %v after %d applies: %+v", nth(i), err, s.fail.calls, res.Resources)
		}
		s.homes[i].Write("a.txt", "v1\n")
		s.wantAll()
	}
}
