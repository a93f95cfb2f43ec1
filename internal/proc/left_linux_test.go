package proc_test

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/cleveragents/agents/internal/proc"
)

func TestEndLeft(t *testing.T) {
	start := func(plan, script string) *exec.Cmd {
		cmd := exec.Command("/bin/sh", "-c", script+"; echo up; while :; do sleep 1000; done")
		cmd.Env = append(os.Environ(), proc.PlanVariable+"="+plan)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
			cmd.Wait()
		})
		out.Read(make([]byte, 3))
		return cmd
	}
	plain, other := start("plan-1", ":"), start("plan-10", ":")
	t.Setenv(proc.PlanVariable, "plan-1") // this process itself is no leftover
	got, err := proc.EndLeft(t.Context(), "plan-1")
	if err != nil || len(got) != 1 || !strings.Contains(got[0], "left by a killed call of plan plan-1 and ended: ") {
		t.Fatalf("got %q, %v, want a sentence on what was ended", got, err)
	}
	if err := plain.Wait(); err == nil || err.Error() != "signal: terminated" {
		t.Errorf("got %v, want it ended", err)
	}
	if err := other.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("another plan's process: got %v, want it alive", err)
	}
	if got, err := proc.EndLeft(t.Context(), "plan-1"); len(got) != 0 || err != nil {
		t.Errorf("again: got %q, %v, want nothing to do", got, err)
	}
}
