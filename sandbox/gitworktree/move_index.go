package gitworktree

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/fsx"
	"github.com/cleveragents/agents/internal/git"
)

// lockWait is how long somebody else may hold the index.
const lockWait = 3 * time.Second

func (m *transition) indexPath() string { return filepath.Join(m.t.found.GitDir, "index") }
func (m *transition) lockPath() string  { return m.indexPath() + ".lock" }
func (m *transition) indexCopy() string { return filepath.Join(m.stage, "index") }

// lockIndex takes the user's index.lock and copies the index into the stage.
// The lock is a second name of a file of ours: as long as that has its first
// name, no lock of somebody else can have its inode.
func (m *transition) lockIndex(ctx context.Context) error {
	before, err := fsx.Identify(m.indexPath())
	if err != nil {
		return err
	}
	if before.Kind != fsx.KindFile {
		return fmt.Errorf("%s is %s: %w", m.indexPath(), before.Kind, agents.ErrConflict)
	}
	if err := m.makePin(fs.FileMode(before.Mode)); err != nil {
		return fmt.Errorf("lock the index: %w", err)
	}
	if err := waitForLock(ctx, func() error { return fsx.Link(m.pin, m.lockPath()) }, m.lockPath()); err != nil {
		return err
	}
	return m.copyIndex()
}

