package gitworktree_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/oracle"
	"github.com/cleveragents/agents/sandbox"
)

func (b *bench) update() (agents.ResourceResult, error) {
	b.t.Helper()
	res, ws, err := b.strategy.Update(b.t.Context(), b.ws, time.Unix(1700000002, 0))
	if err == nil {
		b.ws = ws
	}
	return res, err
}

func updatable(t *testing.T) *oracle.Repo {
	repo := oracle.NewRepo(t)
	repo.Write("f", "1\n2\n3\n4\n5\n6\n7\n8\n9\n")
	repo.Write("gone", "g\n")
	repo.Write("d/x", "x\n")
	repo.Write("file", "f\n")
	repo.Write(".gitignore", "ign\n")
	repo.Commit("more")
	return repo
}

func TestUpdateBringsTheRealSideIn(t *testing.T) {
	for _, c := range []struct{ name, script, parents string }{
		{"uncommitted", "sed -i 's/^9$/nine/' f; echo new >new; echo st >staged; git add staged", "base"},
		{"own commits", "sed -i 's/^9$/nine/' f; git commit -qam own; echo new >new; echo st >staged; git add staged", "merge"},
		{"detached", "git checkout -q --detach; sed -i 's/^9$/nine/' f; git commit -qam own; echo new >new; echo st >staged; git add staged", "merge"},
	} {
		t.Run(c.name, func(t *testing.T) {
			repo := updatable(t)
			b := created(t, repo)
			b.capture()
			plan := b.plan()
			plan.Sh(c.script)
			cp, before := b.capture(), b.whole()
			repo.Sh("sed -i 's/^1$/one/' f; git rm -q gone; git mv d/x d2; git rm -q file; mkdir file; echo in >file/in; echo u >u; chmod +x a.txt; git add -A; git commit -qm user")
			user := userDigest(t, repo.Dir)
			tip := repo.Git("rev-parse", "HEAD")
			res, err := b.update()
			if err != nil || res.State != agents.ApplyApplied || res.CommitRef != tip {
				t.Fatalf("update: %+v, %v", res, err)
			}
			for name, want := range map[string]string{"f": "one\n2\n3\n4\n5\n6\n7\n8\nnine\n", "new": "new\n", "staged": "st\n", "u": "u\n", "file/in": "in\n", "d2": "x\n"} {
				if got := plan.Read(name); got != want {
					t.Errorf("%s = %q, want %q", name, got, want)
				}
			}
			for _, name := range []string{"gone", "d"} {
				if _, err := os.Lstat(filepath.Join(b.ws.Path, name)); err == nil {
					t.Errorf("%s is still there", name)
				}
			}
			if got := b.ws.Metadata["base_commit"]; got != tip {
				t.Errorf("base %s, want %s", got, tip)
			}
			want := "A  staged\n?? new"
			if c.parents == "base" {
				want = "M f\nA  staged\n?? new"
			}
			if got := plan.Git("status", "--porcelain"); strings.TrimSpace(got) != want {
				t.Errorf("status %q, want %q", got, want)
			}
			s := b.seal()
			if got := repo.Git("diff", "--name-only", tip, s.Ref); got != "f\nnew\nstaged" {
				t.Errorf("result against the new base: %q", got)
			}
			repo.Sh("git gc -q --prune=now; git fsck")
			plan.Git("fsck")

			b.restore(cp.Ref)
			if d := oracle.Diff(before, b.whole()); d != "" {
				t.Errorf("rollback to before the update:\n%s", d)
			}
			old := b.seal()
			if got := repo.Git("diff", "--name-only", cp2base(b, old.Ref), old.Ref); !strings.Contains(got, "new") || strings.Contains(got, "u\n") {
				t.Errorf("result after the rollback: %q", got)
			}
			if c.name == "uncommitted" {
				oracle.Same(t, "update and seal", filepath.Join(repo.Dir, ".git", "refs", "heads"), oracle.Digest(t, filepath.Join(repo.Dir, ".git", "refs", "heads"), "cleveragents"), "cleveragents")
			}
			_ = user
		})
	}
}

// cp2base is the parent of a sealed commit.
func cp2base(b *bench, ref string) string { return b.repo.Git("rev-parse", ref+"^") }

func TestUpdateUnchangedAndConflicts(t *testing.T) {
	repo := updatable(t)
	b := created(t, repo)
	if res, err := b.update(); err != nil || res.State != agents.ApplyUnchanged {
		t.Fatalf("nothing new: %+v, %v", res, err)
	}
	b.plan().Sh("sed -i 's/^5$/plan/' f; echo plan >u; echo precious >ign")
	repo.Sh("sed -i 's/^5$/user/' f; echo user >u; git add -A; git commit -qm user; printf '' >.gitignore; echo now >ign; git add -A; git commit -qm tracked")
	user, sand, record := oracle.Digest(t, repo.Dir), b.whole(), b.ws.Metadata
	res, err := b.update()
	if !errors.Is(err, agents.ErrConflict) || res.State != agents.ApplyConflict {
		t.Fatalf("conflict: %+v, %v", res, err)
	}
	var paths []string
	for _, c := range res.Conflicts {
		paths = append(paths, c.Path)
	}
	if got := strings.Join(paths, " "); got != "f u ign" {
		t.Errorf("conflicts %q, want f, u and ign", got)
	}
	oracle.Same(t, "refused update", repo.Dir, user)
	if d := oracle.Diff(sand, b.whole()); d != "" {
		t.Errorf("refused update changed the sandbox:\n%s", d)
	}
	if b.ws.Metadata["base_commit"] != record["base_commit"] {
		t.Error("base moved")
	}
}

