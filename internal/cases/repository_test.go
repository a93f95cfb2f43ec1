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
	"testing"

	"github.com/cleveragents/agents/internal/oracle"
)

// TestB033RefusedAndUntouched is about repositories that are refused aloud,
// and in which nothing is done. Those of which a copy can be made get one, see
// TestB022B033B036WhereGitCannotServe.
func TestB033RefusedAndUntouched(t *testing.T) {
	for _, c := range []struct {
		name, make string
		words      []string
	}{
		{"a directory below a repository", "git init -q -b main ..; echo 1 >f", nil},
		{"bare", "git init -q --bare .; : >f", nil},
		{"broken HEAD", "git init -q -b main; echo 1 >f; git add f; git commit -qm f; echo rubbish >.git/HEAD", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t)
			dir := l.at("outer", "r")
			must(t, os.MkdirAll(dir, 0o755))
			oracle.At(t, dir).Sh(c.make)
			real := l.watch(dir)
			made := l.run("plan", "create", "-r", dir)
			ex := made
			if made.code == 0 {
				ex = l.run("plan", "exec", made.text("plan.plan_id"), "--", "sh", "-ec", "echo 2 >f")
			}
			if ex.code == 0 {
				t.Errorf("success: %v", ex)
			} else if ex.text("error.message") == "" {
				t.Errorf("a refusal without a word: %v", ex)
			} else {
				ex.says(t, c.words...)
			}
			real.same("the refusal")
			if got := glob(t, l.dir, "data/sandboxes/*"); ex.code != 0 && len(got) > 0 {
				l.ok("cleanup")
				if got := glob(t, l.dir, "data/sandboxes/*"); len(got) > 0 {
					t.Errorf("left over: %v", got)
				}
			}
			if out := l.git(dir, "for-each-ref", "refs/heads/cleveragents"); ex.code != 0 && strings.Contains(out, "\trefs/heads/cleveragents") {
				t.Errorf("left over: %s", out)
			}
		})
	}
}

func TestB038B039HooksSigningAndIdentity(t *testing.T) {
	for _, c := range []struct {
		name string
		set  func(l *lab, r *oracle.Repo)
	}{
		{"hooks that refuse", func(l *lab, r *oracle.Repo) {
			for _, h := range []string{"pre-commit", "commit-msg", "prepare-commit-msg", "pre-merge-commit", "reference-transaction", "post-checkout", "post-merge"} {
				l.write("hooks/"+h, "#!/bin/sh\necho "+h+" >>"+l.at("ran")+"\nexit 1\n")
				must(l.t, os.Chmod(l.at("hooks", h), 0o755))
			}
			r.Git("config", "core.hooksPath", l.at("hooks"))
		}},
		{"signing", func(l *lab, r *oracle.Repo) {
			r.Sh("git config commit.gpgsign true; git config tag.gpgsign true; git config gpg.program /bin/false; git config merge.verifySignatures true; git config user.name R; git config user.email r@r")
		}},
		{"no identity", func(l *lab, r *oracle.Repo) {
			l.set("HOME", "/nonexistent")
			r.Git("config", "user.useConfigOnly", "true")
		}},
		{"an identity of variables", func(l *lab, r *oracle.Repo) {
			l.set("HOME", "/nonexistent")
			l.set("GIT_AUTHOR_NAME", "Env")
			l.set("GIT_AUTHOR_EMAIL", "env@example.com")
			l.set("GIT_DIR", "/nonexistent/git")
			l.set("GIT_INDEX_FILE", "/nonexistent/index")
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t)
			r := l.mkrepo("r")
			c.set(l, r)
			real, config := l.watch(r.Dir), r.Read(".git/config")
			p := l.newPlan(r)
			p.write("a.txt", "1\n")
			at2 := p.state()
			s2 := p.write("a.txt", "2\n")
			p.write("a.txt", "3\n")
			p.rollback(s2.before, at2)
			real.same("steps and a rollback")
			ap := l.run(p.apply()...)
			if ap.code == 0 {
				equal(t, "a.txt", r.Read("a.txt"), "1\n")
				if got := r.Git("log", "-1", "--format=%an <%ae>"); strings.TrimSpace(got) == "<>" {
					t.Errorf("nobody is the author: %s", got)
				}
			} else {
				t.Errorf("%v", ap)
			}
			equal(t, ".git/config", r.Read(".git/config"), config)
			if exists(l.at("ran")) {
				t.Errorf("hooks ran: %s", read(t, l.at("ran")))
			}
		})
	}
}

