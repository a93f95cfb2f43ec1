//go:build linux

package cases_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/cleveragents/agents/internal/oracle"
)

func TestB058U047EverythingComesHomeToADirectory(t *testing.T) {
	l := newLab(t)
	d := l.mkdir("d", `echo a >a.txt; echo c >c; echo '#!/bin/sh' >d; mkdir -p dir/deep empty; echo f >dir/deep/f; echo l2 >l2; ln -s a.txt l3; printf 'x\0y' >old.bin
echo h >h1; ln h1 h2; mkdir gone; echo g >gone/g; chmod 640 c`)
	p := l.newDirPlan(d)
	p.sh(`mv a.txt b.txt; echo x >>b.txt; head -c 4K /dev/urandom >n.bin; rm c; chmod +x d; ln -sf d l
mv dir moved; rm l2; ln -s d l2; rm l3; echo now a file >l3; printf 'z\0' >old.bin; mkdir -p new/dir new/empty; echo f >new/dir/f; rmdir empty; rm -r gone; echo f >gone
printf 'no end' >noeol; : >zero; echo q >'we"ird	name'; echo hh >>h1; chmod 700 new; truncate -s 1M sparse`)
	want := without(oracle.Digest(t, p.box(0)), ".")
	diff := l.ok("plan", "diff", p.id)
	if n := len(diff.list("files", "path")); n < 14 {
		t.Errorf("the diff names %d files: %v", n, diff)
	}
	real := l.watch(d)
	ap := l.ok(p.apply("--keep-sandbox")...)
	if got := oracle.Diff(want, without(oracle.Digest(t, d), ".")); got != "" {
		t.Errorf("the directory is not what the sandbox was (- sandbox, + real):\n%s", got)
	}
	one, err := os.Stat(filepath.Join(d, "h1"))
	must(t, err)
	two, err := os.Stat(filepath.Join(d, "h2"))
	must(t, err)
	if !os.SameFile(one, two) {
		t.Error("two names of one file are two files now")
	}
	ap.is(t, "sandbox_cleanup.branch_merged", "false")
	ap.is(t, "sandbox_cleanup.branch", "")
	ap.is(t, "resources.0.commit_ref", "")
	if entries := glob(t, l.dir, "d/.*"); len(entries) > 0 {
		t.Errorf("left in the directory: %v", entries)
	}
	l.ok("plan", "undo", "--yes", p.id)
	real.same("undo")
	l.ok(p.apply()...)
	l.ok("cleanup")
	l.cleanData(p)
}

func TestU019U123DiffAndStrategyOfADirectory(t *testing.T) {
	l := newLab(t)
	d := l.mkdir("d", "echo a >changed; echo b >deleted; echo long enough to be found again >moved")
	run := l.ok("run", "-r", d, "--", "sh", "-ec", "echo 2 >changed; rm deleted; echo n >added; mv moved away")
	for _, at := range []string{"plan.resources.0.strategy", "sandboxes.0.strategy"} {
		run.is(t, at, "copy_on_write")
	}
	p := &plan{l, run.text("plan.plan_id")}
	st := p.status()
	st.is(t, "sandboxes.0.strategy", "copy_on_write")
	equal(t, "changed in the sandbox", read(t, filepath.Join(st.text("sandboxes.0.path"), "changed")), "2\n")
	df := l.ok("plan", "diff", "--patch", p.id)
	var got []string
	files, _ := df.get("files").([]any)
	for i := range files {
		at := fmt.Sprintf("files.%d.", i)
		got = append(got, df.text(at+"change")+" "+df.text(at+"path"))
	}
	slices.Sort(got)
	equal(t, "changes", strings.Join(got, ", "), "added added, deleted deleted, modified changed, renamed away")
	for _, line := range []string{"+2", "-a", "-b", "+n"} {
		if !strings.Contains(df.text("patch"), "\n"+line+"\n") {
			t.Errorf("the patch has no %q:\n%s", line, df.text("patch"))
		}
	}
}

