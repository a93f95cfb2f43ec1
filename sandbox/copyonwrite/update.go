package copyonwrite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/fsx"
	"github.com/cleveragents/agents/internal/snapshot"
	"github.com/cleveragents/agents/sandbox"
)

var _ sandbox.Updater = (*Strategy)(nil)

// Update copies the resource anew for a base as it is now, and brings what
// has changed there since the old base into the sandbox. Texts that both sides
// changed are merged by lines; what does not merge is agents.ErrConflict,
// listed, and changes nothing. A state that was recorded before belongs to the
// old base, and its restore brings that back.
func (s *Strategy) Update(ctx context.Context, ws sandbox.Workspace, _ time.Time) (agents.ResourceResult, sandbox.Workspace, error) {
	res := agents.ResourceResult{Resource: ws.Resource.Name, State: agents.ApplyFailed}
	b, err := s.open(ws)
	if err != nil {
		return res, ws, err
	}
	u := &update{box: b, res: &res}
	if err := errors.Join(u.run(ctx), fsx.RemoveAll(u.fresh())); err != nil {
		res.Error = err.Error()
		return res, ws, fmt.Errorf("update sandbox %s: %w", ws.SandboxID, err)
	}
	b.ws.Metadata = b.rec.metadata()
	return res, b.ws, nil
}

// update is one Update under way.
type update struct {
	*box
	res *agents.ResourceResult

	store   *snapshot.Store
	base    string // the new one
	origin  string
	changes []snapshot.Transferred
}

// fresh is where the new base is copied to for a moment.
func (b *box) fresh() string { return filepath.Join(filepath.Dir(b.stageDir()), "fresh") }

func (u *update) run(ctx context.Context) error {
	r, err := u.recorder(ctx, u.sealStore())
	if err != nil {
		return err
	}
	u.store = r.store
	present, err := r.capture(ctx, sandbox.CaptureRequest{Label: "before an update"})
	if err != nil {
		return err
	}
	if err := u.copyBase(ctx); err != nil {
		return err
	}
	theirs, err := u.store.Compare(ctx, u.rec.BaseState, u.base)
	if err != nil {
		return err
	}
	if !counts(theirs) {
		u.res.State = agents.ApplyUnchanged
		return nil
	}
	ours, err := u.store.Compare(ctx, u.rec.BaseState, present.Ref)
	if err != nil {
		return err
	}
	if err := u.merge(ctx, ours, theirs); err != nil {
		return err
	}
	if len(u.res.Conflicts) > 0 {
		u.res.State = agents.ApplyConflict
		c := u.res.Conflicts[0]
		return agents.WithHint(fmt.Errorf("%s: %s: %w", agents.EscapePath(c.Path), c.Reason, agents.ErrConflict),
			"change one side so that they agree: agents plan exec %s -- CMD changes the sandbox", u.ws.PlanID)
	}
	if err := u.move(ctx); err != nil {
		return err
	}
	u.list()
	return u.setBase(u.base, u.origin)
}

// copyBase records what the resource is now, in the base store.
func (u *update) copyBase(ctx context.Context) error {
	survey, err := look(ctx, u.ws.Resource, u.ws.Options.DataDir)
	if err != nil {
		return err
	}
	if err := fsx.RemoveAll(u.fresh()); err != nil {
		return err
	}
	report, err := u.copySurveyed(ctx, survey, u.fresh(), func(string) {}, nil) // what is left out was said when the sandbox was made
	if err != nil {
		return err
	}
	if len(report.Unsteady) > 0 {
		return agents.WithHint(fmt.Errorf("%s changes while it is copied: %w", agents.EscapePath(report.Unsteady[0]), agents.ErrConflict),
			"stop the program that writes it and try again")
	}
	lock, err := fsx.WaitLock(ctx, u.rec.Base+".lock", "update of sandbox "+u.ws.SandboxID)
	if err != nil {
		return err
	}
	defer lock.Release()
	base, err := u.baseStore(ctx)
	if err != nil {
		return err
	}
	tracker, err := snapshot.NewTracker(base, []snapshot.Root{{Name: files, Dir: u.fresh(), Exact: true}}, u.private("fresh-cache"))
	if err != nil {
		return err
	}
	if u.origin, err = keepOrigin(u.rec.Base, survey.Entries); err != nil {
		return err
	}
	c, err := tracker.Capture(ctx, snapshot.CaptureOptions{Label: "new base of sandbox " + u.ws.SandboxID + "\n\n" + originTrailer + u.origin + "\n"})
	u.base = c.Ref
	return errors.Join(err, fsx.Remove(u.private("fresh-cache")))
}

