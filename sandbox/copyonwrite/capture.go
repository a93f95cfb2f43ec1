package copyonwrite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/fsx"
	"github.com/cleveragents/agents/internal/snapshot"
	"github.com/cleveragents/agents/sandbox"
	"github.com/cleveragents/agents/sandbox/internal/folder"
)

// files is the name of the root in states.
const files = "files"

// recorder is what captures and restores one workspace.
type recorder struct {
	b       *box
	store   *snapshot.Store
	tracker *snapshot.Tracker
}

// recorder opens the store of states in a folder, with the base store below
// it. What names the base store, and what is put into it, happens under the
// base store's lock, so that it is not taken for one that nobody needs.
func (b *box) recorder(ctx context.Context, objects string) (*recorder, error) {
	if objects == "" {
		return nil, fmt.Errorf("no folder for the states of sandbox %s: %w", b.ws.SandboxID, agents.ErrInvalid)
	}
	lock, err := fsx.WaitLock(ctx, b.rec.Base+".lock", "sandbox "+b.ws.SandboxID)
	if err != nil {
		return nil, err
	}
	defer lock.Release()
	if err := b.ensureBase(ctx); err != nil {
		return nil, err
	}
	store, err := b.states.Get(ctx, objects, func() snapshot.Options { return snapshot.Options{Below: b.rec.Base} })
	if err != nil {
		return nil, fmt.Errorf("open states of sandbox %s: %w", b.ws.SandboxID, err)
	}
	tracker, err := b.tracker(store)
	return &recorder{b, store, tracker}, err
}

func (b *box) tracker(store *snapshot.Store) (*snapshot.Tracker, error) {
	return snapshot.NewTracker(store, []snapshot.Root{{Name: files, Dir: b.rec.Path, Exact: true}}, b.private("cache"))
}

// ensureBase records the base state, in the base store, the first time that
// anybody asks for a state: before anything can have changed in the copy. From
// then on a copy that a stop of the machine has torn can be made again.
func (b *box) ensureBase(ctx context.Context) error {
	if b.rec.BaseState != "" {
		return nil
	}
	if b.rec.Boot == "" { // nothing would tell that the machine has stopped
		if err := b.sync(); err != nil {
			return err
		}
	}
	base, err := b.baseStore(ctx)
	if err != nil {
		return err
	}
	tracker, err := b.tracker(base)
	if err != nil {
		return err
	}
	o, err := readOrigin(b.rec.Base, b.rec.Origin)
	if err != nil {
		return err
	}
	if err := b.seedKnown(ctx, base, tracker, o); err != nil {
		return err
	}
	c, err := tracker.Capture(ctx, snapshot.CaptureOptions{Label: "base of sandbox " + b.ws.SandboxID + "\n\n" + originTrailer + b.rec.Origin + "\n"})
	if err != nil {
		return fmt.Errorf("record the base state: %w", err)
	}
	if err := b.keepKnown(tracker, o); err != nil {
		return err
	}
	b.rec.BaseState = c.Ref
	return b.save()
}

// baseStore opens the base store. It keeps contents as clones of the copy's
// where both are on a file system that can.
func (b *box) baseStore(ctx context.Context) (*snapshot.Store, error) {
	return b.states.Get(ctx, b.rec.Base, func() snapshot.Options {
		return snapshot.Options{Clones: fsx.CanClone(filepath.Dir(b.rec.Path), folder.Existing(b.rec.Base))}
	})
}

// Capture records the workspace as it is: bytes, bits, owners, attributes,
// times, hard links and holes. The base state goes into the base store, which
// all later states share.
func (s *Strategy) Capture(ctx context.Context, ws sandbox.Workspace, req sandbox.CaptureRequest) (sandbox.Captured, error) {
	b, err := s.open(ws)
	if err != nil {
		return sandbox.Captured{}, err
	}
	r, err := b.recorder(ctx, req.Objects)
	if err == nil {
		err = b.knowObjects(req.Objects)
	}
	var c snapshot.Captured
	if err == nil {
		c, err = r.capture(ctx, req)
	}
	if err != nil {
		return sandbox.Captured{}, fmt.Errorf("capture sandbox %s: %w", ws.SandboxID, err)
	}
	return sandbox.Captured{Ref: c.Ref, SizeBytes: c.BytesAdded, LeftOut: b.named(c.LeftOut), Notices: c.Notices}, nil
}

// knowObjects remembers where states are captured: results are sealed there too.
func (b *box) knowObjects(objects string) error {
	if b.rec.Objects == objects {
		return nil
	}
	b.rec.Objects = objects
	return b.save()
}

func (r *recorder) capture(ctx context.Context, req sandbox.CaptureRequest) (snapshot.Captured, error) {
	if err := r.b.recoverMove(ctx); err != nil {
		return snapshot.Captured{}, err
	}
	label := req.Label
	if label == "" {
		label = "state of sandbox " + r.b.ws.SandboxID
	}
	opts := snapshot.CaptureOptions{Label: label + "\n\n" + baseTrailer + r.b.rec.BaseState + "\n" + originTrailer + r.b.rec.Origin + "\n"}
	for _, p := range req.Paths {
		opts.Paths = append(opts.Paths, snapshot.Path{Root: files, Path: p})
	}
	return r.tracker.Capture(ctx, opts)
}

