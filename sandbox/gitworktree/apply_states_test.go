package gitworktree_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/oracle"
	"github.com/cleveragents/agents/sandbox"
)

const tenLines = "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n"

// small is a repository for one state of the user's.
func small(t *testing.T) *oracle.Repo {
	t.Helper()
	r := oracle.EmptyRepo(t, filepath.Join(t.TempDir(), "repo"))
	r.Write("f", tenLines)
	r.Write("a.txt", "v1\n")
	r.Write("del.txt", "goes\n")
	r.Write("dir/x", "x\n")
	r.Write("dir/y", "y\n")
	r.Write("other.txt", "other\n")
	r.Write("empty", "")
	r.Write(".gitignore", "*.ign\n")
	r.Commit("base")
	return r
}

// smallEdit touches f, a.txt, del.txt, dir/x and empty, and adds new.txt,
// new.ign and sub/n.
func smallEdit(w *oracle.Repo) {
	w.Write("f", strings.Replace(tenLines, "9", "nine", 1))
	w.Write("a.txt", "v2\n")
	w.Write("dir/x", "x2\n")
	w.Write("new.txt", "new\n")
	w.Write("new.ign", "new\n")
	w.Write("sub/n", "n\n")
	w.Write("empty", "not any more\n")
	w.Sh("rm del.txt")
}

