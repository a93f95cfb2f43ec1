package checkpoint

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/fsx"
	"github.com/cleveragents/agents/internal/snapshot"
)

// sharedName is the folder of what the sandboxes of a resource share: stores
// that lie below those of Objects.
const sharedName = "shared"

// Shared returns the folder of what all sandboxes of a resource share. It need
// not exist. For an id that is none it is a path that cannot be opened or made.
func (s *Store) Shared(resourceID string) string {
	if !agents.ValidID(resourceID) {
		return nowhere
	}
	return filepath.Join(s.dir, sharedName, resourceID)
}

// SweepShared removes what the sandboxes of a resource shared once no object
// store names it any more and inUse says that nobody else needs it. What is
// locked, because something is just being put there, stays. It returns the
// bytes freed.
func (s *Store) SweepShared(inUse func(resourceID string) bool) (freed int64, err error) {
	resources, err := ids(filepath.Join(s.dir, sharedName))
	if err != nil {
		return 0, fmt.Errorf("sweep what sandboxes shared: %w", err)
	}
	for _, id := range resources {
		n, err := s.sweepResource(id, inUse)
		freed += n
		if err != nil && !errors.Is(err, agents.ErrLocked) {
			return freed, fmt.Errorf("sweep what the sandboxes of resource %s shared: %w", id, err)
		}
	}
	return freed, nil
}

func (s *Store) sweepResource(id string, inUse func(string) bool) (int64, error) {
	dir := s.Shared(id)
	lock, err := fsx.TryLock(dir+".lock", "sweep")
	if err != nil {
		return 0, err
	}
	defer lock.Release()
	if inUse(id) {
		return 0, nil
	}
	stores, err := filepath.Glob(filepath.Join(s.dir, "*", objectsName, "*"))
	if err != nil {
		return 0, err
	}
	here, err := os.Stat(dir)
	if err != nil {
		return 0, err
	}
	for _, store := range stores {
		if below, err := os.Stat(snapshot.Below(store)); err == nil && os.SameFile(below, here) {
			return 0, nil
		}
	}
	return s.trash(dir)
}
