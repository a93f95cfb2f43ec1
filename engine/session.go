package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/fsx"
	"github.com/cleveragents/agents/metastore"
	"github.com/cleveragents/agents/sandbox"
)

// enforced is what the kernel enforces around commands: nothing yet.
const enforced = "none"

// session is one call's hold on a plan. While it lasts, no other process works
// on the plan, so that what it knows about the sandboxes stays true.
type session struct {
	e       *Engine
	lock    *fsx.Lock
	plan    agents.Plan
	profile agents.Profile
	boxes   []*box                          // the sandboxes that exist, oldest first
	pending map[string]agents.SandboxRecord // by resource: those whose creation failed or was killed
	gone    []agents.SandboxRecord          // the sandboxes that were removed
	hold    []string                        // checkpoints that pruning leaves alone while the session lasts
	notices []string
}

// box is a sandbox of the session, with what the session knows of its content.
type box struct {
	*sandbox.Sandbox
	ref     string              // the newest state recorded in this session
	stale   bool                // anything may have been written since ref
	touched map[string]struct{} // else: the only paths that were
}

// applied reports whether the sandbox's result is in the real resource: it
// takes no calls and no rollback then, until the apply is undone.
func (b *box) applied() bool { return b.Status() == agents.SandboxCommitted }

// open takes the plan's lock and reads what is stored. What a killed call left
// half-done is taken back first.
func (e *Engine) open(ctx context.Context, ref, what string) (*session, error) {
	p, err := e.Plan(ctx, ref)
	if err != nil {
		return nil, err
	}
	lock, err := e.lockPlan(ctx, p.ID, what)
	if err != nil {
		return nil, err
	}
	s := &session{e: e, lock: lock, pending: map[string]agents.SandboxRecord{}}
	if err := s.load(ctx, p.ID); err != nil {
		s.close()
		return nil, err
	}
	if err := s.endKilled(ctx); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// lockPlan takes a plan's lock, or says who has it.
func (e *Engine) lockPlan(ctx context.Context, planID, what string) (*fsx.Lock, error) {
	wait, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	note := fmt.Sprintf("%s, process %d, since %s", what, os.Getpid(), e.now().Format(time.RFC3339))
	lock, err := fsx.WaitLock(wait, e.planLockFile(planID), note)
	if errors.Is(err, agents.ErrLocked) {
		return nil, &agents.Error{
			Kind:    agents.BusinessRuleViolation,
			Message: fmt.Sprintf("plan %s is running (%s)", planID, fsx.LockNote(e.planLockFile(planID))),
			Hint:    "wait until it ends, or stop it",
			Err:     agents.ErrLocked,
		}
	}
	return lock, err
}

func (s *session) load(ctx context.Context, planID string) error {
	var records []agents.SandboxRecord
	err := s.e.store.Read(ctx, func(tx *metastore.Tx) (err error) {
		if s.plan, err = tx.Plans().Get(planID); err != nil {
			return err
		}
		records, err = tx.Sandboxes().ByPlan(planID)
		return err
	})
	if err != nil {
		return err
	}
	if s.profile, err = agents.ProfileByName(s.plan.Profile); err != nil {
		return err
	}
	for _, rec := range records {
		if rec.Status == agents.SandboxPending {
			s.pending[rec.ResourceID] = rec
		}
		if rec.Status == agents.SandboxCleanedUp {
			s.gone = append(s.gone, rec)
		}
		if !rec.Status.Live() {
			continue
		}
		b, err := s.box(rec)
		if err != nil {
			return err
		}
		s.boxes = append(s.boxes, b)
	}
	return nil
}

// close gives the plan up. It may be called more than once.
func (s *session) close() { s.lock.Release() }

// box wraps a record. Nothing is known yet about what it holds.
func (s *session) box(rec agents.SandboxRecord) (*box, error) {
	r, err := pickResource(s.plan.Resources, rec.ResourceID)
	if err != nil {
		return nil, err
	}
	strategy, err := s.e.strategies.Lookup(rec.Strategy)
	if err != nil {
		return nil, err
	}
	return &box{Sandbox: sandbox.New(strategy, rec, r, s.e.sandboxConfig(s.plan, rec)), stale: true}, nil
}

func (e *Engine) sandboxConfig(p agents.Plan, rec agents.SandboxRecord) sandbox.Config {
	opts := e.set.Sandbox
	opts.DataDir = e.set.DataDir
	cfg := sandbox.Config{
		Dir: e.set.SandboxDir, PrivateDir: e.privateDir(p.ID, rec.ID), JournalDir: e.journalDir(p.ID, rec.ID),
		IncludeUncommitted: p.IncludeUncommitted, Options: opts, Notify: e.notify, Now: e.now,
		OnChange: e.storeSandbox, Progress: e.copying(p, rec.ResourceID),
	}
	if e.payloads != nil {
		cfg.Objects, cfg.Shared = e.payloads.Objects(p.ID, rec.ID), e.payloads.Shared(rec.ResourceID)
	}
	return cfg
}

// copying says how far a copy is: first after two seconds, then now and then.
func (e *Engine) copying(p agents.Plan, resourceID string) func(done, all int) {
	next := e.now().Add(2 * time.Second)
	return func(done, all int) {
		now := e.now()
		r, err := pickResource(p.Resources, resourceID)
		if err != nil || now.Before(next) {
			return
		}
		next = now.Add(10 * time.Second)
		e.notify(fmt.Sprintf("copying %s … %d of %d files", r.Name, done, all))
	}
}

// storeSandbox keeps a sandbox's record; a new one is inserted.
func (e *Engine) storeSandbox(ctx context.Context, rec agents.SandboxRecord) error {
	return e.store.Write(ctx, func(tx *metastore.Tx) error {
		err := tx.Sandboxes().Update(&rec)
		if errors.Is(err, agents.ErrNotFound) {
			return tx.Sandboxes().Insert(&rec)
		}
		return err
	})
}

// ensure returns the sandbox of a resource, made at this first access if there
// is none (ADR-015, "Lazy sandboxing"). One whose directory somebody removed
// is made again and put into its newest recorded state.
func (s *session) ensure(ctx context.Context, r agents.Resource) (*box, error) {
	r = s.plan.Boundary(r)
	if b := s.find(r.ID); b != nil {
		err := b.Open(ctx)
		if errors.Is(err, agents.ErrBlocked) {
			return s.revive(ctx, b)
		}
		if err != nil {
			return nil, err
		}
		return b, s.baseOf(ctx, b)
	}
	strategy, err := s.e.strategyFor(r)
	if err != nil {
		return nil, err
	}
	if err := checkIsolation(r, strategy.Capabilities(), s.profile); err != nil {
		return nil, err
	}
	rec, ok := s.pending[r.ID]
	if !ok {
		rec.ID, rec.PlanID, rec.ResourceID = agents.NewID(s.e.now()), s.plan.ID, r.ID
	}
	rec.Strategy = strategy.Capabilities().Name
	b := &box{Sandbox: sandbox.New(strategy, rec, r, s.e.sandboxConfig(s.plan, rec)), stale: true}
	err = s.create(ctx, b)
	if other := s.copyInstead(r, err); other != nil {
		s.say("resource %s gets a plain copy as its sandbox (%s), and comes home as files: %v", r.Name, agents.CopyOnWrite, err)
		b = &box{Sandbox: sandbox.New(other, rec, r, s.e.sandboxConfig(s.plan, rec)), stale: true}
		err = s.create(ctx, b)
	}
	if err != nil {
		return nil, err
	}
	delete(s.pending, r.ID)
	s.boxes = append(s.boxes, b)
	return b, nil
}

// copyInstead returns the copy strategy for a repository that git cannot serve
// (sandbox.md, "Non-Git Fallback"): without a commit yet, or without git. nil
// where the copy is no answer: to any other failure, where it is not in this
// build, and where it would hold other resources of the plan than git would.
func (s *session) copyInstead(r agents.Resource, cause error) sandbox.Strategy {
	if r.Type != agents.TypeGitCheckout || agents.KindOf(cause) != agents.SandboxCreationError || !errors.Is(cause, agents.ErrUnsupported) {
		return nil
	}
	if name, _ := r.EffectiveStrategy(s.e.set.Strategy); name != agents.GitWorktree {
		return nil
	}
	if _, err := os.Lstat(filepath.Join(r.Location, ".git")); err != nil {
		return nil // a bare repository has no files but git's own
	}
	other, err := s.e.strategies.Lookup(agents.CopyOnWrite)
	if err != nil || other.Capabilities().Available != nil {
		return nil
	}
	resources := slices.Clone(s.plan.Resources)
	for i := range resources {
		if s.plan.Boundary(resources[i]).ID == r.ID && (resources[i].ID == r.ID || resources[i].SubPath == ".") {
			resources[i].Strategy = agents.CopyOnWrite
		}
	}
	_, err = s.e.setBoundaries(resources)
	same := func(a, b agents.Resource) bool { return a.Boundary == b.Boundary && a.SubPath == b.SubPath }
	if err != nil || !slices.EqualFunc(resources, s.plan.Resources, same) {
		return nil
	}
	return other
}

// create makes a sandbox and records its base state.
func (s *session) create(ctx context.Context, b *box) error {
	if _, err := b.Create(ctx, s.plan.ID); err != nil {
		return err
	}
	if err := s.recordBase(ctx, b); err != nil {
		detached, cancel := sandbox.Detach(ctx)
		defer cancel()
		return errors.Join(err, b.Cleanup(detached))
	}
	s.event(ctx, "sandbox.created", fmt.Sprintf("sandbox of %s created", b.Resource().Name),
		map[string]string{"sandbox_id": b.Record().ID, "path": b.Record().Path})
	return nil
}

// baseOf records the base state of a sandbox whose maker was killed before it
// could: nothing has run in it yet.
func (s *session) baseOf(ctx context.Context, b *box) error {
	if b.Record().BaseRef != "" || b.Status() != agents.SandboxCreated {
		return nil
	}
	return s.recordBase(ctx, b)
}

func (s *session) recordBase(ctx context.Context, b *box) error {
	if !s.e.checkpointsOn() || !b.Capabilities().Rollback {
		return nil
	}
	stage, err := s.e.payloads.Stage(s.plan.ID)
	if err != nil {
		return err
	}
	defer stage.Discard()
	dir, err := stage.Dir(b.Record().ID)
	if err != nil {
		return err
	}
	c, err := b.Capture(ctx, sandbox.CaptureRequest{Dir: dir, Label: "base"})
	if err != nil {
		return err
	}
	b.ref, b.stale, b.touched = c.Ref, false, nil
	return b.RecordBase(ctx, c.Ref)
}

// revive makes a sandbox again whose directory is gone, from its newest
// recorded state. What was done after that state is lost with the directory,
// and that is said.
func (s *session) revive(ctx context.Context, b *box) (*box, error) {
	rec := b.Record()
	ref, err := s.newestRef(ctx, rec)
	if err != nil {
		return nil, err
	}
	if err := b.Cleanup(ctx); err != nil {
		return nil, err
	}
	nb, err := s.again(ctx, b, ref)
	if err != nil {
		return nil, err
	}
	s.say("the sandbox of %s was missing or not whole; it was made again from its newest checkpoint", b.Resource().Name)
	return nb, nil
}

// say tells the user something at once and keeps it for the result.
func (s *session) say(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if slices.Contains(s.notices, text) {
		return
	}
	s.notices = append(s.notices, text)
	s.e.notify(text)
}

// sayOf says what a strategy noted about the plan's work on a resource.
func (s *session) sayOf(b *box, notices []string) {
	for _, n := range notices {
		s.say("resource %s: %s", b.Resource().Name, n)
	}
}

// event appends to the plan's log. The log explains; a failure to write it is
// logged and stops nothing.
func (s *session) event(ctx context.Context, kind, message string, data map[string]string) {
	err := s.e.store.WriteLazily(context.WithoutCancel(ctx), func(tx *metastore.Tx) error {
		return tx.Events().Append(&agents.Event{PlanID: s.plan.ID, Kind: kind, Message: message, Data: data})
	})
	if err != nil {
		s.e.log.Warn("event not recorded", "plan_id", s.plan.ID, "kind", kind, "error", err)
	}
}

// move puts the plan into a phase and state and stores that. That a plan is
// processing, or not any more, may be lost in a power cut: the plan's next
// command finds out.
func (s *session) move(ctx context.Context, phase agents.Phase, state agents.PlanState, because *agents.PlanError) error {
	p := s.plan
	if err := p.Move(phase, state); err != nil {
		return err
	}
	p.Error = because
	if state != agents.PlanApplied {
		p.AppliedAt = time.Time{}
	}
	write := s.e.store.Write
	if state == agents.PlanProcessing || state == agents.PlanQueued && s.plan.State == agents.PlanProcessing {
		write = s.e.store.WriteLazily
	}
	err := write(context.WithoutCancel(ctx), func(tx *metastore.Tx) error { return tx.Plans().Update(&p) })
	if err != nil {
		return err
	}
	s.plan = p
	return nil
}

// states describes the plan's sandboxes for results.
func (s *session) states() (out []agents.SandboxState) {
	for _, b := range s.boxes {
		out = append(out, s.e.sandboxState(s.plan, b.Record()))
	}
	return out
}

// names joins resource names for messages.
func names(resources []agents.Resource) string {
	var out []string
	for _, r := range resources {
		out = append(out, r.Name)
	}
	return strings.Join(out, ", ")
}