func TestApplyOverUserStates(t *testing.T) {
	for _, c := range []struct {
		name   string
		script string   // what the user did after the plan was sealed
		refuse []string // nil = it applies
	}{
		{name: "clean"},
		{name: "touched", script: "touch -d 2030-01-01 f a.txt"},
		{name: "B051 dirty in the same file", script: "sed -i s/2/two/ f", refuse: []string{"f"}},
		{name: "B051 staged in the same file", script: "sed -i s/2/two/ f; git add f", refuse: []string{"f"}},
		{name: "B051 staged and edited further", script: "sed -i s/2/two/ f; git add f; sed -i s/3/three/ f", refuse: []string{"f"}},
		{name: "staged and edited back", script: "cp f g; sed -i s/2/two/ f; git add f; mv g f", refuse: []string{"f"}},
		{name: "dirty elsewhere", script: "echo more >>other.txt; git add other.txt; echo yet more >>other.txt; echo u >untracked; echo i >x.ign"},
		{name: "rename staged elsewhere", script: "git mv other.txt moved.txt"},
		{name: "deleted elsewhere", script: "rm other.txt"},
		{name: "deletion staged elsewhere", script: "git rm -q other.txt"},
		{name: "B057 untracked in the way", script: "echo mine >new.txt", refuse: []string{"new.txt"}},
		{name: "B057 ignored in the way", script: "echo mine >new.ign", refuse: []string{"new.ign"}},
		{name: "B057 directory in the way", script: "mkdir new.txt; echo mine >new.txt/m", refuse: []string{"new.txt"}},
		{name: "empty directory in the way", script: "mkdir new.txt", refuse: []string{"new.txt"}},
		{name: "B057 unrelated untracked file", script: "echo notes >notes.txt"},
		{name: "the same untracked in the way", script: "echo new >new.txt", refuse: []string{"new.txt"}},
		{name: "file where a directory comes", script: "echo mine >sub", refuse: []string{"sub/n"}},
		{name: "link where a directory comes", script: "mkdir ../else; ln -s ../else sub", refuse: []string{"sub/n"}},
		{name: "dangling link in the way", script: "ln -s nowhere new.txt", refuse: []string{"new.txt"}},
		{name: "fifo in the way", script: "mkfifo new.txt", refuse: []string{"new.txt"}},
		{name: "staged file in the way", script: "echo mine >new.txt; git add new.txt", refuse: []string{"new.txt"}},
		{name: "staged and gone from disk", script: "echo mine >new.txt; git add new.txt; rm new.txt", refuse: []string{"new.txt"}},
		{name: "staged directory in the way", script: "mkdir new.txt; echo m >new.txt/m; git add new.txt; rm -r new.txt", refuse: []string{"new.txt"}},
		{name: "intent to add in the way", script: "echo mine >new.txt; git add -N new.txt", refuse: []string{"new.txt"}},
		{name: "intent to add instead of an empty file", script: "git rm -q --cached empty; git add -N empty", refuse: []string{"empty"}},
		{name: "intent to add elsewhere", script: "echo mine >mine; git add -N mine"},
		{name: "deleted changed file", script: "rm a.txt", refuse: []string{"a.txt"}},
		{name: "deleted the deleted file", script: "rm del.txt", refuse: []string{"del.txt"}},
		{name: "staged the same deletion", script: "git rm -q del.txt", refuse: []string{"del.txt"}},
		{name: "staged the deletion, kept the file", script: "git rm -q --cached a.txt", refuse: []string{"a.txt"}},
		{name: "the same change unstaged", script: "echo v2 >a.txt", refuse: []string{"a.txt"}},
		{name: "the same change staged", script: "echo v2 >a.txt; git add a.txt", refuse: []string{"a.txt"}},
		{name: "edited the deleted file", script: "echo more >>del.txt", refuse: []string{"del.txt"}},
		{name: "renamed a changed file", script: "git mv a.txt b.txt", refuse: []string{"a.txt"}},
		{name: "replaced by a directory", script: "rm a.txt; mkdir a.txt; echo m >a.txt/m", refuse: []string{"a.txt"}},
		{name: "replaced by a link", script: "cp a.txt v; rm a.txt; ln -s v a.txt", refuse: []string{"a.txt"}},
		{name: "mode changed", script: "chmod +x a.txt", refuse: []string{"a.txt"}},
		{name: "mode changed where git does not look", script: "git config core.fileMode false; chmod +x a.txt"},
		{name: "nested repository", script: "git init -q dir", refuse: []string{"dir/x"}},
		{name: "nested repository where a directory comes", script: "git init -q sub", refuse: []string{"sub/n"}},
		{name: "parent is now a link to the same files", script: "mv dir real; ln -s real dir", refuse: []string{"dir/x"}},
		{name: "assume unchanged, edited", script: "git update-index --assume-unchanged a.txt; echo mine >a.txt", refuse: []string{"a.txt"}},
		{name: "assume unchanged, not edited", script: "git update-index --assume-unchanged a.txt other.txt"},
		{name: "skip worktree, edited", script: "git update-index --skip-worktree a.txt; echo mine >a.txt", refuse: []string{"a.txt"}},
		{name: "skip worktree, not edited", script: "git update-index --skip-worktree a.txt del.txt"},
		{name: "skip worktree, absent", script: "git update-index --skip-worktree a.txt del.txt dir/x; rm a.txt del.txt; rm -r dir/x"},
		{name: "split index", script: "git config core.splitIndex true; git update-index --split-index; echo s >s; git add s"},
		{name: "index version 4", script: "git update-index --index-version 4; echo s >s; git add s"},
		{name: "untracked cache", script: "git config core.untrackedCache true; git update-index --force-untracked-cache; git status -s"},
		{name: "unresolved conflict elsewhere", script: `o=$(git hash-object -w other.txt); printf '0 0000000000000000000000000000000000000000 0\tother.txt\n100644 %s 1\tother.txt\n100644 %s 2\tother.txt\n' $o $o | git update-index --index-info`,
			refuse: []string{"other.txt"}},
		{name: "several at once", script: "echo mine >a.txt; echo mine >new.txt; rm dir/x", refuse: []string{"a.txt", "dir/x", "new.txt"}},
		{name: "read-only file", script: "chmod 444 a.txt"},
		{name: "replace refs", script: `git replace HEAD $(git commit-tree -m r HEAD^{tree})`},
		{name: "own merge driver setting", script: "git config merge.renames false; git config merge.default text"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := small(t)
			p := newPlan(t, r, "main", smallEdit)
			r.Sh(c.script)
			if c.refuse != nil {
				p.mustRefuse(c.refuse...)
				return
			}
			before, status := state(t, r), r.Git("status", "--porcelain")
			p.mustApply()
			if got := r.Git("status", "--porcelain"); got != status {
				t.Errorf("status is\n%s\nwant\n%s", got, status)
			}
			r.Git("fsck")
			p.mustUndo()
			same(t, "undo", before, state(t, r))
			if got := r.Git("status", "--porcelain"); got != status {
				t.Errorf("status after undo is\n%s\nwant\n%s", got, status)
			}
		})
	}
}

