package agents

import "fmt"

// Scope is the granularity of a tool's checkpoint (ADR-015, "Checkpointing").
type Scope string

// The checkpoint scopes. A writing tool without one counts as ScopeSnapshot.
const (
	ScopeFile        Scope = "file"        // the paths that the tool declares
	ScopeCommit      Scope = "commit"      // the git state too
	ScopeTransaction Scope = "transaction" // a savepoint
	ScopeSnapshot    Scope = "snapshot"    // a full scan
)

// Mechanism is how a tool's effect is taken back.
type Mechanism string

// The rollback mechanisms of DESIGN §5.
const (
	MechGitCommit  Mechanism = "git_commit"
	MechGitReflog  Mechanism = "git_reflog"
	MechSnapshot   Mechanism = "snapshot"
	MechSavepoint  Mechanism = "savepoint"
	MechMCP        Mechanism = "mcp"
	MechCommand    Mechanism = "command"
	MechCompensate Mechanism = "compensate"
	MechNone       Mechanism = "none"
)

// Capability is what a tool declares about itself.
type Capability struct {
	Writes            bool      `json:"writes"`
	ReadOnly          bool      `json:"read_only"`
	Checkpointable    bool      `json:"checkpointable"`
	CheckpointScope   Scope     `json:"checkpoint_scope,omitempty"`
	RollbackMechanism Mechanism `json:"rollback_mechanism"`
	Unsafe            bool      `json:"unsafe"` // refused unless the profile has allow_unsafe_tools
}

// EffectiveScope returns the declared scope, and ScopeSnapshot for a writing
// tool that declares none.
func (c Capability) EffectiveScope() Scope {
	if c.CheckpointScope == "" && c.Writes {
		return ScopeSnapshot
	}
	return c.CheckpointScope
}

// Validate reports a contradiction in c as ErrInvalid.
func (c Capability) Validate() error {
	switch {
	case c.Writes == c.ReadOnly:
		return fmt.Errorf("capability: exactly one of writes and read_only must be true: %w", ErrInvalid)
	case c.Checkpointable && c.Writes && c.RollbackMechanism == MechNone:
		return fmt.Errorf("capability: a checkpointable writing tool needs a rollback_mechanism: %w", ErrInvalid)
	}
	return nil
}
