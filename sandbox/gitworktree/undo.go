package gitworktree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/fsx"
	"github.com/cleveragents/agents/internal/git"
	"github.com/cleveragents/agents/sandbox"
)

// Undo moves the branch back to the commit that Apply found, and with it the
// work tree that has it checked out: the files get the bytes that they had, and
// the index its entries. It does so only while the branch is at our merge and
// no path that the merge touched has changed since, in the index or on the
// disk; else it is agents.ErrConflict, changes nothing, says what moved and
// names the git revert that does it on top. It needs the journal and the
// user's repository, not the sandbox. Undoing twice is no error.
func (s *Strategy) Undo(ctx context.Context, ws sandbox.Workspace, journalDir string) error {
	return s.undo(ctx, ws, journalDir, (*transition).run)
}

// CanUndo looks at everything that Undo looks at, under the index's lock, and
// goes no further.
func (s *Strategy) CanUndo(ctx context.Context, ws sandbox.Workspace, journalDir string) error {
	return s.undo(ctx, ws, journalDir, (*transition).rehearse)
}

func (s *Strategy) undo(ctx context.Context, ws sandbox.Workspace, journalDir string, do func(*transition, context.Context) error) error {
	j, err := s.finished(ctx, ws, journalDir)
	if err == nil && !j.begun {
		err = fmt.Errorf("undo: the journal of the apply is not in %s: %w", journalDir, agents.ErrNotFound)
	}
	if err != nil || j.state == agents.ApplyReverted {
		return err
	}
	tr, err := undoing(ctx, s.runner(ws.Options), ws, j, journalDir)
	if err == nil {
		err = do(tr, ctx)
	}
	if err == nil {
		return nil
	}
	wrapped := &agents.Error{Kind: agents.SandboxRollbackError, Hint: agents.HintOf(err), Err: classed(err)}
	if wrapped.Hint == "" && errors.Is(err, agents.ErrConflict) {
		wrapped.Hint = revertHint(ws, j)
	}
	return wrapped
}

// finished ends what a killed Apply or Undo left, and returns what came of it.
func (s *Strategy) finished(ctx context.Context, ws sandbox.Workspace, journalDir string) (*journal, error) {
	if _, err := s.Recover(ctx, ws, journalDir); err != nil {
		return nil, err
	}
	return loadJournal(journalDir)
}

// revertHint names the command that takes an apply back on top of what came since.
func revertHint(ws sandbox.Workspace, j *journal) string {
	return fmt.Sprintf("git -C %s revert -m 1 %s", agents.EscapePath(ws.Resource.Location), j.begin.To)
}

// undoing is the transition that takes an apply back.
func undoing(ctx context.Context, run *git.Runner, ws sandbox.Workspace, j *journal, journalDir string) (*transition, error) {
	merge, before := j.begin.To, j.begin.From
	location := string(j.begin.Location)
	if ws.Resource.Location != "" {
		location = ws.Resource.Location
	}
	t, err := findTarget(ctx, run, location, j.begin.Ref)
	if err != nil {
		return nil, agents.WithHint(err, "%s", revertHint(ws, j))
	}
	if t.tip != merge {
		moved := fmt.Errorf("%s has moved on since the apply, from %.12s to %.12s: %w", name(t), merge, t.tip, agents.ErrConflict)
		if holds, err := t.repo.IsAncestor(ctx, merge, t.tip); err == nil && !holds {
			return nil, agents.WithHint(moved, "%s does not hold the apply any more; nothing is left to undo in %s", name(t), location)
		}
		return nil, moved
	}
	changes, err := t.repo.DiffTrees(ctx, merge, before, git.DiffOptions{})
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(journalDir, undoDir)
	if err := errors.Join(fsx.RemoveAll(dir), fsx.MkdirAll(dir, 0o700)); err != nil {
		return nil, err
	}
	tr := &transition{
		t: t, plan: j.begin.Plan, location: location, to: before, changes: changes, dir: dir,
		entry: filepath.Base(ws.Metadata["worktree_path"]), message: "cleveragents: undo apply of plan " + j.begin.Plan,
	}
	if t.root != "" && t.root == string(j.begin.Root) {
		tr.past = newPast(j, journalDir)
	}
	return tr, nil
}

// past is what an apply's journal knows about the work tree before it.
type past struct {
	dir     string
	files   map[string]savedFile
	newRaw  map[string]string     // the bytes that the apply wrote
	flags   map[string]indexFlags // marks that the index entries had
	absent  map[string]bool       // paths that were in the index alone
	dirBits map[string]fs.FileMode
	edits   bool // uncommitted edits were merged into some
}

func newPast(j *journal, journalDir string) *past {
	p := &past{
		dir: filepath.Join(journalDir, beforeDir), files: map[string]savedFile{}, newRaw: map[string]string{},
		flags: map[string]indexFlags{}, absent: map[string]bool{}, dirBits: map[string]fs.FileMode{},
	}
	for _, i := range j.intent.Paths {
		p.edits = p.edits || i.Edits
		p.flags[string(i.Path)] = i.Flags
		p.absent[string(i.Path)] = i.IndexOnly && i.OldMode != git.ModeNone && i.OldMode != git.ModeGitlink
		if i.NewRaw != "" {
			p.newRaw[string(i.Path)] = i.NewRaw
		}
		if i.Before != nil && !i.Before.IsDir {
			p.files[string(i.Path)] = *i.Before
		}
	}
	for _, d := range j.intent.Dirs {
		p.dirBits[string(d.Path)] = fsx.PermissionMode(d.Before.Perm)
	}
	return p
}

// compare lists the paths whose bytes are not those that the apply wrote,
// although they may be the same to git, and keeps paths in the index alone
// that were there alone before.
func (p *past) compare(steps []step) []agents.PathReason {
	var all []agents.PathReason
	for i := range steps {
		s := &steps[i]
		if want := p.newRaw[s.Path]; want != "" && s.raw != "" && s.raw != want {
			all = append(all, agents.PathReason{Path: s.Path, Reason: "it was changed since the apply"})
		}
		if s.OldMode == git.ModeNone && p.absent[s.Path] {
			s.indexOnly = true
		}
	}
	return all
}

// written is the raw bytes that the apply wrote.
func (p *past) written() map[string]string {
	if p == nil {
		return nil
	}
	return p.newRaw
}

// has reports whether there is a before-image of a path.
func (p *past) has(path string) bool {
	if p == nil {
		return false
	}
	_, ok := p.files[path]
	return ok
}

// dirPerm returns the bits of a directory that the apply removed.
func (p *past) dirPerm(dir string) (fs.FileMode, bool) {
	if p == nil {
		return 0, false
	}
	perm, ok := p.dirBits[dir]
	return perm, ok
}

// stage puts a before-image at to.
func (p *past) stage(path, to string) error {
	saved := p.files[path]
	if err := fsx.MkdirAll(filepath.Dir(to), 0o777); err != nil {
		return err
	}
	if saved.File == "" {
		return fsx.Symlink(string(saved.Link), to)
	}
	if err := copyFile(filepath.Join(p.dir, saved.File), to, 0o600); err != nil {
		return err
	}
	if err := fsx.Chmod(to, fsx.PermissionMode(saved.Perm)); err != nil {
		return err
	}
	return fsx.Chtimes(to, time.Unix(0, saved.Mtime))
}
