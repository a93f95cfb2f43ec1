//go:build linux

package cases_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cleveragents/agents/internal/oracle"
)

const ten = "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n"

// userState is all that git tells of a user's repository.
func (l *lab) userState(r *oracle.Repo) (out state) {
	for _, q := range [][]string{{"status", "--porcelain=v2", "--branch", "--ignored"}, {"ls-files", "--stage"}, {"diff"}, {"diff", "--cached"}, {"stash", "list"}, {"config", "--local", "--list"}} {
		out = append(out, strings.Split(l.git(r.Dir, q...), "\n")...)
	}
	slices.Sort(out)
	return out
}

func TestB051DirtyTreeWithEditsInTheSameFile(t *testing.T) {
	for _, c := range []struct{ name, script string }{
		{"unstaged", "sed -i s/^2$/two/ f"},
		{"staged", "sed -i s/^2$/two/ f; git add f"},
		{"staged and edited further", "sed -i s/^2$/two/ f; git add f; sed -i s/^4$/four/ f"},
		{"the same line", "sed -i s/^9$/mine/ f"},
		{"the same edit", "sed -i s/^9$/nine/ f"},
		{"same length and time", "touch -r f .git/t; sed -i s/^2$/X/ f; touch -r .git/t f"},
		{"deleted", "rm f"},
		{"staged deletion", "git rm -q --cached f"},
		{"mode", "chmod 755 f"},
		{"replaced by a link", "rm f; ln -s other f"},
		{"replaced by a directory", "rm f; mkdir f; echo x >f/x"},
		{"renamed and staged", "git mv f g"},
		{"assumed unchanged", "git update-index --assume-unchanged f; sed -i s/^2$/two/ f"},
		{"skip-worktree", "git update-index --skip-worktree f; sed -i s/^2$/two/ f"},
		{"intent to add of the new file", "echo mine >n; git add -N n"},
		{"an unfinished merge of the user's", "git checkout -q -b side; echo s >other; git commit -qam s; git checkout -q main; echo m >other; git commit -qam m; git merge side >/dev/null 2>&1 || true"},
		{"elsewhere", "echo mine >other; echo staged >third; git add third"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t)
			r := l.mkrepo("r", "f", ten, "other", "o\n", "third", "t\n")
			p := l.newPlan(r)
			p.sh("sed -i s/^9$/nine/ f; echo new >n")
			r.Sh(c.script)
			real, was := l.watch(r.Dir), l.userState(r)
			ap := l.run(p.apply()...)
			if c.name != "elsewhere" {
				if ap.code != 0 {
					real.same("an apply that was refused")
					if d := oracle.Diff(was, l.userState(r)); d != "" {
						t.Errorf("git tells another state:\n%s", d)
					}
					if ap.code != 4 || ap.text("error.message") == "" {
						t.Errorf("want exit code 4 and words: %v", ap)
					}
					// The user puts it right, and the same plan goes home.
					r.Try("merge", "--abort")
					r.Sh("rm -rf f n; git update-index --no-assume-unchanged --no-skip-worktree f 2>/dev/null || true; git reset -q --hard; rm -f g n")
					l.ok(p.apply()...)
				} else {
					both := r.Read("f")
					if c.name != "the same edit" && !strings.Contains(both, "two") && !strings.Contains(both, "X") {
						t.Errorf("the user's edit is lost: %q: %v", both, ap)
					}
				}
				if got := r.Git("show", "HEAD:f"); !strings.Contains(got, "nine") || strings.Contains(got, "two") {
					t.Errorf("committed: %q", got)
				}
				return
			}
			if ap.code != 0 {
				t.Fatalf("%v", ap)
			}
			equal(t, "status", strings.Join(strings.Fields(r.Git("status", "--porcelain")), " "), "M other M third")
			equal(t, "staged", r.Git("diff", "--cached", "--name-only"), "third")
			equal(t, "other", r.Read("other"), "mine\n")
			equal(t, "n", r.Git("show", "HEAD:n"), "new")
		})
	}
}

