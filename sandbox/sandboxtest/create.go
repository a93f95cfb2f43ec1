package sandboxtest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/sandbox"
)

// "It never changes."
func (s suite) capabilities(t *testing.T) {
	again := s.New(t).Capabilities()
	if !slices.Contains(agents.Strategies(), s.caps.Name) {
		t.Errorf("Name = %q, want one of %q", s.caps.Name, agents.Strategies())
	}
	if again.Name != s.caps.Name || again.Isolates != s.caps.Isolates || again.Rollback != s.caps.Rollback {
		t.Errorf("Capabilities changed from %+v to %+v", s.caps, again)
	}
	if (s.Hidden != nil) != s.caps.GitState {
		t.Errorf("GitState is %t, but Config.Hidden is there: %t", s.caps.GitState, s.Hidden != nil)
	}
}

// "Create makes the isolated state and returns its workspace, with Path and
// Metadata filled in."
func (s suite) create(t *testing.T) {
	b := s.open(t)
	defer b.discard()
	switch {
	case b.ws.SandboxID != b.request.SandboxID, b.ws.PlanID != b.request.PlanID, b.ws.PrivateDir != b.request.PrivateDir:
		t.Errorf("workspace %+v does not carry the request's identity %+v", b.ws, b.request)
	case !filepath.IsAbs(b.ws.Path):
		t.Errorf("Path = %q, want an absolute path", b.ws.Path)
	case b.ws.Metadata["strategy"] != string(s.caps.Name):
		t.Errorf(`Metadata["strategy"] = %q, want %q`, b.ws.Metadata["strategy"], s.caps.Name)
	case b.ws.Resource.ID != b.request.Resource.ID:
		t.Errorf("Resource = %+v, want %+v", b.ws.Resource, b.request.Resource)
	}
	b.wantUntouched("through Create")
	if s.caps.Files {
		want := b.seedTree()
		if diff := Explain(s.carried(b.tree()), s.carried(want)); diff != "" && s.caps.Isolates {
			t.Errorf("a new workspace does not hold the seed:\n%s", diff)
		}
	}
	t.Run("NotAResource", s.createOfNothing)
}

// "agents.ErrInvalid when the resource is not what its type says" (or, where
// there is nothing at all, agents.ErrNotFound), and "nothing is left behind".
func (s suite) createOfNothing(t *testing.T) {
	b := s.prepare(t)
	req := b.request
	req.Resource.Location = filepath.Join(b.dir, "no", "such", "place")
	if _, err := b.strategy.Create(b.ctx(), req); !errors.Is(err, agents.ErrInvalid) && !errors.Is(err, agents.ErrNotFound) {
		t.Errorf("Create of a missing location: got %v, want agents.ErrInvalid or agents.ErrNotFound", err)
	}
	b.wantNothingLeft("after a refused Create")
}

// "On failure nothing is left behind, in the resource or elsewhere."
func (s suite) createCancelled(t *testing.T) {
	b := s.prepare(t)
	untilDone(t, func(ctx context.Context) bool {
		ws, err := b.strategy.Create(ctx, b.request)
		if err != nil {
			b.wantNothingLeft("after a cancelled Create")
			if left := names(b, b.request.PrivateDir); len(left) > 0 {
				b.Fatalf("the private folder has %q after a cancelled Create", left)
			}
			return false
		}
		b.ws = ws
		return true
	})
	b.discard()
	b.wantNothingLeft("at the end")
}

// "Remove takes away everything that Create made. It works on a half-made or
// half-removed workspace (only PrivateDir is sure to be known) and is
// idempotent."
func (s suite) remove(t *testing.T) {
	known := func(b *box) sandbox.Workspace { return b.ws }
	onlyPrivate := func(b *box) sandbox.Workspace {
		return sandbox.Workspace{
			SandboxID: b.request.SandboxID, PlanID: b.request.PlanID, Resource: b.request.Resource,
			PrivateDir: b.request.PrivateDir, Options: b.request.Options,
		}
	}
	intact := func(*box) {}
	changed := func(b *box) { b.do(write("a/b", "x"), mode("a/b", 0o400), mode("a", 0o500)) }
	for _, c := range []struct {
		name  string
		spoil func(*box)
		ws    func(*box) sandbox.Workspace
		files bool // only where a sandbox has a directory of its own
	}{
		{"whole", intact, known, false},
		{"after changes", changed, known, true},
		{"only the private folder known", intact, onlyPrivate, false},
		{"without its directory", func(b *box) { must(b, remove("")(b.ws.Path)) }, known, true},
		{"without its directory, only the private folder known", func(b *box) { must(b, remove("")(b.ws.Path)) }, onlyPrivate, true},
		{"with an emptied directory", func(b *box) { must(b, removeAllChildren(b.ws.Path)) }, known, true},
	} {
		if c.files && !(s.caps.Isolates && s.caps.Files) {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			b := s.open(t)
			c.spoil(b)
			ws := c.ws(b)
			for range 2 {
				if err := b.strategy.Remove(b.ctx(), ws); err != nil {
					t.Fatalf("Remove: %v", err)
				}
			}
			b.wantNothingLeft("after Remove")
		})
	}
	t.Run("never made", func(t *testing.T) {
		b := s.prepare(t)
		if err := b.strategy.Remove(b.ctx(), onlyPrivate(b)); err != nil {
			t.Fatalf("Remove: %v", err)
		}
		b.wantNothingLeft("after Remove")
	})
	t.Run("made twice", s.createAgain)
}

// "PrivateDir … left by a killed Create": a Create that was killed just before
// its record was stored is made again.
func (s suite) createAgain(t *testing.T) {
	b := s.open(t)
	b.strategy = s.New(t)
	b.make()
	b.discard()
	b.wantNothingLeft("after Remove")
}

// A Preparer returns environment variables.
func (s suite) prepareCall(t *testing.T) {
	b := s.open(t)
	defer b.discard()
	p, ok := b.strategy.(sandbox.Preparer)
	if !ok {
		return
	}
	env, err := p.Prepare(b.ctx(), b.ws)
	if err != nil {
		t.Fatalf("Prepare: %v", err)
	}
	for _, kv := range env {
		if name, _, ok := strings.Cut(kv, "="); !ok || name == "" {
			t.Errorf("Prepare: %q is not NAME=VALUE", kv)
		}
	}
	b.wantUntouched("through Prepare")
}

// seedTree is the oracle: a plain directory that got the seed.
func (b *box) seedTree() Tree {
	b.Helper()
	dir := b.fresh("oracle")
	must(b, WriteSeed(dir))
	t, err := ReadTree(dir)
	must(b, err)
	return t
}

// carried returns what of t a resource of this strategy can hold.
func (s suite) carried(t Tree) Tree {
	if !s.caps.EmptyDirsHome {
		t = t.files()
	}
	if !s.caps.FullModesHome {
		t = t.executable()
	}
	return t
}

func removeAllChildren(dir string) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
	}
	return err
}
