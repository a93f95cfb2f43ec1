package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/fsx"
	"github.com/cleveragents/agents/internal/proc"
	"github.com/cleveragents/agents/metastore"
	"github.com/cleveragents/agents/sandbox"
	"github.com/cleveragents/agents/tool"
)

// call is one tool call to make within a session.
type call struct {
	tool      tool.Tool
	resource  agents.Resource
	also      []agents.Resource // further resources whose sandboxes the call may use
	input     json.RawMessage
	onFailure agents.OnFailure
	step      string
	forensic  bool // a failure is recorded under the on_error trigger
	stdio     Stdio
	// record, if set, stores what else the call's end changes, in the unit of
	// work that stores the invocation.
	record func(tx *metastore.Tx, inv agents.Invocation, err error) error
}

// end stores the end of a call. insert says that its start was not stored.
func (s *session) end(ctx context.Context, c call, inv *agents.Invocation, cause error, insert bool) error {
	return s.e.store.Write(context.WithoutCancel(ctx), func(tx *metastore.Tx) error {
		store := tx.Invocations().Update
		if insert {
			store = tx.Invocations().Insert
		}
		if err := store(inv); err != nil {
			return err
		}
		if err := tx.Events().Append(callEvent(inv)); err != nil || c.record == nil {
			return err
		}
		return c.record(tx, *inv, cause)
	})
}

// callEvent tells of a call in the plan's log.
func callEvent(inv *agents.Invocation) *agents.Event {
	e := &agents.Event{
		PlanID: inv.PlanID, Kind: "tool.done", Message: inv.Tool + " done",
		Data: map[string]string{"invocation_id": inv.ID, "resource": inv.Resource},
	}
	if inv.Error != "" {
		e.Kind, e.Message = "tool.failed", fmt.Sprintf("%s failed: %s", inv.Tool, inv.Error)
	}
	switch {
	case inv.RolledBack:
		e.Message += "; its changes were undone"
	case inv.Error == "" && len(inv.Changed) > 0:
		e.Message += ", paths changed: " + strconv.Itoa(len(inv.Changed))
	}
	return e
}

// RunTool calls one tool in a plan's sandbox, with a checkpoint before and
// after it (checkpointing.md, "Automatic Checkpoint Triggers"). The invocation
// comes back with an agents.ErrToolFailed error too.
func (e *Engine) RunTool(ctx context.Context, req ToolRequest) (agents.Invocation, error) {
	t, err := e.tools.Lookup(req.Tool)
	if err != nil {
		return agents.Invocation{}, err
	}
	if len(req.Input) == 0 {
		req.Input = json.RawMessage("{}")
	}
	if err := tool.CheckInput(t.Spec(), req.Input); err != nil {
		return agents.Invocation{}, err
	}
	s, err := e.open(ctx, req.Plan, "tool run "+t.Spec().Name)
	if err != nil {
		return agents.Invocation{}, err
	}
	defer s.close()
	r, err := pickResource(s.plan.Resources, req.Resource)
	if err != nil {
		return agents.Invocation{}, err
	}
	return s.single(ctx, call{tool: t, resource: r, input: req.Input, onFailure: req.OnFailure, stdio: req.Stdio})
}

// Exec runs one command in a plan's sandbox.
func (e *Engine) Exec(ctx context.Context, req CommandRequest) (agents.Invocation, error) {
	s, err := e.open(ctx, req.Plan, "plan exec")
	if err != nil {
		return agents.Invocation{}, err
	}
	defer s.close()
	c, err := s.command(req)
	if err != nil {
		return agents.Invocation{}, err
	}
	return s.single(ctx, c)
}

