package copyonwrite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"syscall"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/fsx"
	"github.com/cleveragents/agents/internal/snapshot"
	"github.com/cleveragents/agents/sandbox"
	"github.com/cleveragents/agents/sandbox/internal/folder"
)

var _ sandbox.Archiver = (*Strategy)(nil)

// Unapplied reports whether the sandbox holds a change that the resource does
// not have: protected names, which never come home, count too.
func (s *Strategy) Unapplied(ctx context.Context, ws sandbox.Workspace) (bool, error) {
	b, err := s.open(ws)
	if err != nil {
		return false, err
	}
	unapplied, err := b.unapplied(ctx)
	if err != nil {
		return false, fmt.Errorf("look for unapplied work: %w", err)
	}
	return unapplied, nil
}

func (b *box) unapplied(ctx context.Context) (bool, error) {
	r, err := b.recorder(ctx, b.sealStore())
	if err != nil {
		return false, err
	}
	c, err := r.capture(ctx, sandbox.CaptureRequest{Label: "for a comparison"})
	if err != nil {
		return false, err
	}
	changes, err := r.store.Compare(ctx, b.rec.BaseState, c.Ref)
	if err != nil {
		return false, err
	}
	a := &applying{box: b, store: r.store}
	for _, change := range changes {
		if timesOnly(change) {
			continue
		}
		s := &step{Change: change}
		if s.has, s.real, err = r.store.Look(ctx, a.lookAt(change.Path)); err != nil && !errors.Is(err, agents.ErrConflict) {
			return false, err
		}
		if err != nil || !a.equal(s, change.New, fsx.SurveyEntry{}) {
			return true, nil
		}
	}
	return false, nil
}

// What an archive holds.
const (
	archiveRecord = "sandbox.json"
	archiveStates = "states"
	archiveBase   = "base"
	archiveDiff   = "result.patch"
)

// archived is the record of an archive.
type archived struct {
	record
	State string `json:"state"` // the archived state, in archiveStates
}

// Archive records the sandbox's files as a state in dir, which costs what
// differs from the base, and for people a patch of what the plan changed. Where
// the base store is the sandbox's own, it comes along. Everything is durable
// when it returns.
func (s *Strategy) Archive(ctx context.Context, ws sandbox.Workspace, dir string) error {
	b, err := s.open(ws)
	if err != nil {
		return err
	}
	if err := b.archive(ctx, dir); err != nil {
		return fmt.Errorf("archive sandbox %s: %w", ws.SandboxID, err)
	}
	return nil
}

func (b *box) archive(ctx context.Context, dir string) error {
	if err := fsx.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := fsx.ClearDir(dir, ""); err != nil { // what a killed attempt left
		return err
	}
	if err := b.archivePatch(ctx, filepath.Join(dir, archiveDiff)); err != nil {
		return fmt.Errorf("%s: %w", archiveDiff, err)
	}
	state, err := b.archiveState(ctx, filepath.Join(dir, archiveStates))
	if err != nil {
		return err
	}
	if b.rec.Base == b.private("base") {
		if _, err := fsx.CopyTree(ctx, b.rec.Base, filepath.Join(dir, archiveBase)); err != nil {
			return err
		}
	}
	data, err := json.MarshalIndent(archived{b.rec, state}, "", "  ")
	if err != nil {
		return err
	}
	return fsx.Publish(filepath.Join(dir, archiveRecord), append(data, '\n'), 0o600)
}

// archiveState records the present files in a store of their own.
func (b *box) archiveState(ctx context.Context, dir string) (ref string, err error) {
	if b.rec.BaseState == "" { // nobody has asked for a state yet
		if _, err := b.recorder(ctx, b.sealStore()); err != nil {
			return "", err
		}
	}
	store, err := snapshot.Open(ctx, dir, snapshot.Options{Below: b.rec.Base})
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	tracker, err := b.tracker(store)
	if err != nil {
		return "", err
	}
	c, err := (&recorder{b, store, tracker}).capture(ctx, sandbox.CaptureRequest{Label: "archive of sandbox " + b.ws.SandboxID})
	if err != nil {
		return "", err
	}
	return c.Ref, store.Hold("archived", c.Ref)
}

// archivePatch writes the patch, or into its place why there is none: git makes
// none of files that do not fit into memory, and the archive does without.
func (b *box) archivePatch(ctx context.Context, path string) error {
	err := b.writePatch(ctx, path)
	if err == nil || ctx.Err() != nil || errors.Is(err, syscall.ENOSPC) || errors.Is(err, agents.ErrNoSpace) {
		return err
	}
	return fsx.Publish(path, []byte("there is no patch: "+err.Error()+"\n"), 0o600)
}

func (b *box) writePatch(ctx context.Context, path string) error {
	f, err := fsx.Create(path, 0o600)
	if err != nil {
		return err
	}
	_, err = b.diff(ctx, sandbox.DiffRequest{Patch: f})
	if errors.Is(err, agents.ErrUnsupported) {
		err = nil // there is no git to write one
	}
	return errors.Join(err, f.Sync(), f.Close())
}

// Unarchive makes a sandbox from an archive again, on the same base. A base
// store that is gone, or a folder that is no archive, is agents.ErrDamaged.
func (s *Strategy) Unarchive(ctx context.Context, req sandbox.CreateRequest, dir string) (sandbox.Workspace, error) {
	var old archived
	err := folder.Load(dir, recordVersion, &old)
	if err == nil && (!exists(filepath.Join(dir, archiveStates)) || old.State == "") {
		err = fmt.Errorf("archive %s: %w", dir, agents.ErrDamaged)
	}
	if err != nil {
		return sandbox.Workspace{}, err
	}
	req.Like = map[string]string{sandbox.MetaBaseRef: old.BaseState}
	b, _, err := s.plan(ctx, req)
	if err != nil {
		return sandbox.Workspace{}, err
	}
	b.rec.BaseState, b.rec.Origin = old.BaseState, old.Origin
	if !exists(filepath.Join(dir, archiveBase)) {
		b.rec.Base = old.Base
	}
	if err := b.rebuild(ctx, dir, old.State); err != nil {
		detached, cancel := sandbox.Detach(ctx)
		defer cancel()
		return sandbox.Workspace{}, errors.Join(fmt.Errorf("restore archive: %w", err), s.Remove(detached, b.ws))
	}
	return b.ws, nil
}

// rebuild is build from an archive.
func (b *box) rebuild(ctx context.Context, dir, state string) error {
	if err := b.save(); err != nil {
		return err
	}
	if from := filepath.Join(dir, archiveBase); exists(from) {
		b.rec.Base = b.private("base")
		if _, err := fsx.CopyTree(ctx, from, b.rec.Base); err != nil {
			return err
		}
	}
	if _, err := fsx.CopyTree(ctx, filepath.Join(dir, archiveStates), b.private("states")); err != nil {
		return err
	}
	return b.rebuildState(ctx, state)
}
