package agents

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// CheckpointType is the kind of a checkpoint row.
type CheckpointType string

// The checkpoint types of checkpointing.md.
const (
	CheckpointPreWrite CheckpointType = "pre_write"
	CheckpointPostStep CheckpointType = "post_step"
	CheckpointManual   CheckpointType = "manual"
)

// CheckpointPhase is a phase hook of sandbox.md; it is kept in a checkpoint's metadata.
type CheckpointPhase string

// The phase hooks of sandbox.md.
const (
	PhasePreExecute  CheckpointPhase = "pre_execute"
	PhasePostExecute CheckpointPhase = "post_execute"
	PhasePreApply    CheckpointPhase = "pre_apply"
)

// CheckpointMetadata is the audit metadata of a checkpoint.
type CheckpointMetadata struct {
	Reason     string            `json:"reason"`
	SourceTool string            `json:"source_tool"`
	Phase      string            `json:"phase"`
	Extra      map[string]string `json:"extra,omitempty"`
}

// CheckpointRef is one sandbox's part of a checkpoint.
type CheckpointRef struct {
	SandboxID  string
	ResourceID string
	Resource   string // the resource's name
	Ref        string // what the strategy's Capture returned; git: a commit id
	SizeBytes  int64  // bytes that this capture added to the payload store
}

// Checkpoint is an immutable record of the state of a whole plan: a consistent
// cut over all its sandboxes (checkpointing.md, "Checkpoint"; DESIGN §2).
type Checkpoint struct {
	ID             string
	PlanID         string
	Seq            int64 // order within the plan; clocks go back, this does not
	SandboxRef     string
	DecisionID     string
	Type           CheckpointType
	ResourceID     string
	FilesystemPath string // relative to the checkpoint directory
	SizeBytes      int64
	CreatedAt      time.Time
	Metadata       CheckpointMetadata
	Refs           []CheckpointRef // one a sandbox that existed at that moment
	Active         bool            // the newest recorded state the plan stands on
	Damaged        bool            // its payload failed verification; it cannot be restored
	Pinned         bool            // a decision or the resume point refers to it: never pruned
}

// Trigger is a reason for the engine to make a checkpoint by itself.
type Trigger string

// The automatic triggers of checkpointing.md.
const (
	BeforeToolExecute Trigger = "before_tool_execute"
	AfterToolExecute  Trigger = "after_tool_execute"
	OnSubplanSpawn    Trigger = "on_subplan_spawn"
	OnError           Trigger = "on_error"
)

// Triggers lists every trigger name.
func Triggers() []Trigger {
	return []Trigger{BeforeToolExecute, AfterToolExecute, OnSubplanSpawn, OnError}
}

// ParseTriggers reads the value of checkpoints.auto_create_on: names separated
// by commas; the empty string is the empty list. An unknown name is ErrInvalid
// and the message lists the valid ones.
func ParseTriggers(s string) ([]Trigger, error) {
	var out []Trigger
	for _, part := range strings.Split(s, ",") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		t := Trigger(part)
		if !slices.Contains(Triggers(), t) {
			return nil, fmt.Errorf("checkpoint trigger %q: want %s: %w", clip(part), joinNames(Triggers()), ErrInvalid)
		}
		if !slices.Contains(out, t) {
			out = append(out, t)
		}
	}
	return out, nil
}
