package engine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/fsx"
	"github.com/cleveragents/agents/metastore"
	"github.com/cleveragents/agents/sandbox"
)

// removeEmpty removes a folder of the plan if nothing is in it any more.
func removeEmpty(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(entries) > 0 {
		return nil
	}
	if err != nil {
		return err
	}
	return fsx.Remove(dir)
}

// removeAll removes the plan's sandboxes and the payloads of its checkpoints;
// the newest pre_apply payload stays for undo, and every row. It returns how
// many payloads went.
func (s *session) removeAll(ctx context.Context) (int, error) {
	for _, b := range slices.Clone(s.boxes) {
		if err := b.Cleanup(ctx); err != nil {
			return 0, err
		}
		s.event(ctx, "sandbox.removed", fmt.Sprintf("sandbox of %s removed", b.Resource().Name), nil)
	}
	boxes := s.boxes
	s.boxes = nil
	if err := s.removeTraces(ctx, boxes); err != nil {
		return 0, err
	}
	if s.e.payloads == nil {
		return 0, nil
	}
	rows, err := s.rows(ctx)
	if err != nil {
		return 0, err
	}
	keep := map[string][]string{}
	var undo string
	if s.plan.State == agents.PlanApplied {
		undo = newestHook(rows, agents.PhasePreApply)
	}
	if undo == "" {
		return len(rows), s.removePayloads(ctx)
	}
	var gone []string
	for _, cp := range rows {
		if cp.ID != undo {
			gone = append(gone, cp.ID)
			continue
		}
		for _, r := range cp.Refs {
			keep[r.SandboxID] = append(keep[r.SandboxID], r.Ref)
		}
	}
	for _, b := range boxes {
		keep[b.Record().ID] = appendKnown(keep[b.Record().ID], b.Record().BaseRef)
	}
	_, err = s.e.payloads.Delete(ctx, s.plan.ID, gone, keep)
	return len(gone), err
}

// removePayloads takes the plan's checkpoints away: into its archive, so that
// bringing the work back brings them back, or for good where there is none.
func (s *session) removePayloads(ctx context.Context) error {
	if _, err := s.e.archiveManifest(s.plan.ID); err == nil && s.plan.State != agents.PlanApplied {
		return s.e.payloads.TakeOut(ctx, s.plan.ID, s.e.archivedCheckpoints(s.plan.ID))
	}
	_, err := s.e.payloads.RemovePlan(ctx, s.plan.ID)
	return err
}

// removeTraces removes what is of no use without the sandboxes: the plan's
// private folder, and the journals of applies that were taken back.
func (s *session) removeTraces(ctx context.Context, boxes []*box) error {
	if s.plan.State != agents.PlanApplied {
		for _, b := range boxes {
			if b.Record().ApplyState == agents.ApplyApplied {
				continue // undo needs it
			}
			if err := s.removeJournal(ctx, b); err != nil {
				return err
			}
		}
	}
	return errors.Join(removeEmpty(filepath.Join(s.e.set.DataDir, "private", s.plan.ID)), removeEmpty(filepath.Join(s.e.set.DataDir, "journal", s.plan.ID)))
}

// removeJournal removes the journal of an apply that was taken back.
func (s *session) removeJournal(ctx context.Context, b *box) error {
	dir := s.e.journalDir(s.plan.ID, b.Record().ID)
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	ended, err := b.Recover(ctx, dir)
	if err != nil && !errors.Is(err, agents.ErrUnsupported) {
		return err
	}
	s.sayOf(b, ended.Notices)
	return fsx.RemoveAll(dir)
}

func newestHook(rows []agents.Checkpoint, phase agents.CheckpointPhase) string {
	for _, cp := range slices.Backward(rows) {
		if cp.Metadata.Phase == string(phase) {
			return cp.ID
		}
	}
	return ""
}

// again makes a sandbox that is gone anew, on the base of its earlier life, in
// the state that ref names.
func (s *session) again(ctx context.Context, gone *box, ref string) (*box, error) {
	rec := gone.Record()
	strategy, err := s.e.strategies.Lookup(rec.Strategy)
	if err != nil {
		return nil, err
	}
	fresh := agents.SandboxRecord{ID: rec.ID, PlanID: rec.PlanID, ResourceID: rec.ResourceID, Strategy: rec.Strategy}
	cfg := s.e.sandboxConfig(s.plan, rec)
	cfg.Like = maps.Clone(rec.Metadata)
	cfg.Like[sandbox.MetaBaseRef] = rec.BaseRef
	b := &box{Sandbox: sandbox.New(strategy, fresh, gone.Resource(), cfg), stale: true}
	if err := s.create(ctx, b); err != nil {
		return nil, err
	}
	if ref != "" {
		if _, err := b.Restore(ctx, sandbox.RestoreRequest{Ref: ref}); err != nil {
			return nil, fmt.Errorf("put back the recorded state of %s: %w", b.Resource().Name, err)
		}
		b.stale = true
	}
	if i := slices.Index(s.boxes, gone); i >= 0 {
		s.boxes[i] = b
	} else {
		s.boxes = append(s.boxes, b)
	}
	return b, nil
}

