//go:build failpoint

package gitworktree_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
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

// task is what a child process does until it is killed.
type task struct {
	Do      string
	Dir     string // of the request to create
	Work    sandbox.Workspace
	Objects string
	Ref     string
}

// TestChildOfLife is the process that is killed. It is no test of its own.
func TestChildOfLife(t *testing.T) {
	text := os.Getenv("TEST_LIFE_TASK")
	if text == "" {
		t.Skip("runs as a child only")
	}
	var do task
	if err := json.Unmarshal([]byte(text), &do); err != nil {
		t.Fatal(err)
	}
	if err := do.run(context.Background(), gitworktree.New()); err != nil {
		fmt.Println("outcome:", err)
		os.Exit(3)
	}
	os.Exit(0)
}

func (do task) run(ctx context.Context, s *gitworktree.Strategy) error {
	var err error
	switch do.Do {
	case "create":
		_, err = s.Create(ctx, sandbox.CreateRequest{SandboxID: do.Work.SandboxID, PlanID: do.Work.PlanID, Resource: do.Work.Resource,
			Dir: do.Dir, PrivateDir: do.Work.PrivateDir, Notify: func(string) {}})
	case "capture":
		_, err = s.Capture(ctx, do.Work, sandbox.CaptureRequest{Objects: do.Objects})
	case "restore":
		_, err = s.Restore(ctx, do.Work, sandbox.RestoreRequest{Objects: do.Objects, Ref: do.Ref})
	case "seal":
		_, err = s.Seal(ctx, do.Work, sandbox.SealRequest{When: time.Unix(1700000001, 0)})
	case "update":
		_, _, err = s.Update(ctx, do.Work, time.Unix(1700000001, 0))
	case "prepare":
		_, err = s.Prepare(ctx, do.Work)
	case "remove":
		err = s.Remove(ctx, do.Work)
	}
	return err
}

// child runs a task in another process, which the failpoint "n:kind" stops. It
// reports whether the failpoint was reached.
func (b *bench) child(do task, failpoint string) (reached bool, err error) {
	b.t.Helper()
	do.Dir, do.Work, do.Objects = b.req.Dir, b.ws, b.objects
	if do.Do == "create" {
		do.Work = sandbox.Workspace{SandboxID: b.req.SandboxID, PlanID: b.req.PlanID, Resource: b.req.Resource, PrivateDir: b.req.PrivateDir}
	}
	text, err := json.Marshal(do)
	if err != nil {
		b.t.Fatal(err)
	}
	log := filepath.Join(b.t.TempDir(), "hits")
	cmd := exec.Command(os.Args[0], "-test.run=^TestChildOfLife$")
	cmd.Env = append(slices.Clone(b.strategy.Git.Env), "TEST_LIFE_TASK="+string(text), "CLEVERAGENTS_FAILPOINT="+failpoint, "CLEVERAGENTS_FAILPOINT_LOG="+log)
	out, err := cmd.CombinedOutput()
	n, _, _ := strings.Cut(failpoint, ":")
	hits, _ := os.ReadFile(log)
	reached = strings.Contains("\n"+string(hits), "\n"+n+" ")
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 3 {
		err = fmt.Errorf("%s", strings.TrimPrefix(strings.TrimSpace(string(out)), "outcome: "))
	}
	if !reached && err != nil {
		b.t.Fatalf("%s without a fault: %v\n%s", do.Do, err, out)
	}
	return reached, err
}

func TestKillCreateAndRemove(t *testing.T) {
	for _, kind := range []string{"kill", "enospc"} {
		everyFault(t, kind, 1, func(t *testing.T, _ int, failpoint string) bool {
			repo := oracle.NewRepo(t)
			before := oracle.Digest(t, repo.Dir)
			b := newBench(t, repo)
			reached, _ := b.child(task{Do: "create"}, failpoint)
			oracle.Same(t, "create", repo.Dir, before, append(oracle.Placeholder(), ".git/worktrees")...)
			b.ws = sandbox.Workspace{PlanID: planID, Resource: b.req.Resource, PrivateDir: b.req.PrivateDir}
			b.remove()
			oracle.Same(t, "removal", repo.Dir, before)
			nothingLeft(t, b)
			b.create()
			b.child(task{Do: "remove"}, failpoint)
			b.remove()
			oracle.Same(t, "second removal", repo.Dir, before)
			nothingLeft(t, b)
			return reached
		})
	}
}

