package gitworktree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/fsx"
	"github.com/cleveragents/agents/internal/git"
	"github.com/cleveragents/agents/sandbox"
)

var _ sandbox.Updater = (*Strategy)(nil)

// Update merges the original branch's new commits into the sandbox's present
// state and makes them the new base. A plan without commits of its own moves
// onto the new base with its changes uncommitted; its own commits get a merge
// commit on top. Files, index and branch move together or not at all.
// Conflicts are agents.ErrConflict, listed, and change nothing.
func (s *Strategy) Update(ctx context.Context, ws sandbox.Workspace, when time.Time) (agents.ResourceResult, sandbox.Workspace, error) {
	res := agents.ResourceResult{Resource: ws.Resource.Name, State: agents.ApplyFailed}
	b, err := s.open(ws)
	if err != nil {
		return res, ws, err
	}
	u := &update{box: b, res: &res, when: whenOr(when)}
	if err := u.carryOut(ctx); err != nil {
		res.Error = err.Error()
		return res, ws, fmt.Errorf("update sandbox %s: %w", ws.SandboxID, err)
	}
	b.ws.Metadata = b.rec.metadata()
	return res, b.ws, nil
}

// update is one Update under way.
type update struct {
	*box
	res  *agents.ResourceResult
	when time.Time

	at      git.Repo
	base    string   // the new one
	refs    planRefs // the plan's, before
	present string   // tree of the sandbox's files
	merged  string   // the tree that they become
	inside  bool     // the plan has merged the new base itself
	head    string   // the commit that the plan's HEAD becomes
	index   string   // the tree that the plan's index becomes
}

func (u *update) carryOut(ctx context.Context) error {
	if err := errors.Join(u.recoverMove(ctx), u.settleTip(ctx)); err != nil {
		return err
	}
	if err := u.newBase(ctx); err != nil || u.res.State == agents.ApplyUnchanged {
		return err
	}
	u.at = u.trusted()
	st, err := u.stage(ctx, u.at)
	if err != nil {
		return err
	}
	u.present = st.tree
	if u.refs, err = u.planRefs(); err != nil {
		return err
	}
	if u.refs.head == "" {
		u.refs.head = u.rec.Base
	}
	if err := u.merge(ctx); err != nil {
		return err
	}
	if err := u.sendToPlan(ctx); err != nil {
		return err
	}
	return u.move(ctx)
}

// newBase finds the original branch's commit. One that adds nothing is
// unchanged; one that was rewritten is merged all the same.
func (u *update) newBase(ctx context.Context) error {
	ref := u.rec.OriginalRef
	if ref == "" {
		ref = "HEAD"
	}
	id, err := u.user().Commit(ctx, ref)
	if errors.Is(err, agents.ErrNotFound) {
		return agents.WithHint(fmt.Errorf("branch %q is gone or was renamed: %w", short(ref), agents.ErrConflict), "apply with --into BRANCH")
	}
	if err != nil {
		return err
	}
	u.base = id
	old, err := u.user().IsAncestor(ctx, id, u.rec.Base)
	if err == nil && old {
		u.res.State = agents.ApplyUnchanged
	}
	u.res.Into = short(u.rec.OriginalRef)
	return err
}

// merge computes everything, and finds all conflicts, before anything moves.
func (u *update) merge(ctx context.Context) error {
	parent := u.rec.Base
	var err error
	if u.inside, err = u.at.IsAncestor(ctx, u.base, u.refs.head); err != nil {
		return err
	}
	if u.inside {
		parent = u.base
	}
	present, err := u.wrap(ctx, u.present, parent)
	if err != nil {
		return err
	}
	m, err := u.at.MergeTrees(ctx, present, u.base)
	if err != nil {
		return err
	}
	u.merged = m.Tree
	u.conflicts(m.Conflicts, "changed in the sandbox and on "+u.branchName())
	if err := u.inTheWay(ctx); err != nil {
		return err
	}
	if len(u.res.Conflicts) > 0 {
		u.res.State = agents.ApplyConflict
		return agents.WithHint(fmt.Errorf("%s: %w", count(len(u.res.Conflicts), "path conflicts", "paths conflict"), agents.ErrConflict),
			"agents plan shell %s -r %s, and there: git add -A && git commit -m mine; git merge %s; solve, git commit, exit; then agents plan apply %s",
			u.rec.PlanID, u.ws.Resource.Name, u.base, u.rec.PlanID)
	}
	if err := u.mergeHead(ctx); err != nil {
		return err
	}
	return u.mergeIndex(ctx)
}

func (u *update) branchName() string {
	if u.rec.OriginalRef == "" {
		return "HEAD"
	}
	return short(u.rec.OriginalRef)
}

