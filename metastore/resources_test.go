package metastore_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/metastore"
)

func TestResources(t *testing.T) {
	f := newFixture(t)
	want := agents.Resource{
		Name: "team/app", Type: agents.TypeGitCheckout, Location: "/src/a\xffb\n'\"?", Branch: "main",
		Strategy: agents.CopyOnWrite, ReadOnly: true,
	}
	f.write(func(tx *metastore.Tx) error { return tx.Resources().Insert(&want) })
	if !agents.ValidID(want.ID) || !want.CreatedAt.Equal(f.clock) {
		t.Fatalf("Insert filled id %q and time %v", want.ID, want.CreatedAt)
	}
	other := f.resource("other")
	f.read(func(tx *metastore.Tx) error {
		r := tx.Resources()
		finders := map[string]func() (agents.Resource, error){
			"Get":            func() (agents.Resource, error) { return r.Get(want.ID) },
			"ByName":         func() (agents.Resource, error) { return r.ByName(want.Name) },
			"ByLocation":     func() (agents.Resource, error) { return r.ByLocation(want.Type, want.Location) },
			"Resolve id":     func() (agents.Resource, error) { return r.Resolve(strings.ToLower(want.ID)) },
			"Resolve prefix": func() (agents.Resource, error) { return r.Resolve(want.ID[:25]) },
			"Resolve name":   func() (agents.Resource, error) { return r.Resolve(want.Name) },
		}
		for name, find := range finders {
			got, err := find()
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: -want +got\n%s", name, diff)
			}
		}
		all, err := r.List()
		if diff := cmp.Diff([]agents.Resource{other, want}, all); diff != "" {
			t.Errorf("List: -want +got\n%s", diff)
		}
		return err
	})
}

func TestResourcesNotFound(t *testing.T) {
	f := newFixture(t)
	for name, find := range map[string]func(metastore.Resources) error{
		"Get":             func(r metastore.Resources) error { _, err := r.Get(id(1)); return err },
		"ByName":          func(r metastore.Resources) error { _, err := r.ByName("nobody"); return err },
		"ByLocation":      func(r metastore.Resources) error { _, err := r.ByLocation(agents.TypeFile, "/x"); return err },
		"Resolve":         func(r metastore.Resources) error { _, err := r.Resolve("nobody"); return err },
		"Delete":          func(r metastore.Resources) error { return r.Delete(id(1)) },
		"DeleteWithLinks": func(r metastore.Resources) error { return r.DeleteWithLinks(id(1)) },
	} {
		t.Run(name, func(t *testing.T) {
			f.refuse(agents.ErrNotFound, func(tx *metastore.Tx) error { return find(tx.Resources()) })
		})
	}
	f.refuse(agents.ErrInvalid, func(tx *metastore.Tx) error { _, err := tx.Resources().Resolve(""); return err })
}

func TestResourceNameIsTakenOnce(t *testing.T) {
	f := newFixture(t)
	f.resource("app")
	err := f.refuse(agents.ErrExists, func(tx *metastore.Tx) error {
		return tx.Resources().Insert(&agents.Resource{Name: "app", Type: agents.TypeFile, Location: "/x"})
	})
	if got, want := err.Error(), "resource app: already exists"; got != want {
		t.Errorf("message = %q, want %q", got, want)
	}
	f.refuse(agents.ErrInvalid, func(tx *metastore.Tx) error {
		return tx.Resources().Insert(&agents.Resource{ID: "not-an-id", Name: "b"})
	})
}

func TestByLocationReturnsTheOldest(t *testing.T) {
	f := newFixture(t)
	first := f.resource("first")
	f.clock = f.clock.Add(-1) // clocks go back
	f.write(func(tx *metastore.Tx) error {
		return tx.Resources().Insert(&agents.Resource{Name: "second", Type: first.Type, Location: first.Location, CreatedAt: first.CreatedAt.Add(1)})
	})
	f.read(func(tx *metastore.Tx) error {
		got, err := tx.Resources().ByLocation(first.Type, first.Location)
		if got.Name != "first" {
			t.Errorf("ByLocation = %s, want first", got.Name)
		}
		return err
	})
}