// command makes a call of the shell tool out of a command line.
func (s *session) command(req CommandRequest) (call, error) {
	if len(req.Argv) == 0 {
		return call{}, fmt.Errorf("no command given: %w", agents.ErrInvalid)
	}
	t, err := s.e.tools.Lookup("builtin/shell")
	if err != nil {
		return call{}, err
	}
	c := call{tool: t, onFailure: req.OnFailure, stdio: req.Stdio}
	wanted := req.Resources
	if len(wanted) == 0 {
		wanted = []string{""}
	}
	for i, name := range wanted {
		r, err := pickResource(s.plan.Resources, name)
		if err != nil {
			return call{}, err
		}
		if i == 0 {
			c.resource = r
		} else {
			c.also = append(c.also, r)
		}
	}
	input := map[string]any{"argv": req.Argv}
	if slices.ContainsFunc(req.Argv, func(arg string) bool { return !utf8.ValidString(arg) }) {
		escaped := make([]string, len(req.Argv)) // JSON would lose the bytes
		for i, arg := range req.Argv {
			escaped[i] = agents.EscapePath(arg)
		}
		input["argv"], input["escaped"] = escaped, true
	}
	if req.Timeout > 0 {
		input["timeout"] = req.Timeout.String()
	}
	c.input, err = json.Marshal(input)
	return c, err
}

// single makes one call from outside: the plan is processing while it runs and
// queued afterwards, whatever the call came to.
func (s *session) single(ctx context.Context, c call) (agents.Invocation, error) {
	if err := s.drivable(); err != nil {
		return agents.Invocation{}, err
	}
	if err := s.preflight(c); err != nil {
		return agents.Invocation{}, err
	}
	if err := s.move(ctx, agents.PhaseExecute, agents.PlanProcessing, nil); err != nil {
		return agents.Invocation{}, err
	}
	inv, err := s.call(ctx, c)
	return inv, errors.Join(err, s.move(ctx, agents.PhaseExecute, agents.PlanQueued, nil))
}

// drivable reports as agents.ErrState that no tool may run in the plan.
func (s *session) drivable() error {
	if !s.plan.Position().CanMove(agents.PlanPosition{Phase: agents.PhaseExecute, State: agents.PlanProcessing}) {
		return s.refused("run anything")
	}
	return nil
}

// refused says that the plan's state forbids something, and what to do. It is
// agents.ErrState.
func (s *session) refused(what string) error {
	err := &agents.Error{
		Message: fmt.Sprintf("plan %s is %s and cannot %s", s.plan.Label(), s.plan.Position(), what),
		Kind:    agents.BusinessRuleViolation,
		Err:     agents.ErrState,
	}
	switch s.plan.State {
	case agents.PlanApplied:
		err.Hint = fmt.Sprintf("agents plan undo %s takes the apply back", s.plan.ID)
	case agents.PlanCancelled:
		err.Hint = fmt.Sprintf("agents plan rollback %s CHECKPOINT, or agents cleanup archive restore %s, reopens it", s.plan.ID, s.plan.ID)
	default:
		err.Hint = fmt.Sprintf("agents plan status %s tells where it stands", s.plan.ID)
	}
	return err
}

// preflight refuses a call that the plan's rules forbid, before anything runs
// (ADR-015, "Constraints").
func (s *session) preflight(c call) error {
	spec := c.tool.Spec()
	refuse := func(hint, format string, args ...any) error {
		return &agents.Error{Kind: agents.BusinessRuleViolation, Message: fmt.Sprintf(format, args...), Hint: hint, Err: agents.ErrBlocked}
	}
	if spec.Capability.Unsafe && !s.profile.AllowUnsafeTools {
		return refuse("use a profile with allow_unsafe_tools", "tool %s is unsafe and profile %s does not allow unsafe tools", spec.Name, s.profile.Name)
	}
	if !spec.Capability.Writes {
		return nil
	}
	if s.plan.ReadOnly {
		return refuse("", "plan %s is read-only and tool %s writes", s.plan.ID, spec.Name)
	}
	for _, r := range append([]agents.Resource{c.resource}, c.also...) {
		if r.ReadOnly {
			return refuse("", "resource %s is read-only and tool %s writes", r.Name, spec.Name)
		}
		strategy, err := s.e.strategyFor(s.plan.Boundary(r))
		if err != nil {
			return err
		}
		if err := checkIsolation(r, strategy.Capabilities(), s.profile); err != nil {
			return err
		}
		if s.plan.RequireCheckpoints && !strategy.Capabilities().Rollback {
			return refuse("", "plan %s requires checkpoints and resource %s (strategy %s) has none", s.plan.ID, r.Name, strategy.Capabilities().Name)
		}
	}
	if !s.plan.RequireCheckpoints {
		return nil
	}
	if !spec.Capability.Checkpointable {
		return refuse("", "plan %s requires checkpoints and tool %s is not checkpointable", s.plan.ID, spec.Name)
	}
	if !s.e.checkpointsOn() {
		return refuse("agents config set sandbox.checkpoint.enabled true", "plan %s requires checkpoints and they are off", s.plan.ID)
	}
	if err := s.e.payloads.Writable(); err != nil {
		return &agents.Error{
			Kind:    agents.BusinessRuleViolation,
			Message: fmt.Sprintf("plan %s requires checkpoints and their store cannot be written", s.plan.ID),
			Hint:    "make it writable, or set sandbox.checkpoint.dir",
			Err:     fmt.Errorf("%w: %w", err, agents.ErrBlocked),
		}
	}
	return nil
}