// refusedWhole is a refusal that names no path.
func TestApplyRefusesOperationsInProgress(t *testing.T) {
	for name, script := range map[string]string{
		"merge":                   "git checkout -q -b side; echo s >f; git commit -qam s; git checkout -q main; echo m >f; git commit -qam m; git merge side || true",
		"cherry-pick":             "git checkout -q -b side; echo s >f; git commit -qam s; git checkout -q main; echo m >f; git commit -qam m; git cherry-pick side || true",
		"revert":                  "echo s >f; git commit -qam s; echo m >f; git commit -qam m; git revert --no-edit HEAD~1 || true",
		"rebase of the branch":    "git checkout -q -b side; echo s >f; git commit -qam s; git checkout -q main; echo m >f; git commit -qam m; git rebase side || true",
		"am":                      "echo m >f; git commit -qam m; git format-patch -1 --stdout >../p; git reset -q --hard HEAD~; echo o >f; git commit -qam o; git am ../p || true",
		"bisect":                  "echo m >f; git commit -qam m; echo n >f; git commit -qam n; git bisect start -q HEAD HEAD~2",
		"rebase in another tree":  "git branch side HEAD; git worktree add -q ../l side; cd ../l; echo s >f; git commit -qam s; git checkout -q --detach; cd ../repo; echo m >f; git commit -qam m; git checkout -q side; cd ../l; git checkout -q main; git rebase side || true",
		"no index":                "rm .git/index",
		"branch in two trees":     "git worktree add -q -f ../l main",
		"branch in a missing one": "git checkout -q --detach; git worktree add -q ../l main; rm -r ../l",
		"branch gone":             "git checkout -q -b other; git branch -q -D main",
		"branch renamed":          "git branch -m main trunk",
		"branch is an alias":      "git checkout -q -b trunk; git symbolic-ref refs/heads/main refs/heads/trunk",
		"history replaced":        "git checkout -q --orphan new; git commit -qm new; git branch -f main; git checkout -q main",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := small(t)
			p := newPlan(t, r, "main", smallEdit)
			r.Sh(script)
			before := oracle.Digest(t, r.Dir)
			for _, dry := range []bool{true, false} {
				req := p.request()
				req.DryRun = dry
				res, err := p.s.Apply(context.Background(), p.ws, req)
				if !errors.Is(err, agents.ErrConflict) || res.State != agents.ApplyConflict {
					t.Fatalf("dry=%v: got %s, %v; want a conflict", dry, res.State, err)
				}
				t.Logf("%v (hint: %s)", err, agents.HintOf(err))
				oracle.Same(t, "refused apply", r.Dir, before)
			}
			p.clean()
		})
	}
}

// TestB052ConflictLeavesNoMerge also answers U001 and U003.
func TestB052ConflictLeavesNoMerge(t *testing.T) {
	r := small(t)
	p := newPlan(t, r, "main", smallEdit)
	r.Write("a.txt", "v3\n")
	r.Write("del.txt", "changed\n")
	r.Write("dir/y", "y2\n")
	r.Commit("user")
	for range 2 {
		if err := p.mustRefuse("a.txt", "del.txt"); agents.HintOf(err) != "agents plan update P" {
			t.Errorf("hint is %q", agents.HintOf(err))
		}
	}
	r.Git("revert", "--no-edit", "HEAD")
	p.mustApply()
	if got := r.Read("a.txt") + r.Read("dir/y"); got != "v2\ny\n" {
		t.Errorf("after apply: %q", got)
	}
}

func TestApplyMergesBothSides(t *testing.T) {
	r := small(t)
	p := newPlan(t, r, "main", smallEdit)
	r.Write("f", strings.Replace(tenLines, "2", "two", 1))
	r.Write("dir/y", "y2\n")
	tip := r.Commit("user")
	before := state(t, r)
	res := p.mustApply()
	if got, want := r.Read("f"), strings.NewReplacer("2", "two", "9", "nine").Replace(tenLines); got != want {
		t.Errorf("f is %q", got)
	}
	if got := r.Git("rev-parse", "HEAD^1", "HEAD^2"); got != tip+"\n"+p.ref {
		t.Errorf("parents %q", got)
	}
	if len(res.Changed) != 4 || len(res.Added) != 3 || len(res.Deleted) != 1 {
		t.Errorf("result %+v", res)
	}
	r.Git("fsck", "--strict")
	p.mustUndo()
	same(t, "undo", before, state(t, r))
}