func (u *update) conflicts(paths []string, reason string) {
	for _, p := range paths {
		u.res.Conflicts = append(u.res.Conflicts, agents.PathReason{Resource: u.ws.Resource.Name, Path: p, Reason: reason})
	}
}

// wrap makes a commit of a tree on top of the given parents.
func (u *update) wrap(ctx context.Context, tree string, parents ...string) (string, error) {
	return u.at.CommitTree(ctx, git.NewCommit{Tree: tree, Parents: parents, Message: "state of plan " + u.rec.PlanID + "\n",
		Author: nobody, Committer: nobody, When: u.when})
}

// inTheWay lists paths that the real side brings and where the sandbox has
// something that no tree shows, such as an ignored file; and fills in the result.
func (u *update) inTheWay(ctx context.Context) error {
	changes, err := u.at.DiffTrees(ctx, u.present, u.merged, git.DiffOptions{})
	if err != nil {
		return err
	}
	for _, c := range changes {
		switch c.Status {
		case 'A':
			u.res.Added = append(u.res.Added, c.Path)
			if !u.free(c.Path, changes) {
				u.conflicts([]string{c.Path}, "something that git does not track is in the way in the sandbox")
			}
		case 'D':
			u.res.Deleted = append(u.res.Deleted, c.Path)
		default:
			u.res.Changed = append(u.res.Changed, c.Path)
		}
	}
	return nil
}

// free reports whether a new path can be made: nothing is there, and nothing
// above it but directories and files that go.
func (u *update) free(path string, changes []git.Change) bool {
	parts := strings.Split(path, "/")
	for i := range parts {
		at := strings.Join(parts[:i+1], "/")
		fi, err := os.Lstat(u.file(at))
		if err != nil {
			return errors.Is(err, fs.ErrNotExist)
		}
		goes := slices.ContainsFunc(changes, func(c git.Change) bool { return c.Status == 'D' && c.Path == at })
		if goes {
			return true
		}
		if i < len(parts)-1 && !fi.IsDir() {
			return false
		}
	}
	entries, err := os.ReadDir(u.file(path))
	return err == nil && u.allGo(path, entries, changes)
}

// allGo reports whether every file below a directory is one that goes.
func (u *update) allGo(dir string, entries []fs.DirEntry, changes []git.Change) bool {
	for _, e := range entries {
		at := dir + "/" + e.Name()
		if e.IsDir() {
			below, err := os.ReadDir(u.file(at))
			if err != nil || !u.allGo(at, below, changes) {
				return false
			}
			continue
		}
		if !slices.ContainsFunc(changes, func(c git.Change) bool { return c.Status == 'D' && c.Path == at }) {
			return false
		}
	}
	return true
}

func (u *update) file(path string) string { return filepath.Join(u.rec.Path, filepath.FromSlash(path)) }

// mergeHead settles the plan's new HEAD.
func (u *update) mergeHead(ctx context.Context) error {
	own, err := u.at.IsAncestor(ctx, u.refs.head, u.base)
	if err != nil {
		return err
	}
	if own {
		u.head = u.base
		return nil
	}
	if u.inside {
		u.head = u.refs.head
		return nil
	}
	m, err := u.at.MergeTrees(ctx, u.refs.head, u.base)
	if err != nil {
		return err
	}
	tree := m.Tree
	if len(m.Conflicts) > 0 {
		tree = u.merged // the plan resolved it without committing: the merge holds what it has now
	}
	who, err := u.person(ctx)
	if err != nil {
		return err
	}
	u.head, err = u.at.CommitTree(ctx, git.NewCommit{Tree: tree, Parents: []string{u.refs.head, u.base},
		Message: "cleveragents: update plan " + u.rec.PlanID + " from " + u.branchName() + "\n", Author: who, Committer: who, When: u.when})
	return err
}

// mergeIndex keeps what the plan staged, where that merges; else the index
// becomes the new HEAD's.
func (u *update) mergeIndex(ctx context.Context) error {
	u.index = u.head
	at := u.at
	copied, err := u.copyIndex(ctx, at)
	if err != nil {
		return err
	}
	at.IndexFile = copied.path
	tree, err := at.WriteLine(ctx, "write-tree")
	if err != nil {
		return ctx.Err() // unmerged entries, or objects that are gone
	}
	staged, err := u.wrap(ctx, tree, u.refs.head)
	if err != nil {
		return err
	}
	m, err := u.at.MergeTrees(ctx, staged, u.base)
	if err == nil && len(m.Conflicts) == 0 {
		u.index = m.Tree
	}
	return err
}

