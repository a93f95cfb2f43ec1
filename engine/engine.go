// Package engine has the services: plans, the executor, the tool runner,
// checkpoints around calls, rollback, apply, update, cleanup and the sweep. It
// is the only place where sandboxes, checkpoints and rows meet.
//
// It prints nothing and asks nothing: results are values of package agents,
// and sentences for the user go to Config.Notify.
package engine

import (
	"io"
	"log/slog"
	"time"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/checkpoint"
	"github.com/cleveragents/agents/metastore"
	"github.com/cleveragents/agents/sandbox"
	"github.com/cleveragents/agents/tool"
)

// CleanupPolicy says when a plan's sandboxes go (ADR-015, "Cleanup behavior").
type CleanupPolicy string

// The cleanup policies.
const (
	CleanOnApply    CleanupPolicy = "on_apply"
	CleanOnTerminal CleanupPolicy = "on_terminal"
	CleanManual     CleanupPolicy = "manual"
)

// Settings are the configuration values that the services read.
type Settings struct {
	DataDir        string              // <data-dir>
	SandboxDir     string              // sandbox.dir
	Strategy       agents.StrategyName // sandbox.strategy if somebody set it, else ""
	Cleanup        CleanupPolicy       // sandbox.cleanup
	CleanupSource  string              // where that value came from: default, user, project, env, flag
	Checkpoints    bool                // sandbox.checkpoint.enabled
	Triggers       []agents.Trigger    // checkpoints.auto_create_on
	Retention      agents.RetentionPolicy
	PlanQuota      int64   // sandbox.checkpoint.quota, bytes a plan; 0 = none
	TotalQuota     int64   // bytes of all plans together; 0 = none
	MinFreePercent float64 // sandbox.min-free, percent of the file system
	Enforce        string  // sandbox.enforce: auto, required, off
	Profile        string  // core.automation-profile
	Sandbox        sandbox.Options
	ArchiveKeep    time.Duration // how long an archive is kept; 0 = 30 days
}

// Config is what the engine needs. Checkpoints may be nil: then nothing can be
// taken back, and every result says so.
type Config struct {
	Store       *metastore.Store
	Checkpoints *checkpoint.Store
	Strategies  *sandbox.Registry
	Tools       *tool.Registry
	Settings    Settings
	Now         func() time.Time // nil = time.Now
	Notify      func(string)     // a sentence for the user; nil = dropped
	Log         *slog.Logger     // nil = silent
}

// Stdio is where a command's input comes from and its live output goes.
type Stdio struct {
	In       io.Reader
	Out, Err io.Writer
	TTY      bool // all three are the user's terminal
}
