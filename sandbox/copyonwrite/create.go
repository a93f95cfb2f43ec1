package copyonwrite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/fsx"
	"github.com/cleveragents/agents/sandbox"
	"github.com/cleveragents/agents/sandbox/internal/folder"
)

var _ sandbox.Strategy = (*Strategy)(nil)

// Create copies the resource: bytes (shared with the original where the file
// system can), permission bits, times, owners where the process may, links,
// hard links, holes, extended attributes and ACLs. FIFOs, sockets, devices and
// other mounted file systems are left out and said. A location that is not
// what its type says is agents.ErrInvalid, one that is gone
// agents.ErrNotFound, a path that may not be read fs.ErrPermission, a disk
// without room for the copy agents.ErrNoSpace, all before the first byte is
// copied. A file that keeps changing is copied as it comes, and said.
func (s *Strategy) Create(ctx context.Context, req sandbox.CreateRequest) (sandbox.Workspace, error) {
	b, survey, err := s.plan(ctx, req)
	if err != nil {
		return sandbox.Workspace{}, err
	}
	if req.Like[sandbox.MetaBaseRef] != "" {
		err = b.buildLike(ctx, req.Like)
	} else {
		err = b.build(ctx, req, survey)
	}
	if err != nil {
		detached, cancel := sandbox.Detach(ctx)
		defer cancel()
		return sandbox.Workspace{}, errors.Join(err, s.Remove(detached, b.ws))
	}
	return b.ws, nil
}

// plan finds out everything that Create needs, and makes nothing; what an
// earlier, killed Create left in the same private folder goes first.
func (s *Strategy) plan(ctx context.Context, req sandbox.CreateRequest) (*box, *fsx.Survey, error) {
	left := sandbox.Workspace{SandboxID: req.SandboxID, PlanID: req.PlanID, Resource: req.Resource,
		PrivateDir: req.PrivateDir, Options: req.Options}
	if err := s.Remove(ctx, left); err != nil {
		return nil, nil, fmt.Errorf("clear what a killed creation left: %w", err)
	}
	rec := record{SandboxID: req.SandboxID, PlanID: req.PlanID, Entry: folder.NewEntry(req.PlanID), Base: req.Shared, Boot: bootID(), Begun: time.Now().UnixNano()}
	if rec.Base == "" {
		rec.Base = filepath.Join(req.PrivateDir, "base")
	}
	var survey *fsx.Survey
	var err error
	if req.Like[sandbox.MetaBaseRef] == "" {
		survey, err = look(ctx, req.Resource, req.Options.DataDir)
		if err != nil {
			return nil, nil, err
		}
		rec.Dir = survey.Dir
	} else if rec.Dir, err = filepath.EvalSymlinks(homeOf(req.Resource)); err != nil {
		return nil, nil, err
	}
	if single(req.Resource) {
		rec.File = filepath.Base(resolved(req.Resource.Location))
	}
	dir := placeFor(rec.Dir, req.Dir)
	rec.Path = filepath.Join(dir, rec.Entry)
	if rec.File == "" { // around a single file, our directory may well lie
		if err := folder.Outside(dir, rec.Dir); err != nil {
			return nil, nil, err
		}
	}
	if rec.Near, err = folder.Beside(dir, req.PrivateDir, rec.Entry); err != nil {
		return nil, nil, err
	}
	left.Path = rec.Path
	return s.box(left, rec), survey, nil
}

// single reports whether a resource is one file.
func single(r agents.Resource) bool {
	return r.Type == agents.TypeFile || r.Type == agents.TypeSQLite
}

// homeOf is the directory that a resource is, or is in.
func homeOf(r agents.Resource) string {
	if single(r) {
		return filepath.Dir(resolved(r.Location))
	}
	return r.Location
}

// resolved is where a location leads to; itself, where nothing is there.
func resolved(location string) string {
	if real, err := filepath.EvalSymlinks(location); err == nil {
		return real
	}
	return location
}

