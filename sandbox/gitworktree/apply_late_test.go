package gitworktree_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/sandbox"
)

// TestApplyKeepsLateWrites: a program has a file open that apply replaces, and
// goes on writing: its bytes are kept and the result says where. The program
// writes as soon as it sees another file in its place; an apply that is over
// by then, or not so far, is tried again.
func TestApplyKeepsLateWrites(t *testing.T) {
	for range 10 {
		r := small(t)
		p := newPlan(t, r, "main", smallEdit)
		wrote := writeLate(t, filepath.Join(r.Dir, "a.txt"))
		res, err := p.apply()
		if <-wrote; errors.Is(err, agents.ErrConflict) {
			continue // it wrote before the apply had looked at what came out
		}
		if err != nil {
			t.Fatal(err)
		}
		kept, err := os.ReadFile(filepath.Join(sandbox.LateDir(p.journal), "a.txt"))
		if os.IsNotExist(err) && len(res.Notices) == 0 {
			continue
		}
		if err != nil || !strings.HasSuffix(string(kept), "late\n") {
			t.Errorf("kept are %q, %v", kept, err)
		}
		if len(res.Notices) != 1 || !strings.Contains(res.Notices[0], "a.txt") {
			t.Errorf("the notices are %q, want one of a.txt", res.Notices)
		}
		return
	}
	t.Fatal("the program never wrote while an apply was under way")
}

// writeLate opens a file, and writes to it once another one has its name.
func writeLate(t *testing.T, path string) (done <-chan struct{}) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	open, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	end := make(chan struct{})
	go func() {
		defer close(end)
		defer f.Close()
		for {
			if here, err := os.Stat(path); err == nil && !os.SameFile(here, open) {
				_, _ = f.WriteString("late\n")
				return
			}
		}
	}()
	return end
}
