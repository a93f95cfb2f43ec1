package gitworktree_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/oracle"
	"github.com/cleveragents/agents/sandbox"
	"github.com/cleveragents/agents/sandbox/gitworktree"
)

// plan is a sealed result on its way into a user's repository.
type plan struct {
	t       *testing.T
	s       *gitworktree.Strategy
	r       *oracle.Repo // the user's
	ws      sandbox.Workspace
	ref     string
	journal string
}

// newPlan seals what edit does to a checkout of the branch base; "" is what
// HEAD is at, detached.
func newPlan(t *testing.T, r *oracle.Repo, base string, edit func(w *oracle.Repo)) *plan {
	t.Helper()
	dir := t.TempDir()
	at := oracle.At(t, filepath.Join(dir, "wt"))
	from := base
	if from == "" {
		from = "HEAD"
	}
	r.Git("worktree", "add", "-q", "--no-checkout", "-b", "cleveragents/plan-P", at.Dir, from)
	at.Git("-c", "core.sparseCheckout=false", "read-tree", "-m", "-u", "HEAD")
	edit(at)
	at.Git("add", "-A", "-f")
	at.Git("commit", "-q", "--no-verify", "--allow-empty", "-m", "plan")
	p := &plan{t: t, s: gitworktree.New(), r: r, ref: at.Git("rev-parse", "HEAD"), journal: t.TempDir()}
	r.Git("worktree", "remove", "-f", at.Dir)
	p.s.Git.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir}
	p.ws = sandbox.Workspace{
		SandboxID: "S", PlanID: "P", Resource: agents.Resource{Name: "repo", Type: agents.TypeGitCheckout, Location: r.Dir},
		PrivateDir: t.TempDir(),
		Metadata:   map[string]string{"original_branch": base, "worktree_path": filepath.Join(dir, "ca-sandbox-P-1")},
	}
	return p
}

// placeholder makes the worktree entry that a sandbox has.
func (p *plan) placeholder() {
	p.t.Helper()
	entry := filepath.Join(p.r.Dir, ".git/worktrees/ca-sandbox-P-1")
	if err := os.MkdirAll(entry, 0o755); err != nil {
		p.t.Fatal(err)
	}
	for name, content := range map[string]string{
		"HEAD": "ref: refs/heads/cleveragents/plan-P\n", "commondir": "../..\n",
		"gitdir": p.ws.Metadata["worktree_path"] + "/.git\n", "locked": "agents\n",
	} {
		if err := os.WriteFile(filepath.Join(entry, name), []byte(content), 0o644); err != nil {
			p.t.Fatal(err)
		}
	}
}

func (p *plan) request() sandbox.ApplyRequest {
	return sandbox.ApplyRequest{Ref: p.ref, JournalDir: p.journal, When: time.Unix(1800000000, 0).UTC()}
}

func (p *plan) apply() (agents.ResourceResult, error) {
	return p.s.Apply(context.Background(), p.ws, p.request())
}

// mustApply applies and checks what holds for every apply.
func (p *plan) mustApply() agents.ResourceResult {
	p.t.Helper()
	tip := p.r.Git("rev-parse", "HEAD")
	dry := p.request()
	dry.DryRun, dry.JournalDir = true, ""
	before := oracle.Digest(p.t, p.r.Dir)
	want, err := p.s.Apply(context.Background(), p.ws, dry)
	if err != nil {
		p.t.Fatalf("dry run: %v (%+v)", err, want)
	}
	oracle.Same(p.t, "dry run", p.r.Dir, before)
	res, err := p.apply()
	if err != nil {
		p.t.Fatalf("apply: %v (%+v)", err, res)
	}
	if res.State != agents.ApplyApplied || want.State != res.State || !slices.Equal(want.Changed, res.Changed) {
		p.t.Errorf("apply gave %+v, the dry run %+v", res, want)
	}
	if got := p.r.Git("rev-parse", res.CommitRef+"^1", res.CommitRef+"^2"); got != tip+"\n"+p.ref {
		p.t.Logf("parents of the merge are %q, the work tree was at %s", got, tip)
	}
	p.clean()
	return res
}

// clean checks that nothing of ours lies about in the user's repository.
func (p *plan) clean() {
	p.t.Helper()
	for _, line := range oracle.Digest(p.t, p.r.Dir) {
		if strings.Contains(line, "agents-") || strings.Contains(line, "index.lock") {
			p.t.Errorf("left behind: %s", line)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(p.r.Dir), ".agents-*")); len(left) > 0 {
		p.t.Errorf("left behind: %s", left)
	}
	if entries, _ := os.ReadDir(p.ws.PrivateDir); len(entries) > 0 {
		p.t.Errorf("left in the private folder: %v", entries)
	}
}

