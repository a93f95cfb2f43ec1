//go:build linux

package cases_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestU087U121 is an errored plan: it is told, and executing it again runs it.
func TestU087U121ErroredPlan(t *testing.T) {
	l := newLab(t)
	r := l.mkrepo("r")
	real := l.watch(r.Dir)
	l.write("action.yaml", `name: local/fails
steps:
  - {id: one, tool: builtin/file-write, with: {path: one, content: "1"}}
  - {id: two, tool: builtin/shell, with: {command: "touch half; test -e `+l.at("go")+`"}}
`)
	l.ok("resource", "add", "git-checkout", "app", "--path", r.Dir)
	l.ok("project", "create", "shop")
	l.ok("project", "link-resource", "shop", "app")
	l.ok("action", "create", "--config", l.at("action.yaml"))
	p := &plan{l, l.ok("plan", "use", "local/fails", "shop").text("plan.plan_id")}
	for range 2 { // never a silent no-op
		l.exits(1, "plan", "execute", p.id).is(t, "steps.1.status", "failed")
		st := l.exits(1, "plan", "status", p.id)
		st.is(t, "status", "error")
		st.is(t, "error.step", "two")
		if exists(filepath.Join(p.box(0), "half")) {
			t.Error("half a step is left")
		}
	}
	l.exits(4, p.apply()...)
	real.same("an errored plan")
	l.write0("go")
	l.ok("plan", "execute", p.id)
	l.ok(p.apply()...)
	equal(t, "one", r.Read("one"), "1")
}

func TestU043U125U091MissingOrWrongArguments(t *testing.T) {
	l := newLab(t)
	r := l.mkrepo("r")
	p, q := l.newPlan(r), l.newPlan(r)
	p.write("a.txt", "2\n")
	q.write("a.txt", "3\n")
	real, was := l.watch(r.Dir), p.state()
	for _, args := range [][]string{
		{"plan", "rollback", "--yes"}, {"plan", "rollback", "--yes", p.id}, {"plan", "apply", "--yes"}, {"plan", "cancel", "--discard", "--yes"}, {"plan", "undo", "--yes"},
		{"plan", "apply", p.id}, {"plan", "cancel", "--discard", p.id}, {"plan", "exec", p.id}, {"plan", "create", "-r", r.Dir, "--profile", "mispelt"}, {"plan", "create", "-r", r.Dir, "--name", "../x"},
	} {
		if res := l.exits(2, args...); res.text("error.message") == "" {
			t.Errorf("a refusal without a word: %v", res)
		}
	}
	if got := len(l.ok("plan", "list").list("plans", "plan_id")); got != 2 {
		t.Errorf("%d plans are stored, want 2", got)
	}
	p.holds("after refusals", was)
	real.same("refusals")
}

func TestU119U127U047DiffCheckpointsApply(t *testing.T) {
	l := newLab(t)
	r := l.mkrepo("r", "f", ten)
	p := l.newPlan(r)
	p.sh("sed -i s/^2$/two/ f; echo n >new; rm a.txt")
	diff := l.ok("plan", "diff", "--patch", p.id)
	l.write("patch", diff.text("patch"))
	copied := l.at("copy")
	r.Git("clone", "-q", r.Dir, copied)
	if out, err := r.Try("-C", copied, "apply", "--check", l.at("patch")); err != nil {
		t.Errorf("git does not take the patch: %v\n%s", err, out)
	}
	list := l.ok("plan", "checkpoint", "list", p.id)
	times, ids := list.list("checkpoints", "created_at"), list.list("checkpoints", "checkpoint_id")
	for i := 1; i < len(times); i++ {
		if times[i-1] > times[i] || ids[i-1] >= ids[i] {
			t.Errorf("not oldest first: %v %v", ids, times)
		}
	}
	ap := l.ok(p.apply()...)
	equal(t, "commit", ap.text("resources.0.commit_ref"), r.Git("rev-parse", "HEAD"))
	equal(t, "deleted", strings.Join(ap.list("resources.0.deleted_files", ""), " "), "a.txt")
	if exists(filepath.Join(r.Dir, "a.txt")) {
		t.Error("a.txt is still there")
	}
}

// TestB122 is what somebody sees who waits.
func TestB122SomethingIsSaid(t *testing.T) {
	l := newLab(t)
	r := l.mkrepo("r")
	l.write("bin/git", "#!/bin/sh\nif [ \"$SLOW\" ] && [ ! -e "+l.at("slept")+" ]; then : >"+l.at("slept")+"; sleep 3; fi\nexec "+which(t, "git")+" \"$@\"\n")
	must(t, os.Chmod(l.at("bin/git"), 0o755))
	l.set("PATH", l.at("bin")+":"+os.Getenv("PATH"))
	p := l.newPlan(r)
	l.set("SLOW", "1")
	s := p.sh("echo 2 >a.txt")
	if !exists(l.at("slept")) {
		t.Fatal("git was not slow")
	}
	if strings.TrimSpace(s.stderr) == "" || strings.Contains(s.stderr, "\x1b") {
		t.Errorf("standard error: %q", s.stderr)
	}
}
