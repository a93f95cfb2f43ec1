package copyonwrite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/fsx"
	"github.com/cleveragents/agents/internal/snapshot"
	"github.com/cleveragents/agents/sandbox"
	"github.com/cleveragents/agents/sandbox/internal/folder"
)

// Apply brings what the plan changed into the resource, path by path, and
// refuses paths that somebody changed there since the copy was made: by
// content, where inode, size or times differ. What both sides made the same
// is no conflict. Merge has texts that both sides changed merged by lines.
//
// Each file goes in by an exchange of names, and goes back if what came out is
// not what the preview saw; in place, from a before-image, where an exchange
// would break a hard link to a name outside the resource, change the owner, or
// hit a mount. Directories' bits and times come last.
func (s *Strategy) Apply(ctx context.Context, ws sandbox.Workspace, req sandbox.ApplyRequest) (agents.ResourceResult, error) {
	res := agents.ResourceResult{Resource: ws.Resource.Name, State: agents.ApplyFailed}
	b, err := s.open(ws)
	if err != nil {
		return res, err
	}
	a := &applying{box: b, req: req, res: &res}
	if err := a.run(ctx); err != nil {
		return res, fmt.Errorf("apply to %s: %w", b.home(b.rec.File), err)
	}
	return res, nil
}

// home is where a path of the sandbox is at home.
func (b *box) home(path string) string {
	return filepath.Join(b.rec.Dir, filepath.FromSlash(path))
}

// applying is one apply, or the preview of one.
type applying struct {
	*box
	req   sandbox.ApplyRequest
	res   *agents.ResourceResult
	store *snapshot.Store
	from  *origin

	advice  string // what helps against a conflict where no update or merge does
	byPath  map[string]*step
	steps   []*step             // by path
	reaches map[string]fsx.Kind // answers of reached
}

// step is one path that the plan changed.
type step struct {
	snapshot.Change
	real  fsx.SurveyEntry // what is there
	has   snapshot.Entry  // the same in the words of states, where it was looked at
	skip  bool            // nothing is to be done
	place bool            // write in place
	keep  bool            // the file stays, with other bits or another time
	link  string          // become a name of the file at this path
}

func (a *applying) run(ctx context.Context) error {
	r, err := a.recorder(ctx, a.sealStore())
	if err != nil {
		return err
	}
	a.store = r.store
	if a.from, err = readOrigin(a.rec.Base, a.rec.Origin); err != nil {
		return err
	}
	changes, left, err := a.result(ctx, a.store, a.req.Ref)
	if err != nil {
		return err
	}
	if !counts(changes) {
		a.res.State = agents.ApplyUnchanged
		return nil
	}
	if fi, err := os.Stat(a.rec.Dir); err != nil || !fi.IsDir() {
		a.res.State = agents.ApplyConflict
		return agents.WithHint(fmt.Errorf("the directory %s is gone: %w", a.rec.Dir, agents.ErrConflict),
			"put it back and apply again, or agents plan export %s --patch FILE takes the plan's changes elsewhere", a.ws.PlanID)
	}
	if err := a.compare(ctx, changes); err != nil {
		return err
	}
	if len(a.res.Conflicts) > 0 {
		return a.conflict()
	}
	a.list()
	if err := a.count(ctx, left); err != nil {
		return err
	}
	if a.req.DryRun {
		return nil
	}
	return a.move(ctx)
}

// conflict is the error of a preview that found some.
func (a *applying) conflict() error {
	a.res.State = agents.ApplyConflict
	err := fmt.Errorf("%s: %s: %w", agents.EscapePath(a.res.Conflicts[0].Path), a.res.Conflicts[0].Reason, agents.ErrConflict)
	elsewhere := fmt.Sprintf("agents plan export %s --patch FILE takes the plan's changes elsewhere", a.ws.PlanID)
	if a.advice != "" {
		return agents.WithHint(err, "%s; %s", a.advice, elsewhere)
	}
	if a.req.Merge {
		return agents.WithHint(err, "put those paths back on the real side and apply again, or %s", elsewhere)
	}
	return agents.WithHint(err, "agents plan update %s brings the real side's changes into the sandbox, agents plan apply %s --merge merges texts as it applies; %s",
		a.ws.PlanID, a.ws.PlanID, elsewhere)
}

