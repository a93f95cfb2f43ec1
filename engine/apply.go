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
	"strings"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/fsx"
	"github.com/cleveragents/agents/metastore"
	"github.com/cleveragents/agents/sandbox"
)

// Apply brings a plan's result into its real resources (DESIGN §7). Everything
// is previewed first: any problem, and nothing is applied (agents.ErrConflict
// with the list in the result), unless Partial asks for what can be applied
// (then agents.ErrPartial if something was left). A failure in the middle
// takes back what was applied, where nobody has moved it since. A second Apply
// does the rest.
func (e *Engine) Apply(ctx context.Context, req ApplyRequest) (agents.ApplyResult, error) {
	s, err := e.open(ctx, req.Plan, "plan apply")
	if err != nil {
		return agents.ApplyResult{}, err
	}
	defer s.close()
	if err := s.guardApply(); err != nil {
		return agents.ApplyResult{PlanID: s.plan.ID}, err
	}
	a := &applying{s: s, req: req, out: agents.ApplyResult{PlanID: s.plan.ID, Project: strings.Join(s.plan.Projects, ", "), DryRun: req.DryRun}}
	if err := a.prepare(ctx); err != nil {
		return a.result(), err
	}
	if err := a.preview(ctx); err != nil || req.DryRun {
		return a.result(), err
	}
	err = a.carryOut(ctx)
	return a.result(), err
}

// guardApply refuses a plan that has nothing to apply any more, or not yet.
func (s *session) guardApply() error {
	switch {
	case s.plan.State == agents.PlanApplied:
		return &agents.Error{Kind: agents.BusinessRuleViolation, Message: fmt.Sprintf("plan %s is already applied", s.plan.ID), Err: agents.ErrBlocked}
	case s.plan.State == agents.PlanErrored:
		return &agents.Error{
			Kind: agents.BusinessRuleViolation, Message: fmt.Sprintf("plan %s is errored and cannot be applied", s.plan.ID), Err: agents.ErrState,
			Hint: fmt.Sprintf("agents plan execute %s goes on from the failed step; agents plan rollback %s CHECKPOINT goes back", s.plan.ID, s.plan.ID),
		}
	case !s.plan.Position().CanMove(agents.PlanPosition{Phase: agents.PhaseApply, State: agents.PlanProcessing}):
		return &agents.StateError{What: "plan " + s.plan.ID, From: s.plan.Position().String(), To: "apply"}
	}
	return nil
}

// applying is one apply in the making.
type applying struct {
	s     *session
	req   ApplyRequest
	parts []*applyPart
	out   agents.ApplyResult

	unsettled bool // a resource is neither as before nor applied yet
}

// applyPart is one resource of it. box is nil for a resource that the plan
// never touched.
type applyPart struct {
	resource agents.Resource
	box      *box
	sealed   sandbox.Sealed
	result   agents.ResourceResult
	problem  error
}

func (part *applyPart) applied() bool { return part.result.State == agents.ApplyApplied }

// prepare records the state before the apply and seals every part.
func (a *applying) prepare(ctx context.Context) error {
	if err := a.narrow(); err != nil {
		return err
	}
	for _, r := range a.s.plan.Resources {
		if r.Boundary != "" {
			continue // it comes home with the other
		}
		part := &applyPart{resource: r, box: a.s.find(r.ID), result: agents.ResourceResult{Resource: r.Name, State: agents.ApplyUnchanged}}
		a.parts = append(a.parts, part)
		if part.box == nil {
			continue
		}
		part.result.State = agents.ApplyNotTried
		if done := part.box.Record().ApplyState; done == agents.ApplyApplied {
			part.result.State, part.box = done, nil // an earlier apply did this one
			continue
		}
		if err := part.box.Open(ctx); err != nil {
			return agents.WithHint(err, "agents plan execute %s makes the sandbox again from its newest checkpoint", a.s.plan.ID)
		}
	}
	if !a.req.DryRun {
		if err := a.s.hook(ctx, agents.PhasePreApply, ""); err != nil {
			return err
		}
	}
	for _, part := range a.tried() {
		sealed, err := a.s.seal(ctx, part.box)
		if errors.Is(err, agents.ErrConflict) {
			part.result.State, part.result.Error = agents.ApplyConflict, err.Error()
		}
		if err != nil {
			return fmt.Errorf("resource %s: %w", part.resource.Name, err)
		}
		part.sealed = sealed
		for _, left := range sealed.LeftOut {
			left.Resource = part.resource.Name
			a.out.LeftOut = append(a.out.LeftOut, left)
		}
	}
	return nil
}

