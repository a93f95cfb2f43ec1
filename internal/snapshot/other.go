//go:build !linux

package snapshot

import (
	"context"
	"fmt"

	agents "github.com/cleveragents/agents"
)

// Capture is agents.ErrUnsupported on this system.
func (t *Tracker) Capture(ctx context.Context, opts CaptureOptions) (Captured, error) {
	return Captured{}, errSystem("capture")
}

// Restore is agents.ErrUnsupported on this system.
func (t *Tracker) Restore(ctx context.Context, ref string, opts RestoreOptions) (Restored, error) {
	return Restored{}, errSystem("restore")
}

// Recover has nothing to do on this system, where nothing is restored.
func Recover(ctx context.Context, journal string) error { return nil }

func errSystem(op string) error {
	return fmt.Errorf("%s: states of directories are recorded on Linux only: %w", op, agents.ErrUnsupported)
}
