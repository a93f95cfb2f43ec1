package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/fsx"
	"github.com/cleveragents/agents/metastore"
	"github.com/cleveragents/agents/sandbox"
)

// CreatePlan stores a plan that is driven from outside, in execute/queued. No
// sandbox is made yet. Everything is checked before anything is stored.
func (e *Engine) CreatePlan(ctx context.Context, req PlanRequest) (agents.Plan, error) {
	profile, err := e.profile(req.Profile)
	if err != nil {
		return agents.Plan{}, err
	}
	p := agents.Plan{
		Name: req.Name, Actor: req.Actor, Profile: profile.Name,
		RequireCheckpoints: req.RequireCheckpoints || profile.RequireCheckpoints,
		ReadOnly:           req.ReadOnly, IncludeUncommitted: req.IncludeUncommitted, Projects: req.Projects,
	}
	return e.insertPlan(ctx, p, req.Resources)
}

// UseAction stores a plan that runs an action's steps on the resources of
// these projects (`plan use`).
func (e *Engine) UseAction(ctx context.Context, req UseRequest) (agents.Plan, error) {
	profile, err := e.profile(req.Profile)
	if err != nil {
		return agents.Plan{}, err
	}
	a, err := e.Action(ctx, req.Action)
	if err != nil {
		return agents.Plan{}, err
	}
	steps, values, err := bind(a, req.Arguments)
	if err != nil {
		return agents.Plan{}, err
	}
	return e.insertPlan(ctx, agents.Plan{
		Name: req.Name, Action: a.Name, Arguments: values, Profile: profile.Name, ReadOnly: a.ReadOnly,
		RequireCheckpoints: req.RequireCheckpoints || a.RequireCheckpoints || profile.RequireCheckpoints,
		Projects:           req.Projects, Steps: steps,
	}, nil)
}

func (e *Engine) profile(name string) (agents.Profile, error) {
	if name == "" {
		name = e.set.Profile
	}
	return agents.ProfileByName(name)
}

// insertPlan completes p with its resources, checks it and stores it.
func (e *Engine) insertPlan(ctx context.Context, p agents.Plan, given []agents.Resource) (agents.Plan, error) {
	if p.Name != "" {
		if err := agents.ValidateName("plan name", p.Name); err != nil {
			return agents.Plan{}, err
		}
	}
	for i, r := range given {
		if r.ID != "" {
			continue
		}
		var err error
		if given[i], err = e.checkResource(r); err != nil {
			return agents.Plan{}, err
		}
	}
	p.ID, p.CreatedAt = agents.NewID(e.now()), e.now()
	p.Phase, p.State = agents.PhaseExecute, agents.PlanQueued
	var notices []string
	err := e.store.Write(ctx, func(tx *metastore.Tx) error {
		if err := e.gatherResources(tx, &p, given); err != nil {
			return err
		}
		var err error
		if notices, err = e.setBoundaries(p.Resources); err != nil {
			return err
		}
		if err := e.checkPlan(p); err != nil {
			return err
		}
		if err := tx.Plans().Insert(&p); err != nil {
			return err
		}
		return tx.Events().Append(&agents.Event{PlanID: p.ID, Kind: "plan.created", Message: "plan created"})
	})
	if err != nil {
		return agents.Plan{}, err
	}
	for _, text := range notices {
		e.notify(text)
	}
	return p, nil
}

// gatherResources fills p.Resources with those given and those of its
// projects, each once. A given one that is not stored yet is stored, unless
// the same thing is stored already.
func (e *Engine) gatherResources(tx *metastore.Tx, p *agents.Plan, given []agents.Resource) error {
	for _, r := range given {
		stored, err := storedResource(tx, r)
		if err != nil {
			return err
		}
		if stored.Name != r.Name {
			e.notify(fmt.Sprintf("%s is known as resource %s", r.Location, stored.Name))
		}
		p.Resources = append(p.Resources, stored)
	}
	for _, name := range p.Projects {
		project, err := tx.Projects().Resolve(name)
		if err != nil {
			return err
		}
		p.Resources = append(p.Resources, project.Resources...)
	}
	var once []agents.Resource
	for _, r := range p.Resources {
		if !slices.ContainsFunc(once, func(o agents.Resource) bool { return o.ID == r.ID }) {
			once = append(once, r)
		}
	}
	p.Resources = once
	return nil
}

