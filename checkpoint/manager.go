package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	agents "github.com/cleveragents/agents"
)

// Sandbox is what a Manager needs of a sandbox.
type Sandbox interface {
	SandboxID() string
	ResourceID() string
	// BaseRef is the state at creation, which deleting checkpoints must leave
	// in the object store; "" = there is none.
	BaseRef() string
	// Capture records the present state and returns a reference to it and
	// the bytes that it added. It may share objects with earlier captures and
	// has dir for itself.
	Capture(ctx context.Context, objects, dir, label string) (ref string, added int64, err error)
	// Restore puts the sandbox into a captured state, or leaves it as it is
	// and returns an error.
	Restore(ctx context.Context, objects, dir, ref string) error
}

// SandboxCheckpoint is one sandbox's state at a phase of its plan
// (sandbox.md, "SandboxCheckpoint Model").
type SandboxCheckpoint struct {
	CheckpointID string            `json:"checkpoint_id"`
	SandboxID    string            `json:"sandbox_id"`
	PlanID       string            `json:"plan_id"`
	Phase        string            `json:"phase"`
	CreatedAt    time.Time         `json:"created_at"`
	Metadata     map[string]string `json:"metadata"`
	SnapshotPath string            `json:"snapshot_path"`
}

// Manager is the specification's view of a Store (sandbox.md,
// "CheckpointManager API"), for one sandbox at a time and without rows. What
// it makes is on the disk alone: another process's Manager lists it too. It
// may be used from several goroutines; on one plan, calls go one at a time.
type Manager struct {
	store *Store
	now   func() time.Time

	mu        sync.Mutex
	sandboxes map[string]Sandbox     // those seen, by id
	plans     map[string]*sync.Mutex // one call at a time a plan
}

// NewManager returns a Manager over store; now gives the time of checkpoints,
// nil = time.Now.
func NewManager(store *Store, now func() time.Time) *Manager {
	if now == nil {
		now = time.Now
	}
	return &Manager{store: store, now: now, sandboxes: map[string]Sandbox{}, plans: map[string]*sync.Mutex{}}
}

// Attach makes sandboxes known, so that a Manager which did not make their
// checkpoints can restore and delete them.
func (m *Manager) Attach(sandboxes ...Sandbox) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, sb := range sandboxes {
		m.sandboxes[sb.SandboxID()] = sb
	}
}

// CreateCheckpoint records the present state of a sandbox. The phase is
// pre_execute, post_execute or pre_apply; another one is agents.ErrInvalid.
// On error there is no checkpoint.
func (m *Manager) CreateCheckpoint(ctx context.Context, sb Sandbox, planID, phase string, metadata map[string]string) (SandboxCheckpoint, error) {
	switch agents.CheckpointPhase(phase) {
	case agents.PhasePreExecute, agents.PhasePostExecute, agents.PhasePreApply:
	default:
		return SandboxCheckpoint{}, fmt.Errorf("checkpoint phase %q: want pre_execute, post_execute or pre_apply: %w", clip(phase), agents.ErrInvalid)
	}
	defer m.enter(planID)()
	m.Attach(sb)
	stage, err := m.store.Stage(planID)
	if err != nil {
		return SandboxCheckpoint{}, err
	}
	man := Manifest{PlanID: planID, CreatedAt: m.now().UTC(), Phase: phase, Metadata: maps.Clone(metadata)}
	man.CheckpointID = agents.NewID(man.CreatedAt)
	if err := m.capture(ctx, sb, stage, &man); err != nil {
		return SandboxCheckpoint{}, errors.Join(fmt.Errorf("create checkpoint of sandbox %s: %w", sb.SandboxID(), err), stage.Discard())
	}
	return m.view(man, sb.SandboxID()), nil
}

func (m *Manager) capture(ctx context.Context, sb Sandbox, stage *Stage, man *Manifest) error {
	dir, err := stage.Dir(sb.SandboxID())
	if err != nil {
		return err
	}
	ref, added, err := sb.Capture(ctx, m.store.Objects(man.PlanID, sb.SandboxID()), dir, man.Phase)
	if err != nil {
		return err
	}
	man.Parts = []Part{{SandboxID: sb.SandboxID(), ResourceID: sb.ResourceID(), Ref: ref, SizeBytes: added}}
	return stage.Publish(ctx, *man)
}

// enter waits for its turn on a plan and returns what ends it.
func (m *Manager) enter(planID string) (leave func()) {
	m.mu.Lock()
	turn := m.plans[planID]
	if turn == nil {
		turn = &sync.Mutex{}
		m.plans[planID] = turn
	}
	m.mu.Unlock()
	turn.Lock()
	return turn.Unlock
}

