package gitworktree_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/oracle"
	"github.com/cleveragents/agents/sandbox"
)

func TestSealCommitsThePresentTree(t *testing.T) {
	repo := oracle.NewRepo(t)
	repo.Write("del.txt", "d\n")
	repo.Write("x", "x\n")
	base := repo.Commit("more")
	before := oracle.Digest(t, repo.Dir, withoutObjects()...)
	b := created(t, repo)
	if s := b.seal(); !s.Unchanged || s.Ref != base {
		t.Errorf("seal of nothing: %+v, want unchanged at %s", s, base)
	}
	plan := b.plan()
	plan.Sh(`echo v2 >a.txt; rm del.txt; mkdir d; echo n >d/new; rm x; mkdir x; echo in >x/y; ln -s a.txt link; chmod +x d/new; printf x >"$(printf 'o\377')"`)
	index := plan.Git("ls-files", "--stage")
	s := b.seal()
	if s.Unchanged || len(s.LeftOut) != 0 {
		t.Errorf("sealed %+v", s)
	}
	want := "M\x00a.txt\x00A\x00d/new\x00D\x00del.txt\x00A\x00link\x00A\x00o\xff\x00D\x00x\x00A\x00x/y\x00"
	if got := repo.Git("diff", "-z", "--no-renames", "--name-status", base, s.Ref); got != want {
		t.Errorf("result %q, want %q", got, want)
	}
	if got := repo.Git("log", "-1", "--format=%P|%an <%ae>|%cn|%s|%G?", s.Ref); got != base+"|agents <agents@localhost>|agents|plan's work|N" {
		t.Errorf("commit %q", got)
	}
	if got := repo.Git("rev-parse", b.ws.Metadata["branch"]); got != s.Ref {
		t.Errorf("branch at %s, want the result %s", got, s.Ref)
	}
	if got := plan.Git("ls-files", "--stage"); got != index {
		t.Error("sealing changed the plan's index")
	}
	if again := b.seal(); again.Ref != s.Ref {
		t.Errorf("second seal of the same state: %s, want %s", again.Ref, s.Ref)
	}
	plan.Write("later", "l\n")
	if later := b.seal(); repo.Git("rev-parse", later.Ref+"^") != base {
		t.Error("a later seal does not replace the first")
	}
	oracle.Same(t, "seal", repo.Dir, before, withoutObjects()...)
	repo.Sh("git gc -q --prune=now; git fsck --strict")
	repo.Git("show", b.ws.Metadata["branch"]+":later")
}

