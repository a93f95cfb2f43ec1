//go:build linux

package cases_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// A plan puts a link to the user's repository where its sandbox was: nothing
// of ours follows it, and the work comes back from its checkpoints.
func TestASandboxReplacedByALinkToTheRepository(t *testing.T) {
	l := newLab(t)
	r := l.mkrepo("r")
	p := l.newPlan(r)
	p.write("kept.txt", "work\n")
	want := p.state()
	real := l.watch(r.Dir)
	for _, flag := range []string{"rollback", "keep"} {
		l.run("plan", "exec", "--on-failure", flag, p.id, "--", "sh", "-c", `d=$PWD; cd /; rm -rf "$d"; ln -s `+r.Dir+` "$d"`)
		real.same("a call that replaced its sandbox, --on-failure " + flag)
		l.run("plan", "diff", p.id)
		l.run("cleanup")
		l.run("plan", "exec", p.id, "--", "true")
		real.same("the commands after it")
	}
	p.holds("after the sandbox was made again", want)
	l.ok("plan", "cancel", "--yes", "--discard", p.id)
	real.same("the discard")
}

// A call removes its own sandbox: it is taken back like any other.
func TestASandboxRemovedByItsOwnCall(t *testing.T) {
	for _, script := range []string{`rm -rf "$PWD"; exit 1`, `git worktree remove --force . ; exit 1`, `rm -rf "$PWD"`} {
		t.Run(script, func(t *testing.T) {
			l := newLab(t)
			r := l.mkrepo("r")
			real := l.watch(r.Dir)
			p := l.newPlan(r)
			p.write("kept.txt", "work\n")
			want := p.state()
			l.run("plan", "exec", p.id, "--", "sh", "-c", script)
			l.ok("plan", "exec", p.id, "--", "true")
			p.holds("after the next call", want)
			real.same("the calls")
			l.ok(p.apply()...)
		})
	}
}

// The sandbox's directory is gone and the plan is given up: what its
// checkpoints hold is archived first.
func TestADiscardWithoutTheSandboxDirectoryArchivesTheWork(t *testing.T) {
	l := newLab(t)
	r := l.mkrepo("r")
	p := l.newPlan(r)
	p.sh(`echo work >w; git add w; git commit -qm w; echo st >>a.txt; git stash -q; echo loose >u`)
	want := p.state()
	must(t, os.RemoveAll(p.box(0)))
	l.ok("plan", "cancel", "--yes", "--discard", p.id)
	l.ok("cleanup", "archive", "restore", p.id)
	p.holds("after the archive was restored", want)
}

// An apply fails after the branch has moved: the next command ends it, and
// none goes on from the half state.
func TestAnApplyThatFailsAtItsEndIsEndedFirst(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: a file that cannot be replaced")
	}
	l := newLab(t)
	r := l.mkrepo("r")
	p := l.newPlan(r)
	p.sh("echo plan >>a.txt; echo n >n")
	index := r.Dir + "/.git/index"
	if out, err := exec.Command("chattr", "+i", index).CombinedOutput(); err != nil {
		t.Skipf("this file system has no immutable files: %s", out)
	}
	t.Cleanup(func() { _ = exec.Command("chattr", "-i", index).Run() })
	l.exits(1, p.apply()...)
	if res := l.run("plan", "cancel", "--yes", "--discard", p.id); res.code == 0 {
		t.Errorf("a plan with an apply half-done was discarded: %v", res)
	}
	must(t, exec.Command("chattr", "-i", index).Run())
	if res := l.run("plan", "exec", p.id, "--", "true"); res.code != 4 {
		t.Errorf("after the apply was ended, a call: %v; want 4, the plan is applied", res)
	}
	if got := l.git(r.Dir, "status", "--porcelain"); got != "" {
		t.Errorf("status of the repository: %s; want clean", got)
	}
	if got := l.git(r.Dir, "log", "-1", "--format=%s"); !strings.Contains(got, p.id) {
		t.Errorf("newest commit %q; want the plan's", got)
	}
	if exists(r.Dir + "/.git/index.lock") {
		t.Error("our lock is left")
	}
}

// A file of the sandbox is a second name of a real one: going back to another
// mode leaves the real one's alone.
func TestARollbackLeavesAHardLinkedFileAlone(t *testing.T) {
	l := newLab(t)
	r := l.mkrepo("r")
	p := l.newPlan(r)
	cp := p.sh("chmod 600 a.txt").after
	want := p.state()
	p.sh("ln -f " + r.Dir + "/a.txt a.txt")
	real := l.watch(r.Dir)
	p.rollback(cp, want)
	real.same("the rollback")
}