func TestU015BothNamesOfTheCopy(t *testing.T) {
	for _, name := range []string{"filesystem_copy", "copy_on_write"} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			l.ok("config", "set", "sandbox.strategy", name)
			l.ok("config", "get", "sandbox.strategy").is(t, "config.value", "copy_on_write")
			d := l.mkdir("d", "echo a >a")
			l.ok("resource", "add", "fs-directory", "work", "--path", d, "--strategy", name).is(t, "resource.strategy", "copy_on_write")
			p := l.newDirPlan("work")
			p.write("a", "2\n")
			p.status().is(t, "sandboxes.0.strategy", "copy_on_write")
			r := l.mkrepo("r") // a repository may have a copy too
			q := l.newPlan(r)
			q.write("a.txt", "2\n")
			q.status().is(t, "sandboxes.0.strategy", "copy_on_write")
			l.ok(q.apply()...)
			equal(t, "status", r.Git("status", "--porcelain"), " M a.txt")
			l.clean(r)
		})
	}
}

func TestB052U001U003B051ConflictsInADirectory(t *testing.T) {
	for _, c := range []struct{ name, plan, host, conflicts string }{
		{"content", "echo 2 >a", "echo 3 >a", "a"},
		{"two of five", "for f in a b c; do echo plan >$f; done; echo new >n", "echo host >b; echo host >a; echo host >e", "a b"},
		{"deleted here, changed there", "rm a", "echo 3 >a", "a"},
		{"changed here, deleted there", "echo 2 >a", "rm a", "a"},
		{"both added", "echo p >n", "echo h >n", "n"},
		{"file and directory", "mkdir n; echo p >n/x", "echo h >n", "n"},
		{"mode here, content there", "chmod 755 a", "echo 3 >a", "a"},
		{"the same length and time", "echo 2 >a", "touch -r a t; echo 3 >a; touch -r t a; rm t", "a"},
		{"replaced by a link", "echo 2 >a", "rm a; ln -s b a", "a"},
		{"replaced by the same name", "echo 2 >a", "cp a t; echo 9 >t; mv t a", "a"},
		{"the directory gone", "echo 2 >sub/f", "rm -r sub", "sub/f"},
		{"a new file in a directory that goes", "rm -r sub", "echo h >sub/new", "sub/new"},
		{"a new directory in one that goes", "rm -r sub; echo f >sub", "mkdir -p sub/new/er", "sub/new"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t)
			d := l.mkdir("d", "for f in a b c e; do echo $f >$f; done; mkdir sub; echo f >sub/f")
			p := l.newDirPlan(d)
			p.sh(c.plan)
			l.host(d, "cp -a . ../kept; "+c.host+"; echo mine >notes")
			real, box := l.watch(d), p.state()
			for range 2 {
				ap := l.exits(4, p.apply()...)
				ap.is(t, "resources.0.state", "conflict")
				got := ap.list("resources.0.conflicts", "path")
				slices.Sort(got)
				equal(t, "conflicts", strings.Join(slices.Compact(got), " "), c.conflicts)
				for _, why := range ap.list("resources.0.conflicts", "reason") {
					if !strings.Contains(why, "plan") && !strings.Contains(why, "real side") {
						t.Errorf("the reason names no side: %s", why)
					}
				}
				if hint := ap.text("error.hint"); !strings.Contains(hint, "agents plan update ") {
					t.Errorf("the hint is %q", hint)
				}
				real.same("an apply with a conflict")
				p.holds("after an apply with a conflict", box)
			}
			p.status().is(t, "resources.0.apply_state", "conflict")
			// With the cause gone it goes home, and what else the user has stays.
			l.host(l.dir, "mv d/notes notes; rm -r d; mkdir d; cp -a kept/. d; mv notes d/notes")
			l.ok(p.apply()...)
			equal(t, "notes", read(t, filepath.Join(d, "notes")), "mine\n")
		})
	}
}

