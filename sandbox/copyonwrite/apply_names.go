package copyonwrite

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/fsx"
	"github.com/cleveragents/agents/internal/snapshot"
)

// A file that is there can stay while its bytes change, or be replaced. It has
// to stay where it has a name that the apply does not reach, outside of the
// resource, or is not ours to make again.

// isFile reports whether a path is to be a file.
func (s *step) isFile() bool { return !s.skip && s.New.Exists() && s.New.Mode.IsRegular() }

// group returns what tells the files of the result apart: the same for all
// names of one file.
func (s *step) group() string {
	if s.New.Link != "" {
		return "link " + s.New.Link
	}
	return "path " + s.Path
}

// canStay reports whether the file that is there has the result's bytes.
func (s *step) canStay() bool {
	return s.isFile() && s.real.Kind == fsx.KindFile && s.Old.Exists() && s.Old.ID == s.New.ID &&
		s.Old.UID == s.New.UID && s.Old.GID == s.New.GID && s.Old.Sparse == s.New.Sparse && sameXattrs(s.Old.Xattr, s.New.Xattr)
}

// chooseKept says which files stay that have several names: of those names that
// become files of their own, one keeps the file.
func (a *applying) chooseKept() {
	stays := map[uint64]string{} // file → the group that keeps it
	for _, s := range a.steps {
		if !s.canStay() || s.real.Links < 2 {
			continue
		}
		if stays[s.real.Ino] == "" {
			stays[s.real.Ino] = s.group()
			for _, name := range a.from.names(s.real.Ino) {
				if a.byPath[name] == nil { // another name stays as it is
					stays[s.real.Ino] = "link " + snapshot.LinkOf(a.from.names(s.real.Ino)[0])
				}
			}
		}
		s.keep = s.group() == stays[s.real.Ino]
	}
}

// choose says for a file that is there whether its bytes are written in place.
func (a *applying) choose(s *step) {
	if !s.isFile() || s.real.Kind != fsx.KindFile {
		return
	}
	if !asRoot() && int(s.real.UID) != os.Geteuid() {
		if s.skip = timesOnly(s.Change); !s.skip {
			a.refuse(s.Path, s.did()+" it, and on the real side it belongs to another user: what is written to it could not be taken back")
			a.advice = "apply as that user, or as root"
		}
		return
	}
	if s.keep || s.canStay() && s.real.Links < 2 && s.Old.Link == "" && s.New.Link == "" {
		return
	}
	dir := filepath.Dir(a.home(s.Path))
	switch {
	case !fsx.Writable(dir), !fsx.SameMount(a.home(s.Path), dir):
		if s.place = true; !sameXattrs(s.Old.Xattr, s.New.Xattr) {
			a.refuse(s.Path, s.did()+" its attributes, and on the real side it can only be written in place, which keeps them")
		}
	case s.real.Links > 1:
		s.place = a.keepsNames(s)
	}
}

// keepsNames reports whether a file has a name outside of the resource, and
// those inside that the plan left are one file still.
func (a *applying) keepsNames(s *step) bool {
	inside := a.from.names(s.real.Ino)
	if uint64(len(inside)) >= s.real.Links || s.New.UID != s.Old.UID || s.New.GID != s.Old.GID || !sameXattrs(s.Old.Xattr, s.New.Xattr) {
		return false
	}
	for _, name := range inside {
		other := a.byPath[name]
		if other == nil || other.isFile() && other.group() != s.group() {
			return false
		}
	}
	return true
}

// joinNames has the further names of a file that stays become names of it.
func (a *applying) joinNames(ctx context.Context) error {
	of := map[string]string{} // group → a path of the file that stays
	for _, s := range a.steps {
		if s.isFile() && (s.keep || s.place) && of[s.group()] == "" {
			of[s.group()] = s.Path
		}
	}
	for _, e := range a.from.entries {
		if e.Kind != fsx.KindFile || e.Links < 2 || a.byPath[e.Path] != nil {
			continue
		}
		names := a.from.names(e.Ino)
		group := "link " + snapshot.LinkOf(names[0])
		if len(names) < 2 || of[group] != "" {
			continue
		}
		of[group] = e.Path
	}
	for _, s := range a.steps {
		to := of[s.group()]
		if !s.isFile() || s.New.Link == "" || to == "" || s.keep || s.place {
			continue
		}
		if a.byPath[to] == nil {
			has, _, err := a.store.Look(ctx, a.home(to))
			if err != nil && !errors.Is(err, agents.ErrConflict) {
				return err
			}
			if err != nil || has.ID != s.New.ID {
				continue // it is another file there by now
			}
		}
		s.link = to
	}
	return nil
}
