package gitworktree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/fsx"
	"github.com/cleveragents/agents/internal/git"
	"github.com/cleveragents/agents/sandbox"
	"github.com/cleveragents/agents/sandbox/internal/folder"
)

// Recover ends an Apply or Undo that was killed: if the ref has moved the rest
// is done, else everything is taken back. Of the user's it removes nothing: an
// index.lock goes only if it is the very file that the killed call made, and
// paths that somebody changed since stay as they are. Calling it again, or
// when there is nothing to end, gives the same answer.
func (s *Strategy) Recover(ctx context.Context, ws sandbox.Workspace, journalDir string) (sandbox.Recovered, error) {
	var out sandbox.Recovered
	run := s.runner(ws.Options)
	if ws.PrivateDir != "" {
		if err := fsx.RemoveAll(quarantineDir(ws)); err != nil {
			return out, fmt.Errorf("end the apply: %w", err)
		}
	}
	applied, notices, err := settle(ctx, run, ws, journalDir)
	if err != nil {
		return out, fmt.Errorf("end the apply: %w", err)
	}
	out.State, out.Notices = agents.ApplyReverted, notices
	if applied.state != agents.ApplyApplied {
		return out, nil
	}
	undone, notices, err := settle(ctx, run, ws, filepath.Join(journalDir, undoDir))
	if err != nil {
		return sandbox.Recovered{}, fmt.Errorf("end the undo: %w", err)
	}
	out.Notices = append(out.Notices, notices...)
	if undone.state != agents.ApplyApplied { // else the undo is the move that was applied
		out.State, out.Commit = agents.ApplyApplied, applied.begin.To
	}
	return out, nil
}

// journal is a journal folder, read.
type journal struct {
	begin  beginning
	intent intent
	state  agents.ApplyState // applied, reverted, or "" while it is not ended
	begun  bool
	meant  bool // the intent was written
}

// loadJournal reads the journal of an apply. One that was undone is reverted,
// as is an empty folder.
func loadJournal(dir string) (*journal, error) {
	j, err := readJournal(dir)
	if err != nil || j.state != agents.ApplyApplied {
		return j, err
	}
	u, err := readJournal(filepath.Join(dir, undoDir))
	if err == nil && u.state == agents.ApplyApplied {
		j.state = agents.ApplyReverted
	}
	return j, err
}

func readJournal(dir string) (*journal, error) {
	j := &journal{}
	var err error
	if j.begin, j.begun, err = loadBeginning(dir); err != nil {
		return nil, err
	}
	if !j.begun {
		j.state = agents.ApplyReverted
		return j, nil
	}
	if j.meant, err = getJSON(dir, intentFile, &j.intent); err != nil {
		return nil, err
	}
	var end ending
	if _, err := getJSON(dir, doneFile, &end); err != nil {
		return nil, err
	}
	j.state = end.State
	return j, nil
}

// settle ends the transition whose journal is in dir, and says what it left or
// kept.
func settle(ctx context.Context, run *git.Runner, ws sandbox.Workspace, dir string) (*journal, []string, error) {
	j, err := readJournal(dir)
	if err != nil {
		return nil, nil, err
	}
	if !j.begun {
		return j, nil, removeUnpublished(dir)
	}
	m := j.transition(dir)
	if j.state != "" {
		return j, nil, m.clean()
	}
	if m.t.root != "" && !isDir(m.t.root) {
		m.t.root = "" // a linked work tree that was removed since: the ref alone is left
	}
	location := m.t.root
	if location == "" {
		location = ws.Resource.Location
	}
	if m.t.found, err = git.Discover(ctx, run, location); err != nil {
		return nil, nil, err
	}
	m.t.repo = m.t.found.Repo(run)
	moved, err := m.hasMoved(ctx)
	if err != nil {
		return nil, nil, err
	}
	if moved {
		j.state = agents.ApplyApplied
		err = m.finish(ctx)
		return j, m.notices, err
	}
	j.state = agents.ApplyReverted
	err = m.takeBack()
	return j, m.notices, err
}

// removeUnpublished removes what a kill left of writing begin.json.
func removeUnpublished(dir string) error {
	left, err := filepath.Glob(filepath.Join(dir, beginFile+".tmp-*"))
	for _, name := range left {
		err = errors.Join(err, fsx.Remove(name))
	}
	return err
}

// transition is what a journal says about the move that it describes.
func (j *journal) transition(dir string) *transition {
	return &transition{
		t:    target{root: string(j.begin.Root), ref: j.begin.Ref, branch: strings.TrimPrefix(j.begin.Ref, "refs/heads/"), tip: j.begin.From},
		plan: j.begin.Plan, location: string(j.begin.Location), to: j.begin.To, dir: dir,
		stage: string(j.begin.Stage), pin: string(j.begin.Pin), seen: j.begin.Seen, intent: j.intent,
	}
}

// hasMoved reports whether the ref was moved: it holds the new commit, or one
// made on top of it; or the new index is in place, which comes after the ref.
func (m *transition) hasMoved(ctx context.Context) (bool, error) {
	if m.pin != "" && sameFile(m.pin, m.indexPath()) {
		return true, nil
	}
	tip, err := m.t.repo.Ref(ctx, m.t.ref)
	if errors.Is(err, agents.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if tip == m.to {
		return true, nil
	}
	if _, err := m.t.repo.Commit(ctx, m.to); errors.Is(err, agents.ErrNotFound) {
		return false, nil // it never came home
	}
	back, err := m.t.repo.IsAncestor(ctx, m.to, m.t.tip)
	if err != nil {
		return false, err
	}
	if back { // an undo: the ref has moved once it does not hold the old commit any more
		held, err := m.t.repo.IsAncestor(ctx, m.t.tip, tip)
		return !held, err
	}
	on, err := m.t.repo.IsAncestor(ctx, m.to, tip)
	if on || err != nil || m.seen {
		return on, err
	}
	return m.inReflog(ctx)
}

// inReflog reports whether the ref held the new commit at some time, which
// matters where the user has reset it since.
func (m *transition) inReflog(ctx context.Context) (bool, error) {
	res, err := m.t.repo.Do(ctx, git.Call{
		Args: []string{"log", "--walk-reflogs", "--format=%H", "--end-of-options", m.t.ref, "--"}, OK: []int{128},
	})
	return err == nil && strings.Contains(string(res.Stdout), m.to), err
}

// takeBack undoes the move of the files and lets go of the lock. Paths that
// somebody changed since stay.
func (m *transition) takeBack() error {
	if m.t.root == "" {
		return m.emptyJournal()
	}
	files, err := fsx.LoadMove(filepath.Join(m.dir, moveDir))
	if errors.Is(err, fs.ErrNotExist) {
		return m.emptyJournal()
	}
	if err != nil {
		return err
	}
	left, err := files.UndoLeaving(m.lateDir())
	if err != nil {
		return err
	}
	m.notices = append(m.notices, folder.LeftNotices(left)...)
	return m.emptyJournal()
}
