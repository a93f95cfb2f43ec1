package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/fsx"
)

// Delete removes the payloads of checkpoints whose rows are gone already, and
// then, for each sandbox that keep names, what they alone needed from its
// object store: all but the states that keep lists and those of checkpoints
// that stay. A sandbox without any such state loses its whole object store; one
// that keep does not name is left alone. It returns the bytes freed. Ids that
// have no payload are no error. While another process holds a stage of the
// plan, object stores are left alone too; the next Delete frees what is left.
//
// The caller sees to it that keep lists every state of its own that it still
// needs: the base, and states captured into stages of this Store.
func (s *Store) Delete(ctx context.Context, planID string, ids []string, keep map[string][]string) (freed int64, err error) {
	if err := valid("plan", planID); err != nil {
		return 0, err
	}
	defer func() { s.grown(planID, -freed) }()
	for _, id := range ids {
		if err := valid("checkpoint", id); err != nil {
			return 0, err
		}
	}
	for _, id := range ids {
		n, err := s.trash(filepath.Join(s.dir, planID, id))
		freed += n
		if err != nil {
			return freed, fmt.Errorf("delete checkpoint %s: %w", id, err)
		}
	}
	if len(keep) == 0 {
		return freed, nil
	}
	err = s.locked(ctx, planID, func() error {
		n, err := s.collect(ctx, planID, keep)
		freed += n
		return err
	})
	if err != nil {
		return freed, fmt.Errorf("free the space of checkpoints of plan %s: %w", planID, err)
	}
	return freed, nil
}

// trash removes a directory in two steps: renamed away at once, so that it
// never counts half, and then deleted. It returns the bytes freed.
func (s *Store) trash(dir string) (int64, error) {
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err := fsx.MkdirAll(filepath.Join(s.dir, trashName), 0o700); err != nil {
		return 0, err
	}
	to := filepath.Join(s.dir, trashName, filepath.Base(dir)+"-"+token())
	err := fsx.Rename(dir, to)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil // somebody else was first
	}
	if err != nil {
		return 0, err
	}
	if err := fsx.SyncDir(filepath.Dir(dir)); err != nil {
		return 0, err
	}
	return empty(to)
}

// empty deletes a tree and returns the bytes that it had.
func empty(dir string) (int64, error) {
	size, err := treeSize(dir)
	if err != nil {
		return 0, err
	}
	if err := fsx.RemoveAll(dir); err != nil {
		return 0, err
	}
	return size, nil
}

// collect frees what no state needs in the plan's object stores. The caller
// holds the plan's lock.
func (s *Store) collect(ctx context.Context, planID string, asked map[string][]string) (int64, error) {
	if s.foreignStage(planID) {
		return 0, nil // its states are not known here
	}
	keep, err := s.withPublished(planID, asked)
	if err != nil {
		return 0, err
	}
	sandboxes, err := ids(filepath.Join(s.dir, planID, objectsName))
	if err != nil {
		return 0, err
	}
	var freed int64
	for _, sandboxID := range sandboxes {
		if _, named := asked[sandboxID]; !named {
			continue
		}
		n, err := s.collectSandbox(ctx, planID, sandboxID, keep[sandboxID])
		freed += n
		if err != nil {
			return freed, err
		}
	}
	return freed, nil
}

// collectSandbox frees what no state of one sandbox needs; a sandbox of which
// no state is left loses its whole store.
func (s *Store) collectSandbox(ctx context.Context, planID, sandboxID string, keep []string) (int64, error) {
	dir := s.Objects(planID, sandboxID)
	switch {
	case len(keep) == 0:
		return s.trash(dir)
	case isObjectStore(dir):
		return s.objects.Collect(ctx, dir, keep)
	}
	return 0, nil
}

// foreignStage reports whether a live stage of the plan is not this Store's.
func (s *Store) foreignStage(planID string) bool {
	locks, err := filepath.Glob(filepath.Join(s.dir, planID, stagesName, "*.lock"))
	if err != nil {
		return true
	}
	s.mu.Lock()
	own := maps.Clone(s.stages)
	s.mu.Unlock()
	for _, lock := range locks {
		if !own[lock] && fsx.Held(lock) {
			return true
		}
	}
	return false
}

// withPublished adds to keep the states of all checkpoints that are there.
func (s *Store) withPublished(planID string, keep map[string][]string) (map[string][]string, error) {
	all := map[string][]string{}
	for sandboxID, refs := range keep {
		all[sandboxID] = slices.Clone(refs)
	}
	published, err := s.Checkpoints(planID)
	if err != nil {
		return nil, err
	}
	for _, id := range published {
		m, err := s.Manifest(planID, id)
		if errors.Is(err, agents.ErrDamaged) || errors.Is(err, agents.ErrNotFound) {
			continue // nothing can be restored from it
		}
		if err != nil {
			return nil, err
		}
		for _, p := range m.Parts {
			if p.Ref != "" && !slices.Contains(all[p.SandboxID], p.Ref) {
				all[p.SandboxID] = append(all[p.SandboxID], p.Ref)
			}
		}
	}
	return all, nil
}

