// Package checkpoint keeps the payloads of checkpoints: stage, publish, open,
// verify, delete, sweep, and the byte quota.
package checkpoint

import (
	"context"
	"time"

	agents "github.com/cleveragents/agents"
)

// Store is the payload store of all plans.
type Store struct{}

// Open returns the store in dir, which is made when it is missing.
func Open(dir string) (*Store, error) { panic("todo") }

// Dir returns the store's folder.
func (s *Store) Dir() string { panic("todo") }

// Objects returns the folder of a sandbox's recorded states.
func (s *Store) Objects(planID, sandboxID string) string { panic("todo") }

// Stage begins a payload. Discard or Publish ends it.
func (s *Store) Stage(planID string) (*Stage, error) { panic("todo") }

// Stage is a payload in the making; it holds a file lock.
type Stage struct{}

// Dir returns the folder of one sandbox's part.
func (st *Stage) Dir(sandboxID string) (string, error) { panic("todo") }

// Publish makes the payload durable under m.CheckpointID.
func (st *Stage) Publish(ctx context.Context, m Manifest) error { panic("todo") }

// Discard gives the payload up; after Publish it does nothing.
func (st *Stage) Discard() { panic("todo") }

// Manifest is what a payload says about itself.
type Manifest struct {
	CheckpointID string
	PlanID       string
	CreatedAt    time.Time
	Parts        []Part
}

// Part is one sandbox's part of a payload.
type Part struct {
	SandboxID  string
	ResourceID string
	Ref        string
	SizeBytes  int64
	LeftOut    []agents.PathReason
}

func (s *Store) Manifest(planID, id string) (Manifest, error)                 { panic("todo") }
func (s *Store) PartDir(planID, id, sandboxID string) string                  { panic("todo") }
func (s *Store) Verify(ctx context.Context, planID, id string) error          { panic("todo") }
func (s *Store) RemovePlan(ctx context.Context, planID string) (int64, error) { panic("todo") }
func (s *Store) Usage(planID string) (int64, error)                           { panic("todo") }
func (s *Store) Writable() error                                              { panic("todo") }

func (s *Store) Delete(ctx context.Context, planID string, ids []string, keep map[string][]string) (freed int64, err error) {
	panic("todo")
}

func (s *Store) Sweep(ctx context.Context, known func(planID, checkpointID string) bool) (freed int64, err error) {
	panic("todo")
}

// Quota bounds the bytes of payloads; zero = no bound.
type Quota struct {
	PerPlan        int64
	Total          int64
	MinFreePercent float64
}

// Verdict is how full the store is.
type Verdict struct {
	Warn   bool
	Full   bool
	Reason string
}

func (s *Store) Check(planID string, q Quota) (Verdict, error) { panic("todo") }