func TestB044SparseCheckoutsNeverDelete(t *testing.T) {
	for _, c := range []struct{ name, make string }{
		{"linked worktree, cone", "git worktree add -q -b side ../l; cd ../l; git sparse-checkout set --cone p"},
		{"linked worktree, patterns", "git worktree add -q -b side ../l; cd ../l; git sparse-checkout set --no-cone /p/ /a.txt"},
		{"main worktree", "ln -s r ../l; git sparse-checkout set --cone p"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t)
			r := l.mkrepo("r", "p/x", "1\n", "q/y", "1\n")
			r.Sh(c.make)
			real := l.watch(r.Dir, l.at("l"))
			p := &plan{l, l.ok("plan", "create", "-r", l.at("l")).text("plan.plan_id")}
			s1 := p.sh("echo 2 >p/x; echo new >p/n")
			if exists(filepath.Join(p.box(0), "q/y")) && exists(filepath.Join(l.at("l"), "q/y")) != exists(filepath.Join(p.box(0), "q/y")) {
				t.Error("the sandbox has what the sparse checkout leaves out")
			}
			_ = s1
			real.same("a step")
			l.ok(p.apply()...)
			lr := oracle.At(t, l.at("l"))
			equal(t, "q/y", lr.Git("show", "HEAD:q/y"), "1")
			equal(t, "p/x", lr.Git("show", "HEAD:p/x"), "2")
			equal(t, "p/x in the worktree", lr.Read("p/x"), "2\n")
			equal(t, "status", lr.Git("status", "--porcelain"), "")
			if exists(l.at("l", "q")) {
				t.Error("q appeared in the sparse checkout")
			}
		})
	}
}

func TestB046StaleLocks(t *testing.T) {
	l := newLab(t)
	r := l.mkrepo("r")
	p := l.newPlan(r)
	p.write("b.txt", "1\n")
	oracle.At(t, p.box(0)).Sh(`: >"$(git rev-parse --git-path index.lock)"; : >"$(git rev-parse --git-path HEAD.lock)"`)
	at2 := p.state()
	s2 := p.write("a.txt", "2\n")
	p.rollback(s2.before, at2)
	p.write("a.txt", "3\n")
	// In the user's repository a lock is the user's.
	r.Write(".git/index.lock", "")
	real := l.watch(r.Dir)
	ap := l.run(p.apply()...)
	if ap.code != 4 {
		t.Errorf("exit code %d, want 4: %v", ap.code, ap)
	}
	ap.says(t, "index.lock")
	real.same("an apply beside a lock")
	must(t, os.Remove(filepath.Join(r.Dir, ".git/index.lock")))
	l.ok(p.apply()...)
	equal(t, "a.txt", r.Read("a.txt"), "3\n")
}

func TestB049ThroughLinks(t *testing.T) {
	for _, c := range []struct{ name, make, resource string }{
		{"the repository", "ln -s r ../l", "l"},
		{"its .git", "mv .git ../g; ln -s ../g .git", "r"},
		{"both", "ln -s r ../l; mv .git ../g; ln -s ../g .git", "l"},
		{"a directory above", "ln -s . ../up", "up/r"},
		{"dots and slashes", "true", "home/..//./r/"},
		{"a link to the sandboxes' place", "mkdir ../far; ln -s ../far ../data/sandboxes", "r"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t)
			r := l.mkrepo("r")
			r.Sh(c.make)
			real := l.watch(r.Dir)
			p := &plan{l, l.ok("plan", "create", "-r", l.dir+"/"+c.resource).text("plan.plan_id")}
			s0 := p.sh("true")
			at1 := p.state()
			s1 := p.sh("echo 2 >a.txt; echo n >n")
			p.rollback(s1.before, at1)
			_ = s0
			p.sh("echo 2 >a.txt; echo n >n")
			l.ok("cleanup")
			real.same("cleanup")
			l.ok(p.apply()...)
			equal(t, "n", r.Read("n"), "n\n")
			equal(t, "status", r.Git("status", "--porcelain"), "")
			q := l.newPlan(r) // by its real name
			q.write("q", "q\n")
			l.ok("plan", "cancel", "--discard", "--yes", q.id)
			l.ok("cleanup")
			if !exists(filepath.Join(r.Dir, "a.txt")) {
				t.Error("cleanup took the user's repository")
			}
		})
	}
}

