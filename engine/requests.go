package engine

import (
	"encoding/json"
	"time"

	agents "github.com/cleveragents/agents"
)

// PlanRequest describes a plan to create. Resources may be unsaved (no ID):
// they are found by type and location, or added.
type PlanRequest struct {
	Name               string
	Resources          []agents.Resource
	Projects           []string
	Profile            string // "" = the configured default
	Actor              string
	RequireCheckpoints bool
	IncludeUncommitted bool
	ReadOnly           bool
}

// UseRequest describes a plan to make from an action.
type UseRequest struct {
	Action             string
	Projects           []string
	Arguments          map[string]string
	Name               string
	Profile            string
	RequireCheckpoints bool
}

// ExecuteRequest runs the steps of a plan.
type ExecuteRequest struct {
	Plan      string // id, prefix or name
	FromStart bool
	DryRun    bool
	Stdio     Stdio
}

// CommandRequest runs one command in a plan's sandbox.
type CommandRequest struct {
	Plan      string
	Resources []string // the first is the working directory; none = the plan's only one
	Argv      []string
	OnFailure agents.OnFailure
	Timeout   time.Duration // 0 = none
	Stdio     Stdio
}

// ToolRequest calls one tool in a plan's sandbox.
type ToolRequest struct {
	Plan      string
	Tool      string
	Resource  string
	Input     json.RawMessage
	OnFailure agents.OnFailure
	Stdio     Stdio
}

// DiffRequest asks what a plan changed. From and To are checkpoint ids; empty
// means the base and the present.
type DiffRequest struct {
	Plan     string
	Resource string
	From, To string
	Patch    bool
}

// CheckpointRequest makes a manual checkpoint.
type CheckpointRequest struct {
	Plan   string
	Reason string
}

// RollbackRequest goes back to a checkpoint.
type RollbackRequest struct {
	Plan       string
	Checkpoint string
	Resource   string // narrows to one resource; "" = all
	DryRun     bool
}

// ApplyRequest brings a plan's result home.
type ApplyRequest struct {
	Plan        string
	Only        []string
	Partial     bool
	Merge       bool
	Into        string
	DryRun      bool
	KeepSandbox bool
}

// ExportRequest writes a plan's result to a branch or a patch; exactly one of
// the two is set.
type ExportRequest struct {
	Plan     string
	Resource string // "" = all
	Branch   string
	Patch    string // file name
}

// CancelRequest ends a plan without applying it.
type CancelRequest struct {
	Plan    string
	Reason  string
	Discard bool // archive and remove the sandboxes whatever the policy says
}

// CleanupRequest removes what no live owner holds and no plan needs.
type CleanupRequest struct {
	Plan   string // "" = all
	DryRun bool
}
