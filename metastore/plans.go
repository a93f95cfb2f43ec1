package metastore

import (
	"fmt"
	"strings"

	agents "github.com/cleveragents/agents"
)

// Plans is the repository of plans, in the table v3_plans.
type Plans struct{ tx *Tx }

const planColumns = "plan_id, name, action, arguments_json, phase, state, actor, profile, " +
	"require_checkpoints, read_only, include_uncommitted, error_json, created_at, updated_at, applied_at"

// livePlan is the condition that a plan is not terminal.
func livePlan(alias string) string {
	return alias + "state <> 'applied' AND " + alias + "state <> 'cancelled'"
}

// Insert stores a new plan whole: with a copy of each of its resources, which
// stay as they are now whatever happens to the originals, the names of its
// projects, and its steps. A name that a plan which is not terminal has is
// agents.ErrExists; a phase and state that the table does not know are
// agents.ErrInvalid.
func (r Plans) Insert(p *agents.Plan) error {
	if err := r.tx.setID("plan", &p.ID); err != nil {
		return err
	}
	if err := checkPosition(p); err != nil {
		return err
	}
	r.tx.setTime(&p.CreatedAt)
	r.tx.setTime(&p.UpdatedAt)
	values, err := planValues(p)
	if err != nil {
		return err
	}
	if err := r.tx.insert(newPlanLabel(p), "INSERT INTO v3_plans ("+planColumns+") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", values...); err != nil {
		return err
	}
	for i, res := range p.Resources {
		args := append([]any{p.ID, i, res.Boundary, []byte(res.SubPath)}, resourceValues(res)...)
		if err := r.tx.insert("resource "+res.Name+" of plan "+p.ID,
			"INSERT INTO plan_resources (plan_id, position, boundary_id, sub_path, "+resourceColumns+") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", args...); err != nil {
			return err
		}
	}
	for i, name := range p.Projects {
		if err := r.tx.insert("project "+name+" of plan "+p.ID,
			"INSERT INTO plan_projects (plan_id, position, name) VALUES (?, ?, ?)", p.ID, i, name); err != nil {
			return err
		}
	}
	for i, s := range p.Steps {
		if err := r.tx.Steps().insert(p.ID, i, s); err != nil {
			return err
		}
	}
	return nil
}

func checkPosition(p *agents.Plan) error {
	if !p.Position().Valid() {
		return fmt.Errorf("plan %s: no plan can be %s: %w", p.ID, p.Position(), agents.ErrInvalid)
	}
	return nil
}

// Update stores the plan's name, actor, profile, phase, state, error and time
// of applying, and sets UpdatedAt to Now. Its resources, projects, steps and
// the other columns stay as Insert stored them.
func (r Plans) Update(p *agents.Plan) error {
	if err := checkPosition(p); err != nil {
		return err
	}
	failure, err := planFailure(p)
	if err != nil {
		return err
	}
	if err := r.tx.change(planLabel(p),
		"UPDATE v3_plans SET name = ?, actor = ?, profile = ?, phase = ?, state = ?, error_json = ?, applied_at = ?, updated_at = ? WHERE plan_id = ?",
		p.Name, p.Actor, p.Profile, string(p.Phase), string(p.State), failure, stampOrNull(p.AppliedAt), stamp(r.tx.now), p.ID); err != nil {
		return err
	}
	p.UpdatedAt = r.tx.now
	return nil
}

// Get returns the plan with that whole id.
func (r Plans) Get(id string) (agents.Plan, error) {
	all, err := r.where("plan_id = ?", id)
	if err != nil {
		return agents.Plan{}, err
	}
	if len(all) == 0 {
		return agents.Plan{}, notFound("plan " + clip(id))
	}
	return all[0], nil
}

// Resolve returns the plan that ref means. A name means the plan of that name
// which is not terminal; where all have ended, the only one.
func (r Plans) Resolve(ref string) (agents.Plan, error) {
	id, err := r.tx.resolve(planKind(), ref, r.named)
	if err != nil {
		return agents.Plan{}, err
	}
	return r.Get(id)
}

func (r Plans) named(name string) ([]candidate, error) {
	live, err := selectAll(r.tx, scanCandidate, "SELECT plan_id, name FROM v3_plans WHERE name = ? AND "+livePlan(""), name)
	if err != nil || len(live) > 0 {
		return live, err
	}
	return selectAll(r.tx, scanCandidate,
		"SELECT plan_id, name FROM v3_plans WHERE name = ? ORDER BY created_at DESC, plan_id DESC LIMIT ?", name, maxCandidates+1)
}

// List returns all plans, newest first.
func (r Plans) List() ([]agents.Plan, error) { return r.where("1 = 1") }

// Live returns the plans that are not terminal, newest first.
func (r Plans) Live() ([]agents.Plan, error) { return r.where(livePlan("")) }

// SetParent makes child a child plan of parent, spawned at this moment: after
// every checkpoint that the parent has now. A plan that is its own ancestor is
// agents.ErrInvalid.
func (r Plans) SetParent(childID, parentID string) error {
	for above := parentID; above != ""; {
		if above == childID {
			return fmt.Errorf("plan %s below itself: %w", childID, agents.ErrInvalid)
		}
		var err error
		if above, err = r.Parent(above); err != nil {
			return err
		}
	}
	seq, err := r.lastSeq(parentID)
	if err != nil {
		return err
	}
	return r.tx.change("plan "+childID, "UPDATE v3_plans SET parent_plan_id = ?, spawn_seq = ? WHERE plan_id = ?", parentID, seq+1, childID)
}

// Parent returns the id of the plan's parent, or "".
func (r Plans) Parent(planID string) (string, error) {
	return selectOne(r.tx, "plan "+clip(planID), scanValue[string],
		"SELECT COALESCE(parent_plan_id, '') FROM v3_plans WHERE plan_id = ?", planID)
}