func TestB069NamesThatAreNoText(t *testing.T) {
	l := newLab(t)
	r := l.mkrepo("r")
	r.Sh(`printf 1 >"$(printf '\376')"; printf 2 >"$(printf '\377')"; printf 3 >'\xfe'; git add -A; git commit -qm names`)
	real := l.watch(r.Dir)
	p := l.newPlan(r)
	p.sh("true")
	at1 := p.state()
	s1 := p.sh(`printf 3 >"$(printf '\376')"; printf 4 >"$(printf '\377')"; printf 5 >'\xfe'; printf 6 >"$(printf 'new\200')"`)
	paths := s1.list("tool.changed_paths", "path")
	slices.Sort(paths)
	if len(slices.Compact(paths)) != 4 {
		t.Errorf("changed paths %q, want four that differ", paths)
	}
	p.rollback(s1.before, at1)
	real.same("rollback")
	l.ok("plan", "rollback", "--yes", p.id, s1.after)
	l.ok(p.apply()...)
	equal(t, "0xfe", r.Read("\xfe"), "3")
	equal(t, "0xff", r.Read("\xff"), "4")
	equal(t, `\xfe`, r.Read(`\xfe`), "5")
	equal(t, "new", r.Read("new\x80"), "6")
}

func TestB099B101B107PathsOfTools(t *testing.T) {
	l := newLab(t)
	r := l.mkrepo("r", "dir/f", "f\n")
	l.write("outside/secret", "secret\n")
	real := l.watch(r.Dir, l.at("outside"))
	p, q := l.newPlan(r), l.newPlan(r)
	q.write("a.txt", "q\n")
	p.sh("ln -s " + l.at("outside") + " lnk; ln -s ../../../outside rel; ln -s lnk lnk2; ln -s " + l.at("outside/secret") + " file; ln -s " + q.box(0) + " sibling")
	box, other := p.box(0), oracle.Digest(t, q.box(0))
	for _, path := range []string{"lnk/p", "lnk2/p", "rel/p", "file", "sibling/a.txt", "../x", "dir/../../x", q.box(0) + "/a", box + "-evil/a", box + "/../" + filepath.Base(q.box(0)) + "/a",
		l.at("outside/p"), "/etc/agents-test", "lnk/../../x", "dir//../../x", ".git", ".git/config", "dir/../.git/x"} {
		for _, call := range [][]string{
			p.tool("file-write", map[string]any{"path": path, "content": "evil"}),
			p.tool("file-delete", map[string]any{"path": path + "/secret"}),
			p.tool("file-copy", map[string]any{"from": "a.txt", "to": path}),
			p.tool("file-read", map[string]any{"path": path + "/secret"}),
		} {
			if res := l.run(call...); res.code == 0 && !strings.Contains(strings.Join(call, " "), `"file"`) {
				t.Errorf("not refused: %v", res)
			} else if strings.Contains(res.text("tool.stdout"), "secret\n") {
				t.Errorf("read outside: %v", res)
			}
		}
	}
	real.same("paths that lead out")
	if d := oracle.Diff(other, oracle.Digest(t, q.box(0))); d != "" {
		t.Errorf("the other plan's sandbox changed:\n%s", d)
	}
	// Absolute paths of the resource mean the sandbox.
	for i, path := range []string{filepath.Join(r.Dir, "new.txt"), r.Dir + "//dir/./n", filepath.Join(box, "in-box")} {
		res := l.run(p.tool("file-write", map[string]any{"path": path, "content": fmt.Sprint(i)})...)
		if res.code != 0 && res.text("error.message") == "" {
			t.Errorf("%v", res)
		}
	}
	if res := l.run(p.tool("file-write", map[string]any{"path": r.Dir + "2/x", "content": "x"})...); res.code == 0 {
		t.Errorf("a sibling of the resource: %v", res)
	}
	real.same("absolute paths of the resource")
	l.ok(p.apply()...)
	equal(t, "the link", oracle.At(t, r.Dir).Git("show", "HEAD:lnk"), l.at("outside"))
	equal(t, "outside", read(t, l.at("outside/secret")), "secret\n")
}