func TestB052U001U003ConflictLeavesNothingAndIsNoDeadEnd(t *testing.T) {
	for _, c := range []struct{ name, plan, host, conflicts string }{
		{"content", "echo v2 >a.txt", "echo v3 >a.txt", "a.txt"},
		{"two of five", "for f in a.txt 2 3 4; do echo plan >$f; done; echo new >6", "for f in a.txt 5 3; do echo host >$f; done", "3 a.txt"},
		{"deleted here, changed there", "rm a.txt", "echo v3 >a.txt", "a.txt"},
		{"changed here, deleted there", "echo v2 >a.txt", "rm a.txt", "a.txt"},
		{"both added", "echo p >n", "echo h >n", "n"},
		{"file and directory", "mkdir n; echo p >n/x", "echo h >n", ""},
		{"mode and content", "chmod 755 a.txt; echo v2 >a.txt", "echo v3 >a.txt", "a.txt"},
		{"binary", "printf 'p\\0' >2", "printf 'h\\0' >2", "2"},
		{"renamed both ways", "git mv a.txt p", "git mv a.txt h", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t)
			r := l.mkrepo("r", "2", "2\n", "3", "3\n", "4", "4\n", "5", "5\n")
			p := l.newPlan(r)
			p.sh(c.plan)
			r.Sh(c.host + "; git add -A; git commit -qm host")
			r.Write("notes", "mine\n")
			real, box := l.watch(r.Dir), p.state()
			for range 2 {
				ap := l.exits(4, p.apply()...)
				ap.is(t, "status", "error")
				ap.is(t, "resources.0.state", "conflict")
				got := ap.list("resources.0.conflicts", "path")
				slices.Sort(got)
				if c.conflicts != "" {
					equal(t, "conflicts", strings.Join(got, " "), c.conflicts)
				} else if len(got) == 0 {
					t.Errorf("no conflict is named: %v", ap)
				}
				real.same("an apply with a conflict")
				p.holds("after an apply with a conflict", box)
			}
			p.status().is(t, "resources.0.apply_state", "conflict")
			// Another plan is not in its way, and with the cause gone it goes home.
			q := l.newPlan(r)
			q.write("other", "q\n")
			l.ok(q.apply()...)
			r.Git("revert", "--no-edit", "HEAD^")
			l.ok(p.apply()...)
			equal(t, "status", r.Git("status", "--porcelain"), "?? notes")
			equal(t, "other", r.Read("other"), "q\n")
			l.ok("cleanup")
			l.clean(r)
		})
	}
}

func TestB055ToTheRecordedBranch(t *testing.T) {
	for _, c := range []struct {
		name, host string
		refuse     bool
	}{
		{"another branch with a commit", "git checkout -q -b other; echo o >o; git add o; git commit -qm o", false},
		{"another branch, dirty", "git checkout -q -b other; echo dirty >a.txt; echo s >s; git add s", false},
		{"detached", "git checkout -q --detach", false},
		{"main moved under another branch", "echo m >m; git add m; git commit -qm m; git checkout -q -b other HEAD^", false},
		{"main deleted", "git checkout -q -b other; git branch -q -D main", true},
		{"main renamed", "git branch -m main trunk", true},
		{"main in a linked worktree", "git checkout -q -b other; git worktree add -q ../linked main", false},
		{"orphan branch", "git checkout -q --orphan fresh", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t)
			r := l.mkrepo("r")
			p := l.newPlan(r)
			p.sh("echo v2 >a.txt; echo n >n")
			r.Sh(c.host)
			real := l.watch(r.Dir)
			head, was := l.git(r.Dir, "rev-parse", "HEAD")+l.git(r.Dir, "symbolic-ref", "-q", "HEAD"), l.userState(r)
			ap := l.run(p.apply()...)
			if ap.code != 0 {
				if ap.code != 4 {
					t.Errorf("exit code %d, want 4: %v", ap.code, ap)
				}
				ap.says(t, "main")
				real.same("the apply that was refused")
			} else if c.refuse {
				t.Fatalf("applied: %v", ap)
			}
			equal(t, "HEAD", l.git(r.Dir, "rev-parse", "HEAD")+l.git(r.Dir, "symbolic-ref", "-q", "HEAD"), head)
			if d := oracle.Diff(was, l.userState(r)); d != "" && c.name != "main moved" {
				t.Errorf("what is checked out was disturbed:\n%s", d)
			}
			if ap.code == 0 {
				equal(t, "main:a.txt", r.Git("show", "main:a.txt"), "v2")
			}
			if c.refuse { // the work can still be brought home by name
				l.ok("plan", "export", p.id, "--branch", "rescued")
				equal(t, "rescued", r.Git("show", "rescued:n"), "n")
			}
		})
	}
}

