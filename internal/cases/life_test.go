//go:build linux

package cases_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cleveragents/agents/internal/oracle"
)

// inside starts a step that says that it runs and then waits for the file
// "go"; it returns when the step runs.
func (p *plan) inside(script string) (cmd *exec.Cmd, release func()) {
	p.t.Helper()
	cmd = p.command("plan", "exec", p.id, "--", "sh", "-ec", script+"; : >"+p.at("inside")+"; while [ ! -e "+p.at("go")+" ]; do sleep 0.02; done")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	must(p.t, cmd.Start())
	until(p.t, "the step", func() bool { return exists(p.at("inside")) })
	release = func() { p.write0("go") }
	p.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGCONT)
		p.write0("go")
		_ = cmd.Wait()
	})
	return cmd, release
}

func (l *lab) write0(name string) { _ = os.WriteFile(l.at(name), nil, 0o600) }

// TestB011B110 also is the case of a plan whose process is stopped, or very old.
func TestB011B110OtherProcessesLeaveALivePlanAlone(t *testing.T) {
	for _, stop := range []bool{false, true} {
		t.Run(fmt.Sprintf("stopped %v", stop), func(t *testing.T) {
			l := newLab(t)
			r := l.mkrepo("r")
			real := l.watch(r.Dir)
			l.ok("config", "set", "sandbox.cleanup", "on_terminal")
			a := l.newPlan(r)
			a.write("a.txt", "1\n")
			at2 := a.state()
			cp2 := a.write("a.txt", "2\n").before
			box := a.box(0)
			cmd, release := a.inside("echo 3 >a.txt")
			if stop {
				must(t, cmd.Process.Signal(syscall.SIGSTOP))
			}
			old := time.Now().AddDate(0, 0, -30)
			for _, root := range []string{box, l.at("data/private", a.id), l.at("data/checkpoints", a.id)} {
				must(t, filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
					if err == nil && d.Type() != os.ModeSymlink {
						err = os.Chtimes(path, old, old)
					}
					return err
				}))
			}
			store := oracle.Digest(t, l.at("data/checkpoints", a.id))
			l.ok("plan", "list")
			l.ok("cleanup")
			l.run("doctor")
			b := l.newPlan(r)
			b.write("b.txt", "b\n")
			l.ok(b.apply()...)
			l.exits(4, "plan", "rollback", "--yes", a.id, cp2)
			l.exits(4, a.apply()...)
			l.exits(4, "plan", "cancel", "--discard", "--yes", a.id)
			if d := oracle.Diff(store, oracle.Digest(t, l.at("data/checkpoints", a.id))); d != "" {
				t.Errorf("the store of a live plan changed:\n%s", d)
			}
			equal(t, "a.txt in the live sandbox", read(t, filepath.Join(box, "a.txt")), "3\n")
			must(t, cmd.Process.Signal(syscall.SIGCONT))
			release()
			if err := cmd.Wait(); err != nil {
				t.Errorf("the live step: %v", err)
			}
			a.rollback(cp2, at2)
			equal(t, "the user's a.txt", r.Read("a.txt"), "v1\n")
			_ = real
		})
	}
}

// TestB011 second half: without a store nothing is deleted.
func TestB011MissingStoreRefuses(t *testing.T) {
	for _, what := range []string{"objects", "", "objects/*/objects/pack"} {
		t.Run(what, func(t *testing.T) {
			l := newLab(t)
			r := l.mkrepo("r")
			p := l.newPlan(r)
			p.sh("echo 1 >one")
			s2 := p.sh("echo 2 >two")
			for _, f := range glob(t, l.at("data/checkpoints", p.id), what) {
				must(t, os.RemoveAll(l.at("data/checkpoints", p.id, f)))
			}
			was := p.state()
			back := l.run("plan", "rollback", "--yes", p.id, s2.before)
			if back.code == 0 {
				t.Errorf("success: %v", back)
			}
			p.holds("after the refusal", was)
			at := p.state()
			s3 := p.sh("echo 3 >three")
			p.rollback(s3.before, at)
			l.ok(p.apply()...)
			equal(t, "one", r.Read("one"), "1\n")
		})
	}
}

