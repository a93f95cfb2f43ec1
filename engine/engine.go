// Package engine has the services: plans, the executor, the tool runner,
// checkpoints around calls, rollback, apply, update, cleanup and the sweep. It
// is the only place where sandboxes, checkpoints and rows meet.
//
// It prints nothing and asks nothing: results are values of package agents,
// and sentences for the user go to Config.Notify.
package engine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"time"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/checkpoint"
	"github.com/cleveragents/agents/internal/fsx"
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

// Engine has all services. Its methods may be called from several goroutines
// and processes: each works on one plan under that plan's lock.
type Engine struct {
	store      *metastore.Store
	payloads   *checkpoint.Store // nil = no checkpoints
	strategies *sandbox.Registry
	tools      *tool.Registry
	set        Settings
	clock      func() time.Time
	notify     func(string)
	log        *slog.Logger
}

// New returns an engine over these parts. Settings that contradict each other
// are agents.ErrInvalid.
func New(cfg Config) (*Engine, error) {
	e := &Engine{
		store: cfg.Store, payloads: cfg.Checkpoints, strategies: cfg.Strategies, tools: cfg.Tools,
		set: cfg.Settings, clock: cfg.Now, notify: cfg.Notify, log: cfg.Log,
	}
	if e.clock == nil {
		e.clock = time.Now
	}
	if e.notify == nil {
		e.notify = func(string) {}
	}
	if e.log == nil {
		e.log = slog.New(slog.DiscardHandler)
	}
	if e.set.ArchiveKeep == 0 {
		e.set.ArchiveKeep = 30 * 24 * time.Hour
	}
	if e.set.DataDir == "" || e.set.SandboxDir == "" {
		return nil, fmt.Errorf("engine: no data directory: %w", agents.ErrInvalid)
	}
	if _, err := agents.ProfileByName(e.set.Profile); err != nil {
		return nil, err
	}
	return e, e.set.Retention.Validate()
}

// now is the present moment as rows hold it: UTC, to the millisecond.
func (e *Engine) now() time.Time { return e.clock().UTC().Truncate(time.Millisecond) }

// checkpointsOn reports whether states can be recorded at all.
func (e *Engine) checkpointsOn() bool { return e.payloads != nil && e.set.Checkpoints }

// The places under the data directory.

func (e *Engine) planLockFile(planID string) string {
	return filepath.Join(e.set.DataDir, "locks", "plan-"+planID+".lock")
}

// resourceLockFile is the lock of a real resource, the same for every spelling
// of its path.
func (e *Engine) resourceLockFile(r agents.Resource) string {
	place := r.Location
	if real, err := filepath.EvalSymlinks(place); err == nil {
		place = real
	}
	sum := sha256.Sum256([]byte(place))
	return filepath.Join(e.set.DataDir, "locks", "repo-"+hex.EncodeToString(sum[:8])+".lock")
}

func (e *Engine) privateDir(planID, sandboxID string) string {
	return filepath.Join(e.set.DataDir, "private", planID, sandboxID)
}

func (e *Engine) journalDir(planID, sandboxID string) string {
	return filepath.Join(e.set.DataDir, "journal", planID, sandboxID)
}

func (e *Engine) archiveDir(planID string) string {
	return filepath.Join(e.set.DataDir, "archive", planID)
}

// patience is how long a command waits for a lock before it says who has it.
const patience = 2 * time.Second

// lockResource holds a real resource while one plan changes it.
func (e *Engine) lockResource(ctx context.Context, r agents.Resource, note string) (*fsx.Lock, error) {
	return fsx.WaitLock(ctx, e.resourceLockFile(r), note)
}