func TestB051BothEditsOfOneFileAreMerged(t *testing.T) {
	l := newLab(t)
	d := l.mkdir("d", "for i in 1 2 3 4 5 6 7 8 9 10; do echo $i; done >f")
	p := l.newDirPlan(d)
	p.sh("sed -i s/^9$/nine/ f")
	l.host(d, "sed -i s/^2$/two/ f; chmod 600 f")
	l.exits(4, p.apply()...).says(t, "--merge")
	l.ok(p.apply("--merge")...)
	equal(t, "f", read(t, filepath.Join(d, "f")), "1\ntwo\n3\n4\n5\n6\n7\n8\nnine\n10\n")
	fi, err := os.Stat(filepath.Join(d, "f"))
	must(t, err)
	equal(t, "mode", fi.Mode().String(), "-rw-------")
}

func TestB057FilesInTheWayInADirectory(t *testing.T) {
	for _, c := range []struct {
		name, plan, host string
		named            string // "" = it applies
	}{
		{"a file", "echo plan >new", "echo mine >new", "new"},
		{"the same bytes", "echo mine >new", "echo mine >new", ""},
		{"a directory", "echo plan >new", "mkdir new; echo m >new/mine", "new"},
		{"an empty directory", "echo plan >new", "mkdir new", "new"},
		{"a link", "echo plan >new", "echo t >notes; ln -s notes new", "new"},
		{"a dangling link", "echo plan >new", "ln -s nowhere new", "new"},
		{"a file where a directory comes", "mkdir new; echo p >new/p", "echo mine >new", "new"},
		{"a link where a directory comes", "mkdir new; echo p >new/p", "mkdir real; ln -s real new", "new"},
		{"a directory of theirs too", "mkdir new; echo p >new/p", "mkdir new; echo m >new/m", ""},
		{"a FIFO", "echo plan >new", "mkfifo new", "new"},
		{"unrelated", "echo plan >new", "echo mine >notes; mkdir e; echo m >e/m", ""},
		{"beside it in the same directory", "echo p >dir/p", "echo m >dir/m", ""},
		{"their directory became a link", "echo p >dir/p", "mv dir elsewhere; ln -s elsewhere dir", "dir/p"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t)
			d := l.mkdir("d", "mkdir dir; echo f >dir/f")
			p := l.newDirPlan(d)
			p.sh(c.plan)
			l.host(d, c.host)
			mine, real := oracle.Digest(t, d), l.watch(d)
			ap := l.run(p.apply()...)
			if c.named != "" {
				if ap.code != 4 {
					t.Errorf("exit code %d, want 4: %v", ap.code, ap)
				}
				ap.says(t, c.named)
				real.same("the apply that was refused")
				return
			}
			if ap.code != 0 {
				t.Errorf("refused: %v", ap)
			}
			now := oracle.Digest(t, d)
			for _, line := range mine {
				if !slices.Contains(now, line) {
					t.Errorf("the user's %s is gone", line)
				}
			}
		})
	}
}

