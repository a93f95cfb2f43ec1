package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"time"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/fsx"
)

// Config is what a Sandbox needs beside its record: where its files are and
// who is told about it.
type Config struct {
	Dir                string // where the visible directory is made: sandbox.dir
	PrivateDir         string // this sandbox's own folder, which no tool may see; made when it is missing
	Shared             string // for what all sandboxes of the resource share: CreateRequest.Shared
	Objects            string // where its captured states lie; the default of every request's Objects
	JournalDir         string // where its apply journal lies; the default of ApplyRequest.JournalDir
	IncludeUncommitted bool
	Like               map[string]string // Metadata of an earlier life, to be made again on the same base
	Options            Options
	Notify             func(string)        // a sentence for the user; nil = dropped
	Progress           func(done, all int) // CreateRequest.Progress
	Now                func() time.Time    // nil = time.Now

	// OnChange stores the record. It is called for every change of it, while
	// the sandbox is busy, so it must not call the sandbox. When it fails, the
	// change does not count and the method that made it fails. nil = nowhere.
	OnChange func(ctx context.Context, rec agents.SandboxRecord) error
}

// Sandbox is one plan's isolated state of one resource, whatever the strategy:
// states, locks and the path guard live here (git-worktree-sandbox.md, "Status
// State Machine"; sandbox.md, "Sandbox Lifecycle"). A Strategy stays dumb.
//
// All methods may be called from several goroutines; those that reach the
// strategy run one at a time, Status and Record never wait. A call in a state
// that forbids it is a *agents.StateError and does nothing. Failures carry the
// specification's kinds: SandboxCreationError from Create and Unarchive,
// SandboxCommitError from Seal, Apply, Commit and Recover, SandboxRollbackError
// from Restore, Rollback and Undo.
//
// Files come first and the record last when something is made, the record
// first and the files last when it goes: whatever is killed in between, the
// record or the private folder tells that something is left, and Cleanup of
// that record takes it away.
type Sandbox struct {
	strategy Strategy
	resource agents.Resource
	cfg      Config

	calls sync.Mutex // held through a call that reaches the strategy

	mu  sync.Mutex // guards rec
	rec agents.SandboxRecord
}