func TestUpdateOfUncommitted(t *testing.T) {
	repo := updatable(t)
	repo.Sh("sed -i 's/^1$/one/' f; echo u >u")
	b := newBench(t, repo)
	b.req.IncludeUncommitted = true
	b.create()
	b.plan().Sh("sed -i 's/^9$/nine/' f; echo p >p")
	repo.Sh("git add f; git commit -qm 'part of it'")
	if _, err := b.update(); err != nil {
		t.Fatal(err)
	}
	if d := b.diff(sandbox.DiffRequest{}); len(d) != 2 {
		t.Errorf("diff %v, want f and p", d)
	}
	s := b.seal()
	if got := repo.Git("diff", "--name-only", "main", s.Ref); got != "f\np" {
		t.Errorf("result %q, want f and p alone", got)
	}
}

func TestExport(t *testing.T) {
	repo := oracle.NewRepo(t)
	b := created(t, repo)
	b.plan().Sh("echo v2 >a.txt; printf '\\0\\1' >bin; git mv a.txt b.txt")
	s := b.seal()
	if err := b.strategy.ExportBranch(t.Context(), b.ws, s.Ref, "mine/x"); err != nil {
		t.Fatal(err)
	}
	if got := repo.Git("rev-parse", "mine/x"); got != s.Ref {
		t.Errorf("mine/x at %s, want %s", got, s.Ref)
	}
	for name, class := range map[string]error{"mine/x": agents.ErrExists, "-x": agents.ErrInvalid, "a..b": agents.ErrInvalid, "": agents.ErrInvalid,
		"cleveragents/plan-y": agents.ErrInvalid, "main": agents.ErrExists} {
		if err := b.strategy.ExportBranch(t.Context(), b.ws, s.Ref, name); !errors.Is(err, class) {
			t.Errorf("export to %q: %v, want %v", name, err, class)
		}
	}
	if err := b.strategy.ExportBranch(t.Context(), b.ws, "--help", "other"); !errors.Is(err, agents.ErrInvalid) {
		t.Errorf("export of an option: %v", err)
	}
	var patch bytes.Buffer
	if err := b.strategy.ExportPatch(t.Context(), b.ws, s.Ref, &patch); err != nil {
		t.Fatal(err)
	}
	repo.Write("../p.patch", patch.String())
	repo.Git("apply", "--index", "../p.patch")
	if got, want := repo.Git("write-tree"), repo.Git("rev-parse", s.Ref+"^{tree}"); got != want {
		t.Errorf("the patch gives tree %s, want %s", got, want)
	}
}

func TestB108ArchiveBringsEverythingBack(t *testing.T) {
	for _, kind := range []string{"plain", "sha256", "sparse", "partial", "filter", "shallow", "bare"} {
		t.Run(kind, func(t *testing.T) {
			repo := kinds()[kind](t)
			b := created(t, repo)
			if got, err := b.strategy.Unapplied(t.Context(), b.ws); err != nil || got {
				t.Errorf("untouched: unapplied %v, %v", got, err)
			}
			b.plan().Sh(messUp)
			if got, err := b.strategy.Unapplied(t.Context(), b.ws); err != nil || !got {
				t.Errorf("worked in: unapplied %v, %v", got, err)
			}
			b.seal()
			files := oracle.Digest(t, b.ws.Path, ".git")
			refs := b.plan().Git("for-each-ref") + b.plan().Git("stash", "list") + b.plan().Git("status", "--porcelain=v2", "--branch")
			sealed := b.plan().Git("rev-parse", "HEAD^{tree}")
			dir := filepath.Join(t.TempDir(), "archive")
			for range 2 {
				if err := b.strategy.Archive(t.Context(), b.ws, dir); err != nil {
					t.Fatal(err)
				}
			}
			b.remove()
			repo.Sh("git gc -q --prune=now")
			if _, err := os.Stat(filepath.Join(dir, "result.patch")); err != nil {
				t.Error(err)
			}
			heads := repo.Git("bundle", "list-heads", filepath.Join(dir, "result.bundle"))
			if !strings.Contains(heads, "refs/stash") || !strings.Contains(heads, "refs/heads/other") {
				t.Errorf("bundle holds %q", heads)
			}
			repo.Git("bundle", "verify", "-q", filepath.Join(dir, "result.bundle"))

			ws, err := b.strategy.Unarchive(t.Context(), b.req, dir)
			if err != nil {
				t.Fatal(err)
			}
			b.ws = ws
			if d := oracle.Diff(files, oracle.Digest(t, ws.Path, ".git")); d != "" {
				t.Errorf("files:\n%s", d)
			}
			again := b.plan().Git("for-each-ref") + b.plan().Git("stash", "list") + b.plan().Git("status", "--porcelain=v2", "--branch")
			if again != refs || b.plan().Git("rev-parse", "HEAD^{tree}") != sealed {
				t.Errorf("git state %q, want %q", again, refs)
			}
			b.plan().Git("fsck")
			b.capture()
			b.seal()
			b.remove()
			nothingLeft(t, b)
		})
	}
}

func TestUnappliedAfterMerge(t *testing.T) {
	repo := oracle.NewRepo(t)
	b := created(t, repo)
	b.plan().Sh("echo v2 >a.txt")
	s := b.seal()
	if got, err := b.strategy.Unapplied(t.Context(), b.ws); !got {
		t.Errorf("sealed, not merged: unapplied %v, %v", got, err)
	}
	repo.Git("merge", "-q", "--no-ff", "--no-edit", s.Ref)
	if got, err := b.strategy.Unapplied(t.Context(), b.ws); got || err != nil {
		t.Errorf("merged: unapplied %v, %v", got, err)
	}
	b.plan().Sh("echo v3 >a.txt")
	if got, _ := b.strategy.Unapplied(t.Context(), b.ws); !got {
		t.Error("changed after the merge: want unapplied")
	}
}