// narrow checks the resources that the apply is narrowed to, and makes their
// boundaries of them. A part of another's sandbox can only be named together
// with that one.
func (a *applying) narrow() error {
	plan := &a.s.plan
	var names []string
	for _, name := range a.req.Only {
		r, err := pickResource(plan.Resources, name)
		if err != nil {
			return err
		}
		outer := plan.Boundary(r)
		_, err = a.s.whole(name)
		if err != nil && !slices.Contains(a.req.Only, outer.Name) && !slices.Contains(a.req.Only, outer.ID) {
			return err
		}
		names = append(names, outer.Name)
	}
	a.req.Only = names
	return nil
}

// tried lists the parts that this apply works on.
func (a *applying) tried() (out []*applyPart) {
	for _, part := range a.parts {
		if part.box == nil || len(a.req.Only) > 0 && !slices.Contains(a.req.Only, part.resource.Name) && !slices.Contains(a.req.Only, part.resource.ID) {
			continue
		}
		out = append(out, part)
	}
	return out
}

// preview asks every strategy what would happen. Nothing is touched.
func (a *applying) preview(ctx context.Context) error {
	var problems []error
	for _, part := range a.tried() {
		req := a.request(part)
		req.DryRun = true
		part.result, part.problem = part.box.Apply(ctx, req)
		if part.problem == nil {
			part.problem = a.keepOut(part)
		}
		if part.problem != nil {
			part.result.Error = part.problem.Error()
			problems = append(problems, part.problem)
			if err := a.note(ctx, part); err != nil {
				return errors.Join(part.problem, err)
			}
		}
	}
	if len(problems) == 0 || a.req.Partial && len(problems) < len(a.tried()) {
		return nil
	}
	var conflicts []agents.PathReason
	for _, part := range a.tried() {
		if part.problem == nil {
			part.result = agents.ResourceResult{Resource: part.resource.Name, State: agents.ApplyNotTried}
		}
		for _, c := range part.result.Conflicts {
			c.Resource = part.resource.Name
			conflicts = append(conflicts, c)
		}
	}
	a.out.NextSteps = []string{"agents plan apply " + a.s.plan.ID}
	if update := "agents plan update " + a.s.plan.ID; strings.HasPrefix(agents.HintOf(problems[0]), update) {
		a.out.NextSteps = []string{update, a.out.NextSteps[0]}
	}
	return &agents.Error{
		Kind:    agents.SandboxCommitError,
		Message: fmt.Sprintf("plan %s was not applied; nothing was changed", a.s.plan.ID),
		Hint:    orElse(agents.HintOf(problems[0]), fmt.Sprintf("agents plan update %s brings the real side's changes into the sandbox", a.s.plan.ID)),
		Details: map[string]any{"conflicts": conflicts},
		Err:     errors.Join(problems...),
	}
}

// keepOut refuses a result that would write into the data directory, where that
// lies in a resource.
func (a *applying) keepOut(part *applyPart) error {
	ours, err := filepath.Rel(resolved(part.resource.Location), resolved(a.s.e.set.DataDir))
	if err != nil || !filepath.IsLocal(ours) {
		return nil
	}
	res := &part.result
	for _, path := range slices.Concat(res.Added, res.Changed, res.Deleted) {
		if path != ours && !strings.HasPrefix(path, ours+string(filepath.Separator)) {
			continue
		}
		why := "is in the data directory, where sandboxes and plans are kept"
		res.State, res.Conflicts = agents.ApplyConflict, append(res.Conflicts, agents.PathReason{Resource: part.resource.Name, Path: path, Reason: why})
		return agents.WithHint(fmt.Errorf("%s %s: %w", agents.EscapePath(path), why, agents.ErrConflict),
			"agents plan exec %s --resource %s -- rm -r %s takes it out of the result", a.s.plan.ID, part.resource.Name, agents.EscapePath(ours))
	}
	return nil
}

// resolved is a path without links; itself, where nothing is there.
func resolved(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return path
}

// note records what stands in the way of a part, for the plan's status.
func (a *applying) note(ctx context.Context, part *applyPart) error {
	if a.req.DryRun {
		return nil
	}
	return part.box.NoteApply(ctx, part.result.State)
}

func (a *applying) request(part *applyPart) sandbox.ApplyRequest {
	return sandbox.ApplyRequest{
		Ref: part.sealed.Ref, Into: a.req.Into, Merge: a.req.Merge, When: a.s.e.now(),
		Message:    "cleveragents: apply plan " + a.s.plan.ID,
		JournalDir: a.s.e.journalDir(a.s.plan.ID, part.box.Record().ID),
	}
}

