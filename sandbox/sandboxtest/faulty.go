package sandboxtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/sandbox"
)

// ErrFault is what a Faulty strategy's failing call returns.
var ErrFault = errors.New("injected fault")

// Faulty is a strategy whose n-th call fails before it does anything, so that
// a test can loop n until nothing fails any more. Capabilities is not counted.
// It has every optional ability; where the strategy lacks one, the call is
// agents.ErrUnsupported. It may be used from several goroutines.
type Faulty struct {
	inner sandbox.Strategy

	mu    sync.Mutex
	n     int
	calls []string
	err   error
}

var (
	_ sandbox.Strategy  = (*Faulty)(nil)
	_ sandbox.Updater   = (*Faulty)(nil)
	_ sandbox.Undoer    = (*Faulty)(nil)
	_ sandbox.Recoverer = (*Faulty)(nil)
	_ sandbox.Exporter  = (*Faulty)(nil)
	_ sandbox.Archiver  = (*Faulty)(nil)
	_ sandbox.Preparer  = (*Faulty)(nil)
)

// NewFaulty wraps inner so that its n-th call, counted from 1, fails with err,
// or with ErrFault when err is nil. With n = 0 none fails.
func NewFaulty(inner sandbox.Strategy, n int, err error) *Faulty {
	if err == nil {
		err = ErrFault
	}
	return &Faulty{inner: inner, n: n, err: err}
}

// Fired reports whether the failing call was reached. A test in which it was
// not has tested nothing.
func (f *Faulty) Fired() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.n > 0 && len(f.calls) >= f.n
}

// Calls lists the methods that were called, in order.
func (f *Faulty) Calls() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.calls...)
}

func (f *Faulty) hit(method string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, method)
	if len(f.calls) == f.n {
		return fmt.Errorf("%s: %w", method, f.err)
	}
	return nil
}

// Capabilities are the strategy's own.
func (f *Faulty) Capabilities() sandbox.Capabilities { return f.inner.Capabilities() }

// Create is the strategy's, or fails.
func (f *Faulty) Create(ctx context.Context, req sandbox.CreateRequest) (sandbox.Workspace, error) {
	if err := f.hit("Create"); err != nil {
		return sandbox.Workspace{}, err
	}
	return f.inner.Create(ctx, req)
}

// Capture is the strategy's, or fails.
func (f *Faulty) Capture(ctx context.Context, ws sandbox.Workspace, req sandbox.CaptureRequest) (sandbox.Captured, error) {
	if err := f.hit("Capture"); err != nil {
		return sandbox.Captured{}, err
	}
	return f.inner.Capture(ctx, ws, req)
}

// Restore is the strategy's, or fails.
func (f *Faulty) Restore(ctx context.Context, ws sandbox.Workspace, req sandbox.RestoreRequest) (sandbox.Restored, error) {
	if err := f.hit("Restore"); err != nil {
		return sandbox.Restored{}, err
	}
	return f.inner.Restore(ctx, ws, req)
}

// Diff is the strategy's, or fails.
func (f *Faulty) Diff(ctx context.Context, ws sandbox.Workspace, req sandbox.DiffRequest) ([]agents.FileChange, error) {
	if err := f.hit("Diff"); err != nil {
		return nil, err
	}
	return f.inner.Diff(ctx, ws, req)
}

// Seal is the strategy's, or fails.
func (f *Faulty) Seal(ctx context.Context, ws sandbox.Workspace, req sandbox.SealRequest) (sandbox.Sealed, error) {
	if err := f.hit("Seal"); err != nil {
		return sandbox.Sealed{}, err
	}
	return f.inner.Seal(ctx, ws, req)
}

// Apply is the strategy's, or fails.
func (f *Faulty) Apply(ctx context.Context, ws sandbox.Workspace, req sandbox.ApplyRequest) (agents.ResourceResult, error) {
	if err := f.hit("Apply"); err != nil {
		return agents.ResourceResult{Resource: ws.Resource.Name, State: agents.ApplyFailed}, err
	}
	return f.inner.Apply(ctx, ws, req)
}

