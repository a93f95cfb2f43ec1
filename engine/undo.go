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
	"github.com/cleveragents/agents/metastore"
	"github.com/cleveragents/agents/sandbox"
)

// UndoApply takes an applied plan back where nothing has moved since (else
// agents.ErrConflict, and nothing changes). The plan is execute/complete
// afterwards and its sandboxes hold the result again. A journal says what is
// to be undone, so that a killed undo is finished by the plan's next command.
func (e *Engine) UndoApply(ctx context.Context, plan string) (agents.ApplyResult, error) {
	s, err := e.open(ctx, plan, "plan undo")
	if err != nil {
		return agents.ApplyResult{}, err
	}
	defer s.close()
	out := agents.ApplyResult{PlanID: s.plan.ID}
	j, err := s.planUndo(ctx)
	if err != nil {
		return out, err
	}
	if s.plan.State != agents.PlanApplied && len(j.Applied) == 0 {
		return out, s.refused("be undone: it is not applied")
	}
	if err := s.canUndo(ctx, j); err != nil {
		return out, err
	}
	if err := s.writeUndoJournal(j); err != nil {
		return out, err
	}
	undone, err := s.undo(ctx, j)
	for _, r := range undone {
		for _, also := range append([]agents.Resource{r}, sharing(s.plan.Resources, r)...) {
			out.Resources = append(out.Resources, agents.ResourceResult{Resource: also.Name, State: agents.ApplyReverted})
		}
	}
	out.Messages = s.notices
	if err != nil && len(undone) == 0 {
		return out, errors.Join(err, s.giveUpUndo(ctx, j.Applied[0]))
	}
	return out, err
}

// undoJournal lists what an undo under way takes back, in this order.
type undoJournal struct {
	Applied []appliedBox `json:"applied"`
}

// appliedBox is a sandbox whose result was applied.
type appliedBox struct {
	Record agents.SandboxRecord `json:"record"`
	Ref    string               `json:"ref,omitempty"` // the state before the apply, where the sandbox is gone and is made again
}

func (e *Engine) undoJournalFile(planID string) string {
	return filepath.Join(e.set.DataDir, "journal", planID, "undo.json")
}

func (s *session) writeUndoJournal(j undoJournal) error {
	return publishJSON(s.e.undoJournalFile(s.plan.ID), j)
}

func (s *session) dropUndoJournal() error { return fsx.Remove(s.e.undoJournalFile(s.plan.ID)) }

// planUndo lists the sandboxes to undo, the newest first.
func (s *session) planUndo(ctx context.Context) (j undoJournal, err error) {
	var records []agents.SandboxRecord
	err = s.e.store.Read(ctx, func(tx *metastore.Tx) error {
		records, err = tx.Sandboxes().ByPlan(s.plan.ID)
		return err
	})
	if err != nil {
		return j, err
	}
	rows, err := s.rows(ctx)
	if err != nil {
		return j, err
	}
	hook := newestHook(rows, agents.PhasePreApply)
	for _, rec := range slices.Backward(records) {
		if rec.ApplyState != agents.ApplyApplied {
			continue
		}
		a := appliedBox{Record: rec}
		if !rec.Status.Live() && s.plan.State != agents.PlanCancelled { // the work of a cancelled one is in its archive
			if i := slices.IndexFunc(rows, func(cp agents.Checkpoint) bool { return cp.ID == hook }); i >= 0 {
				a.Ref = rowRefs(rows[i])[rec.ID]
			}
			if a.Ref == "" {
				return j, fmt.Errorf("the state before the apply was not recorded: %w", agents.ErrBlocked)
			}
		}
		j.Applied = append(j.Applied, a)
	}
	return j, nil
}

// canUndo refuses an undo before anything is taken back, where a resource has
// moved on.
func (s *session) canUndo(ctx context.Context, j undoJournal) error {
	for _, a := range j.Applied {
		gone, err := s.box(a.Record)
		if err != nil {
			return err
		}
		u, err := s.undoer(gone)
		if err != nil {
			return err
		}
		if err := u.CanUndo(ctx, gone.Workspace(), s.e.journalDir(s.plan.ID, a.Record.ID)); err != nil {
			return fmt.Errorf("resource %s: %w", gone.Resource().Name, err)
		}
	}
	return nil
}

func (s *session) undoer(b *box) (sandbox.Undoer, error) {
	strategy, err := s.e.strategies.Lookup(b.Record().Strategy)
	if err != nil {
		return nil, err
	}
	u, ok := strategy.(sandbox.Undoer)
	if !ok {
		return nil, fmt.Errorf("strategy %s cannot undo an apply: %w", b.Record().Strategy, agents.ErrUnsupported)
	}
	return u, nil
}