func TestSealOnThePlansOwnCommits(t *testing.T) {
	for _, c := range []struct{ name, script, parent, leftOut string }{
		{"commit and more", "echo 1 >f; git add f; git commit -qm own; echo 2 >>f", "plan", ""},
		{"all committed", "echo 1 >f; git add f; git commit -qm own", "same", ""},
		{"detached", "git checkout -q --detach; echo 1 >f; git add f; git commit -qm own; echo 2 >f", "plan", ""},
		{"other branch", "git checkout -q -b mine; echo 1 >f; git add f; git commit -qm own; echo 2 >f", "plan", ""},
		{"rewritten history", "git checkout -q --orphan new; echo 1 >f; git add f; git commit -qm own; echo 2 >f", "base", "HEAD"},
		{"amended base", "echo 1 >f; git add f; git commit -q --amend -m own; echo 2 >f", "base", "HEAD"},
		{"stash", "echo 1 >f; git add f; git stash -q; echo 2 >g", "base", "refs/stash"},
		{"branch aside", "git checkout -q -b aside; echo 1 >g; git add g; git commit -qm aside; git checkout -q -; echo 2 >f", "base", "refs/heads/aside"},
		{"tag aside", "git checkout -q --detach; echo 1 >g; git add g; git commit -qm aside; git tag t; git checkout -q main; echo 2 >f", "base", "refs/tags/t"},
		{"broken index", "echo garbage >$(git rev-parse --git-path index); echo 1 >f", "base", ""},
		{"no index", "rm $(git rev-parse --git-path index); echo 1 >f", "base", ""},
		{"split index", "git update-index --split-index; echo 1 >f; git add f; echo 2 >g", "base", ""},
		{"assumed unchanged", "git update-index --assume-unchanged a.txt; echo 9 >a.txt; echo 1 >f", "base", ""},
		{"skip worktree", "git update-index --skip-worktree a.txt; echo 9 >a.txt; echo 1 >f", "base", ""},
		{"intent to add", "echo 1 >f; git add -N f", "base", ""},
		{"config of the plan", "git config core.fileMode false; git config core.autocrlf true; git config core.bare true; printf 'a\\r\\n' >f", "base", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			repo := oracle.NewRepo(t)
			b := created(t, repo)
			b.plan().Sh(c.script)
			head := b.plan()
			s := b.seal()
			base := b.ws.Metadata["base_commit"]
			parents := repo.Git("log", "-1", "--format=%P", s.Ref)
			switch c.parent {
			case "base":
				if parents != base {
					t.Errorf("parent %s, want base %s", parents, base)
				}
			case "plan":
				if own := head.Git("rev-parse", "HEAD"); parents != own || own == base {
					t.Errorf("parent %s, want the plan's commit %s", parents, own)
				}
			case "same":
				if own := head.Git("rev-parse", "HEAD"); s.Ref != own {
					t.Errorf("result %s, want the plan's commit %s", s.Ref, own)
				}
			}
			r := reasons(s.LeftOut)
			if c.leftOut == "" && len(r) > 0 || c.leftOut != "" && r[c.leftOut] == "" {
				t.Errorf("left out %v, want %q", s.LeftOut, c.leftOut)
			}
			list := filepath.Join(b.ws.Path)
			for _, f := range []string{"f", "g", "a.txt"} {
				want, err := os.ReadFile(filepath.Join(list, f))
				if err != nil {
					continue
				}
				got, err := repo.Try("cat-file", "blob", s.Ref+":"+f)
				if err != nil || got != strings.TrimSuffix(string(want), "\n") {
					t.Errorf("%s in the result: %q (%v), want %q", f, got, err, want)
				}
			}
			repo.Git("fsck")
		})
	}
}

func TestSealLeavesOut(t *testing.T) {
	repo := oracle.NewRepo(t)
	repo.Write(".gitignore", "*.log\nbuild/\n")
	repo.Commit("ignore")
	b := created(t, repo)
	b.plan().Sh(`echo x >x.log; mkdir -p build/o empty/deep; echo o >build/o/f; echo 1 >f; chmod 640 f; git init -q n; (cd n; echo 1 >f; git add f; git commit -qm 1)
		mkdir .GIT; echo x >.GIT/x; mkfifo pipe`)
	s := b.seal()
	got := reasons(s.LeftOut)
	for path, want := range map[string]string{
		"x.log": "ignored", "build": "ignored", "empty": "empty directory", "empty/deep": "empty directory",
		"f": "permission bits", "n": "embedded repository", ".GIT/x": "does not take", "pipe": "neither",
	} {
		if !strings.Contains(got[path], want) {
			t.Errorf("left out %s: %q, want %q", path, got[path], want)
		}
		delete(got, path)
	}
	if len(got) > 0 {
		t.Errorf("also left out: %v", got)
	}
	if files := repo.Git("diff", "--name-only", "main", s.Ref); files != "f" {
		t.Errorf("result holds %q, want f alone", files)
	}
}

func TestSealRefusesUnexplainedGitlinks(t *testing.T) {
	repo := oracle.NewRepo(t)
	before := oracle.Digest(t, repo.Dir, oracle.Placeholder()...)
	b := created(t, repo)
	b.plan().Sh(`git init -q n; (cd n; echo 1 >f; git add f; git commit -qm 1); git add n 2>/dev/null`)
	_, err := b.strategy.Seal(t.Context(), b.ws, sandbox.SealRequest{})
	if !errors.Is(err, agents.ErrBlocked) {
		t.Fatalf("seal: %v, want blocked", err)
	}
	mustContain(t, err, "n is an embedded repository")
	if hint := agents.HintOf(err); !strings.Contains(hint, "git rm --cached") {
		t.Errorf("hint %q", hint)
	}
	oracle.Same(t, "refused seal", repo.Dir, skipLines(before, []string{".git/worktrees"}), append(oracle.Placeholder(), ".git/worktrees")...)
	b.plan().Sh("rm -rf n/.git; git rm -qf --cached n")
	b.seal()
	if got := repo.Git("show", b.ws.Metadata["branch"]+":n/f"); got != "1" {
		t.Errorf("n/f = %q", got)
	}
}