// mustRefuse applies, dry and in earnest, and checks that it is refused for
// exactly these paths and that nothing changed.
func (p *plan) mustRefuse(paths ...string) error {
	p.t.Helper()
	before := oracle.Digest(p.t, p.r.Dir)
	var last error
	for _, dry := range []bool{true, false} {
		req := p.request()
		req.DryRun = dry
		res, err := p.s.Apply(context.Background(), p.ws, req)
		if !errors.Is(err, agents.ErrConflict) || agents.KindOf(err) != agents.SandboxCommitError || res.State != agents.ApplyConflict {
			p.t.Fatalf("dry=%v: got state %q, error %v; want a conflict", dry, res.State, err)
		}
		var got []string
		for _, c := range res.Conflicts {
			got = append(got, c.Path)
			p.t.Logf("%q: %s", c.Path, c.Reason)
			if c.Reason == "" || c.Resource != "repo" {
				p.t.Errorf("conflict without reason or resource: %+v", c)
			}
		}
		if !slices.Equal(got, paths) {
			p.t.Errorf("dry=%v: conflicts in %q, want %q", dry, got, paths)
		}
		if agents.HintOf(err) == "" {
			p.t.Errorf("no hint in %v", err)
		}
		oracle.Same(p.t, "refused apply", p.r.Dir, before)
		if left, _ := os.ReadDir(p.journal); len(left) > 0 {
			p.t.Errorf("a refused apply left a journal: %v", left)
		}
		last = err
	}
	p.clean()
	return last
}

// state is what an undo must give back: the work tree to the byte, every
// index entry with its flags, intents to add, HEAD and the branches.
func state(t *testing.T, r *oracle.Repo) []string {
	t.Helper()
	lines := oracle.Digest(t, r.Dir, ".git")
	for line := range strings.Lines(r.Git("ls-files", "--stage", "-v")) {
		lines = append(lines, "index "+line)
	}
	lines = append(lines, "status "+r.Git("--no-optional-locks", "status", "--porcelain=v2", "-uno"))
	head, _ := r.Try("symbolic-ref", "HEAD")
	return append(lines, "head "+head, r.Git("for-each-ref"), r.Git("rev-parse", "HEAD"))
}

func same(t *testing.T, what string, want, got []string) {
	t.Helper()
	slices.Sort(want)
	slices.Sort(got)
	if d := oracle.Diff(want, got); d != "" {
		t.Errorf("%s: changed:\n%s", what, d)
	}
}

func (p *plan) mustUndo() {
	p.t.Helper()
	if err := p.s.Undo(context.Background(), p.ws, p.journal); err != nil {
		p.t.Fatalf("undo: %v", err)
	}
	p.clean()
	if err := p.s.Undo(context.Background(), p.ws, p.journal); err != nil {
		p.t.Errorf("second undo: %v", err)
	}
	if got, err := p.s.Recover(context.Background(), p.ws, p.journal); got.State != agents.ApplyReverted || err != nil {
		p.t.Errorf("recover after undo gives %s, %v", got, err)
	}
}

// rich is a repository with something of everything.
func rich(t *testing.T) *oracle.Repo {
	t.Helper()
	r := oracle.EmptyRepo(t, filepath.Join(t.TempDir(), "repo"))
	for _, name := range []string{"a.txt", "m.txt", "del.txt", "same.txt", "olddir/sub/x", "run.sh", "tolink", "fd", "df/x", "df/y/z",
		"-rf", "nl\nname", "q\"uote", "bs\\x", "inv\xff", "empty", "keep/k", ".gitignore", "out/o", "out/del"} {
		r.Write(name, "content of "+name+"\n1\n2\n3\n4\n5\n6\n7\n8\n9\n")
	}
	r.Write("empty", "")
	r.Write(".gitignore", "*.ign\n")
	r.Sh("ln -s a.txt link; chmod 755 run.sh; mkdir deep; ln -s ../m.txt deep/link")
	r.Commit("base")
	return r
}

