package checkpoint

import (
	"context"
	"fmt"

	agents "github.com/cleveragents/agents"
)

// snapshotObjects is the ObjectStore of git-format stores.
type snapshotObjects struct{}

func (snapshotObjects) Verify(ctx context.Context, dir string, refs []string) error {
	return fmt.Errorf("verify states: %w", agents.ErrUnsupported)
}

func (snapshotObjects) Collect(ctx context.Context, dir string, keep []string) (int64, error) {
	return 0, fmt.Errorf("collect states: %w", agents.ErrUnsupported)
}