func TestSealWithSubmodule(t *testing.T) {
	sub, repo := oracle.NewRepo(t), oracle.NewRepo(t)
	b := created(t, repo)
	b.plan().Git("submodule", "--quiet", "add", sub.Dir, "sub")
	s := b.seal()
	if got := repo.Git("ls-tree", s.Ref, "sub"); !strings.HasPrefix(got, "160000 commit "+sub.Git("rev-parse", "HEAD")) {
		t.Errorf("ls-tree: %q", got)
	}
	if r := reasons(s.LeftOut); !strings.Contains(r["sub"], "push them") {
		t.Errorf("left out %v, want the submodule's commits named", s.LeftOut)
	}
}

func TestSealRefusesUnresolvedConflicts(t *testing.T) {
	repo := oracle.NewRepo(t)
	b := created(t, repo)
	b.plan().Sh("git checkout -q -b x; echo x >a.txt; git commit -qam x; git checkout -q -; echo y >a.txt; git commit -qam y; git merge x || true")
	_, err := b.strategy.Seal(t.Context(), b.ws, sandbox.SealRequest{})
	if !errors.Is(err, agents.ErrBlocked) {
		t.Fatalf("seal: %v, want blocked", err)
	}
	b.plan().Write("a.txt", "resolved\n")
	b.seal()
}

func TestSealRefusesAMovedBranch(t *testing.T) {
	repo := oracle.NewRepo(t)
	b := created(t, repo)
	b.plan().Write("f", "1\n")
	mine := repo.Git("commit-tree", "-p", "HEAD", "-m", "user's", "HEAD^{tree}")
	repo.Git("update-ref", "refs/heads/"+b.ws.Metadata["branch"], mine)
	_, err := b.strategy.Seal(t.Context(), b.ws, sandbox.SealRequest{})
	if !errors.Is(err, agents.ErrConflict) {
		t.Fatalf("seal: %v, want conflict", err)
	}
	b.remove()
	if got := repo.Git("rev-parse", b.ws.Metadata["branch"]); got != mine {
		t.Errorf("the user's commit on our branch was dropped: %s", got)
	}
}

func TestB038B039HooksSigningIdentity(t *testing.T) {
	repo := kinds()["no identity, signing, hooks"](t)
	b := created(t, repo)
	b.plan().Sh("echo 1 >f; git add f; unset GIT_AUTHOR_NAME GIT_AUTHOR_EMAIL GIT_COMMITTER_NAME GIT_COMMITTER_EMAIL; git commit -qm own; echo 2 >g")
	s := b.seal()
	if got := repo.Git("log", "-2", "--format=%an <%ae> %G?", s.Ref); got != "agents <agents@localhost> N\nagents <agents@localhost> N" {
		t.Errorf("commits %q", got)
	}
	if ran, _ := filepath.Glob("/tmp/agents-hook-ran-*"); len(ran) > 0 {
		t.Errorf("hooks ran: %v", ran)
	}
}