// waitForLock repeats take while it finds a lock, but not for long.
func waitForLock(ctx context.Context, take func() error, lock string) error {
	ctx, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	for {
		err := take()
		if !errors.Is(err, fs.ErrExist) {
			return err
		}
		select {
		case <-ctx.Done():
			return agents.WithHint(fmt.Errorf("%s exists: another git process is at work in the repository: %w", lock, agents.ErrLocked),
				"if no git process is running there, one has died; remove the file by hand and apply again")
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (m *transition) makePin(perm fs.FileMode) error {
	if err := fsx.Remove(m.pin); err != nil {
		return err
	}
	f, err := fsx.Create(m.pin, 0o600)
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return fsx.Chmod(m.pin, perm.Perm())
}

// copyIndex copies the index with its modification time, by which git tells
// entries that were changed in the moment the index was written.
func (m *transition) copyIndex() error {
	id, err := fsx.Identify(m.indexPath())
	if err != nil {
		return err
	}
	b, err := os.ReadFile(m.indexPath())
	if err != nil {
		return err
	}
	m.index = id
	f, err := fsx.Create(m.indexCopy(), 0o600)
	if err != nil {
		return err
	}
	if _, err := f.Write(b); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := f.Close(); err != nil {
		return err
	}
	return fsx.Chtimes(m.indexCopy(), id.ModTime())
}

// lockIsOurs reports whether nobody took our lock away or changed the index under it.
func (m *transition) lockIsOurs() bool {
	id, err := fsx.Identify(m.indexPath())
	return err == nil && id.Ino == m.index.Ino && id.Mtime == m.index.Mtime && id.Size == m.index.Size && sameFile(m.pin, m.lockPath())
}

// writeIndex makes the new index in the copy, once the files are in place, and
// writes it into the lock.
func (m *transition) writeIndex(ctx context.Context) error {
	if err := m.moveIndex(ctx); err != nil {
		return fmt.Errorf("make the new index: %w", err)
	}
	return m.fillLock()
}

// fillLock writes the copy of the index into the lock, durably.
func (m *transition) fillLock() error {
	b, err := os.ReadFile(m.indexCopy())
	if err != nil {
		return err
	}
	id, err := fsx.Identify(m.indexCopy())
	if err != nil {
		return err
	}
	f, err := fsx.OpenFile(m.pin, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	if _, err := f.Write(b); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	return fsx.Chtimes(m.pin, id.ModTime())
}

// moveIndex moves the copy's entries from one commit to the other. What is
// staged elsewhere stays.
func (m *transition) moveIndex(ctx context.Context) error {
	repo := m.t.repo
	repo.IndexFile = m.indexCopy()
	if _, err := repo.Write(ctx, "read-tree", "-i", "-m", m.t.tip, m.to); err != nil {
		return err
	}
	if err := refreshIndex(ctx, repo); err != nil {
		return err
	}
	var skip, assume []string
	for _, p := range m.intent.Paths {
		flags := p.Flags
		if m.past != nil {
			flags = m.past.flags[string(p.Path)]
		}
		if p.NewMode == git.ModeNone {
			continue
		}
		if flags.Skip || p.Outside {
			skip = append(skip, string(p.Path))
		}
		if flags.Assume {
			assume = append(assume, string(p.Path))
		}
	}
	if err := mark(ctx, repo, "--skip-worktree", skip); err != nil {
		return err
	}
	return mark(ctx, repo, "--assume-unchanged", assume)
}

// refresh has git look at the files again, in the copy of the index: at those,
// too, that the user told it not to look at, since they are about to change.
func (m *transition) refresh(ctx context.Context, repo git.Repo) error {
	var skip, assume []string
	for _, s := range m.steps {
		if s.flags.Skip && !s.indexOnly {
			skip = append(skip, s.Path)
		}
		if s.flags.Assume {
			assume = append(assume, s.Path)
		}
	}
	if err := mark(ctx, repo, "--no-skip-worktree", skip); err != nil {
		return err
	}
	if err := mark(ctx, repo, "--no-assume-unchanged", assume); err != nil {
		return err
	}
	return refreshIndex(ctx, repo)
}

func refreshIndex(ctx context.Context, repo git.Repo) error {
	_, err := repo.Do(ctx, git.Call{Args: []string{"update-index", "-q", "--refresh"}, OK: []int{1}, Writes: true})
	if err != nil {
		return fmt.Errorf("look at the index: %w", err)
	}
	return nil
}

func mark(ctx context.Context, repo git.Repo, flag string, paths []string) error {
	if len(paths) == 0 {
		return nil
	}
	_, err := repo.Feed(ctx, git.NulList(paths), "update-index", flag, "-z", "--stdin")
	return err
}

// publishIndex renames the lock to index, unless that was done. If somebody
// removed the lock meanwhile, the index is moved afresh.
func (m *transition) publishIndex(ctx context.Context) error {
	switch {
	case sameFile(m.pin, m.indexPath()):
		return nil
	case sameFile(m.pin, m.lockPath()):
		if err := fsx.Rename(m.lockPath(), m.indexPath()); err != nil {
			return err
		}
		return fsx.SyncDir(m.t.found.GitDir)
	}
	return m.mendIndex(ctx)
}

// mendIndex moves the entries that still are the old commit's in an index
// whose lock somebody took from us, provided that the target is where we moved it.
func (m *transition) mendIndex(ctx context.Context) error {
	head, err := m.t.repo.Head(ctx)
	if err != nil || head.Commit != m.to {
		return err
	}
	if err := errors.Join(fsx.Remove(m.indexCopy()), m.lockIndex(ctx)); err != nil {
		return err
	}
	repo := m.t.repo
	repo.IndexFile = m.indexCopy()
	entries, err := repo.Index(ctx)
	if err != nil {
		return err
	}
	have := make(map[string]git.Entry, len(entries))
	for _, e := range entries {
		have[e.Path] = e
	}
	var in bytes.Buffer
	for _, p := range m.intent.Paths {
		e, listed := have[string(p.Path)]
		if listed != (p.OldMode != git.ModeNone) || listed && (e.Mode != p.OldMode || e.ID != p.OldID) {
			continue
		}
		fmt.Fprintf(&in, "%s %s\t%s\x00", p.NewMode[0:6], p.NewID, p.Path)
	}
	if _, err := repo.Feed(ctx, &in, "update-index", "-z", "--index-info"); err != nil {
		return err
	}
	if err := m.fillLock(); err != nil {
		return err
	}
	return m.publishIndex(ctx)
}

// unlockIndex removes index.lock if it is ours.
func (m *transition) unlockIndex() error {
	if m.pin == "" || !sameFile(m.pin, m.lockPath()) {
		return nil
	}
	return fsx.Remove(m.lockPath())
}
