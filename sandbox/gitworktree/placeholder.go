package gitworktree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/fsx"
	"github.com/cleveragents/agents/internal/git"
)

// earlierLife looks at what a sandbox of the same plan may have left in the
// user's repository: entries whose directory is gone do not matter, commits on
// the branch are kept and become the sandbox's start, and a branch that is in
// use is agents.ErrConflict.
func (b *box) earlierLife(ctx context.Context, notify func(string)) error {
	b.rec.Start = b.rec.Base
	user := b.user()
	if err := b.inUse(ctx); err != nil {
		return err
	}
	old, err := user.Ref(ctx, b.rec.Branch)
	if errors.Is(err, agents.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	b.rec.Before = old
	if known, err := user.IsAncestor(ctx, old, b.rec.Base); err != nil || known {
		return err
	}
	base, err := user.MergeBase(ctx, old, b.rec.Base)
	if err != nil {
		return err
	}
	if base == "" {
		return agents.WithHint(fmt.Errorf("branch %s exists and has nothing in common with the base: %w", short(b.rec.Branch), agents.ErrConflict),
			"rename or delete it: git branch -m %s NEW-NAME", short(b.rec.Branch))
	}
	b.rec.Base, b.rec.Start = base, old
	notify(fmt.Sprintf("branch %s holds commits of an earlier run; the sandbox starts from them", short(b.rec.Branch)))
	return nil
}

// inUse refuses a branch that another work tree has checked out. Of our own
// entries only those count whose sandbox is still there with its private
// directory.
func (b *box) inUse(ctx context.Context) error {
	heads := map[string]string{"HEAD": b.rec.User.Root}
	entries, err := os.ReadDir(b.entriesDir())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		if !b.staleEntry(e.Name()) {
			heads[filepath.Join("worktrees", e.Name(), "HEAD")] = "worktree " + e.Name()
		}
	}
	for file, where := range heads {
		if head, _ := os.ReadFile(filepath.Join(b.rec.User.CommonDir, file)); strings.TrimSpace(string(head)) == "ref: "+b.rec.Branch {
			return agents.WithHint(fmt.Errorf("branch %s is checked out in %s: %w", short(b.rec.Branch), where, agents.ErrConflict),
				"see git worktree list in %s", b.rec.User.Root)
		}
	}
	return ctx.Err()
}

// staleEntry reports whether a worktree entry is one of ours for this very
// branch whose sandbox cannot be used any more: its directory is gone, or the
// private directory that its .git file names, or that one is ours now. One
// that another plan is just making has no HEAD yet: its name tells.
func (b *box) staleEntry(name string) bool {
	dir := filepath.Join(b.entriesDir(), name)
	if !strings.HasPrefix(name, entriesOf(b.rec.PlanID)) {
		return false
	}
	if head, err := os.ReadFile(filepath.Join(dir, "HEAD")); err == nil && strings.TrimSpace(string(head)) != "ref: "+b.rec.Branch {
		return false
	}
	gitdir, err := os.ReadFile(filepath.Join(dir, "gitdir"))
	if err != nil {
		return true
	}
	pointer, err := os.ReadFile(strings.TrimSpace(string(gitdir)))
	if err != nil {
		return true
	}
	to, ok := strings.CutPrefix(strings.TrimSpace(string(pointer)), "gitdir: ")
	return !ok || !exists(to) || to == b.planGitDir() && name != b.rec.Entry
}

func (b *box) entriesDir() string { return filepath.Join(b.rec.User.CommonDir, "worktrees") }

func (b *box) entryDir() string { return filepath.Join(b.entriesDir(), b.rec.Entry) }

// placeholder shows the plan in the user's repository: our branch at the
// start, without a reflog, and a worktree entry without an index, locked
// against pruning. Entries that earlier lives left are removed.
func (b *box) placeholder(ctx context.Context) error {
	entries, err := os.ReadDir(b.entriesDir())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		if b.staleEntry(e.Name()) {
			if err := fsx.RemoveAll(filepath.Join(b.entriesDir(), e.Name())); err != nil {
				return err
			}
		}
	}
	if err := b.moveBranch(ctx, b.rec.Before, b.rec.Start); err != nil {
		return err
	}
	return b.makeEntry()
}

// moveBranch moves our branch in the user's repository from old ("" = none)
// to id. The record says so before and after.
func (b *box) moveBranch(ctx context.Context, old, id string) error {
	b.rec.NextTip = id
	if err := b.save(); err != nil {
		return err
	}
	if old != id {
		if err := b.swapBranch(ctx, git.RefChange{Ref: b.rec.Branch, Old: old, New: id}); err != nil {
			return err
		}
	}
	b.rec.Tip, b.rec.NextTip = id, ""
	return b.save()
}

// settleTip finds out where a moveBranch that was killed got to.
func (b *box) settleTip(ctx context.Context) error {
	if b.rec.NextTip == "" {
		return nil
	}
	now, err := b.user().Ref(ctx, b.rec.Branch)
	if err != nil && !errors.Is(err, agents.ErrNotFound) {
		return err
	}
	if now == b.rec.NextTip {
		b.rec.Tip = now
	}
	b.rec.NextTip = ""
	return b.save()
}

// swapBranch changes our branch, and tries again while others only hold
// git's locks for a moment.
func (b *box) swapBranch(ctx context.Context, change git.RefChange) error {
	user := b.user()
	user.Config = []string{"core.filesRefLockTimeout=2000", "core.packedRefsTimeout=5000"}
	wait := 10 * time.Millisecond
	for try := 0; ; try++ {
		err := user.UpdateRefs(ctx, "", change)
		if err == nil || !errors.Is(err, agents.ErrConflict) || try == 5 {
			return err
		}
		now, rerr := user.Ref(ctx, change.Ref)
		if errors.Is(rerr, agents.ErrNotFound) {
			now, rerr = "", nil
		}
		if rerr != nil || now != change.Old {
			return errors.Join(err, rerr)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
			wait *= 2
		}
	}
}

// makeEntry makes the worktree entry, the lock first. It is idempotent.
func (b *box) makeEntry() error {
	if err := b.mkEntryDir(); err != nil {
		return err
	}
	for _, f := range b.entryFiles() {
		path := filepath.Join(b.entryDir(), f.name)
		if got, err := os.ReadFile(path); err == nil && string(got) == f.text {
			continue
		}
		if err := put(path, []byte(f.text), 0o644); err != nil {
			return fmt.Errorf("worktree entry: %w", err)
		}
	}
	return nil
}

// mkEntryDir makes the entry's directory; another sandbox that goes may take
// the empty one above it away at the same moment.
func (b *box) mkEntryDir() error {
	var err error
	for range 5 {
		if err = fsx.MkdirAll(b.entriesDir(), 0o755); err != nil {
			return err
		}
		if err = fsx.Mkdir(b.entryDir(), 0o755); err == nil || errors.Is(err, fs.ErrExist) {
			return nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return err
}

type entryFile struct{ name, text string }

func (b *box) entryFiles() []entryFile {
	return []entryFile{
		{"locked", "sandbox of plan " + b.rec.PlanID + "; agents cleanup removes it\n"},
		{"HEAD", "ref: " + b.rec.Branch + "\n"},
		{"commondir", "../..\n"},
		{"gitdir", filepath.Join(b.rec.Path, ".git") + "\n"},
	}
}