// sendToPlan gives the plan's own object store what its new HEAD and index need.
func (u *update) sendToPlan(ctx context.Context) error {
	tip, err := u.wrap(ctx, u.index+"^{tree}", u.head)
	if err != nil {
		return err
	}
	plan := git.Repo{Git: u.box.run, GitDir: u.private("trusted"), ObjectDir: filepath.Join(u.planDir(), "objects")}
	return u.copyObjects(ctx, tip, []string{u.rec.Base, u.base}, plan)
}

// move changes files, index, branch and base in one journalled step.
func (u *update) move(ctx context.Context) error {
	if err := u.knowUpdated(ctx); err != nil {
		return err
	}
	stage := u.stageDir()
	defer func() { _ = fsx.RemoveAll(stage) }()
	ops, err := u.ops(ctx, stage)
	if err != nil {
		return err
	}
	journal := u.private("update")
	if err := fsx.MkdirAll(journal, 0o700); err != nil {
		return err
	}
	m, err := fsx.PrepareMove(journal, []string{u.rec.Path, u.planDir()}, u.near("update-hold"), ops)
	if err != nil {
		return err
	}
	err = m.Run(ctx)
	if err == nil {
		err = m.Commit()
	}
	if _, ferr := m.ForgetButLate(u.private("late")); err != nil || ferr != nil {
		return errors.Join(err, ferr)
	}
	u.settleBase()
	u.res.State, u.res.CommitRef = agents.ApplyApplied, u.base
	return u.keepBase(ctx)
}

// knowUpdated works out what of the user's uncommitted changes, which the
// sandbox started with, is still uncommitted on the new base.
func (u *update) knowUpdated(ctx context.Context) error {
	left := ""
	if u.rec.Uncommitted != "" {
		start, err := u.wrap(ctx, u.rec.Uncommitted, u.rec.Base)
		if err != nil {
			return err
		}
		m, err := u.at.MergeTrees(ctx, start, u.base)
		if err != nil {
			return err
		}
		if len(m.Conflicts) > 0 {
			u.conflicts(m.Conflicts, "the uncommitted changes that the sandbox started with were committed differently")
			u.res.State = agents.ApplyConflict
			return fmt.Errorf("uncommitted changes do not fit %s: %w", u.branchName(), agents.ErrConflict)
		}
		same, err := sameTree(ctx, u.at, u.base, m.Tree)
		if err != nil {
			return err
		}
		if !same {
			left = m.Tree
		}
	}
	return u.knowBase(u.base, left)
}

// ops makes the new contents aside and lists the move.
func (u *update) ops(ctx context.Context, stage string) ([]fsx.Op, error) {
	if err := fsx.RemoveAll(stage); err != nil {
		return nil, err
	}
	changes, err := u.at.DiffTrees(ctx, u.present, u.merged, git.DiffOptions{})
	if err != nil {
		return nil, err
	}
	if err := u.checkoutAside(ctx, filepath.Join(stage, "new"), changes); err != nil {
		return nil, fmt.Errorf("make new contents: %w", err)
	}
	t := &transition{t: target{root: u.rec.Path}, stage: stage}
	for _, c := range changes {
		moves, err := u.step(c)
		if err != nil {
			return nil, err
		}
		if moves != nil {
			t.steps = append(t.steps, *moves)
		}
	}
	ops, err := t.ops()
	if err != nil {
		return nil, err
	}
	for _, op := range ops {
		if op.Staged != "" {
			if err := syncStaged(op.Staged); err != nil {
				return nil, err
			}
		}
	}
	gitOps, err := u.gitOps(ctx, stage)
	return append(ops, gitOps...), err
}

// checkoutAside writes the merged tree's versions of what changes into dir.
func (u *update) checkoutAside(ctx context.Context, dir string, changes []git.Change) error {
	if err := fsx.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	at := u.at
	at.WorkTree, at.IndexFile = dir, filepath.Join(filepath.Dir(dir), "index")
	if _, err := at.Write(ctx, "read-tree", "--end-of-options", u.merged); err != nil {
		return err
	}
	var paths []string
	for _, c := range changes {
		if c.Status != 'D' && c.NewMode != git.ModeGitlink {
			paths = append(paths, c.Path)
		}
	}
	res, err := at.Do(ctx, git.Call{Args: []string{"checkout-index", "--force", "-z", "--stdin"}, Stdin: git.NulList(paths), Writes: true})
	if err == nil && filterOf(res.Stderr) != "" {
		err = fmt.Errorf("filter %s: %s: %w", filterOf(res.Stderr), strings.TrimSpace(res.Stderr), agents.ErrUnsupported)
	}
	return err
}

