//go:build linux && failpoint

package copyonwrite_test

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
	"github.com/cleveragents/agents/sandbox/copyonwrite"
)

// task is what a child process does until it is stopped.
type task struct {
	Do      string
	Dir     string // of the request to create
	Work    sandbox.Workspace
	Objects string
	Journal string
	Ref     string
}

// TestChildOfLife is the process that is stopped. It is no test of its own.
func TestChildOfLife(t *testing.T) {
	text := os.Getenv("TEST_LIFE_TASK")
	if text == "" {
		t.Skip("runs as a child only")
	}
	var do task
	must(t, json.Unmarshal([]byte(text), &do))
	if err := do.run(context.Background(), copyonwrite.New()); err != nil {
		fmt.Println("outcome:", err)
		os.Exit(3)
	}
	os.Exit(0)
}

func (do task) run(ctx context.Context, s *copyonwrite.Strategy) error {
	var err error
	switch do.Do {
	case "create":
		do.Work.Path = ""
		_, err = s.Create(ctx, sandbox.CreateRequest{SandboxID: do.Work.SandboxID, PlanID: do.Work.PlanID, Resource: do.Work.Resource,
			Dir: do.Dir, PrivateDir: do.Work.PrivateDir, Notify: func(string) {}})
	case "capture":
		_, err = s.Capture(ctx, do.Work, sandbox.CaptureRequest{Objects: do.Objects})
	case "restore":
		_, err = s.Restore(ctx, do.Work, sandbox.RestoreRequest{Objects: do.Objects, Ref: do.Ref})
	case "seal":
		_, err = s.Seal(ctx, do.Work, sandbox.SealRequest{When: time.Unix(1700000001, 0)})
	case "apply":
		_, err = s.Apply(ctx, do.Work, sandbox.ApplyRequest{Ref: do.Ref, JournalDir: do.Journal})
	case "undo":
		err = s.Undo(ctx, do.Work, do.Journal)
	case "remove":
		err = s.Remove(ctx, do.Work)
	}
	return err
}

