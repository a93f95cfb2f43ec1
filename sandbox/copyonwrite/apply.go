package copyonwrite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/fsx"
	"github.com/cleveragents/agents/internal/snapshot"
	"github.com/cleveragents/agents/sandbox"
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

// compare looks at each path on the real side.
func (a *applying) compare(ctx context.Context, changes []snapshot.Change) error {
	a.byPath, a.reaches = map[string]*step{}, map[string]fsx.Kind{"": fsx.KindDir}
	for _, c := range changes {
		s := &step{Change: c}
		a.steps = append(a.steps, s)
		a.byPath[c.Path] = s
	}
	for _, s := range a.steps {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := a.compareOne(ctx, s); err != nil {
			return fmt.Errorf("%q: %w", s.Path, err)
		}
	}
	for i := len(a.steps) - 1; i >= 0; i-- {
		if err := a.checkGone(a.steps[i]); err != nil {
			return err
		}
	}
	a.chooseKept()
	for _, s := range a.steps {
		a.checkParent(s)
		if err := a.checkLogs(ctx, s); err != nil {
			return err
		}
		a.choose(s)
	}
	return a.joinNames(ctx)
}

// compareOne finds out what the real side made of a path since the copy.
func (a *applying) compareOne(ctx context.Context, s *step) error {
	var err error
	way := a.reached(above(s.Path))
	switch {
	case way == fsx.KindSymlink && s.Old.Exists(): // what lies behind it is another place
		a.refuse(s.Path, s.did()+" it, and on the real side its directory became a link")
		return nil
	case way == fsx.KindDir:
		if s.real, err = fsx.Look(a.lookAt(s.Path)); err != nil {
			return err
		}
	}
	org := a.from.at(s.Path)
	if s.real.Kind == fsx.KindFile && fsx.DatabaseInUse(a.home(s.Path)) && !timesOnly(s.Change) {
		a.refuse(s.Path, s.did()+" it, and on the real side it is a database that a program has open")
		return nil
	}
	if untouched(org, s.real) {
		return nil
	}
	if way == fsx.KindDir {
		s.has, s.real, err = a.store.Look(ctx, a.lookAt(s.Path))
	}
	if errors.Is(err, agents.ErrConflict) {
		a.refuse(s.Path, s.did()+" it, and on the real side it keeps changing")
		return nil
	}
	if err != nil {
		return err
	}
	switch {
	case a.equal(s, s.Old, org):
	case a.equal(s, s.New, fsx.SurveyEntry{}):
		s.skip = true // both sides did the same
	case timesOnly(s.Change):
		s.skip = true // the real side's own change counts
	default:
		return a.bothChanged(ctx, s)
	}
	return nil
}

// lookAt is where a path is looked at: the directory itself through any link.
func (a *applying) lookAt(path string) string {
	if path == "" {
		return a.rec.Dir + "/."
	}
	return a.home(path)
}

// above is the directory that a path is in; "" is the resource itself.
func above(p string) string {
	if dir := path.Dir(p); dir != "." {
		return dir
	}
	return ""
}

// reached says what lies at a directory's path in the resource, or in its way:
// KindDir only if it and all above it are directories.
func (a *applying) reached(dir string) fsx.Kind {
	kind, known := a.reaches[dir]
	if known {
		return kind
	}
	if kind = a.reached(above(dir)); kind == fsx.KindDir {
		at, err := fsx.Look(a.home(dir))
		if kind = at.Kind; err != nil {
			kind = fsx.KindNone
		}
	}
	a.reaches[dir] = kind
	return kind
}

// untouched reports whether what is there is, by stat, what was there when it
// was copied. The times and sizes of directories follow what is in them.
func untouched(org, now fsx.SurveyEntry) bool {
	if org.Kind != now.Kind || org.Mode != now.Mode || org.UID != now.UID || org.GID != now.GID {
		return false
	}
	if org.Kind == fsx.KindNone || org.Kind == fsx.KindDir {
		return true
	}
	return org.Ino == now.Ino && org.Size == now.Size && org.Mtime == now.Mtime && org.Ctime == now.Ctime
}

// equal reports whether the real side has what a state says of a path. The
// owner is compared with the one that was copied, which a copy need not have.
func (a *applying) equal(s *step, e snapshot.Entry, org fsx.SurveyEntry) bool {
	has := s.has
	if s.real.Kind == fsx.KindOther {
		return false
	}
	if org.Kind != fsx.KindNone && org.UID == has.UID && org.GID == has.GID || org.Kind == fsx.KindNone && !asRoot() {
		has.UID, has.GID = e.UID, e.GID
	}
	if org.Kind == fsx.KindSymlink && has.Mode&fs.ModeSymlink != 0 && string(org.Target) == string(s.real.Target) {
		has.ID, has.Mode = e.ID, e.Mode // the copy leads elsewhere by another way
	}
	return sameThing(has, e)
}

// asRoot reports whether owners can be given away.
func asRoot() bool { return os.Geteuid() == 0 }

// bothChanged refuses a path that both sides changed, unless its texts merge.
func (a *applying) bothChanged(ctx context.Context, s *step) error {
	if a.req.Merge && s.Old.Mode.IsRegular() && s.New.Mode.IsRegular() && s.real.Kind == fsx.KindFile && s.Old.Exists() && s.New.Exists() {
		merged, err := a.merge(ctx, s)
		if err != nil || merged {
			return err
		}
		a.refuse(s.Path, "the plan and the real side changed the same lines")
		return nil
	}
	a.refuse(s.Path, s.did()+" it, and on the real side it was "+
		did(a.from.at(s.Path).Kind != fsx.KindNone, s.real.Kind != fsx.KindNone)+" since")
	return nil
}

