package sandboxtest_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/sandbox"
	"github.com/cleveragents/agents/sandbox/sandboxtest"
)

// faultVar names the broken strategy which this process runs the suite on.
const faultVar = "SANDBOXTEST_FAULT"

// fault is a strategy that is broken in one way, and the test of the suite
// that has to find it.
type fault struct {
	found    string
	strategy sandbox.Strategy
}

var faults = map[string]fault{
	"writes through":             {"Untouched", writesThrough{sandboxtest.NewPlain()}},
	"restore forgets modes":      {"RestoreExactly", forgetsModes{sandboxtest.NewPlain()}},
	"restore forgets empty dirs": {"RestoreExactly", forgetsEmptyDirs{sandboxtest.NewPlain()}},
	"restore lists nothing":      {"RestoreDryRun", listsNothing{sandboxtest.NewPlain()}},
	"restore takes anything":     {"Damaged", takesAnything{sandboxtest.NewPlain()}},
	"capture names each anew":    {"EqualStates", namesAnew{sandboxtest.NewPlain()}},
	"diff is empty":              {"U019_Diff", emptyDiff{sandboxtest.NewPlain()}},
	"apply overwrites":           {"Conflict", overwrites{sandboxtest.NewPlain()}},
	"dry run applies":            {"SealAndApply", dryRunApplies{sandboxtest.NewPlain()}},
	"remove forgets":             {"Remove", removesNothing{sandboxtest.NewPlain()}},
	"create leaves a mess":       {"CreateCancelled", leavesMess{sandboxtest.NewPlain()}},
}

// The suite would be worth nothing if a broken strategy passed it: it is run
// on some in processes of their own, which have to fail.
func TestSuiteFindsFaults(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the suite eleven times")
	}
	for name, f := range faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestBroken$/^"+f.found+"$", "-rapid.nofailfile")
			cmd.Env = append(os.Environ(), faultVar+"="+name)
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || !bytes.Contains(out, []byte("--- FAIL: TestBroken/"+f.found)) {
				t.Errorf("the suite's %s on a strategy whose %s: got %v, want a failure\n%s", f.found, name, err, out)
			}
		})
	}
}

// TestBroken is what TestSuiteFindsFaults runs; alone it has nothing to do.
func TestBroken(t *testing.T) {
	if f, ok := faults[os.Getenv(faultVar)]; ok {
		sandboxtest.Run(t, plain(f.strategy))
	}
}

type writesThrough struct{ *sandboxtest.Plain }

func (s writesThrough) Create(ctx context.Context, req sandbox.CreateRequest) (sandbox.Workspace, error) {
	ws, err := s.Plain.Create(ctx, req)
	ws.Path = req.Resource.Location
	return ws, err
}

type forgetsModes struct{ *sandboxtest.Plain }

func (s forgetsModes) Restore(ctx context.Context, ws sandbox.Workspace, req sandbox.RestoreRequest) (sandbox.Restored, error) {
	res, err := s.Plain.Restore(ctx, ws, req)
	if fi, serr := os.Stat(filepath.Join(ws.Path, "README.md")); serr == nil && fi.Mode().IsRegular() {
		err = errors.Join(err, os.Chmod(filepath.Join(ws.Path, "README.md"), 0o644))
	}
	return res, err
}

type forgetsEmptyDirs struct{ *sandboxtest.Plain }

func (s forgetsEmptyDirs) Restore(ctx context.Context, ws sandbox.Workspace, req sandbox.RestoreRequest) (sandbox.Restored, error) {
	res, err := s.Plain.Restore(ctx, ws, req)
	_ = os.Remove(filepath.Join(ws.Path, "hollow")) // it is there in one of the changes only
	return res, err
}

type listsNothing struct{ *sandboxtest.Plain }

func (s listsNothing) Restore(ctx context.Context, ws sandbox.Workspace, req sandbox.RestoreRequest) (sandbox.Restored, error) {
	_, err := s.Plain.Restore(ctx, ws, req)
	return sandbox.Restored{}, err
}

type takesAnything struct{ *sandboxtest.Plain }

func (s takesAnything) Restore(ctx context.Context, ws sandbox.Workspace, req sandbox.RestoreRequest) (sandbox.Restored, error) {
	res, err := s.Plain.Restore(ctx, ws, req)
	if errors.Is(err, agents.ErrDamaged) {
		return sandbox.Restored{}, nil
	}
	return res, err
}

type namesAnew struct{ *sandboxtest.Plain }

func (s namesAnew) Capture(ctx context.Context, ws sandbox.Workspace, req sandbox.CaptureRequest) (sandbox.Captured, error) {
	c, err := s.Plain.Capture(ctx, ws, req)
	if err != nil {
		return c, err
	}
	name := c.Ref + "-" + filepath.Base(req.Dir)
	err = os.CopyFS(filepath.Join(req.Objects, name), os.DirFS(filepath.Join(req.Objects, c.Ref)))
	c.Ref = name
	return c, err
}

type emptyDiff struct{ *sandboxtest.Plain }

func (emptyDiff) Diff(context.Context, sandbox.Workspace, sandbox.DiffRequest) ([]agents.FileChange, error) {
	return nil, nil
}

type overwrites struct{ *sandboxtest.Plain }

func (s overwrites) Apply(ctx context.Context, ws sandbox.Workspace, req sandbox.ApplyRequest) (agents.ResourceResult, error) {
	res, err := s.Plain.Apply(ctx, ws, req)
	if res.State == agents.ApplyConflict && !req.DryRun {
		err = os.WriteFile(filepath.Join(ws.Resource.Location, sandboxtest.ConflictPath), []byte("<<<<<<<\n"), 0o644)
	}
	return res, err
}

type dryRunApplies struct{ *sandboxtest.Plain }

func (s dryRunApplies) Apply(ctx context.Context, ws sandbox.Workspace, req sandbox.ApplyRequest) (agents.ResourceResult, error) {
	req.DryRun = false
	return s.Plain.Apply(ctx, ws, req)
}

type removesNothing struct{ *sandboxtest.Plain }

func (removesNothing) Remove(context.Context, sandbox.Workspace) error { return nil }

type leavesMess struct{ *sandboxtest.Plain }

func (s leavesMess) Create(ctx context.Context, req sandbox.CreateRequest) (sandbox.Workspace, error) {
	ws, err := s.Plain.Create(ctx, req)
	if err != nil {
		err = errors.Join(err, os.WriteFile(filepath.Join(req.Dir, "mess"), nil, 0o600))
	}
	return ws, err
}