func TestB103PlantedProgramsNeverRun(t *testing.T) {
	repo := oracle.NewRepo(t)
	before := userDigest(t, repo.Dir)
	pwn := filepath.Join(t.TempDir(), "PWN")
	b := created(t, repo)
	plan := b.plan()
	plan.Sh(`common=$(git rev-parse --git-common-dir)
		cat >pwn.sh <<-E
			#!/bin/sh
			touch ` + pwn + `
			cat
		E
		chmod +x pwn.sh; P=$PWD/pwn.sh
		echo 1 >f; git add f; git commit -qm own
		for h in pre-commit post-checkout post-index-change reference-transaction post-merge post-rewrite pre-push fsmonitor-watchman; do cp pwn.sh $common/hooks/$h; done
		git config filter.z.clean $P; git config filter.z.smudge $P; git config filter.z.process $P
		git config diff.z.textconv $P; git config diff.z.command $P; git config diff.external $P; git config merge.z.driver $P
		git config core.sshCommand $P; git config credential.helper $P; git config core.pager $P; git config core.editor $P
		git config gpg.program $P; git config commit.gpgsign true; git config alias.add "!$P"; git config core.alternateRefsCommand $P
		git config core.hooksPath $PWD/hooks; mkdir hooks; cp pwn.sh hooks/post-index-change
		git config remote.origin.url "ext::sh -c $P"; git config remote.origin.promisor true; git config remote.origin.uploadpack $P
		git config protocol.ext.allow always; git config uploadpack.packObjectsHook $P
		printf '[core]\n\tfsmonitor = %s\n' $P >evil; git config include.path $PWD/evil
		printf '* filter=z diff=z merge=z\n' >.gitattributes
		echo x >later; rm -f ` + pwn + `
		git config core.fsmonitor $P; git config core.worktree /`)
	b.capture()
	var patch bytes.Buffer
	b.diff(sandbox.DiffRequest{Counts: true, Patch: &patch})
	b.prepare()
	b.seal()
	cp := b.capture()
	plan.Write("more", "x")
	b.diff(sandbox.DiffRequest{From: cp.Ref, Counts: true, Patch: &patch})
	b.restore(cp.Ref)
	if _, err := b.strategy.Unapplied(t.Context(), b.ws); err != nil {
		t.Error(err)
	}
	b.remove()
	repo.Git("status")
	if _, err := os.Stat(pwn); err == nil {
		t.Error("a program that the plan planted ran")
	}
	skip := append(oracle.Placeholder(), ".git/objects", ".git/worktrees")
	oracle.Same(t, "the plan", repo.Dir, skipLines(before, []string{".git/objects"}), skip...)
}

func TestB044SparseNeverDeletes(t *testing.T) {
	for _, kind := range []string{"sparse", "sparse linked", "sparse index"} {
		t.Run(kind, func(t *testing.T) {
			repo := kinds()[kind](t)
			b := created(t, repo)
			if _, err := os.Lstat(filepath.Join(b.ws.Path, "q")); err == nil {
				t.Error("q is checked out in the sandbox of a sparse tree")
			}
			b.plan().Sh("echo 2 >>p/x; mkdir -p q/new; echo n >q/new/f")
			s := b.seal()
			if got := repo.Git("diff", "--name-status", b.ws.Metadata["base_commit"], s.Ref); got != "M\tp/x\nA\tq/new/f" {
				t.Errorf("result %q", got)
			}
		})
	}
	t.Run("the plan makes it sparse", func(t *testing.T) {
		repo := oracle.NewRepo(t)
		repo.Write("q/y", "y\n")
		repo.Write("p/x", "x\n")
		repo.Commit("dirs")
		b := created(t, repo)
		b.plan().Sh("git sparse-checkout set p; echo 2 >>p/x")
		s := b.seal()
		if got := repo.Git("diff", "--name-status", "main", s.Ref); got != "M\tp/x" {
			t.Errorf("result %q", got)
		}
	})
}

func TestSealThroughFilters(t *testing.T) {
	repo := kinds()["filter"](t)
	b := created(t, repo)
	if got := b.plan().Read("x.up"); got != "SHOUT\n" {
		t.Fatalf("smudged x.up = %q", got)
	}
	b.plan().Write("x.up", "LOUDER\n")
	s := b.seal()
	if got := repo.Git("show", s.Ref+":x.up"); got != "louder" {
		t.Errorf("stored x.up = %q, want it cleaned", got)
	}
	if got := repo.Git("diff", "--name-only", "main", s.Ref); got != "x.up" {
		t.Errorf("result %q", got)
	}
}