// RemovePlan removes everything of a plan and returns the bytes freed. A plan
// that has nothing here is no error; one with a stage that another process
// holds is agents.ErrLocked.
func (s *Store) RemovePlan(ctx context.Context, planID string) (freed int64, err error) {
	if err := valid("plan", planID); err != nil {
		return 0, err
	}
	defer s.unmeasured(planID)
	err = s.locked(ctx, planID, func() error {
		if s.foreignStage(planID) {
			return fmt.Errorf("a checkpoint is being made: %w", agents.ErrLocked)
		}
		freed, err = s.trash(filepath.Join(s.dir, planID))
		return err
	})
	if err != nil {
		return freed, fmt.Errorf("remove checkpoints of plan %s: %w", planID, err)
	}
	return freed, nil
}

// TakeOut moves everything of a plan to dst, which must not exist, for an
// archive; PutBack moves it in again. A plan without payloads is no error and
// leaves no dst. It is agents.ErrLocked while a checkpoint of the plan is made.
func (s *Store) TakeOut(ctx context.Context, planID, dst string) error {
	return s.moveAll(ctx, planID, "archive", func(dir string) error { return moveTree(ctx, dir, dst) })
}

// PutBack moves a plan's payloads from src, where TakeOut put them, back in. A
// missing src is no error. Payloads that the plan has already are
// agents.ErrExists.
func (s *Store) PutBack(ctx context.Context, planID, src string) error {
	return s.moveAll(ctx, planID, "bring back", func(dir string) error {
		if _, err := os.Lstat(src); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("the plan has checkpoints: %w", errors.Join(err, agents.ErrExists))
		}
		return moveTree(ctx, src, dir)
	})
}

func (s *Store) moveAll(ctx context.Context, planID, what string, move func(dir string) error) error {
	if err := valid("plan", planID); err != nil {
		return err
	}
	defer s.unmeasured(planID)
	err := s.locked(ctx, planID, func() error {
		if s.foreignStage(planID) {
			return fmt.Errorf("a checkpoint is being made: %w", agents.ErrLocked)
		}
		return move(filepath.Join(s.dir, planID))
	})
	if err != nil {
		return fmt.Errorf("%s checkpoints of plan %s: %w", what, planID, err)
	}
	return nil
}

// moveTree renames a folder, or copies and removes it where the new place is
// on another file system. A missing one is no error.
func moveTree(ctx context.Context, from, to string) error {
	if _, err := os.Lstat(from); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	err := fsx.PublishRename(from, to)
	if err == nil || !errors.Is(err, syscall.EXDEV) {
		return err
	}
	tmp := to + ".part"
	if err := fsx.RemoveAll(tmp); err != nil {
		return err
	}
	if _, err := fsx.CopyTree(ctx, from, tmp); err != nil {
		return errors.Join(err, fsx.RemoveAll(tmp))
	}
	if err := fsx.PublishRename(tmp, to); err != nil {
		return err
	}
	return fsx.RemoveAll(from)
}

// Sweep removes what killed processes left: stages without a live holder, what
// was being deleted, and payloads of which known says that they have no row.
// It returns the bytes freed. It leaves object stores to Delete, which knows
// what is still needed.
func (s *Store) Sweep(ctx context.Context, known func(planID, checkpointID string) bool) (freed int64, err error) {
	plans, err := s.Plans()
	if err != nil {
		return 0, err
	}
	freed, err = s.sweepTrash()
	if err != nil {
		return freed, fmt.Errorf("sweep checkpoint store: %w", err)
	}
	for _, planID := range plans {
		if err := ctx.Err(); err != nil {
			return freed, err
		}
		n, err := s.sweepPlan(ctx, planID, known)
		freed += n
		if err != nil {
			return freed, fmt.Errorf("sweep checkpoints of plan %s: %w", planID, err)
		}
	}
	return freed, nil
}

func (s *Store) sweepTrash() (freed int64, err error) {
	entries, err := os.ReadDir(filepath.Join(s.dir, trashName))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	for _, e := range entries {
		n, err := empty(filepath.Join(s.dir, trashName, e.Name()))
		freed += n
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // another sweep may be at it
			return freed, err
		}
	}
	return freed, err
}

func (s *Store) sweepPlan(ctx context.Context, planID string, known func(planID, checkpointID string) bool) (freed int64, err error) {
	dir := filepath.Join(s.dir, planID, stagesName)
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	if len(entries) > 0 {
		err := s.locked(ctx, planID, func() error {
			freed, err = s.sweepStages(dir)
			return err
		})
		if err != nil {
			return freed, err
		}
	}
	published, err := s.Checkpoints(planID)
	if err != nil {
		return freed, err
	}
	for _, id := range published {
		if known(planID, id) {
			continue
		}
		n, err := s.trash(filepath.Join(s.dir, planID, id))
		freed += n
		if err != nil {
			return freed, err
		}
	}
	return freed, nil
}

// sweepStages removes the stages that nobody holds. The caller holds the
// plan's lock, so that none is just being made.
func (s *Store) sweepStages(dir string) (freed int64, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		n, err := sweepStage(filepath.Join(dir, strings.TrimSuffix(e.Name(), ".lock")))
		freed += n
		if err != nil {
			return freed, err
		}
	}
	return freed, nil
}

func sweepStage(dir string) (int64, error) {
	lock, err := fsx.TryLock(dir+".lock", "sweep")
	if errors.Is(err, agents.ErrLocked) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer lock.Release()
	n, err := empty(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return n, err
	}
	return n, fsx.Remove(dir + ".lock")
}