// A state says which base it belongs to: an update makes another one, and a
// restore of an older state brings its base back.
const (
	baseTrailer   = "Base-State: "
	originTrailer = "Origin: "
)

// baseOf reads which base a state belongs to; a base state, to itself.
func (r *recorder) baseOf(ctx context.Context, ref string) (base, origin string, err error) {
	label, err := r.store.Label(ctx, ref)
	if err != nil {
		return "", "", err
	}
	base, origin = ref, r.b.rec.Origin
	for line := range strings.Lines(label) {
		if v, ok := strings.CutPrefix(line, baseTrailer); ok {
			base = strings.TrimSpace(v)
		}
		if v, ok := strings.CutPrefix(line, originTrailer); ok {
			origin = strings.TrimSpace(v)
		}
	}
	return base, origin, nil
}

// named gives what a state leaves out the resource's name.
func (b *box) named(list []agents.PathReason) []agents.PathReason {
	out := make([]agents.PathReason, len(list))
	for i, p := range list {
		p.Resource = b.ws.Resource.Name
		out[i] = p
	}
	return out
}

// Restore puts the workspace into a recorded state, with the times, links and
// holes that it had.
func (s *Strategy) Restore(ctx context.Context, ws sandbox.Workspace, req sandbox.RestoreRequest) (sandbox.Restored, error) {
	b, err := s.open(ws)
	if err != nil {
		return sandbox.Restored{}, err
	}
	r, err := b.recorder(ctx, req.Objects)
	var done snapshot.Restored
	if err == nil {
		done, err = r.restore(ctx, orElse(req.Ref, b.rec.BaseState), req.DryRun)
	}
	if err != nil {
		return sandbox.Restored{}, fmt.Errorf("restore sandbox %s: %w", ws.SandboxID, err)
	}
	var out sandbox.Restored
	for _, c := range done.Changes {
		if c.Path != "" {
			c.Resource = ws.Resource.Name
			out.Changes = append(out.Changes, c)
		}
	}
	return out, nil
}

func (r *recorder) restore(ctx context.Context, ref string, dryRun bool) (snapshot.Restored, error) {
	if err := r.b.recoverMove(ctx); err != nil {
		return snapshot.Restored{}, err
	}
	base, origin, err := r.baseOf(ctx, ref)
	if err != nil {
		return snapshot.Restored{}, err
	}
	before := r.b.rec
	if !dryRun {
		// First, so that a kill in between leaves files of the newer base with the
		// older one, which takes the real side's changes for the plan's, and not
		// the other way round, which would take them back.
		if err := r.b.setBase(base, origin); err != nil {
			return snapshot.Restored{}, err
		}
	}
	done, err := r.tracker.Restore(ctx, ref, snapshot.RestoreOptions{Stage: r.b.stageDir(), Journal: r.b.private("move"), DryRun: dryRun})
	if err != nil && !dryRun {
		err = errors.Join(err, r.b.setBase(before.BaseState, before.Origin))
	}
	return done, err
}

// setBase records which base the sandbox's files belong to.
func (b *box) setBase(state, origin string) error {
	if b.rec.BaseState == state && b.rec.Origin == origin {
		return nil
	}
	b.rec.BaseState, b.rec.Origin = state, origin
	return b.save()
}

// recoverMove ends a restore that was killed.
func (b *box) recoverMove(ctx context.Context) error {
	return snapshot.Recover(ctx, b.private("move"))
}

// Prepare makes sure, before a call, that the base state is recorded and no
// killed restore is in the way.
func (s *Strategy) Prepare(ctx context.Context, ws sandbox.Workspace) ([]string, error) {
	b, err := s.open(ws)
	if err != nil {
		return nil, err
	}
	if _, err := os.Lstat(b.rec.Path); errors.Is(err, fs.ErrNotExist) {
		return nil, agents.WithHint(fmt.Errorf("the sandbox's directory %s is gone: %w", b.rec.Path, agents.ErrNotFound), "its checkpoints can bring it back")
	}
	if err := b.recoverMove(ctx); err != nil {
		return nil, fmt.Errorf("end a killed restore: %w", err)
	}
	if b.rec.BaseState == "" {
		if _, err := b.recorder(ctx, b.sealStore()); err != nil {
			return nil, err
		}
	}
	if !b.rec.Synced && time.Since(time.Unix(0, b.rec.Begun)) > written {
		if err := b.sync(); err != nil {
			return nil, err
		}
	}
	return []string{"GIT_CEILING_DIRECTORIES=" + filepath.Dir(b.rec.Path)}, ctx.Err()
}

// written is after how long the system has written a copy to the disk by itself,
// so that nobody waits for it.
const written = time.Minute

// sync makes sure that the copy is on the disk.
func (b *box) sync() error {
	if err := fsx.SyncFS(b.rec.Path); err != nil {
		return err
	}
	b.rec.Synced = true
	return b.save()
}

// sealStore is where results are sealed: beside the captured states, or in a
// store of the sandbox's own where nobody captures any.
func (b *box) sealStore() string { return orElse(b.rec.Objects, b.private("states")) }

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}