// carryOut applies what the preview found good. The plan's journal says, until
// everything is recorded, that an apply is under way.
func (a *applying) carryOut(ctx context.Context) error {
	s := a.s
	journal := applyJournal{Partial: a.req.Partial, KeepSandbox: a.req.KeepSandbox, Only: a.req.Only, LeftOut: a.out.LeftOut}
	for _, b := range s.boxes {
		if b.applied() {
			journal.Before = append(journal.Before, b.Record().ID)
		}
	}
	if err := s.writeApplyJournal(journal); err != nil {
		return err
	}
	if err := s.move(ctx, agents.PhaseApply, agents.PlanProcessing, nil); err != nil {
		return errors.Join(err, s.dropApplyJournal())
	}
	var failure error
	for _, part := range a.tried() {
		if part.problem != nil {
			continue
		}
		if failure == nil || a.req.Partial {
			failure = errors.Join(failure, a.applyOne(ctx, part))
			continue
		}
		part.result = agents.ResourceResult{Resource: part.resource.Name, State: agents.ApplyNotTried}
	}
	if a.unsettled {
		return failure // the journal stays, and nothing else of the plan goes on before it is ended
	}
	if failure != nil && !a.req.Partial {
		failure = errors.Join(failure, a.undoAll(ctx))
	}
	return a.finish(ctx, failure)
}

func (a *applying) applyOne(ctx context.Context, part *applyPart) error {
	lock, err := a.s.e.lockResource(ctx, part.resource, "plan apply "+a.s.plan.ID)
	if err != nil {
		return err
	}
	defer lock.Release()
	req := a.request(part)
	part.result, err = part.box.Apply(ctx, req)
	if err != nil {
		err = a.settleFailed(ctx, part, req.JournalDir, err)
	}
	a.s.sayOf(part.box, part.result.Notices)
	if err != nil {
		part.problem, part.result.Error = err, err.Error()
		return fmt.Errorf("resource %s: %w", part.resource.Name, err)
	}
	return nil
}

// settleFailed ends an apply that failed in the middle, as if it had been
// killed there: it is whole after all (nil), or taken back. What can be
// neither now stays in its journal for the plan's next command.
func (a *applying) settleFailed(ctx context.Context, part *applyPart, journalDir string, cause error) error {
	if left, err := os.ReadDir(journalDir); err != nil || len(left) == 0 {
		return cause
	}
	ctx, cancel := sandbox.Detach(ctx)
	defer cancel()
	ended, err := part.box.Recover(ctx, journalDir)
	part.result.Notices = append(part.result.Notices, ended.Notices...)
	switch {
	case err != nil:
		a.unsettled = true
		return agents.WithHint(errors.Join(cause, err), "mend the cause; the plan's next command ends this apply first: agents plan status %s", a.s.plan.ID)
	case ended.State == agents.ApplyApplied:
		a.s.say("resource %s: the apply failed at its end and was finished: %v", part.resource.Name, cause)
		part.result.State, part.result.CommitRef = ended.State, orElse(part.result.CommitRef, ended.Commit)
		return nil
	}
	return cause
}

// undoAll takes back what was applied before a failure, newest first.
func (a *applying) undoAll(ctx context.Context) (err error) {
	ctx, cancel := sandbox.Detach(ctx)
	defer cancel()
	for _, part := range slices.Backward(a.tried()) {
		if part.result.State != agents.ApplyApplied {
			continue
		}
		if uerr := a.undoOne(ctx, part); uerr != nil {
			err = errors.Join(err, fmt.Errorf("resource %s stays applied: %w", part.resource.Name, uerr))
			continue
		}
		part.result.State = agents.ApplyReverted
	}
	return err
}

func (a *applying) undoOne(ctx context.Context, part *applyPart) error {
	lock, err := a.s.e.lockResource(ctx, part.resource, "plan apply "+a.s.plan.ID)
	if err != nil {
		return err
	}
	defer lock.Release()
	return part.box.Undo(ctx, "")
}

