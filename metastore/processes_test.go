package metastore_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/metastore"
)

// TestMain lets the test binary be another process: METASTORE_ROLE says which.
func TestMain(m *testing.M) {
	if role := os.Getenv("METASTORE_ROLE"); role != "" {
		if err := play(role, os.Getenv("METASTORE_PATH")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func play(role, path string) error {
	for name, f := range roles() {
		if name == role {
			return f(context.Background(), path)
		}
	}
	return fmt.Errorf("no role %s", role)
}

// asProcess prepares another process that plays the role.
func asProcess(ctx context.Context, role, path string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), "METASTORE_ROLE="+role, "METASTORE_PATH="+path)
	return cmd
}

const (
	processes      = 20
	checkpointEach = 10
)

// writeAlongOthers opens the store, which may not be there yet, and adds
// checkpoints to the one plan that all processes share.
func writeAlongOthers(ctx context.Context, path string) error {
	s, err := metastore.Open(ctx, path, metastore.Options{})
	if err != nil {
		return err
	}
	defer s.Close()
	var planID string
	if err := s.Write(ctx, func(tx *metastore.Tx) error {
		p, err := tx.Plans().Resolve("shared")
		if errors.Is(err, agents.ErrNotFound) {
			p = agents.Plan{Name: "shared", Phase: agents.PhaseExecute, State: agents.PlanQueued}
			err = tx.Plans().Insert(&p)
		}
		planID = p.ID
		return err
	}); err != nil {
		return err
	}
	for range checkpointEach {
		if err := s.Write(ctx, func(tx *metastore.Tx) error {
			cp := agents.Checkpoint{PlanID: planID, Type: agents.CheckpointManual}
			if err := tx.Checkpoints().Insert(&cp); err != nil {
				return err
			}
			return tx.Checkpoints().AddEvent(cp.ID, agents.OnError)
		}); err != nil {
			return err
		}
		if err := s.Read(ctx, func(tx *metastore.Tx) error { _, err := tx.Checkpoints().List(planID); return err }); err != nil {
			return err
		}
	}
	return nil
}

func TestTwentyProcessesAtOnceLoseNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data", "agents.db")
	failed := make(chan error, processes)
	for range processes {
		cmd := asProcess(t.Context(), "writer", path)
		go func() {
			out, err := cmd.CombinedOutput()
			if err != nil {
				err = fmt.Errorf("%w: %s", err, out)
			}
			failed <- err
		}()
	}
	for range processes {
		if err := <-failed; err != nil {
			t.Error(err)
		}
	}
	s, err := metastore.Open(t.Context(), path, metastore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	err = s.Read(t.Context(), func(tx *metastore.Tx) error {
		plans, err := tx.Plans().List()
		if err != nil || len(plans) != 1 {
			return fmt.Errorf("plans = %d, %w; want the shared one", len(plans), err)
		}
		all, err := tx.Checkpoints().List(plans[0].ID)
		if len(all) != processes*checkpointEach {
			t.Errorf("checkpoints = %d, want %d", len(all), processes*checkpointEach)
		}
		for i, cp := range all {
			if cp.Seq != int64(i+1) {
				t.Fatalf("checkpoint %d has seq %d", i, cp.Seq)
			}
		}
		events, err2 := tx.Checkpoints().Events(plans[0].ID)
		if len(events) != len(all) {
			t.Errorf("events = %d, want %d", len(events), len(all))
		}
		return errors.Join(err, err2)
	})
	if err != nil {
		t.Error(err)
	}
	if err := s.Check(t.Context()); err != nil {
		t.Error(err)
	}
}
