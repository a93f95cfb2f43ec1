package gitworktree_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/oracle"
)

// ofBench is the apply of a real sandbox.
func ofBench(t *testing.T, b *bench, ref string) *plan {
	t.Helper()
	return &plan{t: t, s: b.strategy, r: b.repo, ws: b.ws, ref: ref, journal: t.TempDir()}
}

func TestApplyOfARealSandbox(t *testing.T) {
	repo := oracle.NewRepo(t)
	b := created(t, repo)
	b.plan().Sh("echo v2 >a.txt; mkdir d; echo n >d/n; git add d; git commit -qm own; echo more >>d/n")
	p := ofBench(t, b, b.seal().Ref)
	before := state(t, repo)
	res, err := p.apply()
	if err != nil || res.State != agents.ApplyApplied {
		t.Fatalf("apply: %+v, %v", res, err)
	}
	if got := repo.Read("d/n") + repo.Read("a.txt"); got != "n\nmore\nv2\n" {
		t.Errorf("files are %q", got)
	}
	if err := p.s.Undo(context.Background(), p.ws, p.journal); err != nil {
		t.Fatal(err)
	}
	same(t, "undo", before, state(t, repo))
	p.journal = t.TempDir()
	if res, err = p.apply(); err != nil {
		t.Fatal(err)
	}
	b.remove()
	if out := repo.Git("worktree", "list", "--porcelain") + repo.Git("branch"); strings.Contains(out, "cleveragents") {
		t.Errorf("left after removal: %s", out)
	}
	// The sandbox is gone; the apply can still be taken back.
	if err := p.s.Undo(context.Background(), p.ws, p.journal); err != nil {
		t.Fatalf("undo after removal: %v", err)
	}
	if got := repo.Read("a.txt"); got != "v1\n" {
		t.Errorf("a.txt is %q", got)
	}
}

func TestApplyBringsLFSFilesHome(t *testing.T) {
	repo := oracle.NewRepo(t)
	if out, err := repo.Try("lfs", "version"); err != nil {
		t.Skipf("git-lfs: %s", out)
	}
	repo.Sh("git lfs install --local --skip-repo >/dev/null; git lfs track '*.bin' >/dev/null; echo big1 >x.bin; git add -A; git commit -qm lfs")
	b := created(t, repo)
	b.plan().Sh("echo big2 >y.bin; git add y.bin; git commit -qm lfs; echo big3 >y.bin; echo big4 >x.bin")
	p := ofBench(t, b, b.seal().Ref)
	if res, err := p.apply(); err != nil {
		t.Fatalf("apply: %+v, %v", res, err)
	}
	if got := repo.Read("x.bin") + repo.Read("y.bin"); got != "big4\nbig3\n" {
		t.Errorf("files are %q", got)
	}
	b.remove()
	if got := repo.Git("status", "--porcelain"); got != "" {
		t.Errorf("status %q", got)
	}
	repo.Sh("git lfs fsck >/dev/null")
	if err := p.s.Undo(context.Background(), p.ws, p.journal); err != nil {
		t.Fatal(err)
	}
	if got := repo.Read("x.bin"); got != "big1\n" {
		t.Errorf("x.bin is %q after undo", got)
	}
}

// Applies of several plans at once end one after the other, none is lost.
func TestApplyAtOnce(t *testing.T) {
	r := small(t)
	var plans []*plan
	for i := range 4 {
		r.Git("checkout", "-q", "main")
		p := newPlan(t, r, "main", func(w *oracle.Repo) { w.Write(fmt.Sprintf("file%d", i), "n\n") })
		r.Git("branch", "-q", "-D", "cleveragents/plan-P")
		r.Git("update-ref", fmt.Sprintf("refs/heads/cleveragents/plan-%d", i), p.ref)
		p.ws.PlanID = fmt.Sprint(i)
		plans = append(plans, p)
	}
	errs := make([]error, len(plans))
	var all sync.WaitGroup
	for i, p := range plans {
		all.Add(1)
		go func() {
			defer all.Done()
			_, errs[i] = p.apply()
		}()
	}
	all.Wait()
	for i, err := range errs {
		_, missing := os.Stat(filepath.Join(r.Dir, fmt.Sprintf("file%d", i)))
		switch {
		case err == nil && missing == nil:
		case (errors.Is(err, agents.ErrConflict) || errors.Is(err, agents.ErrLocked)) && missing != nil:
			t.Logf("plan %d: %v", i, err)
		default:
			t.Errorf("plan %d: error %v, file: %v", i, err, missing)
		}
	}
	if got := r.Git("status", "--porcelain"); got != "" {
		t.Errorf("status %q", got)
	}
	r.Git("fsck", "--strict")
	plans[0].clean()
}