// child runs a task in another process, which the failpoint "n:kind" stops. It
// reports whether the failpoint was reached, and how the child ended.
func (b *bench) child(do task, failpoint string) (reached bool, err error) {
	b.t.Helper()
	do.Dir, do.Work, do.Objects, do.Journal = b.req.Dir, b.ws, b.objects, b.journal
	if do.Do == "create" {
		do.Work = b.half()
	}
	text, err := json.Marshal(do)
	must(b.t, err)
	log := filepath.Join(b.t.TempDir(), "hits")
	cmd := exec.Command(os.Args[0], "-test.run=^TestChildOfLife$")
	cmd.Env = append(os.Environ(), "TEST_LIFE_TASK="+string(text), "CLEVERAGENTS_FAILPOINT="+failpoint, "CLEVERAGENTS_FAILPOINT_LOG="+log)
	out, err := cmd.CombinedOutput()
	n, _, _ := strings.Cut(failpoint, ":")
	hits, _ := os.ReadFile(log)
	for line := range strings.Lines(string(hits)) {
		if strings.HasPrefix(line, n+" ") {
			reached = true
			b.t.Logf("%s at %s", failpoint, strings.TrimSpace(line))
		}
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 3 {
		err = errors.New(strings.TrimSpace(string(out)))
	}
	if !reached && err != nil {
		b.t.Fatalf("%s without a fault: %v\n%s", do.Do, err, out)
	}
	return reached, err
}

// half is what is known of a sandbox whose creation was stopped.
func (b *bench) half() sandbox.Workspace {
	return sandbox.Workspace{SandboxID: sandboxID, PlanID: planID, Resource: b.req.Resource, PrivateDir: b.req.PrivateDir}
}

// everyFault calls try with 1, 2, 3 … until there are no more outside effects.
// Errors, which meet the same code again and again, come at every third.
func everyFault(t *testing.T, kinds string, try func(t *testing.T, failpoint string) (reached bool)) {
	t.Helper()
	for _, kind := range strings.Fields(kinds) {
		t.Run(kind, func(t *testing.T) {
			const atATime = 8
			for n := 1; ; {
				ended := make([]bool, atATime)
				first := n
				t.Run(fmt.Sprint(n), func(t *testing.T) {
					for i := range ended {
						failpoint := fmt.Sprintf("%d:%s", n, kind)
						t.Run(failpoint, func(t *testing.T) {
							t.Parallel()
							ended[i] = !try(t, failpoint)
						})
						if n++; kind != "kill" {
							n += 2
						}
					}
				})
				switch i := slices.Index(ended, true); {
				case t.Failed():
					t.FailNow()
				case i == 0 && first == 1:
					t.Fatal("no outside effect was reached at all")
				case i >= 0:
					t.Logf("the outside effects ended before %d", n)
					return
				case n > 2000:
					t.Fatal("no end of outside effects")
				}
			}
		})
	}
}

// Something of everything that a copy, a state and an apply do in ways of
// their own: replaced, removed, made, written in place for a name outside,
// kept with a further name; bits and times of directories.
const (
	killBase = `echo 1 >a; echo gone >del; mkdir -p d/e ro; echo x >d/x; echo r >ro/r; ln -s a link; echo 1 >out; ln out ../outside; echo k >kept
touch -d 2001-02-03 a del d/x kept d/e d; chmod 555 ro`
	killPlan = `echo 2 >a; rm del; mkdir -p new/n; echo n >new/n/n; rm -r d; echo f >d; ln -sfn kept link; echo 2 >out; chmod 700 .; ln kept name; chmod 755 ro; echo s >ro/s; chmod 555 ro`
)

func TestKillCreateAndRemove(t *testing.T) {
	everyFault(t, "kill enospc eio", func(t *testing.T, failpoint string) bool {
		b := newBench(t, killBase)
		before := state(t, b.real)
		reached, _ := b.child(task{Do: "create"}, failpoint)
		same(t, "create", before, state(t, b.real))
		b.ws = b.half()
		b.remove()
		b.nothingLeft()
		b.create()
		if d := oracle.Diff(before, state(t, b.ws.Path)); d != "" {
			t.Errorf("the copy is another thing:\n%s", d)
		}
		b.child(task{Do: "remove"}, failpoint)
		b.remove()
		b.nothingLeft()
		same(t, "removal", before, state(t, b.real))
		return reached
	})
}

func TestKillCreateAgain(t *testing.T) {
	everyFault(t, "kill", func(t *testing.T, failpoint string) bool {
		b := newBench(t, killBase)
		reached, _ := b.child(task{Do: "create"}, failpoint)
		b.create()
		if entries, err := os.ReadDir(b.req.Dir); err != nil || len(entries) != 1 {
			t.Errorf("sandboxes: %v, %v", entries, err)
		}
		same(t, "second creation", state(t, b.real), state(t, b.ws.Path))
		return reached
	})
}

func TestKillCaptureAndSeal(t *testing.T) {
	for _, do := range []string{"capture", "seal"} {
		t.Run(do, func(t *testing.T) {
			everyFault(t, "kill enospc eio", func(t *testing.T, failpoint string) bool {
				b := newBench(t, killBase)
				ws, err := b.strategy.Create(t.Context(), b.req) // nothing is recorded yet
				must(t, err)
				b.ws = ws
				real, base := state(t, b.real), state(t, b.ws.Path)
				reached, _ := b.child(task{Do: do}, failpoint)
				same(t, do, base, state(t, b.ws.Path))
				b.prepare()
				b.plan("echo 3 >b")
				now := state(t, b.ws.Path)
				cp := b.capture()
				b.plan(killPlan)
				b.restore(cp.Ref)
				same(t, "restore", now, state(t, b.ws.Path))
				b.restore("")
				same(t, "restore of the base", base, state(t, b.ws.Path))
				same(t, do, real, state(t, b.real))
				return reached
			})
		})
	}
}

func TestKillRestore(t *testing.T) {
	everyFault(t, "kill enospc eio", func(t *testing.T, failpoint string) bool {
		b := created(t, killBase, "echo 2 >b")
		cp, old := b.capture(), state(t, b.ws.Path)
		b.plan(killPlan)
		now := state(t, b.ws.Path)
		reached, err := b.child(task{Do: "restore", Ref: cp.Ref}, failpoint)
		b.prepare()
		got := state(t, b.ws.Path)
		asOld, asNow := oracle.Diff(old, got), oracle.Diff(now, got)
		if asOld != "" && asNow != "" || err == nil && asOld != "" {
			t.Errorf("neither the old state nor the new (%v):\n%s\nor\n%s", err, asOld, asNow)
		}
		b.restore(cp.Ref)
		same(t, "second restore", old, state(t, b.ws.Path))
		return reached
	})
}

// ended ends a stopped apply or undo, and makes sure that the resource is as
// before, or has everything.
func (b *bench) ended(before, after []string) agents.ApplyState {
	b.t.Helper()
	ended, err := b.strategy.Recover(b.t.Context(), b.ws, b.journal)
	if err != nil {
		b.t.Fatalf("recover: %v", err)
	}
	got := ended.State
	switch got {
	case agents.ApplyApplied:
		same(b.t, "apply", after, oracle.Digest(b.t, b.real))
	case agents.ApplyReverted:
		same(b.t, "taking back", before, state(b.t, b.real))
	default:
		b.t.Errorf("recover: %s", got)
	}
	return got
}

func TestKillApplyAndUndo(t *testing.T) {
	for _, do := range []string{"apply", "undo"} {
		t.Run(do, func(t *testing.T) {
			everyFault(t, "kill enospc eio", func(t *testing.T, failpoint string) bool {
				b := created(t, killBase, killPlan)
				before, after := state(t, b.real), oracle.Digest(t, b.ws.Path)
				ref := b.seal().Ref
				if do == "undo" {
					b.mustApply(false)
				}
				must(t, os.MkdirAll(b.journal, 0o700))
				reached, err := b.child(task{Do: do, Ref: ref}, failpoint)
				home := b.ended(before, after)
				if err == nil && home != map[string]agents.ApplyState{"apply": agents.ApplyApplied, "undo": agents.ApplyReverted}[do] {
					t.Errorf("%s was well and is %s", do, home)
				}
				if home == agents.ApplyReverted {
					must(t, errors.Join(os.RemoveAll(b.journal), os.Mkdir(b.journal, 0o700)))
					b.mustApply(false)
					b.ended(before, after)
				}
				b.mustUndo()
				same(t, "undo", before, state(t, b.real))
				if text := read(t, filepath.Join(b.dir, "outside")); text != "1\n" {
					t.Errorf("outside = %q", text)
				}
				if left, _ := filepath.Glob(b.dir + "/.cleveragents*"); len(left) > 0 {
					t.Errorf("left %v", left)
				}
				b.remove()
				b.nothingLeft()
				return reached
			})
		})
	}
}

// TestKillUndoAgain: a second Undo ends what the first began.
func TestKillUndoAgain(t *testing.T) {
	everyFault(t, "kill", func(t *testing.T, failpoint string) bool {
		b := created(t, killBase, killPlan)
		before := state(t, b.real)
		b.mustApply(false)
		reached, _ := b.child(task{Do: "undo"}, failpoint)
		b.mustUndo()
		same(t, "undo", before, state(t, b.real))
		if got := b.ended(before, nil); got != agents.ApplyReverted {
			t.Errorf("after undo it is %s", got)
		}
		entries, err := os.ReadDir(b.journal)
		must(t, err)
		for _, e := range entries {
			if !strings.HasPrefix(e.Name(), "undone") {
				t.Errorf("left in the journal: %s", e.Name())
			}
		}
		return reached
	})
}

// TestKillApplyThenEdit: somebody edits what a killed apply had brought. The
// apply is taken back but for that, and what was there before is kept.
func TestKillApplyThenEdit(t *testing.T) {
	met := false
	everyFault(t, "kill", func(t *testing.T, failpoint string) bool {
		b := created(t, killBase, killPlan)
		before, after := state(t, b.real), oracle.Digest(t, b.ws.Path)
		ref := b.seal().Ref
		must(t, os.MkdirAll(b.journal, 0o700))
		reached, _ := b.child(task{Do: "apply", Ref: ref}, failpoint)
		was := read(t, b.real+"/a")
		b.user("echo mine >>a")
		edited := read(t, b.real+"/a")
		got, err := b.strategy.Recover(t.Context(), b.ws, b.journal)
		must(t, err)
		if text := read(t, b.real+"/a"); text != edited {
			t.Errorf("%s: a = %q, want %q", got.State, text, edited)
		}
		if got.State == agents.ApplyApplied || was == "1\n" {
			return reached
		}
		met = true
		if len(got.Notices) != 1 || !strings.Contains(got.Notices[0], "a could not be taken back and stays as it is: it was changed") {
			t.Fatalf("notices %q", got.Notices)
		}
		if text := read(t, sandbox.LateDir(b.journal)+"/a"); text != "1\n" {
			t.Errorf("kept is %q", text)
		}
		must(t, os.Rename(sandbox.LateDir(b.journal)+"/a", b.real+"/a"))
		same(t, "taking back", before[1:], state(t, b.real)[1:])
		if _, err := b.apply(false); err != nil {
			t.Errorf("apply again: %v", err)
		}
		b.ended(before, after)
		return reached
	})
	if !met {
		t.Error("no kill was between")
	}
}
