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
	"github.com/cleveragents/agents/sandbox"
)

// archiveManifest is what an archive says about itself.
type archiveManifest struct {
	PlanID    string            `json:"plan_id"`
	CreatedAt time.Time         `json:"created_at"`
	Sandboxes []archivedSandbox `json:"sandboxes"`
}

// archivedSandbox is one of them.
type archivedSandbox struct {
	SandboxID  string              `json:"sandbox_id"`
	ResourceID string              `json:"resource_id"`
	Strategy   agents.StrategyName `json:"strategy"`
	BaseRef    string              `json:"base_ref,omitempty"`
	Metadata   map[string]string   `json:"metadata"`
}

// archiveUnapplied archives the plan's work if any of it is unapplied.
func (s *session) archiveUnapplied(ctx context.Context) (*agents.Archive, error) {
	if err := s.reviveUnapplied(ctx); err != nil {
		return nil, err
	}
	rows, err := s.rows(ctx)
	if err != nil {
		return nil, err
	}
	for _, b := range s.boxes {
		if b.Open(ctx) != nil {
			continue // applied, and its directory is gone: there is nothing to archive
		}
		work, err := b.Unapplied(ctx)
		if errors.Is(err, agents.ErrUnsupported) && !b.Capabilities().Isolates {
			continue
		}
		if err != nil {
			return nil, err
		}
		if !work && !recordedWork(rows, b) {
			continue
		}
		if err := s.archive(ctx); err != nil {
			return nil, err
		}
		s.say("unapplied work of plan %s was archived; agents cleanup archive restore %s brings it back", s.plan.ID, s.plan.ID)
		a, err := s.e.readArchive(s.plan.ID)
		return &a, err
	}
	return nil, nil
}

// recordedWork reports whether a checkpoint holds another state of the sandbox
// than its base: files, index, reflogs that are not there any more.
func recordedWork(rows []agents.Checkpoint, b *box) bool {
	rec := b.Record()
	if rec.ApplyState == agents.ApplyApplied || rec.BaseRef == "" {
		return false
	}
	return slices.ContainsFunc(rows, func(cp agents.Checkpoint) bool {
		ref := rowRefs(cp)[rec.ID]
		return ref != "" && ref != rec.BaseRef
	})
}

// reviveUnapplied makes sandboxes again whose directory somebody removed before
// their work was applied: their checkpoints hold it, and it must be archived.
func (s *session) reviveUnapplied(ctx context.Context) error {
	for _, b := range slices.Clone(s.boxes) {
		if b.Record().ApplyState == agents.ApplyApplied || !b.Capabilities().Rollback {
			continue
		}
		err := b.Open(ctx)
		if errors.Is(err, agents.ErrBlocked) {
			_, err = s.revive(ctx, b)
		}
		if err != nil {
			return fmt.Errorf("bring back the missing sandbox of %s, to archive its work: %w", b.Resource().Name, err)
		}
	}
	return nil
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
		m.Sandboxes = append(m.Sandboxes, archivedSandbox{SandboxID: rec.ID, ResourceID: rec.ResourceID, Strategy: rec.Strategy, BaseRef: rec.BaseRef, Metadata: rec.Metadata})
	}
	if err := s.carryOver(ctx, tmp, &m); err != nil {
		return err
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
	return fsx.RemoveAll(old)
}

// archivedCheckpoints is where the payloads of an archived plan's checkpoints lie.
func (e *Engine) archivedCheckpoints(planID string) string {
	return filepath.Join(e.archiveDir(planID), "checkpoints")
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
// plan. Sandboxes that are there, since removing them was stopped half way, stay
// as they are; a plan that has all of them is agents.ErrExists. The archive
// stays until its time is over.
func (e *Engine) RestoreArchive(ctx context.Context, ref string) (agents.Plan, error) {
	s, err := e.open(ctx, ref, "cleanup archive restore")
	if err != nil {
		return agents.Plan{}, err
	}
	defer s.close()
	if s.plan.State == agents.PlanApplied {
		return s.plan, s.refused("get its archived work back: that is applied")
	}
	m, err := e.archiveManifest(s.plan.ID)
	if err != nil {
		return s.plan, err
	}
	missing := slices.DeleteFunc(m.Sandboxes, func(a archivedSandbox) bool { return s.find(a.ResourceID) != nil })
	if len(missing) == 0 {
		return s.plan, fmt.Errorf("plan %s has its sandboxes already: %w", s.plan.ID, agents.ErrExists)
	}
	there := len(s.boxes)
	if e.payloads != nil {
		if err := e.payloads.PutBack(ctx, s.plan.ID, e.archivedCheckpoints(s.plan.ID)); err != nil {
			return s.plan, err
		}
	}
	for _, entry := range missing {
		if err := s.unarchive(ctx, entry); err != nil {
			detached, cancel := sandbox.Detach(ctx)
			defer cancel()
			for _, b := range s.boxes[there:] {
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
	rec := agents.SandboxRecord{ID: entry.SandboxID, PlanID: s.plan.ID, ResourceID: r.ID, Strategy: entry.Strategy}
	cfg := s.e.sandboxConfig(s.plan, rec)
	cfg.Like = entry.Metadata
	b := &box{Sandbox: sandbox.New(strategy, rec, r, cfg), stale: true}
	if _, err := b.Unarchive(ctx, s.plan.ID, filepath.Join(s.e.archiveDir(s.plan.ID), entry.SandboxID)); err != nil {
		return err
	}
	s.boxes = append(s.boxes, b)
	if entry.BaseRef == "" {
		return s.recordBase(ctx, b)
	}
	return b.RecordBase(ctx, entry.BaseRef)
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