func TestB063U051U053B003SeveralResources(t *testing.T) {
	l := newLab(t)
	r := l.mkrepo("r")
	d := l.mkdir("d", "echo v1 >a.txt")
	l.host(l.dir, "echo one >single")
	p := l.newDirPlan(r.Dir, d, l.at("single"))
	l.ok("plan", "exec", p.id, "-r", "r", "-r", "d", "-r", "single", "--", "sh", "-ec",
		`echo plan >a.txt; echo plan >"$AGENTS_SANDBOX_D"/a.txt; echo n >"$AGENTS_SANDBOX_D"/n; echo plan >"$AGENTS_SANDBOX_SINGLE"/single`)
	l.host(d, "echo host >a.txt")
	real := l.watch(r.Dir, d)
	ap := l.exits(4, p.apply()...)
	real.same("an apply of which one part is in conflict")
	equal(t, "states", strings.Join(ap.list("resources", "state"), " "), "not_tried conflict not_tried")
	part := l.exits(5, p.apply("--partial")...)
	equal(t, "states", strings.Join(part.list("resources", "state"), " "), "applied conflict applied")
	equal(t, "r", r.Read("a.txt"), "plan\n")
	equal(t, "single", read(t, l.at("single")), "plan\n")
	l.watch(d).same("a partial apply")
	head := r.Git("rev-parse", "HEAD")
	equal(t, "states", strings.Join(p.status().list("resources", "apply_state"), " "), "applied conflict applied")
	l.host(d, "echo v1 >a.txt")
	l.ok(p.apply()...)
	equal(t, "d", read(t, filepath.Join(d, "a.txt")), "plan\n")
	equal(t, "HEAD, which the second apply leaves alone", r.Git("rev-parse", "HEAD"), head)
	l.clean(r)

	// What somebody changed after the apply is not taken back.
	q := l.newDirPlan(d)
	q.sh("echo q >a.txt; echo q >n; echo q >q")
	l.ok(q.apply()...)
	l.host(d, "echo later >n; echo more >more")
	after := l.watch(d)
	l.exits(4, "plan", "undo", "--yes", q.id).says(t, "n")
	after.same("an undo that was refused")
	q = l.newDirPlan(d)
	q.sh("echo 2 >q; echo 2 >added")
	l.ok(q.apply()...)
	l.host(d, "echo even more >more")
	l.ok("plan", "undo", "--yes", q.id)
	equal(t, "q", read(t, filepath.Join(d, "q")), "q\n")
	equal(t, "more", read(t, filepath.Join(d, "more")), "even more\n")
}

func TestB001B012B016B019U037RollbackOfADirectory(t *testing.T) {
	for _, c := range []struct{ name, script string }{
		{"as reported", "sed -i s/a/9/ a; echo n >new; rm b; mv a c"},
		{"late child", "(sleep 1; echo late >>b; echo l >late) >/dev/null 2>&1 & echo n >new"},
		{"late child in a session of its own", "setsid sh -c 'sleep 1; echo late >>b' >/dev/null 2>&1 </dev/null & echo n >new"},
		{"same length and time", "touch -r b ../t.$$; printf 'x\\n' >b; touch -r ../t.$$ b; rm ../t.$$"},
		{"modes, links, hard links", "chmod 755 b; ln -s a l; ln a hard; rm link; ln -s a link; chmod 2700 dir; touch -d @1000 a"},
		{"file for directory", "rm -r dir; echo f >dir; rm b; mkdir b; echo x >b/x"},
		{"ignored files", "echo A=2 >.env; mkdir dist; echo o >dist/o; printf '*\\n' >.gitignore"},
		{"empty directories", "rmdir empty; mkdir -p n/e; rmdir node_modules/.cache; rm -r .git/refs/tags"},
		{"sparse and big", "truncate -s 5M hole; printf x | dd of=big bs=1 seek=1000000 conv=notrunc 2>/dev/null"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t)
			d := l.mkdir("d", "echo a >a; echo b >b; mkdir -p dir out empty .git/refs/tags node_modules/.cache; echo d >dir/d; ln -s dir link; echo A=1 >.env; printf '.env\ndist/\n' >.gitignore; head -c 2M /dev/urandom >big")
			real := l.watch(d)
			p := l.newDirPlan(d)
			p.sh("head -c 1M /dev/urandom >out/data.bin")
			at1 := p.state()
			s1 := p.sh(c.script)
			back := p.rollback(s1.before, at1)
			if n := len(back.list("changes_reverted", "")); n == 0 {
				t.Errorf("nothing said to be reverted: %v", back)
			}
			l.ok("plan", "rollback", "--yes", p.id, s1.after)
			p.rollback(s1.before, at1)
			p.rollback(s1.before, at1) // again: nothing to do, and no failure
			real.same("rollback")
		})
	}
}