func TestB105IdsAndNamesThatLookLikeOptions(t *testing.T) {
	l := newLab(t)
	r := l.mkrepo("r")
	p := l.newPlan(r)
	p.sh("echo 1 >one")
	pwn := l.at("pwned")
	real, was := l.watch(r.Dir), p.state()
	for _, id := range []string{"--upload-pack=touch " + pwn, "../../x", "", strings.Repeat("x", 300), "--output=" + pwn, "HEAD --output=" + pwn, p.id + "/../x"} {
		for _, args := range [][]string{
			{"plan", "status", id}, {"plan", "rollback", "--yes", p.id, id}, {"plan", "rollback", "--yes", id, id}, {"plan", "apply", "--yes", id}, {"plan", "cancel", "--discard", "--yes", id},
			{"plan", "diff", p.id, "--from", id}, {"plan", "checkpoint", "show", p.id, id}, {"cleanup", "archive", "restore", id}, {"plan", "export", p.id, "--branch", id + "..x"}, {"plan", "create", "-r", id + "/nowhere"},
		} {
			if id == "" && args[1] == "diff" {
				continue // an empty bound is none
			}
			if res := l.run(args...); res.code == 0 {
				t.Errorf("accepted: %v", res)
			}
		}
	}
	if exists(pwn) {
		t.Error("an id was taken for an option")
	}
	real.same("bad ids")
	p.holds("after bad ids", was)
	s := p.sh("echo x >./-rf; echo y >./--force; git add -- --force ./-rf; rm a.txt")
	p.rollback(s.before, was)
	l.ok("plan", "rollback", "--yes", p.id, s.after)
	l.ok("plan", "diff", "--patch", p.id)
	l.ok(p.apply()...)
	equal(t, "-rf", r.Read("-rf"), "x\n")
	equal(t, "--force", r.Read("--force"), "y\n")
}

func TestB115StatesOutliveTheUsersHousekeeping(t *testing.T) {
	l := newLab(t)
	r := l.mkrepo("r")
	p := l.newPlan(r)
	var calls []call
	var states []state
	for i := range 3 {
		if i > 0 {
			states = append(states, p.state())
		}
		calls = append(calls, p.sh(fmt.Sprintf("echo %d >f; git add f; git -c user.name=x -c user.email=x@y commit -qm %d", i, i)))
	}
	states = append(states, p.state())
	l.ok("plan", "rollback", "--yes", p.id, calls[0].before)
	for _, dir := range []string{r.Dir, p.box(0)} {
		oracle.At(t, dir).Sh("git reflog expire --expire=now --all; git gc -q --prune=now; git worktree prune --expire=now")
	}
	// The user even rewrites history: the base is in no branch any more.
	r.Sh("git commit -q --amend -m other; git reflog expire --expire=now --all; git gc -q --prune=now")
	for i := 2; i >= 0; i-- {
		l.ok("plan", "rollback", "--yes", p.id, calls[i].after)
		files := slices.DeleteFunc(slices.Clone(p.state()), func(s string) bool { return !strings.HasPrefix(s, `"`) })
		want := slices.DeleteFunc(slices.Clone(states[i]), func(s string) bool { return !strings.HasPrefix(s, `"`) })
		if d := oracle.Diff(want, files); d != "" {
			t.Errorf("checkpoint %d:\n%s", i, d)
		}
	}
	if out, err := oracle.At(t, p.box(0)).Try("fsck", "--full"); err != nil {
		t.Errorf("fsck of the sandbox: %v\n%s", err, out)
	}
}

