package agents

import "time"

// ChangeKind says how a path differs between two states.
type ChangeKind string

// The kinds of change, as the JSON of `plan diff` spells them.
const (
	ChangeAdded    ChangeKind = "added"
	ChangeModified ChangeKind = "modified"
	ChangeDeleted  ChangeKind = "deleted"
	ChangeRenamed  ChangeKind = "renamed"
	ChangeMode     ChangeKind = "mode"
)

// FileChange is one path that differs between two states of a sandbox. Path
// holds the raw bytes of the name, with "/" between components, relative to
// the resource; printing escapes it.
type FileChange struct {
	Resource   string
	Path       string
	OldPath    string // renamed: where it was
	Change     ChangeKind
	Insertions int // lines; 0 for binary
	Deletions  int
	Binary     bool
}

// DiffSummary counts a list of FileChange.
type DiffSummary struct {
	FilesChanged int
	Insertions   int
	Deletions    int
}

// Summarize counts files.
func Summarize(files []FileChange) DiffSummary {
	s := DiffSummary{FilesChanged: len(files)}
	for _, f := range files {
		s.Insertions += f.Insertions
		s.Deletions += f.Deletions
	}
	return s
}

// Diff is the answer of `plan diff`.
type Diff struct {
	Summary DiffSummary
	Files   []FileChange
	Patch   []byte // git's patch format; only when asked for
}

// PathReason is a path and why it is listed: a conflict, or something that a
// result does not carry.
type PathReason struct {
	Resource string `json:"resource"`
	Path     string `json:"path"`
	Reason   string `json:"reason"`
}

// Invocation is the record of one tool call. Stdout and Stderr are capped;
// what was cut is said at their end.
type Invocation struct {
	ID                 string
	PlanID             string
	Tool               string
	Resource           string
	StepID             string
	Input              []byte // JSON
	Output             []byte // JSON result of a tool that has one; nil otherwise
	ExitCode           int
	Stdout             string
	Stderr             string
	BeforeCheckpointID string
	AfterCheckpointID  string
	Changed            []FileChange
	RolledBack         bool
	Enforced           string // what the kernel enforced: "none" until a jail is in force
	Error              string
	StartedAt          time.Time
	EndedAt            time.Time
}

// RunResult is the answer of `run`.
type RunResult struct {
	Plan       Plan
	Invocation Invocation
	Sandboxes  []SandboxState
	Diff       Diff
	Unknown    bool // what changed could not be looked at, and Diff says nothing
	Applies    bool // an apply would change something, if only directories, which Diff does not list
	Messages   []string
}

// ExecuteResult is the answer of `plan execute`.
type ExecuteResult struct {
	Plan      Plan
	Sandboxes []SandboxState
	Resume    string // the id of the step it started (or would start) at; "" = nothing to do
	Diff      Diff
	Messages  []string
}

// SandboxState is a sandbox as `plan status` shows it.
type SandboxState struct {
	SandboxID      string        `json:"sandbox_id"`
	Resource       string        `json:"resource"`
	Strategy       StrategyName  `json:"strategy"`
	Status         SandboxStatus `json:"status"`
	Path           string        `json:"path"`
	HostPath       *string       `json:"host_path"`
	Branch         string        `json:"branch"`
	OriginalBranch string        `json:"original_branch"`
	Base           string        `json:"base"`
	SizeBytes      int64         `json:"size_bytes"`
	Enforced       string        `json:"enforced"`
}

// ResourceState is where a resource of a plan is and how far its applying is,
// as `plan status` shows it. One that shares another's sandbox has the apply
// state of that one: they come home together.
type ResourceState struct {
	Resource   string       `json:"resource"`
	ApplyState ApplyState   `json:"apply_state"`
	Boundary   string       `json:"boundary"` // name of the resource whose sandbox it shares; "" = it has its own
	Strategy   StrategyName `json:"strategy"` // "" = there is no sandbox yet
	Path       string       `json:"path"`     // where tools see it; "" = there is no sandbox yet
}

// PlanStatus is the answer of `plan status`.
type PlanStatus struct {
	Plan        Plan
	Sandboxes   []SandboxState
	Checkpoints int
	Resources   []ResourceState
	Running     bool // another process holds the plan's lock
}

