package engine_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/engine"
	"github.com/cleveragents/agents/internal/oracle"
	"github.com/cleveragents/agents/sandbox"
	"github.com/cleveragents/agents/sandbox/gitworktree"
	"github.com/cleveragents/agents/sandbox/none"
	"github.com/cleveragents/agents/sandbox/sandboxtest"
)

// newWithCopies is newCompliance with a strategy for directories too.
func newWithCopies(t *testing.T) *compliance {
	t.Helper()
	return newComplianceWith(t, []sandbox.Strategy{gitworktree.New(), sandboxtest.NewPlain(), none.New()}, nil)
}

// directory makes a directory with these files.
func (c *compliance) directory(files ...string) *oracle.Repo {
	c.t.Helper()
	d := oracle.At(c.t, c.t.TempDir())
	for _, name := range files {
		d.Write(name, name+"\n")
	}
	return d
}

func dir(name, place string) agents.Resource {
	return agents.Resource{Name: name, Type: agents.TypeDirectory, Location: place}
}

func repo(name, place string) agents.Resource {
	return agents.Resource{Name: name, Type: agents.TypeGitCheckout, Location: place}
}

func (c *compliance) planOn(resources ...agents.Resource) agents.Plan {
	c.t.Helper()
	p, err := c.CreatePlan(c.t.Context(), engine.PlanRequest{Resources: resources})
	c.must(err)
	return p
}

