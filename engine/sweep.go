package engine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/fsx"
	"github.com/cleveragents/agents/metastore"
)

// Start ends what killed processes left half-done and removes what nobody
// holds and no plan needs: sandboxes that were never finished, payloads without
// a row, archives past their time. It takes only what no live process holds
// and waits for nobody (DESIGN §12). Commands that change something call it
// first; a failure to clean is logged and shown by doctor, and stops nothing.
// A metadata store that cannot be written is an error: nothing that changes
// anything could be recorded.
func (e *Engine) Start(ctx context.Context) error {
	if err := e.store.Writable(); err != nil {
		return err
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
	if _, err := e.sweepShared(ctx); err != nil {
		e.log.Warn("what sandboxes shared was not swept", "error", err)
	}
	return e.expireArchives()
}

// sweepShared removes what sandboxes of a resource shared once the resource
// has no sandbox any more, archived ones included.
func (e *Engine) sweepShared(ctx context.Context) (freed int64, err error) {
	used, err := e.sandboxedResources(ctx)
	if err != nil {
		return 0, err
	}
	return e.payloads.SweepShared(func(id string) bool { return used[id] })
}

// sandboxedResources returns the resources that a sandbox or an archive of one
// belongs to.
func (e *Engine) sandboxedResources(ctx context.Context) (map[string]bool, error) {
	used := map[string]bool{}
	err := e.store.Read(ctx, func(tx *metastore.Tx) error {
		records, err := tx.Sandboxes().All()
		for _, rec := range records {
			if rec.Status != agents.SandboxCleanedUp {
				used[rec.ResourceID] = true
			}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	archives, err := e.Archives(ctx)
	if err != nil {
		return nil, err
	}
	for _, a := range archives {
		m, err := e.archiveManifest(a.PlanID)
		if err != nil {
			return nil, err
		}
		for _, entry := range m.Sandboxes {
			used[entry.ResourceID] = true
		}
	}
	return used, nil
}

// unfinished lists the plans that a killed process may have left half-done.
func (e *Engine) unfinished(ctx context.Context) (ids []string, err error) {
	add := func(id string) {
		if agents.ValidID(id) && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	notes, err := e.planFolders("journal", "private")
	if err != nil {
		return nil, err
	}
	for _, n := range notes {
		if base := filepath.Base(n); base == "apply.json" || base == "undo.json" || base == "inflight.json" || isUnpublished(base) {
			add(filepath.Base(filepath.Dir(n)))
		}
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
	for _, n := range notes {
		if id := filepath.Base(n); agents.ValidID(id) && !live[id] && filepath.Base(filepath.Dir(filepath.Dir(n))) == "private" {
			add(filepath.Base(filepath.Dir(n)))
		}
	}
	return ids, err
}

// planFolders lists what lies in plans' folders below folders of the data
// directory.
func (e *Engine) planFolders(kinds ...string) (paths []string, err error) {
	list := func(dir string) []fs.DirEntry {
		entries, rerr := os.ReadDir(dir)
		if rerr != nil && !errors.Is(rerr, fs.ErrNotExist) && !errors.Is(rerr, syscall.ENOTDIR) {
			err = errors.Join(err, rerr)
		}
		return entries
	}
	for _, kind := range kinds {
		dir := filepath.Join(e.set.DataDir, kind)
		for _, plan := range list(dir) {
			for _, entry := range list(filepath.Join(dir, plan.Name())) {
				paths = append(paths, filepath.Join(dir, plan.Name(), entry.Name()))
			}
		}
	}
	return paths, err
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
	return removeEmpty(filepath.Join(s.e.set.DataDir, "private", s.plan.ID))
}

// knownPayload tells the sweep which checkpoints have a row. One without a row
// is known too while somebody works on the plan: its row may be about to come.
func (e *Engine) knownPayload(ctx context.Context) func(planID, checkpointID string) bool {
	var rows map[string]bool // those of all plans are read at once
	return func(planID, checkpointID string) bool {
		if rows == nil {
			var err error
			if rows, err = e.checkpointIDs(ctx); err != nil {
				return true
			}
		}
		if rows[checkpointID] || fsx.Held(e.planLockFile(planID)) {
			return true
		}
		now, err := e.checkpointIDs(ctx) // it may have come since, just before the lock was let go
		return err != nil || now[checkpointID]
	}
}

func (e *Engine) checkpointIDs(ctx context.Context) (map[string]bool, error) {
	ids := map[string]bool{}
	err := e.store.Read(ctx, func(tx *metastore.Tx) error {
		all, err := tx.Checkpoints().IDs()
		for _, id := range all {
			ids[id] = true
		}
		return err
	})
	return ids, err
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

// isUnpublished reports whether a name is of what fsx.Publish leaves in a plan's
// folder when it is killed.
func isUnpublished(name string) bool { return strings.Contains(name, ".json.tmp-") }

// removeUnpublished removes what a killed process was about to publish.
func (s *session) removeUnpublished() error {
	for _, kind := range []string{"private", "journal"} {
		dir := filepath.Join(s.e.set.DataDir, kind, s.plan.ID)
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for _, entry := range entries {
			if !isUnpublished(entry.Name()) {
				continue
			}
			if err := fsx.Remove(filepath.Join(dir, entry.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}