// The attributes of the branch decide how files merge, as in the user's own merges.
func TestApplyHonoursMergeAttributes(t *testing.T) {
	for _, c := range []struct{ attributes, config, want string }{
		{"list merge=union\n", "", "1\nplan\nuser\n"},
		{"list -merge\n", "", ""},
		{"list merge=mine\n", "true", "1\nuser\n"},
	} {
		r := small(t)
		r.Write("list", "1\n")
		r.Write(".gitattributes", c.attributes)
		r.Commit("list")
		if c.config != "" {
			r.Git("config", "merge.mine.driver", c.config)
		}
		p := newPlan(t, r, "main", func(w *oracle.Repo) { w.Write("list", "1\nplan\n"); w.Write("n", "n\n") })
		r.Write("list", "1\nuser\n")
		r.Commit("user")
		t.Logf("%s", c.attributes)
		if c.want == "" {
			p.mustRefuse("list")
			continue // the next case
		}
		p.mustApply()
		got := strings.Join(strings.Fields(r.Read("list")), "\n") + "\n"
		if got != c.want && got != "1\nuser\nplan\n" {
			t.Errorf("%s: merged to %q, want %q", c.attributes, got, c.want)
		}
	}
}

func TestApplyUnchanged(t *testing.T) {
	for name, edit := range map[string]func(*oracle.Repo){
		"empty plan":    func(w *oracle.Repo) { w.Git("commit", "-q", "--allow-empty", "-m", "nothing") },
		"merged before": smallEdit,
	} {
		r := small(t)
		p := newPlan(t, r, "main", edit)
		if name == "merged before" {
			r.Git("merge", "-q", "--no-edit", p.ref)
		}
		before := oracle.Digest(t, r.Dir)
		res, err := p.apply()
		if err != nil || res.State != agents.ApplyUnchanged || res.CommitRef != "" {
			t.Errorf("%s: got %+v, %v", name, res, err)
		}
		oracle.Same(t, name, r.Dir, before)
		if got, err := p.s.Recover(context.Background(), p.ws, p.journal); got.State != agents.ApplyReverted || err != nil {
			t.Errorf("recover of an empty journal: %s, %v", got.State, err)
		}
	}
}

// TestB055GoesToTheRecordedBranch: whatever is checked out by now.
func TestB055GoesToTheRecordedBranch(t *testing.T) {
	for name, c := range map[string]struct{ script, into string }{
		"other branch checked out": {"git checkout -q -b other; echo o >o; git add o; git commit -qm o; echo dirty >>f; echo m >new.txt", ""},
		"detached":                 {"git checkout -q --detach; echo dirty >>f", ""},
		"bare":                     {"git config core.bare true; mv .git ../bare; rm -rf ./* .gitignore; mv ../bare/* .; rmdir ../bare", ""},
		"into another":             {"git branch into; echo dirty >>f", "into"},
		"gone, into another":       {"git checkout -q -b other; git branch -q -M main into; echo dirty >>f", "into"},
	} {
		t.Run(name, func(t *testing.T) {
			r := small(t)
			p := newPlan(t, r, "main", smallEdit)
			r.Sh(c.script)
			branch := "main"
			if c.into != "" {
				branch = c.into
			}
			skip := []string{".git/objects", ".git/refs/heads/" + branch, ".git/logs/refs/heads/" + branch, "objects", "refs/heads/" + branch, "logs"}
			before, tip := oracle.Digest(t, r.Dir, skip...), r.Git("rev-parse", branch)
			req := p.request()
			req.Into = c.into
			res, err := p.s.Apply(context.Background(), p.ws, req)
			if err != nil || res.State != agents.ApplyApplied || res.Into != branch {
				t.Fatalf("got %+v, %v", res, err)
			}
			oracle.Same(t, "apply to a branch that is not checked out", r.Dir, before, skip...)
			if got := r.Git("rev-parse", branch, branch+"^1", branch+"^2"); got != res.CommitRef+"\n"+tip+"\n"+p.ref {
				t.Errorf("branch is %s", got)
			}
			r.Git("fsck", "--strict")
			if err := p.s.Undo(context.Background(), p.ws, p.journal); err != nil {
				t.Fatal(err)
			}
			if got := r.Git("rev-parse", branch); got != tip {
				t.Errorf("after undo %s is %s, want %s", branch, got, tip)
			}
			oracle.Same(t, "undo", r.Dir, before, skip...)
		})
	}
}

