package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/fsx"
)

// MetaBaseRef is the key of Workspace.Metadata under which a strategy may name
// the state at creation as its Capture would; SandboxRecord.BaseRef is its copy.
const MetaBaseRef = "base_ref"

// Capture records the present state; it is allowed while the sandbox exists.
// An empty req.Objects is the configured one.
func (s *Sandbox) Capture(ctx context.Context, req CaptureRequest) (Captured, error) {
	s.calls.Lock()
	defer s.calls.Unlock()
	if err := s.live("CAPTURE"); err != nil {
		return Captured{}, err
	}
	req.Objects = orElse(req.Objects, s.cfg.Objects)
	c, err := s.strategy.Capture(ctx, s.Workspace(), req)
	if err != nil {
		return c, fmt.Errorf("capture sandbox of %s: %w", s.resource.Name, err)
	}
	return c, nil
}

// Restore puts the sandbox into a recorded state and makes it ROLLED_BACK, out
// of ERRORED too; a CREATED one in which nothing changes stays so. From
// COMMITTED it is a *agents.StateError: Undo or Rollback first. DryRun changes
// nothing, not even the state.
func (s *Sandbox) Restore(ctx context.Context, req RestoreRequest) (Restored, error) {
	s.calls.Lock()
	defer s.calls.Unlock()
	return s.restore(ctx, req)
}

func (s *Sandbox) restore(ctx context.Context, req RestoreRequest) (Restored, error) {
	status := s.Status()
	if !status.Live() || status == agents.SandboxCommitted {
		return Restored{}, s.stateError(string(agents.SandboxRolledBack))
	}
	req.Objects = orElse(req.Objects, s.cfg.Objects)
	res, err := s.strategy.Restore(ctx, s.Workspace(), req)
	if err != nil {
		return res, s.failed(agents.SandboxRollbackError, "restore", err)
	}
	if req.DryRun || status == agents.SandboxCreated && len(res.Changes) == 0 {
		return res, nil
	}
	return res, s.settle(ctx, func(r *agents.SandboxRecord) error {
		r.SealedRef = ""
		if r.Status == agents.SandboxCreated {
			return moveThrough(r, agents.SandboxActive, agents.SandboxRolledBack)
		}
		return r.Move(agents.SandboxRolledBack)
	})
}

// Diff lists what changed between two states; it is allowed while the sandbox
// exists. An empty req.Objects is the configured one.
func (s *Sandbox) Diff(ctx context.Context, req DiffRequest) ([]agents.FileChange, error) {
	s.calls.Lock()
	defer s.calls.Unlock()
	if err := s.live("DIFF"); err != nil {
		return nil, err
	}
	req.Objects = orElse(req.Objects, s.cfg.Objects)
	changes, err := s.strategy.Diff(ctx, s.Workspace(), req)
	if err != nil {
		return nil, fmt.Errorf("diff sandbox of %s: %w", s.resource.Name, err)
	}
	for i := range changes {
		changes[i].Resource = orElse(changes[i].Resource, s.resource.Name)
	}
	return changes, nil
}

// Seal fixes the present state as the result to apply and records its
// reference, which holds until a path is handed out again. It is allowed in
// CREATED, ACTIVE, ROLLED_BACK and COMMITTED. A zero When is now.
func (s *Sandbox) Seal(ctx context.Context, req SealRequest) (Sealed, error) {
	s.calls.Lock()
	defer s.calls.Unlock()
	return s.seal(ctx, req)
}

func (s *Sandbox) seal(ctx context.Context, req SealRequest) (Sealed, error) {
	if status := s.Status(); !status.Live() || status == agents.SandboxErrored {
		return Sealed{}, s.stateError("SEAL")
	}
	if req.When.IsZero() {
		req.When = s.now()
	}
	sealed, err := s.strategy.Seal(ctx, s.Workspace(), req)
	if err != nil {
		return sealed, s.failed(agents.SandboxCommitError, "seal", err)
	}
	return sealed, s.settle(ctx, func(r *agents.SandboxRecord) error {
		r.SealedRef = sealed.Ref
		return nil
	})
}

// Apply brings the sealed result into the real resource. An empty req.Ref is
// the recorded seal; without one it is a *agents.StateError, as it is from
// COMMITTED. An empty JournalDir is the configured one, which is made; a killed
// Apply found there is ended first, and is the answer if it got home.
// Afterwards the record has the ApplyState; the sandbox is COMMITTED when
// something was applied and stays what it was in every other case, so that a
// conflict leaves it usable; a result that is neither applied nor unchanged is an
// error, even where the strategy tells it by the state alone; ERRORED only where the strategy says that it could
// not put the resource back (agents.ErrDamaged). DryRun records nothing.
func (s *Sandbox) Apply(ctx context.Context, req ApplyRequest) (agents.ResourceResult, error) {
	s.calls.Lock()
	defer s.calls.Unlock()
	return s.apply(ctx, req)
}

