// Package none is the strategy without isolation: writes go through to the
// resource itself, and nothing can be taken back. It is for read-only
// resources and outside APIs, and for others only where it is configured and
// the profile allows it; the engine checks that.
package none

import (
	"context"
	"fmt"
	"os"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/sandbox"
)

var _ sandbox.Strategy = (*Strategy)(nil)

// Strategy is sandbox.Strategy without isolation (ADR-015, "none"). It holds
// nothing and may be used from several goroutines.
type Strategy struct{}

// New returns the strategy.
func New() *Strategy { return &Strategy{} }

// Capabilities says that nothing is isolated and nothing can be taken back.
// What a write does, it does to the resource, so that everything is home.
func (*Strategy) Capabilities() sandbox.Capabilities {
	return sandbox.Capabilities{
		Name: agents.NoIsolation, Files: true,
		EmptyDirsHome: true, FullModesHome: true, IgnoredHome: true,
	}
}

// Create returns the resource's own location as the workspace. A path that is
// not there, or not of the resource's type, is agents.ErrInvalid.
func (*Strategy) Create(ctx context.Context, req sandbox.CreateRequest) (sandbox.Workspace, error) {
	if err := ctx.Err(); err != nil {
		return sandbox.Workspace{}, err
	}
	if err := check(req.Resource); err != nil {
		return sandbox.Workspace{}, err
	}
	return sandbox.Workspace{
		SandboxID: req.SandboxID, PlanID: req.PlanID, Resource: req.Resource,
		Path: req.Resource.Location, PrivateDir: req.PrivateDir,
		Metadata: map[string]string{"strategy": string(agents.NoIsolation)}, Options: req.Options,
	}, nil
}

// Capture is agents.ErrUnsupported.
func (*Strategy) Capture(context.Context, sandbox.Workspace, sandbox.CaptureRequest) (sandbox.Captured, error) {
	return sandbox.Captured{}, unsupported("its state cannot be captured")
}

// Restore is agents.ErrUnsupported.
func (*Strategy) Restore(context.Context, sandbox.Workspace, sandbox.RestoreRequest) (sandbox.Restored, error) {
	return sandbox.Restored{}, unsupported("nothing can be taken back")
}

// Diff is agents.ErrUnsupported.
func (*Strategy) Diff(context.Context, sandbox.Workspace, sandbox.DiffRequest) ([]agents.FileChange, error) {
	return nil, unsupported("there is no base to compare with")
}

// Seal has nothing to fix: every write is home already.
func (*Strategy) Seal(ctx context.Context, _ sandbox.Workspace, _ sandbox.SealRequest) (sandbox.Sealed, error) {
	return sandbox.Sealed{Unchanged: true}, ctx.Err()
}

// Apply has nothing to bring home: unchanged.
func (*Strategy) Apply(ctx context.Context, ws sandbox.Workspace, _ sandbox.ApplyRequest) (agents.ResourceResult, error) {
	if err := ctx.Err(); err != nil {
		return agents.ResourceResult{Resource: ws.Resource.Name, State: agents.ApplyNotTried}, err
	}
	return agents.ResourceResult{Resource: ws.Resource.Name, State: agents.ApplyUnchanged}, nil
}

// Remove has nothing to remove, and the resource stays.
func (*Strategy) Remove(context.Context, sandbox.Workspace) error { return nil }

// check reports a resource that is not what its type says.
func check(r agents.Resource) error {
	info, err := agents.TypeInfoOf(r.Type)
	if err != nil || info.LocationURL {
		return err
	}
	fi, err := os.Stat(r.Location)
	if err != nil {
		return fmt.Errorf("resource %s: %w: %w", r.Name, err, agents.ErrInvalid)
	}
	file := r.Type == agents.TypeFile || r.Type == agents.TypeSQLite
	if file == fi.IsDir() {
		return fmt.Errorf("resource %s: %s is not what type %s says: %w", r.Name, r.Location, r.Type, agents.ErrInvalid)
	}
	return nil
}

func unsupported(why string) error {
	return fmt.Errorf("strategy %s does not isolate: %s: %w", agents.NoIsolation, why, agents.ErrUnsupported)
}