// step is the move of one file; a file that a sparse checkout keeps out, and a
// submodule, have none.
func (u *update) step(c git.Change) (*step, error) {
	before, err := fsx.Identify(u.file(c.Path))
	if errors.Is(err, syscall.ENOTDIR) {
		err = nil // what is above it goes
	}
	if err != nil || before.Kind == fsx.KindNone && c.Status != 'A' || c.NewMode == git.ModeGitlink || c.OldMode == git.ModeGitlink {
		return nil, err
	}
	return &step{Change: c, before: before}, nil
}

func syncStaged(path string) error {
	fi, err := os.Lstat(path)
	if err != nil || !fi.Mode().IsRegular() {
		return err
	}
	f, err := fsx.OpenFile(path, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// gitOps are the moves in the plan's git directory: index, HEAD or the branch
// that it names, and the base.
func (u *update) gitOps(ctx context.Context, stage string) ([]fsx.Op, error) {
	index := filepath.Join(stage, "plan-index")
	if err := copyOver(u.private("trusted", "stage-index"), index); err != nil {
		return nil, err
	}
	at := u.at
	at.IndexFile = index
	// What is known of unchanged files stays, so that git need not read them all again.
	if _, err := at.Write(ctx, "read-tree", "--reset", "-i", "--end-of-options", u.index); err != nil {
		return nil, err
	}
	if err := u.keepSparse(ctx, at); err != nil {
		return nil, err
	}
	head := "worktrees/sandbox/HEAD"
	if u.refs.branch != "" {
		head = u.refs.branch
	}
	if err := put(filepath.Join(stage, "head"), []byte(u.head+"\n"), 0o600); err != nil {
		return nil, err
	}
	if err := put(filepath.Join(stage, "base"), []byte(u.base+"\n"), 0o600); err != nil {
		return nil, err
	}
	var ops []fsx.Op
	for _, o := range []struct{ path, staged string }{{"worktrees/sandbox/index", "plan-index"}, {head, "head"}, {marker, "base"}} {
		before, err := fsx.Identify(filepath.Join(u.planDir(), filepath.FromSlash(o.path)))
		if err != nil {
			return nil, err
		}
		op := fsx.Op{Root: 1, Path: o.path, Before: before, Staged: filepath.Join(stage, o.staged)}
		if err := syncStaged(op.Staged); err != nil {
			return nil, err
		}
		ops = append(ops, op)
	}
	return ops, nil
}

// keepSparse marks the paths that the sandbox does not have on disk, and did
// not delete, as a sparse checkout does.
func (u *update) keepSparse(ctx context.Context, at git.Repo) error {
	old := u.at
	old.IndexFile = u.private("trusted", "stage-index")
	entries, err := old.Index(ctx)
	if err != nil {
		return err
	}
	now, err := at.Index(ctx)
	if err != nil {
		return err
	}
	stays := map[string]bool{}
	for _, e := range now {
		stays[e.Path] = true
	}
	var skip []string
	for _, e := range entries {
		if e.SkipWorktree && stays[e.Path] {
			skip = append(skip, e.Path)
		}
	}
	if len(skip) == 0 {
		return nil
	}
	_, err = at.Feed(ctx, git.NulList(skip), "update-index", "--skip-worktree", "-z", "--stdin")
	return err
}

// keepBase lets our branch in the user's repository hold the new base, and the
// plan's merge of it, so that neither can be lost to gc.
func (u *update) keepBase(ctx context.Context) error {
	if err := u.copyObjects(ctx, u.head, []string{u.rec.Base}, u.user()); err != nil {
		return err
	}
	if err := u.settleTip(ctx); err != nil {
		return err
	}
	return u.moveBranch(ctx, u.rec.Tip, u.head)
}

// recoverUpdate ends an update that was killed: before or after its move.
func (b *box) recoverUpdate() error {
	journal := b.private("update")
	if !exists(journal) {
		return nil
	}
	m, err := fsx.LoadMove(journal)
	if errors.Is(err, fs.ErrNotExist) {
		return errors.Join(fsx.RemoveAll(journal), fsx.RemoveAll(b.near("update-hold")), fsx.RemoveAll(b.stageDir()))
	}
	if err != nil {
		return err
	}
	if m.State() == fsx.MovePrepared {
		if _, err := m.UndoLeaving(b.private("late")); err != nil {
			return err
		}
	}
	if _, err := m.ForgetButLate(b.private("late")); err != nil {
		return err
	}
	b.settleBase()
	return errors.Join(fsx.RemoveAll(journal), fsx.RemoveAll(b.stageDir()))
}
