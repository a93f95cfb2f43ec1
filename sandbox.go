package agents

import "time"

// SandboxStatus is a sandbox's place in its life.
type SandboxStatus string

// The states of a sandbox (DESIGN §4; git-worktree-sandbox.md, "Status State Machine").
const (
	SandboxPending    SandboxStatus = "PENDING"     // known, not created
	SandboxCreated    SandboxStatus = "CREATED"     // there, never handed out
	SandboxActive     SandboxStatus = "ACTIVE"      // a path in it was handed out
	SandboxCommitted  SandboxStatus = "COMMITTED"   // applied to the real resource
	SandboxRolledBack SandboxStatus = "ROLLED_BACK" // put back to a recorded state
	SandboxErrored    SandboxStatus = "ERRORED"     // unusable until restored or removed
	SandboxCleanedUp  SandboxStatus = "CLEANED_UP"  // gone
)

// sandboxMoves is the whole state table of sandboxes.
var sandboxMoves = map[SandboxStatus][]SandboxStatus{
	SandboxPending:    {SandboxCreated, SandboxErrored, SandboxCleanedUp},
	SandboxCreated:    {SandboxActive, SandboxErrored, SandboxCleanedUp, SandboxPending},
	SandboxActive:     {SandboxCommitted, SandboxRolledBack, SandboxErrored, SandboxCleanedUp},
	SandboxCommitted:  {SandboxRolledBack, SandboxErrored, SandboxCleanedUp},
	SandboxRolledBack: {SandboxActive, SandboxErrored, SandboxCleanedUp},
	SandboxErrored:    {SandboxRolledBack, SandboxCleanedUp},
	SandboxCleanedUp:  {},
}

// CanMove reports whether a sandbox may go from s to to. Staying where it is
// is always allowed.
func (s SandboxStatus) CanMove(to SandboxStatus) bool {
	if s == to {
		return true
	}
	for _, t := range sandboxMoves[s] {
		if t == to {
			return true
		}
	}
	return false
}

// Live reports whether a sandbox in state s exists on disk.
func (s SandboxStatus) Live() bool {
	return s != SandboxPending && s != SandboxCleanedUp && s != ""
}

// SandboxRecord is what the metadata store keeps of a sandbox.
type SandboxRecord struct {
	ID         string
	PlanID     string
	ResourceID string
	Strategy   StrategyName
	Status     SandboxStatus
	Path       string            // where tools read and write; "" before creation
	PrivateDir string            // what belongs to the sandbox and no tool may see
	Metadata   map[string]string // strategy, branch, original_branch, base_commit, worktree_path …
	BaseRef    string            // the state at creation, as the strategy's Capture names it
	SealedRef  string            // the sealed result; "" = not sealed since the last change
	ApplyState ApplyState
	CreatedAt  time.Time
	UpdatedAt  time.Time
}

// Move changes the record's status along the state table, or returns a
// *StateError and changes nothing.
func (r *SandboxRecord) Move(to SandboxStatus) error {
	if !r.Status.CanMove(to) {
		return &StateError{What: "sandbox " + r.ID, From: string(r.Status), To: string(to)}
	}
	r.Status = to
	return nil
}

// SandboxContext is what creating a sandbox returns (git-worktree-sandbox.md, "create").
type SandboxContext struct {
	SandboxID    string
	SandboxPath  string
	OriginalPath string
	ResourceID   string
	PlanID       string
	CreatedAt    time.Time
	Metadata     map[string]string
}

// CommitResult is what committing a sandbox returns (git-worktree-sandbox.md,
// "commit"). Error is nil exactly when Success is true; no change is a success
// with empty lists.
type CommitResult struct {
	SandboxID    string
	Success      bool
	CommitRef    string
	ChangedFiles []string
	AddedFiles   []string
	DeletedFiles []string
	Error        error
	Timestamp    time.Time
}