// richEdit changes something of everything.
func richEdit(w *oracle.Repo) {
	w.Write("a.txt", "plan\n")
	w.Write("m.txt", strings.Replace(w.Read("m.txt"), "\n9\n", "\nnine\n", 1))
	w.Write("new.txt", "new\n")
	w.Write("newdir/deep/n", "n\n")
	w.Write("added.ign", "ignored, but forced\n")
	for _, odd := range []string{"-rf", "nl\nname", "q\"uote", "bs\\x", "inv\xff", "empty"} {
		w.Write(odd, "changed\n")
	}
	w.Sh(`rm del.txt; rm -r olddir; chmod 644 run.sh; rm tolink; ln -s a.txt tolink; ln -sfn m.txt link; rm deep/link
rm fd; mkdir fd; echo x >fd/x; rm -r df; echo f >df; head -c 4096 /dev/urandom >bin.dat; chmod +x keep/k; rm out/del; echo o >out/o; echo n >out/n`)
}

func TestApplyMovesEverythingAndUndoGivesItBack(t *testing.T) {
	for _, placeholder := range []bool{false, true} {
		r := rich(t)
		r.Write("notes.txt", "mine\n")                // B057 leg 4: an unrelated untracked file
		r.Write("x.ign", "mine\n")                    // an ignored one
		r.Write("same.txt", "edited\n")               // unrelated edit
		r.Write("keep/staged", "staged\n")            // unrelated staged file, edited further
		r.Git("add", "keep/staged")                   //
		r.Write("keep/staged", "staged and edited\n") //
		r.Sh("chmod 600 a.txt; chmod 700 olddir; touch -d 2001-01-01 del.txt; git add -N x.ign -f")
		p := newPlan(t, r, "main", richEdit)
		if placeholder {
			p.placeholder()
		}
		before := state(t, r)
		status := r.Git("status", "--porcelain")
		res := p.mustApply()
		if res.Into != "main" || len(res.Added) == 0 || len(res.Deleted) == 0 || res.Insertions == 0 {
			t.Errorf("result %+v", res)
		}
		if got := r.Git("diff", "--raw", p.ref, "HEAD"); got != "" {
			t.Errorf("the merge is not the plan's tree: %s", got)
		}
		if got := r.Git("status", "--porcelain"); got != status {
			t.Errorf("status after apply is\n%s\nwant\n%s", got, status)
		}
		if got := r.Git("log", "-1", "--format=%s|%an|%ae|%at"); got != "cleveragents: apply plan P|agents|agents@localhost|1800000000" {
			t.Errorf("merge commit is %q", got)
		}
		if got := r.Git("reflog", "-1", "--format=%gs"); got != "cleveragents: apply plan P" {
			t.Errorf("reflog says %q", got)
		}
		if fi, err := os.Stat(filepath.Join(r.Dir, "a.txt")); err != nil || fi.Mode().Perm() != 0o600 {
			t.Errorf("a.txt: %v %v, want its mode 0600 kept", fi.Mode(), err)
		}
		if _, err := os.Lstat(filepath.Join(r.Dir, "olddir")); err == nil {
			t.Error("an emptied directory is still there")
		}
		r.Git("fsck", "--strict")
		if got, err := p.s.Recover(context.Background(), p.ws, p.journal); got.State != agents.ApplyApplied || got.Commit != res.CommitRef || err != nil {
			t.Errorf("recover after apply gives %s %s %v", got.State, got.Commit, err)
		}
		p.mustUndo()
		same(t, "undo", before, state(t, r))
		if fi, err := os.Stat(filepath.Join(r.Dir, "del.txt")); err != nil || fi.ModTime().Year() != 2001 {
			t.Errorf("del.txt: its time is not back")
		}
	}
}

func TestConflictReasons(t *testing.T) {
	r := oracle.NewRepo(t)
	r.Write("both", "1\n")
	r.Write("gone", "1\n")
	r.Write("kept", "1\n")
	r.Commit("base")
	p := newPlan(t, r, "main", func(w *oracle.Repo) {
		w.Write("both", "plan\n")
		w.Write("gone", "plan\n")
		w.Sh("rm kept")
		w.Write("new", "plan\n")
	})
	r.Write("both", "user\n")
	r.Write("kept", "user\n")
	r.Write("new", "user\n")
	r.Sh("git rm -q gone; git add -A; git commit -qm user")
	res, err := p.apply()
	if !errors.Is(err, agents.ErrConflict) {
		t.Fatal(err)
	}
	want := map[string]string{
		"both": "both sides changed the same lines", "gone": "the repository deleted it and the plan changed it",
		"kept": "the plan deleted it and the repository changed it", "new": "both sides added it",
	}
	for _, c := range res.Conflicts {
		if c.Reason != want[c.Path] {
			t.Errorf("%s: %q, want %q", c.Path, c.Reason, want[c.Path])
		}
		delete(want, c.Path)
	}
	if len(want) > 0 {
		t.Errorf("not among the conflicts: %v", want)
	}
}
