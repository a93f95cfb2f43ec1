package gitworktree_test

import (
	"path/filepath"
	"testing"

	"github.com/cleveragents/agents/internal/oracle"
)

// ordinary is ordinary git work: each script runs in a fresh sandbox of a
// repository with history, a remote, a stash, tags and a submodule to add.
func ordinary() []struct{ name, script string } {
	return []struct{ name, script string }{
		{"add", "echo 1 >n; git add n"},
		{"commit", "echo 1 >n; git add n; git commit -qm n"},
		{"commit -a", "echo 1 >a.txt; git commit -qam a"},
		{"amend", "echo 1 >n; git add n; git commit -q --amend -m amended"},
		{"fixup and autosquash", "echo 1 >n; git add n; git commit -qm n; echo 2 >n; git commit -qa --fixup=HEAD; GIT_SEQUENCE_EDITOR=true git rebase -q -i --autosquash HEAD~2"},
		{"rebase", "git checkout -q -b r HEAD~1; echo r >r; git add r; git commit -qm r; git rebase -q main"},
		{"rebase --onto", "echo 1 >n; git add n; git commit -qm n; git rebase -q --onto HEAD~2 HEAD~1"},
		{"rebase conflict and abort", "git checkout -q -b r HEAD~1; echo r >a.txt; git commit -qam r; ! git rebase -q main 2>/dev/null; git rebase --abort"},
		{"stash", "echo 1 >a.txt; git stash -q; git stash pop -q"},
		{"stash -u and drop", "echo 1 >n; git stash -q -u; git stash drop -q"},
		{"stash clear", "echo 1 >a.txt; git stash -q; git stash clear"},
		{"branch", "git branch foo; git branch -m foo bar; git branch -D bar"},
		{"delete the user's branch", "git branch -D main"},
		{"move the user's branch", "git branch -f main HEAD~1; git update-ref refs/heads/side HEAD"},
		{"checkout -b", "git checkout -q -b foo; git checkout -q -"},
		{"switch to the user's branch and commit", "git checkout -q main; echo 1 >n; git add n; git commit -qm 'on main'"},
		{"orphan", "git checkout -q --orphan o; git rm -rq --cached .; git commit -q --allow-empty -m o"},
		{"detach", "git checkout -q --detach HEAD~1; echo 1 >n; git add n; git commit -qm n"},
		{"tag", "git tag t; git tag -a -m x t2; git tag -d v1"},
		{"merge", "git checkout -q -b m HEAD~1; echo m >m; git add m; git commit -qm m; git merge -q -m merged main"},
		{"merge conflict and abort", "git checkout -q -b m HEAD~1; echo m >a.txt; git commit -qam m; ! git merge -q main >/dev/null; git merge --abort"},
		{"cherry-pick", "git cherry-pick side"},
		{"revert", "git revert --no-edit HEAD"},
		{"reset --hard", "git reset -q --hard HEAD~1"},
		{"reset --soft", "git reset -q --soft HEAD~1; git reset -q ORIG_HEAD"},
		{"bisect", "git bisect start HEAD HEAD~1 >/dev/null; git bisect reset >/dev/null 2>&1"},
		{"notes", "git notes add -m note; git notes show >/dev/null; git notes remove 2>/dev/null"},
		{"replace", "git replace HEAD HEAD~1; git replace -d HEAD"},
		{"config", "git config user.name Other; git config core.autocrlf true; git config --unset-all user.name; git config extensions.worktreeConfig true; git config --worktree x.y z"},
		{"remote", "git remote add r2 /nowhere; git remote set-url origin /elsewhere; git remote rename origin up; git remote remove up"},
		{"fetch", "git fetch -q origin; git fetch -q --prune --tags origin"},
		{"pull", "git checkout -q main; git pull -q --no-rebase origin main"},
		{"push", "echo 1 >n; git add n; git commit -qm n; git push -q origin HEAD:refs/heads/pushed"},
		{"gc", "git gc -q --prune=now"},
		{"gc --aggressive and prune", "git gc -q --aggressive; git prune --expire=now"},
		{"pack-refs", "git pack-refs --all --prune"},
		{"repack", "git repack -q -a -d -l"},
		{"fsck", "git fsck --full"},
		{"reflog expire", "git reflog expire --expire=now --all; git reflog delete HEAD@{0} 2>/dev/null || true"},
		{"worktree add and remove", "git worktree add -q ../extra -b extra; git worktree remove ../extra; git worktree prune"},
		{"sparse checkout", "git sparse-checkout set d; git sparse-checkout disable"},
		{"split index", "git update-index --split-index; echo 1 >n; git add n; git update-index --no-split-index"},
		{"untracked cache and flags", "git update-index --untracked-cache; git update-index --assume-unchanged a.txt; git update-index --skip-worktree d/f; git status >/dev/null"},
		{"format-patch and am", "git format-patch -q -1 -o ../patches; git reset -q --hard HEAD~1; git am -q ../patches/*.patch; rm -r ../patches"},
		{"apply", "git diff HEAD~1 HEAD >../p; git reset -q --hard HEAD~1; git apply --index ../p; rm ../p"},
		{"submodule", "git submodule --quiet add $SUB sub; git commit -qm sub; git submodule --quiet update --init; git submodule --quiet deinit -f sub"},
		{"clean", "echo 1 >n; mkdir x; echo 1 >x/y; git clean -qffdx"},
		{"rm and mv", "git rm -q d/f; git mv a.txt b.txt; git commit -qm moved"},
		{"grep, log, blame, describe", "git grep -q v; git log --all --oneline >/dev/null; git blame a.txt >/dev/null; git describe --tags >/dev/null; git shortlog HEAD >/dev/null"},
		{"archive and bundle", "git archive -o ../a.tar HEAD; git bundle create -q ../b.bundle --all; rm ../a.tar ../b.bundle"},
		{"update-ref and symbolic-ref", "git update-ref refs/x/y HEAD; git symbolic-ref refs/x/z refs/heads/main; git update-ref -d refs/x/y"},
		{"filter-branch", "FILTER_BRANCH_SQUELCH_WARNING=1 git filter-branch -f --msg-filter cat HEAD~1..HEAD >/dev/null"},
		{"hooks", "h=$(git rev-parse --git-path hooks); mkdir -p $h; printf '#!/bin/sh\\nexit 0\\n' >$h/pre-commit; chmod +x $h/pre-commit; git commit -q --allow-empty -m hooked"},
		{"maintenance", "echo 1 >n; git add n; git commit -qm n; git maintenance run --task=gc --task=commit-graph --quiet; git commit-graph write --reachable 2>/dev/null; git multi-pack-index write"},
		{"rerere", "git config rerere.enabled true; git checkout -q -b m HEAD~1; echo m >a.txt; git commit -qam m; ! git merge -q main >/dev/null 2>&1; git merge --abort"},
	}
}

