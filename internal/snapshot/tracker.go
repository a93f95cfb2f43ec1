package snapshot

import (
	"context"
	"iter"

	agents "github.com/cleveragents/agents"
)

// Tracker captures and restores a fixed set of directories. It may be used
// from several goroutines, which then take turns, and from several processes
// with the same cache file.
type Tracker struct{ store *Store }

// NewTracker returns a tracker of roots that records into store. The cache
// file says what the last scan saw; missing, damaged or another tracker's, it
// costs a full scan and is no error.
func NewTracker(store *Store, roots []Root, cacheFile string) (*Tracker, error) {
	return nil, agents.ErrUnsupported
}

// Seed tells the next Capture, if it has no cache to start from, which
// contents are stored already: what a fresh checkout wrote, with the ids of
// the index. Files that are not listed, or not of the listed kind, are read.
// Trees among known (mode 0o040000, path "" for the root's) save writing them.
func (t *Tracker) Seed(ctx context.Context, root string, known iter.Seq[Seeded]) error {
	return agents.ErrUnsupported
}

// Capture records the present state of the roots. It is complete or refused:
// a file that cannot be read, or keeps changing while it is read
// (agents.ErrConflict), is an error that names it. Everything the state needs
// is durable when Capture returns.
func (t *Tracker) Capture(ctx context.Context, opts CaptureOptions) (Captured, error) {
	return Captured{}, agents.ErrUnsupported
}

// Restore puts the roots into the state ref. It captures the present state,
// compares the two, makes the new contents aside, which finds what is damaged
// (agents.ErrDamaged), moves everything under a journal and verifies the
// result by a scan. It touches only what differs and deletes only what the
// present state holds and ref does not. On error the roots are as before,
// unless the error has agents.ErrDamaged and says that Recover is needed.
func (t *Tracker) Restore(ctx context.Context, ref string, opts RestoreOptions) (Restored, error) {
	return Restored{}, agents.ErrUnsupported
}

// Recover ends a Restore that was killed: afterwards the roots are as before
// it, or hold the whole state. Without a journal there is nothing to do.
func Recover(ctx context.Context, journal string) error { return agents.ErrUnsupported }
