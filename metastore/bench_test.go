package metastore_test

import (
	"fmt"
	"testing"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/metastore"
)

// BenchmarkOpenListClose is what a command like "agents plan list" costs here.
func BenchmarkOpenListClose(b *testing.B) {
	path := b.TempDir() + "/agents.db"
	s, err := metastore.Open(b.Context(), path, metastore.Options{})
	if err != nil {
		b.Fatal(err)
	}
	err = s.Write(b.Context(), func(tx *metastore.Tx) error {
		for i := range 50 {
			p := agents.Plan{
				Name: fmt.Sprintf("p%d", i), Phase: agents.PhaseExecute, State: agents.PlanQueued,
				Resources: []agents.Resource{{ID: id(i), Name: "app", Type: agents.TypeDirectory, Location: "/app"}},
			}
			if err := tx.Plans().Insert(&p); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	s.Close()
	for b.Loop() {
		s, err := metastore.Open(b.Context(), path, metastore.Options{})
		if err != nil {
			b.Fatal(err)
		}
		if err := s.Read(b.Context(), func(tx *metastore.Tx) error { _, err := tx.Plans().List(); return err }); err != nil {
			b.Fatal(err)
		}
		s.Close()
	}
}

// BenchmarkCheckpointUnit is the unit of work of one recorded tool call.
func BenchmarkCheckpointUnit(b *testing.B) {
	s, err := metastore.Open(b.Context(), b.TempDir()+"/agents.db", metastore.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	p := agents.Plan{Phase: agents.PhaseExecute, State: agents.PlanQueued}
	if err := s.Write(b.Context(), func(tx *metastore.Tx) error { return tx.Plans().Insert(&p) }); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		err := s.Write(b.Context(), func(tx *metastore.Tx) error {
			cp := agents.Checkpoint{PlanID: p.ID, Type: agents.CheckpointPostStep}
			if err := tx.Checkpoints().Insert(&cp); err != nil {
				return err
			}
			return tx.Invocations().Insert(&agents.Invocation{PlanID: p.ID, Tool: "t", BeforeCheckpointID: cp.ID})
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}
