package gitworktree_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/oracle"
	"github.com/cleveragents/agents/sandbox"
)

// kinds are repositories of many kinds; each is a fresh one.
func kinds() map[string]func(t *testing.T) *oracle.Repo {
	return map[string]func(t *testing.T) *oracle.Repo{
		"plain": func(t *testing.T) *oracle.Repo { return oracle.NewRepo(t) },
		"bare": func(t *testing.T) *oracle.Repo {
			src := oracle.NewRepo(t)
			bare := oracle.At(t, filepath.Join(t.TempDir(), "bare.git"))
			src.Git("clone", "-q", "--bare", src.Dir, bare.Dir)
			return bare
		},
		"sha256": func(t *testing.T) *oracle.Repo {
			r := oracle.EmptyRepo(t, filepath.Join(t.TempDir(), "r"), "--object-format=sha256")
			r.Write("a.txt", "v1\n")
			r.Commit("init")
			return r
		},
		"linked worktree": func(t *testing.T) *oracle.Repo {
			src := oracle.NewRepo(t)
			l := oracle.At(t, filepath.Join(t.TempDir(), "linked"))
			src.Git("worktree", "add", "-q", "-b", "side", l.Dir)
			return l
		},
		"sparse": func(t *testing.T) *oracle.Repo { return sparseRepo(t) },
		"sparse linked": func(t *testing.T) *oracle.Repo {
			src := sparseRepo(t)
			src.Git("sparse-checkout", "disable")
			l := oracle.At(t, filepath.Join(t.TempDir(), "linked"))
			src.Git("worktree", "add", "-q", "-b", "side", l.Dir)
			l.Git("sparse-checkout", "set", "p")
			return l
		},
		"sparse index": func(t *testing.T) *oracle.Repo {
			r := sparseRepo(t)
			r.Git("sparse-checkout", "reapply", "--sparse-index")
			return r
		},
		"shallow": func(t *testing.T) *oracle.Repo {
			src := oracle.NewRepo(t)
			src.Write("b.txt", "b\n")
			src.Commit("second")
			r := oracle.At(t, filepath.Join(t.TempDir(), "shallow"))
			src.Git("clone", "-q", "--depth=1", "file://"+src.Dir, r.Dir)
			return r
		},
		"partial": func(t *testing.T) *oracle.Repo {
			src := oracle.NewRepo(t)
			src.Git("config", "uploadpack.allowFilter", "true")
			src.Git("config", "uploadpack.allowAnySHA1InWant", "true")
			r := oracle.At(t, filepath.Join(t.TempDir(), "partial"))
			src.Git("clone", "-q", "--no-checkout", "--filter=blob:none", "file://"+src.Dir, r.Dir)
			return r
		},
		"split index": func(t *testing.T) *oracle.Repo {
			r := oracle.NewRepo(t)
			r.Git("config", "core.splitIndex", "true")
			r.Git("update-index", "--split-index")
			return r
		},
		"worktree config": func(t *testing.T) *oracle.Repo {
			r := oracle.NewRepo(t)
			r.Git("config", "extensions.worktreeConfig", "true")
			r.Git("config", "--worktree", "user.name", "Per Worktree")
			return r
		},
		"alternates": func(t *testing.T) *oracle.Repo {
			src := oracle.NewRepo(t)
			r := oracle.At(t, filepath.Join(t.TempDir(), "shared"))
			src.Git("clone", "-q", "--shared", src.Dir, r.Dir)
			return r
		},
		"packed": func(t *testing.T) *oracle.Repo {
			r := oracle.NewRepo(t)
			r.Git("tag", "-a", "-m", "t", "v1")
			r.Git("gc", "-q")
			return r
		},
		"autocrlf": func(t *testing.T) *oracle.Repo {
			r := oracle.NewRepo(t)
			r.Git("config", "core.autocrlf", "true")
			r.Sh("rm a.txt; git checkout -q a.txt")
			return r
		},
		"filter": func(t *testing.T) *oracle.Repo {
			r := oracle.NewRepo(t)
			r.Git("config", "filter.up.clean", "tr A-Z a-z")
			r.Git("config", "filter.up.smudge", "tr a-z A-Z")
			r.Git("config", "filter.up.required", "true")
			r.Write(".gitattributes", "*.up filter=up\n*.id ident\n")
			r.Write("x.up", "SHOUT\n")
			r.Write("y.id", "$Id$\n")
			r.Commit("filtered")
			return r
		},
		"merge in progress": func(t *testing.T) *oracle.Repo {
			r := oracle.NewRepo(t)
			r.Sh("git checkout -q -b x; echo x >a.txt; git commit -qam x; git checkout -q main; echo y >a.txt; git commit -qam y; git merge x || true")
			return r
		},
		"separate git dir": func(t *testing.T) *oracle.Repo {
			r := oracle.EmptyRepo(t, filepath.Join(t.TempDir(), "r"), "--separate-git-dir="+filepath.Join(t.TempDir(), "g"))
			r.Write("a.txt", "v1\n")
			r.Commit("init")
			return r
		},
		"odd path": func(t *testing.T) *oracle.Repo {
			r := oracle.EmptyRepo(t, filepath.Join(t.TempDir(), "a b\"c:d#e\\f'"))
			r.Write("a.txt", "v1\n")
			r.Commit("init")
			return r
		},
		"submodule": func(t *testing.T) *oracle.Repo {
			sub, r := oracle.NewRepo(t), oracle.NewRepo(t)
			r.Git("submodule", "--quiet", "add", sub.Dir, "sub")
			r.Commit("submodule")
			return r
		},
		"submodule checkout": func(t *testing.T) *oracle.Repo {
			sub, super := oracle.NewRepo(t), oracle.NewRepo(t)
			super.Git("submodule", "--quiet", "add", sub.Dir, "sub")
			return oracle.At(t, filepath.Join(super.Dir, "sub"))
		},
		"no identity, signing, hooks": func(t *testing.T) *oracle.Repo {
			r := oracle.NewRepo(t)
			r.Sh(`mkdir hooks; for h in pre-commit commit-msg post-checkout reference-transaction post-index-change; do
				printf '#!/bin/sh\ntouch /tmp/agents-hook-ran-$$; exit 1\n' >hooks/$h; chmod +x hooks/$h; done`)
			r.Commit("hooks")
			r.Sh(`git config core.hooksPath "$PWD/hooks"; git config commit.gpgsign true; git config gpg.program /bin/false
				git config user.useConfigOnly true; git config tag.gpgsign true; git config merge.verifySignatures true`)
			return r
		},
	}
}

