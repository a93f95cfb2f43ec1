package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/fsx"
	"github.com/cleveragents/agents/metastore"
	"github.com/cleveragents/agents/sandbox"
)

// Start ends what killed processes left half-done and removes what nobody
// holds and no plan needs: sandboxes that were never finished, payloads without
// a row, archives past their time. It takes only what no live process holds
// and waits for nobody (DESIGN §12). Commands that change something call it
// first; a failure to clean is logged and shown by doctor, and stops nothing.
func (e *Engine) Start(ctx context.Context) error {
	if e.store.ReadOnly() {
		return nil
	}
	lock, err := fsx.TryLock(filepath.Join(e.set.DataDir, "locks", "sweep.lock"), "sweep")
	if errors.Is(err, agents.ErrLocked) {
		return nil // another process is sweeping
	}
	if err != nil {
		return err
	}
	defer lock.Release()
	ids, err := e.unfinished(ctx)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if err := e.endPlan(ctx, id); err != nil && !errors.Is(err, agents.ErrLocked) {
			e.notify(fmt.Sprintf("plan %s: what a killed process left could not be ended: %v", id, err))
		}
	}
	if e.payloads == nil {
		return nil
	}
	if _, err := e.payloads.Sweep(ctx, e.knownPayload(ctx)); err != nil {
		e.log.Warn("checkpoint payloads not swept", "error", err)
	}
	return e.expireArchives()
}

// unfinished lists the plans that a killed process may have left half-done.
func (e *Engine) unfinished(ctx context.Context) (ids []string, err error) {
	add := func(id string) {
		if agents.ValidID(id) && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	for _, pattern := range []string{"journal/*/apply.json", "journal/*/undo.json", "private/*/inflight.json"} {
		found, err := filepath.Glob(filepath.Join(e.set.DataDir, filepath.FromSlash(pattern)))
		if err != nil {
			return nil, err
		}
		for _, file := range found {
			add(filepath.Base(filepath.Dir(file)))
		}
	}
	folders, err := filepath.Glob(filepath.Join(e.set.DataDir, "private", "*", "*"))
	if err != nil {
		return nil, err
	}
	for _, suffix := range []string{".new", ".old"} {
		found, err := filepath.Glob(filepath.Join(e.set.DataDir, "archive", "*"+suffix))
		if err != nil {
			return nil, err
		}
		for _, folder := range found {
			add(strings.TrimSuffix(filepath.Base(folder), suffix))
		}
	}
	live := map[string]bool{}
	err = e.store.Read(ctx, func(tx *metastore.Tx) error {
		plans, err := tx.Plans().Live()
		if err != nil {
			return err
		}
		for _, p := range plans {
			if p.State == agents.PlanProcessing {
				add(p.ID)
			}
		}
		records, err := tx.Sandboxes().Live()
		for _, rec := range records {
			live[rec.ID] = true
		}
		return err
	})
	for _, folder := range folders {
		if id := filepath.Base(folder); agents.ValidID(id) && !live[id] {
			add(filepath.Base(filepath.Dir(folder)))
		}
	}
	return ids, err
}

// endPlan ends what was left half-done in one plan, unless somebody holds it.
func (e *Engine) endPlan(ctx context.Context, planID string) error {
	lock, err := fsx.TryLock(e.planLockFile(planID), "sweep")
	if err != nil {
		return err
	}
	s := &session{e: e, lock: lock, pending: map[string]agents.SandboxRecord{}}
	defer s.close()
	if err := s.load(ctx, planID); err != nil {
		return err
	}
	if err := s.endKilled(ctx); err != nil {
		return err
	}
	if err := s.removeHalfMade(ctx); err != nil {
		return err
	}
	return s.endArchive()
}

// endArchive ends an archiving that was killed: a half-made archive goes, and
// an older one that was about to be replaced stays unless the new one is there.
func (s *session) endArchive() error {
	dir := s.e.archiveDir(s.plan.ID)
	if err := fsx.RemoveAll(dir + ".new"); err != nil {
		return err
	}
	old := dir + ".old"
	if _, err := os.Lstat(old); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return fsx.PublishRename(old, dir)
	}
	return fsx.RemoveAll(old)
}

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

