package gitworktree_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/oracle"
	"github.com/cleveragents/agents/sandbox"
)

// numbered is thirty lines, of which some are others.
func numbered(other map[int]string) string {
	var b strings.Builder
	for n := 1; n <= 30; n++ {
		line := "line"
		if o := other[n]; o != "" {
			line = o
		}
		b.WriteString(line + strings.Repeat(".", n) + "\n")
	}
	return b.String()
}

// TestApplyKeepsUncommittedEdits: a plan that was given the user's uncommitted
// edits changes the same file. Edits of other lines stay uncommitted, of the
// same lines are refused, and an undo gives back every byte.
func TestApplyKeepsUncommittedEdits(t *testing.T) {
	for _, c := range []struct {
		name  string
		later map[int]string // the user's file when the plan is applied
		want  map[int]string // nil = refused
	}{
		{"as the plan saw them", map[int]string{2: "mine"}, map[int]string{2: "mine", 20: "plan"}},
		{"more of them", map[int]string{2: "mine", 8: "more"}, map[int]string{2: "mine", 8: "more", 20: "plan"}},
		{"others", map[int]string{28: "later"}, map[int]string{20: "plan", 28: "later"}},
		{"none any more", map[int]string{}, map[int]string{20: "plan"}},
		{"the same lines", map[int]string{2: "mine", 20: "also mine"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := oracle.EmptyRepo(t, filepath.Join(t.TempDir(), "repo"))
			r.Write("f", numbered(nil))
			r.Write("other", "other\n")
			r.Commit("base")
			r.Write("f", numbered(map[int]string{2: "mine"}))
			r.Write("other", "edited\n")
			b := newBench(t, r)
			b.req.IncludeUncommitted = true
			b.create()
			b.plan().Write("f", numbered(map[int]string{2: "mine", 20: "plan"}))
			sealed, err := b.strategy.Seal(t.Context(), b.ws, sandbox.SealRequest{})
			if err != nil {
				t.Fatal(err)
			}
			r.Write("f", numbered(c.later))
			before := state(t, r)
			req := sandbox.ApplyRequest{Ref: sealed.Ref, JournalDir: t.TempDir()}
			dry := req
			dry.DryRun = true
			_, dryErr := b.strategy.Apply(t.Context(), b.ws, dry)
			_, err = b.strategy.Apply(t.Context(), b.ws, req)
			if c.want == nil {
				if !errors.Is(err, agents.ErrConflict) || !errors.Is(dryErr, agents.ErrConflict) {
					t.Errorf("apply over an edit of the same lines gave %v, its preview %v", err, dryErr)
				}
				same(t, "refused apply", before, state(t, r))
				return
			}
			if err != nil || dryErr != nil {
				t.Fatalf("apply gave %v, its preview %v", err, dryErr)
			}
			if got, err := os.ReadFile(filepath.Join(r.Dir, "f")); err != nil || string(got) != numbered(c.want) {
				t.Errorf("the work tree has %q, %v", got, err)
			}
			if got := r.Git("show", "HEAD:f"); got != strings.TrimSpace(numbered(map[int]string{20: "plan"})) {
				t.Errorf("the commit has %q", got)
			}
			if got := r.Git("diff", "--cached", "--name-only"); got != "" {
				t.Errorf("the apply staged %q", got)
			}
			if err := b.strategy.Undo(t.Context(), b.ws, req.JournalDir); err != nil {
				t.Fatal(err)
			}
			same(t, "undo", before, state(t, r))
		})
	}
}
