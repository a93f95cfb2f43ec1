package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/checkpoint"
	"github.com/cleveragents/agents/internal/fsx"
	"github.com/cleveragents/agents/metastore"
	"github.com/cleveragents/agents/sandbox"
)

// cut is a recorded state of all sandboxes of a plan at one moment. It is
// listed once it is published; until then its payload goes with the session.
type cut struct {
	stage *checkpoint.Stage
	parts []checkpoint.Part
	id    string // the checkpoint it was published as; "" = unlisted
}

// refs maps each sandbox to the state it had.
func (c *cut) refs() map[string]string {
	out := make(map[string]string, len(c.parts))
	for _, p := range c.parts {
		out[p.SandboxID] = p.Ref
	}
	return out
}

// drop gives up an unlisted cut.
func (c *cut) drop() {
	if c != nil && c.stage != nil && c.id == "" {
		c.stage.Discard()
	}
}

// capture records the present state of every sandbox that can be captured: a
// consistent cut, since nothing else of the plan runs. nil when checkpoints
// are off.
func (s *session) capture(ctx context.Context, label string) (*cut, error) {
	if !s.e.checkpointsOn() {
		return nil, nil
	}
	stage, err := s.e.payloads.Stage(s.plan.ID)
	if err != nil {
		return nil, err
	}
	c := &cut{stage: stage}
	for _, b := range s.boxes {
		if !b.Capabilities().Rollback {
			continue
		}
		part, err := s.captureBox(ctx, b, stage, label)
		if err != nil {
			stage.Discard()
			return nil, err
		}
		c.parts = append(c.parts, part)
	}
	return c, nil
}

// untouched is the present state if this session recorded it and nothing was
// written since, so that nobody need look; else nil.
func (s *session) untouched() *cut {
	if !s.e.checkpointsOn() {
		return nil
	}
	c := &cut{}
	for _, b := range s.boxes {
		if !b.Capabilities().Rollback {
			continue
		}
		if b.stale || len(b.touched) > 0 || b.ref == "" {
			return nil
		}
		c.parts = append(c.parts, checkpoint.Part{SandboxID: b.Record().ID, ResourceID: b.Record().ResourceID, Ref: b.ref})
	}
	return c
}

func (s *session) captureBox(ctx context.Context, b *box, stage *checkpoint.Stage, label string) (checkpoint.Part, error) {
	rec := b.Record()
	dir, err := stage.Dir(rec.ID)
	if err != nil {
		return checkpoint.Part{}, err
	}
	req := sandbox.CaptureRequest{Dir: dir, Label: label}
	if !b.stale {
		req.Paths = slices.AppendSeq([]string{}, maps.Keys(b.touched))
	}
	got, err := b.Capture(ctx, req)
	if err != nil {
		if fsx.IsNoSpace(err) {
			err = fmt.Errorf("%w: %w", err, agents.ErrNoSpace)
		}
		return checkpoint.Part{}, err
	}
	b.ref, b.stale, b.touched = got.Ref, false, nil
	s.notices = append(s.notices, got.Notices...)
	s.sayLeftOut(got.LeftOut)
	return checkpoint.Part{SandboxID: rec.ID, ResourceID: rec.ResourceID, Ref: got.Ref, SizeBytes: got.SizeBytes, LeftOut: got.LeftOut}, nil
}

// sayLeftOut names what no checkpoint of a sandbox holds: the first path, and
// how many more there are.
func (s *session) sayLeftOut(left []agents.PathReason) {
	if len(left) == 0 {
		return
	}
	more := ""
	if n := len(left) - 1; n > 0 {
		more = fmt.Sprintf(", and %d more", n)
	}
	s.say("%s is in no checkpoint, and a rollback leaves it alone: %s%s", agents.EscapePath(left[0].Path), left[0].Reason, more)
}

// mark says why a checkpoint is made.
type mark struct {
	kind     agents.CheckpointType
	meta     agents.CheckpointMetadata
	trigger  agents.Trigger // "" = a hook or a person asked
	resource string         // the id of the resource that the call works on
	always   bool           // a row is added even when nothing changed
}

