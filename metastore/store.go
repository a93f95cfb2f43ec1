// Package metastore keeps the rows: resources, projects, actions, plans,
// sandboxes, checkpoints, tool calls, decisions and events, in a SQLite file
// under the data directory.
package metastore

import (
	"context"
	"log/slog"
	"time"

	agents "github.com/cleveragents/agents"
)

// Options are the choices of Open. The zero value is the usual one.
type Options struct {
	ReadOnly bool             // never write, create or migrate
	Now      func() time.Time // nil = time.Now
	Log      *slog.Logger     // nil = silent
}

// Store is an open metadata store. Its methods may be called from several
// goroutines, and several processes may have the same file open.
type Store struct{}

// Open opens the database at path, makes it (0600, its directory 0700) where
// there is none, and brings its schema up to date. Where the directory cannot
// be written, an existing up-to-date database is opened for reading: then
// ReadOnly is true and Write fails. agents.ErrNewerData: written by a newer version, not
// changed. agents.ErrDamaged: not a whole database.
func Open(ctx context.Context, path string, opts Options) (*Store, error) { panic("todo") }

// Close releases the file. It may be called more than once.
func (s *Store) Close() error { panic("todo") }

// ReadOnly reports whether Write is refused.
func (s *Store) ReadOnly() bool { panic("todo") }

// SchemaVersion is the schema that this program writes.
func SchemaVersion() int { panic("todo") }

// Version returns the schema version of the database at path without changing
// it; 0 = no database.
func Version(ctx context.Context, path string) (int, error) { panic("todo") }

// Migrate brings the database at path up to date and returns the versions
// before and after.
func Migrate(ctx context.Context, path string, opts Options) (from, to int, err error) { panic("todo") }

// Read runs fn over one consistent state of all tables.
func (s *Store) Read(ctx context.Context, fn func(tx *Tx) error) error { panic("todo") }

// Write runs fn as one unit of work: everything it did is kept when it returns
// nil, nothing otherwise. Do not nest.
func (s *Store) Write(ctx context.Context, fn func(tx *Tx) error) error { panic("todo") }

// Tx is one unit of work, bound to the context of its Read or Write.
type Tx struct{}

// Now is the moment of the unit of work, UTC, the same for all its rows.
func (tx *Tx) Now() time.Time { panic("todo") }

func (tx *Tx) Resources() Resources     { return Resources{tx} }
func (tx *Tx) Projects() Projects       { return Projects{tx} }
func (tx *Tx) Actions() Actions         { return Actions{tx} }
func (tx *Tx) Plans() Plans             { return Plans{tx} }
func (tx *Tx) Steps() Steps             { return Steps{tx} }
func (tx *Tx) Sandboxes() Sandboxes     { return Sandboxes{tx} }
func (tx *Tx) Checkpoints() Checkpoints { return Checkpoints{tx} }
func (tx *Tx) Invocations() Invocations { return Invocations{tx} }
func (tx *Tx) Decisions() Decisions     { return Decisions{tx} }
func (tx *Tx) Events() Events           { return Events{tx} }
func (tx *Tx) Locks() Locks             { return Locks{tx} }

// In every repository: Insert fills an empty ID, CreatedAt (StartedAt) and
// UpdatedAt from tx.Now; a taken name is agents.ErrExists; what is not there
// is agents.ErrNotFound; an ambiguous prefix is agents.ErrInvalid and lists the
// candidates; Resolve takes a whole id, a unique prefix of agents.MinPrefix or more
// characters, or a name.

// Resources are the named things.
type Resources struct{ tx *Tx }

func (r Resources) Insert(res *agents.Resource) error           { panic("todo") }
func (r Resources) Get(id string) (agents.Resource, error)      { panic("todo") }
func (r Resources) ByName(name string) (agents.Resource, error) { panic("todo") }
func (r Resources) Resolve(ref string) (agents.Resource, error) { panic("todo") }
func (r Resources) List() ([]agents.Resource, error)            { panic("todo") }
func (r Resources) ByLocation(t agents.ResourceType, location string) (agents.Resource, error) {
	panic("todo")
}

