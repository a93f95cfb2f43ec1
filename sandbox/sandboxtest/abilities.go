package sandboxtest

import (
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"testing"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/sandbox"
)

// "An Undoer takes back an Apply from its journal. It refuses with
// agents.ErrConflict, changing nothing, where the resource has moved on since."
func (s suite) undo(t *testing.T) {
	if _, ok := s.New(t).(sandbox.Undoer); !ok {
		return
	}
	t.Run("TakenBack", func(t *testing.T) {
		b := s.open(t)
		defer b.discard()
		home := b.home()
		b.do(toBringHome())
		req := b.applyRequest(b.seal().Ref)
		b.apply(req)
		s.wantRecovered(t, b, req.JournalDir, agents.ApplyApplied)
		b.before = b.Digest(t, b.request.Resource)
		if err := b.strategy.(sandbox.Undoer).CanUndo(b.ctx(), b.ws, req.JournalDir); err != nil {
			t.Errorf("CanUndo: %v", err)
		}
		b.wantUntouched("by CanUndo")
		if err := b.strategy.(sandbox.Undoer).Undo(b.ctx(), b.ws, req.JournalDir); err != nil {
			t.Fatalf("Undo: %v", err)
		}
		if diff := Explain(b.home(), home); diff != "" {
			t.Errorf("the resource is not as before the apply:\n%s", diff)
		}
		s.wantRecovered(t, b, req.JournalDir, agents.ApplyReverted)
	})
	t.Run("Refused", func(t *testing.T) {
		b := s.open(t)
		defer b.discard()
		b.do(write(ConflictPath, "ours\n"))
		req := b.applyRequest(b.seal().Ref)
		b.apply(req)
		b.Edit(t, b.request.Resource, ConflictPath, "later\n")
		b.before = b.Digest(t, b.request.Resource)
		if err := b.strategy.(sandbox.Undoer).CanUndo(b.ctx(), b.ws, req.JournalDir); !errors.Is(err, agents.ErrConflict) {
			t.Errorf("CanUndo: got %v, want agents.ErrConflict", err)
		}
		b.wantUntouched("by CanUndo")
		if err := b.strategy.(sandbox.Undoer).Undo(b.ctx(), b.ws, req.JournalDir); !errors.Is(err, agents.ErrConflict) {
			t.Errorf("Undo: got %v, want agents.ErrConflict", err)
		}
		b.wantUntouched("by a refused Undo")
	})
}

// wantRecovered fails when a Recoverer, asked about an apply that was not
// killed, tells something else.
func (s suite) wantRecovered(t *testing.T, b *box, journal string, want agents.ApplyState) {
	t.Helper()
	r, ok := b.strategy.(sandbox.Recoverer)
	if !ok {
		return
	}
	home := b.home()
	got, err := r.Recover(b.ctx(), b.ws, journal)
	if err != nil || got.State != want {
		t.Errorf("Recover: got %q and %v, want %q", got.State, err, want)
	}
	if diff := Explain(b.home(), home); diff != "" {
		t.Errorf("Recover changed a resource that was whole:\n%s", diff)
	}
}

// "An Updater brings the real resource's newer state into the workspace,
// three-way."
func (s suite) update(t *testing.T) {
	if _, ok := s.New(t).(sandbox.Updater); !ok {
		return
	}
	b := s.open(t)
	defer b.discard()
	b.do(write("src/main.go", "ours\n"), write("new.txt", "n\n"))
	want := maps.Clone(b.tree())
	b.Edit(t, b.request.Resource, ConflictPath, "theirs\n")
	b.before = b.Digest(t, b.request.Resource)
	b.updateWorkspace()
	want[ConflictPath] = b.home()[ConflictPath]
	if diff := Explain(s.carried(b.tree()), s.carried(want)); diff != "" {
		t.Errorf("the workspace does not hold both sides' changes:\n%s", diff)
	}
	b.wantUntouched("through Update")
	home := b.home()
	for _, ours := range []string{"src/main.go", "new.txt"} {
		home[ours] = want[ours]
	}
	if res := b.apply(b.applyRequest(b.seal().Ref)); res.State != agents.ApplyApplied {
		t.Errorf("Apply after Update: got %+v, want applied", res)
	}
	if diff := Explain(s.carried(b.home()), s.carried(home)); diff != "" {
		t.Errorf("the resource does not hold both sides' changes:\n%s", diff)
	}
}

func (b *box) updateWorkspace() {
	b.Helper()
	res, ws, err := b.strategy.(sandbox.Updater).Update(b.ctx(), b.ws, testTime())
	if err != nil || res.State != agents.ApplyApplied {
		b.Fatalf("Update: got %+v and %v, want applied", res, err)
	}
	b.ws = ws
}

// "Conflicts are an agents.ErrConflict error, the result lists them, and the
// workspace is unchanged."
func (s suite) updateConflict(t *testing.T) {
	if _, ok := s.New(t).(sandbox.Updater); !ok {
		return
	}
	b := s.open(t)
	defer b.discard()
	b.do(write(ConflictPath, "ours\n"), write("new.txt", "n\n"), mkdir("hollow"))
	tree := b.tree()
	b.Edit(t, b.request.Resource, ConflictPath, "theirs\n")
	b.before = b.Digest(t, b.request.Resource)
	res, _, err := b.strategy.(sandbox.Updater).Update(b.ctx(), b.ws, testTime())
	if !errors.Is(err, agents.ErrConflict) {
		t.Errorf("Update: got %v, want agents.ErrConflict", err)
	}
	if !slices.ContainsFunc(res.Conflicts, func(c agents.PathReason) bool { return c.Path == ConflictPath }) {
		t.Errorf("the conflicts %+v do not name %s", res.Conflicts, ConflictPath)
	}
	b.wantTree(tree, "after an update that conflicts")
	b.wantUntouched("through an update that conflicts")
}

// "An Archiver writes everything unapplied in the workspace into a folder, and
// makes a workspace from such a folder again."
func (s suite) archive(t *testing.T) {
	if _, ok := s.New(t).(sandbox.Archiver); !ok {
		return
	}
	b := s.open(t)
	b.wantUnapplied(false)
	b.do(
		write("src/main.go", "x"), remove("data.bin"), oddNames("plan"), write(IgnoredPath, "log"),
		mkdir("hollow"), write("secret", "s"), mode("secret", 0o600), nestedRepository("vendor/dep"),
	)
	b.wantUnapplied(true)
	tree := b.tree()
	dir := b.folder("archive")
	if err := b.strategy.(sandbox.Archiver).Archive(b.ctx(), b.ws, dir); err != nil {
		t.Fatalf("Archive: %v", err)
	}
	b.wantTree(tree, "after Archive")
	b.discard()
	b.wantNothingLeft("after Archive and Remove")

	b.strategy = s.New(t)
	b.request.PrivateDir = filepath.Join(b.folder("again"), "private")
	must(t, mkdir("private")(b.folder("again")))
	ws, err := b.strategy.(sandbox.Archiver).Unarchive(b.ctx(), b.request, dir)
	if err != nil {
		t.Fatalf("Unarchive: %v", err)
	}
	b.ws = ws
	b.wantTree(tree, "made from its archive")
	b.wantUntouched("through an archive and back")
	b.wantUnapplied(true)
	b.discard()
}

func (b *box) wantUnapplied(want bool) {
	b.Helper()
	got, err := b.strategy.(sandbox.Archiver).Unapplied(b.ctx(), b.ws)
	if err != nil || got != want {
		b.Fatalf("Unapplied: got %t and %v, want %t", got, err, want)
	}
}