// checkpoint records the present state as a checkpoint and returns its id and
// state. Where nothing changed since the row that the plan stands on, and the
// mark does not ask for a row of its own, that row is the answer.
func (s *session) checkpoint(ctx context.Context, m mark) (string, *cut, error) {
	if known := s.untouched(); known != nil && !m.always {
		id, err := s.sameState(ctx, known, m.trigger)
		if id != "" || err != nil {
			return id, known, err
		}
	}
	c, err := s.capture(ctx, m.meta.Reason)
	if c == nil || err != nil {
		return "", nil, err
	}
	id, err := s.publish(ctx, c, m)
	if err != nil {
		c.drop()
		return "", nil, err
	}
	return id, c, nil
}

func (s *session) publish(ctx context.Context, c *cut, m mark) (string, error) {
	if !m.always {
		id, err := s.sameState(ctx, c, m.trigger)
		if id != "" || err != nil {
			c.drop()
			return id, err
		}
	}
	cp := s.row(c, m)
	manifest := checkpoint.Manifest{CheckpointID: cp.ID, PlanID: s.plan.ID, CreatedAt: cp.CreatedAt, Parts: c.parts}
	if err := c.stage.Publish(ctx, manifest); err != nil {
		return "", err
	}
	c.id = cp.ID
	write := s.e.store.Write
	if m.trigger != "" {
		write = s.e.store.WriteLazily // part of a call or an execution, whose end is durable
	}
	err := write(ctx, func(tx *metastore.Tx) error {
		if err := tx.Checkpoints().Insert(&cp); err != nil {
			return err
		}
		if m.trigger != "" {
			if err := tx.Checkpoints().AddEvent(cp.ID, m.trigger); err != nil {
				return err
			}
		}
		return tx.Events().Append(&agents.Event{
			PlanID: s.plan.ID, Kind: "checkpoint.created", Message: "checkpoint: " + m.meta.Reason,
			Data: map[string]string{"checkpoint_id": cp.ID},
		})
	})
	if err != nil {
		return "", err
	}
	return cp.ID, s.prune(ctx)
}

func (s *session) row(c *cut, m mark) agents.Checkpoint {
	now := s.e.now()
	cp := agents.Checkpoint{
		ID: agents.NewID(now), PlanID: s.plan.ID, Type: m.kind, ResourceID: m.resource, CreatedAt: now, Metadata: m.meta,
	}
	cp.FilesystemPath = filepath.ToSlash(filepath.Join(s.plan.ID, cp.ID))
	for _, p := range c.parts {
		cp.SizeBytes += p.SizeBytes
		if cp.SandboxRef == "" || p.ResourceID == m.resource {
			cp.SandboxRef = p.Ref
		}
		cp.Refs = append(cp.Refs, agents.CheckpointRef{SandboxID: p.SandboxID, ResourceID: p.ResourceID, Ref: p.Ref, SizeBytes: p.SizeBytes})
	}
	return cp
}

// sameState returns the row that the plan stands on if it holds exactly this
// cut, and notes there that the trigger fired.
func (s *session) sameState(ctx context.Context, c *cut, trigger agents.Trigger) (id string, err error) {
	err = s.e.store.WriteLazily(ctx, func(tx *metastore.Tx) error {
		active, err := tx.Checkpoints().Active(s.plan.ID)
		if errors.Is(err, agents.ErrNotFound) {
			return nil
		}
		if err != nil || !maps.Equal(rowRefs(active), c.refs()) {
			return err
		}
		id = active.ID
		if trigger == "" {
			return nil
		}
		return tx.Checkpoints().AddEvent(active.ID, trigger)
	})
	return id, err
}

func rowRefs(cp agents.Checkpoint) map[string]string {
	out := make(map[string]string, len(cp.Refs))
	for _, r := range cp.Refs {
		out[r.SandboxID] = r.Ref
	}
	return out
}

