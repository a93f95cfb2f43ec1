package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/fsx"
	"github.com/cleveragents/agents/internal/proc"
	"github.com/cleveragents/agents/metastore"
	"github.com/cleveragents/agents/sandbox"
)

// inflight is what must be put back if the process dies now. It lies in a file
// of the plan's private folder from before the first change until the change
// is recorded.
type inflight struct {
	What         string            `json:"what"` // for people: "tool builtin/shell", "rollback"
	Invocation   string            `json:"invocation,omitempty"`
	CheckpointID string            `json:"checkpoint_id,omitempty"`
	OnFailure    agents.OnFailure  `json:"on_failure"`
	Refs         map[string]string `json:"refs"`             // sandbox id → state
	Target       string            `json:"target,omitempty"` // rollback: done once the plan stands on this checkpoint
}

func (s *session) inflightFile() string {
	return filepath.Join(s.e.set.DataDir, "private", s.plan.ID, "inflight.json")
}

// begin notes what to put back.
func (s *session) begin(in inflight) error {
	return publishJSON(s.inflightFile(), in)
}

// done says that nothing needs putting back any more.
func (s *session) done() error { return fsx.Remove(s.inflightFile()) }

func (s *session) readInflight() (in inflight, found bool, err error) {
	data, err := os.ReadFile(s.inflightFile())
	if errors.Is(err, fs.ErrNotExist) {
		return in, false, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &in)
	}
	return in, err == nil, err
}

func (s *session) inflightRefs() map[string]string {
	in, _, err := s.readInflight()
	if err != nil {
		return nil
	}
	return in.Refs
}

// endKilled ends what a killed process left of the plan: processes that still
// run, an apply or undo under way, a call or rollback half-done.
func (s *session) endKilled(ctx context.Context) error {
	if _, found, _ := s.readInflight(); found || s.plan.State == agents.PlanProcessing {
		ended, err := proc.EndLeft(ctx, s.plan.ID)
		if err != nil {
			return err
		}
		for _, text := range ended {
			s.say("%s", text)
		}
	}
	if err := s.removeUnpublished(); err != nil {
		return err
	}
	if err := s.endApply(ctx); err != nil {
		return err
	}
	if err := s.endUndo(ctx); err != nil {
		return err
	}
	return s.endInterrupted(ctx)
}

// endInterrupted takes back, or keeps and says so, what a killed process left
// half-done, so that a plan never goes on from a half step.
func (s *session) endInterrupted(ctx context.Context) error {
	in, found, err := s.readInflight()
	if err != nil {
		return fmt.Errorf("read what was interrupted: %w", err)
	}
	if found {
		if err := s.endCall(ctx, in); err != nil {
			return fmt.Errorf("take back the interrupted %s: %w", in.What, err)
		}
	}
	if s.plan.Phase == agents.PhaseExecute && s.plan.State == agents.PlanProcessing {
		return s.move(ctx, agents.PhaseExecute, agents.PlanQueued, nil)
	}
	return nil
}

func (s *session) endCall(ctx context.Context, in inflight) error {
	over, err := s.isOver(ctx, in)
	if err != nil {
		return err
	}
	if over {
		return s.done()
	}
	if in.OnFailure == agents.FailKeep {
		s.say("the %s was interrupted; what it had changed was kept", in.What)
	} else {
		if err := s.putBack(ctx, in.Refs, in.CheckpointID); err != nil {
			return err
		}
		s.say("the %s was interrupted; its changes were taken back", in.What)
	}
	if err := s.recordInterrupted(ctx, in); err != nil {
		return err
	}
	return s.done()
}

// isOver reports whether the interrupted work had been recorded to its end,
// and only the note of it is left.
func (s *session) isOver(ctx context.Context, in inflight) (over bool, err error) {
	err = s.e.store.Read(ctx, func(tx *metastore.Tx) error {
		if in.Target != "" {
			active, err := tx.Checkpoints().Active(s.plan.ID)
			over = err == nil && active.ID == in.Target
			return ignoreNotFound(err)
		}
		if in.Invocation == "" {
			return nil
		}
		inv, err := tx.Invocations().Get(in.Invocation)
		over = err == nil && !inv.EndedAt.IsZero()
		return ignoreNotFound(err)
	})
	return over, err
}