func TestLFS(t *testing.T) {
	repo := oracle.NewRepo(t)
	if out, err := repo.Try("lfs", "version"); err != nil {
		t.Skipf("git-lfs: %s", out)
	}
	repo.Sh("git lfs install --local --skip-repo >/dev/null; git lfs track '*.bin' >/dev/null; echo big1 >x.bin; git add -A; git commit -qm lfs")
	before := oracle.Digest(t, repo.Dir, withoutObjects()...)
	b := created(t, repo)
	if got := b.plan().Read("x.bin"); got != "big1\n" {
		t.Fatalf("x.bin = %q, want the content", got)
	}
	b.plan().Sh("echo big2 >y.bin; echo plain >f; git add y.bin; git commit -qm lfs; for f in $(find $(git rev-parse --git-common-dir)/lfs -type f); do chmod u+w $f; echo scribble >>$f; done")
	s := b.seal()
	if got := repo.Git("show", s.Ref+":y.bin"); !strings.HasPrefix(got, "version https://git-lfs") {
		t.Errorf("y.bin stored as %q, want a pointer", got)
	}
	oracle.Same(t, "seal", repo.Dir, before, withoutObjects()...)

	repo.Sh("echo uncommitted >new.bin; echo changed >x.bin")
	before = oracle.Digest(t, repo.Dir, withoutObjects()...)
	dirty := newBench(t, repo)
	dirty.req.PlanID += "2"
	dirty.req.IncludeUncommitted = true
	dirty.create()
	if got := dirty.plan().Read("new.bin") + dirty.plan().Read("x.bin"); got != "uncommitted\nchanged\n" {
		t.Errorf("uncommitted big files: %q", got)
	}
	oracle.Same(t, "taking over uncommitted files", repo.Dir, before, withoutObjects()...)
}

func TestU119DiffEqualsGit(t *testing.T) {
	repo := oracle.NewRepo(t)
	long := strings.Repeat("line\n", 40)
	repo.Write("moved.txt", "head\n"+long)
	repo.Write("mode", "m\n")
	repo.Write("bin", "\x00\x01\x02")
	repo.Write("to-link", "text\n")
	repo.Commit("more")
	b := created(t, repo)
	base := b.capture()
	plan := b.plan()
	plan.Sh(`git mv moved.txt renamed.txt; echo tail >>renamed.txt; chmod +x mode; printf '\0\3' >bin; rm to-link; ln -s a.txt to-link
		echo v2 >>a.txt; printf 'x\ny' >"odd
name"; echo q >'q"uote'`)
	var patch bytes.Buffer
	got := b.diff(sandbox.DiffRequest{Counts: true, Patch: &patch})
	want := []agents.FileChange{
		{Resource: "repo", Path: "a.txt", Change: agents.ChangeModified, Insertions: 1},
		{Resource: "repo", Path: "bin", Change: agents.ChangeModified, Binary: true},
		{Resource: "repo", Path: "mode", Change: agents.ChangeMode},
		{Resource: "repo", Path: "odd\nname", Change: agents.ChangeAdded, Insertions: 2},
		{Resource: "repo", Path: "q\"uote", Change: agents.ChangeAdded, Insertions: 1},
		{Resource: "repo", Path: "renamed.txt", OldPath: "moved.txt", Change: agents.ChangeRenamed, Insertions: 1},
		{Resource: "repo", Path: "to-link", Change: agents.ChangeModified, Insertions: 1, Deletions: 1},
	}
	compare(t, "base and present", got, want)
	plan.Git("add", "-A")
	theirs := plan.Git("diff", "--cached", "--binary", "--full-index", "-M", "HEAD")
	if strings.TrimSuffix(patch.String(), "\n") != theirs {
		t.Errorf("patch differs from git's:\n%s\nwant\n%s", patch.String(), theirs)
	}
	cp := b.capture()
	compare(t, "two states", b.diff(sandbox.DiffRequest{From: base.Ref, To: cp.Ref, Counts: true}), want)
	plan.Write("a.txt", "v3\n")
	compare(t, "a state and the present", b.diff(sandbox.DiffRequest{From: cp.Ref}),
		[]agents.FileChange{{Resource: "repo", Path: "a.txt", Change: agents.ChangeModified}})
	entries, _ := os.ReadDir(filepath.Join(b.ws.PrivateDir, "trusted", "quarantine"))
	if len(entries) > 0 {
		t.Error("the quarantine was left behind")
	}
}

