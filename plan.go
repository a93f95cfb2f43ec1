package agents

import (
	"time"
)

// Phase is the phase of a plan.
type Phase string

// The phases of a plan (DESIGN §4).
const (
	PhaseAction     Phase = "action"
	PhaseStrategize Phase = "strategize"
	PhaseExecute    Phase = "execute"
	PhaseApply      Phase = "apply"
)

// PlanState is the state of a plan within its phase.
type PlanState string

// The states of a plan.
const (
	PlanQueued     PlanState = "queued"
	PlanProcessing PlanState = "processing"
	PlanComplete   PlanState = "complete"
	PlanErrored    PlanState = "errored"
	PlanCancelled  PlanState = "cancelled"
	PlanApplied    PlanState = "applied"
)

// PlanPosition is a phase and a state together.
type PlanPosition struct {
	Phase Phase
	State PlanState
}

func (p PlanPosition) String() string { return string(p.Phase) + "/" + string(p.State) }

// planMoves is the whole state table of plans. Staying where one is is allowed.
var planMoves = map[PlanPosition][]PlanPosition{
	{PhaseAction, PlanQueued}:         {{PhaseStrategize, PlanQueued}, {PhaseExecute, PlanQueued}, {PhaseAction, PlanCancelled}},
	{PhaseStrategize, PlanQueued}:     {{PhaseStrategize, PlanProcessing}, {PhaseExecute, PlanQueued}, {PhaseStrategize, PlanCancelled}},
	{PhaseStrategize, PlanProcessing}: {{PhaseStrategize, PlanComplete}, {PhaseStrategize, PlanErrored}, {PhaseStrategize, PlanCancelled}},
	{PhaseStrategize, PlanComplete}:   {{PhaseExecute, PlanQueued}, {PhaseStrategize, PlanCancelled}},
	{PhaseStrategize, PlanErrored}:    {{PhaseStrategize, PlanQueued}, {PhaseStrategize, PlanCancelled}},
	{PhaseExecute, PlanQueued}:        {{PhaseExecute, PlanProcessing}, {PhaseExecute, PlanCancelled}, {PhaseApply, PlanProcessing}},
	{PhaseExecute, PlanProcessing}:    {{PhaseExecute, PlanQueued}, {PhaseExecute, PlanComplete}, {PhaseExecute, PlanErrored}, {PhaseExecute, PlanCancelled}},
	{PhaseExecute, PlanComplete}:      {{PhaseExecute, PlanQueued}, {PhaseExecute, PlanProcessing}, {PhaseApply, PlanProcessing}, {PhaseExecute, PlanCancelled}},
	{PhaseExecute, PlanErrored}:       {{PhaseExecute, PlanQueued}, {PhaseExecute, PlanProcessing}, {PhaseExecute, PlanCancelled}},
	{PhaseExecute, PlanCancelled}:     {{PhaseExecute, PlanQueued}},
	{PhaseApply, PlanProcessing}:      {{PhaseApply, PlanApplied}, {PhaseExecute, PlanComplete}, {PhaseApply, PlanErrored}},
	{PhaseApply, PlanErrored}:         {{PhaseExecute, PlanQueued}, {PhaseExecute, PlanComplete}, {PhaseApply, PlanProcessing}, {PhaseExecute, PlanCancelled}},
	{PhaseApply, PlanApplied}:         {{PhaseExecute, PlanComplete}}, // plan undo
}

// CanMove reports whether a plan may go from p to to.
func (p PlanPosition) CanMove(to PlanPosition) bool {
	if p == to {
		_, known := planMoves[p]
		return known
	}
	for _, t := range planMoves[p] {
		if t == to {
			return true
		}
	}
	return false
}

// Valid reports whether the table knows the position at all: an action phase
// that is processing, say, is not one.
func (p PlanPosition) Valid() bool {
	if _, ok := planMoves[p]; ok {
		return true
	}
	for _, tos := range planMoves {
		for _, t := range tos {
			if t == p {
				return true
			}
		}
	}
	return false
}

