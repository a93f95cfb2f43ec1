package gitworktree_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/oracle"
)

// mustNotUndo checks that an undo is refused, says this, and changes nothing.
func (p *plan) mustNotUndo(says string) {
	p.t.Helper()
	before := oracle.Digest(p.t, p.r.Dir)
	err := p.s.Undo(context.Background(), p.ws, p.journal)
	if !errors.Is(err, agents.ErrConflict) || agents.KindOf(err) != agents.SandboxRollbackError {
		p.t.Fatalf("undo gave %v, want a conflict", err)
	}
	if !strings.Contains(err.Error(), says) || !strings.Contains(agents.HintOf(err), " revert -m 1 ") && !strings.Contains(agents.HintOf(err), "does not hold the apply any more") {
		p.t.Errorf("undo says %q (hint %q), want %q", err, agents.HintOf(err), says)
	}
	oracle.Same(p.t, "refused undo", p.r.Dir, before)
	p.clean()
	if got, err := p.s.Recover(context.Background(), p.ws, p.journal); got.State != agents.ApplyApplied || got.Commit == "" || err != nil {
		p.t.Errorf("recover after a refused undo gives %s %s %v", got.State, got.Commit, err)
	}
}

// TestB003UndoKeepsLaterCommits: a commit on top of the apply stays.
func TestB003UndoKeepsLaterCommits(t *testing.T) {
	r := small(t)
	p := newPlan(t, r, "main", smallEdit)
	p.mustApply()
	r.Write("c2", "c2\n")
	c2 := r.Commit("c2")
	p.mustNotUndo("main has moved on")
	if got := r.Git("rev-parse", "main"); got != c2 {
		t.Errorf("main is at %s, want %s", got, c2)
	}
	r.Git("reset", "-q", "--hard", "HEAD~")
	p.mustUndo()
}

func TestUndoKeepsLaterChanges(t *testing.T) {
	for _, c := range []struct{ name, script, says string }{
		{"edited", "echo more >>a.txt", "a.txt"},
		{"edited and staged", "echo more >>a.txt; git add a.txt", "a.txt"},
		{"deleted", "rm new.txt", "new.txt"},
		{"removed", "git rm -q new.txt", "new.txt"},
		{"made again", "echo back >del.txt", "del.txt"},
		{"made again and ignored", "echo del.txt >>.git/info/exclude; echo back >del.txt", "del.txt"},
		{"mode", "chmod +x f", "f"},
		{"replaced by a link", "rm f; ln -s a.txt f", "f"},
		{"line ends that git does not see", "git config core.autocrlf input; sed -i 's/$/\\r/' f", "f"},
		{"a merge begun", "git checkout -q -b s HEAD^; echo s >f; git commit -qam s; git checkout -q main; git merge s || true", "merge"},
		{"branch gone", "git checkout -q --detach; git branch -q -D main", "gone"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := small(t)
			p := newPlan(t, r, "main", smallEdit)
			p.mustApply()
			r.Sh(c.script)
			p.mustNotUndo(c.says)
		})
	}
}

// TestB001UndoKeepsForeignFiles is the second leg: files of the user's that
// git does not track are not touched by taking an apply back.
func TestB001UndoKeepsForeignFiles(t *testing.T) {
	r := small(t)
	p := newPlan(t, r, "main", smallEdit)
	r.Write("big.jsonl", "mine\n")
	r.Write("sub/mine", "beside the plan's new file\n")
	r.Write("x.ign", "ignored\n")
	before := state(t, r)
	p.mustApply()
	r.Write("later", "made after the apply\n")
	p.mustUndo()
	r.Sh("rm later")
	same(t, "undo", before, state(t, r))
}

// An undo follows the branch where it is checked out by now.
func TestUndoElsewhere(t *testing.T) {
	t.Run("checked out since", func(t *testing.T) {
		r := small(t)
		p := newPlan(t, r, "main", smallEdit)
		before := state(t, r)
		r.Git("checkout", "-q", "-b", "other")
		if _, err := p.apply(); err != nil {
			t.Fatal(err)
		}
		r.Git("checkout", "-q", "main")
		r.Git("branch", "-q", "-D", "other")
		p.mustUndo()
		same(t, "undo", before, state(t, r))
	})
	t.Run("not checked out any more", func(t *testing.T) {
		r := small(t)
		p := newPlan(t, r, "main", smallEdit)
		base := r.Git("rev-parse", "main")
		p.mustApply()
		r.Git("checkout", "-q", "-b", "other")
		files := oracle.Digest(t, r.Dir, ".git")
		p.mustUndo()
		oracle.Same(t, "other branch", r.Dir, files, ".git")
		if got := r.Git("rev-parse", "main"); got != base {
			t.Errorf("main is at %s, want %s", got, base)
		}
	})
}

func TestApplyAgainAfterUndo(t *testing.T) {
	r := small(t)
	p := newPlan(t, r, "main", smallEdit)
	first := p.mustApply()
	p.mustUndo()
	p.journal = t.TempDir()
	second := p.mustApply() // in the same second: the same commit
	if first.CommitRef != second.CommitRef {
		t.Logf("commits %s and %s", first.CommitRef, second.CommitRef)
	}
	if r.Read("a.txt") != "v2\n" {
		t.Error("not applied")
	}
}

// What git does not record of files and directories comes back too.
func TestUndoGivesBitsBack(t *testing.T) {
	r := small(t)
	r.Sh("git config core.fileMode false; mkdir deep; echo d >deep/x; echo s >s; echo t >t; git add -A; git commit -qm more; chmod 700 deep; chmod 4755 s; chmod 2750 t")
	p := newPlan(t, r, "main", func(w *oracle.Repo) { w.Sh("rm -r deep; echo f >deep; echo x >>s; echo y >>t") })
	p.mustApply()
	p.mustUndo()
	if got := r.Sh("stat -c '%a %n' deep s t"); got != "700 deep\n4755 s\n2750 t" {
		t.Errorf("bits after the undo:\n%s", got)
	}
}

// An undo without its journal is an error: nothing was taken back.
func TestUndoWithoutItsJournal(t *testing.T) {
	p := newPlan(t, small(t), "main", smallEdit)
	p.mustApply()
	journal := p.journal
	p.journal = t.TempDir()
	if err := p.s.Undo(t.Context(), p.ws, p.journal); !errors.Is(err, agents.ErrNotFound) {
		t.Errorf("got %v, want not found", err)
	}
	p.journal = journal
	p.mustUndo()
}
