package fsx

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"

	agents "github.com/cleveragents/agents"
)

// Lock is a held lock between processes. It ends with Release or with the
// process, however that dies; no age and no process number is ever consulted.
type Lock struct{ f *flock.Flock }

// TryLock takes the lock file at path, or returns agents.ErrLocked at once if
// another holder has it. The note, one line, is for people who wonder who
// holds the lock; LockNote reads it.
func TryLock(path, note string) (*Lock, error) {
	f, err := lockFile(path)
	if err != nil {
		return nil, err
	}
	ok, err := f.TryLock()
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	if !ok {
		return nil, fmt.Errorf("lock %s (%s): %w", filepath.Base(path), LockNote(path), agents.ErrLocked)
	}
	return held(f, path, note), nil
}

// WaitLock takes the lock file at path, waiting until ctx ends for another
// holder to let go; then it is agents.ErrLocked.
func WaitLock(ctx context.Context, path, note string) (*Lock, error) {
	f, err := lockFile(path)
	if err != nil {
		return nil, err
	}
	ok, err := f.TryLockContext(ctx, 20*time.Millisecond)
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled), err == nil && !ok:
		return nil, fmt.Errorf("lock %s (%s): %w", filepath.Base(path), LockNote(path), agents.ErrLocked)
	case err != nil:
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return held(f, path, note), nil
}

// Release gives the lock up. It may be called more than once.
func (l *Lock) Release() {
	if l != nil && l.f != nil {
		l.f.Close()
		l.f = nil
	}
}

// Held reports whether somebody holds the lock file at path at this moment.
func Held(path string) bool {
	if _, err := os.Stat(path); err != nil {
		return false
	}
	f := flock.New(path, flock.SetPermissions(0o600))
	ok, err := f.TryRLock()
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err == nil && !ok
}

// LockNote returns what the last holder wrote about itself, or "".
func LockNote(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return string(b)
}

func lockFile(path string) (*flock.Flock, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	return flock.New(path, flock.SetPermissions(0o600)), nil
}

// held notes who holds the lock. The note is no part of the lock: a failure to
// write it is no failure.
func held(f *flock.Flock, path, note string) *Lock {
	_ = os.WriteFile(path, []byte(note), 0o600)
	return &Lock{f}
}