// Delete refuses with agents.ErrBlocked while a project links the resource or
// a plan that is not terminal uses it.
func (r Resources) Delete(id string) error { panic("todo") }

// DeleteWithLinks removes the links too, and refuses only for plans.
func (r Resources) DeleteWithLinks(id string) error { panic("todo") }

// Projects are the sets of resources.
type Projects struct{ tx *Tx }

func (r Projects) Insert(p *agents.Project) error             { panic("todo") }
func (r Projects) Get(id string) (agents.Project, error)      { panic("todo") }
func (r Projects) ByName(name string) (agents.Project, error) { panic("todo") }
func (r Projects) Resolve(ref string) (agents.Project, error) { panic("todo") }
func (r Projects) List() ([]agents.Project, error)            { panic("todo") }

// Delete refuses with agents.ErrBlocked while a plan that is not terminal uses the project.
func (r Projects) Delete(id string) error { panic("todo") }

// Link and Unlink may be repeated.
func (r Projects) Link(projectID, resourceID string) error   { panic("todo") }
func (r Projects) Unlink(projectID, resourceID string) error { panic("todo") }

// Actions are the plan templates.
type Actions struct{ tx *Tx }

func (r Actions) Insert(a *agents.Action) error             { panic("todo") }
func (r Actions) Get(id string) (agents.Action, error)      { panic("todo") }
func (r Actions) ByName(name string) (agents.Action, error) { panic("todo") }
func (r Actions) Resolve(ref string) (agents.Action, error) { panic("todo") }
func (r Actions) List() ([]agents.Action, error)            { panic("todo") }

// Plans are the runs.
type Plans struct{ tx *Tx }

// Insert stores the plan with its resources (a copy of each), projects (names) and steps.
func (r Plans) Insert(p *agents.Plan) error { panic("todo") }

// Update stores phase, state, error, applied_at, name, actor and profile, and sets UpdatedAt.
func (r Plans) Update(p *agents.Plan) error        { panic("todo") }
func (r Plans) Get(id string) (agents.Plan, error) { panic("todo") }

// Resolve finds by whole id, unique prefix or name (the live plan of that name before ended ones).
func (r Plans) Resolve(ref string) (agents.Plan, error) { panic("todo") }

// List is newest first, whole plans.
func (r Plans) List() ([]agents.Plan, error) { panic("todo") }

// Live lists the plans that are not terminal, newest first.
func (r Plans) Live() ([]agents.Plan, error) { panic("todo") }

// SetParent makes child a child plan of parent, spawned at this moment of the parent.
func (r Plans) SetParent(childID, parentID string) error        { panic("todo") }
func (r Plans) Children(parentID string) ([]agents.Plan, error) { panic("todo") }

// CancelChildrenAfter cancels the child plans (and theirs) spawned after checkpoint seq
// that are not terminal, and returns how many.
func (r Plans) CancelChildrenAfter(planID string, seq int64) (int, error) { panic("todo") }

// Steps are the tool calls of plans.
type Steps struct{ tx *Tx }

// Update stores status, checkpoints and error of one step.
func (r Steps) Update(planID string, s agents.Step) error { panic("todo") }
func (r Steps) List(planID string) ([]agents.Step, error) { panic("todo") }

// Sandboxes are the isolated states.
type Sandboxes struct{ tx *Tx }

// Insert is agents.ErrExists while the plan has one for the resource that is not cleaned up.
func (r Sandboxes) Insert(s *agents.SandboxRecord) error        { panic("todo") }
func (r Sandboxes) Update(s *agents.SandboxRecord) error        { panic("todo") }
func (r Sandboxes) Get(id string) (agents.SandboxRecord, error) { panic("todo") }

// ByPlan lists one sandbox a resource, oldest first: the present one, else the last one cleaned up.
func (r Sandboxes) ByPlan(planID string) ([]agents.SandboxRecord, error) { panic("todo") }

