package gitworktree_test

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/git"
	"github.com/cleveragents/agents/internal/oracle"
	"github.com/cleveragents/agents/sandbox"
	"github.com/cleveragents/agents/sandbox/gitworktree"
)

func TestU009CreateShowsBranchAndLockedWorktree(t *testing.T) {
	repo := oracle.NewRepo(t)
	before := oracle.Digest(t, repo.Dir)
	head := repo.Git("rev-parse", "HEAD")
	b := created(t, repo)

	branch := "cleveragents/plan-" + planID
	want := map[string]string{"strategy": "git_worktree", "branch": branch, "original_branch": "main", "base_commit": head, "worktree_path": b.ws.Path}
	for k, v := range want {
		if got := b.ws.Metadata[k]; got != v {
			t.Errorf("metadata %s = %q, want %q", k, got, v)
		}
	}
	if !regexp.MustCompile(`^ca-sandbox-` + planID + `-[0-9a-f]+$`).MatchString(filepath.Base(b.ws.Path)) {
		t.Errorf("sandbox directory %s", b.ws.Path)
	}
	if fi, _ := os.Stat(b.ws.Path); fi.Mode().Perm() != 0o700 {
		t.Errorf("sandbox mode %v, want 0700", fi.Mode().Perm())
	}
	if got := b.plan().Git("rev-parse", "--abbrev-ref", "HEAD"); got != branch {
		t.Errorf("sandbox is on %s, want %s", got, branch)
	}
	if got := b.plan().Git("status", "--porcelain"); got != "" {
		t.Errorf("fresh sandbox is dirty: %s", got)
	}
	if got := b.plan().Git("rev-parse", "--show-toplevel"); got != b.ws.Path {
		t.Errorf("top level %s, want %s", got, b.ws.Path)
	}
	oracle.Same(t, "create", repo.Dir, before, append(oracle.Placeholder(), ".git/worktrees")...)

	list := repo.Git("worktree", "list", "--porcelain")
	if !strings.Contains(list, "worktree "+b.ws.Path+"\n") || !strings.Contains(list, "branch refs/heads/"+branch) || !strings.Contains(list, "locked") {
		t.Errorf("worktree list:\n%s", list)
	}
	if got := repo.Git("rev-parse", branch); got != head {
		t.Errorf("branch at %s, want %s", got, head)
	}
	repo.Git("worktree", "prune")
	repo.Git("fsck", "--strict")
	if _, err := repo.Try("branch", "-D", branch); err == nil {
		t.Error("the user could delete the branch of a live sandbox")
	}

	b.remove()
	b.remove()
	oracle.Same(t, "remove", repo.Dir, before)
	nothingLeft(t, b)
}

func TestCreateRefuses(t *testing.T) {
	for _, c := range []struct {
		name  string
		setup func(b *bench)
		class error
		says  string
	}{
		{"B105 empty plan id", func(b *bench) { b.req.PlanID = "" }, agents.ErrInvalid, "plan id"},
		{"B105 long plan id", func(b *bench) { b.req.PlanID = strings.Repeat("x", 300) }, agents.ErrInvalid, "plan id"},
		{"sub-directory", func(b *bench) {
			b.repo.Write("sub/f", "x")
			b.req.Resource.Location = filepath.Join(b.repo.Dir, "sub")
		}, agents.ErrInvalid, "which is "},
		{"git directory", func(b *bench) { b.req.Resource.Location = filepath.Join(b.repo.Dir, ".git") }, agents.ErrInvalid, ""},
		{"no repository", func(b *bench) { b.req.Resource.Location = b.t.TempDir() }, agents.ErrInvalid, "not a git repository"},
		{"missing", func(b *bench) { b.req.Resource.Location += "-gone" }, agents.ErrNotFound, ""},
		{"unknown base branch", func(b *bench) { b.req.Resource.Branch = "nope" }, agents.ErrNotFound, "nope"},
		{"branch like an option", func(b *bench) { b.req.Resource.Branch = "--output=/tmp/PWN" }, agents.ErrNotFound, ""},
		{"sandbox inside the tree", func(b *bench) { b.req.Dir = filepath.Join(b.repo.Dir, "tmp") }, agents.ErrInvalid, "inside the resource"},
		{"B033 unborn", func(b *bench) {
			b.repo = oracle.EmptyRepo(b.t, filepath.Join(b.t.TempDir(), "new"))
			b.repo.Write("f", "1")
			b.req.Resource.Location = b.repo.Dir
		}, agents.ErrUnsupported, "does not have any commits yet"},
		{"B022 no git", func(b *bench) { b.strategy = &gitworktree.Strategy{Git: git.Runner{Program: "no-such-git"}} },
			agents.ErrUnsupported, "git is not installed"},
		{"branch taken by a directory of branches", func(b *bench) { b.repo.Git("branch", "cleveragents/plan-"+planID+"/x") }, agents.ErrConflict, "cleveragents/plan-"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, oracle.NewRepo(t))
			c.setup(b)
			b.t = t
			before := oracle.Digest(t, b.repo.Dir)
			_, err := b.strategy.Create(t.Context(), b.req)
			if !errors.Is(err, c.class) {
				t.Fatalf("error %v, want class %v", err, c.class)
			}
			mustContain(t, err, c.says)
			oracle.Same(t, "refused create", b.repo.Dir, before)
			entries, _ := os.ReadDir(b.req.PrivateDir)
			if len(entries) > 0 {
				t.Errorf("private folder holds %v", entries)
			}
		})
	}
}