func TestB057FilesInTheWay(t *testing.T) {
	for _, c := range []struct {
		name, plan, host string
		named            string // "" = it applies
	}{
		{"untracked", "echo plan >new.txt", "echo mine >new.txt", "new.txt"},
		{"untracked, the same bytes", "echo mine >new.txt", "echo mine >new.txt", "?"},
		{"ignored and forced", "echo plan >new.ign; git add -f new.ign; git commit -qm f", "echo mine >new.ign", "new.ign"},
		{"directory", "echo plan >new.txt", "mkdir new.txt; echo m >new.txt/mine", "new.txt"},
		{"empty directory", "echo plan >new.txt", "mkdir new.txt", "?"},
		{"link", "echo plan >new.txt", "echo t >notes; ln -s notes new.txt", "new.txt"},
		{"dangling link", "echo plan >new.txt", "ln -s nowhere new.txt", "new.txt"},
		{"file where a directory comes", "mkdir new.txt; echo p >new.txt/p", "echo mine >new.txt", "new.txt"},
		{"link where a directory comes", "mkdir new.txt; echo p >new.txt/p", "mkdir real; ln -s real new.txt", "new.txt"},
		{"other case", "echo plan >new.txt", "echo mine >NEW.txt", ""},
		{"ignored in a directory that goes", "git rm -qr dir; echo p >dir", "echo mine >dir/x.ign", "dir"},
		{"nested repository", "mkdir new.txt; echo p >new.txt/p", "git init -q new.txt; echo m >new.txt/mine", "?"},
		{"unrelated", "echo plan >new.txt", "echo mine >notes.txt; mkdir d; echo m >d/x.ign", ""},
		{"beside it in the same directory", "echo p >dir/p", "echo m >dir/m; echo i >dir/i.ign", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t)
			r := l.mkrepo("r", ".gitignore", "*.ign\n", "dir/f", "f\n")
			p := l.newPlan(r)
			p.sh("export GIT_AUTHOR_NAME=x GIT_AUTHOR_EMAIL=x@y GIT_COMMITTER_NAME=x GIT_COMMITTER_EMAIL=x@y; " + c.plan)
			r.Sh(c.host)
			mine := oracle.Digest(t, r.Dir, ".git")
			real := l.watch(r.Dir)
			ap := l.run(p.apply()...)
			switch {
			case ap.code == 0 && c.named != "" && c.named != "?":
				t.Errorf("applied: %v", ap)
			case ap.code != 0 && c.named == "":
				t.Errorf("refused: %v", ap)
			case ap.code != 0 && c.named != "?":
				ap.says(t, c.named)
			}
			if ap.code != 0 {
				real.same("the apply that was refused")
				if ap.code != 4 {
					t.Errorf("exit code %d, want 4: %v", ap.code, ap)
				}
				return
			}
			now := oracle.Digest(t, r.Dir, ".git")
			for _, line := range mine {
				if !slices.Contains(now, line) && !strings.Contains(line, `"new.txt" d`) {
					t.Errorf("the user's %s is gone", line)
				}
			}
		})
	}
}

