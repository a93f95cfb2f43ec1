package copyonwrite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"time"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/fsx"
	"github.com/cleveragents/agents/internal/snapshot"
)

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
		a.advice = "close the program that has the database open, and apply again"
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
		if s.New.Mode != s.Old.Mode && s.has.Mode != s.Old.Mode && s.has.Mode != s.New.Mode {
			a.refuse(s.Path, "the plan and the real side gave it different permission bits")
			return nil
		}
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
	s.New.Mtime = time.Now().UnixNano() // neither side has had these bytes
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