// boundaries says of each resource of a plan whose sandbox it is in, and where.
func boundaries(p agents.Plan) string {
	var out []string
	for _, r := range p.Resources {
		if r.Boundary == "" {
			out = append(out, r.Name)
			continue
		}
		outer := p.Boundary(r)
		out = append(out, r.Name+"="+outer.Name+":"+r.SubPath)
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// Which resources share a sandbox: told by what the directories are, not by
// how they are written.
func TestBoundaries(t *testing.T) {
	c := newWithCopies(t)
	top := c.directory("a/b/c/f", "a/bc/f", "a/node_modules/m/f", "plain/f").Dir
	at := func(name string) string { return filepath.Join(top, name) }
	c.must(os.Symlink(at("a/b/c"), at("link")))
	c.must(os.Symlink(at("a"), at("a-link")))
	app := oracle.EmptyRepo(t, at("app"))
	app.Write("docs/f", "f\n")
	app.Commit("docs")
	oracle.EmptyRepo(t, at("app/vendor")).Write("f", "f\n")
	readOnly := func(r agents.Resource) agents.Resource { r.ReadOnly = true; return r }
	through := func(r agents.Resource) agents.Resource { r.Strategy = agents.NoIsolation; return readOnly(r) }
	for _, tc := range []struct {
		name      string
		resources []agents.Resource
		want      string
	}{
		{"inside", []agents.Resource{dir("in", at("a/b")), dir("out", at("a"))}, "in=out:b out"},
		{"deep", []agents.Resource{dir("out", at("a")), dir("mid", at("a/b")), dir("in", at("a/b/c"))}, "in=out:b/c mid=out:b out"},
		{"a look-alike", []agents.Resource{dir("one", at("a/b")), dir("other", at("a/bc"))}, "one other"},
		{"the inner through a link", []agents.Resource{dir("out", at("a")), dir("in", at("link"))}, "in=out:b/c out"},
		{"the outer through a link", []agents.Resource{dir("out", at("a-link")), dir("in", at("a/b"))}, "in=out:b out"},
		{"the same place", []agents.Resource{dir("one", at("a")), dir("two", at("a/../a-link/")), dir("in", at("a/b"))}, "in=one:b one two=one:."},
		{"a repository in a directory", []agents.Resource{dir("out", top), repo("app", at("app"))}, "app=out:app out"},
		{"a directory in a repository", []agents.Resource{repo("app", at("app")), dir("docs", at("app/docs"))}, "app docs=app:docs"},
		{"a repository in a repository", []agents.Resource{repo("app", at("app")), repo("lib", at("app/vendor"))}, "app lib"},
		{"both in a directory", []agents.Resource{repo("app", at("app")), repo("lib", at("app/vendor")), dir("out", top)}, "app=out:app lib=out:app/vendor out"},
		{"a protected name", []agents.Resource{dir("out", at("a")), dir("in", at("a/node_modules/m"))}, "in out"},
		{"a read-only outer", []agents.Resource{readOnly(dir("out", at("a"))), dir("in", at("a/b")), readOnly(dir("also", at("a/b/c")))}, "also=in:c in out"},
		{"not isolated", []agents.Resource{through(dir("out", at("a"))), dir("in", at("a/b"))}, "in out"},
		{"the inner not isolated", []agents.Resource{dir("out", at("a")), through(dir("in", at("a/b")))}, "in out"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p, err := c.CreatePlan(t.Context(), engine.PlanRequest{Resources: tc.resources})
			c.must(err)
			if got := boundaries(p); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			stored, err := c.Plan(t.Context(), p.ID)
			c.must(err)
			if got := boundaries(stored); got != tc.want {
				t.Errorf("stored: got %q, want %q", got, tc.want)
			}
		})
		c.forget(tc.resources)
	}
	t.Run("protected otherwise", func(t *testing.T) {
		c := newComplianceWith(t, []sandbox.Strategy{sandboxtest.NewPlain()}, func(s *engine.Settings) { s.Sandbox.Protected = []string{} })
		p := c.planOn(dir("out", at("a")), dir("in", at("a/node_modules/m")))
		if got := boundaries(p); got != "in=out:node_modules/m out" {
			t.Errorf("with no name protected: got %q", got)
		}
	})
}

// forget cancels all plans and removes these resources, so that their names
// and places are free.
func (c *compliance) forget(resources []agents.Resource) {
	c.t.Helper()
	plans, err := c.Plans(c.t.Context())
	c.must(err)
	for _, p := range plans {
		if p.State != agents.PlanCancelled {
			_, err := c.Cancel(c.t.Context(), engine.CancelRequest{Plan: p.ID})
			c.must(err)
		}
	}
	for _, r := range resources {
		_, err := c.RemoveResource(c.t.Context(), r.Name)
		c.must(err)
	}
}

func TestBoundariesThatCannotBeDecided(t *testing.T) {
	c := newWithCopies(t)
	app := oracle.NewRepo(t)
	app.Write("docs/f", "f\n")
	docs := filepath.Join(app.Dir, "docs")
	for _, tc := range []struct {
		name string
		a, b agents.Resource
		want string
	}{
		{"types", repo("a", app.Dir), dir("b", app.Dir), "as git-checkout and as fs-directory"},
		{"strategies", repo("a", app.Dir), agents.Resource{Name: "b", Type: agents.TypeGitCheckout, Location: app.Dir + "/.", Strategy: agents.CopyOnWrite}, "strategy git_worktree and with copy_on_write"},
		{"read-only", dir("a", docs), agents.Resource{Name: "b", Type: agents.TypeDirectory, Location: docs + "/.", ReadOnly: true}, "read-only and not"},
		{"base branches", repo("a", app.Dir), agents.Resource{Name: "b", Type: agents.TypeGitCheckout, Location: app.Dir + "/.", Branch: "next"}, `base branch "" and with "next"`},
		{"a file inside", repo("a", app.Dir), agents.Resource{Name: "b", Type: agents.TypeFile, Location: filepath.Join(docs, "f")}, "file inside"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			check := func(what string, err error) {
				t.Helper()
				if !errors.Is(err, agents.ErrConflict) || !strings.Contains(err.Error(), tc.want) || agents.HintOf(err) == "" ||
					!strings.Contains(err.Error(), "a ") || !strings.Contains(err.Error(), "b ") {
					t.Errorf("%s: got %v with the hint %q, want agents.ErrConflict that names both and says %q", what, err, agents.HintOf(err), tc.want)
				}
			}
			first, err := c.AddResource(t.Context(), tc.a)
			c.must(err)
			second, err := c.AddResource(t.Context(), tc.b)
			c.must(err)
			_, err = c.CreatePlan(t.Context(), engine.PlanRequest{Resources: []agents.Resource{first, second}})
			check("a plan", err)
			_, err = c.CreateProject(t.Context(), "both")
			c.must(err)
			_, err = c.LinkResource(t.Context(), "both", "a")
			c.must(err)
			_, err = c.LinkResource(t.Context(), "both", "b")
			check("a project", err)
			project, err := c.Project(t.Context(), "both")
			c.must(err)
			if len(project.Resources) != 1 {
				t.Errorf("after a refused link the project has %+v", project.Resources)
			}
			_, err = c.UnlinkResource(t.Context(), "both", "a")
			c.must(err)
			_, err = c.DeleteProject(t.Context(), "both")
			c.must(err)
		})
		c.forget([]agents.Resource{{Name: "a"}, {Name: "b"}})
	}
	if plans, err := c.Plans(t.Context()); len(plans) > 0 || err != nil {
		t.Errorf("refused plans were stored: %+v, %v", plans, err)
	}
}