// look surveys a resource, without the data directory in it.
func look(ctx context.Context, r agents.Resource, dataDir string) (*fsx.Survey, error) {
	real, err := filepath.EvalSymlinks(r.Location)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, agents.WithHint(fmt.Errorf("resource %s: %s is gone: %w", r.Name, r.Location, agents.ErrNotFound), "put it back, or name another one with -r")
	}
	if err != nil {
		return nil, fmt.Errorf("resource %s: %w: %w", r.Name, err, agents.ErrInvalid)
	}
	fi, err := os.Stat(real)
	switch {
	case err != nil:
		return nil, err
	case single(r) && fi.IsDir(), !single(r) && !fi.IsDir():
		return nil, fmt.Errorf("resource %s: %s is not what type %s says: %w", r.Name, r.Location, r.Type, agents.ErrInvalid)
	case single(r):
		return fsx.SurveyFile(real)
	}
	data, err := fsx.IdentifyTarget(dataDir)
	if err != nil {
		return nil, err
	}
	return fsx.SurveyTree(ctx, real, func(e fsx.SurveyEntry) string {
		if e.Dev == data.Dev && e.Ino == data.Ino || strings.HasPrefix(path.Base(e.Path), ourPrefix) {
			return "is where sandboxes and plans are kept"
		}
		return ""
	})
}

// build copies what was surveyed.
func (b *box) build(ctx context.Context, req sandbox.CreateRequest, survey *fsx.Survey) error {
	if err := b.save(); err != nil {
		return err
	}
	_, err := b.copySurveyed(ctx, survey, b.rec.Path, req.Notify, req.Progress)
	if err != nil {
		return err
	}
	if b.rec.Origin, err = keepOrigin(b.rec.Base, survey.Entries); err != nil {
		return err
	}
	return b.ready()
}

// copySurveyed copies the resource to a place of ours, with links and
// repositories that lead into the copy, and tells what it could not do.
// Progress may be nil.
func (b *box) copySurveyed(ctx context.Context, survey *fsx.Survey, to string, notify func(string), progress func(done, all int)) (fsx.CopyReport, error) {
	if err := fsx.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return fsx.CopyReport{}, err
	}
	top, err := os.Stat(survey.Dir)
	if err != nil {
		return fsx.CopyReport{}, err
	}
	opts := fsx.CopyOptions{Link: func(path, target string) string { return reroot(survey.Dir, top, path, target) }}
	if progress != nil {
		opts.Progress = func(files int, _ int64) { progress(files, survey.Files) }
	}
	report, err := survey.Copy(ctx, to, opts)
	if err != nil {
		return report, err
	}
	b.tell(notify, report)
	if err := b.ownGit(to, survey, top, notify); err != nil {
		return report, err
	}
	if b.rec.File != "" { // the directory around a single file is ours and nobody's copy
		err = fsx.Chmod(to, 0o700)
	}
	return report, err
}

func (b *box) ready() error {
	b.rec.Ready = true
	b.ws.Metadata = b.rec.metadata()
	return b.save()
}

// tell says what the copy could not do.
func (b *box) tell(notify func(string), report fsx.CopyReport) {
	name := b.ws.Resource.Name
	for _, skipped := range report.Skipped {
		notify(fmt.Sprintf("resource %s: %s %s and is not in the sandbox", name, agents.EscapePath(skipped.Path), skipped.Why))
	}
	for _, path := range report.Unsteady {
		notify(fmt.Sprintf("resource %s: %s kept changing while it was copied; its copy may be torn, and apply will not touch it", name, agents.EscapePath(path)))
	}
	if n := len(report.Gone); n > 0 {
		notify(fmt.Sprintf("resource %s: %d paths went away while they were copied, the first %s", name, n, agents.EscapePath(report.Gone[0])))
	}
}

// buildLike makes the sandbox of an earlier life again, from its base state.
func (b *box) buildLike(ctx context.Context, like map[string]string) error {
	b.rec.Base, b.rec.Origin, b.rec.BaseState = like[metaBase], like[metaOrigin], like[sandbox.MetaBaseRef]
	return b.rebuildState(ctx, b.rec.BaseState)
}

// rebuildState makes the sandbox's directory from a state that its own store
// has, or the base store.
func (b *box) rebuildState(ctx context.Context, ref string) error {
	if _, err := readOrigin(b.rec.Base, b.rec.Origin); err != nil {
		return err
	}
	if err := b.save(); err != nil {
		return err
	}
	if err := fsx.MkdirAll(b.rec.Path, 0o700); err != nil {
		return err
	}
	r, err := b.recorder(ctx, b.private("states"))
	if err != nil {
		return err
	}
	if _, err := r.restore(ctx, ref, false); err != nil {
		return err
	}
	b.rec.Synced = true // as whatever a restore makes
	return b.ready()
}
