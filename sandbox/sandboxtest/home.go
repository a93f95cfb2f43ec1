package sandboxtest

import (
	"context"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/sandbox"
)

// "The real resource stays byte for byte what it was through every method but
// Apply."
func (s suite) untouched(t *testing.T) {
	b := s.open(t)
	b.wantUntouched("through Create")
	for _, m := range mutations() {
		if m.name == "nested repository" {
			continue // a seal may refuse it
		}
		must(t, m.do(b.ws.Path))
		b.wantUntouched("by " + m.name + " in the workspace")
		if s.caps.Rollback {
			b.restore(state{})
			b.wantUntouched("through Restore")
		} else {
			b.discard()
			b.make()
		}
	}
	b.do(write("src/main.go", "x"))
	b.seal()
	b.wantUntouched("through Seal")
	if m := b.Marks(t, b.request.Resource); s.caps.Marks == "" && len(m) > 0 {
		t.Errorf("the resource has marks %q, and Capabilities.Marks names none", m)
	}
	b.discard()
	b.wantNothingLeft("after Remove")
}

// toBringHome changes a bit of everything that every strategy carries home,
// and of what only some do.
func toBringHome() op {
	return all(
		write("README.md", "# changed\n"), write("new/file.txt", "new\n"), remove("src/util/keep.go"),
		rename("data.bin", "moved.bin"), mode("script.sh", 0o644), mode("-dash.txt", 0o755),
		remove("link"), link("empty.txt", "link"), remove("deep"), write("deep", "a file now\n"),
		remove("empty.txt"), write("empty.txt/in/side", "a directory now\n"),
		oddNames("plan"), write("big.bin", string(noise(1<<20, 5))),
		write("secret", "s"), mode("secret", 0o600), mkdir("hollow/dir"), write(IgnoredPath, "log\n"),
	)
}

// "Apply brings a sealed result into the real resource, or with DryRun says
// what would happen and touches nothing."
func (s suite) sealAndApply(t *testing.T) {
	b := s.open(t)
	home, before := b.home(), b.tree()
	b.do(toBringHome())
	after := b.tree()
	sealed := b.seal()
	b.wantTree(after, "after Seal")
	if sealed.Unchanged || sealed.Ref == "" {
		t.Fatalf("Seal: got %+v, want a reference to changes", sealed)
	}
	want := s.broughtHome(home, before, after)
	dry := b.applyRequest(sealed.Ref)
	dry.DryRun = true
	preview := b.apply(dry)
	b.wantUntouched("through a dry run")
	res := b.apply(b.applyRequest(sealed.Ref))
	if res.State != agents.ApplyApplied || preview.State != agents.ApplyApplied {
		t.Fatalf("Apply: previewed %+v, got %+v, want applied", preview, res)
	}
	if diff := Explain(s.carried(b.home()), s.carried(want)); diff != "" {
		t.Errorf("the real resource does not hold the result:\n%s", diff)
	}
	s.wantLists(t, res, s.carried(home).files(), s.carried(want).files())
	if !slices.Equal(preview.Added, res.Added) || !slices.Equal(preview.Changed, res.Changed) || !slices.Equal(preview.Deleted, res.Deleted) {
		t.Errorf("Apply listed %+v, and the dry run %+v", res, preview)
	}
	b.discard()
	if marks := b.Marks(t, b.request.Resource); len(marks) > 0 {
		t.Errorf("the resource has marks after Remove: %q", marks)
	}
	if diff := Explain(s.carried(b.home()), s.carried(want)); diff != "" {
		t.Errorf("Remove took something of the applied result away:\n%s", diff)
	}
}

// broughtHome is the resource's tree with what changed in the workspace.
func (s suite) broughtHome(home, before, after Tree) Tree {
	want := maps.Clone(home)
	for _, p := range before.Changed(after) {
		if isIgnored(p) && !s.caps.IgnoredHome {
			continue
		}
		if e, there := after[p]; there {
			want[p] = e
		} else {
			delete(want, p)
		}
	}
	return want
}

func isIgnored(path string) bool {
	return path == "build" || strings.HasPrefix(path, "build/") || strings.HasSuffix(path, ".log")
}

// wantLists fails when a result does not name the files that changed.
func (s suite) wantLists(t *testing.T, res agents.ResourceResult, before, after Tree) {
	t.Helper()
	var added, changed, deleted []string
	for _, p := range before.Changed(after) {
		_, was := before[p]
		_, is := after[p]
		switch {
		case !was:
			added = append(added, p)
		case !is:
			deleted = append(deleted, p)
		default:
			changed = append(changed, p)
		}
	}
	for _, l := range []struct {
		name      string
		got, want []string
	}{{"Added", res.Added, added}, {"Changed", res.Changed, changed}, {"Deleted", res.Deleted, deleted}} {
		if !slices.Equal(sortedSet(l.got), l.want) {
			t.Errorf("%s: got %q, want %q", l.name, l.got, l.want)
		}
	}
}

// "Unchanged: nothing differs from the base", and then Apply changes nothing.
func (s suite) applyUnchanged(t *testing.T) {
	b := s.open(t)
	defer b.discard()
	b.do(write("src/main.go", "x"), write("src/main.go", "package main\n\nfunc main() {}\n"))
	sealed := b.seal()
	if !sealed.Unchanged {
		t.Errorf("Seal of an unchanged workspace: got %+v, want Unchanged", sealed)
	}
	if res := b.apply(b.applyRequest(sealed.Ref)); res.State != agents.ApplyUnchanged {
		t.Errorf("Apply: got %+v, want unchanged", res)
	}
	b.wantUntouched("by an unchanged apply")
}