func sparseRepo(t *testing.T) *oracle.Repo {
	r := oracle.NewRepo(t)
	r.Write("p/x", "p\n")
	r.Write("q/y", "q\n")
	r.Write("q/deep/z", "z\n")
	r.Commit("dirs")
	r.Git("sparse-checkout", "set", "p")
	return r
}

// messUp does to a sandbox what states must be able to take back.
const messUp = `
	printf v2 >a.txt; mkdir -p new/deep empty; echo n >new/deep/f; printf '\0\1' >bin; ln -s a.txt link; chmod 755 a.txt
	git add --sparse -A; git commit -qm 'plan commit'; git branch other; git tag t1
	echo stash >>a.txt; git stash -q; echo staged >staged; git add staged; echo unstaged >>a.txt
	printf x >'odd
name'; printf x >-dash; printf x >"$(printf 'bad\377utf8')"; touch 'q"uote'; chmod 600 bin
	git init -q nested; (cd nested; echo n >f; git add .; git -c user.name=n -c user.email=n@n commit -qm n)
`

func TestStatesOfAllKinds(t *testing.T) {
	for name, make := range kinds() {
		t.Run(name, func(t *testing.T) {
			repo := make(t)
			root := repo.Dir
			before := oracle.Digest(t, root)
			common := repo.Git("rev-parse", "--path-format=absolute", "--git-common-dir")
			beforeGit := oracle.Digest(t, common)
			b := created(t, repo)
			plan := b.plan()
			if got := plan.Git("status", "--porcelain"); got != "" {
				t.Fatalf("fresh sandbox is dirty: %s", got)
			}
			state0 := b.whole()
			base := b.capture()
			if again := b.capture(); again.Ref != base.Ref {
				t.Errorf("an unchanged state got another ref: %s, %s", base.Ref, again.Ref)
			}
			plan.Sh(messUp)
			state1 := b.whole()
			cp1 := b.capture()
			plan.Sh("git reset -q --hard; git clean -qffdx; git checkout -q -b elsewhere; git stash drop -q; git branch -D other; rm -rf .git/refs; echo broken >a.txt; rm -rf new")
			b.capture()
			b.restore(cp1.Ref)
			if d := oracle.Diff(state1, b.whole()); d != "" {
				t.Errorf("restore of the first state:\n%s", d)
			}
			plan.Git("status")
			b.restore("")
			if d := oracle.Diff(state0, b.whole()); d != "" {
				t.Errorf("restore of the base:\n%s", d)
			}
			if got := plan.Git("status", "--porcelain"); got != "" {
				t.Errorf("restored base is dirty: %s", got)
			}
			b.restore(cp1.Ref)
			plan.Sh("git reset -q --hard; rm -rf nested")
			plan.Write("result", "r\n")
			sealed := b.seal()
			if sealed.Unchanged {
				t.Error("sealed as unchanged")
			}
			if got := repo.Git("show", sealed.Ref+":result"); got != "r" {
				t.Errorf("result in the sealed commit: %q", got)
			}
			if got := repo.Git("diff", "--name-status", "--diff-filter=D", b.ws.Metadata["base_commit"], sealed.Ref); got != "" {
				t.Errorf("the result deletes %q", got)
			}
			repo.Git("fsck")
			b.remove()
			skip := []string{".git/objects", "objects"}
			oracle.Same(t, "the whole life", root, skipLines(before, skip), skip...)
			oracle.Same(t, "the whole life", common, skipLines(beforeGit, skip), skip...)
			nothingLeft(t, b)
		})
	}
}