func TestB013B005NestedRepositoriesInADirectory(t *testing.T) {
	l := newLab(t)
	env := "export GIT_AUTHOR_NAME=x GIT_AUTHOR_EMAIL=x@y GIT_COMMITTER_NAME=x GIT_COMMITTER_EMAIL=x@y; "
	d := l.mkdir("d", env+`for n in be fe; do git init -q $n; echo 1 >$n/x; git -C $n add x; git -C $n commit -qm $n; done; git init -q young; echo t >top.txt
git -C be worktree add -q ../linked -b side; git init -q far; echo 1 >far/x; git -C far add x; git -C far commit -qm far; git -C far config core.worktree "$PWD/far"`)
	other := l.mkrepo("other")
	other.Git("worktree", "add", "-q", "-b", "side", filepath.Join(d, "foreign"))
	real := l.watch(d, other.Dir)
	p := l.newDirPlan(d)
	p.sh("true").says(t, "foreign/.git leads to the git directory")
	at1 := p.state()
	s1 := p.sh(env + `echo 2 >be/x; echo 2 >fe/y; echo t2 >top.txt; git -C be add x; git -C be commit -qm two; git -C fe checkout -q -b more; echo n >young/n; git -C young add n
(cd far; echo 2 >x; git checkout -q -- x; test "$(cat x)" = 1; echo 3 >x; git commit -qam planned)
cd linked; echo s >s; git add s; git commit -qm planned; cd ../be; git worktree remove --force linked; cd ../foreign; echo f >f; ! git add f 2>/dev/null`)
	real.same("git commands in the copy")
	p.rollback(s1.before, at1)
	l.host(d, "echo theirs >news")
	l.ok("plan", "update", p.id)
	p.sh(env + `cat news; cd linked; echo s >s; git add s; git commit -qm planned; cd ../foreign; ! git status 2>/dev/null`)
	must(t, os.Remove(filepath.Join(d, "news")))
	real.same("git commands after an update")
	l.ok("plan", "rollback", "--yes", p.id, s1.after)
	ap := l.ok(p.apply()...)
	ap.says(t, "be/.git", "protected")
	equal(t, "top.txt", read(t, d+"/top.txt"), "t2\n")
	equal(t, "be's history", l.git(d+"/be", "log", "--format=%s", "--all"), "be")
	equal(t, "other's history", other.Git("log", "--format=%s", "--all"), "init")
	if !exists(d + "/linked/.git") {
		t.Error("the linked worktree's .git is gone")
	}
}