func TestB118B119OneDocumentAndItsCode(t *testing.T) {
	l := newLab(t)
	r := l.mkrepo("r")
	for _, h := range []string{"post-checkout", "reference-transaction", "post-merge", "post-commit"} {
		r.Write(".git/hooks/"+h, "#!/bin/sh\necho noise\necho noise >&2\n")
		must(t, os.Chmod(filepath.Join(r.Dir, ".git/hooks", h), 0o755))
	}
	l.set("GIT_TRACE", "1")
	p, q := l.newPlan(r), l.newPlan(r)
	s1, sq := p.write("a.txt", "2\n"), q.write("b.txt", "q\n")
	const unknown = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
	l.exits(3, "plan", "rollback", "--yes", p.id, unknown)
	l.exits(2, "plan", "rollback", "--yes", p.id, sq.before)
	l.exits(2, "plan", "rollback", "--yes", p.id)
	l.exits(2, "plan", "rollback", p.id, s1.before)
	l.exits(2, "plan", "no-such-command")
	l.exits(2, "plan", "rollback", "--no-such-flag")
	l.exits(1, "plan", "exec", p.id, "--", "sh", "-c", "echo x >x; exit 7").is(t, "tool.exit_code", "7")
	l.exits(1, "plan", "exec", p.id, "--", "sh", "-c", "kill -9 $$")
	r.Sh("echo host >a.txt; git -c core.hooksPath=/dev/null commit -qam host")
	l.exits(4, p.apply()...)
	must(t, os.RemoveAll(q.box(0)))
	must(t, os.RemoveAll(l.at("data/checkpoints", q.id)))
	if res := l.run("plan", "rollback", "--yes", q.id, sq.before); res.code == 0 {
		t.Errorf("a rollback without sandbox and store: %v", res)
	}
	l.exits(3, "plan", "status", unknown)
	r.Git("-c", "core.hooksPath=/dev/null", "revert", "--no-edit", "HEAD")
	l.ok(p.apply()...)
	l.exits(4, p.apply()...)
	l.exits(4, "plan", "rollback", "--yes", p.id, s1.before).is(t, "error.message", "Rollback blocked: plan is already applied")
}

func TestB029NothingPilesUpInTheUsersRepository(t *testing.T) {
	l := newLab(t)
	r := l.mkrepo("r")
	size := func() (n int64) {
		for _, f := range glob(t, r.Dir, ".git/objects/*/*") {
			fi, err := os.Stat(filepath.Join(r.Dir, f))
			must(t, err)
			n += fi.Size()
		}
		return n
	}
	before := size()
	p := l.newPlan(r)
	for range 5 {
		p.sh("head -c 1M /dev/urandom >big; git add big; git -c user.name=x -c user.email=x@y commit -qm big")
	}
	if got := size(); got != before {
		t.Errorf("the user's objects grew from %d to %d bytes", before, got)
	}
	l.ok("plan", "cancel", "--discard", "--yes", p.id)
	l.ok("cleanup")
	l.clean(r)
	l.cleanData()
	if got := size(); got > before+1<<10 {
		t.Errorf("the user's objects are %d bytes, were %d", got, before)
	}
}

func TestB027PruningFrees(t *testing.T) {
	l := newLab(t)
	r := l.mkrepo("r")
	l.ok("config", "set", "sandbox.checkpoint.max-per-plan", "5")
	p := l.newPlan(r)
	first := p.sh("head -c 1M /dev/urandom >big")
	for range 9 {
		p.sh("head -c 1M /dev/urandom >big")
	}
	list := p.checkpoints()
	if len(list) != 5 || list[0] != first.before {
		t.Errorf("listed %v, want 5 with the first, %s", list, first.before)
	}
	out, err := exec.Command("du", "-sk", l.at("data/checkpoints")).Output()
	must(t, err)
	var kb int
	_, err = fmt.Sscan(string(out), &kb)
	must(t, err)
	if kb > 7<<10 {
		t.Errorf("the store uses %d KiB for 5 checkpoints of 1 MiB", kb)
	}
	at := p.state()
	s := p.write("big", "small\n")
	p.rollback(s.before, at)
}