// skipLines leaves out of a digest what skip does.
func skipLines(lines []string, skip []string) []string {
	var out []string
	for _, l := range lines {
		skipped := false
		for _, s := range skip {
			skipped = skipped || strings.HasPrefix(l, `"`+s+`"`) || strings.HasPrefix(l, `"`+s+`/`)
		}
		if !skipped {
			out = append(out, l)
		}
	}
	return out
}

func TestB005NestedRepositoryWithoutCommits(t *testing.T) {
	b := created(t, oracle.NewRepo(t))
	b.capture()
	b.plan().Sh("printf v2 >a.txt; git init -q sub")
	cp := b.capture()
	b.plan().Write("a.txt", "v3")
	b.restore(cp.Ref)
	if got := b.plan().Read("a.txt"); got != "v2" {
		t.Errorf("a.txt = %q, want v2", got)
	}
	s := b.seal()
	if r := reasons(s.LeftOut); r["sub"] != "an embedded repository" {
		t.Errorf("left out %v, want sub", s.LeftOut)
	}
}

func TestB013NestedRepositories(t *testing.T) {
	repo := oracle.NewRepo(t)
	b := created(t, repo)
	b.plan().Sh("for d in be fe; do git init -q $d; (cd $d; echo 1 >x; git add .; git commit -qm 1); done")
	cp, state := b.capture(), b.whole()
	b.plan().Sh("echo 2 >be/x; echo y >fe/y; (cd fe; git add .; git commit -qm 2); rm -rf be/.git; echo t >top.txt")
	b.capture()
	b.restore(cp.Ref)
	if d := oracle.Diff(state, b.whole()); d != "" {
		t.Error(d)
	}
}

