//go:build !wip

package engine

import (
	"context"

	agents "github.com/cleveragents/agents"
)

func (e *Engine) AddResource(ctx context.Context, r agents.Resource) (agents.Resource, error) {
	panic("todo")
}
func (e *Engine) Resources(ctx context.Context) ([]agents.Resource, error)          { panic("todo") }
func (e *Engine) Resource(ctx context.Context, ref string) (agents.Resource, error) { panic("todo") }
func (e *Engine) RemoveResource(ctx context.Context, ref string) (agents.Resource, error) {
	panic("todo")
}

func (e *Engine) CreateProject(ctx context.Context, name string) (agents.Project, error) {
	panic("todo")
}
func (e *Engine) Projects(ctx context.Context) ([]agents.Project, error)          { panic("todo") }
func (e *Engine) Project(ctx context.Context, ref string) (agents.Project, error) { panic("todo") }
func (e *Engine) DeleteProject(ctx context.Context, ref string) (agents.Project, error) {
	panic("todo")
}
func (e *Engine) LinkResource(ctx context.Context, project, resource string) (agents.Project, error) {
	panic("todo")
}
func (e *Engine) UnlinkResource(ctx context.Context, project, resource string) (agents.Project, error) {
	panic("todo")
}

// CreateAction parses and stores an action file; errors name the line.
func (e *Engine) CreateAction(ctx context.Context, yaml []byte) (agents.Action, error) { panic("todo") }
func (e *Engine) Actions(ctx context.Context) ([]agents.Action, error)                 { panic("todo") }
func (e *Engine) Action(ctx context.Context, ref string) (agents.Action, error)        { panic("todo") }

func (e *Engine) CreatePlan(ctx context.Context, req PlanRequest) (agents.Plan, error) { panic("todo") }
func (e *Engine) UseAction(ctx context.Context, req UseRequest) (agents.Plan, error)   { panic("todo") }
func (e *Engine) Plans(ctx context.Context) ([]agents.Plan, error)                     { panic("todo") }
func (e *Engine) Plan(ctx context.Context, ref string) (agents.Plan, error)            { panic("todo") }
func (e *Engine) Status(ctx context.Context, ref string) (agents.PlanStatus, error)    { panic("todo") }
func (e *Engine) Events(ctx context.Context, ref string) ([]agents.Event, error)       { panic("todo") }
func (e *Engine) Invocations(ctx context.Context, ref string) ([]agents.Invocation, error) {
	panic("todo")
}

// Artifacts lists the files that the plan added or changed.
func (e *Engine) Artifacts(ctx context.Context, ref string) (agents.Diff, error) { panic("todo") }

func (e *Engine) Execute(ctx context.Context, req ExecuteRequest) (agents.ExecuteResult, error) {
	panic("todo")
}

// Run creates a plan and runs one command in it: agents run.
func (e *Engine) Run(ctx context.Context, plan PlanRequest, cmd CommandRequest) (agents.RunResult, error) {
	panic("todo")
}
func (e *Engine) Exec(ctx context.Context, req CommandRequest) (agents.Invocation, error) {
	panic("todo")
}
func (e *Engine) RunTool(ctx context.Context, req ToolRequest) (agents.Invocation, error) {
	panic("todo")
}

func (e *Engine) Diff(ctx context.Context, req DiffRequest) (agents.Diff, error) { panic("todo") }
func (e *Engine) Checkpoints(ctx context.Context, plan, resource string) ([]agents.Checkpoint, error) {
	panic("todo")
}
func (e *Engine) Checkpoint(ctx context.Context, plan, checkpoint string) (agents.Checkpoint, error) {
	panic("todo")
}

// CheckpointShowCommand returns a git command line that shows the checkpoint's
// content, or "" where it has none.
func (e *Engine) CheckpointShowCommand(ctx context.Context, cp agents.Checkpoint) (string, error) {
	panic("todo")
}
func (e *Engine) CreateCheckpoint(ctx context.Context, req CheckpointRequest) (agents.Checkpoint, error) {
	panic("todo")
}

// DeleteCheckpoints removes checkpoints and returns their full ids and the bytes freed.
func (e *Engine) DeleteCheckpoints(ctx context.Context, plan string, checkpoints []string) ([]string, int64, error) {
	panic("todo")
}

func (e *Engine) Rollback(ctx context.Context, req RollbackRequest) (agents.RollbackResult, error) {
	panic("todo")
}
func (e *Engine) Apply(ctx context.Context, req ApplyRequest) (agents.ApplyResult, error) {
	panic("todo")
}
func (e *Engine) Update(ctx context.Context, plan, resource string) (agents.UpdateResult, error) {
	panic("todo")
}
func (e *Engine) Export(ctx context.Context, req ExportRequest) (string, error) { panic("todo") }

// UndoApply takes back the plan's apply where nothing has moved since.
func (e *Engine) UndoApply(ctx context.Context, plan string) (agents.ApplyResult, error) {
	panic("todo")
}
func (e *Engine) Cancel(ctx context.Context, req CancelRequest) (agents.CancelResult, error) {
	panic("todo")
}

func (e *Engine) Cleanup(ctx context.Context, req CleanupRequest) (agents.CleanupResult, error) {
	panic("todo")
}
func (e *Engine) CleanupStatus(ctx context.Context) (agents.CleanupResult, error)     { panic("todo") }
func (e *Engine) Archives(ctx context.Context) ([]agents.Archive, error)              { panic("todo") }
func (e *Engine) RestoreArchive(ctx context.Context, ref string) (agents.Plan, error) { panic("todo") }

// Start ends what a killed process left half-done and sweeps what nobody
// holds. Every command that changes something calls it first.
func (e *Engine) Start(ctx context.Context) error { panic("todo") }

// Leftovers lists what the sweep could not remove: for doctor.
func (e *Engine) Leftovers(ctx context.Context) ([]agents.KeptItem, error) { panic("todo") }