func TestOrdinaryGitWorkLeavesTheUserAlone(t *testing.T) {
	sub := oracle.NewRepo(t)
	origin := oracle.NewRepo(t)
	origin.Write("d/f", "f\n")
	origin.Commit("second")
	repo := oracle.At(t, filepath.Join(t.TempDir(), "repo"))
	origin.Git("clone", "-q", origin.Dir, repo.Dir)
	repo.Sh(`git branch side; git tag -a -m v1 v1; echo v2 >a.txt; git commit -qam third
		git checkout -q side; echo s >s; git add s; git commit -qm side; git checkout -q main
		echo stash >a.txt; git stash -q; echo staged >staged; git add staged; echo ignored >x.o; echo '*.o' >>.git/info/exclude; git pack-refs --all; git repack -q`)
	before := oracle.Digest(t, repo.Dir)
	for _, c := range ordinary() {
		t.Run(c.name, func(t *testing.T) {
			b := created(t, repo)
			plan := b.plan()
			plan.Sh("export SUB=" + sub.Dir + "; " + c.script)
			oracle.Same(t, c.name, repo.Dir, before, append(oracle.Placeholder(), ".git/worktrees")...)
			b.prepare()
			plan.Write("after", "works\n")
			plan.Git("status")
			b.remove()
			oracle.Same(t, c.name+" and removal", repo.Dir, before)
		})
	}
}