func (m *Manager) view(man Manifest, sandboxID string) SandboxCheckpoint {
	return SandboxCheckpoint{
		CheckpointID: man.CheckpointID, SandboxID: sandboxID, PlanID: man.PlanID, Phase: man.Phase, CreatedAt: man.CreatedAt,
		Metadata: man.Metadata, SnapshotPath: m.store.PartDir(man.PlanID, man.CheckpointID, sandboxID),
	}
}

// RollbackTo puts the checkpoint's sandbox into the recorded state. The payload
// is verified before anything is touched: agents.ErrDamaged or ErrNotFound
// leave the sandbox as it is, and so does any other error. A sandbox that this
// Manager has not seen is agents.ErrNotFound; see Attach.
func (m *Manager) RollbackTo(ctx context.Context, cp SandboxCheckpoint) error {
	defer m.enter(cp.PlanID)()
	m.mu.Lock()
	sb := m.sandboxes[cp.SandboxID]
	m.mu.Unlock()
	if sb == nil {
		return fmt.Errorf("roll back: sandbox %s: %w", clip(cp.SandboxID), agents.ErrNotFound)
	}
	man, err := m.store.Manifest(cp.PlanID, cp.CheckpointID)
	if err != nil {
		return fmt.Errorf("roll back: %w", err)
	}
	part, ok := man.part(cp.SandboxID)
	if !ok {
		return fmt.Errorf("roll back: checkpoint %s has no state of sandbox %s: %w", cp.CheckpointID, cp.SandboxID, agents.ErrNotFound)
	}
	if err := m.store.Verify(ctx, cp.PlanID, cp.CheckpointID); err != nil {
		return fmt.Errorf("roll back: %w", err)
	}
	dir := m.store.PartDir(cp.PlanID, cp.CheckpointID, cp.SandboxID)
	if err := sb.Restore(ctx, m.store.Objects(cp.PlanID, cp.SandboxID), dir, part.Ref); err != nil {
		return fmt.Errorf("roll back sandbox %s: %w", cp.SandboxID, err)
	}
	return nil
}

// ListCheckpoints returns the checkpoints of a sandbox, oldest first. Damaged
// ones are not listed.
func (m *Manager) ListCheckpoints(sandboxID string) ([]SandboxCheckpoint, error) {
	var out []SandboxCheckpoint
	err := m.each(func(man Manifest) error {
		if _, ok := man.part(sandboxID); ok {
			out = append(out, m.view(man, sandboxID))
		}
		return nil
	})
	return out, err
}

// each calls fn for every published manifest that can be read, in the order of
// ids, which is that of time, within a plan.
func (m *Manager) each(fn func(Manifest) error) error {
	plans, err := m.store.Plans()
	if err != nil {
		return err
	}
	for _, planID := range plans {
		published, err := m.store.Checkpoints(planID)
		if err != nil {
			return err
		}
		for _, id := range published {
			man, err := m.store.Manifest(planID, id)
			if errors.Is(err, agents.ErrDamaged) || errors.Is(err, agents.ErrNotFound) {
				continue
			}
			if err != nil {
				return err
			}
			if err := fn(man); err != nil {
				return err
			}
		}
	}
	return nil
}

// DeleteCheckpoint removes a checkpoint and frees what only it needed, as far
// as its sandboxes are known; see Attach. One that is not there is
// agents.ErrNotFound.
func (m *Manager) DeleteCheckpoint(ctx context.Context, checkpointID string) error {
	if err := valid("checkpoint", checkpointID); err != nil {
		return err
	}
	planID, err := m.planOf(checkpointID)
	if err != nil {
		return err
	}
	defer m.enter(planID)()
	man, err := m.store.Manifest(planID, checkpointID)
	if err != nil && !errors.Is(err, agents.ErrDamaged) {
		return fmt.Errorf("delete: %w", err)
	}
	keep := map[string][]string{}
	m.mu.Lock()
	for _, p := range man.Parts {
		if sb := m.sandboxes[p.SandboxID]; sb != nil {
			keep[p.SandboxID] = baseOf(sb)
		}
	}
	m.mu.Unlock()
	_, err = m.store.Delete(ctx, planID, []string{checkpointID}, keep)
	return err
}

func baseOf(sb Sandbox) []string {
	if ref := sb.BaseRef(); ref != "" {
		return []string{ref}
	}
	return nil
}

// planOf returns the plan that has a checkpoint.
func (m *Manager) planOf(checkpointID string) (string, error) {
	plans, err := m.store.Plans()
	if err != nil {
		return "", err
	}
	for _, planID := range plans {
		_, err := m.store.Manifest(planID, checkpointID)
		if !errors.Is(err, agents.ErrNotFound) {
			return planID, nil
		}
	}
	return "", fmt.Errorf("checkpoint %s: %w", checkpointID, agents.ErrNotFound)
}