func compare(t *testing.T, what string, got, want []agents.FileChange) {
	t.Helper()
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			t.Errorf("%s: missing %+v", what, want[i])
		case i >= len(want):
			t.Errorf("%s: also %+v", what, got[i])
		case got[i] != want[i]:
			t.Errorf("%s: got %+v, want %+v", what, got[i], want[i])
		}
	}
}

// The user deletes the plan's branch and has git remove what nothing names any
// more: the next seal brings the result home again, and a call can still run.
func TestSealAfterBranchAndCommitsArePruned(t *testing.T) {
	for name, next := range map[string]func(b *bench){
		"seal":    func(*bench) {},
		"prepare": func(b *bench) { b.prepare() },
	} {
		t.Run(name, func(t *testing.T) {
			repo := oracle.NewRepo(t)
			b := created(t, repo)
			b.plan().Sh("echo 2 >a.txt")
			first := b.seal()
			repo.Sh("rm -r .git/worktrees; git update-ref -d refs/heads/" + b.ws.Metadata["branch"] + "; git reflog expire --expire=now --all; git gc -q --prune=now")
			if out, err := exec.Command("git", "-C", repo.Dir, "cat-file", "-e", first.Ref).CombinedOutput(); err == nil {
				t.Fatalf("the commit is still there: %s", out)
			}
			next(b)
			again := b.seal()
			if got := repo.Git("show", again.Ref+":a.txt"); got != "2" {
				t.Errorf("the result holds %q", got)
			}
			if got := repo.Git("rev-parse", b.ws.Metadata["branch"]); got != again.Ref {
				t.Errorf("the branch is at %s, want %s", got, again.Ref)
			}
		})
	}
}

// A tracked directory that became a symbolic link, without git knowing.
func TestSealDirectoryReplacedByLink(t *testing.T) {
	for name, target := range map[string]string{"to a file": "a.txt", "to a directory with the same names": "e", "to nothing": "nowhere"} {
		t.Run(name, func(t *testing.T) {
			repo := oracle.NewRepo(t)
			repo.Sh("mkdir d e; echo d >d/d; echo d >e/d; echo x >d/x; git add -A; git commit -qm dirs")
			b := created(t, repo)
			b.plan().Sh("rm -r d; ln -s " + target + " d")
			s := b.seal()
			if got := repo.Git("ls-tree", "-r", "--name-only", s.Ref); got != "a.txt\nd\ne/d" {
				t.Errorf("the result holds %q", got)
			}
			if got := repo.Git("cat-file", "blob", s.Ref+":d"); got != target {
				t.Errorf("d is a link to %q", got)
			}
		})
	}
}

// Where the user's git removed the commit that the plan started from, the
// files can still be archived.
func TestArchiveWithoutItsBase(t *testing.T) {
	repo := oracle.NewRepo(t)
	repo.Write("a.txt", "two\n")
	repo.Commit("two")
	b := created(t, repo)
	b.plan().Sh("echo work >w")
	repo.Sh("git reset -q --hard HEAD~1; rm -r .git/worktrees; git update-ref -d refs/heads/" + b.ws.Metadata["branch"] +
		"; git reflog expire --expire=now --all; git gc -q --prune=now")
	if work, err := b.strategy.Unapplied(t.Context(), b.ws); err != nil || !work {
		t.Errorf("unapplied: %v, %v", work, err)
	}
	dir := t.TempDir()
	if err := b.strategy.Archive(t.Context(), b.ws, dir); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(dir, "files", "w")); string(got) != "work\n" {
		t.Errorf("the archive has %q, %v", got, err)
	}
	b.remove()
}