func storedResource(tx *metastore.Tx, r agents.Resource) (agents.Resource, error) {
	if found, err := tx.Resources().Get(r.ID); err == nil || !errors.Is(err, agents.ErrNotFound) {
		return found, err
	}
	found, err := tx.Resources().ByLocation(r.Type, r.Location)
	if err == nil || !errors.Is(err, agents.ErrNotFound) {
		return found, err
	}
	wanted := r.Name
	for n := 2; ; n++ {
		err := tx.Resources().Insert(&r)
		if !errors.Is(err, agents.ErrExists) {
			return r, err
		}
		r.Name = fmt.Sprintf("%s-%d", wanted, n)
	}
}

// checkPlan refuses a plan that could not run: no resource, a strategy that is
// not there, isolation that the profile demands and a resource cannot have,
// steps that do not fit their tools.
func (e *Engine) checkPlan(p agents.Plan) error {
	if len(p.Resources) == 0 {
		return agents.WithHint(fmt.Errorf("plan: no resource given: %w", agents.ErrInvalid),
			"name one with --resource, or a project with --project")
	}
	profile, err := agents.ProfileByName(p.Profile)
	if err != nil {
		return err
	}
	for _, r := range p.Resources {
		if r.Boundary != "" {
			continue // the other's strategy serves it
		}
		strategy, err := e.strategyFor(r)
		if err != nil {
			return err
		}
		if err := checkIsolation(r, strategy.Capabilities(), profile); err != nil {
			return err
		}
	}
	return e.checkSteps(p.Steps, p.Resources)
}

// strategyFor finds the strategy of a resource, and says aloud when a
// configured one could not be used.
func (e *Engine) strategyFor(r agents.Resource) (sandbox.Strategy, error) {
	name, notice := r.EffectiveStrategy(e.set.Strategy)
	if name == agents.NoIsolation && r.Strategy == "" && e.set.Strategy != agents.NoIsolation && r.Type != agents.TypeAPI {
		return nil, fmt.Errorf("resource %s: no isolation is never chosen by falling back: %w", r.Name, agents.ErrUnsupported)
	}
	s, err := e.strategies.Lookup(name)
	if err != nil {
		return nil, e.orCopy(r, fmt.Errorf("resource %s (%s): %w", r.Name, r.Type, err))
	}
	if notice != "" {
		e.notify(notice)
	}
	if err := s.Capabilities().Available; err != nil {
		return nil, agents.WithHint(fmt.Errorf("resource %s: strategy %s: %w", r.Name, name, err), "agents doctor shows what this machine can do")
	}
	return s, nil
}

// orCopy gives the refusal of a strategy that is not in this build a way on: a
// plain copy, where the type can have one.
func (e *Engine) orCopy(r agents.Resource, err error) error {
	info, infoErr := agents.TypeInfoOf(r.Type)
	if infoErr != nil || !slices.Contains(info.Allowed, agents.CopyOnWrite) {
		return err
	}
	if _, missing := e.strategies.Lookup(agents.CopyOnWrite); missing != nil {
		return err
	}
	return agents.WithHint(err, "work on a plain copy of it: agents resource add %s NAME --path %s --strategy %s, and then -r NAME",
		r.Type, shellQuote(r.Location), agents.CopyOnWrite)
}

// checkIsolation is the rule of ADR-015 for resources without isolation:
// read-only ones, or a profile with require_sandbox: false.
func checkIsolation(r agents.Resource, caps sandbox.Capabilities, profile agents.Profile) error {
	if caps.Isolates || r.ReadOnly || !profile.RequireSandbox {
		return nil
	}
	return &agents.Error{
		Kind:    agents.BusinessRuleViolation,
		Message: fmt.Sprintf("resource %s cannot be isolated (strategy %s) and profile %s requires a sandbox", r.Name, caps.Name, profile.Name),
		Hint:    "mark the resource read-only, or use a profile with require_sandbox: false (full-auto)",
		Err:     agents.ErrBlocked,
	}
}

// Plans lists all plans, newest first.
func (e *Engine) Plans(ctx context.Context) (out []agents.Plan, err error) {
	err = e.store.Read(ctx, func(tx *metastore.Tx) error {
		out, err = tx.Plans().List()
		return err
	})
	return out, err
}

