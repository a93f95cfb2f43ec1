package gitworktree

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"syscall"
	"time"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/fsx"
	"github.com/cleveragents/agents/internal/git"
	"github.com/cleveragents/agents/sandbox"
)

var (
	_ sandbox.Undoer    = (*Strategy)(nil)
	_ sandbox.Recoverer = (*Strategy)(nil)
)

// Apply merges the sealed commit into the branch that was recorded at creation
// (req.Into: another one; a plan that began on a detached HEAD goes there) and
// moves the work tree that has the branch checked out, if any has, with it
// (git-worktree-sandbox.md, "commit"; DESIGN §7, §8).
//
// The merge is computed beside the user's repository, which is never in the
// middle of a merge. It is a merge commit with two parents, unsigned, also
// where the branch has not moved; no hook runs. A result that the branch has
// already, or that changes nothing, is unchanged and makes no commit.
//
// What cannot be done changes nothing and is agents.ErrConflict of kind
// SandboxCommitError with the result's State ApplyConflict: the result lists
// the paths that do not merge, or that uncommitted, untracked or ignored files
// are in the way of. A lock that another git holds for longer than a moment is
// agents.ErrLocked. Failures of the disk or of a filter leave the repository
// as it was; where even that fails it is agents.ErrDamaged, and Recover goes on.
//
// With DryRun nothing is written but a folder in the workspace's PrivateDir,
// which is gone afterwards.
func (s *Strategy) Apply(ctx context.Context, ws sandbox.Workspace, req sandbox.ApplyRequest) (agents.ResourceResult, error) {
	a := &applying{ws: ws, req: req, run: s.runner(ws.Options)}
	var err error
	for range 5 {
		a.res = agents.ResourceResult{Resource: ws.Resource.Name}
		if err = a.apply(ctx); !errors.Is(err, errMoved) {
			break
		}
	}
	return a.outcome(err)
}

// applying is one call of Apply.
type applying struct {
	ws  sandbox.Workspace
	req sandbox.ApplyRequest
	run *git.Runner
	res agents.ResourceResult
}

func (a *applying) apply(ctx context.Context) (err error) {
	if err := a.checkJournal(); err != nil {
		return err
	}
	ref, err := wanted(a.ws, a.req.Into)
	if err != nil {
		return err
	}
	t, err := findTarget(ctx, a.run, a.ws.Resource.Location, ref)
	if err != nil {
		return err
	}
	a.res.Into = t.branch
	sealed, err := t.repo.Commit(ctx, a.req.Ref)
	if err != nil {
		return fmt.Errorf("sealed result: %w", err)
	}
	q, err := openQuarantine(quarantineDir(a.ws), t)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := q.close(); err == nil && a.req.DryRun {
			err = cerr
		}
	}()
	m, err := q.merge(ctx, t.tip, sealed)
	if err != nil {
		return err
	}
	a.res.Conflicts = m.conflicts
	switch {
	case len(m.conflicts) > 0:
		return fmt.Errorf("merge into %s: %w", name(t), agents.ErrConflict)
	case m.contained, len(m.changes) == 0:
		a.res.State = agents.ApplyUnchanged
		return nil
	}
	a.describe(m.changes)
	if a.req.DryRun {
		return a.preview(ctx, t, m, q)
	}
	return a.move(ctx, t, m, sealed, q)
}

// checkJournal refuses a journal folder that cannot be used.
func (a *applying) checkJournal() error {
	switch {
	case a.req.DryRun:
		return nil
	case !isDir(a.req.JournalDir):
		return fmt.Errorf("journal folder %q: %w", a.req.JournalDir, agents.ErrInvalid)
	}
	if _, begun, err := loadBeginning(a.req.JournalDir); err != nil || begun {
		return errors.Join(err, fmt.Errorf("journal folder %s has an apply already: %w", a.req.JournalDir, agents.ErrExists))
	}
	return nil
}

// name says where a result goes.
func name(t target) string {
	if t.branch == "" {
		return "the detached HEAD"
	}
	return t.branch
}

// describe fills the lists and counts of the result.
func (a *applying) describe(changes []git.Change) {
	for _, c := range changes {
		switch {
		case c.OldMode == git.ModeNone:
			a.res.Added = append(a.res.Added, c.Path)
		case c.NewMode == git.ModeNone:
			a.res.Deleted = append(a.res.Deleted, c.Path)
		default:
			a.res.Changed = append(a.res.Changed, c.Path)
		}
		a.res.Insertions += c.Insertions
		a.res.Deletions += c.Deletions
	}
}