func (s *Sandbox) apply(ctx context.Context, req ApplyRequest) (agents.ResourceResult, error) {
	rec := s.Record()
	req.Ref = orElse(req.Ref, rec.SealedRef)
	switch {
	case !rec.Status.Live(), rec.Status == agents.SandboxErrored, rec.Status == agents.SandboxCommitted:
		return s.notTried(), s.stateError("APPLY")
	case req.Ref == "" && !s.Capabilities().Isolates:
	case req.Ref == "":
		return s.notTried(), agents.WithHint(s.stateError("APPLY"), "seal the sandbox first")
	}
	if req.When.IsZero() {
		req.When = s.now()
	}
	req.JournalDir = orElse(req.JournalDir, s.cfg.JournalDir)
	var ended Recovered
	var err error
	if !req.DryRun {
		if ended, err = s.emptyJournal(ctx, req.JournalDir); err != nil {
			return s.notTried(), s.failed(agents.SandboxCommitError, "apply", err)
		}
		if ended.State == agents.ApplyApplied {
			return agents.ResourceResult{Resource: s.resource.Name, State: ended.State, CommitRef: ended.Commit, Notices: ended.Notices}, nil
		}
	}
	var res agents.ResourceResult
	res, err = s.strategy.Apply(ctx, s.Workspace(), req)
	res.Notices = append(ended.Notices, res.Notices...)
	res.Resource = orElse(res.Resource, s.resource.Name)
	if res.State == "" {
		res.State = stateOf(err)
	}
	if err == nil && res.State != agents.ApplyApplied && res.State != agents.ApplyUnchanged {
		err = notApplied(res)
	}
	if req.DryRun {
		return res, s.failed(agents.SandboxCommitError, "apply", err)
	}
	return res, errors.Join(s.failed(agents.SandboxCommitError, "apply", err), s.applied(ctx, res.State, err))
}

// applied records what Apply, Undo or Recover came to.
func (s *Sandbox) applied(ctx context.Context, state agents.ApplyState, err error) error {
	return s.settle(ctx, func(r *agents.SandboxRecord) error {
		r.ApplyState = state
		switch {
		case errors.Is(err, agents.ErrDamaged):
			return r.Move(agents.SandboxErrored)
		case state != agents.ApplyApplied || r.Status == agents.SandboxCommitted:
			return nil
		case r.Status == agents.SandboxCreated, r.Status == agents.SandboxRolledBack:
			return moveThrough(r, agents.SandboxActive, agents.SandboxCommitted)
		}
		return r.Move(agents.SandboxCommitted)
	})
}

// NoteApply records that an apply was tried and is not done: conflict, failed or
// not_tried, which a preview of it found. The status stays.
func (s *Sandbox) NoteApply(ctx context.Context, state agents.ApplyState) error {
	s.calls.Lock()
	defer s.calls.Unlock()
	if err := s.live("APPLY"); err != nil {
		return err
	}
	if state == agents.ApplyApplied || s.Record().ApplyState == agents.ApplyApplied {
		return s.stateError(string(agents.SandboxCommitted))
	}
	return s.change(ctx, func(r *agents.SandboxRecord) error {
		r.ApplyState = state
		return nil
	})
}

// emptyJournal makes the journal's folder. What a killed Apply left in it is
// ended first, and what came of that is returned; when it got home, the folder
// stays.
func (s *Sandbox) emptyJournal(ctx context.Context, dir string) (ended Recovered, err error) {
	if dir == "" {
		return ended, fmt.Errorf("no journal folder given: %w", agents.ErrInvalid)
	}
	if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
		if ended, err = s.recover(ctx, dir); err != nil || ended.State == agents.ApplyApplied {
			return ended, err
		}
		if err := fsx.RemoveAll(dir); err != nil {
			return ended, err
		}
	}
	return ended, fsx.MkdirAll(dir, 0o700)
}

// Commit seals the sandbox with this message and applies it: the
// specification's commit in one call. No change is a success with empty lists.
// The result's Error is the error that is returned.
func (s *Sandbox) Commit(ctx context.Context, message string) (agents.CommitResult, error) {
	s.calls.Lock()
	defer s.calls.Unlock()
	out := agents.CommitResult{SandboxID: s.Record().ID, Timestamp: s.now()}
	sealed, err := s.seal(ctx, SealRequest{Message: message, When: out.Timestamp})
	if err == nil && sealed.Unchanged {
		out.Success = true
		return out, nil
	}
	if err == nil {
		var res agents.ResourceResult
		res, err = s.apply(ctx, ApplyRequest{Message: message, When: out.Timestamp})
		out.CommitRef, out.AddedFiles, out.ChangedFiles, out.DeletedFiles = sealed.Ref, res.Added, res.Changed, res.Deleted
	}
	out.Success, out.Error = err == nil, err
	return out, err
}