// did says what the plan did.
func (s *step) did() string { return "the plan " + did(s.Old.Exists(), s.New.Exists()) }

func did(was, is bool) string {
	switch {
	case !was:
		return "added"
	case !is:
		return "deleted"
	}
	return "changed"
}

// merge merges the texts of both sides, with the real side's bits and
// attributes where the plan left them.
func (a *applying) merge(ctx context.Context, s *step) (bool, error) {
	theirs, err := os.ReadFile(a.home(s.Path))
	if err != nil {
		return false, err
	}
	id, err := a.store.Add(ctx, theirs)
	if err == nil && id != s.has.ID {
		err = fmt.Errorf("it changes while it is read: %w", agents.ErrConflict)
	}
	if err != nil {
		return false, err
	}
	id, err = mergedText(ctx, a.box, a.store, s.New.ID, s.Old.ID, id)
	if err != nil || id == "" {
		return false, err
	}
	s.New.ID = id
	if s.Old.Mode == s.New.Mode {
		s.New.Mode = s.has.Mode
	}
	if sameXattrs(s.Old.Xattr, s.New.Xattr) {
		s.New.Xattr = s.has.Xattr
	}
	s.New.UID, s.New.GID, s.New.Link = s.has.UID, s.has.GID, ""
	return true, nil
}

// checkGone makes sure that a directory which the plan removed holds nothing
// that the plan never saw. It stays where what it holds never comes home.
func (a *applying) checkGone(s *step) error {
	if s.skip || !s.Old.Mode.IsDir() || s.New.Mode.IsDir() && s.New.Exists() || s.real.Kind != fsx.KindDir {
		return nil
	}
	entries, err := os.ReadDir(a.home(s.Path))
	if err != nil {
		return err
	}
	for _, e := range entries {
		at := path.Join(s.Path, e.Name())
		below := a.byPath[at]
		_, protected := a.protects(at)
		switch {
		case below != nil && below.skip && below.Old.Mode.IsDir() && !below.New.Exists():
			s.skip = true // it stays itself
		case below != nil:
		case (protected || e.Type()&^fs.ModeSymlink&^fs.ModeDir != 0) && !s.New.Exists():
			s.skip = true
		default:
			a.refuse(at, "it is on the real side alone, in a directory that the plan removed")
		}
	}
	return nil
}

// checkParent makes sure that what arrives has a directory to be in.
func (a *applying) checkParent(s *step) {
	if s.skip || !s.New.Exists() || s.Path == "" {
		return
	}
	dir := above(s.Path)
	if made := a.byPath[dir]; made != nil && !made.skip && made.New.Mode.IsDir() && made.New.Exists() {
		return
	}
	if a.reached(dir) != fsx.KindDir {
		a.refuse(s.Path, s.did()+" it, and on the real side its directory is gone, or is none any more")
	}
}

// checkLogs makes sure that a database which is replaced has no log that the
// plan never saw: its changes are no part of the database's file, and would be
// lost, or mixed with what the plan made of it.
func (a *applying) checkLogs(ctx context.Context, s *step) error {
	if s.skip || s.real.Kind != fsx.KindFile || timesOnly(s.Change) || !fsx.IsDatabase(a.home(s.Path)) {
		return nil
	}
	for _, end := range fsx.DatabaseLogs() {
		log := s.Path + end
		if a.byPath[log] != nil {
			continue // compared by itself
		}
		at, err := fsx.Look(a.home(log))
		if err != nil {
			return err
		}
		if at.Size == 0 || untouched(a.from.at(log), at) || a.sameAsCopy(ctx, log) {
			continue
		}
		a.refuse(s.Path, s.did()+" it, and on the real side its log "+agents.EscapePath(log)+" was written since")
	}
	return nil
}

// sameAsCopy reports whether a file that the plan did not change is the same
// on both sides.
func (a *applying) sameAsCopy(ctx context.Context, path string) bool {
	there, _, err := a.store.Look(ctx, a.home(path))
	if err != nil {
		return false
	}
	here, _, err := a.store.Look(ctx, filepath.Join(a.rec.Path, filepath.FromSlash(path)))
	return err == nil && here.ID == there.ID
}

// list sorts the files into the result's lists.
func (a *applying) list() {
	a.res.State = agents.ApplyUnchanged
	for _, s := range a.steps {
		if s.skip {
			continue
		}
		a.res.State = agents.ApplyApplied
		was := s.Old.Exists() && !s.Old.Mode.IsDir()
		is := s.New.Exists() && !s.New.Mode.IsDir()
		switch {
		case !was && is:
			a.res.Added = append(a.res.Added, s.Path)
		case was && !is:
			a.res.Deleted = append(a.res.Deleted, s.Path)
		case was && is && !sameThing(s.Old, s.New):
			a.res.Changed = append(a.res.Changed, s.Path)
		}
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
	for _, l := range late {
		a.res.Notices = append(a.res.Notices, fmt.Sprintf(
			"%s: a program that had it open wrote to what was replaced; those bytes are in %s", agents.EscapePath(l.Path), l.Held))
	}
	return err
}
