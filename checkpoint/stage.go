package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/fsx"
)

// Stage is a payload that does not count yet. It belongs to the process that
// made it as long as that holds the stage's lock; when the process is gone,
// Sweep removes it. Several goroutines may use it.
type Stage struct {
	store *Store
	plan  string
	dir   string // becomes the checkpoint's directory
	path  string // of the lock file

	mu   sync.Mutex // guards the rest
	lock *fsx.Lock  // nil = published or discarded
}

// Stage begins a payload of a plan.
func (s *Store) Stage(planID string) (*Stage, error) {
	if err := valid("plan", planID); err != nil {
		return nil, err
	}
	dir := filepath.Join(s.dir, planID, stagesName, token())
	st := &Stage{store: s, plan: planID, dir: dir, path: dir + ".lock"}
	if err := s.locked(context.Background(), planID, st.begin); err != nil {
		return nil, fmt.Errorf("stage checkpoint of plan %s: %w", planID, noSpace(err))
	}
	return st, nil
}

// begin takes the lock before the folder is there, so that a sweep never finds
// the folder without a holder.
func (st *Stage) begin() error {
	if err := fsx.MkdirAll(filepath.Dir(st.dir), 0o700); err != nil {
		return err
	}
	lock, err := fsx.TryLock(st.path, "checkpoint in progress")
	if err != nil {
		return err
	}
	if err := fsx.MkdirAll(filepath.Join(st.dir, partsName), 0o700); err != nil {
		lock.Release()
		return errors.Join(err, fsx.Remove(st.path))
	}
	st.lock = lock
	st.store.own(st.path, true)
	return nil
}

// own notes that a stage is this Store's.
func (s *Store) own(path string, yes bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if yes {
		s.stages[path] = true
	} else {
		delete(s.stages, path)
	}
}

// Dir returns the folder for one sandbox's part, made on the first call.
func (st *Stage) Dir(sandboxID string) (string, error) {
	if err := valid("sandbox", sandboxID); err != nil {
		return "", err
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.lock == nil {
		return "", st.over("add a part to")
	}
	dir := filepath.Join(st.dir, partsName, sandboxID)
	if err := fsx.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("stage checkpoint: %w", noSpace(err))
	}
	return dir, nil
}

func (st *Stage) over(what string) error {
	return &agents.StateError{What: "stage", From: "published or discarded", To: what}
}

// Publish makes the payload count, under the id of m: a crash leaves all of it
// or nothing that counts. What the parts hold must be synced. An id that is
// taken is agents.ErrExists. On error the stage stays as it is; Discard it.
func (st *Stage) Publish(ctx context.Context, m Manifest) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.lock == nil {
		return st.over("publish")
	}
	if err := st.publish(ctx, m); err != nil {
		return fmt.Errorf("publish checkpoint %s: %w", clip(m.CheckpointID), noSpace(err))
	}
	_ = st.end() // the payload counts; a lock file that could not go is found by Sweep
	return nil
}

func (st *Stage) publish(ctx context.Context, m Manifest) error {
	if err := m.validate(st.plan); err != nil {
		return err
	}
	data, err := encodeManifest(ctx, m, filepath.Join(st.dir, partsName))
	if err != nil {
		return err
	}
	if err := st.settle(m, data); err != nil {
		return err
	}
	to := filepath.Join(st.store.dir, st.plan, m.CheckpointID)
	if _, err := os.Lstat(to); err == nil {
		return agents.ErrExists
	}
	if err := fsx.Rename(st.dir, to); err != nil {
		if errors.Is(err, fs.ErrExist) || errors.Is(err, syscall.ENOTEMPTY) {
			err = fmt.Errorf("%w: %w", err, agents.ErrExists)
		}
		return err
	}
	if err := fsx.SyncDir(filepath.Dir(to)); err != nil {
		return errors.Join(err, fsx.Rename(to, st.dir)) // what is not durable does not count
	}
	st.store.grown(st.plan, int64(len(data))+m.added())
	return nil
}

// settle makes what becomes the checkpoint's directory durable. Folders that
// nothing was put into go: most strategies keep everything in the object
// store, and measuring the store looks into every folder.
func (st *Stage) settle(m Manifest, manifest []byte) error {
	parts := filepath.Join(st.dir, partsName)
	for _, p := range m.Parts {
		if err := dropOrSync(filepath.Join(parts, p.SandboxID)); err != nil {
			return err
		}
	}
	if err := dropOrSync(parts); err != nil {
		return err
	}
	path := filepath.Join(st.dir, manifestName)
	if err := fsx.Remove(path); err != nil { // of a Publish that failed
		return err
	}
	if err := fsx.WriteFile(path, manifest, 0o600); err != nil {
		return err
	}
	return fsx.SyncDir(st.dir)
}

// dropOrSync removes a folder that is empty and syncs one that is not.
func dropOrSync(dir string) error {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case len(entries) == 0:
		return fsx.Remove(dir)
	}
	return fsx.SyncDir(dir)
}

// Discard drops the payload. After Publish, or a second time, it does nothing.
// What it fails to remove, Sweep will find.
func (st *Stage) Discard() error {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.lock == nil {
		return nil
	}
	return errors.Join(fsx.RemoveAll(st.dir), st.end())
}

// end gives the stage up: the lock file goes before the lock, so that none is
// left behind.
func (st *Stage) end() error {
	err := fsx.Remove(st.path)
	st.lock.Release()
	st.lock = nil
	st.store.own(st.path, false)
	return err
}