// Cleanup removes the sandboxes of ended plans; unapplied work in them is
// archived first. What belongs to a plan that is not ended, or is held by a
// live process, is kept and named (DESIGN §12).
func (e *Engine) Cleanup(ctx context.Context, req CleanupRequest) (agents.CleanupResult, error) {
	out := agents.CleanupResult{Policy: string(e.set.Cleanup), PolicySource: e.set.CleanupSource, DryRun: req.DryRun}
	plans, err := e.Plans(ctx)
	if err != nil {
		return out, err
	}
	if req.Plan != "" {
		p, err := e.Plan(ctx, req.Plan)
		if err != nil {
			return out, err
		}
		plans = []agents.Plan{p}
	}
	var errs []error
	for _, p := range plans { // one that cannot go keeps no other
		if err := e.cleanPlan(ctx, p, &out); err != nil {
			errs = append(errs, fmt.Errorf("plan %s: %w", p.ID, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return out, err
	}
	if !req.DryRun && e.payloads != nil {
		freed, err := e.payloads.Sweep(ctx, e.knownPayload(ctx))
		out.FreedBytes += freed
		if err != nil {
			return out, err
		}
		if freed, err = e.sweepShared(ctx); err != nil {
			return out, err
		}
		out.FreedBytes += freed
	}
	return out, e.expireArchives()
}

// CleanupStatus tells what Cleanup would do now.
func (e *Engine) CleanupStatus(ctx context.Context) (agents.CleanupResult, error) {
	return e.Cleanup(ctx, CleanupRequest{DryRun: true})
}

func (e *Engine) cleanPlan(ctx context.Context, p agents.Plan, out *agents.CleanupResult) error {
	var records []agents.SandboxRecord
	err := e.store.Read(ctx, func(tx *metastore.Tx) (err error) {
		records, err = tx.Sandboxes().ByPlan(p.ID)
		return err
	})
	if err != nil {
		return err
	}
	records = slices.DeleteFunc(records, func(rec agents.SandboxRecord) bool { return !rec.Status.Live() })
	switch {
	case len(records) == 0:
		return nil
	case fsx.Held(e.planLockFile(p.ID)):
		return e.keep(records, "plan "+p.ID+" is running", out)
	case !p.Terminal():
		return e.keep(records, fmt.Sprintf("plan %s is %s: apply it or cancel it", p.ID, p.Position()), out)
	case out.DryRun:
		for _, rec := range records {
			out.Removed = append(out.Removed, rec.Path)
		}
		return nil
	}
	s, err := e.open(ctx, p.ID, "cleanup")
	if errors.Is(err, agents.ErrLocked) {
		return e.keep(records, "plan "+p.ID+" is running", out)
	}
	if err != nil {
		return err
	}
	defer s.close()
	archived, err := s.archiveUnapplied(ctx)
	if err != nil {
		return err
	}
	if archived != nil {
		out.Archived = append(out.Archived, *archived)
	}
	before, _ := e.usage(p.ID)
	if _, err := s.removeAll(ctx); err != nil {
		return err
	}
	after, _ := e.usage(p.ID)
	out.FreedBytes += before - after
	for _, rec := range records {
		out.Removed = append(out.Removed, rec.Path)
	}
	return nil
}

func (e *Engine) usage(planID string) (int64, error) {
	if e.payloads == nil {
		return 0, nil
	}
	return e.payloads.Usage(planID)
}

func (e *Engine) keep(records []agents.SandboxRecord, why string, out *agents.CleanupResult) error {
	for _, rec := range records {
		out.Kept = append(out.Kept, agents.KeptItem{What: rec.Path, Why: why})
	}
	return nil
}

// carryOver takes into a new archive what the older one has of resources that
// have no sandbox any more: a removal that was killed has taken some already.
func (s *session) carryOver(ctx context.Context, tmp string, m *archiveManifest) error {
	old, err := s.e.archiveManifest(s.plan.ID)
	if err != nil {
		return ignoreNotFound(err)
	}
	for _, entry := range old.Sandboxes {
		same := func(a archivedSandbox) bool { return a.ResourceID == entry.ResourceID }
		if slices.ContainsFunc(m.Sandboxes, same) {
			continue
		}
		if _, err := fsx.CopyTree(ctx, filepath.Join(s.e.archiveDir(s.plan.ID), entry.SandboxID), filepath.Join(tmp, entry.SandboxID)); err != nil {
			return errors.Join(err, fsx.RemoveAll(tmp))
		}
		m.Sandboxes = append(m.Sandboxes, entry)
	}
	return nil
}
