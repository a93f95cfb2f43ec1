//go:build linux

package cases_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestB001RestoreAndUndoKeepForeignFiles(t *testing.T) {
	l := newLab(t)
	r := l.mkrepo("r")
	real := l.watch(r.Dir)
	p := l.newPlan(r)
	p.sh("mkdir out; head -c 5M /dev/urandom >out/data.bin")
	at2 := p.state()
	cp2 := p.write("a.txt", "v2\n").before
	p.rollback(cp2, at2)
	real.same("rollback")

	// A file of the user's that was there before the plan, and one that came
	// during it: neither an apply that fails nor one that is taken back touches them.
	r.Write("big.jsonl", strings.Repeat("{}\n", 1000))
	r.Write("a.txt", "v3\n")
	r.Git("commit", "-q", "-m", "theirs", "a.txt")
	p.write("a.txt", "v2\n")
	real = l.watch(r.Dir)
	l.exits(4, p.apply()...).says(t, "a.txt")
	real.same("the apply that failed")

	q := l.newPlan(r)
	q.sh("echo b >b.txt; mkdir -p made; echo c >made/c")
	l.ok(q.apply()...)
	r.Write("made/mine", "m\n")
	l.run("plan", "undo", "--yes", q.id)
	equal(t, "big.jsonl", r.Read("big.jsonl"), strings.Repeat("{}\n", 1000))
	equal(t, "made/mine", r.Read("made/mine"), "m\n")
	must(t, os.RemoveAll(filepath.Join(r.Dir, "made")))
	if exists(filepath.Join(r.Dir, "b.txt")) {
		t.Error("b.txt is still there after the undo")
	}
}

func TestB012ShellEditsAreTrackedAndUndone(t *testing.T) {
	for _, c := range []struct{ name, script string }{
		{"as reported", "sed -i s/v1/v9/ a.txt; echo n >new; rm b.txt; mv a.txt c.txt"},
		{"late child", "(sleep 1; echo late >>b.txt; echo l >late) >/dev/null 2>&1 & echo n >new"},
		{"late child in a session of its own", "setsid sh -c 'sleep 1; echo late >>b.txt' >/dev/null 2>&1 </dev/null & echo n >new"},
		{"same length and time", "cp -p b.txt /dev/shm/b.$$; printf 'x1\\n' >b.txt; touch -r /dev/shm/b.$$ b.txt; rm /dev/shm/b.$$"},
		{"by rename over", "printf 'x1\\n' >t; touch -r b.txt t; mv t b.txt"},
		{"mode and links", "chmod 755 b.txt; ln -s a.txt l; ln a.txt hard; mkfifo p"},
		{"git", "git rm -q b.txt; git commit -qm gone; git checkout -q -b side; echo x >a.txt; git stash -q"},
		{"deep", "mkdir -p 1/2/3/4; echo x >1/2/3/4/f; mv dir dir2; echo y >dir2/e"},
		{"file for directory", "rm -r dir; echo f >dir; rm b.txt; mkdir b.txt; echo x >b.txt/x"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t)
			r := l.mkrepo("r", "b.txt", "b1\n", "dir/d", "d\n")
			real := l.watch(r.Dir)
			p := l.newPlan(r)
			p.sh("true")
			at1 := p.state()
			s1 := p.sh(c.script)
			if c.name == "mode and links" { // what no state can hold is named, and left alone
				s1.says(t, "p")
				must(t, os.Remove(filepath.Join(p.box(0), "p")))
			}
			back := p.rollback(s1.before, at1)
			if n := len(back.list("changes_reverted", "")); n == 0 {
				t.Errorf("nothing said to be reverted: %v", back)
			}
			if c.name == "as reported" {
				got := back.list("changes_reverted", "")
				slices.Sort(got)
				equal(t, "changes_reverted", strings.Join(got, " "), "a.txt b.txt c.txt new")
			}
			// And forward again: the state that the step left.
			l.ok("plan", "rollback", "--yes", p.id, s1.after)
			l.ok("plan", "rollback", "--yes", p.id, s1.before)
			p.holds("there and back", at1)
			real.same("rollback")
		})
	}
}