// New returns the sandbox of this record. It touches nothing: a new record is
// PENDING until Create; a record of another process is taken up with Open.
func New(strategy Strategy, record agents.SandboxRecord, resource agents.Resource, cfg Config) *Sandbox {
	if cfg.Notify == nil {
		cfg.Notify = func(string) {}
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.OnChange == nil {
		cfg.OnChange = func(context.Context, agents.SandboxRecord) error { return nil }
	}
	if record.Status == "" {
		record.Status = agents.SandboxPending
	}
	if record.PrivateDir == "" {
		record.PrivateDir = cfg.PrivateDir
	}
	record.Metadata = maps.Clone(record.Metadata)
	return &Sandbox{strategy: strategy, resource: resource, cfg: cfg, rec: record}
}

// Create makes the isolated state for the plan and returns where it is. It is
// allowed once, in PENDING. The PENDING record is stored before the strategy
// runs, so that a kill leaves something to find; a failed Create leaves
// nothing behind and the sandbox PENDING, and may be called again.
func (s *Sandbox) Create(ctx context.Context, planID string) (agents.SandboxContext, error) {
	return s.make(ctx, planID, "create", s.strategy.Create)
}

// Open takes up a sandbox that another process made and checks that it is
// still there. One that is missing is agents.ErrBlocked (checkpointing.md,
// "Sandbox is missing"); one that was never created is a *agents.StateError.
func (s *Sandbox) Open(ctx context.Context) error {
	s.calls.Lock()
	defer s.calls.Unlock()
	rec := s.Record()
	switch rec.Status {
	case agents.SandboxPending:
		return s.stateError("OPEN")
	case agents.SandboxCleanedUp:
		return s.missing(rec.Path, nil)
	}
	if s.files() {
		if err := isThere(rec.Path, s.Capabilities().Isolates); err != nil {
			return s.missing(rec.Path, err)
		}
	}
	if err := isThere(rec.PrivateDir, true); err != nil {
		return s.missing(rec.PrivateDir, err)
	}
	if c, ok := s.strategy.(Checker); ok {
		if err := c.Check(ctx, s.Workspace()); errors.Is(err, agents.ErrBlocked) {
			return s.missing(rec.Path, err)
		}
	}
	return ctx.Err()
}

// Path returns the absolute path for rel, which is relative to the resource or
// an absolute path within the sandbox, and makes the sandbox ACTIVE: CREATED
// and ROLLED_BACK end with the first path handed out, before which the base is
// recorded if nobody did and Config.Objects says where. "" and "." name the
// workspace itself. A path that leaves the sandbox, by a "..", by being
// absolute or by a symbolic link anywhere in it, is agents.ErrInvalid. The
// path need not exist.
//
// What is at a path can change after Path has returned; a writer that must not
// be led out by a link made meanwhile opens the file through os.Root.
func (s *Sandbox) Path(ctx context.Context, rel string) (string, error) {
	s.calls.Lock()
	defer s.calls.Unlock()
	if err := s.usable(); err != nil {
		return "", err
	}
	ws := s.Workspace()
	abs, err := guard(ws.Path, rel, s.files())
	if err != nil {
		return "", err
	}
	return abs, s.use(ctx)
}

// Prepare readies the sandbox for a tool call, makes it ACTIVE, and returns
// the environment variables which the call's processes need: none where the
// strategy has nothing to prepare.
func (s *Sandbox) Prepare(ctx context.Context) ([]string, error) {
	s.calls.Lock()
	defer s.calls.Unlock()
	if err := s.usable(); err != nil {
		return nil, err
	}
	var env []string
	if p, ok := s.strategy.(Preparer); ok {
		var err error
		if env, err = p.Prepare(ctx, s.Workspace()); err != nil {
			return nil, fmt.Errorf("prepare sandbox of %s: %w", s.resource.Name, err)
		}
	}
	return env, s.use(ctx)
}

// RecordBase names the state at creation, for a strategy that does not name it
// itself: the reference that Capture gave right after Create. A base that is
// recorded already stays.
func (s *Sandbox) RecordBase(ctx context.Context, ref string) error {
	s.calls.Lock()
	defer s.calls.Unlock()
	if s.Record().BaseRef != "" {
		return nil
	}
	return s.change(ctx, func(r *agents.SandboxRecord) error {
		r.BaseRef = ref
		return nil
	})
}

// Fail records that the sandbox cannot be used until a state is restored or it
// is removed: ERRORED.
func (s *Sandbox) Fail(ctx context.Context) error {
	s.calls.Lock()
	defer s.calls.Unlock()
	return s.change(ctx, func(r *agents.SandboxRecord) error { return r.Move(agents.SandboxErrored) })
}

// Cleanup removes the sandbox with all that Create made. It works in every
// state, on a half-made or half-removed sandbox too, and may be called again:
// it then tries to remove whatever is left. The record goes first, the private
// folder last. Cleanup does not ask whether there is unapplied work.
func (s *Sandbox) Cleanup(ctx context.Context) error {
	s.calls.Lock()
	defer s.calls.Unlock()
	ws := s.Workspace()
	err := s.change(ctx, func(r *agents.SandboxRecord) error { return r.Move(agents.SandboxCleanedUp) })
	if err != nil {
		return fmt.Errorf("clean up sandbox of %s: %w", s.resource.Name, err)
	}
	if err := s.remove(ctx, ws); err != nil {
		return fmt.Errorf("clean up sandbox of %s: %w", s.resource.Name, err)
	}
	return nil
}

// Status returns the sandbox's state.
func (s *Sandbox) Status() agents.SandboxStatus { return s.Record().Status }

// Record returns a copy of the sandbox's record.
func (s *Sandbox) Record() agents.SandboxRecord {
	s.mu.Lock()
	defer s.mu.Unlock()
	rec := s.rec
	rec.Metadata = maps.Clone(rec.Metadata)
	return rec
}

// Capabilities says what the sandbox's strategy can do.
func (s *Sandbox) Capabilities() Capabilities { return s.strategy.Capabilities() }

// Resource returns what the sandbox is of.
func (s *Sandbox) Resource() agents.Resource { return s.resource }

// Workspace returns the strategy's handle. Before Create only its identity and
// PrivateDir are filled in.
func (s *Sandbox) Workspace() Workspace {
	rec := s.Record()
	return Workspace{
		SandboxID: rec.ID, PlanID: rec.PlanID, Resource: s.resource,
		Path: rec.Path, PrivateDir: rec.PrivateDir, Metadata: rec.Metadata, Options: s.cfg.Options,
	}
}

// Context returns what Create returned.
func (s *Sandbox) Context() agents.SandboxContext {
	rec := s.Record()
	return agents.SandboxContext{
		SandboxID: rec.ID, SandboxPath: rec.Path, OriginalPath: s.resource.Location,
		ResourceID: rec.ResourceID, PlanID: rec.PlanID, CreatedAt: rec.CreatedAt, Metadata: rec.Metadata,
	}
}

// detachedFor is how long cleaning up after a failure may take.
const detachedFor = time.Minute

// Detach returns a context for cleaning up after a failure: it keeps ctx's
// values, not its end, and ends by itself after a minute.
func Detach(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), detachedFor)
}

