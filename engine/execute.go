package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/metastore"
	"github.com/cleveragents/agents/sandbox"
)

// Execute runs a plan's steps from the first one that is not done; each is a
// transaction (ADR-015, "Execution as Transactions"). Without steps it seals.
// A step that fails makes the plan errored, unless the step says continue; a
// later Execute starts at it again. An agents.ErrToolFailed error comes with
// the result.
func (e *Engine) Execute(ctx context.Context, req ExecuteRequest) (agents.ExecuteResult, error) {
	s, err := e.open(ctx, req.Plan, "plan execute")
	if err != nil {
		return agents.ExecuteResult{}, err
	}
	defer s.close()
	if err := s.drivable(); err != nil {
		return agents.ExecuteResult{Plan: s.plan}, err
	}
	if req.DryRun {
		return agents.ExecuteResult{Plan: s.plan, Sandboxes: s.states(), Resume: resumeAt(s.plan.Steps, req.FromStart)}, nil
	}
	if req.FromStart {
		if err := s.restart(ctx); err != nil {
			return agents.ExecuteResult{Plan: s.plan}, err
		}
	}
	res := agents.ExecuteResult{Resume: resumeAt(s.plan.Steps, false)}
	err = s.execute(ctx, req.Stdio)
	res.Diff, _ = s.changedSoFar(ctx)
	res.Plan, res.Sandboxes, res.Messages = s.plan, s.states(), s.notices
	return res, err
}

// resumeAt is the id of the first step that is not done, or "".
func resumeAt(steps []agents.Step, fromStart bool) string {
	for _, step := range steps {
		if fromStart || step.Status == agents.StepPending || step.Status == agents.StepFailed {
			return step.ID
		}
	}
	return ""
}