// Children returns the plan's child plans, newest first.
func (r Plans) Children(parentID string) ([]agents.Plan, error) {
	return r.where("parent_plan_id = ?", parentID)
}

// CancelChildrenAfter cancels the child plans that were spawned after the
// plan's checkpoint with that seq, and all plans below them, and returns how
// many it cancelled. Those that are terminal stay as they are. One that is just
// being applied is an *agents.StateError.
func (r Plans) CancelChildrenAfter(planID string, seq int64) (int, error) {
	children, err := r.where("parent_plan_id = ? AND spawn_seq > ?", planID, seq)
	if err != nil {
		return 0, err
	}
	cancelled := 0
	for _, child := range children {
		below, err := r.CancelChildrenAfter(child.ID, 0)
		if err != nil {
			return 0, err
		}
		cancelled += below
		if child.Terminal() {
			continue
		}
		if err := r.cancel(&child); err != nil {
			return 0, err
		}
		cancelled++
	}
	return cancelled, nil
}

func (r Plans) cancel(p *agents.Plan) error {
	phase := p.Phase
	if phase == agents.PhaseApply {
		phase = agents.PhaseExecute // where the table lets a failed apply be cancelled
	}
	if err := p.Move(phase, agents.PlanCancelled); err != nil {
		return err
	}
	return r.Update(p)
}

// lastSeq returns the last checkpoint number that the plan gave out.
func (r Plans) lastSeq(planID string) (int64, error) {
	return selectOne(r.tx, "plan "+clip(planID), scanValue[int64], "SELECT checkpoint_seq FROM v3_plans WHERE plan_id = ?", planID)
}

// where returns the plans that fit the condition, whole and newest first.
func (r Plans) where(condition string, args ...any) ([]agents.Plan, error) {
	plans, err := selectAll(r.tx, scanPlan,
		"SELECT "+planColumns+" FROM v3_plans WHERE "+condition+" ORDER BY created_at DESC, plan_id DESC", args...)
	if err != nil || len(plans) == 0 {
		return nil, err
	}
	byID := make(map[string]*agents.Plan, len(plans))
	for i := range plans {
		byID[plans[i].ID] = &plans[i]
	}
	within := " WHERE plan_id IN (SELECT plan_id FROM v3_plans WHERE " + condition + ") ORDER BY plan_id, position"
	return plans, r.fill(byID, within, args)
}

// fill reads the parts of many plans with one query a table.
func (r Plans) fill(byID map[string]*agents.Plan, within string, args []any) error {
	type part[T any] struct {
		planID string
		value  T
	}
	resources, err := selectAll(r.tx, func(row scanner) (p part[agents.Resource], err error) {
		return p, row.Scan(append([]any{&p.planID, &p.value.Boundary, textColumn(&p.value.SubPath)}, resourceFields(&p.value)...)...)
	}, "SELECT plan_id, boundary_id, sub_path, "+resourceColumns+" FROM plan_resources"+within, args...)
	if err != nil {
		return err
	}
	for _, p := range resources {
		byID[p.planID].Resources = append(byID[p.planID].Resources, p.value)
	}
	projects, err := selectAll(r.tx, func(row scanner) (p part[string], err error) {
		return p, row.Scan(&p.planID, &p.value)
	}, "SELECT plan_id, name FROM plan_projects"+within, args...)
	if err != nil {
		return err
	}
	for _, p := range projects {
		byID[p.planID].Projects = append(byID[p.planID].Projects, p.value)
	}
	steps, err := selectAll(r.tx, func(row scanner) (p part[agents.Step], err error) {
		return p, row.Scan(append([]any{&p.planID}, stepFields(&p.value)...)...)
	}, "SELECT plan_id, "+stepColumns+" FROM plan_steps"+within, args...)
	if err != nil {
		return err
	}
	for _, p := range steps {
		byID[p.planID].Steps = append(byID[p.planID].Steps, p.value)
	}
	return nil
}

// newPlanLabel names a plan that nobody knows yet by its name alone.
func newPlanLabel(p *agents.Plan) string {
	if p.Name == "" {
		return planLabel(p)
	}
	return "plan " + p.Name
}

// planLabel names a plan for a message.
func planLabel(p *agents.Plan) string {
	return strings.TrimRight(fmt.Sprintf("plan %s %s", p.ID, p.Name), " ")
}

func planValues(p *agents.Plan) ([]any, error) {
	arguments, err := encodeMap(p.Arguments)
	if err != nil {
		return nil, err
	}
	failure, err := planFailure(p)
	if err != nil {
		return nil, err
	}
	return []any{
		p.ID, p.Name, p.Action, arguments, string(p.Phase), string(p.State), p.Actor, p.Profile,
		p.RequireCheckpoints, p.ReadOnly, p.IncludeUncommitted, failure, stamp(p.CreatedAt), stamp(p.UpdatedAt), stampOrNull(p.AppliedAt),
	}, nil
}

// planFailure is the plan's error as its column holds it.
func planFailure(p *agents.Plan) (any, error) {
	if p.Error == nil {
		return nil, nil
	}
	return encode(p.Error)
}

func scanPlan(row scanner) (agents.Plan, error) {
	var p agents.Plan
	err := row.Scan(&p.ID, &p.Name, &p.Action, mapColumn(&p.Arguments), &p.Phase, &p.State, &p.Actor, &p.Profile,
		&p.RequireCheckpoints, &p.ReadOnly, &p.IncludeUncommitted, jsonColumn(&p.Error),
		timeColumn(&p.CreatedAt), timeColumn(&p.UpdatedAt), timeColumn(&p.AppliedAt))
	return p, err
}
