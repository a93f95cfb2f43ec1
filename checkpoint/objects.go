package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/cleveragents/agents/internal/git"
	"github.com/cleveragents/agents/internal/snapshot"
)

// snapshotObjects is the ObjectStore of git-format stores. What lies in their
// alternates, such as the user's repository, is read through git.
type snapshotObjects struct{}

func (snapshotObjects) Verify(ctx context.Context, dir string, refs []string) error {
	return withSnapshots(ctx, dir, func(s *snapshot.Store) error {
		for _, ref := range refs {
			if err := s.Verify(ctx, ref); err != nil {
				return err
			}
		}
		return nil
	})
}

func (snapshotObjects) Collect(ctx context.Context, dir string, keep []string) (freed int64, err error) {
	err = withSnapshots(ctx, dir, func(s *snapshot.Store) error {
		freed, err = s.Collect(ctx, keep)
		return err
	})
	return freed, err
}

// withSnapshots opens a store as it is, for one piece of work.
func withSnapshots(ctx context.Context, dir string, fn func(*snapshot.Store) error) error {
	format, err := formatOf(dir)
	if err != nil {
		return err
	}
	reader := snapshot.NewGitReader(git.Repo{GitDir: dir})
	defer reader.Close()
	store, err := snapshot.Open(ctx, dir, snapshot.Options{Format: format, Reader: reader})
	if err != nil {
		return err
	}
	return errors.Join(fn(store), store.Close())
}

// formatOf returns the hash format that the store's configuration names.
func formatOf(dir string) (string, error) {
	config, err := os.ReadFile(filepath.Join(dir, "config"))
	if err != nil {
		return "", fmt.Errorf("object store: %w", err)
	}
	if strings.Contains(string(config), "objectformat = sha256") {
		return "sha256", nil
	}
	return "sha1", nil
}