// call makes one tool call as a transaction: the state before it is recorded,
// the tool runs, and on failure that state is put back unless the call says
// keep. The returned invocation is complete whatever happened.
func (s *session) call(ctx context.Context, c call) (agents.Invocation, error) {
	spec := c.tool.Spec()
	inv := agents.Invocation{
		ID: agents.NewID(s.e.now()), PlanID: s.plan.ID, Tool: spec.Name, Resource: c.resource.Name, StepID: c.step,
		Input: c.input, Enforced: enforced, StartedAt: s.e.now(),
	}
	box, err := s.ensureAll(ctx, c)
	if err != nil {
		return s.failedEarly(ctx, c, inv, err)
	}
	if !spec.Capability.Writes {
		return s.read(ctx, c, box, inv)
	}
	if err := s.room(ctx); err != nil {
		return s.failedEarly(ctx, c, inv, err)
	}
	var before *cut
	inv.BeforeCheckpointID, before, err = s.triggered(ctx, s.callMark(c, agents.CheckpointPreWrite, agents.BeforeToolExecute, "before "+spec.Name))
	if err != nil {
		return s.failedEarly(ctx, c, inv, fmt.Errorf("checkpoint before %s: %w", spec.Name, err))
	}
	defer before.drop()
	return s.write(ctx, c, box, inv, before)
}

// ensureAll makes the sandboxes that a call needs. A failure here is the
// call's failure.
func (s *session) ensureAll(ctx context.Context, c call) (*box, error) {
	for _, r := range append([]agents.Resource{c.resource}, c.also...) {
		if b := s.find(r.ID); b != nil && b.applied() {
			return nil, agents.WithHint(fmt.Errorf("resource %s of plan %s is applied already: %w", r.Name, s.plan.ID, agents.ErrState),
				"agents plan apply %s does the rest, agents plan undo %s takes the apply back", s.plan.ID, s.plan.ID)
		}
	}
	var first *box
	for _, r := range append([]agents.Resource{c.resource}, c.also...) {
		b, err := s.ensure(ctx, r)
		if err != nil {
			return nil, err
		}
		if _, err := s.workspace(b, r); err != nil {
			return nil, err
		}
		if first == nil {
			first = b
		}
	}
	return first, nil
}

func (s *session) callMark(c call, kind agents.CheckpointType, trigger agents.Trigger, reason string) mark {
	return mark{
		kind: kind, trigger: trigger, resource: s.plan.Boundary(c.resource).ID,
		meta: agents.CheckpointMetadata{Reason: reason, SourceTool: c.tool.Spec().Name, Phase: string(s.plan.Phase)},
	}
}

// failedEarly records a call that never reached its tool.
func (s *session) failedEarly(ctx context.Context, c call, inv agents.Invocation, cause error) (agents.Invocation, error) {
	if ctx.Err() != nil {
		cause = fmt.Errorf("%w: %w", agents.ErrInterrupted, cause)
	}
	inv.ExitCode, inv.Error, inv.EndedAt = -1, cause.Error(), s.e.now()
	return inv, errors.Join(cause, s.end(ctx, c, &inv, cause, true))
}

// read makes a call that changes nothing.
func (s *session) read(ctx context.Context, c call, b *box, inv agents.Invocation) (agents.Invocation, error) {
	res, err := s.invoke(ctx, c, b)
	takeOver(&inv, res, err, s.e.now())
	if ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", agents.ErrInterrupted, errors.Join(ctx.Err(), err))
	}
	return inv, errors.Join(err, s.end(ctx, c, &inv, err, true))
}