func TestBranchNames(t *testing.T) {
	for id, want := range map[string]string{
		"01JQABC-xyz!foo":  "01JQABC-xyz-foo",
		"--upload-pack=x":  "--upload-pack-x",
		"../../x":          "-/-/x",
		"a/../b":           "a/-/b",
		"a..b":             "a-b",
		"x.lock":           "x-lock",
		"x.":               "x-",
		"ü€y":              "-y",
		"a//b":             "a/-/b",
		"plan one/.hidden": "plan-one/-hidden",
		"@{-1}":            "--1-",
	} {
		t.Run(id, func(t *testing.T) {
			b := newBench(t, oracle.NewRepo(t))
			b.req.PlanID = id
			b.create()
			if got := b.ws.Metadata["branch"]; got != "cleveragents/plan-"+want {
				t.Errorf("branch %q, want %q", got, "cleveragents/plan-"+want)
			}
			if filepath.Dir(b.ws.Path) != b.req.Dir {
				t.Errorf("sandbox at %s, want it in %s", b.ws.Path, b.req.Dir)
			}
			b.remove()
			nothingLeft(t, b)
		})
	}
}

func TestB036RequiredFilterMissing(t *testing.T) {
	repo := oracle.NewRepo(t)
	repo.Write("x.bin", "data")
	repo.Commit("bin")
	repo.Write(".gitattributes", "*.bin filter=needed\n")
	repo.Commit("attributes")
	repo.Git("config", "filter.needed.required", "true")
	repo.Git("config", "filter.needed.smudge", "no-such-prog smudge %f")
	before := oracle.Digest(t, repo.Dir)
	b := newBench(t, repo)
	_, err := b.strategy.Create(t.Context(), b.req)
	if !errors.Is(err, agents.ErrUnsupported) {
		t.Fatalf("error %v, want unsupported", err)
	}
	mustContain(t, err, "filter needed")
	oracle.Same(t, "failed create", repo.Dir, before)
	nothingLeft(t, b)
}

func TestB032ParallelCreation(t *testing.T) {
	origin := oracle.NewRepo(t)
	repo := oracle.At(t, filepath.Join(t.TempDir(), "clone"))
	origin.Git("clone", "-q", origin.Dir, repo.Dir)
	before := oracle.Digest(t, repo.Dir)
	benches := make([]*bench, 8)
	var wg sync.WaitGroup
	for i := range benches {
		benches[i] = newBench(t, repo)
		benches[i].req.PlanID = planID + string(rune('a'+i))
		wg.Go(func() {
			ws, err := benches[i].strategy.Create(t.Context(), benches[i].req)
			if err != nil {
				t.Errorf("create %d: %v", i, err)
			}
			benches[i].ws = ws
		})
	}
	wg.Wait()
	if got := strings.Count(repo.Git("for-each-ref", "refs/heads/cleveragents"), "\n") + 1; got != 8 {
		t.Errorf("%d branches, want 8", got)
	}
	for _, b := range benches {
		wg.Go(func() { b.remove() })
	}
	wg.Wait()
	oracle.Same(t, "removal of all", repo.Dir, before)
}