func TestB022B033B036WhereGitCannotServe(t *testing.T) {
	l := newLab(t)
	noGit := l.mkdir("bin", `for f in /usr/bin/* /bin/*; do case $f in */git*) ;; *) [ -e "${f##*/}" ] || ln -s "$f" .; esac; done`)
	many := l.mkdir("many", "mkdir -p node_modules; cd node_modules; i=0; while [ $i -lt 3000 ]; do : >m$i; i=$((i+1)); done; cd ..; echo f >f")
	unborn := l.mkdir("unborn", "git init -q; echo f >f")
	orphan := l.mkdir("orphan", "git init -q; echo f >f; git add f; git commit -qm f; git checkout -q --orphan new")
	filter := l.mkdir("filter", "git init -q; echo '*.bin filter=big' >.gitattributes; echo f >f; echo x >x.bin; git add -A; git commit -qm f; git config filter.big.required true; git config filter.big.smudge 'no-such-prog %f'")
	outer := l.mkdir("outer", "git init -q; echo inner >.gitignore; mkdir inner; echo f >inner/f; git add .gitignore; git commit -qm i")
	born := l.mkrepo("born", "f", "f\n").Dir
	plain := l.mkdir("plain", "echo f >f")
	for _, c := range []struct {
		name, dir, arg string
		path           string
		words          []string // what is said of the copy
	}{
		{"no repository", plain, plain, "", nil},
		{"no repository and no git", plain, plain, noGit, nil},
		{"a repository and no git", born, born, noGit, []string{"plain copy", "git"}},
		{"an ignored directory", outer + "/inner", "fs-directory:" + outer + "/inner", "", nil},
		{"many files", many, many, "", nil},
		{"no commits", unborn, unborn, "", []string{"plain copy", "no commit"}},
		{"an orphan branch", orphan, orphan, "", []string{"plain copy", "no commit"}},
		{"a required filter", filter, filter, "", []string{"plain copy", "filter big"}},
	} {
		path := os.Getenv("PATH")
		if c.path != "" {
			path = c.path
		}
		l.set("PATH", path)
		real := l.watch(c.dir)
		p := l.newDirPlan(c.arg)
		s1 := p.write("f", "2\n")
		s1.says(t, c.words...)
		p.status().is(t, "sandboxes.0.strategy", "copy_on_write")
		s2 := p.write("f", "3\n")
		if len(p.checkpoints()) < 2 || s2.before == "" {
			t.Errorf("%s: checkpoints %v", c.name, p.checkpoints())
		}
		l.ok("plan", "rollback", "--yes", p.id, s2.before)
		equal(t, c.name+": f after the rollback", read(t, p.box(0)+"/f"), "2\n")
		real.same(c.name)
		l.ok(p.apply()...)
		equal(t, c.name+": f", read(t, c.dir+"/f"), "2\n")
	}
	l.set("PATH", os.Getenv("PATH"))
	equal(t, "unborn is still unborn", l.git(unborn, "for-each-ref"), "")
	l.exits(2, "plan", "create", "-r", outer+"/inner").says(t, "fs-directory:")
	bare := l.mkdir("bare", "git init -q --bare .")
	p := l.newDirPlan(bare)
	l.exits(1, "plan", "exec", p.id, "--", "true").says(t, "commit") // its files are git's own
}

func TestB049ADirectoryThroughLinks(t *testing.T) {
	l := newLab(t)
	d := l.mkdir("real/d", "echo a >a")
	must(t, os.Symlink(d, l.at("link")))
	must(t, os.Symlink(filepath.Join(d, "a"), l.at("file")))
	p := l.newDirPlan(l.at("link"))
	q := l.newDirPlan(d)
	equal(t, "resource", p.status().text("plan.resources.0.resource_id"), q.status().text("plan.resources.0.resource_id"))
	p.write("a", "2\n")
	equal(t, "a before the apply", read(t, d+"/a"), "a\n")
	l.ok(p.apply()...)
	equal(t, "a", read(t, d+"/a"), "2\n")
	f := l.newDirPlan("one=" + l.at("file"))
	f.sh("for f in *; do echo 3 >$f; done")
	l.ok(f.apply()...)
	equal(t, "a", read(t, d+"/a"), "3\n")
	for _, link := range []string{"link", "file"} {
		if fi, err := os.Lstat(l.at(link)); err != nil || fi.Mode().Type() != os.ModeSymlink {
			t.Errorf("%s is no link any more: %v", link, err)
		}
	}
	l.ok("plan", "cancel", "--yes", "--discard", q.id)
	l.ok("cleanup")
	equal(t, "a", read(t, d+"/a"), "3\n")
}