// make is Create by whatever means how is.
func (s *Sandbox) make(ctx context.Context, planID, op string, how func(context.Context, CreateRequest) (Workspace, error)) (agents.SandboxContext, error) {
	s.calls.Lock()
	defer s.calls.Unlock()
	if s.Status() != agents.SandboxPending {
		return agents.SandboxContext{}, s.stateError(string(agents.SandboxCreated))
	}
	if err := s.announce(ctx, planID); err != nil {
		return agents.SandboxContext{}, s.failed(agents.SandboxCreationError, op, err)
	}
	ws, err := s.build(ctx, how)
	if err == nil {
		err = s.made(ctx, ws)
	}
	if err != nil {
		return agents.SandboxContext{}, s.failed(agents.SandboxCreationError, op, s.unmake(ctx, ws, err))
	}
	return s.Context(), nil
}

// announce stores the PENDING record that tells where to look after a kill.
func (s *Sandbox) announce(ctx context.Context, planID string) error {
	return s.change(ctx, func(r *agents.SandboxRecord) error {
		if r.PlanID != "" && planID != "" && r.PlanID != planID {
			return fmt.Errorf("sandbox %s belongs to plan %s, not %s: %w", r.ID, r.PlanID, planID, agents.ErrInvalid)
		}
		if planID != "" {
			r.PlanID = planID
		}
		r.Strategy = s.Capabilities().Name
		r.ResourceID = s.resource.ID
		if r.CreatedAt.IsZero() {
			r.CreatedAt = s.now()
		}
		return nil
	})
}

func (s *Sandbox) build(ctx context.Context, how func(context.Context, CreateRequest) (Workspace, error)) (Workspace, error) {
	rec := s.Record()
	if err := fsx.MkdirAll(rec.PrivateDir, 0o700); err != nil {
		return Workspace{}, err
	}
	return how(ctx, CreateRequest{
		SandboxID: rec.ID, PlanID: rec.PlanID, Resource: s.resource,
		Dir: s.cfg.Dir, PrivateDir: rec.PrivateDir,
		IncludeUncommitted: s.cfg.IncludeUncommitted, Like: s.cfg.Like, Shared: s.cfg.Shared, Progress: s.cfg.Progress, Options: s.cfg.Options, Notify: s.cfg.Notify,
	})
}

// made stores what the strategy made. BaseRef is what the strategy calls the
// state at creation, if it names it at all.
func (s *Sandbox) made(ctx context.Context, ws Workspace) error {
	return s.change(ctx, func(r *agents.SandboxRecord) error {
		r.Path = ws.Path
		r.Metadata = maps.Clone(ws.Metadata)
		r.BaseRef = ws.Metadata[MetaBaseRef]
		return r.Move(agents.SandboxCreated)
	})
}

// unmake takes back a Create that failed with err, to which what fails now is joined.
func (s *Sandbox) unmake(ctx context.Context, ws Workspace, err error) error {
	ctx, cancel := Detach(ctx)
	defer cancel()
	left := s.Workspace()
	if ws.Path != "" {
		left.Path, left.Metadata = ws.Path, ws.Metadata
	}
	return errors.Join(err, s.remove(ctx, left), s.change(ctx, func(r *agents.SandboxRecord) error {
		r.Path, r.Metadata, r.BaseRef = "", nil, ""
		return r.Move(agents.SandboxPending)
	}))
}

// remove takes the files away; the private folder, which tells that something
// may be left, goes last.
func (s *Sandbox) remove(ctx context.Context, ws Workspace) error {
	if err := s.strategy.Remove(ctx, ws); err != nil {
		return err
	}
	if ws.PrivateDir == "" {
		return nil
	}
	return fsx.RemoveAll(ws.PrivateDir)
}

// files says whether the workspace is a directory of files; that of an outside
// API is not, whatever the strategy.
func (s *Sandbox) files() bool {
	info, err := agents.TypeInfoOf(s.resource.Type)
	return s.Capabilities().Files && err == nil && !info.LocationURL
}

// usable reports as a *agents.StateError that no path may be handed out.
func (s *Sandbox) usable() error {
	if !s.Status().CanMove(agents.SandboxActive) || s.Status() == agents.SandboxPending {
		return s.stateError(string(agents.SandboxActive))
	}
	return nil
}