func TestApplyToDetachedHead(t *testing.T) {
	r := small(t)
	r.Git("checkout", "-q", "--detach")
	p := newPlan(t, r, "", smallEdit)
	before := state(t, r)
	res := p.mustApply()
	if got := r.Git("rev-parse", "HEAD"); got != res.CommitRef || res.Into != "" {
		t.Errorf("HEAD is %s, result %+v", got, res)
	}
	if out, err := r.Try("symbolic-ref", "-q", "HEAD"); err == nil {
		t.Errorf("HEAD is on %s", out)
	}
	p.mustUndo()
	same(t, "undo", before, state(t, r))

	q := newPlanNamed(t, r, p, "")
	r.Git("checkout", "-q", "main")
	if err := q.mustRefuse(); !strings.Contains(agents.HintOf(err), "--into main") {
		t.Errorf("hint is %q", agents.HintOf(err))
	}
}

// newPlanNamed is p once more, with a journal of its own.
func newPlanNamed(t *testing.T, r *oracle.Repo, p *plan, base string) *plan {
	t.Helper()
	q := *p
	q.journal = t.TempDir()
	q.ws.Metadata["original_branch"] = base
	return &q
}

func TestApplyToLinkedWorktrees(t *testing.T) {
	t.Run("the resource is linked", func(t *testing.T) {
		r := small(t)
		l := oracle.At(t, filepath.Join(filepath.Dir(r.Dir), "linked"))
		r.Git("worktree", "add", "-q", "-b", "feature", l.Dir)
		p := newPlan(t, r, "feature", smallEdit)
		p.r, p.ws.Resource.Location = l, l.Dir
		main, before := state(t, r), state(t, l)
		p.mustApply()
		if got := l.Git("status", "--porcelain"); got != "" || l.Read("a.txt") != "v2\n" {
			t.Errorf("status %q", got)
		}
		if got := state(t, r); len(got) == 0 || got[0] != main[0] || r.Git("status", "--porcelain") != "" {
			t.Error("the main work tree changed")
		}
		p.mustUndo()
		same(t, "undo", before, state(t, l))
	})
	t.Run("the branch is in another tree", func(t *testing.T) {
		r := small(t)
		r.Git("checkout", "-q", "-b", "other")
		l := oracle.At(t, filepath.Join(filepath.Dir(r.Dir), "linked"))
		r.Git("worktree", "add", "-q", l.Dir, "main")
		p := newPlan(t, r, "main", smallEdit)
		l.Write("new.txt", "mine\n")
		p.mustRefuse("new.txt")
		l.Sh("rm new.txt")
		before := state(t, l)
		p.mustApply()
		if got := l.Git("status", "--porcelain"); got != "" || l.Read("a.txt") != "v2\n" || r.Read("a.txt") != "v1\n" {
			t.Errorf("status %q", got)
		}
		p.mustUndo()
		same(t, "undo", before, state(t, l))
	})
}

func TestB049ApplyThroughLinks(t *testing.T) {
	r := small(t)
	p := newPlan(t, r, "main", smallEdit)
	r.Sh("mv .git ../g; ln -s ../g .git; ln -s repo ../link")
	p.ws.Resource.Location = filepath.Join(filepath.Dir(r.Dir), "link")
	before := state(t, r)
	p.mustApply()
	if got := r.Git("status", "--porcelain"); got != "" {
		t.Errorf("status %q", got)
	}
	p.mustUndo()
	same(t, "undo", before, state(t, r))
}

func TestB044ApplyToSparseCheckouts(t *testing.T) {
	for _, c := range []struct{ name, set string }{
		{"cone", "git sparse-checkout set --cone p"},
		{"patterns", "git sparse-checkout set --no-cone '/*' '!/q/'"},
		{"sparse index", "git sparse-checkout set --cone --sparse-index p"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := small(t)
			for _, n := range []string{"p/x", "p/d/x", "q/x", "q/y", "q/gone"} {
				r.Write(n, n+"\n")
			}
			r.Commit("dirs")
			p := newPlan(t, r, "main", func(w *oracle.Repo) {
				w.Write("p/x", "changed\n")
				w.Write("p/new", "new\n")
				w.Write("q/x", "changed\n")
				w.Write("q/new", "new\n")
				w.Write("q/sub/new", "new\n")
				w.Sh("rm q/gone")
			})
			r.Sh(c.set)
			before := state(t, r)
			p.mustApply()
			if _, err := os.Lstat(filepath.Join(r.Dir, "q")); err == nil {
				t.Error("q appeared on the disk")
			}
			if got := r.Git("status", "--porcelain"); got != "" {
				t.Errorf("status %q", got)
			}
			if got := r.Git("ls-files", "-t", "q"); strings.Contains(got, "H ") || !strings.Contains(got, "S q/new") || strings.Contains(got, "q/gone") {
				t.Errorf("entries of q:\n%s", got)
			}
			if r.Read("p/new") != "new\n" || r.Read("p/x") != "changed\n" {
				t.Error("p is not as the plan left it")
			}
			p.mustUndo()
			same(t, "undo", before, state(t, r))
			r.Write("q/new", "mine\n")
			p.journal = t.TempDir()
			p.mustRefuse("q/new")
		})
	}
}