func TestB016IgnoredFiles(t *testing.T) {
	for _, scope := range []string{"", "all", "none"} {
		t.Run("scope "+scope, func(t *testing.T) {
			repo := oracle.NewRepo(t)
			repo.Write(".gitignore", ".env\ndist/\n")
			repo.Commit("ignore")
			b := newBench(t, repo)
			b.req.Options.IgnoredScope = scope
			b.create()
			b.plan().Sh("echo A=1 >.env")
			cp := b.capture()
			b.plan().Sh("echo A=2 >.env; mkdir dist; echo x >dist/o")
			b.restore(cp.Ref)
			want := "A=1\n"
			if scope == "none" {
				want = "A=2\n"
				if r := reasons(cp.LeftOut); r[".env"] == "" {
					t.Errorf("left out %v, want .env named", cp.LeftOut)
				}
			}
			if got := b.plan().Read(".env"); got != want {
				t.Errorf(".env = %q, want %q", got, want)
			}
			if _, err := os.Lstat(filepath.Join(b.ws.Path, "dist/o")); (err == nil) != (scope == "none") {
				t.Errorf("dist/o: %v", err)
			}
		})
	}
}

func TestB019EmptyDirectories(t *testing.T) {
	repo := oracle.NewRepo(t)
	repo.Write(".gitignore", "node_modules\n")
	repo.Commit("ignore")
	b := created(t, repo)
	b.plan().Sh("mkdir -p empty node_modules/.cache")
	cp, state := b.capture(), b.whole()
	b.plan().Sh("rmdir empty; mkdir -p n/e")
	b.restore(cp.Ref)
	if d := oracle.Diff(state, b.whole()); d != "" {
		t.Error(d)
	}
}

func TestKnownPathCapture(t *testing.T) {
	b := created(t, oracle.NewRepo(t))
	base := b.capture()
	b.plan().Write("dir/new.txt", "n\n")
	state := b.whole()
	cp := b.capture("dir/new.txt")
	if cp.Ref == base.Ref {
		t.Fatal("the change was not seen")
	}
	b.plan().Write("dir/new.txt", "other\n")
	b.restore(cp.Ref)
	if d := oracle.Diff(state, b.whole()); d != "" {
		t.Error(d)
	}
}

func TestB115StatesOutliveTheUsersHousekeeping(t *testing.T) {
	repo := oracle.NewRepo(t)
	b := created(t, repo)
	b.capture()
	b.plan().Sh("echo 1 >a.txt; git commit -qam 1")
	cp1 := b.capture()
	b.plan().Sh("echo 3 >a.txt; git commit -qam 3; echo 4 >>a.txt")
	cp3, state := b.capture(), b.whole()
	b.restore(cp1.Ref)
	repo.Sh("git reflog expire --expire=now --all; git gc -q --prune=now")
	b.restore(cp3.Ref)
	if d := oracle.Diff(state, b.whole()); d != "" {
		t.Error(d)
	}
	b.plan().Git("fsck")
}

func TestB029UsersRepositoryDoesNotGrow(t *testing.T) {
	repo := oracle.NewRepo(t)
	before := oracle.Digest(t, repo.Dir)
	b := created(t, repo)
	for range 5 {
		b.plan().Sh("head -c 200000 /dev/urandom >big; git add big; git commit -qm big")
		b.capture()
	}
	b.remove()
	oracle.Same(t, "discarding the plan", repo.Dir, before)
}

func TestB046StaleLocks(t *testing.T) {
	b := created(t, oracle.NewRepo(t))
	base := b.capture()
	b.plan().Sh(`touch "$(git rev-parse --git-path index.lock)" "$(git rev-parse --git-common-dir)/packed-refs.lock" "$(git rev-parse --git-path HEAD).lock"`)
	b.prepare()
	b.plan().Sh("echo 2 >a.txt; git commit -qam 2; git pack-refs --all")
	b.plan().Sh(`touch "$(git rev-parse --git-path index.lock)"`)
	b.restore(base.Ref)
	b.plan().Git("commit", "-q", "--allow-empty", "-m", "works")
}