// use makes the sandbox ACTIVE. Whoever got a path may write, so an earlier
// seal no longer holds, and the base has to be recorded by now.
func (s *Sandbox) use(ctx context.Context) error {
	rec := s.Record()
	if rec.Status == agents.SandboxActive && rec.SealedRef == "" {
		return nil
	}
	base, err := s.base(ctx, rec)
	if err != nil {
		return fmt.Errorf("record the base of the sandbox of %s: %w", s.resource.Name, err)
	}
	return s.change(ctx, func(r *agents.SandboxRecord) error {
		r.SealedRef, r.BaseRef = "", base
		return r.Move(agents.SandboxActive)
	})
}

// base returns the reference of the base, which is captured now when nobody
// did yet and nothing can have changed.
func (s *Sandbox) base(ctx context.Context, rec agents.SandboxRecord) (string, error) {
	if rec.BaseRef != "" || rec.Status != agents.SandboxCreated || s.cfg.Objects == "" || !s.Capabilities().Rollback {
		return rec.BaseRef, nil
	}
	dir := filepath.Join(rec.PrivateDir, "base-capture")
	if err := errors.Join(fsx.MkdirAll(s.cfg.Objects, 0o700), fsx.MkdirAll(dir, 0o700)); err != nil {
		return "", err
	}
	c, err := s.strategy.Capture(ctx, s.Workspace(), CaptureRequest{Objects: s.cfg.Objects, Dir: dir, Label: "base"})
	return c.Ref, err
}

// live reports as a *agents.StateError that there is nothing to do op on.
func (s *Sandbox) live(op string) error {
	if !s.Status().Live() {
		return s.stateError(op)
	}
	return nil
}

// change makes one change of the record: on a copy, stored, then taken over.
func (s *Sandbox) change(ctx context.Context, edit func(*agents.SandboxRecord) error) error {
	rec := s.Record()
	if err := edit(&rec); err != nil {
		return err
	}
	rec.UpdatedAt = s.now()
	if err := s.cfg.OnChange(ctx, rec); err != nil {
		return fmt.Errorf("store sandbox %s: %w", rec.ID, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rec = rec
	return nil
}

// settle is change for something that has already happened outside: it is
// recorded even when ctx has ended meanwhile.
func (s *Sandbox) settle(ctx context.Context, edit func(*agents.SandboxRecord) error) error {
	ctx, cancel := Detach(ctx)
	defer cancel()
	return s.change(ctx, edit)
}

// moveThrough moves r to states one after another.
func moveThrough(r *agents.SandboxRecord, states ...agents.SandboxStatus) error {
	for _, to := range states {
		if err := r.Move(to); err != nil {
			return err
		}
	}
	return nil
}

func (s *Sandbox) now() time.Time { return s.cfg.Now().UTC() }

func (s *Sandbox) stateError(to string) error {
	rec := s.Record()
	return &agents.StateError{What: "sandbox " + rec.ID, From: string(rec.Status), To: to}
}

// failed gives err the specification's name for a failure of op. The error of
// the state table has a name of its own.
func (s *Sandbox) failed(kind agents.Kind, op string, err error) error {
	var state *agents.StateError
	if err == nil || errors.As(err, &state) {
		return err
	}
	return &agents.Error{Kind: kind, Err: fmt.Errorf("%s sandbox of %s: %w", op, s.resource.Name, err)}
}

// missing is the guard of checkpointing.md for a sandbox that is not there.
func (s *Sandbox) missing(path string, cause error) error {
	if cause != nil && !errors.Is(cause, fs.ErrNotExist) {
		return fmt.Errorf("open sandbox of %s: %w", s.resource.Name, cause)
	}
	return &agents.Error{
		Kind: agents.BusinessRuleViolation, Message: "sandbox is missing", Err: agents.ErrBlocked,
		Hint:    "agents cleanup archive list shows what was archived before it went",
		Details: map[string]any{"sandbox_id": s.Record().ID, "path": path},
	}
}

// isThere reports a missing or empty path as fs.ErrNotExist, and so, where the
// path must be our own, a link that somebody put there: what it leads to is
// not the sandbox.
func isThere(path string, own bool) error {
	if path == "" {
		return fs.ErrNotExist
	}
	fi, err := os.Lstat(path)
	if err != nil || fi.Mode()&fs.ModeSymlink == 0 {
		return err
	}
	if own {
		return fs.ErrNotExist
	}
	_, err = os.Stat(path)
	return err
}