// "All or nothing: a result other than applied or unchanged leaves the
// resource byte for byte as it was."
func (s suite) applyCancelled(t *testing.T) {
	b := s.open(t)
	defer b.discard()
	home, before := b.home(), b.tree()
	b.do(toBringHome())
	want := s.broughtHome(home, before, b.tree())
	sealed := b.seal()
	untilDone(t, func(ctx context.Context) bool {
		res, err := b.strategy.Apply(ctx, b.ws, b.applyRequest(sealed.Ref))
		if err != nil {
			b.wantUntouched("by a cancelled Apply")
			return false
		}
		if res.State != agents.ApplyApplied {
			t.Fatalf("Apply: got %+v, want applied", res)
		}
		return true
	})
	if diff := Explain(s.carried(b.home()), s.carried(want)); diff != "" {
		t.Errorf("the real resource does not hold the result:\n%s", diff)
	}
}

// "It may be called again after further changes. It does not change what tools
// see."
func (s suite) sealAgain(t *testing.T) {
	b := s.open(t)
	defer b.discard()
	home, before := b.home(), b.tree()
	b.do(write("one.txt", "1"))
	first := b.seal()
	if again := b.seal(); again.Ref != first.Ref {
		t.Errorf("a result sealed twice is %q and %q", first.Ref, again.Ref)
	}
	b.do(remove("one.txt"), write("two.txt", "2"))
	after := b.tree()
	second := b.seal()
	b.wantTree(after, "after the second Seal")
	if second.Ref == first.Ref {
		t.Errorf("two results have one reference %q", first.Ref)
	}
	b.apply(b.applyRequest(second.Ref))
	if diff := Explain(s.carried(b.home()), s.carried(s.broughtHome(home, before, after))); diff != "" {
		t.Errorf("the second seal did not come home:\n%s", diff)
	}
}

// "ProtectedNames" are never written back, at any depth, and the seal says so.
func (s suite) protectedNames(t *testing.T) {
	for _, name := range s.caps.ProtectedNames {
		t.Run(name, func(t *testing.T) {
			b := s.open(t)
			defer b.discard()
			b.do(write("sub/"+name+"/x", "x"), write("sub/beside", "x"))
			sealed := b.seal()
			b.apply(b.applyRequest(sealed.Ref))
			if _, there := b.home()["sub/"+name]; there {
				t.Errorf("%s came home", name)
			}
			if len(sealed.LeftOut) == 0 {
				t.Errorf("the seal does not say that %s is left out", name)
			}
		})
	}
}

// A conflict leaves both sides alone, in a dry run and without one.
func (s suite) conflict(t *testing.T) {
	b := s.open(t)
	defer b.discard()
	b.do(write(ConflictPath, "ours\n"), write("new.txt", "n"))
	tree := b.tree()
	sealed := b.seal()
	b.Edit(t, b.request.Resource, ConflictPath, "theirs\n")
	b.before = b.Digest(t, b.request.Resource)
	for _, dry := range []bool{true, false, false} {
		req := b.applyRequest(sealed.Ref)
		req.DryRun = dry
		res, err := b.strategy.Apply(b.ctx(), b.ws, req)
		if err != nil && !errors.Is(err, agents.ErrConflict) {
			t.Fatalf("Apply: %v", err)
		}
		if res.State != agents.ApplyConflict {
			t.Errorf("Apply: got %+v, want a conflict", res)
		}
		if !slices.ContainsFunc(res.Conflicts, func(c agents.PathReason) bool { return c.Path == ConflictPath && c.Reason != "" }) {
			t.Errorf("the conflicts %+v do not name %s", res.Conflicts, ConflictPath)
		}
		b.wantUntouched("by an apply that conflicts")
		b.wantTree(tree, "after a conflict")
	}
}

// "It may be used from several goroutines for different workspaces."
func (s suite) severalWorkspaces(t *testing.T) {
	first := s.open(t)
	boxes := []*box{first}
	for _, name := range []string{"second", "third", "fourth"} {
		boxes = append(boxes, first.second(t, name))
	}
	var wg sync.WaitGroup
	for i, b := range boxes {
		wg.Go(func() {
			if err := b.live(i > 0); err != nil {
				t.Errorf("workspace %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	first.wantNothingLeft("after all were removed")
}

// live is a whole life of one sandbox; it runs in a goroutine of its own, so
// that it may not end the test.
func (b *box) live(create bool) error {
	ctx := b.ctx()
	if create {
		ws, err := b.strategy.Create(ctx, b.request)
		if err != nil {
			return err
		}
		b.ws = ws
	}
	before, err := ReadTree(b.ws.Path)
	if err != nil {
		return err
	}
	if create && b.caps.Rollback {
		req := sandbox.CaptureRequest{Objects: filepath.Join(b.dir, "objects"), Dir: filepath.Join(b.dir, "base"), Label: "base"}
		if _, err := b.strategy.Capture(ctx, b.ws, req); err != nil {
			return err
		}
	}
	if err := run(b.ws.Path, write("src/main.go", b.ws.SandboxID), remove("data.bin"), write("own.txt", b.ws.SandboxID)); err != nil {
		return err
	}
	if b.caps.Rollback {
		if _, err := b.strategy.Restore(ctx, b.ws, sandbox.RestoreRequest{Objects: filepath.Join(b.dir, "objects")}); err != nil {
			return err
		}
		after, err := ReadTree(b.ws.Path)
		if err != nil {
			return err
		}
		if diff := Explain(after, before); diff != "" {
			return errors.New("restored to the base it differs:\n" + diff)
		}
	}
	if _, err := b.strategy.Seal(ctx, b.ws, sandbox.SealRequest{Message: "conformance", When: testTime()}); err != nil {
		return err
	}
	return b.strategy.Remove(ctx, b.ws)
}