// TestU105DeleteRefusesWhatIsNeeded: links and plans that are not terminal.
func TestU105DeleteRefusesWhatIsNeeded(t *testing.T) {
	f := newFixture(t)
	linked := f.resource("linked")
	project := agents.Project{Name: "web", Resources: []agents.Resource{linked}}
	f.write(func(tx *metastore.Tx) error { return tx.Projects().Insert(&project) })
	err := f.refuse(agents.ErrBlocked, func(tx *metastore.Tx) error { return tx.Resources().Delete(linked.ID) })
	if got, want := err.Error(), "resource linked is linked by project web"; got != want {
		t.Errorf("message = %q, want %q", got, want)
	}
	if got, want := agents.HintOf(err), "unlink-resource web "+linked.ID; !strings.Contains(got, want) {
		t.Errorf("hint = %q, want it to hold %q", got, want)
	}
	f.write(func(tx *metastore.Tx) error { return tx.Projects().Unlink(project.ID, linked.ID) })
	f.write(func(tx *metastore.Tx) error { return tx.Resources().Delete(linked.ID) })
}

// TestU107ForcedDeleteRefusesOnlyActivePlans: with an active plan refused, with links only allowed.
func TestU107ForcedDeleteRefusesOnlyActivePlans(t *testing.T) {
	f := newFixture(t)
	p := f.plan("running", 1)
	used := p.Resources[0]
	f.write(func(tx *metastore.Tx) error {
		return tx.Projects().Insert(&agents.Project{Name: "web", Resources: []agents.Resource{used}})
	})
	err := f.refuse(agents.ErrBlocked, func(tx *metastore.Tx) error { return tx.Resources().DeleteWithLinks(used.ID) })
	if !strings.Contains(err.Error(), p.ID) || !strings.Contains(agents.HintOf(err), "agents plan cancel "+p.ID) {
		t.Errorf("error %q with hint %q does not name plan %s", err, agents.HintOf(err), p.ID)
	}
	f.read(func(tx *metastore.Tx) error {
		project, err := tx.Projects().ByName("web")
		if len(project.Resources) != 1 {
			t.Error("a refused delete took the link away")
		}
		return err
	})
	f.move(&p, agents.PhaseExecute, agents.PlanCancelled)
	f.write(func(tx *metastore.Tx) error { return tx.Resources().DeleteWithLinks(used.ID) })
	f.read(func(tx *metastore.Tx) error {
		got, err := tx.Plans().Get(p.ID)
		if diff := cmp.Diff([]agents.Resource{used}, got.Resources); diff != "" {
			t.Errorf("the ended plan lost its copy: -want +got\n%s", diff)
		}
		return err
	})
}

func TestProjects(t *testing.T) {
	f := newFixture(t)
	b, a, c := f.resource("b"), f.resource("a"), f.resource("c")
	want := agents.Project{Name: "web", Resources: []agents.Resource{b, a}}
	f.write(func(tx *metastore.Tx) error { return tx.Projects().Insert(&want) })
	empty := agents.Project{Name: "empty"}
	f.write(func(tx *metastore.Tx) error { return tx.Projects().Insert(&empty) })
	f.write(func(tx *metastore.Tx) error {
		for _, res := range []agents.Resource{c, b, c} { // again: stays where it is
			if err := tx.Projects().Link(want.ID, res.ID); err != nil {
				return err
			}
		}
		return nil
	})
	want.Resources = []agents.Resource{b, a, c}
	f.read(func(tx *metastore.Tx) error {
		r := tx.Projects()
		for name, find := range map[string]func() (agents.Project, error){
			"Get":     func() (agents.Project, error) { return r.Get(want.ID) },
			"ByName":  func() (agents.Project, error) { return r.ByName("web") },
			"Resolve": func() (agents.Project, error) { return r.Resolve(want.ID[:24]) },
		} {
			got, err := find()
			if diff := cmp.Diff(want, got); diff != "" || err != nil {
				t.Errorf("%s: %v -want +got\n%s", name, err, diff)
			}
		}
		all, err := r.List()
		if diff := cmp.Diff([]agents.Project{empty, want}, all); diff != "" {
			t.Errorf("List: -want +got\n%s", diff)
		}
		return err
	})
	f.write(func(tx *metastore.Tx) error {
		for range 2 {
			if err := tx.Projects().Unlink(want.ID, a.ID); err != nil {
				return err
			}
		}
		got, err := tx.Projects().Get(want.ID)
		if diff := cmp.Diff([]agents.Resource{b, c}, got.Resources); diff != "" {
			t.Errorf("after Unlink: -want +got\n%s", diff)
		}
		return err
	})
	f.write(func(tx *metastore.Tx) error { return tx.Projects().Delete(want.ID) })
	f.write(func(tx *metastore.Tx) error { return tx.Resources().Delete(b.ID) })
}