// removeHalfMade removes what a killed create or a killed cleanup left: the
// private folder of a sandbox tells of it.
func (s *session) removeHalfMade(ctx context.Context) error {
	var records []agents.SandboxRecord
	err := s.e.store.Read(ctx, func(tx *metastore.Tx) (err error) {
		records, err = tx.Sandboxes().ByPlan(s.plan.ID)
		return err
	})
	if err != nil {
		return err
	}
	for _, rec := range records {
		if rec.Status.Live() {
			continue
		}
		if _, err := os.Lstat(s.e.privateDir(s.plan.ID, rec.ID)); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		b, err := s.box(rec)
		if err != nil {
			return err
		}
		if err := b.Cleanup(ctx); err != nil {
			return err
		}
		s.say("plan %s: removed what was left of a half-made sandbox of %s", s.plan.ID, b.Resource().Name)
	}
	return nil
}

// knownPayload tells the sweep which checkpoints have a row. The rows of a plan
// are read once, after the sweep has seen its payloads. One without a row is
// known too while somebody works on the plan: its row may be about to come.
func (e *Engine) knownPayload(ctx context.Context) func(planID, checkpointID string) bool {
	rows := map[string]map[string]bool{}
	return func(planID, checkpointID string) bool {
		if rows[planID] == nil {
			ids, err := e.checkpointIDs(ctx, planID)
			if err != nil {
				return true
			}
			rows[planID] = ids
		}
		if rows[planID][checkpointID] || fsx.Held(e.planLockFile(planID)) {
			return true
		}
		ids, err := e.checkpointIDs(ctx, planID) // it may have come just before the lock was let go
		return err != nil || ids[checkpointID]
	}
}