// finish records what the apply came to, and cleans up after a whole one.
func (a *applying) finish(ctx context.Context, failure error) error {
	s := a.s
	after := context.WithoutCancel(ctx)
	var left []string
	for _, part := range a.parts {
		if st := part.result.State; st != agents.ApplyApplied && st != agents.ApplyUnchanged {
			left = append(left, part.resource.Name)
		}
	}
	if failure != nil && !a.req.Partial || len(left) > 0 {
		err := errors.Join(failure, s.move(after, agents.PhaseExecute, agents.PlanComplete, nil), s.dropApplyJournal())
		a.out.NextSteps = []string{"agents plan apply " + s.plan.ID}
		a.count()
		if slices.ContainsFunc(a.tried(), (*applyPart).applied) {
			a.out.AppliedAt = s.e.now()
			a.out.NextSteps[0] += "   # does the rest"
		}
		switch {
		case !a.req.Partial || err != nil && failure == nil || !slices.ContainsFunc(a.parts, (*applyPart).applied):
			return err
		case failure == nil || errors.Is(failure, agents.ErrConflict):
			return fmt.Errorf("not applied: %s: %w", strings.Join(left, ", "), agents.ErrPartial)
		}
		return fmt.Errorf("not applied: %s: %w: %w", strings.Join(left, ", "), agents.ErrPartial, err)
	}
	if err := s.markApplied(after); err != nil {
		return err
	}
	a.out.AppliedAt = s.plan.AppliedAt
	a.count()
	cleaned, err := s.afterApply(after, a.req.KeepSandbox, a.out.LeftOut)
	a.out.Cleanup = cleaned
	a.out.NextSteps = append(a.out.NextSteps, a.nextSteps()...)
	return err
}

// markApplied stores the plan as applied.
func (s *session) markApplied(ctx context.Context) error {
	p := s.plan
	if err := p.Move(agents.PhaseApply, agents.PlanApplied); err != nil {
		return err
	}
	p.AppliedAt = s.e.now()
	err := s.e.store.Write(ctx, func(tx *metastore.Tx) error {
		if err := tx.Plans().Update(&p); err != nil {
			return err
		}
		return tx.Events().Append(&agents.Event{PlanID: p.ID, Kind: "plan.applied", Message: "plan applied"})
	})
	if err == nil {
		s.plan = p
	}
	return err
}

func (a *applying) count() {
	for _, part := range a.parts {
		a.out.Artifacts += len(part.result.Added) + len(part.result.Changed)
		a.out.Insertions += part.result.Insertions
		a.out.Deletions += part.result.Deletions
	}
}

func (a *applying) nextSteps() (out []string) {
	applied := false
	for _, part := range a.parts {
		applied = applied || part.result.State == agents.ApplyApplied
		if part.result.State == agents.ApplyApplied && part.result.CommitRef != "" {
			out = append(out, fmt.Sprintf("git -C %s show %s", shellQuote(part.resource.Location), short(part.result.CommitRef)))
		}
	}
	if applied {
		out = append(out, "agents plan undo "+a.s.plan.ID+"   # while nothing has moved")
	}
	return out
}

func short(commit string) string {
	if len(commit) > 12 {
		return commit[:12]
	}
	return commit
}

// result is the answer as far as the apply got.
func (a *applying) result() agents.ApplyResult {
	a.out.Resources = nil
	for _, r := range a.s.plan.Resources {
		i := slices.IndexFunc(a.parts, func(part *applyPart) bool { return part.resource.ID == a.s.plan.Boundary(r).ID })
		switch {
		case i < 0: // refused before it was looked at
		case r.Boundary == "":
			a.out.Resources = append(a.out.Resources, a.parts[i].result)
		default: // its files are listed under the other
			a.out.Resources = append(a.out.Resources, agents.ResourceResult{Resource: r.Name, State: a.parts[i].result.State})
		}
	}
	if a.out.Artifacts == 0 && a.req.DryRun {
		a.count()
	}
	a.out.Messages = a.s.notices
	return a.out
}

// afterApply removes the sandboxes after an apply, if the policy says so, and
// ends the plan's journal. After a failure the journal stays, and the plan's
// next command tries again.
func (s *session) afterApply(ctx context.Context, keep bool, leftOut []agents.PathReason) (agents.SandboxCleanup, error) {
	var out agents.SandboxCleanup
	for _, b := range s.boxes {
		out.Sandboxes++
		if branch := b.Record().Metadata["branch"]; branch != "" { // a directory has none
			out.Branch = branch
			out.BranchMerged = out.BranchMerged || b.Record().ApplyState == agents.ApplyApplied
		}
	}
	if keep || s.e.set.Cleanup == CleanManual {
		return out, s.dropApplyJournal()
	}
	if len(leftOut) > 0 && len(s.boxes) > 0 {
		if err := s.archive(ctx); err != nil {
			return out, err
		}
		s.say("what the apply left out is archived in %s; agents plan undo %s brings the sandbox back with it",
			s.e.archiveDir(s.plan.ID), s.plan.ID)
	}
	had := len(s.boxes) > 0
	n, err := s.removeAll(ctx)
	out.CheckpointsRemoved, out.WorktreeRemoved = n, had && err == nil
	if err != nil {
		return out, err
	}
	return out, s.dropApplyJournal()
}