func TestProjectRefusals(t *testing.T) {
	f := newFixture(t)
	project := agents.Project{Name: "web"}
	f.write(func(tx *metastore.Tx) error { return tx.Projects().Insert(&project) })
	res := f.resource("app")
	p := agents.Plan{Phase: agents.PhaseExecute, State: agents.PlanQueued, Projects: []string{"web"}}
	f.write(func(tx *metastore.Tx) error { return tx.Plans().Insert(&p) })

	f.refuse(agents.ErrExists, func(tx *metastore.Tx) error { return tx.Projects().Insert(&agents.Project{Name: "web"}) })
	f.refuse(agents.ErrBlocked, func(tx *metastore.Tx) error { return tx.Projects().Delete(project.ID) })
	f.refuse(agents.ErrNotFound, func(tx *metastore.Tx) error { return tx.Projects().Delete(id(9)) })
	f.refuse(agents.ErrNotFound, func(tx *metastore.Tx) error { return tx.Projects().Link(project.ID, id(9)) })
	f.refuse(agents.ErrNotFound, func(tx *metastore.Tx) error { return tx.Projects().Link(id(9), res.ID) })
	f.refuse(agents.ErrNotFound, func(tx *metastore.Tx) error { _, err := tx.Projects().Get(id(9)); return err })
	f.refuse(agents.ErrNotFound, func(tx *metastore.Tx) error { _, err := tx.Projects().ByName("x"); return err })
	f.refuse(agents.ErrNotFound, func(tx *metastore.Tx) error { _, err := tx.Projects().Resolve("x"); return err })

	f.move(&p, agents.PhaseApply, agents.PlanApplied)
	f.write(func(tx *metastore.Tx) error { return tx.Projects().Delete(project.ID) })
}

func TestActions(t *testing.T) {
	f := newFixture(t)
	fallback := ""
	want := agents.Action{
		Name: "local/tidy", Description: "a \"quoted\" one", RequireCheckpoints: true, ReadOnly: true,
		Arguments: []agents.Argument{{Name: "word", Required: true}, {Name: "to", Default: &fallback}},
		Steps: []agents.Step{{
			ID: "edit", Tool: "builtin/file-edit", Resource: "app", OnFailure: agents.FailKeep, Continue: true,
			With: map[string]any{"old": "{{ .word }}", "limit": 10, "share": 0.5, "big": 9007199254740993, "all": true, "list": []any{1, "x", nil}},
		}},
	}
	f.write(func(tx *metastore.Tx) error { return tx.Actions().Insert(&want) })
	f.read(func(tx *metastore.Tx) error {
		r := tx.Actions()
		for name, find := range map[string]func() (agents.Action, error){
			"Get":     func() (agents.Action, error) { return r.Get(want.ID) },
			"ByName":  func() (agents.Action, error) { return r.ByName("local/tidy") },
			"Resolve": func() (agents.Action, error) { return r.Resolve("local/tidy") },
		} {
			got, err := find()
			if diff := cmp.Diff(want, got); diff != "" || err != nil {
				t.Errorf("%s: %v -want +got\n%s", name, err, diff)
			}
		}
		all, err := r.List()
		if len(all) != 1 {
			t.Errorf("List = %d actions, want 1", len(all))
		}
		return err
	})
	f.refuse(agents.ErrExists, func(tx *metastore.Tx) error { return tx.Actions().Insert(&agents.Action{Name: "local/tidy"}) })
	f.refuse(agents.ErrNotFound, func(tx *metastore.Tx) error { _, err := tx.Actions().Get(id(9)); return err })
	f.refuse(agents.ErrNotFound, func(tx *metastore.Tx) error { _, err := tx.Actions().ByName("x"); return err })
	f.refuse(agents.ErrNotFound, func(tx *metastore.Tx) error { _, err := tx.Actions().Resolve("x"); return err })
	f.refuse(agents.ErrInvalid, func(tx *metastore.Tx) error {
		return tx.Actions().Insert(&agents.Action{Name: "odd", Steps: []agents.Step{{With: map[string]any{"f": func() {}}}}})
	})
}