// triggered makes a checkpoint for an automatic trigger, if it is listed in
// checkpoints.auto_create_on; else it records an unlisted state, so that a
// step's transaction does not depend on triggers.
func (s *session) triggered(ctx context.Context, m mark) (string, *cut, error) {
	if slices.Contains(s.e.set.Triggers, m.trigger) {
		return s.checkpoint(ctx, m)
	}
	c, err := s.capture(ctx, "unlisted")
	return "", c, err
}

// Pruning looks for objects that no state needs, which takes a walk over all
// states, when what went had added this many bytes, and at every so-manyth
// checkpoint: what is left in between is small.
const (
	collectBytes = 64 << 10
	collectEach  = 25
)

// prune keeps the plan within its number of checkpoints.
func (s *session) prune(ctx context.Context) error {
	var count int
	err := s.e.store.Read(ctx, func(tx *metastore.Tx) (err error) {
		count, err = tx.Checkpoints().Count(s.plan.ID)
		return err
	})
	if err != nil || count <= s.e.set.Retention.MaxCheckpoints {
		return err
	}
	rows, err := s.rows(ctx)
	if err != nil {
		return err
	}
	for i := range rows {
		rows[i].Pinned = rows[i].Pinned || slices.Contains(s.hold, rows[i].ID)
	}
	remove, over := s.e.set.Retention.Prune(rows)
	if over > 0 && s.e.set.Retention.AutoPrune {
		s.say("plan %s keeps %d checkpoints more than max-per-plan %d: the first, the newest and those in use always stay",
			s.plan.ID, over, s.e.set.Retention.MaxCheckpoints)
	}
	if len(remove) == 0 {
		return nil
	}
	var added int64
	for _, cp := range rows {
		if slices.Contains(remove, cp.ID) {
			added += cp.SizeBytes
		}
	}
	if added >= collectBytes || rows[len(rows)-1].Seq%collectEach == 0 {
		_, err = s.deleteRows(ctx, remove)
		return err
	}
	if err := s.e.store.WriteLazily(ctx, forget(remove)); err != nil {
		return err
	}
	_, err = s.e.payloads.Delete(ctx, s.plan.ID, remove, nil)
	return err
}

// forget deletes the rows of checkpoints.
func forget(ids []string) func(tx *metastore.Tx) error {
	return func(tx *metastore.Tx) error {
		for _, id := range ids {
			if err := tx.Checkpoints().Delete(id); err != nil {
				return err
			}
		}
		return nil
	}
}

// deleteRows deletes checkpoints, record first, and frees what no other state
// needs.
func (s *session) deleteRows(ctx context.Context, ids []string) (freed int64, err error) {
	if len(ids) == 0 {
		return 0, nil
	}
	err = s.e.store.Write(ctx, forget(ids))
	if err != nil || s.e.payloads == nil {
		return 0, err
	}
	keep, err := s.keptRefs(ctx)
	if err != nil {
		return 0, err
	}
	return s.e.payloads.Delete(ctx, s.plan.ID, ids, keep)
}

// keptRefs lists for each sandbox the states that something still refers to:
// the base, the listed checkpoints, and what the session itself holds.
func (s *session) keptRefs(ctx context.Context) (map[string][]string, error) {
	rows, err := s.rows(ctx)
	if err != nil {
		return nil, err
	}
	keep := map[string][]string{}
	for _, b := range s.boxes {
		rec := b.Record()
		keep[rec.ID] = appendKnown(keep[rec.ID], rec.BaseRef, b.ref)
	}
	for _, cp := range rows {
		for _, r := range cp.Refs {
			keep[r.SandboxID] = appendKnown(keep[r.SandboxID], r.Ref)
		}
	}
	for id, ref := range s.inflightRefs() {
		keep[id] = appendKnown(keep[id], ref)
	}
	return keep, nil
}

func appendKnown(list []string, refs ...string) []string {
	for _, r := range refs {
		if r != "" && !slices.Contains(list, r) {
			list = append(list, r)
		}
	}
	return list
}