// undo takes back what the journal lists and returns the resources that are as
// before now. It may be called again after a failure or a kill: what is done
// already stays done. At its end the plan is execute/complete.
func (s *session) undo(ctx context.Context, j undoJournal) (undone []agents.Resource, err error) {
	for _, a := range j.Applied {
		gone, err := s.box(a.Record)
		if err != nil {
			return undone, err
		}
		// The sandbox comes first: where there is no room for it, nothing has changed.
		if err := s.reopen(ctx, gone, a.Ref); err != nil {
			return undone, err
		}
		if err := s.undoResource(ctx, gone); err != nil {
			return undone, err
		}
		undone = append(undone, gone.Resource())
	}
	if s.plan.State == agents.PlanApplied { // else a part of it was
		if err := s.move(ctx, agents.PhaseExecute, agents.PlanComplete, nil); err != nil {
			return undone, err
		}
	}
	s.event(ctx, "plan.undone", "apply taken back", nil)
	return undone, s.dropUndoJournal()
}

// undoResource brings the real resource back to what it was before the apply.
func (s *session) undoResource(ctx context.Context, gone *box) error {
	undoer, err := s.undoer(gone)
	if err != nil {
		return err
	}
	lock, err := s.e.lockResource(ctx, gone.Resource(), "plan undo "+s.plan.ID)
	if err != nil {
		return err
	}
	defer lock.Release()
	if b := s.find(gone.Resource().ID); b != nil && b.Status() == agents.SandboxCommitted {
		return b.Undo(ctx, "")
	}
	if err := undoer.Undo(ctx, gone.Workspace(), s.e.journalDir(s.plan.ID, gone.Record().ID)); err != nil || s.find(gone.Resource().ID) != nil {
		return err
	}
	rec := gone.Record()
	rec.ApplyState = agents.ApplyReverted
	return s.e.storeSandbox(ctx, rec)
}

// reopen makes sure that the sandbox of an undone apply holds the result: one
// that is gone is made again, with the state that ref names.
func (s *session) reopen(ctx context.Context, gone *box, ref string) error {
	if ref == "" {
		return nil
	}
	b := s.find(gone.Resource().ID)
	if b == nil {
		_, err := s.again(ctx, gone, ref)
		return err
	}
	if b.Record().BaseRef == "" { // killed right after it was made
		if err := s.recordBase(ctx, b); err != nil {
			return err
		}
	}
	_, err := b.Restore(ctx, sandbox.RestoreRequest{Ref: ref})
	return err
}

// giveUpUndo ends an undo that was refused at this sandbox: one that was made for
// it goes again, and what its record said of the apply stays. Where that cannot
// be, the undo stays for the plan's next command.
func (s *session) giveUpUndo(ctx context.Context, a appliedBox) error {
	if a.Ref == "" {
		return s.dropUndoJournal()
	}
	ctx, cancel := sandbox.Detach(ctx)
	defer cancel()
	var rec agents.SandboxRecord
	err := s.e.store.Read(ctx, func(tx *metastore.Tx) (err error) {
		rec, err = tx.Sandboxes().Get(a.Record.ID)
		return err
	})
	if err != nil {
		return err
	}
	if rec.Status.Live() {
		made, err := s.box(rec)
		if err != nil {
			return err
		}
		if err := made.Cleanup(ctx); err != nil {
			return err
		}
		s.boxes = slices.DeleteFunc(s.boxes, func(b *box) bool { return b.Record().ID == rec.ID })
	}
	return errors.Join(s.e.storeSandbox(ctx, a.Record), s.dropUndoJournal())
}

// endUndo finishes an undo that was killed. Where the real resource has moved
// on since, so that this cannot be, the plan stays applied, and that is said.
func (s *session) endUndo(ctx context.Context) error {
	data, err := os.ReadFile(s.e.undoJournalFile(s.plan.ID))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var j undoJournal
	if err := json.Unmarshal(data, &j); err != nil {
		return err
	}
	undone, err := s.undo(ctx, j)
	switch {
	case err == nil:
		s.say("the interrupted undo of plan %s was finished: the resources are as before the apply", s.plan.ID)
	case errors.Is(err, agents.ErrConflict) && len(undone) == 0:
		s.say("the interrupted undo of plan %s was given up, it stays applied: %v", s.plan.ID, err)
		return s.giveUpUndo(ctx, j.Applied[0])
	case errors.Is(err, agents.ErrConflict):
		s.say("the interrupted undo of plan %s was given up: as before the apply are %s, the rest stays applied: %v", s.plan.ID, names(undone), err)
		return errors.Join(s.move(ctx, agents.PhaseExecute, agents.PlanComplete, nil), s.giveUpUndo(ctx, j.Applied[len(undone)]))
	}
	return err
}