// applyJournal says that an apply of the plan is under way.
type applyJournal struct {
	Partial     bool     `json:"partial"`
	KeepSandbox bool     `json:"keep_sandbox"`
	Only        []string `json:"only,omitempty"`

	Before  []string            `json:"before,omitempty"`   // ids of the sandboxes that an earlier apply brought home: they stay applied
	LeftOut []agents.PathReason `json:"left_out,omitempty"` // what is archived before the sandboxes go
}

func (e *Engine) applyJournalFile(planID string) string {
	return filepath.Join(e.set.DataDir, "journal", planID, "apply.json")
}

func (s *session) writeApplyJournal(j applyJournal) error {
	return publishJSON(s.e.applyJournalFile(s.plan.ID), j)
}

// publishJSON writes a note durably, in a folder that is made on demand.
func publishJSON(file string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if err := fsx.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	return fsx.Publish(file, data, 0o600)
}

func (s *session) dropApplyJournal() error { return fsx.Remove(s.e.applyJournalFile(s.plan.ID)) }

func (e *Engine) readApplyJournal(planID string) (j applyJournal, found bool, err error) {
	data, err := os.ReadFile(e.applyJournalFile(planID))
	if errors.Is(err, fs.ErrNotExist) {
		return j, false, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &j)
	}
	return j, err == nil, err
}

// endApply finishes or takes back an apply that was killed: all applied, or as
// before, and it says which (DESIGN §7).
func (s *session) endApply(ctx context.Context) error {
	j, found, err := s.e.readApplyJournal(s.plan.ID)
	if !found || err != nil {
		return err
	}
	if s.plan.State == agents.PlanApplied {
		s.tidyApplied(ctx, j)
		return nil
	}
	var applied []*box
	whole := true
	for _, b := range s.boxes {
		if b.Record().ApplyState != agents.ApplyApplied {
			ended, err := b.Recover(ctx, "")
			if err != nil {
				return fmt.Errorf("end the killed apply of %s: %w", b.Resource().Name, err)
			}
			s.sayOf(b, ended.Notices)
			if ended.State != agents.ApplyApplied {
				whole = whole && s.nothingToApply(ctx, b)
				continue
			}
		}
		applied = append(applied, b)
	}
	if s.plan.Phase != agents.PhaseApply {
		return s.dropApplyJournal()
	}
	if whole && len(applied) > 0 {
		s.say("the interrupted apply of plan %s was finished: everything is applied", s.plan.ID)
		if err := s.markApplied(ctx); err != nil {
			return err
		}
		s.tidyApplied(ctx, j)
		return nil
	}
	var stay []string
	for _, b := range slices.Backward(applied) {
		switch {
		case slices.Contains(j.Before, b.Record().ID): // not of this apply
		case j.Partial:
			stay = append(stay, b.Resource().Name)
		default:
			if err := b.Undo(ctx, ""); err != nil {
				s.say("resource %s stays applied: %v", b.Resource().Name, err)
				stay = append(stay, b.Resource().Name)
			}
		}
	}
	if len(stay) == 0 {
		s.say("the interrupted apply of plan %s was taken back: the resources are as before", s.plan.ID)
	} else {
		s.say("the interrupted apply of plan %s was ended: applied are %s, the rest is as before; agents plan apply %s does the rest",
			s.plan.ID, strings.Join(stay, ", "), s.plan.ID)
	}
	return errors.Join(s.move(ctx, agents.PhaseExecute, agents.PlanComplete, nil), s.dropApplyJournal())
}

// tidyApplied does what is left to do after an apply. That it fails stops
// nothing: the plan is applied, and its next command tries again.
func (s *session) tidyApplied(ctx context.Context, j applyJournal) {
	if _, err := s.afterApply(ctx, j.KeepSandbox, j.LeftOut); err != nil {
		s.say("plan %s is applied, and its sandboxes could not be removed yet: %v", s.plan.ID, err)
	}
}

// nothingToApply reports whether a sandbox's sealed result is empty.
func (s *session) nothingToApply(ctx context.Context, b *box) bool {
	changes, err := b.Diff(ctx, sandbox.DiffRequest{})
	return err == nil && len(changes) == 0
}
