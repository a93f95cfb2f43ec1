//go:build unix

package metastore_test

import (
	"context"
	"errors"
	"fmt"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/failpoint"
	"github.com/cleveragents/agents/metastore"
)

// units is how many units of work the role "units" does.
const units = 3

// writeUnits does a few units of work of several rows each, with a failpoint
// between the statements, and prints a line after each that was committed.
func writeUnits(ctx context.Context, path string) error {
	s, err := metastore.Open(ctx, path, metastore.Options{})
	if err != nil {
		return classify(err)
	}
	defer s.Close()
	for i := range units {
		if err := s.Write(ctx, func(tx *metastore.Tx) error { return unit(tx, i) }); err != nil {
			return classify(err)
		}
		fmt.Println("kept", i)
	}
	return nil
}

func unit(tx *metastore.Tx, i int) error {
	p := agents.Plan{Name: fmt.Sprintf("unit%d", i), Phase: agents.PhaseExecute, State: agents.PlanQueued}
	if err := tx.Plans().Insert(&p); err != nil {
		return err
	}
	if err := failpoint.Hit("test.between", "plan and checkpoint"); err != nil {
		return err
	}
	if err := tx.Checkpoints().Insert(&agents.Checkpoint{PlanID: p.ID, Type: agents.CheckpointManual}); err != nil {
		return err
	}
	if err := failpoint.Hit("test.between", "checkpoint and event"); err != nil {
		return err
	}
	return tx.Events().Append(&agents.Event{PlanID: p.ID, Kind: "plan.created"})
}

// classify puts the error's class before its text.
func classify(err error) error {
	if errors.Is(err, agents.ErrNoSpace) {
		return fmt.Errorf("class: no space: %w", err)
	}
	return err
}