// write makes a call that may change its sandboxes.
func (s *session) write(ctx context.Context, c call, b *box, inv agents.Invocation, before *cut) (agents.Invocation, error) {
	note := inflight{What: "call of " + inv.Tool, Invocation: inv.ID, CheckpointID: inv.BeforeCheckpointID, OnFailure: c.onFailure}
	if before != nil {
		note.Refs = before.refs()
	} else {
		note.OnFailure = agents.FailKeep
		s.say("checkpoints are off (sandbox.checkpoint.enabled): what %s changes cannot be taken back", inv.Tool)
	}
	if err := s.begin(note); err != nil {
		return s.failedEarly(ctx, c, inv, err)
	}
	if err := s.e.store.WriteLazily(ctx, func(tx *metastore.Tx) error { return tx.Invocations().Insert(&inv) }); err != nil {
		return inv, errors.Join(err, s.done())
	}
	res, callErr := s.invoke(ctx, c, b)
	s.touched(c, b, res)
	takeOver(&inv, res, callErr, s.e.now())

	// From here on the call has happened: its end is recorded even when the
	// user has stopped it.
	after, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Minute)
	defer cancel()
	if ctx.Err() == nil {
		after = ctx
	}
	err := s.settle(after, c, &inv, before, callErr)
	if ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", agents.ErrInterrupted, errors.Join(ctx.Err(), err))
	}
	left := errors.Is(err, errNotTakenBack)
	if left {
		inv.EndedAt = time.Time{} // it is not over
	}
	if serr := s.end(ctx, c, &inv, err, false); serr != nil || left {
		return inv, errors.Join(err, serr) // the note stays: the plan's next command ends the call
	}
	return inv, errors.Join(err, s.done())
}

// invoke runs the tool itself.
func (s *session) invoke(ctx context.Context, c call, b *box) (tool.Result, error) {
	env, err := b.Prepare(ctx)
	if err != nil {
		return tool.Result{ExitCode: -1}, err
	}
	dir, err := s.workspace(b, c.resource)
	if err != nil {
		return tool.Result{ExitCode: -1}, err
	}
	res, err := c.tool.Call(ctx, tool.Env{
		PlanID: s.plan.ID, Resource: c.resource, Path: dir, Files: b.Capabilities().Files,
		Environ: proc.Environ(os.Environ(), dir, append(env, s.places()...)...),
		Stdin:   c.stdio.In, Stdout: c.stdio.Out, Stderr: c.stdio.Err, TTY: c.stdio.TTY,
	}, c.input)
	for _, n := range res.Notices {
		s.say("%s", n)
	}
	if err == nil && res.ExitCode != 0 {
		err = fmt.Errorf("%s: exit code %d: %w", c.tool.Spec().Name, res.ExitCode, agents.ErrToolFailed)
	}
	return res, err
}

// places tells a call's processes where the plan's sandboxes are:
// AGENTS_SANDBOX_<NAME>, the resource's name in capitals, other signs as _; of
// names that are the same then, the second gets _2.
func (s *session) places() (env []string) {
	seen := map[string]int{}
	for _, r := range s.plan.Resources {
		b := s.find(r.ID)
		if b == nil {
			continue
		}
		name := strings.Map(func(c rune) rune {
			if c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' {
				return c
			}
			return '_'
		}, strings.ToUpper(r.Name))
		if seen[name]++; seen[name] > 1 {
			name += "_" + strconv.Itoa(seen[name])
			s.say("the sandbox of %s is in AGENTS_SANDBOX_%s", r.Name, name)
		}
		env = append(env, "AGENTS_SANDBOX_"+name+"="+filepath.Join(b.Record().Path, filepath.FromSlash(r.SubPath)))
	}
	return env
}

// touched notes what a call may have written: exactly the paths it declares
// where it is a file tool, else anything in any sandbox.
func (s *session) touched(c call, b *box, res tool.Result) {
	if c.tool.Spec().Capability.EffectiveScope() != agents.ScopeFile {
		for _, other := range s.boxes {
			other.stale = true
		}
		return
	}
	if b.touched == nil {
		b.touched = map[string]struct{}{}
	}
	for _, p := range res.Paths {
		b.touched[path.Join(c.resource.SubPath, p)] = struct{}{}
	}
}