// refuse notes a conflict: one a path.
func (a *applying) refuse(path, reason string) {
	if slices.ContainsFunc(a.res.Conflicts, func(p agents.PathReason) bool { return p.Path == path }) {
		return
	}
	a.res.Conflicts = append(a.res.Conflicts, agents.PathReason{Resource: a.ws.Resource.Name, Path: path, Reason: reason})
}

// list sorts the files into the result's lists.
func (a *applying) list() {
	a.res.State = agents.ApplyUnchanged
	for _, s := range a.steps {
		if s.skip {
			continue
		}
		a.res.State = agents.ApplyApplied
		note(a.res, s.Path, s.Old, s.New)
	}
}

// note enters a file into the list where it belongs.
func note(res *agents.ResourceResult, path string, from, to snapshot.Entry) {
	was := from.Exists() && !from.Mode.IsDir()
	is := to.Exists() && !to.Mode.IsDir()
	switch {
	case !was && is:
		res.Added = append(res.Added, path)
	case was && !is:
		res.Deleted = append(res.Deleted, path)
	case was && is && !sameThing(from, to):
		res.Changed = append(res.Changed, path)
	}
}

// count fills the numbers of lines.
func (a *applying) count(ctx context.Context, left []agents.PathReason) error {
	var skip []string
	for _, p := range left {
		skip = append(skip, p.Path)
	}
	files, err := a.box.compare(ctx, a.store, a.sealStore(), sandbox.DiffRequest{From: a.rec.BaseState, To: a.req.Ref, Counts: true}, skip)
	if errors.Is(err, agents.ErrUnsupported) {
		return nil // there is no git to count
	}
	for _, f := range files {
		a.res.Insertions += f.Insertions
		a.res.Deletions += f.Deletions
	}
	return err
}

// move changes the resource: all or nothing.
func (a *applying) move(ctx context.Context) error {
	if a.res.State == agents.ApplyUnchanged {
		return nil
	}
	stage, err := a.applyStage(a.req.JournalDir)
	if err != nil {
		return err
	}
	t := snapshot.Transfer{Dir: a.rec.Dir, Stage: stage, Journal: a.req.JournalDir}
	for _, s := range a.steps {
		if !s.skip {
			change, err := a.transferred(ctx, s)
			if err != nil {
				return fmt.Errorf("%q: %w", s.Path, err)
			}
			t.Changes = append(t.Changes, change)
		}
	}
	a.res.State = agents.ApplyFailed
	tr, err := a.store.Prepare(ctx, t)
	if err != nil {
		tidyStage(stage)
		return a.moved(err)
	}
	if err := tr.Run(ctx); err != nil {
		return a.moved(err)
	}
	a.res.State = agents.ApplyApplied
	return a.tellLate(tr)
}

// moved turns the error of a path that changed under the apply into a conflict.
func (a *applying) moved(err error) error {
	var at *fsx.MoveError
	if errors.As(err, &at) && errors.Is(err, agents.ErrConflict) {
		a.refuse(at.Path, "changed while it was applied")
		a.res.State = agents.ApplyConflict
	}
	return err
}

// transferred is a step as a transfer takes it.
func (a *applying) transferred(ctx context.Context, s *step) (snapshot.Transferred, error) {
	t := snapshot.Transferred{Path: s.Path, Before: s.real.Identity, Old: s.Old, New: s.New, InPlace: s.place, Keep: s.keep, LinkTo: s.link}
	if s.real.Kind != fsx.KindNone {
		t.Old.UID, t.Old.GID = s.real.UID, s.real.GID
		if s.New.UID == s.Old.UID && s.New.GID == s.Old.GID && s.Old.Exists() && s.New.Exists() {
			t.New.UID, t.New.GID = s.real.UID, s.real.GID // the plan did not change the owner
		}
	}
	if s.New.Exists() && s.New.Mode&fs.ModeSymlink != 0 {
		target, err := readBlob(ctx, a.store, s.New.ID)
		if err != nil {
			return t, err
		}
		if home := a.homeTarget(string(target)); home != string(target) {
			if t.New.ID, err = a.store.Add(ctx, []byte(home)); err != nil {
				return t, err
			}
		}
	}
	return t, nil
}

// tellLate says what programs wrote into files that they had open.
func (a *applying) tellLate(tr *snapshot.Transferring) error {
	late, err := tr.Late()
	a.res.Notices = append(a.res.Notices, folder.LateNotices(late)...)
	return err
}