func TestApplyWithFilters(t *testing.T) {
	t.Run("autocrlf", func(t *testing.T) {
		r := small(t)
		r.Git("config", "core.autocrlf", "true")
		r.Sh("rm f dir/x; git checkout -q f dir/x") // CRLF now; a.txt still has LF
		p := newPlan(t, r, "main", smallEdit)
		before := state(t, r)
		p.mustApply()
		if got := r.Read("f"); !strings.Contains(got, "nine\r\n") {
			t.Errorf("f is %q", got)
		}
		if got := r.Git("status", "--porcelain"); got != "" {
			t.Errorf("status %q", got)
		}
		p.mustUndo()
		same(t, "undo gives LF and CRLF back", before, state(t, r))
	})
	t.Run("attributes of the plan", func(t *testing.T) {
		r := small(t)
		p := newPlan(t, r, "main", func(w *oracle.Repo) {
			w.Write(".gitattributes", "dir/* text eol=crlf\n")
			w.Write("dir/x", "x2\n")
		})
		p.mustApply()
		if got := r.Read("dir/x"); got != "x2\r\n" {
			t.Errorf("dir/x is %q", got)
		}
	})
	t.Run("smudge fails in the middle", func(t *testing.T) {
		r := small(t)
		r.Write(".gitattributes", "dir/x filter=picky\n")
		r.Commit("attributes")
		p := newPlan(t, r, "main", smallEdit)
		r.Git("config", "filter.picky.smudge", "exit 1")
		r.Git("config", "filter.picky.clean", "tr X x")
		r.Git("config", "filter.picky.required", "true")
		before := oracle.Digest(t, r.Dir)
		res, err := p.apply()
		if err == nil || res.State != agents.ApplyFailed || errors.Is(err, agents.ErrDamaged) {
			t.Errorf("got %+v, %v", res, err)
		}
		oracle.Same(t, "failed smudge", r.Dir, before)
		p.clean()
		r.Git("config", "filter.picky.smudge", "tr x X")
		undone := state(t, r)
		p.mustApply()
		if r.Read("dir/x") != "X2\n" {
			t.Errorf("dir/x is %q", r.Read("dir/x"))
		}
		p.mustUndo()
		same(t, "undo", undone, state(t, r))
	})
}

func TestApplyNeedsWritableDirectories(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("permission bits do not bind root; the ordinary leg runs this as one whom they do")
	}
	unwritable(t)
}

func unwritable(t *testing.T) {
	r := small(t)
	p := newPlan(t, r, "main", smallEdit)
	r.Sh("chmod 555 dir")
	defer r.Sh("chmod 755 dir")
	p.mustRefuse("dir/x")
	r.Sh("chmod 755 dir; chmod 400 a.txt")
	p.mustApply()
	p.mustUndo()
}

func TestB046UsersIndexLockIsWaitedForAndKept(t *testing.T) {
	t.Parallel()
	r := small(t)
	p := newPlan(t, r, "main", smallEdit)
	r.Sh("echo theirs >.git/index.lock")
	before := oracle.Digest(t, r.Dir)
	res, err := p.apply()
	if !errors.Is(err, agents.ErrLocked) || res.State != agents.ApplyFailed {
		t.Errorf("got %+v, %v; want ErrLocked", res, err)
	}
	oracle.Same(t, "locked", r.Dir, before)
	r.Sh("rm .git/index.lock")
	p.mustApply()
}