func TestKillCreateAgain(t *testing.T) {
	everyFault(t, "kill", 1, func(t *testing.T, _ int, failpoint string) bool {
		repo := oracle.NewRepo(t)
		b := newBench(t, repo)
		reached, _ := b.child(task{Do: "create"}, failpoint)
		b.create()
		if got := strings.Count(repo.Git("worktree", "list"), "ca-sandbox-"); got != 1 {
			t.Errorf("%d worktree entries, want 1", got)
		}
		if got := b.plan().Git("status", "--porcelain"); got != "" {
			t.Errorf("status %q", got)
		}
		return reached
	})
}

func TestKillSeal(t *testing.T) {
	for _, kind := range []string{"kill", "eio"} {
		everyFault(t, kind, 1, func(t *testing.T, _ int, failpoint string) bool {
			repo := oracle.NewRepo(t)
			before := oracle.Digest(t, repo.Dir, withoutObjects()...)
			b := created(t, repo)
			b.plan().Sh("echo 2 >a.txt; echo n >n; git add n; git commit -qm own; echo 3 >a.txt")
			state := b.whole()
			reached, _ := b.child(task{Do: "seal"}, failpoint)
			oracle.Same(t, "seal", repo.Dir, before, withoutObjects()...)
			if d := oracle.Diff(state, b.whole()); d != "" {
				t.Errorf("seal changed the sandbox:\n%s", d)
			}
			b.prepare()
			s := b.seal()
			if got := repo.Git("rev-parse", b.ws.Metadata["branch"]); got != s.Ref || repo.Git("show", got+":a.txt") != "3" {
				t.Errorf("branch at %s, want the result %s", got, s.Ref)
			}
			b.remove()
			oracle.Same(t, "removal", repo.Dir, before, withoutObjects()...)
			nothingLeft(t, b)
			return reached
		})
	}
}

func TestKillRestore(t *testing.T) {
	everyFault(t, "kill", 1, func(t *testing.T, _ int, failpoint string) bool {
		b := created(t, oracle.NewRepo(t))
		b.plan().Sh("echo 2 >a.txt; mkdir d; echo n >d/n; git add -A; git commit -qm own")
		cp, old := b.capture(), b.whole()
		b.plan().Sh("git rm -qr d; echo 3 >a.txt; echo x >x; git commit -qam later")
		now := b.whole()
		reached, _ := b.child(task{Do: "restore", Ref: cp.Ref}, failpoint)
		b.prepare()
		got := b.whole()
		if asOld, asNow := oracle.Diff(old, got), oracle.Diff(now, got); asOld != "" && asNow != "" {
			t.Errorf("neither the old state nor the new:\n%s\nor\n%s", asOld, asNow)
		}
		b.restore(cp.Ref)
		if d := oracle.Diff(old, b.whole()); d != "" {
			t.Errorf("second restore:\n%s", d)
		}
		return reached
	})
}

func TestKillUpdate(t *testing.T) {
	for _, kind := range []string{"kill", "eio"} {
		everyFault(t, kind, 1, func(t *testing.T, _ int, failpoint string) bool {
			repo := updatable(t)
			b := created(t, repo)
			b.plan().Sh("sed -i 's/^9$/nine/' f; git commit -qam own; echo new >new")
			old := b.whole()
			repo.Sh("sed -i 's/^1$/one/' f; git rm -q gone; echo u >u; git add -A; git commit -qm user")
			user := oracle.Digest(t, repo.Dir, withoutObjects()...)
			reached, _ := b.child(task{Do: "update"}, failpoint)
			b.prepare()
			oracle.Same(t, "update", repo.Dir, user, withoutObjects()...)
			moved := b.plan().Read("f") == "one\n2\n3\n4\n5\n6\n7\n8\nnine\n"
			d := b.diff(sandbox.DiffRequest{})
			if len(d) != 2 {
				t.Errorf("diff %v, want f and new whatever the base", d)
			}
			if !moved {
				if d := oracle.Diff(skipLines(old, []string{"objects"}), skipLines(b.whole(), []string{"objects"})); d != "" {
					t.Errorf("a half update:\n%s", d)
				}
			}
			res, err := b.update()
			if err != nil || res.State != agents.ApplyApplied && res.State != agents.ApplyUnchanged {
				t.Fatalf("second update: %+v, %v", res, err)
			}
			if moved != (res.State == agents.ApplyUnchanged) {
				t.Errorf("moved %v, second update %s", moved, res.State)
			}
			s := b.seal()
			if got := repo.Git("diff", "--name-only", "main", s.Ref); got != "f\nnew" {
				t.Errorf("result %q", got)
			}
			b.remove()
			oracle.Same(t, "removal", repo.Dir, user, withoutObjects()...)
			return reached
		})
	}
}