func TestB013NestedRepositories(t *testing.T) {
	for _, c := range []struct{ name, make string }{
		{"untracked nested", "for n in be fe; do git init -q $n; echo 1 >$n/x; git -C $n add x; git -C $n commit -qm $n; done"},
		{"nested without commits", "for n in be fe; do git init -q $n; echo 1 >$n/x; done"},
		{"nested bare", "for n in be fe; do git init -q $n; git init -q --bare $n/b.git; echo 1 >$n/x; done"},
		{"nested in a nested", "git init -q be; git init -q be/in; echo 1 >be/in/x; git init -q fe; echo 1 >be/x; echo 1 >fe/x"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t)
			r := l.mkrepo("r", "top.txt", "t1\n")
			p := l.newPlan(r)
			env := "export GIT_AUTHOR_NAME=x GIT_AUTHOR_EMAIL=x@y GIT_COMMITTER_NAME=x GIT_COMMITTER_EMAIL=x@y; "
			p.sh(env + c.make)
			real := l.watch(r.Dir)
			at1 := p.state()
			s1 := p.sh(env + "echo 2 >be/x; echo 2 >fe/y; echo t2 >top.txt; git -C be add x; git -C be commit -qm two; git -C fe checkout -q -b other; echo new >be/new")
			p.rollback(s1.before, at1)
			real.same("rollback")
			l.ok(p.apply()...)
			equal(t, "top.txt", r.Read("top.txt"), "t1\n")
		})
	}
}

func TestB016IgnoredFilesAreRestored(t *testing.T) {
	l := newLab(t)
	r := l.mkrepo("r", ".gitignore", ".env\ndist/\n")
	r.Write(".env", "REAL=1\n")
	real := l.watch(r.Dir)
	p := l.newPlan(r)
	p.sh("echo A=1 >.env")
	at2 := p.state()
	s2 := p.sh("echo A=2 >.env; mkdir dist; echo x >dist/o; chmod 600 .env; mkdir -p dist/deep/er; ln -s o dist/l")
	p.rollback(s2.before, at2)
	equal(t, ".env", read(t, filepath.Join(p.box(0), ".env")), "A=1\n")
	if exists(filepath.Join(p.box(0), "dist")) {
		t.Error("dist is still there")
	}
	// A rule that the step itself writes hides nothing either.
	s3 := p.sh("printf '*\\n' >.gitignore; echo hidden >secret; echo A=3 >.env")
	p.rollback(s3.before, at2)
	real.same("rollback")
	l.ok(p.apply()...)
	equal(t, "the user's .env", r.Read(".env"), "REAL=1\n")
	if out := r.Git("log", "--all", "--format=%H", "--", ".env"); out != "" {
		t.Errorf(".env was committed in %s", out)
	}
}

func TestB019EmptyDirectories(t *testing.T) {
	l := newLab(t)
	r := l.mkrepo("r", ".gitignore", "node_modules\n")
	must(t, os.MkdirAll(filepath.Join(r.Dir, ".git/refs/tags"), 0o755))
	r.Sh("mkdir -p empty node_modules/.cache")
	real := l.watch(r.Dir)
	p := l.newPlan(r)
	p.sh("mkdir -p empty node_modules/.cache deep/er/est; chmod 700 empty")
	at1 := p.state()
	s1 := p.sh("rmdir empty deep/er/est; mkdir -p n/e; echo f >deep/er/f; rm -r node_modules; echo file >empty")
	p.rollback(s1.before, at1)
	real.same("rollback")
	l.ok(p.apply()...)
	for _, d := range []string{"empty", "node_modules/.cache", ".git/refs/tags"} {
		if !exists(filepath.Join(r.Dir, d)) {
			t.Errorf("apply removed the user's %s", d)
		}
	}
}

func TestB005NestedRepositoryWithoutCommits(t *testing.T) {
	l := newLab(t)
	r := l.mkrepo("r")
	real := l.watch(r.Dir)
	p := l.newPlan(r)
	p.sh("printf v2 >a.txt; git init -q sub")
	at2 := p.state()
	s2 := p.write("a.txt", "v3")
	p.rollback(s2.before, at2)
	equal(t, "a.txt", read(t, filepath.Join(p.box(0), "a.txt")), "v2")
	real.same("rollback")
}

func TestB007NoLimitMakesAFileVanish(t *testing.T) {
	for _, c := range []struct{ name, key, value string }{
		{name: "defaults"},
		{"ignored files are not recorded", "sandbox.checkpoint.ignored", "none"},
		{"all ignored files are recorded", "sandbox.checkpoint.ignored", "all"},
		{"smallest quota", "sandbox.checkpoint.quota", "1MiB"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t)
			r := l.mkrepo("r", ".gitignore", "*.ign\n")
			r.Sh("head -c 8M /dev/urandom >app.log")
			r.Commit("big")
			if c.key != "" {
				l.ok("config", "set", c.key, c.value)
			}
			p := l.newPlan(r)
			p.sh("echo keep >x.ign")
			at1 := p.state()
			s1 := l.run("plan", "exec", p.id, "--", "sh", "-c", "echo x >>app.log; head -c 2M /dev/urandom >n.log").call()
			at2 := p.state()
			s2 := l.run(p.tool("file-write", map[string]any{"path": "b", "content": "1"})...).call()
			for i, s := range []call{s2, s1} {
				want := []state{at2, at1}[i]
				if s.code != 0 { // refused aloud, and nothing changed
					if s.text("error.message") == "" {
						t.Errorf("a refusal without a word: %v", s)
					}
					continue
				}
				if s.before == "" {
					t.Errorf("no checkpoint before a successful step: %v", s)
					continue
				}
				if back := l.run("plan", "rollback", "--yes", p.id, s.before); back.code == 0 {
					p.holds("after the rollback", want)
				} else if back.code != 3 || slices.Contains(p.checkpoints(), s.before) {
					t.Errorf("a listed checkpoint cannot be gone back to: %v", back)
				}
			}
			if !exists(filepath.Join(p.box(0), "x.ign")) || !exists(filepath.Join(p.box(0), "app.log")) {
				t.Error("a file is gone")
			}
		})
	}
}