// Two resources in one sandbox, from the first access until it has come home.
func TestResourcesThatShareASandbox(t *testing.T) {
	for _, kind := range []string{"repository", "directory"} {
		t.Run(kind, func(t *testing.T) {
			c := newWithCopies(t)
			home := c.directory("docs/guide.txt", "docs-old/x")
			outer := dir("app", home.Dir)
			if kind == "repository" {
				home = oracle.NewRepo(t)
				home.Write("docs/guide.txt", "v1\n")
				home.Commit("docs")
				outer = repo("app", home.Dir)
			}
			p := c.planOn(outer, dir("docs", filepath.Join(home.Dir, "docs")))
			inv := c.write(p.ID, "docs", "new.txt", "new\n")
			if len(inv.Changed) != 1 || inv.Changed[0].Path != "docs/new.txt" || inv.Changed[0].Resource != "app" || inv.Resource != "docs" {
				t.Errorf("changes of a file tool: got %+v of %s, want docs/new.txt of app", inv.Changed, inv.Resource)
			}
			inv, err := c.Exec(t.Context(), engine.CommandRequest{Plan: p.ID, Resources: []string{"docs"}, Argv: []string{"sh", "-c", `pwd -P; echo "$PWD"; echo "$AGENTS_SANDBOX_DOCS"; echo v2 > guide.txt`}})
			c.must(err)
			box := c.sandbox(p.ID)
			inside := filepath.Join(box.Path, "docs")
			if want := strings.Repeat(inside+"\n", 3); inv.Stdout != want {
				t.Errorf("where a command of the inner one runs: got %q, want %q", inv.Stdout, want)
			}
			st, err := c.Status(t.Context(), p.ID)
			c.must(err)
			if in := st.Resources[1]; in.Boundary != "app" || in.Strategy != box.Strategy || in.Path != inside || st.Resources[0].Path != box.Path || st.Resources[0].Boundary != "" {
				t.Errorf("status: got %+v", st.Resources)
			}
			if own, err := c.Checkpoints(t.Context(), p.ID, "docs"); err != nil || len(own) != len(c.checkpoints(p.ID)) {
				t.Errorf("checkpoints of the inner one: %d of %d, %v", len(own), len(c.checkpoints(p.ID)), err)
			}
			c.wantNoWayOut(p.ID)
			c.wantOnlyTogether(p.ID)

			d, err := c.Diff(t.Context(), engine.DiffRequest{Plan: p.ID, Resource: "docs"})
			c.must(err)
			if len(d.Files) != 2 || d.Files[0].Path != "docs/guide.txt" || d.Files[0].Resource != "app" {
				t.Errorf("diff: got %+v, want the files of the boundary's resource", d.Files)
			}
			c.rollback(p.ID, c.checkpoints(p.ID)[0].ID)
			if got := c.content(p.ID, "docs/new.txt"); got != "" {
				t.Errorf("after a rollback docs/new.txt is %q", got)
			}
			c.write(p.ID, "docs", "new.txt", "again\n")
			res, err := c.Apply(t.Context(), engine.ApplyRequest{Plan: p.ID})
			c.must(err)
			if got := states(res.Resources); got["app"] != agents.ApplyApplied || got["docs"] != agents.ApplyApplied || res.Artifacts != 1 {
				t.Errorf("apply: got %+v", res)
			}
			if got := home.Read("docs/new.txt"); got != "again\n" {
				t.Errorf("docs/new.txt at home: got %q", got)
			}
			st, err = c.Status(t.Context(), p.ID)
			c.must(err)
			if st.Plan.State != agents.PlanApplied || st.Resources[1].ApplyState != agents.ApplyApplied {
				t.Errorf("after it: %s, %+v", st.Plan.Position(), st.Resources)
			}
			undone, err := c.UndoApply(t.Context(), p.ID)
			c.must(err)
			if len(undone.Resources) != 2 {
				t.Errorf("undo: got %+v, want both", undone.Resources)
			}
			if _, err := os.Lstat(filepath.Join(home.Dir, "docs/new.txt")); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("docs/new.txt after the undo: %v", err)
			}
		})
	}
}