// recordInterrupted brings the rows in line with what endCall did to the files.
func (s *session) recordInterrupted(ctx context.Context, in inflight) error {
	return s.e.store.Write(ctx, func(tx *metastore.Tx) error {
		if in.OnFailure != agents.FailKeep && in.CheckpointID != "" {
			if err := ignoreNotFound(tx.Checkpoints().SetActive(s.plan.ID, in.CheckpointID)); err != nil {
				return err
			}
		}
		inv, err := tx.Invocations().Get(in.Invocation)
		if err != nil {
			return ignoreNotFound(err)
		}
		inv.EndedAt = s.e.now()
		if inv.Error == "" { // else it came to its end, and could not be taken back then
			inv.Error, inv.ExitCode = "interrupted", -1
		}
		inv.RolledBack = in.OnFailure != agents.FailKeep
		return tx.Invocations().Update(&inv)
	})
}

func ignoreNotFound(err error) error {
	if errors.Is(err, agents.ErrNotFound) {
		return nil
	}
	return err
}

// putBack restores every sandbox to the state that refs names; one without an
// entry goes back to its base. All or none: when one cannot be restored, those
// done before it go forward again to what they were.
func (s *session) putBack(ctx context.Context, refs map[string]string, checkpointID string) error {
	for _, rec := range s.gone {
		if ref := refs[rec.ID]; ref != "" && s.find(rec.ResourceID) == nil {
			gone, err := s.box(rec) // removing it was all that an earlier try got done
			if err != nil {
				return err
			}
			if _, err := s.again(ctx, gone, ref); err != nil {
				return err
			}
		}
	}
	for _, b := range slices.Clone(s.boxes) {
		if !b.Capabilities().Rollback || b.applied() || !errors.Is(b.Open(ctx), agents.ErrBlocked) {
			continue
		}
		// The call took the whole sandbox away: it is made again in that state.
		if err := b.Cleanup(ctx); err != nil {
			return err
		}
		if _, err := s.again(ctx, b, orElse(refs[b.Record().ID], b.Record().BaseRef)); err != nil {
			return err
		}
	}
	_, err := s.restoreAll(ctx, refs, checkpointID, s.boxes, false)
	return err
}

// restoreAll restores these sandboxes and returns what changed, per sandbox.
func (s *session) restoreAll(ctx context.Context, refs map[string]string, checkpointID string, boxes []*box, dryRun bool) (map[*box]sandbox.Restored, error) {
	out := make(map[*box]sandbox.Restored, len(boxes))
	var undone []*box
	for _, b := range boxes {
		if !b.Capabilities().Rollback || b.applied() {
			continue
		}
		res, err := s.restoreBox(ctx, b, refs[b.Record().ID], checkpointID, dryRun)
		if err == nil {
			out[b] = res
			undone = append(undone, b)
			continue
		}
		detached, cancel := sandbox.Detach(ctx)
		defer cancel()
		for _, done := range undone {
			if done.ref == "" || dryRun {
				continue
			}
			_, back := s.restoreBox(detached, done, done.ref, "", false)
			err = errors.Join(err, back)
		}
		return nil, err
	}
	for _, b := range undone {
		if !dryRun {
			b.ref, b.stale, b.touched = orElse(refs[b.Record().ID], b.Record().BaseRef), true, nil
		}
	}
	return out, nil
}

func (s *session) restoreBox(ctx context.Context, b *box, ref, checkpointID string, dryRun bool) (sandbox.Restored, error) {
	rec := b.Record()
	req := sandbox.RestoreRequest{Ref: ref, DryRun: dryRun}
	if ref == "" {
		req.Ref = rec.BaseRef
	} else if checkpointID != "" && s.e.payloads != nil {
		req.Dir = s.e.payloads.PartDir(s.plan.ID, checkpointID, rec.ID)
	}
	if req.Ref == "" {
		return sandbox.Restored{}, fmt.Errorf("restore sandbox of %s: no state was recorded: %w", b.Resource().Name, agents.ErrUnsupported)
	}
	return b.Restore(ctx, req)
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}