// objectFiles are the files that hold the recorded states of a plan.
func (p *plan) objectFiles() []string {
	return glob(p.t, p.dir, "data/checkpoints/"+p.id+"/objects/*/objects/pack/*.pack")
}

func TestB008DamagedStoreLeavesTheSandbox(t *testing.T) {
	for _, c := range []struct {
		name   string
		damage func(t *testing.T, path string)
	}{
		{"truncated", func(t *testing.T, path string) { must(t, os.Truncate(path, 0)) }},
		{"cut short", func(t *testing.T, path string) { must(t, os.Truncate(path, 40)) }},
		{"removed", func(t *testing.T, path string) { must(t, os.Remove(path)) }},
		{"one bit", func(t *testing.T, path string) {
			b := []byte(read(t, path))
			b[len(b)/2] ^= 1
			must(t, os.Chmod(path, 0o644))
			must(t, os.WriteFile(path, b, 0o644))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t)
			r := l.mkrepo("r")
			for i := range 20 {
				r.Write("f"+string(rune('a'+i)), "base\n")
			}
			r.Commit("twenty")
			real := l.watch(r.Dir)
			p := l.newPlan(r)
			p.sh("for f in f*; do echo $f one >$f; done")
			files := p.objectFiles()
			s2 := p.sh("for f in f*; do echo $f two >$f; done")
			for _, f := range files {
				c.damage(t, l.at(f))
			}
			was := p.state()
			back := l.run("plan", "rollback", "--yes", p.id, s2.before)
			if back.code == 0 {
				t.Errorf("a rollback to a damaged state succeeded: %v", back)
			}
			p.holds("after the rollback that failed", was)
			if !slices.Contains(p.checkpoints(), s2.before) {
				t.Error("the checkpoint is not listed any more")
			}
			real.same("the rollback that failed")
			// The plan goes on, and its new checkpoints work.
			at4 := p.state()
			s4 := p.write("new", "n\n")
			p.rollback(s4.before, at4)
		})
	}
}

// TestB123: what cannot be put back makes the rollback fail, whole.
func TestB123RollbackThatCannotWrite(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can own a directory that the program, as another user, cannot write to")
	}
	for _, c := range []struct{ name, hold, release string }{
		{"another's directory", "chown 0:0 d; chmod 755 d", "chown 65534:65534 d"},
		{"another's directory with a file replaced", "chown -R 0:0 d; chmod 755 d", "chown -R 65534:65534 d"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t)
			r := l.mkrepo("r", "b.txt", "b1\n", "d/e.txt", "e1\n")
			must(t, exec.Command("chown", "-R", "65534:65534", l.dir).Run())
			l.uid = 65534
			real := l.watch(r.Dir)
			p := l.newPlan(r)
			p.sh("true")
			at1 := p.state()
			s1 := p.sh("echo 2 >a.txt; echo 2 >b.txt; echo 2 >d/e.txt; echo 2 >d/new")
			hold := func(script string) {
				cmd := exec.Command("sh", "-ec", script)
				cmd.Dir = p.box(0)
				out, err := cmd.CombinedOutput()
				if err != nil {
					t.Fatalf("%v\n%s", err, out)
				}
			}
			hold(c.hold)
			was := p.state()
			back := l.run("plan", "rollback", "--yes", p.id, s1.before)
			if back.code == 0 {
				t.Fatalf("success: %v", back)
			}
			back.says(t, "directory d")
			if n := back.text("rollback_summary.restored_files_count"); n != "" && n != "0" {
				t.Errorf("%s files restored by a rollback that failed", n)
			}
			p.holds("after the rollback that failed", was)
			if !slices.Contains(p.checkpoints(), s1.before) {
				t.Error("the checkpoint is gone")
			}
			real.same("the rollback that failed")
			hold(c.release)
			p.rollback(s1.before, at1)
		})
	}
}