func TestB041WhatAnEarlierLifeLeft(t *testing.T) {
	for _, c := range []struct{ name, damage string }{
		{"sandbox removed", `rm -rf "$BOX"`},
		{"only the branch is left", `rm -rf "$BOX" "$PRIVATE" .git/worktrees/ca-sandbox-*`},
		{"only the directory is left", `rm -rf .git/worktrees/ca-sandbox-*; git update-ref -d "refs/heads/$BRANCH" || true`},
		{"worktrees pruned", `rm -f .git/worktrees/*/locked; mv "$BOX" "$BOX.away"; git worktree prune; mv "$BOX.away" "$BOX"`},
		{"locked again by another", `for w in .git/worktrees/*; do echo other >$w/locked; done`},
		{"private directory removed", `rm -rf "$PRIVATE"`},
		{"the box's .git removed", `rm -f "$BOX/.git"`},
		{"the box's .git points elsewhere", `echo "gitdir: $PWD/.git" >"$BOX/.git"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t)
			r := l.mkrepo("r")
			p := l.newPlan(r)
			s1 := p.sh("echo 1 >one; git add one; git -c user.name=x -c user.email=x@y commit -qm one; echo 1 >untracked")
			st := p.status()
			script := fmt.Sprintf("BOX='%s'; PRIVATE='%s'; BRANCH='%s'; ", p.box(0), l.at("data/private", p.id, st.text("sandboxes.0.sandbox_id")), st.text("sandboxes.0.branch")) + c.damage
			r.Sh(script)
			real := l.watch(r.Dir)
			s2 := l.run("plan", "exec", p.id, "--", "sh", "-ec", "echo 2 >two; cat one")
			real.same("a step after the damage")
			if s2.code != 0 {
				if s2.text("error.message") == "" || s2.code == 2 {
					t.Errorf("no way on is told: %v", s2)
				}
				// Refused: then the rollback must bring the recorded state back.
				back := l.run("plan", "rollback", "--yes", p.id, s1.after)
				if back.code != 0 {
					t.Errorf("neither a step nor a rollback works: %v\n%v", s2, back)
					return
				}
				s2 = l.ok("plan", "exec", p.id, "--", "sh", "-ec", "echo 2 >two; cat one")
			}
			equal(t, "one in the sandbox", read(t, filepath.Join(p.box(0), "one")), "1\n")
			l.ok(p.apply()...)
			equal(t, "one", r.Read("one"), "1\n")
			equal(t, "two", r.Read("two"), "2\n")
			l.ok("cleanup")
			l.clean(r)
		})
	}
}

func TestB103PlantedProgramsNeverRun(t *testing.T) {
	l := newLab(t)
	r := l.mkrepo("r", ".gitattributes", "*.x filter=z\n", "f.x", "x\n")
	mark := func(n string) string { return l.at("pwned-" + n) }
	must(t, os.MkdirAll(l.at("real-home"), 0o755))
	real := l.watch(r.Dir)
	p := l.newPlan(r)
	touch := func(n string) string { return "touch " + mark(n) + "; cat; #" }
	for _, script := range []string{
		"git config core.fsmonitor '" + touch("fsmonitor") + "'",
		"git config filter.z.clean '" + touch("clean") + "'; git config filter.z.smudge '" + touch("smudge") + "'; git config filter.z.process '" + touch("process") + "'; printf '* filter=z diff=z merge=z\\n' >.gitattributes; echo y >f.x",
		"git config diff.external '" + touch("diff") + "'; git config diff.z.textconv '" + touch("textconv") + "'; git config diff.z.command '" + touch("command") + "'; git config merge.z.driver '" + touch("driver") + "'",
		`d=$(git rev-parse --git-common-dir); mkdir -p "$d/hooks" "$(git rev-parse --git-dir)/hooks"; for h in pre-commit post-commit post-merge post-checkout reference-transaction post-index-change pre-auto-gc pre-merge-commit update; do for w in "$d/hooks" "$(git rev-parse --git-dir)/hooks"; do printf '#!/bin/sh\ntouch ` + mark("hook") + `\n' >"$w/$h"; chmod +x "$w/$h"; done; done`,
		"mkdir hk; printf '#!/bin/sh\\ntouch " + mark("hookspath") + "\\n' >hk/post-merge; cp hk/post-merge hk/pre-commit; cp hk/post-merge hk/reference-transaction; chmod +x hk/*; git config core.hooksPath \"$PWD/hk\"",
		"printf '[core]\\n\\tfsmonitor = touch " + mark("include") + "\\n' >inc; git config include.path \"$PWD/inc\"; git config --add includeIf.gitdir:/.path \"$PWD/inc\"",
		"git config alias.status '!touch " + mark("alias") + "'; git config credential.helper '!touch " + mark("helper") + "'; git config core.sshCommand 'touch " + mark("ssh") + "'; git config core.pager 'touch " + mark("pager") + "'; git config core.editor 'touch " + mark("editor") + "'; git config gpg.program /bin/false; git config commit.gpgsign true",
		"git config core.worktree " + l.at("real-home") + "; git config core.bare false",
		"git config extensions.worktreeConfig true; git config --worktree core.fsmonitor 'touch " + mark("worktree-config") + "'",
		"printf 'gitdir: %s\\n' " + r.Dir + "/.git >sub.git; printf '[submodule \"s\"]\\n\\tpath = s\\n\\turl = ext::touch " + mark("ext") + "\\n\\tupdate = !touch " + mark("update") + "\\n' >.gitmodules",
	} {
		s := l.run("plan", "exec", p.id, "--", "sh", "-c", script)
		if s.code != 0 && s.text("tool.exit_code") == "" {
			t.Logf("refused: %v", s) // isolation may well refuse such a step
		}
		real.same("a planted program")
	}
	for _, args := range [][]string{{"plan", "checkpoint", "create", p.id}, {"plan", "diff", "--patch", p.id}, {"plan", "status", p.id}, p.tool("git-status", nil), p.tool("git-diff", nil), {"plan", "apply", "--dry-run", p.id}} {
		l.run(args...)
	}
	real.same("looking at it")
	config := r.Read(".git/config")
	hooks := oracle.Digest(t, filepath.Join(r.Dir, ".git/hooks"))
	ap := l.run(p.apply()...)
	if ap.code != 0 {
		real.same("the apply that was refused")
	}
	l.ok("cleanup")
	l.git(r.Dir, "status")
	r.Git("status")
	r.Git("gc", "-q")
	equal(t, ".git/config", r.Read(".git/config"), config)
	oracle.Same(t, "apply and cleanup", filepath.Join(r.Dir, ".git/hooks"), hooks)
	for _, f := range glob(t, l.dir, "pwned-*") {
		t.Errorf("%s: a planted program ran", f)
	}
	if got := glob(t, l.dir, "real-home/*"); len(got) > 0 {
		t.Errorf("core.worktree was followed: %v", got)
	}
}

func TestB108UnappliedWorkIsNeverLost(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(p *plan, r *oracle.Repo)
	}{
		{"exit", func(*plan, *oracle.Repo) {}},
		{"errored by a conflict", func(p *plan, r *oracle.Repo) {
			r.Sh("echo host >a.txt; git commit -qam host")
			p.exits(4, p.apply()...)
		}},
		{"commits by hand", func(p *plan, r *oracle.Repo) {
			oracle.At(p.t, p.box(0)).Sh("echo hand >hand; git add hand; git commit -qm hand; git checkout -q -b side; echo s >side; git add side; git commit -qm side; git checkout -q -; git tag mine side; echo stashed >a.txt; git stash -q")
		}},
		{"cancelled", func(p *plan, r *oracle.Repo) { p.ok("plan", "cancel", p.id) }},
		{"discarded", func(p *plan, r *oracle.Repo) { p.ok("plan", "cancel", "--discard", "--yes", p.id) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t)
			r := l.mkrepo("r", ".gitignore", "*.ign\n")
			l.ok("config", "set", "sandbox.cleanup", "on_terminal")
			p := l.newPlan(r)
			p.sh("echo 1 >a.txt")
			p.sh("echo u >untracked; echo i >x.ign; mkdir empty")
			p.sh("echo 3 >three; git add three; git -c user.name=x -c user.email=x@y commit -qm three")
			c.end(p, r)
			files := []string{}
			cancelled := c.name == "cancelled" || c.name == "discarded"
			if !cancelled {
				files = oracle.Digest(t, p.box(0), ".git")
			}
			refs := ""
			if !cancelled {
				refs = l.git(p.box(0), "for-each-ref", "--format=%(refname) %(objectname)") + l.git(p.box(0), "stash", "list")
			}
			real := l.watch(r.Dir)
			for range 3 {
				l.ok("cleanup")
				l.ok("plan", "list")
			}
			real.same("cleanup")
			if !cancelled {
				oracle.Same(t, "cleanup", p.box(0), files, ".git")
				l.ok("plan", "cancel", "--discard", "--yes", p.id).says(t, "agents cleanup archive restore "+p.id)
				l.ok("cleanup")
			}
			real.same("discarding")
			l.clean(r)
			l.ok("cleanup", "archive", "restore", p.id)
			if !cancelled {
				oracle.Same(t, "restoring the archive", p.box(0), files, ".git")
				equal(t, "refs and stash", l.git(p.box(0), "for-each-ref", "--format=%(refname) %(objectname)")+l.git(p.box(0), "stash", "list"), refs)
			}
			for name, want := range map[string]string{"three": "3\n", "untracked": "u\n", "x.ign": "i\n", "a.txt": "1\n"} {
				if c.name == "commits by hand" && name == "a.txt" {
					continue
				}
				equal(t, name, read(t, filepath.Join(p.box(0), name)), want)
			}
		})
	}
}

func TestB112NothingAccumulates(t *testing.T) {
	l := newLab(t)
	r := l.mkrepo("r")
	l.ok("config", "set", "sandbox.cleanup", "on_terminal")
	for i := range 6 {
		p := l.newPlan(r)
		p.write("d", fmt.Sprint(i))
		l.ok("plan", "cancel", "--discard", "--yes", p.id)
	}
	var open []*plan
	for i := range 3 { // killed, at moments that differ
		p := l.newPlan(r)
		cmd := p.command("plan", "exec", p.id, "--", "sh", "-ec", "echo k >k; : >"+l.at("k"+fmt.Sprint(i))+"; sleep 60")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		must(t, cmd.Start())
		if i > 0 {
			until(t, "the step", func() bool { return exists(l.at("k" + fmt.Sprint(i))) })
		}
		must(t, cmd.Process.Kill())
		_ = cmd.Wait()
		open = append(open, p)
	}
	var applied []*plan
	for i := range 3 {
		p := l.newPlan(r)
		p.write(fmt.Sprint("applied", i), "x\n")
		l.ok(p.apply()...)
		applied = append(applied, p)
	}
	l.ok("cleanup")
	if got := len(glob(t, l.dir, "data/sandboxes/*")); got > len(open) {
		t.Errorf("%d sandboxes, want at most the %d of plans with unapplied work", got, len(open))
	}
	if got := strings.Fields(r.Git("branch", "--list", "--format=%(refname:short)", "cleveragents/*")); len(got) > len(open) {
		t.Errorf("branches %v", got)
	}
	for _, p := range open {
		l.ok("plan", "cancel", "--discard", "--yes", p.id)
	}
	l.ok("cleanup")
	l.clean(r)
	l.cleanData(applied...)
	if out, err := exec.Command("pgrep", "-f", l.at("data")).Output(); err == nil {
		t.Errorf("processes are left: %s", out)
	}
	if out := r.Git("status", "--porcelain", "--ignored"); out != "" {
		t.Errorf("status: %s", out)
	}
}

func TestB113DamagedStoreAndDatabase(t *testing.T) {
	l := newLab(t)
	r := l.mkrepo("r")
	p := l.newPlan(r)
	var calls []call
	var states []state
	for i := range 5 {
		if i > 0 {
			states = append(states, p.state())
		}
		calls = append(calls, p.sh(fmt.Sprintf("echo %d >f; head -c 300 /dev/urandom >r", i)))
	}
	newest := p.objectFiles()
	slices.SortFunc(newest, func(a, b string) int {
		fa, _ := os.Stat(l.at(a))
		fb, _ := os.Stat(l.at(b))
		return fa.ModTime().Compare(fb.ModTime())
	})
	must(t, os.Truncate(l.at(newest[len(newest)-1]), 0))
	must(t, os.Truncate(l.at("data/checkpoints", p.id, calls[1].before, "manifest.json"), 0))
	list := p.checkpoints()
	if len(list) < 5 {
		t.Errorf("%d checkpoints are listed", len(list))
	}
	good := 0
	for i := 1; i < 5; i++ {
		was := p.state()
		back := l.run("plan", "rollback", "--yes", p.id, calls[i].before)
		if back.code == 0 {
			p.holds("after the rollback", states[i-1])
			good++
		} else {
			p.holds("after a rollback that failed", was)
		}
	}
	if good < 2 {
		t.Errorf("%d of 4 checkpoints work", good)
	}
	at := p.state()
	s := p.sh("echo new >f")
	p.rollback(s.before, at)
	// The state database: its last page is gone. Nothing is claimed then, and
	// neither the sandbox nor the user's repository is touched.
	real, box := l.watch(r.Dir), p.box(0)
	files := oracle.Digest(t, box, "f")
	fi, err := os.Stat(l.at("data/agents.db"))
	must(t, err)
	must(t, os.Truncate(l.at("data/agents.db"), fi.Size()-4096))
	for _, args := range [][]string{{"plan", "list"}, {"cleanup"}, {"plan", "rollback", "--yes", p.id, s.after}} {
		if res := l.run(args...); res.code != 0 && res.text("error.message") == "" {
			t.Errorf("a failure without a word: %v", res)
		}
	}
	oracle.Same(t, "a damaged database", box, files, "f")
	real.same("a damaged database")
}

func TestU083TwoAppliesAtOnce(t *testing.T) {
	l := newLab(t)
	r := l.mkrepo("r")
	p := l.newPlan(r)
	p.write("a.txt", "v2\n")
	var wg sync.WaitGroup
	results := make([]result, 2)
	for i := range results {
		cmd := l.command(p.apply()...)
		wg.Go(func() { results[i] = l.finish(cmd, p.apply()) })
	}
	wg.Wait()
	codes := []int{results[0].code, results[1].code}
	slices.Sort(codes)
	if codes[0] != 0 || codes[1] != 4 {
		t.Errorf("exit codes %v, want 0 and 4: %v\n%v", codes, results[0], results[1])
	}
	equal(t, "commits", r.Git("rev-list", "--first-parent", "--count", "main"), "2")
	equal(t, "a.txt", r.Read("a.txt"), "v2\n")
	l.ok("cleanup")
	l.clean(r)
}

func TestU085EveryStepInItsOwnProcess(t *testing.T) {
	l := newLab(t)
	r := l.mkrepo("r")
	real := l.watch(r.Dir)
	p := l.newPlan(r)
	s1 := p.sh("echo v2 >a.txt; echo n >new")
	at2 := p.state()
	diff := l.ok("plan", "diff", "--patch", p.id)
	diff.is(t, "diff_summary.files_changed", "2")
	p.sh("rm new")
	p.rollback(s1.after, at2)
	l.ok("plan", "execute", p.id)
	real.same("execute")
	l.ok(p.apply()...)
	equal(t, "new", r.Read("new"), "n\n")
	l.ok("plan", "undo", "--yes", p.id)
	equal(t, "a.txt", r.Read("a.txt"), "v1\n")
	l.ok("plan", "cancel", "--discard", "--yes", p.id) // its work is unapplied again
	l.ok("cleanup")
	l.clean(r)
	l.cleanData()
}

func TestU033ResumeAfterAKill(t *testing.T) {
	l := newLab(t)
	r := l.mkrepo("r")
	l.write("action.yaml", fmt.Sprintf(`name: local/three
steps:
  - {id: one, tool: builtin/file-write, with: {path: one, content: "1"}}
  - {id: two, tool: builtin/shell, with: {command: "echo 2 >>two"}}
  - {id: three, tool: builtin/shell, with: {command: "echo half >half; : >%s; [ -e %s ] || sleep 60; rm half; echo 3 >three"}}
`, l.at("inside"), l.at("go")))
	l.ok("resource", "add", "git-checkout", "app", "--path", r.Dir)
	l.ok("project", "create", "shop")
	l.ok("project", "link-resource", "shop", "app")
	l.ok("action", "create", "--config", l.at("action.yaml"))
	real := l.watch(r.Dir)
	p := &plan{l, l.ok("plan", "use", "local/three", "shop").text("plan.plan_id")}
	cmd := l.command("plan", "execute", p.id)
	must(t, cmd.Start())
	until(t, "the third step", func() bool { return exists(l.at("inside")) })
	must(t, cmd.Process.Kill())
	_ = cmd.Wait()
	l.write0("go")
	dry := l.ok("plan", "execute", p.id, "--dry-run")
	dry.is(t, "resume", "three")
	equal(t, "steps", strings.Join(dry.list("steps", "status"), " "), "done done pending")
	after := dry.text("steps.1.after_checkpoint_id")
	if !slices.Contains(p.checkpoints(), after) {
		t.Errorf("the checkpoint after step 2, %q, is not listed", after)
	}
	if exists(filepath.Join(p.box(0), "half")) {
		t.Error("half a step is left")
	}
	l.ok("plan", "execute", p.id)
	equal(t, "two", read(t, filepath.Join(p.box(0), "two")), "2\n")
	real.same("execute")
	l.ok(p.apply()...)
	equal(t, "three", r.Read("three"), "3\n")
	if exists(filepath.Join(r.Dir, "half")) {
		t.Error("half a step came home")
	}
}

// TestB032 is twenty plans at once on one repository: no update is lost and
// nothing is left over.
func TestB032TwentyPlansAtOnce(t *testing.T) {
	l := newLab(t)
	origin := oracle.EmptyRepo(t, l.at("origin.git"), "--bare")
	r := l.mkrepo("r", "log", ten)
	r.Git("remote", "add", "origin", origin.Dir)
	r.Git("push", "-q", "-u", "origin", "main")
	real := l.watch(r.Dir)
	plans := make([]*plan, 20)
	results := make([]result, len(plans))
	var wg sync.WaitGroup
	for i := range plans {
		plans[i] = l.newPlan(r)
		args := []string{"plan", "exec", plans[i].id, "--", "sh", "-ec", fmt.Sprintf("echo %d >p%d; mkdir -p shared; echo %d >shared/%d", i, i, i, i)}
		cmd := l.command(args...)
		wg.Go(func() { results[i] = l.finish(cmd, args) })
	}
	wg.Wait()
	branches := map[string]bool{}
	for i, res := range results {
		if res.code != 0 {
			t.Errorf("plan %d: %v", i, res)
		}
		branches[plans[i].status().text("sandboxes.0.branch")] = true
	}
	if len(branches) != len(plans) {
		t.Errorf("%d branches for %d plans", len(branches), len(plans))
	}
	real.same("twenty steps at once")
	for _, p := range plans {
		if ap := l.run(p.apply()...); ap.code != 0 {
			t.Errorf("%v", ap)
		}
	}
	for i := range plans {
		equal(t, "p", r.Read(fmt.Sprintf("p%d", i)), fmt.Sprintf("%d\n", i))
		equal(t, "shared", r.Git("show", fmt.Sprintf("main:shared/%d", i)), fmt.Sprint(i))
	}
	equal(t, "status", r.Git("status", "--porcelain"), "")
	l.ok("cleanup")
	l.clean(r)
	l.cleanData(plans...)
}

// TestU057U008U009 is what a plan leaves when it is over.
func TestU057U008U009NothingIsLeft(t *testing.T) {
	l := newLab(t)
	r := l.mkrepo("r")
	p := l.newPlan(r)
	p.write("a.txt", "v2\n")
	branch := "cleveragents/plan-" + p.id
	equal(t, "branches", r.Git("branch", "--list", "--format=%(refname:short)", "cleveragents/*"), branch)
	l.ok("plan", "execute", p.id)
	equal(t, "branches after execute", r.Git("branch", "--list", "--format=%(refname:short)", "cleveragents/*"), branch)
	l.ok(p.apply()...)
	l.ok("cleanup")
	l.clean(r)
	l.cleanData(p)
	if out := r.Git("fsck", "--unreachable", "--no-reflogs"); strings.Contains(out, "unreachable commit") {
		t.Errorf("more than merged commits is left: %s", out)
	}
	merged := r.Git("rev-parse", "HEAD")

	q := l.newPlan(r)
	q.write("secret", "s\n")
	l.ok("plan", "execute", q.id)
	l.ok("plan", "cancel", "--discard", "--yes", q.id)
	l.ok("cleanup")
	l.clean(r)
	l.cleanData(p)
	equal(t, "HEAD", r.Git("rev-parse", "HEAD"), merged)
	equal(t, "refs", r.Git("for-each-ref", "--format=%(refname)"), "refs/heads/main")
	if strings.Contains(r.Git("rev-list", "--objects", "--all"), "secret") {
		t.Error("discarded work is reachable")
	}
	r.Git("reflog", "expire", "--expire=now", "--all")
	r.Git("gc", "-q", "--prune=now")
	equal(t, "count of loose objects", strings.SplitN(r.Git("count-objects"), " ", 2)[0], "0")
}