// preview looks at the work tree without a lock.
func (a *applying) preview(ctx context.Context, t target, m merged, q *quarantine) error {
	a.res.State = agents.ApplyApplied
	if t.root == "" {
		return nil
	}
	lock := filepath.Join(t.found.GitDir, "index.lock")
	free := func() error {
		fi, err := lstatOrNil(lock)
		if fi != nil {
			return syscall.EEXIST
		}
		return err
	}
	if err := waitForLock(ctx, free, lock); err != nil {
		return err
	}
	if id, err := fsx.Identify(filepath.Join(t.found.GitDir, "index")); err != nil || id.Kind != fsx.KindFile {
		return errors.Join(err, fmt.Errorf("the index of %s is missing: %w", t.root, agents.ErrConflict))
	}
	repo := t.repo
	repo.Alternates = append(repo.Alternates[:len(repo.Alternates):len(repo.Alternates)], q.objects())
	_, refused, err := inspect(ctx, t, repo, t.tip, m.changes, nil, a.keepEdits())
	if err == nil && len(refused) > 0 {
		err = &refusedError{refused}
	}
	return err
}

// move makes the merge commit and moves the target to it.
func (a *applying) move(ctx context.Context, t target, m merged, sealed string, q *quarantine) error {
	commit, err := a.commit(ctx, t, m, sealed, q)
	if err != nil {
		return fmt.Errorf("make the merge commit: %w", err)
	}
	tr := &transition{
		t: t, plan: a.ws.PlanID, location: a.ws.Resource.Location, to: commit, changes: m.changes,
		dir: a.req.JournalDir, keep: a.keepEdits(), entry: filepath.Base(a.ws.Metadata["worktree_path"]), q: q, message: a.message(),
		carry: func(ctx context.Context) error { return a.carryLFS(ctx, t, sealed) },
	}
	if err := tr.run(ctx); err != nil {
		return err
	}
	a.res.Notices = append(a.res.Notices, tr.notices...)
	a.res.State, a.res.CommitRef = agents.ApplyApplied, commit
	return nil
}

func (a *applying) message() string { return "cleveragents: apply plan " + a.ws.PlanID }

func (a *applying) commit(ctx context.Context, t target, m merged, sealed string, q *quarantine) (string, error) {
	who, err := person(ctx, t.repo)
	if err != nil {
		return "", err
	}
	if git.True(t.settings, "commit.gpgsign") {
		a.res.Notices = append(a.res.Notices, "the merge commit is not signed, although commit.gpgSign is set: no signing program is run")
	}
	c := git.NewCommit{Tree: m.tree, Parents: []string{t.tip, sealed}, Author: who, Committer: who, When: a.req.When}
	if c.When.IsZero() {
		c.When = time.Now()
	}
	if c.Message = a.req.Message; c.Message == "" {
		c.Message = a.message()
	}
	c.Message += "\n"
	return q.commit(ctx, c)
}

// outcome classes an error and fills the result's State with it.
func (a *applying) outcome(err error) (agents.ResourceResult, error) {
	if err == nil {
		return a.res, nil
	}
	a.res.State = agents.ApplyFailed
	a.res.Added, a.res.Changed, a.res.Deleted, a.res.Insertions, a.res.Deletions = nil, nil, nil, 0, 0
	var refused *refusedError
	if errors.As(err, &refused) {
		a.res.Conflicts = refused.paths
	}
	for i := range a.res.Conflicts {
		a.res.Conflicts[i].Resource = a.ws.Resource.Name
	}
	if errors.Is(err, agents.ErrConflict) && !errors.Is(err, agents.ErrDamaged) {
		a.res.State = agents.ApplyConflict
	}
	a.res.Error = err.Error()
	return a.res, &agents.Error{Kind: agents.SandboxCommitError, Hint: a.hint(err, refused), Err: classed(err)}
}

// hint says what the user can do about an error.
func (a *applying) hint(err error, refused *refusedError) string {
	switch hint := agents.HintOf(err); {
	case hint != "":
		return hint
	case refused != nil:
		return "commit, stash or move what is in the way, then agents plan apply " + a.ws.PlanID
	case len(a.res.Conflicts) > 0:
		return "agents plan update " + a.ws.PlanID
	}
	return ""
}

// classed gives a full disk its class.
func classed(err error) error {
	if errors.Is(err, syscall.ENOSPC) && !errors.Is(err, agents.ErrNoSpace) {
		return fmt.Errorf("%w: %w", agents.ErrNoSpace, err)
	}
	return err
}