// takeOver takes a tool's result over into its record.
func takeOver(inv *agents.Invocation, res tool.Result, err error, now time.Time) {
	inv.Stdout, inv.Stderr, inv.ExitCode, inv.EndedAt = res.Stdout, res.Stderr, res.ExitCode, now
	if res.Output != nil {
		if out, merr := json.Marshal(res.Output); merr == nil {
			inv.Output = out
		}
	}
	if err != nil {
		inv.Error = err.Error()
		if inv.ExitCode == 0 {
			inv.ExitCode = -1
		}
	}
}

// settle ends a writing call: the state after it is recorded, or the state
// before it put back. It returns the call's own error, if that is all there is.
func (s *session) settle(ctx context.Context, c call, inv *agents.Invocation, before *cut, callErr error) error {
	if callErr != nil && c.onFailure != agents.FailKeep {
		return s.takeBack(ctx, c, inv, before, callErr)
	}
	id, after, err := s.triggered(ctx, s.callMark(c, agents.CheckpointPostStep, agents.AfterToolExecute, "after "+inv.Tool))
	if err != nil {
		// The call's changes are there and cannot be recorded: they go, so
		// that the plan stands on a recorded state (one error, nothing half-made).
		err = fmt.Errorf("checkpoint after %s: %w", inv.Tool, err)
		if before == nil || c.onFailure == agents.FailKeep {
			return errors.Join(callErr, err)
		}
		return s.takeBack(ctx, c, inv, before, errors.Join(callErr, err))
	}
	defer after.drop()
	inv.AfterCheckpointID = id
	if inv.Changed, err = s.changes(ctx, before, after); err != nil {
		return errors.Join(callErr, err)
	}
	return callErr
}

// errNotTakenBack says that a failed call's changes are still there: the note
// of what to put back stays, and the plan's next command tries again.
var errNotTakenBack = errors.New("the state from before it is not back yet")

// takeBack puts the state from before a failed call back.
func (s *session) takeBack(ctx context.Context, c call, inv *agents.Invocation, before *cut, cause error) error {
	inv.Error = cause.Error()
	if before == nil {
		s.say("checkpoints are off: the changes of the failed %s stay", inv.Tool)
		return cause
	}
	if c.forensic && slices.Contains(s.e.set.Triggers, agents.OnError) && !fsx.IsNoSpace(cause) {
		_, broken, err := s.checkpoint(ctx, s.callMark(c, agents.CheckpointPostStep, agents.OnError, "error in "+inv.Tool))
		if err != nil {
			s.say("the state of the failed %s could not be recorded: %v", inv.Tool, err)
		} else {
			broken.drop()
		}
	}
	if err := s.putBack(ctx, before.refs(), inv.BeforeCheckpointID); err != nil {
		return errors.Join(cause, fmt.Errorf("take back %s: %w: %w", inv.Tool, errNotTakenBack, err))
	}
	inv.RolledBack = true
	if inv.BeforeCheckpointID == "" {
		return cause
	}
	err := s.e.store.Write(ctx, func(tx *metastore.Tx) error {
		return tx.Checkpoints().SetActive(s.plan.ID, inv.BeforeCheckpointID)
	})
	if err != nil {
		return errors.Join(cause, err)
	}
	return cause
}

// changes lists what differs between two cuts, without line counts.
func (s *session) changes(ctx context.Context, before, after *cut) (out []agents.FileChange, err error) {
	if before == nil || after == nil {
		return nil, nil
	}
	old := before.refs()
	for _, part := range after.parts {
		i := slices.IndexFunc(s.boxes, func(b *box) bool { return b.Record().ID == part.SandboxID })
		if i < 0 || old[part.SandboxID] == part.Ref {
			continue
		}
		diff, err := s.boxes[i].Diff(ctx, sandbox.DiffRequest{From: old[part.SandboxID], To: part.Ref})
		if err != nil {
			return out, err
		}
		out = append(out, diff...)
	}
	return out, nil
}