// A worktree entry that another plan is just making, with nothing in it yet
// but the lock, is not taken for a stale one.
func TestB032EntryBeingMade(t *testing.T) {
	repo := oracle.NewRepo(t)
	half := filepath.Join(repo.Dir, ".git/worktrees", "ca-sandbox-01JQOTHERPLAN-00000000")
	if err := os.MkdirAll(half, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(half, "locked"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	before := oracle.Digest(t, repo.Dir)
	b := created(t, repo)
	if _, err := os.Stat(filepath.Join(half, "locked")); err != nil {
		t.Errorf("the other plan's entry: %v", err)
	}
	b.remove()
	oracle.Same(t, "removal", repo.Dir, before)
}

func TestB041EarlierLife(t *testing.T) {
	t.Run("directory gone", func(t *testing.T) {
		repo := oracle.NewRepo(t)
		before := oracle.Digest(t, repo.Dir)
		b := created(t, repo)
		if err := os.RemoveAll(b.ws.Path); err != nil {
			t.Fatal(err)
		}
		again := newBench(t, repo)
		again.create()
		if got := strings.Count(repo.Git("worktree", "list"), "ca-sandbox-"); got != 1 {
			t.Errorf("%d worktree entries, want 1", got)
		}
		again.remove()
		oracle.Same(t, "removal", repo.Dir, before)
	})
	t.Run("commits on the branch are kept", func(t *testing.T) {
		repo := oracle.NewRepo(t)
		first := created(t, repo)
		first.plan().Write("new", "work\n")
		sealed := first.seal()
		for _, dir := range []string{first.ws.Path, first.ws.PrivateDir} {
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
		}
		repo.Write("b.txt", "user moves on\n")
		repo.Commit("user")
		again := newBench(t, repo)
		again.create()
		if got := again.plan().Read("new"); got != "work\n" {
			t.Errorf("new = %q, want the earlier life's work", got)
		}
		if len(again.told) == 0 || !strings.Contains(again.told[0], "earlier run") {
			t.Errorf("told %q, want the earlier run named", again.told)
		}
		again.plan().Write("more", "x\n")
		next := again.seal()
		if got := repo.Git("rev-parse", next.Ref+"^"); got != sealed.Ref {
			t.Errorf("parent %s, want the earlier result %s", got, sealed.Ref)
		}
		if got := repo.Git("merge-base", "main", next.Ref); got != again.ws.Metadata["base_commit"] {
			t.Errorf("base %s, want the merge base %s", again.ws.Metadata["base_commit"], got)
		}
	})
	t.Run("checked out by the user", func(t *testing.T) {
		repo := oracle.NewRepo(t)
		repo.Git("checkout", "-q", "-b", "cleveragents/plan-"+planID)
		b := newBench(t, repo)
		b.req.Resource.Branch = "main"
		_, err := b.strategy.Create(t.Context(), b.req)
		if !errors.Is(err, agents.ErrConflict) {
			t.Errorf("error %v, want conflict", err)
		}
	})
	t.Run("killed creation in the same private folder", func(t *testing.T) {
		repo := oracle.NewRepo(t)
		before := oracle.Digest(t, repo.Dir)
		b := created(t, repo)
		b.create()
		if got := strings.Count(repo.Git("worktree", "list"), "ca-sandbox-"); got != 1 {
			t.Errorf("%d worktree entries, want 1", got)
		}
		b.remove()
		oracle.Same(t, "removal", repo.Dir, before)
		nothingLeft(t, b)
	})
}

func TestU005DetachedHead(t *testing.T) {
	repo := oracle.NewRepo(t)
	head := repo.Git("rev-parse", "HEAD")
	repo.Git("checkout", "-q", "--detach")
	b := created(t, repo)
	if b.ws.Metadata["original_branch"] != "" || b.ws.Metadata["base_commit"] != head {
		t.Errorf("metadata %v, want no original branch and base %s", b.ws.Metadata, head)
	}
}

func TestB049SymlinkedSpellings(t *testing.T) {
	repo := oracle.NewRepo(t)
	outside := filepath.Join(t.TempDir(), "g")
	if err := os.Rename(filepath.Join(repo.Dir, ".git"), outside); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "L")
	for from, to := range map[string]string{outside: filepath.Join(repo.Dir, ".git"), repo.Dir: link} {
		if err := os.Symlink(from, to); err != nil {
			t.Fatal(err)
		}
	}
	before := oracle.Digest(t, repo.Dir)
	b := newBench(t, repo)
	b.req.Resource.Location = link
	data := filepath.Join(t.TempDir(), "D")
	if err := os.Symlink(filepath.Dir(b.req.PrivateDir), data); err != nil {
		t.Fatal(err)
	}
	b.req.Dir = filepath.Join(data, "sandboxes")
	b.create()
	b.plan().Write("new", "x\n")
	b.seal()
	b.remove()
	oracle.Same(t, "removal", repo.Dir, before)
	if repo.Read("a.txt") != "v1\n" {
		t.Error("the user's tree was touched")
	}
}

func TestB060Include(t *testing.T) {
	repo := oracle.NewRepo(t)
	repo.Write(".gitignore", ".env\nnode_modules/\nsecret\n")
	repo.Write(".worktreeinclude", ".env\n# comment\n")
	repo.Commit("ignore")
	repo.Write(".env", "A=1\n")
	repo.Write("secret", "s\n")
	repo.Write("node_modules/m/index.js", "js\n")
	repo.Sh("ln -s m node_modules/link; chmod 600 .env; echo dirty >>a.txt; echo new >untracked")
	before := oracle.Digest(t, repo.Dir, withoutObjects()...)
	b := newBench(t, repo)
	b.req.Options.GitInclude = []string{"node_modules/"}
	b.create()
	for name, want := range map[string]string{".env": "A=1\n", "node_modules/m/index.js": "js\n", "a.txt": "v1\n"} {
		if got := b.plan().Read(name); got != want {
			t.Errorf("%s = %q, want %q", name, got, want)
		}
	}
	if fi, _ := os.Lstat(filepath.Join(b.ws.Path, ".env")); fi.Mode().Perm() != 0o600 {
		t.Errorf(".env mode %v, want 0600", fi.Mode().Perm())
	}
	told := strings.Join(b.told, "\n")
	if !strings.Contains(told, "2 uncommitted changes are not in the sandbox") || !strings.Contains(told, "1 ignored file or directory is not in the sandbox") {
		t.Errorf("told %q", told)
	}
	b.plan().Sh("echo B=2 >>.env; git add -f .env; echo x >new")
	s := b.seal()
	if got := repo.Git("diff", "--name-only", "main", s.Ref); got != "new" {
		t.Errorf("the result changes %q, want new alone", got)
	}
	if r := reasons(s.LeftOut); r[".env"] == "" || len(r) != 1 {
		t.Errorf("left out %v, want .env, which the plan changed", s.LeftOut)
	}
	oracle.Same(t, "seal", repo.Dir, before, withoutObjects()...)
}

func TestIncludeUncommitted(t *testing.T) {
	repo := oracle.NewRepo(t)
	repo.Write("b.txt", "1\n2\n3\n4\n5\n6\n7\n8\n9\n")
	repo.Write("gone.txt", "x\n")
	repo.Write(".gitignore", "ignored\n")
	repo.Commit("more")
	repo.Sh("echo staged >s; git add s; sed -i 's/^1$/one/' b.txt; echo u >untracked; echo i >ignored; rm gone.txt")
	before := oracle.Digest(t, repo.Dir, withoutObjects()...)
	b := newBench(t, repo)
	b.req.IncludeUncommitted = true
	b.create()
	if !slices.ContainsFunc(b.told, func(s string) bool { return strings.HasPrefix(s, "staged changes of s: ") }) {
		t.Errorf("told %q", b.told)
	}
	plan := b.plan()
	for name, want := range map[string]string{"s": "staged\n", "untracked": "u\n", "b.txt": "one\n2\n3\n4\n5\n6\n7\n8\n9\n"} {
		if got := plan.Read(name); got != want {
			t.Errorf("%s = %q, want %q", name, got, want)
		}
	}
	for _, name := range []string{"gone.txt", "ignored"} {
		if _, err := os.Lstat(filepath.Join(b.ws.Path, name)); err == nil {
			t.Errorf("%s is in the sandbox", name)
		}
	}
	if got := plan.Git("rev-parse", "HEAD"); got != repo.Git("rev-parse", "HEAD") {
		t.Errorf("HEAD %s, want the user's", got)
	}
	if d := b.diff(sandbox.DiffRequest{Counts: true}); len(d) != 0 {
		t.Errorf("diff of an untouched sandbox: %v", d)
	}
	plan.Sh("sed -i 's/^9$/nine/' b.txt; echo p >plan")
	if d := b.diff(sandbox.DiffRequest{Counts: true}); len(d) != 2 {
		t.Errorf("diff %v, want b.txt and plan", d)
	}
	s := b.seal()
	if got := repo.Git("diff", "--name-only", "main", s.Ref); got != "b.txt\nplan" {
		t.Errorf("the result changes %q, want b.txt and plan alone", got)
	}
	if got := repo.Git("show", s.Ref+":b.txt"); !strings.HasPrefix(got, "1\n") || !strings.HasSuffix(got, "nine") {
		t.Errorf("b.txt of the result: %q, want only the plan's line changed", got)
	}
	plan.Sh("sed -i 's/^one$/ONE/' b.txt")
	if _, err := b.strategy.Seal(t.Context(), b.ws, sandbox.SealRequest{}); !errors.Is(err, agents.ErrConflict) {
		t.Errorf("seal of a change to uncommitted lines: %v, want a conflict", err)
	}
	for name, script := range map[string]string{
		"remove an untracked file": "rm untracked", "put back a line": "sed -i 's/^ONE$/1/' b.txt", "bring a file back": "echo x >gone.txt",
	} {
		plan.Sh(script)
		if _, err := b.strategy.Seal(t.Context(), b.ws, sandbox.SealRequest{}); !errors.Is(err, agents.ErrConflict) {
			t.Errorf("%s: %v, want a conflict: no commit can say that", name, err)
		}
	}
	oracle.Same(t, "seal", repo.Dir, before, withoutObjects()...)
}

func TestConfigurationGoesAlong(t *testing.T) {
	origin := oracle.NewRepo(t)
	repo := oracle.At(t, filepath.Join(filepath.Dir(origin.Dir), "clone"))
	origin.Git("clone", "-q", origin.Dir, repo.Dir)
	repo.Git("remote", "set-url", "origin", "../repo")
	repo.Write(".git/extra", "[user]\n\tname = Included\n[alias]\n\tsaid = \"!echo 'it works; # really'\"\n")
	repo.Git("config", "include.path", "extra")
	repo.Git("config", "odd.A \"sub\\section\".key", "va\"l\\ue\n;#  ")
	repo.Sh("printf '[flag]\\n\\tbare\\n' >>.git/config")
	b := newBench(t, repo)
	home := ""
	for _, kv := range b.strategy.Git.Env {
		if h, ok := strings.CutPrefix(kv, "HOME="); ok {
			home = h
		}
	}
	global := oracle.At(t, home)
	global.Write(".gitconfig", "[includeIf \"gitdir:"+repo.Dir+"/\"]\n\tpath = work\n[core]\n\thooksPath = /nonexistent/hooks\n")
	global.Write("work", "[user]\n\temail = at@work\n")
	b.create()
	plan := b.plan()
	for key, want := range map[string]string{
		"user.name": "Included", "user.email": "at@work", "odd.A \"sub\\section\".key": "va\"l\\ue\n;#  ", "remote.origin.url": origin.Dir,
		"branch.main.remote": "origin", "core.hooksPath": filepath.Join(b.ws.PrivateDir, "git", "hooks"),
	} {
		if got := plan.Git("config", key); got != want {
			t.Errorf("%s = %q, want %q", key, got, want)
		}
	}
	if got := plan.Git("config", "--type=bool", "flag.bare"); got != "true" {
		t.Errorf("flag.bare = %q", got)
	}
	if got := plan.Git("said"); got != "it works; # really" {
		t.Errorf("alias: %q", got)
	}
	plan.Sh("git fetch -q origin; git remote set-url origin /elsewhere")
	if got := plan.Git("config", "remote.origin.url"); got != "/elsewhere" {
		t.Errorf("set-url: %q", got)
	}
}

func TestRemoveTakesEmptyRefDirectories(t *testing.T) {
	repo := oracle.NewRepo(t)
	before := oracle.Digest(t, repo.Dir)
	b := newBench(t, repo)
	b.req.PlanID = "deep/er/plan"
	b.create()
	repo.Git("update-ref", "-d", "refs/heads/"+b.ws.Metadata["branch"])
	repo.Sh("mkdir -p .git/refs/heads/cleveragents/plan-deep/er")
	b.remove()
	oracle.Same(t, "removal", repo.Dir, before)
}
