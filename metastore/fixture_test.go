package metastore_test

import (
	"fmt"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/metastore"
)

// resource stores a resource.
func (f *fixture) resource(name string) agents.Resource {
	f.t.Helper()
	res := agents.Resource{Name: name, Type: agents.TypeDirectory, Location: "/data/" + name}
	f.write(func(tx *metastore.Tx) error { return tx.Resources().Insert(&res) })
	return res
}

// plan stores a plan with n resources, named after it.
func (f *fixture) plan(name string, n int, steps ...agents.Step) agents.Plan {
	f.t.Helper()
	p := agents.Plan{Name: name, Phase: agents.PhaseExecute, State: agents.PlanQueued, Profile: "trusted", Steps: steps}
	for i := range n {
		p.Resources = append(p.Resources, f.resource(fmt.Sprintf("%s-r%d", name, i)))
	}
	f.write(func(tx *metastore.Tx) error { return tx.Plans().Insert(&p) })
	return p
}

// move stores a plan's new position.
func (f *fixture) move(p *agents.Plan, phase agents.Phase, state agents.PlanState) {
	f.t.Helper()
	p.Phase, p.State = phase, state
	f.write(func(tx *metastore.Tx) error { return tx.Plans().Update(p) })
}

// sandbox stores a sandbox of the plan's i-th resource.
func (f *fixture) sandbox(p agents.Plan, i int) agents.SandboxRecord {
	f.t.Helper()
	s := agents.SandboxRecord{
		PlanID: p.ID, ResourceID: p.Resources[i].ID, Strategy: agents.CopyOnWrite, Status: agents.SandboxCreated,
		Path: "/data/sandboxes/x", PrivateDir: "/data/private/x", Metadata: map[string]string{"branch": "b"}, BaseRef: "base",
	}
	f.write(func(tx *metastore.Tx) error { return tx.Sandboxes().Insert(&s) })
	return s
}

// checkpoint stores a checkpoint of the plan with a ref to each sandbox.
func (f *fixture) checkpoint(p agents.Plan, sandboxes ...agents.SandboxRecord) agents.Checkpoint {
	f.t.Helper()
	cp := agents.Checkpoint{PlanID: p.ID, Type: agents.CheckpointManual, SandboxRef: "ref"}
	for _, s := range sandboxes {
		cp.Refs = append(cp.Refs, agents.CheckpointRef{SandboxID: s.ID, ResourceID: s.ResourceID, Ref: "ref-" + s.ID, SizeBytes: 7})
	}
	f.write(func(tx *metastore.Tx) error { return tx.Checkpoints().Insert(&cp) })
	return cp
}