func TestPrepareRepairs(t *testing.T) {
	repo := oracle.NewRepo(t)
	b := created(t, repo)
	pointer := b.plan().Read(".git")
	for name, breakIt := range map[string]func(){
		"user's worktree repair": func() { repo.Git("worktree", "repair", b.ws.Path) },
		"pointer removed":        func() { b.plan().Sh("rm .git") },
		"pointer replaced by a repository": func() {
			b.plan().Sh("rm .git; git init -q; git add -A; git commit -qm precious")
		},
		"entry removed": func() { repo.Sh("rm -rf .git/worktrees") },
		"branch removed": func() {
			repo.Sh("git update-ref -d refs/heads/" + b.ws.Metadata["branch"])
		},
	} {
		t.Run(name, func(t *testing.T) {
			breakIt()
			b.prepare()
			if got := b.plan().Read(".git"); got != pointer {
				t.Errorf(".git = %q, want %q", got, pointer)
			}
			b.plan().Git("status")
			if got := repo.Git("worktree", "list", "--porcelain"); !strings.Contains(got, b.ws.Metadata["branch"]) || !strings.Contains(got, "locked") {
				t.Errorf("worktree list: %s", got)
			}
			repo.Git("rev-parse", b.ws.Metadata["branch"])
		})
	}
	if _, err := os.Stat(filepath.Join(b.ws.PrivateDir, "git/set-aside-1/HEAD")); err != nil {
		t.Errorf("the plan's own repository was not kept: %v", err)
	}
}

func TestRestoreRefusals(t *testing.T) {
	b := created(t, oracle.NewRepo(t))
	state := b.whole()
	for ref, class := range map[string]error{
		"":                        agents.ErrNotFound,
		strings.Repeat("a", 40):   agents.ErrDamaged,
		"HEAD --output=/tmp/PWN":  agents.ErrDamaged,
		"--output=/tmp/agents-pw": agents.ErrDamaged,
	} {
		_, err := b.strategy.Restore(t.Context(), b.ws, sandbox.RestoreRequest{Objects: b.objects, Ref: ref})
		if !errors.Is(err, class) {
			t.Errorf("restore %q: %v, want %v", ref, err, class)
		}
	}
	if d := oracle.Diff(state, b.whole()); d != "" {
		t.Error(d)
	}
}

func TestB022ThreeNoGitLater(t *testing.T) {
	b := created(t, oracle.NewRepo(t))
	b.strategy.Git.Program = "no-such-git"
	_, err := b.strategy.Seal(t.Context(), b.ws, sandbox.SealRequest{})
	if !errors.Is(err, agents.ErrUnsupported) {
		t.Errorf("seal without git: %v, want unsupported", err)
	}
}

func TestSandboxOnAnotherFileSystem(t *testing.T) {
	here, err := os.MkdirTemp("/dev/shm", "agents-test-")
	if err != nil {
		t.Skip("no second file system to be found")
	}
	t.Cleanup(func() { os.RemoveAll(here) })
	repo := oracle.NewRepo(t)
	b := newBench(t, repo)
	b.req.Dir = filepath.Join(here, "sandboxes")
	b.create()
	b.capture()
	b.plan().Sh("echo 1 >x; git add x; git commit -qm x; git init -q n")
	cp, state := b.capture(), append(oracle.Digest(t, b.ws.Path), oracle.Digest(t, filepath.Join(b.ws.PrivateDir, "git")+"/")...)
	b.plan().Sh("echo 2 >x; rm a.txt; git commit -qam y; rm .git; git init -q")
	b.restore(cp.Ref)
	if d := oracle.Diff(state, append(oracle.Digest(t, b.ws.Path), oracle.Digest(t, filepath.Join(b.ws.PrivateDir, "git")+"/")...)); d != "" {
		t.Error(d)
	}
	repo.Sh("echo u >u; git add u; git commit -qm u")
	if _, err := b.update(); err != nil {
		t.Error(err)
	}
	if got := repo.Git("diff", "--name-only", "main", b.seal().Ref); got != "x" {
		t.Errorf("result %q, want x", got)
	}
	b.remove()
	nothingLeft(t, b)
}