// Remove is the strategy's, or fails.
func (f *Faulty) Remove(ctx context.Context, ws sandbox.Workspace) error {
	if err := f.hit("Remove"); err != nil {
		return err
	}
	return f.inner.Remove(ctx, ws)
}

// Update is the strategy's, or fails.
func (f *Faulty) Update(ctx context.Context, ws sandbox.Workspace, when time.Time) (agents.ResourceResult, sandbox.Workspace, error) {
	u, err := able[sandbox.Updater](f, "Update")
	if err != nil {
		return agents.ResourceResult{}, ws, err
	}
	return u.Update(ctx, ws, when)
}

// Undo is the strategy's, or fails.
func (f *Faulty) Undo(ctx context.Context, ws sandbox.Workspace, journalDir string) error {
	u, err := able[sandbox.Undoer](f, "Undo")
	if err != nil {
		return err
	}
	return u.Undo(ctx, ws, journalDir)
}

// CanUndo is the strategy's, or fails.
func (f *Faulty) CanUndo(ctx context.Context, ws sandbox.Workspace, journalDir string) error {
	u, err := able[sandbox.Undoer](f, "CanUndo")
	if err != nil {
		return err
	}
	return u.CanUndo(ctx, ws, journalDir)
}

// Recover is the strategy's, or fails.
func (f *Faulty) Recover(ctx context.Context, ws sandbox.Workspace, journalDir string) (sandbox.Recovered, error) {
	r, err := able[sandbox.Recoverer](f, "Recover")
	if err != nil {
		return sandbox.Recovered{}, err
	}
	return r.Recover(ctx, ws, journalDir)
}

// ExportBranch is the strategy's, or fails.
func (f *Faulty) ExportBranch(ctx context.Context, ws sandbox.Workspace, ref, branch string) error {
	e, err := able[sandbox.Exporter](f, "ExportBranch")
	if err != nil {
		return err
	}
	return e.ExportBranch(ctx, ws, ref, branch)
}

// ExportPatch is the strategy's, or fails.
func (f *Faulty) ExportPatch(ctx context.Context, ws sandbox.Workspace, ref string, w io.Writer) error {
	e, err := able[sandbox.Exporter](f, "ExportPatch")
	if err != nil {
		return err
	}
	return e.ExportPatch(ctx, ws, ref, w)
}

// Unapplied is the strategy's, or fails.
func (f *Faulty) Unapplied(ctx context.Context, ws sandbox.Workspace) (bool, error) {
	a, err := able[sandbox.Archiver](f, "Unapplied")
	if err != nil {
		return false, err
	}
	return a.Unapplied(ctx, ws)
}

// Archive is the strategy's, or fails.
func (f *Faulty) Archive(ctx context.Context, ws sandbox.Workspace, dir string) error {
	a, err := able[sandbox.Archiver](f, "Archive")
	if err != nil {
		return err
	}
	return a.Archive(ctx, ws, dir)
}

// Unarchive is the strategy's, or fails.
func (f *Faulty) Unarchive(ctx context.Context, req sandbox.CreateRequest, dir string) (sandbox.Workspace, error) {
	a, err := able[sandbox.Archiver](f, "Unarchive")
	if err != nil {
		return sandbox.Workspace{}, err
	}
	return a.Unarchive(ctx, req, dir)
}

// Prepare is the strategy's, or fails; a strategy without it prepares nothing.
func (f *Faulty) Prepare(ctx context.Context, ws sandbox.Workspace) ([]string, error) {
	p, err := able[sandbox.Preparer](f, "Prepare")
	if errors.Is(err, agents.ErrUnsupported) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return p.Prepare(ctx, ws)
}

// able returns the strategy as an A, or the fault, or that it is none.
func able[A any](f *Faulty, method string) (A, error) {
	a, ok := f.inner.(A)
	if err := f.hit(method); err != nil {
		return a, err
	}
	if !ok {
		return a, fmt.Errorf("strategy %s has no %s: %w", f.Capabilities().Name, method, agents.ErrUnsupported)
	}
	return a, nil
}