// restart puts the sandboxes back to their base and all steps to pending. The
// present state is recorded first.
func (s *session) restart(ctx context.Context) error {
	if len(s.boxes) > 0 {
		meta := agents.CheckpointMetadata{Reason: "before execute --from-start", Phase: string(s.plan.Phase)}
		_, safety, err := s.checkpoint(ctx, mark{kind: agents.CheckpointManual, meta: meta, always: true})
		if err != nil {
			return err
		}
		safety.drop()
		if err := s.putBack(ctx, nil, ""); err != nil {
			return err
		}
	}
	for i := range s.plan.Steps {
		s.plan.Steps[i].Status = agents.StepPending
		s.plan.Steps[i].BeforeCheckpointID, s.plan.Steps[i].AfterCheckpointID, s.plan.Steps[i].Error = "", "", ""
	}
	return s.e.store.Write(ctx, func(tx *metastore.Tx) error {
		for _, step := range s.plan.Steps {
			if err := tx.Steps().Update(s.plan.ID, step); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *session) execute(ctx context.Context, stdio Stdio) error {
	calls, err := s.stepCalls(stdio)
	if err != nil {
		return err
	}
	if err := s.move(ctx, agents.PhaseExecute, agents.PlanProcessing, nil); err != nil {
		return err
	}
	if err := s.hook(ctx, agents.PhasePreExecute, ""); err != nil {
		return errors.Join(err, s.move(ctx, agents.PhaseExecute, agents.PlanQueued, nil))
	}
	for i := range s.plan.Steps {
		if status := s.plan.Steps[i].Status; status == agents.StepDone || status == agents.StepSkipped {
			continue
		}
		if err := s.step(ctx, i, calls[i]); err != nil {
			return err
		}
	}
	if _, err := s.sealAll(ctx); err != nil {
		return errors.Join(err, s.move(ctx, agents.PhaseExecute, agents.PlanQueued, nil))
	}
	if err := s.hook(ctx, agents.PhasePostExecute, "success"); err != nil {
		return errors.Join(err, s.move(ctx, agents.PhaseExecute, agents.PlanQueued, nil))
	}
	return s.move(ctx, agents.PhaseExecute, agents.PlanComplete, nil)
}

// stepCalls resolves and preflights every step before the first one runs.
func (s *session) stepCalls(stdio Stdio) ([]call, error) {
	var calls []call
	for _, step := range s.plan.Steps {
		t, err := s.e.tools.Lookup(step.Tool)
		if err != nil {
			return nil, fmt.Errorf("step %s: %w", step.ID, err)
		}
		r, err := pickResource(s.plan.Resources, step.Resource)
		if err != nil {
			return nil, fmt.Errorf("step %s: %w", step.ID, err)
		}
		input, err := stepInput(step)
		if err != nil {
			return nil, fmt.Errorf("step %s: %w", step.ID, err)
		}
		c := call{tool: t, resource: r, input: input, onFailure: step.OnFailure, step: step.ID, forensic: true, stdio: stdio}
		if err := s.preflight(c); err != nil {
			return nil, fmt.Errorf("step %s: %w", step.ID, err)
		}
		calls = append(calls, c)
	}
	return calls, nil
}

// step runs one step; what it came to is stored with its invocation. Its error
// ends the execution.
func (s *session) step(ctx context.Context, i int, c call) error {
	step := &s.plan.Steps[i]
	c.record = func(tx *metastore.Tx, inv agents.Invocation, err error) error {
		return tx.Steps().Update(s.plan.ID, stepAfter(*step, inv, err))
	}
	inv, err := s.call(ctx, c)
	*step = stepAfter(*step, inv, err)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, agents.ErrInterrupted):
		return errors.Join(err, s.move(ctx, agents.PhaseExecute, agents.PlanQueued, nil))
	case step.Continue && errors.Is(err, agents.ErrToolFailed) && !errors.Is(err, errNotTakenBack):
		s.say("step %s failed and the plan goes on: %v", step.ID, err)
		return nil
	}
	because := &agents.PlanError{
		Message: err.Error(), Tool: step.Tool, Step: step.ID, Checkpoint: inv.BeforeCheckpointID,
		Recoverable: inv.RolledBack || c.onFailure == agents.FailKeep || inv.BeforeCheckpointID != "",
	}
	err = agents.WithHint(fmt.Errorf("step %s: %w", step.ID, err), "mend the cause, then: agents plan execute %s", s.plan.ID)
	return errors.Join(err, s.move(ctx, agents.PhaseExecute, agents.PlanErrored, because))
}

// stepAfter is a step as its call leaves it. One that the user stopped is
// pending again.
func stepAfter(step agents.Step, inv agents.Invocation, err error) agents.Step {
	step.BeforeCheckpointID, step.AfterCheckpointID = inv.BeforeCheckpointID, inv.AfterCheckpointID
	step.Status, step.Error = agents.StepDone, ""
	switch {
	case errors.Is(err, agents.ErrInterrupted):
		step.Status, step.Error = agents.StepPending, err.Error()
	case err != nil:
		step.Status, step.Error = agents.StepFailed, err.Error()
	}
	return step
}

// hook makes the checkpoint of a phase (sandbox.md, "Checkpoint Lifecycle").
// It always adds a row, unless checkpoints are off, which it says.
func (s *session) hook(ctx context.Context, phase agents.CheckpointPhase, status string) error {
	meta := agents.CheckpointMetadata{Reason: string(phase), Phase: string(phase)}
	if status != "" {
		meta.Extra = map[string]string{"status": status}
	}
	kind := agents.CheckpointPreWrite
	if phase == agents.PhasePostExecute {
		kind = agents.CheckpointPostStep
	}
	_, c, err := s.checkpoint(ctx, mark{kind: kind, meta: meta, always: true})
	c.drop()
	if err != nil {
		return fmt.Errorf("checkpoint %s: %w", phase, err)
	}
	if c == nil {
		s.say("checkpoints are off (sandbox.checkpoint.enabled): there is none of %s", phase)
	}
	return nil
}

// sealAll fixes the result of every sandbox.
func (s *session) sealAll(ctx context.Context) (changed []*box, err error) {
	for _, b := range s.boxes {
		sealed, err := s.seal(ctx, b)
		if err != nil {
			return nil, err
		}
		if !sealed.Unchanged {
			changed = append(changed, b)
		}
	}
	return changed, nil
}

func (s *session) seal(ctx context.Context, b *box) (sandbox.Sealed, error) {
	if err := b.Open(ctx); err != nil {
		return sandbox.Sealed{}, err
	}
	sealed, err := b.Seal(ctx, sandbox.SealRequest{Message: "cleveragents: plan " + s.plan.ID, When: s.e.now()})
	s.notices = append(s.notices, sealed.Notices...)
	return sealed, err
}

// Run creates a plan, runs one command in it and seals what it did, whatever
// the command came to (DESIGN §10, `agents run`). The command's failure is an
// agents.ErrToolFailed error beside the whole result.
func (e *Engine) Run(ctx context.Context, req PlanRequest, cmd CommandRequest) (agents.RunResult, error) {
	p, err := e.CreatePlan(ctx, req)
	if err != nil {
		return agents.RunResult{}, err
	}
	s, err := e.open(ctx, p.ID, "run")
	if err != nil {
		return agents.RunResult{Plan: p}, err
	}
	defer s.close()
	res := agents.RunResult{Plan: p}
	for _, r := range p.Resources {
		cmd.Resources = append(cmd.Resources, r.Name)
	}
	if cmd.OnFailure == "" {
		cmd.OnFailure = agents.FailKeep
	}
	c, err := s.command(cmd)
	if err == nil {
		err = s.preflight(c)
	}
	if err != nil {
		return res, err
	}
	err = s.run(ctx, c, &res)
	res.Plan, res.Sandboxes, res.Messages = s.plan, s.states(), s.notices
	return res, err
}

func (s *session) run(ctx context.Context, c call, res *agents.RunResult) error {
	if err := s.move(ctx, agents.PhaseExecute, agents.PlanProcessing, nil); err != nil {
		return err
	}
	var err error
	res.Invocation, err = s.call(ctx, c)
	if ctx.Err() != nil || err != nil && !errors.Is(err, agents.ErrToolFailed) {
		res.Diff, res.Unknown = s.changedSoFar(ctx)
		return errors.Join(err, s.move(ctx, agents.PhaseExecute, agents.PlanQueued, nil))
	}
	changed, serr := s.sealAll(ctx)
	if serr != nil {
		res.Diff, res.Unknown = s.changedSoFar(ctx)
		return errors.Join(err, serr, s.move(ctx, agents.PhaseExecute, agents.PlanQueued, nil))
	}
	diff, derr := s.diff(ctx, s.boxes, "", "", false)
	res.Diff, res.Applies = diff, len(changed) > 0
	if derr == nil && len(diff.Files) == 0 {
		s.sayUnseen(ctx, changed)
	}
	return errors.Join(err, derr, s.move(ctx, agents.PhaseExecute, agents.PlanComplete, nil))
}

// sayUnseen tells of changes that the diff of a result does not show: ignored
// files and git's own state, or directories and what a copy never takes home.
// changed are the sandboxes that an apply would bring something home from.
func (s *session) sayUnseen(ctx context.Context, changed []*box) {
	rows, err := s.rows(ctx)
	if err != nil || len(rows) == 0 {
		return
	}
	for _, b := range s.boxes {
		name := b.Resource().Name
		switch shows := fmt.Sprintf("agents plan diff %s --from %s shows it", s.plan.ID, rows[0].ID); {
		case !recordedWork(rows, b):
		case b.Capabilities().GitState:
			s.say("what changed in %s is ignored by git, or git's own state: %s", name, shows)
		case slices.Contains(changed, b):
			s.say("what changed in %s is directories alone, which a diff does not show", name)
		default:
			s.say("what changed in %s is times alone, or never comes home (sandbox.protected): %s", name, shows)
		}
	}
}

// changedSoFar is what the plan changed, for the result of a call that may have
// failed or been stopped: it says what is kept, and its own failure is a notice.
func (s *session) changedSoFar(ctx context.Context) (d agents.Diff, unknown bool) {
	ctx, cancel := sandbox.Detach(ctx)
	defer cancel()
	d, err := s.diff(ctx, s.boxes, "", "", false)
	if err != nil {
		s.say("what changed could not be listed: %v", err)
	}
	return d, err != nil
}

// Artifacts lists the files that a plan added or changed.
func (e *Engine) Artifacts(ctx context.Context, ref string) (agents.Diff, error) {
	d, err := e.Diff(ctx, DiffRequest{Plan: ref})
	if err != nil {
		return d, err
	}
	d.Files = slices.DeleteFunc(d.Files, func(f agents.FileChange) bool { return f.Change == agents.ChangeDeleted })
	d.Summary = agents.Summarize(d.Files)
	return d, nil
}