func TestB103PlantedFilesOfADirectory(t *testing.T) {
	l := newLab(t)
	d := l.mkdir("d", "echo a >a; git init -q nested; mkdir .cleveragents; echo '[sandbox]' >.cleveragents/config.toml")
	marker := l.at("pwned")
	p := l.newDirPlan(d)
	real := l.watch(d)
	p.sh(fmt.Sprintf(`git init -q .; git config core.fsmonitor 'touch %[1]s #'; mkdir -p .git/hooks; printf '#!/bin/sh\ntouch %[1]s\n' >.git/hooks/post-commit; chmod +x .git/hooks/post-commit
git -C nested config core.fsmonitor 'touch %[1]s #'; printf '* filter=z\n' >.gitattributes; git config filter.z.clean 'touch %[1]s; cat'
printf 'sandbox.strategy = "none"\n' >.cleveragents/config.toml; echo 2 >a; touch %[1]s.in.git; rm -f %[1]s`, marker))
	_ = os.Remove(marker)
	l.ok("plan", "diff", "--patch", p.id)
	real.same("planted programs")
	ap := l.ok(p.apply()...)
	equal(t, "left out", strings.Join(ap.list("left_out", "path"), " "), ".cleveragents .git nested/.git")
	equal(t, "a", read(t, d+"/a"), "2\n")
	l.git(d+"/nested", "status")
	if exists(marker) || exists(d+"/.git") {
		t.Error("a planted program ran, or came home")
	}
	equal(t, "config", read(t, d+"/.cleveragents/config.toml"), "[sandbox]\n")
}

func TestB099ALinkThatLeadsOutOfADirectory(t *testing.T) {
	l := newLab(t)
	outside := l.mkdir("outside", "echo secret >secret")
	d := l.mkdir("d", "echo a >a; ln -s ../outside there")
	real := l.watch(outside, d)
	p := l.newDirPlan(d)
	p.sh("ln -s " + outside + " lnk")
	for _, name := range []string{"lnk/p", "there/p", "../d-x/p", "../../p"} {
		if res := l.run(p.tool("file-write", map[string]any{"path": name, "content": "x"})...); res.code == 0 {
			t.Errorf("%s was written: %v", name, res)
		}
		if res := l.run(p.tool("file-read", map[string]any{"path": filepath.Join(filepath.Dir(name), "secret")})...); res.code == 0 {
			t.Errorf("%s was read: %v", name, res)
		}
	}
	real.same("paths that lead out")
	l.ok(p.apply()...)
	got, err := os.Readlink(d + "/lnk")
	if err != nil || got != outside {
		t.Errorf("the link came home as %q: %v", got, err)
	}
	l.watch(outside).same("")
	equal(t, "secret", read(t, outside+"/secret"), "secret\n")
}

func TestB041B108B112U057LivesOfADirectory(t *testing.T) {
	l := newLab(t)
	d := l.mkdir("d", "echo a >a")
	real := l.watch(d)

	// Killed in a step, and the sandbox removed: the next call makes it again.
	p := l.newDirPlan(d)
	p.write("kept", "work\n")
	want := p.state()
	cmd, _ := p.inside("echo half >half")
	must(t, syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL))
	_ = cmd.Wait()
	must(t, os.RemoveAll(p.box(0)))
	p.sh("true")
	p.holds("after a kill and a lost sandbox", want)
	real.same("a kill")

	// Given up: archived, restored, archived again without its directory.
	l.ok("plan", "cancel", "--yes", "--discard", p.id).says(t, "agents cleanup archive restore")
	l.ok("cleanup")
	l.ok("cleanup", "archive", "restore", p.id)
	p.holds("after the archive was restored", want)
	must(t, os.RemoveAll(p.box(0)))
	l.ok("plan", "cancel", "--yes", "--discard", p.id)
	l.ok("cleanup", "archive", "restore", p.id)
	p.holds("after the second restore", want)
	l.host(d, "echo theirs >b")
	l.ok(p.apply()...)
	equal(t, "kept", read(t, d+"/kept"), "work\n")
	equal(t, "b", read(t, d+"/b"), "theirs\n")

	// Many of them leave nothing.
	applied := []*plan{p}
	for i := range 4 {
		q := l.newDirPlan(d)
		q.write(fmt.Sprintf("q%d", i), "q\n")
		if i%2 == 0 {
			l.ok(q.apply()...)
			applied = append(applied, q)
			continue
		}
		l.ok("plan", "cancel", "--yes", "--discard", q.id)
	}
	l.ok("cleanup")
	l.cleanData(applied...)
	if left := append(glob(t, l.dir, "d/.*"), glob(t, l.dir, ".cleveragents*")...); len(left) > 0 {
		t.Errorf("left beside the directory: %v", left)
	}
}