// Rollback puts the sandbox back to the state in which it was created and
// makes it ROLLED_BACK. From COMMITTED the apply is undone first, and where
// the real resource has moved on since it is agents.ErrConflict and nothing
// changes. In CREATED and in ROLLED_BACK after a Rollback it changes nothing.
func (s *Sandbox) Rollback(ctx context.Context) error {
	s.calls.Lock()
	defer s.calls.Unlock()
	switch s.Status() {
	case agents.SandboxCreated:
		return nil
	case agents.SandboxCommitted:
		if err := s.undo(ctx, s.cfg.JournalDir); err != nil {
			return err
		}
	}
	_, err := s.restore(ctx, RestoreRequest{Ref: s.Record().BaseRef})
	return err
}

// Undo takes back an Apply, where the real resource has not moved on since
// (else agents.ErrConflict, and nothing changes). The sandbox keeps its
// content and is ROLLED_BACK: it can be used and applied again. It is allowed
// in COMMITTED only. An empty journalDir is the configured one.
func (s *Sandbox) Undo(ctx context.Context, journalDir string) error {
	s.calls.Lock()
	defer s.calls.Unlock()
	return s.undo(ctx, orElse(journalDir, s.cfg.JournalDir))
}

func (s *Sandbox) undo(ctx context.Context, journalDir string) error {
	if s.Status() != agents.SandboxCommitted {
		return s.stateError(string(agents.SandboxRolledBack))
	}
	u, ok := s.strategy.(Undoer)
	if !ok {
		return s.failed(agents.SandboxRollbackError, "undo the apply of the", s.unsupported("undo an apply"))
	}
	if err := u.Undo(ctx, s.Workspace(), journalDir); err != nil {
		return s.failed(agents.SandboxRollbackError, "undo the apply of the", err)
	}
	return s.settle(ctx, func(r *agents.SandboxRecord) error {
		r.ApplyState = agents.ApplyReverted
		return r.Move(agents.SandboxRolledBack)
	})
}

// Recover ends an Apply or Undo that was killed, records what it came to, and
// returns that. An empty journalDir is the configured one. It may be called
// when there is nothing to end.
func (s *Sandbox) Recover(ctx context.Context, journalDir string) (Recovered, error) {
	s.calls.Lock()
	defer s.calls.Unlock()
	return s.recover(ctx, orElse(journalDir, s.cfg.JournalDir))
}

func (s *Sandbox) recover(ctx context.Context, journalDir string) (Recovered, error) {
	r, ok := s.strategy.(Recoverer)
	if !ok {
		return Recovered{}, s.failed(agents.SandboxCommitError, "recover", s.unsupported("end a killed apply"))
	}
	ended, err := r.Recover(ctx, s.Workspace(), journalDir)
	if err != nil {
		return ended, s.failed(agents.SandboxCommitError, "recover", err)
	}
	if !s.Status().Live() {
		return ended, nil
	}
	if ended.State == agents.ApplyReverted && s.Status() == agents.SandboxCommitted {
		return ended, s.settle(ctx, func(r *agents.SandboxRecord) error {
			r.ApplyState = ended.State
			return r.Move(agents.SandboxRolledBack)
		})
	}
	return ended, s.applied(ctx, ended.State, nil)
}

func (s *Sandbox) notTried() agents.ResourceResult {
	return agents.ResourceResult{Resource: s.resource.Name, State: agents.ApplyNotTried}
}

// stateOf names the outcome of an Apply that gave none itself.
func stateOf(err error) agents.ApplyState {
	switch {
	case err == nil:
		return agents.ApplyApplied
	case errors.Is(err, agents.ErrConflict):
		return agents.ApplyConflict
	}
	return agents.ApplyFailed
}

// notApplied is the error of a result that did not get home.
func notApplied(res agents.ResourceResult) error {
	switch {
	case res.State == agents.ApplyConflict && len(res.Conflicts) > 0:
		c := res.Conflicts[0]
		return fmt.Errorf("%d conflicts, the first in %q (%s): %w", len(res.Conflicts), c.Path, c.Reason, agents.ErrConflict)
	case res.State == agents.ApplyConflict:
		return agents.ErrConflict
	case res.Error != "":
		return errors.New(res.Error)
	}
	return fmt.Errorf("the result is %s", res.State)
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}