// Plan is one run: of an action's steps, of one command, or driven from outside.
type Plan struct {
	ID                 string
	Name               string // optional; unique among plans that are not terminal
	Action             string // the action's name; "" = none
	Arguments          map[string]string
	Phase              Phase
	State              PlanState
	Actor              string
	Profile            string
	RequireCheckpoints bool
	ReadOnly           bool
	IncludeUncommitted bool
	Projects           []string
	Resources          []Resource // in link order, each once
	Steps              []Step
	Error              *PlanError // set while State is errored
	CreatedAt          time.Time
	UpdatedAt          time.Time
	AppliedAt          time.Time // zero = never
}

// Label is how messages name the plan: its id, with its name where it has one.
func (p *Plan) Label() string {
	if p.Name == "" {
		return p.ID
	}
	return p.ID + " (" + p.Name + ")"
}

// Boundary returns the resource whose sandbox holds r, a resource of the plan:
// r itself, unless it shares another's.
func (p *Plan) Boundary(r Resource) Resource {
	for _, other := range p.Resources {
		if r.Boundary != "" && other.ID == r.Boundary {
			return other
		}
	}
	return r
}

// Position returns the plan's phase and state together.
func (p *Plan) Position() PlanPosition { return PlanPosition{p.Phase, p.State} }

// Move changes the plan's phase and state along the state table, or returns a
// *StateError and changes nothing.
func (p *Plan) Move(phase Phase, state PlanState) error {
	to := PlanPosition{phase, state}
	if !p.Position().CanMove(to) {
		return &StateError{What: "plan " + p.ID, From: p.Position().String(), To: to.String()}
	}
	p.Phase, p.State = phase, state
	if state != PlanErrored {
		p.Error = nil
	}
	return nil
}

// Terminal reports whether nothing is left to do on the plan.
func (p *Plan) Terminal() bool { return p.State == PlanApplied || p.State == PlanCancelled }

// PlanError is why a plan is errored.
type PlanError struct {
	Message     string `json:"message"`
	Tool        string `json:"tool"`
	Step        string `json:"step"`
	Checkpoint  string `json:"checkpoint"`
	Recoverable bool   `json:"recoverable"`
}

// StepStatus says how far a step is.
type StepStatus string

// The states of a step.
const (
	StepPending StepStatus = "pending"
	StepDone    StepStatus = "done"
	StepFailed  StepStatus = "failed"
	StepSkipped StepStatus = "skipped"
)

// OnFailure says what happens to a step's changes when it fails.
type OnFailure string

// The two answers to a failure.
const (
	FailRollback OnFailure = "rollback"
	FailKeep     OnFailure = "keep"
)

// Step is one tool call of an action. A step is a transaction (ADR-015,
// "Execution as Transactions").
type Step struct {
	ID        string
	Tool      string // with its prefix: builtin/file-edit
	Resource  string // a resource's name; "" where the plan has one
	With      map[string]any
	OnFailure OnFailure
	Continue  bool // go on with the next step after a failure
	// What follows is the record of the last run.
	Status             StepStatus
	BeforeCheckpointID string
	AfterCheckpointID  string
	Error              string
}

// Action is a plan template, read from YAML (CLI.md, "An action file").
type Action struct {
	ID                 string
	Name               string
	Description        string
	Arguments          []Argument
	RequireCheckpoints bool
	ReadOnly           bool
	Steps              []Step // With still holds templates
	CreatedAt          time.Time
}

// Argument is one argument of an action.
type Argument struct {
	Name     string  `json:"name"`
	Required bool    `json:"required"`
	Default  *string `json:"default,omitempty"`
}

// Event is one entry of a plan's log.
type Event struct {
	ID        string
	PlanID    string
	Kind      string // "plan.created", "sandbox.created", "checkpoint.created", "rollback", "apply" …
	Message   string
	Data      map[string]string
	CreatedAt time.Time
}

// Decision is a choice that an actor made within a plan.
type Decision struct {
	ID           string
	PlanID       string
	ParentID     string
	Kind         string
	Question     string
	Choice       string
	CheckpointID string
	Status       string // active, superseded
	CreatedAt    time.Time
}