func TestApplySubmodules(t *testing.T) {
	r := small(t)
	lib := small(t)
	first := lib.Git("rev-parse", "HEAD")
	lib.Write("f", "second\n")
	second := lib.Commit("second")
	r.Git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", lib.Dir, "lib")
	r.Sh("cd lib && git checkout -q " + first)
	r.Commit("submodule")
	p := newPlan(t, r, "main", func(w *oracle.Repo) {
		w.Git("update-index", "--cacheinfo", "160000,"+second+",lib")
		w.Sh("mkdir lib2; git update-index --add --cacheinfo 160000," + first + ",lib2")
		w.Write("a.txt", "v2\n")
	})
	r.Git("config", "submodule.recurse", "true")
	before := state(t, r)
	p.mustApply()
	if got := r.Git("rev-parse", "HEAD:lib", "HEAD:lib2"); got != second+"\n"+first {
		t.Errorf("submodules are %q", got)
	}
	if got := r.Git("-C", "lib", "rev-parse", "HEAD"); got != first {
		t.Errorf("the submodule's own checkout moved to %s", got)
	}
	if fi, err := os.Stat(filepath.Join(r.Dir, "lib2")); err != nil || !fi.IsDir() {
		t.Errorf("lib2: %v", err)
	}
	p.mustUndo()
	same(t, "undo", before, state(t, r))
}

func TestApplyUsesTheUsersIdentityUnsigned(t *testing.T) {
	r := small(t)
	p := newPlan(t, r, "main", smallEdit)
	for k, v := range map[string]string{"user.name": "Jo", "user.email": "jo@x", "commit.gpgsign": "true", "gpg.program": "/bin/false", "merge.verifySignatures": "true", "tag.gpgsign": "true"} {
		r.Git("config", k, v)
	}
	r.Sh(`for h in pre-commit commit-msg post-merge post-commit reference-transaction post-index-change post-checkout; do
printf '#!/bin/sh\ntouch "%s"\n' "$PWD/../ran" >.git/hooks/$h; chmod +x .git/hooks/$h; done`)
	req := p.request()
	req.Message = "subject\n\nbody"
	res, err := p.s.Apply(context.Background(), p.ws, req)
	if err != nil {
		t.Fatal(err)
	}
	if got := r.Git("log", "-1", "--format=%an %ce%n%B"); got != "Jo jo@x\nsubject\n\nbody\n" {
		t.Errorf("commit is %q", got)
	}
	if len(res.Notices) != 1 || !strings.Contains(res.Notices[0], "not signed") {
		t.Errorf("notices %q", res.Notices)
	}
	if _, err := os.Stat(filepath.Join(r.Dir, "../ran")); err == nil {
		t.Error("a hook ran")
	}
}

func TestApplySHA256(t *testing.T) {
	r := oracle.EmptyRepo(t, filepath.Join(t.TempDir(), "repo"), "--object-format=sha256")
	r.Write("a.txt", "v1\n")
	r.Write("f", tenLines)
	r.Write("empty", "")
	r.Write("del.txt", "")
	r.Write("dir/x", "")
	r.Sh("ln -s f link")
	r.Commit("base")
	p := newPlan(t, r, "main", func(w *oracle.Repo) { smallEdit(w); w.Sh("ln -sfn a.txt link") })
	r.Write("f", strings.Replace(tenLines, "2", "two", 1))
	r.Commit("user")
	before := state(t, r)
	p.mustApply()
	p.mustUndo()
	same(t, "undo", before, state(t, r))
}

func TestApplyRefusesBadRequests(t *testing.T) {
	r := small(t)
	p := newPlan(t, r, "main", smallEdit)
	for name, c := range map[string]struct {
		change func(*sandbox.ApplyRequest)
		want   error
	}{
		"unknown commit":   {func(q *sandbox.ApplyRequest) { q.Ref = strings.Repeat("1", 40) }, agents.ErrNotFound},
		"B105 an option":   {func(q *sandbox.ApplyRequest) { q.Ref = "--output=/tmp/PWN" }, agents.ErrNotFound},
		"a plan's branch":  {func(q *sandbox.ApplyRequest) { q.Into = "cleveragents/plan-P" }, agents.ErrInvalid},
		"B105 into option": {func(q *sandbox.ApplyRequest) { q.Into = "--force" }, agents.ErrConflict},
		"a glob":           {func(q *sandbox.ApplyRequest) { q.Into = "ma*" }, agents.ErrConflict},
		"no journal":       {func(q *sandbox.ApplyRequest) { q.JournalDir = "" }, agents.ErrInvalid},
	} {
		req := p.request()
		c.change(&req)
		before := oracle.Digest(t, r.Dir)
		if _, err := p.s.Apply(context.Background(), p.ws, req); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", name, err, c.want)
		}
		oracle.Same(t, name, r.Dir, before)
	}
}
