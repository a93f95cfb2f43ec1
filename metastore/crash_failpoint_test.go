//go:build failpoint && unix

package metastore_test

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cleveragents/agents/metastore"
)

// eachFault runs the role "units" again and again with a fault at the first,
// second, third … outside effect, until one run is through, and looks at what
// each left.
func eachFault(t *testing.T, what string, check func(t *testing.T, out string, err error)) {
	t.Helper()
	for n := 1; ; n++ {
		path := filepath.Join(t.TempDir(), "data", "agents.db")
		cmd := asProcess(t.Context(), "units", path)
		cmd.Env = append(cmd.Env, fmt.Sprintf("CLEVERAGENTS_FAILPOINT=%d:%s", n, what))
		b, err := cmd.CombinedOutput()
		out := string(b)
		kept := strings.Count(out, "kept ")
		checkUnits(t, n, path, kept)
		if err == nil {
			if kept != units {
				t.Errorf("a run without a fault kept %d units, want %d", kept, units)
			}
			if n < 10 {
				t.Errorf("only %d faults fired", n-1)
			}
			return
		}
		check(t, out, err)
	}
}

// checkUnits holds that the next start finds exactly the units that were
// reported, each whole.
func checkUnits(t *testing.T, n int, path string, kept int) {
	t.Helper()
	s, err := metastore.Open(t.Context(), path, metastore.Options{})
	if err != nil {
		t.Fatalf("fault %d: the next start: %v", n, err)
	}
	defer s.Close()
	err = s.Read(t.Context(), func(tx *metastore.Tx) error {
		plans, err := tx.Plans().List()
		if len(plans) != kept {
			t.Errorf("fault %d: %d plans, want the %d that were reported", n, len(plans), kept)
		}
		for _, p := range plans {
			cps, err := tx.Checkpoints().List(p.ID)
			events, err2 := tx.Events().List(p.ID)
			if len(cps) != 1 || len(events) != 1 {
				t.Errorf("fault %d: plan %s has %d checkpoints and %d events, want one each", n, p.Name, len(cps), len(events))
			}
			if err := errors.Join(err, err2); err != nil {
				return err
			}
		}
		return err
	})
	if err := errors.Join(err, s.Check(t.Context())); err != nil {
		t.Errorf("fault %d: %v", n, err)
	}
}

func TestKillBetweenStatementsLeavesNothingOfTheUnit(t *testing.T) {
	eachFault(t, "kill", func(t *testing.T, out string, err error) {
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			t.Errorf("ended with %v, want killed: %s", err, out)
		}
	})
}

func TestFullDiskLeavesNothingOfTheUnit(t *testing.T) {
	eachFault(t, "enospc", func(t *testing.T, out string, err error) {
		ours := !strings.Contains(out, "test.between") // those are the caller's own
		if ours && !strings.Contains(out, "class: no space") {
			t.Errorf("%v: %s; want the class of a full disk", err, out)
		}
	})
}

func TestFailingWriteLeavesNothingOfTheUnit(t *testing.T) {
	eachFault(t, "eio", func(*testing.T, string, error) {})
}