// Plan returns the plan with this id, unique prefix or name.
func (e *Engine) Plan(ctx context.Context, ref string) (p agents.Plan, err error) {
	err = e.store.Read(ctx, func(tx *metastore.Tx) error {
		p, err = tx.Plans().Resolve(ref)
		return err
	})
	return p, err
}

// Status tells where a plan stands. It takes no lock and changes nothing.
func (e *Engine) Status(ctx context.Context, ref string) (agents.PlanStatus, error) {
	var st agents.PlanStatus
	var records []agents.SandboxRecord
	err := e.store.Read(ctx, func(tx *metastore.Tx) (err error) {
		if st.Plan, err = tx.Plans().Resolve(ref); err != nil {
			return err
		}
		if records, err = tx.Sandboxes().ByPlan(st.Plan.ID); err != nil {
			return err
		}
		st.Checkpoints, err = tx.Checkpoints().Count(st.Plan.ID)
		return err
	})
	if err != nil {
		return st, err
	}
	for _, rec := range records {
		st.Sandboxes = append(st.Sandboxes, e.sandboxState(st.Plan, rec))
	}
	for _, r := range st.Plan.Resources {
		st.Resources = append(st.Resources, resourceState(st.Plan, r, records))
	}
	st.Running = fsx.Held(e.planLockFile(st.Plan.ID))
	return st, nil
}

// resourceState tells where a resource is: in its own sandbox, or in a part of
// another's.
func resourceState(p agents.Plan, r agents.Resource, records []agents.SandboxRecord) agents.ResourceState {
	st := agents.ResourceState{Resource: r.Name, ApplyState: agents.ApplyNotTried}
	boundary := p.Boundary(r)
	if boundary.ID != r.ID {
		st.Boundary = boundary.Name
	}
	for _, rec := range records {
		if rec.ResourceID != boundary.ID {
			continue
		}
		st.ApplyState = agents.ApplyState(orElse(string(rec.ApplyState), string(st.ApplyState)))
		if rec.Status.Live() {
			st.Strategy, st.Path = rec.Strategy, filepath.Join(rec.Path, filepath.FromSlash(r.SubPath))
		}
	}
	return st
}

func (e *Engine) sandboxState(p agents.Plan, rec agents.SandboxRecord) agents.SandboxState {
	st := agents.SandboxState{
		SandboxID: rec.ID, Strategy: rec.Strategy, Status: rec.Status, Path: rec.Path,
		Branch: rec.Metadata["branch"], OriginalBranch: rec.Metadata["original_branch"], Base: rec.Metadata["base_commit"],
		Enforced: enforced,
	}
	if r, err := pickResource(p.Resources, rec.ResourceID); err == nil {
		st.Resource = r.Name
	}
	if rec.Status.Live() {
		st.HostPath = &rec.Path
		st.SizeBytes = treeSize(rec.Path) + treeSize(rec.PrivateDir)
	}
	return st
}

// treeSize adds up the bytes below path that can be seen.
func treeSize(path string) (bytes int64) {
	_ = filepath.WalkDir(path, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil
		}
		if fi, err := d.Info(); err == nil {
			bytes += fi.Size()
		}
		return nil
	})
	return bytes
}

// Events lists a plan's log, oldest first.
func (e *Engine) Events(ctx context.Context, ref string) (out []agents.Event, err error) {
	err = e.store.Read(ctx, func(tx *metastore.Tx) error {
		p, err := tx.Plans().Resolve(ref)
		if err != nil {
			return err
		}
		out, err = tx.Events().List(p.ID)
		return err
	})
	return out, err
}

// Invocations lists a plan's tool calls, oldest first.
func (e *Engine) Invocations(ctx context.Context, ref string) (out []agents.Invocation, err error) {
	err = e.store.Read(ctx, func(tx *metastore.Tx) error {
		p, err := tx.Plans().Resolve(ref)
		if err != nil {
			return err
		}
		out, err = tx.Invocations().List(p.ID)
		return err
	})
	return out, err
}

// stepInput is a step's input as its tool gets it.
func stepInput(s agents.Step) (json.RawMessage, error) {
	if s.With == nil {
		return json.RawMessage("{}"), nil
	}
	return json.Marshal(s.With)
}
