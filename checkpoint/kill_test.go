//go:build linux && failpoint

package checkpoint_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/checkpoint"
	"github.com/cleveragents/agents/internal/fsx"
)

// Ids of the kill tests, known to parent and child.
const (
	killPlan  = "01K6C0000000000000000000PA"
	killBox   = "01K6C0000000000000000000B0"
	killFirst = "01K6C0000000000000000000C1"
	killNew   = "01K6C0000000000000000000C2"
)

// TestMain lets the test binary be the process that is killed.
func TestMain(m *testing.M) {
	if what := os.Getenv("CHECKPOINT_CHILD"); what != "" {
		if err := child(what, os.Getenv("CHECKPOINT_DIR")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(3)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func child(what, dir string) error {
	ctx := context.Background()
	s, err := checkpoint.Open(dir, checkpoint.Options{Objects: fakeObjects{}})
	if err != nil {
		return err
	}
	switch what {
	case "publish":
		return publish(ctx, s, killPlan, killNew)
	case "delete":
		_, err = s.Delete(ctx, killPlan, []string{killFirst}, map[string][]string{killBox: {"base"}})
	case "remove":
		_, err = s.RemovePlan(ctx, killPlan)
	case "sweep":
		_, err = s.Sweep(ctx, func(_, id string) bool { return id == killFirst })
	case "writable":
		err = s.Writable()
	case "many":
		for range 10 {
			err = errors.Join(err, publish(ctx, s, killPlan, agents.NewID(time.Now())))
		}
	}
	return err
}

func publish(ctx context.Context, s *checkpoint.Store, plan, id string) error {
	st, err := s.Stage(plan)
	if err != nil {
		return err
	}
	dir, err := st.Dir(killBox)
	if err == nil {
		err = fsx.WriteFile(filepath.Join(dir, "f"), []byte(id), 0o600)
	}
	if err == nil {
		err = os.MkdirAll(filepath.Join(s.Objects(plan, killBox), "objects"), 0o700)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(s.Objects(plan, killBox), "objects", id), []byte("state "+id), 0o600)
	}
	if err == nil {
		err = st.Publish(ctx, checkpoint.Manifest{CheckpointID: id, PlanID: plan, Parts: []checkpoint.Part{{SandboxID: killBox, Ref: id}}})
	}
	if err != nil {
		return errors.Join(err, st.Discard())
	}
	return nil
}

// run starts the child; it returns its exit code and how many effects it had.
func run(t *testing.T, what, dir, failpoint string) (code, hits int) {
	t.Helper()
	exe, err := os.Executable()
	must(t, err)
	log := dir + ".log"
	must(t, os.WriteFile(log, nil, 0o600))
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), "CHECKPOINT_CHILD="+what, "CHECKPOINT_DIR="+dir, "CLEVERAGENTS_FAILPOINT="+failpoint, "CLEVERAGENTS_FAILPOINT_LOG="+log)
	out, err := cmd.CombinedOutput()
	if code = cmd.ProcessState.ExitCode(); code > 3 || failpoint == "" && err != nil {
		t.Fatalf("child %s: %v: %s", what, err, out)
	}
	trace, err := os.ReadFile(log)
	must(t, err)
	return code, bytes.Count(trace, []byte("\n"))
}

// TestStoreStoppedAnywhere kills, or starves, each operation at each of its
// effects. What is published then is whole, what is not is gone after a sweep,
// and the store goes on working.
func TestStoreStoppedAnywhere(t *testing.T) {
	for _, how := range []string{"kill", "enospc", "eio"} {
		for _, what := range []string{"publish", "delete", "remove", "sweep", "writable"} {
			t.Run(how+" "+what, func(t *testing.T) {
				base := memoryDir(t)
				for n := 1; ; n++ {
					dir := filepath.Join(base, fmt.Sprint(n))
					prepare(t, dir)
					code, hits := run(t, what, dir, fmt.Sprintf("%d:%s", n, how))
					if hits < n {
						if n < 3 || code != 0 {
							t.Fatalf("%d effects, exit code %d", hits, code)
						}
						return
					}
					if how == "eio" && code == 0 && what != "publish" {
						t.Fatalf("effect %d failed unnoticed", n)
					}
					checkStore(t, dir, what)
					if t.Failed() {
						t.Fatalf("at effect %d", n)
					}
				}
			})
		}
	}
}

// memoryDir is a folder in memory where there is such a file system.
func memoryDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "checkpoint-kill-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// prepare makes a store with one checkpoint, a dead stage and the base state.
func prepare(t *testing.T, dir string) {
	t.Helper()
	s := storeAt(t, dir)
	must(t, publish(t.Context(), s, killPlan, killFirst))
	state(t, s, killPlan, killBox, "base")
	must(t, os.MkdirAll(filepath.Join(dir, killPlan, "stages", "dead", "parts"), 0o700))
}

func checkStore(t *testing.T, dir, what string) {
	t.Helper()
	s := storeAt(t, dir)
	_, err := s.Sweep(t.Context(), func(string, string) bool { return true })
	must(t, err)
	leftovers(t, s, killPlan)
	published, err := s.Checkpoints(killPlan)
	must(t, err)
	for _, id := range published {
		must(t, s.Verify(t.Context(), killPlan, id))
	}
	if what != "delete" && what != "remove" && !slices.Contains(published, killFirst) {
		t.Error("the first checkpoint is gone")
	}
	if what != "remove" {
		must(t, fakeObjects{}.Verify(t.Context(), s.Objects(killPlan, killBox), []string{"base"}))
	}
	// The next ones work: the same operation again, and a new checkpoint.
	if what != "publish" || !slices.Contains(published, killNew) {
		run(t, what, dir, "")
	}
	if !slices.Contains(published, killNew) && what != "publish" {
		must(t, publish(t.Context(), s, killPlan, killNew))
	}
	must(t, s.Verify(t.Context(), killPlan, killNew))
}

// TestManyProcessesPublish has several processes publish into one plan.
func TestManyProcessesPublish(t *testing.T) {
	const processes = 6
	dir := memoryDir(t)
	done := make(chan int)
	for i := range processes {
		go func() {
			exe, err := os.Executable()
			if err != nil {
				done <- -1
				return
			}
			cmd := exec.Command(exe)
			cmd.Env = append(os.Environ(), "CHECKPOINT_CHILD=many", "CHECKPOINT_DIR="+filepath.Join(dir, "store"), fmt.Sprint("CHILD=", i))
			cmd.Run()
			done <- cmd.ProcessState.ExitCode()
		}()
	}
	for range processes {
		if code := <-done; code != 0 {
			t.Errorf("a child ended with %d", code)
		}
	}
	s := storeAt(t, filepath.Join(dir, "store"))
	published, err := s.Checkpoints(killPlan)
	must(t, err)
	if len(published) != processes*10 {
		t.Errorf("%d checkpoints, want %d", len(published), processes*10)
	}
	for _, id := range published {
		must(t, s.Verify(t.Context(), killPlan, id))
	}
	leftovers(t, s, killPlan)
}