func (s *session) rows(ctx context.Context) (rows []agents.Checkpoint, err error) {
	err = s.e.store.Read(ctx, func(tx *metastore.Tx) error {
		rows, err = tx.Checkpoints().List(s.plan.ID)
		return err
	})
	return rows, err
}

// newestRef is the state of a sandbox in the checkpoint that the plan stands
// on, or in the newest one that has it, or its base.
func (s *session) newestRef(ctx context.Context, rec agents.SandboxRecord) (string, error) {
	rows, err := s.rows(ctx)
	if err != nil {
		return "", err
	}
	ref := rec.BaseRef
	for _, cp := range rows {
		if r := rowRefs(cp)[rec.ID]; r != "" && !cp.Damaged {
			ref = r
		}
		if cp.Active && rowRefs(cp)[rec.ID] != "" && !cp.Damaged {
			return rowRefs(cp)[rec.ID], nil
		}
	}
	return ref, nil
}

// room makes sure, before a writing call, that its checkpoint will find room:
// within the plan's and the total byte quota and sandbox.min-free. At 80 % it
// warns, at 100 % it prunes interior checkpoints, and if that does not help
// the call is refused with agents.ErrNoSpace.
func (s *session) room(ctx context.Context) error {
	if !s.e.checkpointsOn() {
		return nil
	}
	quota := checkpoint.Quota{PerPlan: s.e.set.PlanQuota, Total: s.e.set.TotalQuota, MinFreePercent: s.e.set.MinFreePercent}
	verdict, err := s.e.payloads.Check(s.plan.ID, quota)
	if err != nil {
		return err
	}
	if verdict.Full {
		rows, err := s.rows(ctx)
		if err != nil {
			return err
		}
		tight := agents.RetentionPolicy{MaxCheckpoints: 1, AutoPrune: true}
		remove, _ := tight.Prune(rows)
		if _, err := s.deleteRows(ctx, remove); err != nil {
			return err
		}
		if verdict, err = s.e.payloads.Check(s.plan.ID, quota); err != nil {
			return err
		}
		if len(remove) > 0 {
			s.say("%d interior checkpoints were pruned: %s", len(remove), verdict.Reason)
		}
	}
	switch {
	case verdict.Full:
		return agents.WithHint(fmt.Errorf("checkpoints: %s: %w", verdict.Reason, agents.ErrNoSpace),
			"free space, raise sandbox.checkpoint.quota, or delete checkpoints: agents plan checkpoint delete %s ID", s.plan.ID)
	case verdict.Warn:
		s.say("%s", verdict.Reason)
	}
	return nil
}

// Checkpoints lists a plan's checkpoints, oldest first, with Damaged set where
// the payload is not there or not whole; a resource narrows the list to those
// that hold a state of it.
func (e *Engine) Checkpoints(ctx context.Context, plan, resource string) (out []agents.Checkpoint, err error) {
	var p agents.Plan
	err = e.store.Read(ctx, func(tx *metastore.Tx) error {
		if p, err = tx.Plans().Resolve(plan); err != nil {
			return err
		}
		out, err = tx.Checkpoints().List(p.ID)
		return err
	})
	if err != nil {
		return nil, err
	}
	for i := range out {
		if e.payloads != nil && !out[i].Damaged {
			_, err := e.payloads.Manifest(p.ID, out[i].ID)
			out[i].Damaged = err != nil
		}
	}
	if resource == "" {
		return out, nil
	}
	r, err := pickResource(p.Resources, resource)
	if err != nil {
		return nil, err
	}
	r = p.Boundary(r)
	return slices.DeleteFunc(out, func(cp agents.Checkpoint) bool {
		return !slices.ContainsFunc(cp.Refs, func(ref agents.CheckpointRef) bool { return ref.ResourceID == r.ID })
	}), nil
}