// wantNoWayOut fails when file tools on docs reach what is outside of it.
func (c *compliance) wantNoWayOut(plan string) {
	c.t.Helper()
	for _, path := range []string{"../out.txt", filepath.Join(c.sandbox(plan).Path, "out.txt"), "/etc/out.txt"} {
		if _, err := c.tryWrite(plan, "docs", path, "x"); !errors.Is(err, agents.ErrInvalid) {
			c.t.Errorf("a file tool of the inner resource on %s: got %v, want agents.ErrInvalid", path, err)
		}
	}
	outside := c.t.TempDir()
	for _, line := range []string{"ln -s " + outside + " docs", "mkdir away; ln -s away docs", "echo x > docs", "true"} {
		before := c.manual(plan, "before")
		_, err := c.Exec(c.t.Context(), engine.CommandRequest{Plan: plan, Resources: []string{"app"}, Argv: []string{"sh", "-c", "rm -r docs; " + line}})
		c.must(err)
		if _, err := c.tryWrite(plan, "docs", "out.txt", "x"); !errors.Is(err, agents.ErrBlocked) || !strings.Contains(agents.HintOf(err), "--resource app") {
			c.t.Errorf("after %q: got %v with the hint %q, want agents.ErrBlocked", line, err, agents.HintOf(err))
		}
		c.rollback(plan, before.ID)
	}
	if left, err := os.ReadDir(outside); len(left) > 0 || err != nil {
		c.t.Errorf("written outside: %v, %v", left, err)
	}
}

// wantOnlyTogether fails when docs can go without app.
func (c *compliance) wantOnlyTogether(plan string) {
	c.t.Helper()
	ctx := c.t.Context()
	_, only := c.Apply(ctx, engine.ApplyRequest{Plan: plan, Only: []string{"docs"}})
	_, back := c.Rollback(ctx, engine.RollbackRequest{Plan: plan, Checkpoint: c.checkpoints(plan)[0].ID, Resource: "docs"})
	_, update := c.Update(ctx, plan, "docs")
	_, export := c.Export(ctx, engine.ExportRequest{Plan: plan, Resource: "docs", Patch: filepath.Join(c.t.TempDir(), "p")})
	for what, err := range map[string]error{"apply": only, "rollback": back, "update": update, "export": export} {
		if !errors.Is(err, agents.ErrConflict) || !strings.Contains(err.Error(), "docs shares the sandbox of app") || !strings.Contains(agents.HintOf(err), "name app") {
			c.t.Errorf("%s of the inner one alone: got %v with the hint %q", what, err, agents.HintOf(err))
		}
	}
	res, err := c.Apply(ctx, engine.ApplyRequest{Plan: plan, Only: []string{"docs", "app"}, DryRun: true})
	c.must(err)
	if got := states(res.Resources); got["app"] != agents.ApplyApplied || got["docs"] != agents.ApplyApplied {
		c.t.Errorf("a dry run of both: got %v", got)
	}
}

// What a user should know of a shared sandbox is said when the plan is made.
func TestSharedSandboxIsExplained(t *testing.T) {
	c := newWithCopies(t)
	top := c.directory("kept/f").Dir
	app := oracle.EmptyRepo(t, filepath.Join(top, "app"))
	app.Write("f", "f\n")
	app.Commit("f")
	kept := dir("kept", filepath.Join(top, "kept"))
	kept.ReadOnly = true
	p := c.planOn(dir("top", top), kept, repo("app", app.Dir))
	if got := strings.Join(c.told, "\n"); !strings.Contains(got, "kept is read-only and lies inside top") || !strings.Contains(got, "app lies inside top and comes home with it as files") {
		t.Errorf("told: %q", got)
	}
	if _, err := c.tryWrite(p.ID, "kept", "g", "x"); !errors.Is(err, agents.ErrBlocked) {
		t.Errorf("a write through the read-only one: got %v, want agents.ErrBlocked", err)
	}
	c.write(p.ID, "app", "g", "ours\n")
	_, err := c.Apply(t.Context(), engine.ApplyRequest{Plan: p.ID})
	c.must(err)
	if got := app.Read("g"); got != "ours\n" {
		t.Errorf("g at home: got %q", got)
	}
}

// A directory that git does not know is in no sandbox of its repository.
func TestSharedSandboxLacksWhatGitIgnores(t *testing.T) {
	c := newCompliance(t, nil)
	app := oracle.NewRepo(t)
	app.Write(".gitignore", "data/\n")
	app.Commit("ignore")
	app.Write("data/f", "f\n")
	p := c.planOn(repo("app", app.Dir), dir("data", filepath.Join(app.Dir, "data")))
	_, err := c.tryWrite(p.ID, "data", "g", "x")
	if !errors.Is(err, agents.ErrBlocked) || !strings.Contains(agents.HintOf(err), "sandbox.git.include") {
		t.Errorf("got %v with the hint %q", err, agents.HintOf(err))
	}
	if all, err := c.Invocations(t.Context(), p.ID); err != nil || len(all) != 1 || all[0].Error == "" {
		t.Errorf("the refused call's record: %+v, %v", all, err)
	}
}