// RestoredPath is one path of a rollback.
type RestoredPath struct {
	Resource string `json:"resource"`
	Path     string `json:"path"`
	Action   string `json:"action"` // restored, removed, unchanged
}

// RollbackResult is the answer of `plan rollback` (checkpointing.md, "Rollback").
// RestoredFilesCount is len(ChangedPaths): measured, not planned.
type RollbackResult struct {
	PlanID               string
	FromCheckpointID     string
	RestoredFilesCount   int
	ChangedPaths         []string
	Changes              []RestoredPath
	SafetyCheckpointID   string
	ActiveCheckpointID   string
	CheckpointsRemaining int
	DecisionsSuperseded  int
	ChildPlansCancelled  int
	ToolCallsAfter       int // tool calls recorded after the checkpoint
	Phase                Phase
	State                PlanState
	DryRun               bool
	Messages             []string
}

// ApplyState says what applying did to one resource.
type ApplyState string

// The states of applying (DESIGN §7).
const (
	ApplyApplied   ApplyState = "applied"
	ApplyUnchanged ApplyState = "unchanged"
	ApplyConflict  ApplyState = "conflict"
	ApplyFailed    ApplyState = "failed"
	ApplyReverted  ApplyState = "reverted"
	ApplyNotTried  ApplyState = "not_tried"
)

// ResourceResult is what applying did, or would do, to one resource.
type ResourceResult struct {
	Resource   string       `json:"resource"`
	State      ApplyState   `json:"state"`
	CommitRef  string       `json:"commit_ref"`
	Added      []string     `json:"added_files"`
	Changed    []string     `json:"changed_files"`
	Deleted    []string     `json:"deleted_files"`
	Conflicts  []PathReason `json:"conflicts"`
	Insertions int          `json:"-"`
	Deletions  int          `json:"-"`
	Into       string       `json:"-"` // the branch it went to; "" = detached or no branch
	Notices    []string     `json:"-"` // sentences for the user, such as that a merge commit is not signed
	Error      string       `json:"error,omitempty"`
}

// SandboxCleanup is what removing a plan's sandboxes did.
type SandboxCleanup struct {
	WorktreeRemoved    bool   `json:"worktree_removed"` // the sandboxes' directories, copies too
	BranchMerged       bool   `json:"branch_merged"`    // false where there is none
	Branch             string `json:"branch"`
	CheckpointsRemoved int    `json:"checkpoints_removed"`
	Sandboxes          int    `json:"-"` // how many there were
}

// ApplyResult is the answer of `plan apply`.
type ApplyResult struct {
	PlanID     string
	Artifacts  int // added + changed files
	Insertions int
	Deletions  int
	Project    string
	AppliedAt  time.Time // zero = nothing was applied
	Resources  []ResourceResult
	LeftOut    []PathReason
	Cleanup    SandboxCleanup
	NextSteps  []string
	DryRun     bool
	Messages   []string
}

// CancelResult is the answer of `plan cancel`.
type CancelResult struct {
	Plan      Plan
	Reason    string
	Sandboxes []CancelledSandbox
	Recovery  []string // commands that bring the work back
}

// CancelledSandbox is what cancelling did to one sandbox.
type CancelledSandbox struct {
	Resource string        `json:"resource"`
	Status   SandboxStatus `json:"status"`
	Kept     bool          `json:"kept"`
}

// UpdateResult is the answer of `plan update`.
type UpdateResult struct {
	Plan      Plan
	Resources []ResourceResult // State applied = the real side's changes came in
	Messages  []string
}

// KeptItem is something that cleaning left alone, and why.
type KeptItem struct {
	What string `json:"what"`
	Why  string `json:"why"`
}

// CleanupResult is the answer of `cleanup` and `cleanup status`.
type CleanupResult struct {
	Policy       string
	PolicySource string
	Removed      []string
	Archived     []Archive
	Kept         []KeptItem
	FreedBytes   int64
	DryRun       bool
}

// Archive is unapplied work that was written aside before its sandbox went.
type Archive struct {
	ID        string    `json:"archive_id"` // the plan's id
	PlanID    string    `json:"plan_id"`
	Path      string    `json:"path"`
	SizeBytes int64     `json:"size_bytes"`
	CreatedAt time.Time `json:"created_at"`
	ExpiresAt time.Time `json:"expires_at"`
	Restore   string    `json:"restore"` // the command that brings it back
}