// Checkpoint returns one checkpoint of a plan, with Damaged set if its payload
// does not verify now.
func (e *Engine) Checkpoint(ctx context.Context, plan, ref string) (agents.Checkpoint, error) {
	cp, err := e.checkpointRow(ctx, plan, ref)
	if err != nil || e.payloads == nil || cp.Damaged {
		return cp, err
	}
	err = e.payloads.Verify(ctx, cp.PlanID, cp.ID)
	if errors.Is(err, agents.ErrDamaged) || errors.Is(err, agents.ErrNotFound) {
		cp.Damaged = true
		err = nil
	}
	return cp, err
}

func (e *Engine) checkpointRow(ctx context.Context, plan, ref string) (cp agents.Checkpoint, err error) {
	err = e.store.Read(ctx, func(tx *metastore.Tx) error {
		p, err := tx.Plans().Resolve(plan)
		if err != nil {
			return err
		}
		cp, err = tx.Checkpoints().Resolve(p.ID, ref)
		return err
	})
	return cp, err
}

// CheckpointShowCommand returns a git command line that shows what the
// checkpoint changed against the base, or "" where there is none.
func (e *Engine) CheckpointShowCommand(_ context.Context, cp agents.Checkpoint) (string, error) {
	if e.payloads == nil || cp.SandboxRef == "" || cp.Damaged {
		return "", nil
	}
	for _, r := range cp.Refs {
		if r.Ref == cp.SandboxRef {
			return fmt.Sprintf("git --git-dir=%s show %s", shellQuote(e.payloads.Objects(cp.PlanID, r.SandboxID)), r.Ref), nil
		}
	}
	return "", nil
}

// CreateCheckpoint makes a manual checkpoint of the present state.
func (e *Engine) CreateCheckpoint(ctx context.Context, req CheckpointRequest) (agents.Checkpoint, error) {
	if !e.checkpointsOn() {
		return agents.Checkpoint{}, fmt.Errorf("checkpoints are off (sandbox.checkpoint.enabled): %w", agents.ErrBlocked)
	}
	s, err := e.open(ctx, req.Plan, "plan checkpoint create")
	if err != nil {
		return agents.Checkpoint{}, err
	}
	defer s.close()
	if s.plan.State == agents.PlanApplied {
		return agents.Checkpoint{}, &agents.StateError{What: "plan " + s.plan.ID, From: s.plan.Position().String(), To: "CHECKPOINT"}
	}
	for _, b := range s.boxes {
		if err := b.Open(ctx); err != nil {
			return agents.Checkpoint{}, err
		}
	}
	if err := s.room(ctx); err != nil {
		return agents.Checkpoint{}, err
	}
	reason := req.Reason
	if reason == "" {
		reason = "manual"
	}
	meta := agents.CheckpointMetadata{Reason: reason, Phase: string(s.plan.Phase)}
	id, _, err := s.checkpoint(ctx, mark{kind: agents.CheckpointManual, meta: meta, always: true})
	if err != nil {
		return agents.Checkpoint{}, err
	}
	return e.checkpointRow(ctx, s.plan.ID, id)
}

// DeleteCheckpoints removes checkpoints of a plan and returns their ids and
// the bytes freed. One that a decision, the resume point or the plan itself
// stands on is agents.ErrBlocked, and then none is removed.
func (e *Engine) DeleteCheckpoints(ctx context.Context, plan string, refs []string) ([]string, int64, error) {
	s, err := e.open(ctx, plan, "plan checkpoint delete")
	if err != nil {
		return nil, 0, err
	}
	defer s.close()
	var ids []string
	for _, ref := range refs {
		cp, err := e.checkpointRow(ctx, s.plan.ID, ref)
		if err != nil {
			return nil, 0, err
		}
		if cp.Pinned {
			return nil, 0, agents.WithHint(fmt.Errorf("checkpoint %s is in use: the plan, a step or a decision stands on it: %w", cp.ID, agents.ErrBlocked),
				"roll back to another checkpoint first")
		}
		if !slices.Contains(ids, cp.ID) {
			ids = append(ids, cp.ID)
		}
	}
	freed, err := s.deleteRows(ctx, ids)
	return ids, freed, err
}