// "If the linked resource is not a git repository, the sandbox falls back to
// the copy_on_write strategy": so it does where git cannot serve one.
func TestB022FallsBackToACopyAloud(t *testing.T) {
	input, err := json.Marshal(map[string]string{"path": "b.txt", "content": "ours\n"})
	if err != nil {
		t.Fatal(err)
	}
	write := func(c *compliance, plan string) error {
		_, err := c.RunTool(t.Context(), engine.ToolRequest{Plan: plan, Tool: "file-write", Resource: "app", Input: input})
		return err
	}
	noCommit := func(t *testing.T) *oracle.Repo {
		r := oracle.EmptyRepo(t, t.TempDir())
		r.Write("a.txt", "v1\n")
		return r
	}
	for name, make := range map[string]func(*testing.T) *oracle.Repo{
		"no commit yet": noCommit,
		"no git":        func(t *testing.T) *oracle.Repo { return oracle.NewRepo(t) },
	} {
		t.Run(name, func(t *testing.T) {
			home := make(t)
			c := newWithCopies(t)
			if name == "no git" {
				t.Setenv("PATH", t.TempDir())
			}
			p := c.planOn(repo("app", home.Dir))
			c.must(write(c, p.ID))
			if box := c.sandbox(p.ID); box.Strategy != agents.CopyOnWrite {
				t.Errorf("sandbox: got %+v, want a copy", box)
			}
			if got := strings.Join(c.told, "\n"); !strings.Contains(got, "app gets a plain copy as its sandbox (copy_on_write)") {
				t.Errorf("told: %q", got)
			}
			c.rollback(p.ID, c.checkpoints(p.ID)[0].ID)
			c.must(write(c, p.ID))
			_, err := c.Apply(t.Context(), engine.ApplyRequest{Plan: p.ID})
			c.must(err)
			if got := home.Read("b.txt"); got != "ours\n" {
				t.Errorf("b.txt at home: got %q", got)
			}
		})
	}
	t.Run("without the copy strategy", func(t *testing.T) {
		c := newComplianceWith(t, []sandbox.Strategy{gitworktree.New(), none.New()}, func(s *engine.Settings) { s.Profile = "full-auto" })
		p := c.planOn(repo("app", noCommit(t).Dir))
		if err := write(c, p.ID); !errors.Is(err, agents.ErrUnsupported) || !strings.Contains(err.Error(), "no commit") {
			t.Errorf("got %v, want git's own refusal", err)
		}
		if left := c.sandboxes(p.ID); len(left) > 0 {
			t.Errorf("sandboxes: %+v; none is never reached by falling back", left)
		}
	})
	t.Run("another failure", func(t *testing.T) {
		fault := sandboxtest.NewFaulty(gitworktree.New(), 1, agents.ErrConflict)
		c := newComplianceWith(t, []sandbox.Strategy{fault, sandboxtest.NewPlain()}, nil)
		p := c.planOn(repo("app", oracle.NewRepo(t).Dir))
		if err := write(c, p.ID); !errors.Is(err, agents.ErrConflict) || !fault.Fired() {
			t.Errorf("got %v, want the fault", err)
		}
	})
	t.Run("a failure after the creation", func(t *testing.T) {
		fault := sandboxtest.NewFaulty(gitworktree.New(), 2, agents.ErrUnsupported) // the capture of the base
		c := newComplianceWith(t, []sandbox.Strategy{fault, sandboxtest.NewPlain()}, nil)
		p := c.planOn(repo("app", oracle.NewRepo(t).Dir))
		if err := write(c, p.ID); !errors.Is(err, agents.ErrUnsupported) || !fault.Fired() {
			t.Errorf("got %v after %v, want the fault", err, fault.Calls())
		}
	})
	t.Run("another repository inside", func(t *testing.T) {
		outer := noCommit(t)
		inner := oracle.EmptyRepo(t, filepath.Join(outer.Dir, "lib"))
		inner.Write("f", "f\n")
		inner.Commit("f")
		c := newWithCopies(t)
		p := c.planOn(repo("app", outer.Dir), repo("lib", inner.Dir))
		if err := write(c, p.ID); !errors.Is(err, agents.ErrUnsupported) {
			t.Errorf("got %v: a copy of app would hold lib, which has its own sandbox", err)
		}
	})
}