func TestB058EverythingComesHome(t *testing.T) {
	l := newLab(t)
	r := l.mkrepo("r", "c", "c\n", "d", "#!/bin/sh\n", "dir/deep/f", "f\n", "l2", "file\n")
	r.Sh("ln -s a.txt l3; printf 'x\\0y' >old.bin; git add -A; git commit -qm more")
	p := l.newPlan(r)
	p.sh(`mv a.txt b.txt; echo x >>b.txt; head -c 4K /dev/urandom >n.bin; rm c; chmod +x d; ln -sf d l
git mv dir moved; rm l2; ln -s d l2; rm l3; echo now a file >l3; printf 'z\0' >old.bin; mkdir -p new/dir; echo f >new/dir/f
printf 'no end' >noeol; : >empty; printf 'cr\r\n' >crlf; echo q >'we"ird	name'; printf x >"$(printf '\376')"`)
	box := p.box(0)
	want := oracle.Digest(t, box, ".git")
	diff := l.ok("plan", "diff", p.id)
	ap := l.ok(p.apply("--keep-sandbox")...)
	if got := ap.text("resources.0.added_files"); !strings.Contains(got, `\\xfe`) {
		t.Errorf("the name that is no text is not told: %s", got)
	}
	root := func(line string) bool { return strings.HasPrefix(line, `"." `) } // a sandbox is its owner's alone
	if d := oracle.Diff(slices.DeleteFunc(want, root), slices.DeleteFunc(oracle.Digest(t, r.Dir, ".git"), root)); d != "" {
		t.Errorf("the real side is not what the sandbox was (- sandbox, + real):\n%s", d)
	}
	equal(t, "status", r.Git("status", "--porcelain", "--ignored"), "")
	if n := len(diff.list("files", "path")); n < 12 {
		t.Errorf("the diff names %d files: %v", n, diff)
	}
}

func TestB060IgnoredFilesThatAreNeeded(t *testing.T) {
	l := newLab(t)
	r := l.mkrepo("r", ".gitignore", ".env\nnode_modules/\n")
	r.Write(".env", "SECRET=1\n")
	r.Write("node_modules/m/index.js", "m\n")
	real := l.watch(r.Dir)
	l.ok("config", "set", "sandbox.git.include", ".env,node_modules")
	p := l.newPlan(r)
	s1 := p.sh("cat .env; ls node_modules")
	s1.says(t, "SECRET=1", "m")
	at2 := p.state()
	s2 := p.sh("echo CHANGED=1 >.env; echo x >node_modules/m/index.js; echo v2 >a.txt")
	real.same("steps on included files")
	p.rollback(s2.before, at2)
	p.sh("echo CHANGED=1 >.env; echo v2 >a.txt")
	l.ok(p.apply()...).says(t, ".env")
	equal(t, ".env", r.Read(".env"), "SECRET=1\n")
	equal(t, "node_modules", r.Read("node_modules/m/index.js"), "m\n")
	equal(t, "a.txt", r.Read("a.txt"), "v2\n")
	if out := r.Git("log", "--all", "-p"); strings.Contains(out, "SECRET") || strings.Contains(out, "CHANGED") {
		t.Errorf("an ignored file was committed:\n%s", out)
	}
}

// twice makes a plan on two repositories that changes a.txt in both.
func (l *lab) twice() (p *plan, r1, r2 *oracle.Repo) {
	r1, r2 = l.mkrepo("r1"), l.mkrepo("r2")
	p = l.newPlan(r1, r2)
	for _, name := range []string{"r1", "r2"} {
		l.ok("plan", "exec", p.id, "--resource", name, "--", "sh", "-ec", "echo plan >a.txt; echo n >n")
	}
	return p, r1, r2
}