func (e *Engine) checkpointIDs(ctx context.Context, planID string) (map[string]bool, error) {
	ids := map[string]bool{}
	err := e.store.Read(ctx, func(tx *metastore.Tx) error {
		rows, err := tx.Checkpoints().List(planID)
		for _, cp := range rows {
			ids[cp.ID] = true
		}
		return err
	})
	return ids, err
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
	if err := s.removeTraces(boxes); err != nil {
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
		_, err := s.e.payloads.RemovePlan(ctx, s.plan.ID)
		return len(rows), err
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

// removeTraces removes what is of no use without the sandboxes: the plan's
// private folder, and the journals of applies that were taken back.
func (s *session) removeTraces(boxes []*box) error {
	if s.plan.State != agents.PlanApplied {
		for _, b := range boxes {
			if err := fsx.RemoveAll(s.e.journalDir(s.plan.ID, b.Record().ID)); err != nil {
				return err
			}
		}
	}
	return errors.Join(removeEmpty(filepath.Join(s.e.set.DataDir, "private", s.plan.ID)), removeEmpty(filepath.Join(s.e.set.DataDir, "journal", s.plan.ID)))
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
	cfg := s.e.sandboxConfig(s.plan, rec.ID)
	cfg.Like = rec.Metadata
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

// Cancel ends a plan without applying it. Its sandboxes stay unless the
// cleanup policy is on_terminal or Discard asks; unapplied work is archived
// before they go, and the result names the command that brings it back.
func (e *Engine) Cancel(ctx context.Context, req CancelRequest) (agents.CancelResult, error) {
	s, err := e.open(ctx, req.Plan, "plan cancel")
	if err != nil {
		return agents.CancelResult{}, err
	}
	defer s.close()
	out := agents.CancelResult{Plan: s.plan, Reason: req.Reason}
	if s.plan.State == agents.PlanCancelled && !req.Discard {
		return out, &agents.StateError{What: "plan " + s.plan.ID, From: s.plan.Position().String(), To: "cancelled"}
	}
	if s.plan.State != agents.PlanCancelled {
		if err := s.move(ctx, agents.PhaseExecute, agents.PlanCancelled, nil); err != nil {
			return out, err
		}
		s.event(ctx, "plan.cancelled", "plan cancelled: "+req.Reason, nil)
	}
	out.Plan = s.plan
	if !req.Discard && e.set.Cleanup != CleanOnTerminal {
		for _, b := range s.boxes {
			out.Sandboxes = append(out.Sandboxes, agents.CancelledSandbox{Resource: b.Resource().Name, Status: b.Status(), Kept: true})
		}
		if len(s.boxes) > 0 {
			out.Recovery = []string{"agents plan rollback " + s.plan.ID + " CHECKPOINT   # reopens the plan", "agents cleanup   # archives and removes it"}
		}
		return out, nil
	}
	boxes := slices.Clone(s.boxes)
	archived, err := s.archiveUnapplied(ctx)
	if err != nil {
		return out, err
	}
	if archived != nil {
		out.Recovery = []string{archived.Restore}
	}
	_, err = s.removeAll(ctx)
	for _, b := range boxes {
		out.Sandboxes = append(out.Sandboxes, agents.CancelledSandbox{Resource: b.Resource().Name, Status: b.Status(), Kept: b.Status().Live()})
	}
	return out, err
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
	for _, p := range plans {
		if err := e.cleanPlan(ctx, p, &out); err != nil {
			return out, err
		}
	}
	if !req.DryRun && e.payloads != nil {
		freed, err := e.payloads.Sweep(ctx, e.knownPayload(ctx))
		out.FreedBytes += freed
		if err != nil {
			return out, err
		}
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

// Leftovers lists what the sweep could not remove, for doctor.
func (e *Engine) Leftovers(ctx context.Context) ([]agents.KeptItem, error) {
	ids, err := e.unfinished(ctx)
	var out []agents.KeptItem
	for _, id := range ids {
		why := "a killed process left it; the next command that changes something ends it"
		if fsx.Held(e.planLockFile(id)) {
			why = "a live process holds it: " + fsx.LockNote(e.planLockFile(id))
		}
		out = append(out, agents.KeptItem{What: "plan " + id, Why: why})
	}
	return out, err
}

// archiveManifest is what an archive says about itself.
type archiveManifest struct {
	PlanID    string            `json:"plan_id"`
	CreatedAt time.Time         `json:"created_at"`
	Sandboxes []archivedSandbox `json:"sandboxes"`
}

type archivedSandbox struct {
	SandboxID  string              `json:"sandbox_id"`
	ResourceID string              `json:"resource_id"`
	Strategy   agents.StrategyName `json:"strategy"`
	Metadata   map[string]string   `json:"metadata"`
}

// archiveUnapplied archives the plan's work if any of it is unapplied.
func (s *session) archiveUnapplied(ctx context.Context) (*agents.Archive, error) {
	for _, b := range s.boxes {
		if b.Open(ctx) != nil {
			continue // its directory is gone: there is nothing to archive
		}
		work, err := b.Unapplied(ctx)
		if errors.Is(err, agents.ErrUnsupported) && !b.Capabilities().Isolates {
			continue
		}
		if err != nil {
			return nil, err
		}
		if !work {
			continue
		}
		if err := s.archive(ctx); err != nil {
			return nil, err
		}
		a, err := s.e.readArchive(s.plan.ID)
		return &a, err
	}
	return nil, nil
}

// archive writes all sandboxes of the plan into its archive, replacing an
// older one of the same plan only when the new one is whole.
func (s *session) archive(ctx context.Context) error {
	dir := s.e.archiveDir(s.plan.ID)
	tmp := dir + ".new"
	if err := s.endArchive(); err != nil {
		return err
	}
	if err := fsx.MkdirAll(tmp, 0o700); err != nil {
		return err
	}
	m := archiveManifest{PlanID: s.plan.ID, CreatedAt: s.e.now()}
	for _, b := range s.boxes {
		if !b.Capabilities().Isolates || b.Open(ctx) != nil {
			continue
		}
		rec := b.Record()
		folder := filepath.Join(tmp, rec.ID)
		if err := fsx.MkdirAll(folder, 0o700); err != nil {
			return err
		}
		if err := b.Archive(ctx, folder); err != nil {
			return errors.Join(err, fsx.RemoveAll(tmp))
		}
		m.Sandboxes = append(m.Sandboxes, archivedSandbox{SandboxID: rec.ID, ResourceID: rec.ResourceID, Strategy: rec.Strategy, Metadata: rec.Metadata})
	}
	data, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	if err := fsx.WriteFile(filepath.Join(tmp, "manifest.json"), data, 0o600); err != nil {
		return err
	}
	old := dir + ".old"
	if _, err := os.Lstat(dir); err == nil {
		if err := fsx.Rename(dir, old); err != nil {
			return err
		}
	}
	if err := fsx.PublishRename(tmp, dir); err != nil {
		return err
	}
	s.say("unapplied work of plan %s was archived; agents cleanup archive restore %s brings it back", s.plan.ID, s.plan.ID)
	return fsx.RemoveAll(old)
}

// Archives lists the archives, oldest first.
func (e *Engine) Archives(context.Context) ([]agents.Archive, error) {
	entries, err := os.ReadDir(filepath.Join(e.set.DataDir, "archive"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var out []agents.Archive
	for _, entry := range entries {
		if !agents.ValidID(entry.Name()) {
			continue
		}
		a, err := e.readArchive(entry.Name())
		if err != nil {
			return out, err
		}
		out = append(out, a)
	}
	return out, nil
}

func (e *Engine) readArchive(planID string) (agents.Archive, error) {
	m, err := e.archiveManifest(planID)
	if err != nil {
		return agents.Archive{}, err
	}
	return agents.Archive{
		ID: planID, PlanID: planID, Path: e.archiveDir(planID), SizeBytes: treeSize(e.archiveDir(planID)), CreatedAt: m.CreatedAt,
		ExpiresAt: m.CreatedAt.Add(e.set.ArchiveKeep), Restore: "agents cleanup archive restore " + planID,
	}, nil
}

func (e *Engine) archiveManifest(planID string) (m archiveManifest, err error) {
	data, err := os.ReadFile(filepath.Join(e.archiveDir(planID), "manifest.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return m, fmt.Errorf("archive %s: %w", planID, agents.ErrNotFound)
	}
	if err == nil {
		err = json.Unmarshal(data, &m)
	}
	if err != nil {
		return m, fmt.Errorf("archive %s: %w: %w", planID, agents.ErrDamaged, err)
	}
	return m, nil
}

// RestoreArchive makes the sandboxes of an archived plan again and reopens the
// plan. The archive stays until its time is over.
func (e *Engine) RestoreArchive(ctx context.Context, ref string) (agents.Plan, error) {
	s, err := e.open(ctx, ref, "cleanup archive restore")
	if err != nil {
		return agents.Plan{}, err
	}
	defer s.close()
	m, err := e.archiveManifest(s.plan.ID)
	if err != nil {
		return s.plan, err
	}
	if len(s.boxes) > 0 {
		return s.plan, fmt.Errorf("plan %s has sandboxes already: %w", s.plan.ID, agents.ErrExists)
	}
	for _, entry := range m.Sandboxes {
		if err := s.unarchive(ctx, entry); err != nil {
			detached, cancel := sandbox.Detach(ctx)
			defer cancel()
			for _, b := range s.boxes {
				err = errors.Join(err, b.Cleanup(detached))
			}
			return s.plan, err
		}
	}
	if s.plan.State == agents.PlanCancelled {
		if err := s.move(ctx, agents.PhaseExecute, agents.PlanQueued, nil); err != nil {
			return s.plan, err
		}
	}
	s.event(ctx, "archive.restored", "archived work brought back", nil)
	return s.plan, nil
}

func (s *session) unarchive(ctx context.Context, entry archivedSandbox) error {
	strategy, err := s.e.strategies.Lookup(entry.Strategy)
	if err != nil {
		return err
	}
	r, err := pickResource(s.plan.Resources, entry.ResourceID)
	if err != nil {
		return err
	}
	rec := agents.SandboxRecord{ID: agents.NewID(s.e.now()), PlanID: s.plan.ID, ResourceID: r.ID, Strategy: entry.Strategy}
	cfg := s.e.sandboxConfig(s.plan, rec.ID)
	cfg.Like = entry.Metadata
	b := &box{Sandbox: sandbox.New(strategy, rec, r, cfg), stale: true}
	if _, err := b.Unarchive(ctx, s.plan.ID, filepath.Join(s.e.archiveDir(s.plan.ID), entry.SandboxID)); err != nil {
		return err
	}
	s.boxes = append(s.boxes, b)
	return nil
}

// expireArchives removes archives past their time.
func (e *Engine) expireArchives() error {
	all, err := e.Archives(context.Background())
	if err != nil {
		return err
	}
	for _, a := range all {
		if e.now().After(a.ExpiresAt) {
			if err := fsx.RemoveAll(a.Path); err != nil {
				return err
			}
			e.notify(fmt.Sprintf("archive of plan %s was kept %s and is removed now", a.PlanID, strings.TrimSuffix(e.set.ArchiveKeep.String(), "0m0s")))
		}
	}
	return nil
}