// Live lists those of all plans that exist on disk (SandboxStatus.Live), oldest first.
func (r Sandboxes) Live() ([]agents.SandboxRecord, error) { panic("todo") }

// Checkpoints are the recorded states.
type Checkpoints struct{ tx *Tx }

// Insert stores cp with its refs, gives it the plan's next Seq and makes it the active one.
func (r Checkpoints) Insert(cp *agents.Checkpoint) error       { panic("todo") }
func (r Checkpoints) Get(id string) (agents.Checkpoint, error) { panic("todo") }

// List is oldest first.
func (r Checkpoints) List(planID string) ([]agents.Checkpoint, error) { panic("todo") }

// Active returns the one that the plan stands on.
func (r Checkpoints) Active(planID string) (agents.Checkpoint, error) { panic("todo") }

// SetActive says which one the plan stands on, after a rollback.
func (r Checkpoints) SetActive(planID, id string) error { panic("todo") }

// Resolve finds the plan's checkpoint by id or unique prefix; one of another plan is
// agents.ValidationError.
func (r Checkpoints) Resolve(planID, ref string) (agents.Checkpoint, error) { panic("todo") }

// Delete refuses the active one with agents.ErrBlocked.
func (r Checkpoints) Delete(id string) error           { panic("todo") }
func (r Checkpoints) MarkDamaged(id string) error      { panic("todo") }
func (r Checkpoints) Count(planID string) (int, error) { panic("todo") }

// CheckpointEvent says that a trigger fired and which checkpoint holds the state of that moment.
type CheckpointEvent struct {
	PlanID       string
	CheckpointID string
	Trigger      agents.Trigger
	CreatedAt    time.Time
}

// AddEvent records that trigger fired and found the state that checkpoint id holds.
func (r Checkpoints) AddEvent(id string, trigger agents.Trigger) error { panic("todo") }
func (r Checkpoints) Events(planID string) ([]CheckpointEvent, error)  { panic("todo") }

// Invocations are the tool calls.
type Invocations struct{ tx *Tx }

func (r Invocations) Insert(inv *agents.Invocation) error      { panic("todo") }
func (r Invocations) Update(inv *agents.Invocation) error      { panic("todo") }
func (r Invocations) Get(id string) (agents.Invocation, error) { panic("todo") }

// List is oldest first.
func (r Invocations) List(planID string) ([]agents.Invocation, error) { panic("todo") }

// Changes lists the plan's changeset entries in the order in which they were made.
func (r Invocations) Changes(planID string) ([]agents.FileChange, error) { panic("todo") }

// CountAfter counts the plan's tool calls after the checkpoint with that Seq.
func (r Invocations) CountAfter(planID string, seq int64) (int, error) { panic("todo") }

// Decisions are the actors' choices.
type Decisions struct{ tx *Tx }

func (r Decisions) Insert(d *agents.Decision) error               { panic("todo") }
func (r Decisions) Get(id string) (agents.Decision, error)        { panic("todo") }
func (r Decisions) List(planID string) ([]agents.Decision, error) { panic("todo") }

// SupersedeAfter marks the decisions made after the checkpoint with that Seq and returns how many.
func (r Decisions) SupersedeAfter(planID string, seq int64) (int, error) { panic("todo") }

// Events are the log.
type Events struct{ tx *Tx }

func (r Events) Append(e *agents.Event) error { panic("todo") }

// List is oldest first; "" = the events of no plan.
func (r Events) List(planID string) ([]agents.Event, error) { panic("todo") }

// Locks are notes about held file locks, for explanations only.
type Locks struct{ tx *Tx }

// LockNote says who holds a lock.
type LockNote struct {
	Name       string
	PlanID     string
	Holder     string
	AcquiredAt time.Time
}

func (r Locks) Put(n *LockNote) error     { panic("todo") }
func (r Locks) Drop(name string) error    { panic("todo") }
func (r Locks) List() ([]LockNote, error) { panic("todo") }