func TestU005DetachedHead(t *testing.T) {
	l := newLab(t)
	r := l.mkrepo("r")
	r.Git("checkout", "-q", "--detach")
	real := l.watch(r.Dir)
	p := l.newPlan(r)
	s := p.sh("true")
	at := p.state()
	s = p.sh("echo 2 >a.txt")
	p.rollback(s.before, at)
	real.same("rollback")
	p.sh("echo 2 >a.txt")
	l.ok(p.apply()...)
	equal(t, "a.txt", r.Read("a.txt"), "2\n")
	equal(t, "main", r.Git("show", "main:a.txt"), "v1")
	if _, err := r.Try("symbolic-ref", "-q", "HEAD"); err == nil {
		t.Error("HEAD is not detached any more")
	}
}

func TestU037RollbackGivesTheExactTree(t *testing.T) {
	l := newLab(t)
	r := l.mkrepo("r", "dir/f", "f\n", "x", "x\n")
	real := l.watch(r.Dir)
	p := l.newPlan(r)
	p.sh("mkdir -p e/mpty ro; echo r >ro/f; chmod 444 ro/f; chmod 555 ro; ln -s dir ld; ln -s nowhere dl; chmod 600 x; echo u >untracked; chmod 2755 dir; touch -d @1000 x")
	at2 := p.state()
	s2 := p.sh("chmod 755 ro; rm -rf ro e dir ld; mkdir ld; echo z >ld/z; ln -sfn x dl; chmod 777 x; echo more >>untracked; mkdir -p new/deep; echo n >new/deep/f; git rm -q --cached a.txt; git checkout -q -b other")
	p.rollback(s2.before, at2)
	p.rollback(s2.before, at2) // again: nothing to do, and no failure
	real.same("rollback")
	dry := l.ok("plan", "rollback", "--dry-run", p.id, s2.after)
	p.holds("after a dry run", at2)
	if len(dry.list("changes", "path")) == 0 {
		t.Errorf("a dry run tells nothing: %v", dry)
	}
}

func TestU023U029U115CheckpointsThatAreRequired(t *testing.T) {
	l := newLab(t)
	r := l.mkrepo("r")
	real := l.watch(r.Dir)
	p := l.newPlan(r)
	p.write("a.txt", "2\n")
	if n := len(p.checkpoints()); n < 2 {
		t.Errorf("%d checkpoints by default", n)
	}
	q := &plan{l, l.ok("plan", "create", "-r", r.Dir, "--require-checkpoints").text("plan.plan_id")}
	q.write("one", "1\n")
	was := q.state()
	store := l.at("data/checkpoints", q.id)
	must(t, os.Rename(store, store+".away"))
	must(t, os.WriteFile(store, nil, 0o400)) // a store that cannot be written, for root too
	ex := l.run("plan", "exec", q.id, "--", "sh", "-c", "touch "+l.at("ran"))
	if ex.code == 0 || exists(l.at("ran")) {
		t.Errorf("a tool ran without a checkpoint: %v", ex)
	}
	q.holds("after the refusal", was)
	must(t, os.Remove(store))
	must(t, os.Rename(store+".away", store))
	q.write("two", "2\n")
	real.same("steps")
}

func TestB032EightPlansWithTwoResources(t *testing.T) {
	l := newLab(t)
	r1, r2 := l.mkrepo("r1"), l.mkrepo("r2")
	results := make([]result, 8)
	plans := make([]*plan, len(results))
	var wg sync.WaitGroup
	for i := range results {
		plans[i] = l.newPlan(r1, r2)
		args := []string{"plan", "exec", plans[i].id, "--resource", []string{"r1", "r2"}[i%2], "--resource", []string{"r2", "r1"}[i%2], "--", "true"}
		cmd := l.command(args...)
		wg.Go(func() { results[i] = l.finish(cmd, args) })
	}
	wg.Wait()
	for _, res := range results {
		if res.code != 0 {
			t.Errorf("%v", res)
		}
	}
	for _, p := range plans {
		l.ok("plan", "cancel", "--discard", "--yes", p.id)
	}
	l.ok("cleanup")
	l.clean(r1)
	l.clean(r2)
	l.cleanData()
}