// merge finds out what the sandbox is to take over.
func (u *update) merge(ctx context.Context, ours, theirs []snapshot.Change) error {
	mine := map[string]snapshot.Change{}
	for _, c := range ours {
		mine[c.Path] = c
	}
	for _, c := range theirs {
		if u.rec.File != "" && c.Path == "" {
			continue
		}
		our, both := mine[c.Path]
		switch {
		case !both || timesOnly(our):
		case sameThing(our.New, c.New), timesOnly(c):
			continue
		default:
			merged, err := u.mergeTexts(ctx, our, c)
			if err != nil {
				return err
			}
			if !merged.Exists() {
				u.res.Conflicts = append(u.res.Conflicts, agents.PathReason{Resource: u.ws.Resource.Name, Path: c.Path, Reason: "the plan " +
					did(our.Old.Exists(), our.New.Exists()) + " it, and on the real side it was " + did(c.Old.Exists(), c.New.Exists()) + " since"})
				continue
			}
			c.New = merged
		}
		u.changes = append(u.changes, snapshot.Transferred{Path: c.Path, Old: c.Old, New: c.New})
	}
	return nil
}

// mergeTexts merges a file that both sides changed by lines; the zero entry
// says that it cannot be.
func (u *update) mergeTexts(ctx context.Context, our, their snapshot.Change) (snapshot.Entry, error) {
	for _, e := range []snapshot.Entry{our.Old, our.New, their.New} {
		if !e.Exists() || !e.Mode.IsRegular() {
			return snapshot.Entry{}, nil
		}
	}
	merged := our.New
	if our.New.Mode == our.Old.Mode {
		merged.Mode = their.New.Mode
	} else if their.New.Mode != their.Old.Mode && their.New.Mode != our.New.Mode {
		return snapshot.Entry{}, nil
	}
	var err error
	merged.ID, err = mergedText(ctx, u.box, u.store, our.New.ID, our.Old.ID, their.New.ID)
	if err != nil || merged.ID == "" {
		return snapshot.Entry{}, err
	}
	merged.Link = ""
	return merged, nil
}

// mergedText merges three texts by lines and returns the id of the result; ""
// where both sides changed the same lines.
func mergedText(ctx context.Context, b *box, store *snapshot.Store, ours, base, theirs string) (string, error) {
	var texts [3][]byte
	for i, id := range []string{ours, base, theirs} {
		var err error
		if texts[i], err = readBlob(ctx, store, id); err != nil {
			return "", err
		}
	}
	merged, clean, err := b.run.MergeFile(ctx, b.private("merge"), texts[0], texts[1], texts[2])
	if err != nil || !clean {
		return "", err
	}
	return store.Add(ctx, merged)
}

// move brings the changes into the sandbox, all or none; recoverMove ends one
// that was killed.
func (u *update) move(ctx context.Context) error {
	for i := range u.changes {
		c := &u.changes[i]
		at, err := fsx.Look(filepath.Join(u.rec.Path, filepath.FromSlash(c.Path)))
		if err != nil {
			return err
		}
		c.Before = at.Identity
		if c.Before.Kind == fsx.KindDir && !c.New.Exists() {
			left, err := os.ReadDir(filepath.Join(u.rec.Path, filepath.FromSlash(c.Path)))
			if err != nil {
				return err
			}
			for _, e := range left {
				below := c.Path + "/" + e.Name()
				if !slices.ContainsFunc(u.changes, func(o snapshot.Transferred) bool { return o.Path == below }) {
					return u.refuse(below, "the plan has it in a directory that was removed on the real side")
				}
			}
		}
	}
	tr, err := u.store.Prepare(ctx, snapshot.Transfer{Dir: u.rec.Path, Stage: u.stageDir(), Journal: u.private("move"), Changes: u.changes})
	if err == nil {
		err = tr.Run(ctx)
	}
	var at *fsx.MoveError
	if errors.As(err, &at) && errors.Is(err, agents.ErrConflict) {
		return errors.Join(u.refuse(at.Path, "the plan's changes leave no place for it"), u.recoverMove(ctx))
	}
	if err != nil {
		return errors.Join(err, u.recoverMove(ctx))
	}
	_, err = tr.Forget(u.private("late"))
	return err
}

// list fills the result with the files that the sandbox took over.
func (u *update) list() {
	u.res.State = agents.ApplyApplied
	for _, c := range u.changes {
		note(u.res, c.Path, c.Old, c.New)
	}
}

// refuse names a path at which the two sides do not fit.
func (u *update) refuse(path, why string) error {
	u.res.State = agents.ApplyConflict
	u.res.Conflicts = append(u.res.Conflicts, agents.PathReason{Resource: u.ws.Resource.Name, Path: path, Reason: why})
	return fmt.Errorf("%s: %s: %w", agents.EscapePath(path), why, agents.ErrConflict)
}