func TestB063U051U053HalfOfAnApply(t *testing.T) {
	l := newLab(t)
	p, r1, r2 := l.twice()
	r2.Sh("echo host >a.txt; git commit -qam host")
	real := l.watch(r1.Dir, r2.Dir)
	ap := l.exits(4, p.apply()...)
	real.same("an apply of which one half is in conflict")
	equal(t, "states", strings.Join(ap.list("resources", "state"), " "), "not_tried conflict")
	if got := len(p.status().list("sandboxes", "path")); got != 2 {
		t.Errorf("%d sandboxes are left, want 2", got)
	}
	part := l.exits(5, p.apply("--partial")...)
	equal(t, "states", strings.Join(part.list("resources", "state"), " "), "applied conflict")
	equal(t, "r1/a.txt", r1.Read("a.txt"), "plan\n")
	l.watch(r2.Dir).same("a partial apply")
	st := p.status()
	equal(t, "states", strings.Join(st.list("resources", "apply_state"), " "), "applied conflict")
	head := r1.Git("rev-parse", "HEAD")
	r2.Git("revert", "--no-edit", "HEAD")
	l.ok(p.apply()...)
	equal(t, "r2/a.txt", r2.Read("a.txt"), "plan\n")
	equal(t, "r1's HEAD, which the second apply leaves alone", r1.Git("rev-parse", "HEAD"), head)
	l.clean(r1)
	l.clean(r2)
}

// TestB003: the second of two repositories fails after the first was applied,
// and meanwhile the user commits to the first.
func TestB003UndoKeepsCommitsMadeMeanwhile(t *testing.T) {
	l := newLab(t)
	p, r1, r2 := l.twice()
	was2 := l.watch(r2.Dir)
	// A git that is in r1's history lets the user commit there as soon as the
	// plan's commit is on main, and breaks r2.
	l.write("bin/git", fmt.Sprintf(`#!/bin/sh
real=%s
if [ ! -e %[2]s/once ] && [ "$(unset GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE GIT_OBJECT_DIRECTORY GIT_ALTERNATE_OBJECT_DIRECTORIES; $real -C %[3]s rev-parse HEAD)" != %[4]s ]; then
	: >%[2]s/once
	(unset GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE GIT_OBJECT_DIRECTORY GIT_ALTERNATE_OBJECT_DIRECTORIES
	 cd %[3]s && echo c2 >c2 && $real add c2 && $real -c user.name=u -c user.email=u@v commit -qm c2 && cd %[5]s && echo host >a.txt) >%[2]s/log 2>&1
fi
exec $real "$@"
`, which(t, "git"), l.dir, r1.Dir, r1.Git("rev-parse", "HEAD"), r2.Dir))
	must(t, os.Chmod(l.at("bin/git"), 0o755))
	l.set("PATH", l.at("bin")+":"+os.Getenv("PATH"))
	ap := l.run(p.apply()...)
	if !exists(l.at("once")) {
		t.Fatalf("the window was never open: %v", ap)
	}
	if got, err := r1.Try("show", "main:c2"); err != nil || got != "c2" {
		t.Errorf("c2 is not on main: %s: %v", got, ap)
	}
	equal(t, "c2 in the worktree", r1.Read("c2"), "c2\n")
	if out := r1.Git("status", "--porcelain"); out != "" {
		t.Errorf("r1 is dirty: %s", out)
	}
	if ap.code == 0 {
		t.Errorf("success: %v", ap)
	}
	r2.Write("a.txt", "v1\n")
	r2.Git("update-index", "--refresh")
	_ = was2
	// Whatever was done is told, and the plan can be brought to its end.
	l.set("PATH", os.Getenv("PATH"))
	again := l.run(p.apply()...)
	if again.code != 0 {
		t.Errorf("the second apply: %v", again)
	}
	equal(t, "r2/a.txt", r2.Read("a.txt"), "plan\n")
	equal(t, "r1/a.txt", r1.Read("a.txt"), "plan\n")
	equal(t, "c2", r1.Git("show", "main:c2"), "c2")
}

func which(t *testing.T, name string) string {
	t.Helper()
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		if p := filepath.Join(dir, name); exists(p) {
			return p
		}
	}
	t.Fatalf("no %s", name)
	return ""
}