func TestB011B032B110U083U085PlansAtOnceOnADirectory(t *testing.T) {
	l := newLab(t)
	d := l.mkdir("d", "echo a >a; echo b >b; head -c 1M /dev/urandom >big")
	real := l.watch(d)
	alive := l.newDirPlan(d)
	s1 := alive.write("x", "1\n")
	_, release := alive.inside("echo 2 >x")
	plans := make([]*plan, 8)
	for i := range plans {
		plans[i] = l.newDirPlan(d)
	}
	results := make([]result, len(plans))
	var wg sync.WaitGroup
	for i, p := range plans {
		args := p.tool("file-write", map[string]any{"path": fmt.Sprintf("f%d", i), "content": "f\n"})
		cmd := l.command(args...)
		wg.Go(func() { results[i] = l.finish(cmd, args) })
	}
	wg.Wait()
	for _, res := range results {
		if res.code != 0 {
			t.Errorf("%v", res)
		}
	}
	l.ok("cleanup")
	for _, p := range plans[4:] {
		l.ok("plan", "cancel", "--yes", "--discard", p.id)
	}
	l.ok("cleanup")
	real.same("eight plans at once")
	release()
	until(t, "the step's end", func() bool { return l.run("plan", "rollback", "--yes", alive.id, s1.before).code == 0 })
	if exists(alive.box(0) + "/x") {
		t.Error("x is still there after the rollback")
	}

	// Two applies of one plan, and of different ones, at once.
	codes := make([]int, 5)
	for i, p := range append([]*plan{plans[0]}, plans[:4]...) {
		args := p.apply()
		cmd := l.command(args...)
		wg.Go(func() { codes[i] = l.finish(cmd, args).code })
	}
	wg.Wait()
	for i, p := range plans[:4] {
		if l.run(p.apply()...).code == 0 && i == 0 {
			t.Error("a plan was applied twice")
		}
		equal(t, "what the plan made", read(t, fmt.Sprintf("%s/f%d", d, i)), "f\n")
	}
	if got := []int{codes[0], codes[1]}; got[0]+got[1] != 4 {
		t.Errorf("two applies of one plan exit %v, want 0 and 4", got)
	}
}

func TestB113DamagedBaseOfADirectory(t *testing.T) {
	l := newLab(t)
	d := l.mkdir("d", "echo a >a")
	real := l.watch(d)
	p := l.newDirPlan(d)
	var steps []call
	for i := range 4 {
		steps = append(steps, p.write("a", fmt.Sprintf("%d\n", i)))
	}
	packs := p.objectFiles()
	newest := packs[0]
	for _, f := range packs {
		a, err := os.Stat(l.at(f))
		must(t, err)
		b, err := os.Stat(l.at(newest))
		must(t, err)
		if a.ModTime().After(b.ModTime()) {
			newest = f
		}
	}
	must(t, os.Truncate(l.at(newest), 0))
	l.ok("plan", "checkpoint", "list", p.id)
	good := 0
	for i, s := range steps {
		if l.run("plan", "rollback", "--yes", p.id, s.after).code == 0 {
			good++
			equal(t, "a", read(t, p.box(0)+"/a"), fmt.Sprintf("%d\n", i))
		}
	}
	if good < 3 {
		t.Errorf("%d of 4 checkpoints work after the newest one's payload was lost", good)
	}
	p.write("more", "m\n")
	real.same("damage")
	l.ok(p.apply()...)
}
