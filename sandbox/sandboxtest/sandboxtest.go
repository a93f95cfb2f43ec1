// Package sandboxtest holds every strategy of isolation to the contract of
// sandbox.Strategy: one suite that all of them run, like testing/fstest for
// file systems. It asks Capabilities and never a strategy's name. A plain
// directory which got the same operations is the oracle; where a strategy does
// not isolate, or cannot take anything back, the suite asserts that, and does
// not skip.
//
// Faulty wraps a strategy so that one of its calls fails, for tests of what is
// built on strategies.
package sandboxtest

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/fsx"
	"github.com/cleveragents/agents/internal/oracle"
	"github.com/cleveragents/agents/sandbox"
)

// Config says what is tested and how the real resource is made and looked at.
type Config struct {
	// New returns a fresh strategy. Each value stands for another process.
	New func(t testing.TB) sandbox.Strategy

	// Resource makes a real resource whose content is WriteSeed's, somewhere
	// below dir, an empty directory. What never gets into a sandbox, such as
	// ignored files of a repository, may lie beside it.
	Resource func(t testing.TB, dir string) agents.Resource

	// Digest sums up all of the resource that has to stay byte for byte, but
	// not what Capabilities.Marks allows. nil = the files at its location.
	Digest func(t testing.TB, r agents.Resource) string

	// Marks lists what there is in the resource of that which
	// Capabilities.Marks allows. nil = nothing is allowed.
	Marks func(t testing.TB, r agents.Resource) []string

	// Edit changes a file in the resource as its user would, so that an apply
	// sees that it has moved on. nil = the file is written.
	Edit func(t testing.TB, r agents.Resource, path, content string)

	// Hidden reaches the state that Capabilities.GitState promises. It must be
	// there exactly when that is true.
	Hidden *Hidden

	// Options are handed to every Create.
	Options sandbox.Options
}

// Hidden is a workspace's state beside its files.
type Hidden struct {
	// Change makes the n-th change: a commit, a stash, an index entry.
	Change func(t testing.TB, ws sandbox.Workspace, n int)
	// Digest sums it all up.
	Digest func(t testing.TB, ws sandbox.Workspace) string
}

// Run runs the suite.
func Run(t *testing.T, cfg Config) {
	s := suite{Config: cfg.withDefaults(), caps: cfg.New(t).Capabilities()}
	t.Run("Capabilities", s.capabilities)
	if err := s.caps.Available; err != nil {
		t.Fatalf("strategy %s is not available here: %v", s.caps.Name, err)
	}
	t.Run("Create", s.create)
	t.Run("Remove", s.remove)
	t.Run("Prepare", s.prepareCall)
	if s.caps.Isolates {
		s.isolated(t)
	} else {
		s.through(t)
	}
	if s.caps.Rollback {
		s.recorded(t)
	} else {
		t.Run("NothingTakenBack", s.nothingTakenBack)
	}
}

func (c Config) withDefaults() Config {
	if c.Digest == nil {
		c.Digest = digestFiles
	}
	if c.Marks == nil {
		c.Marks = func(testing.TB, agents.Resource) []string { return nil }
	}
	if c.Edit == nil {
		c.Edit = func(t testing.TB, r agents.Resource, path, content string) {
			t.Helper()
			must(t, write(path, content)(r.Location))
		}
	}
	return c
}

func digestFiles(t testing.TB, r agents.Resource) string {
	t.Helper()
	return strings.Join(oracle.Digest(t, r.Location), "\n")
}

type suite struct {
	Config
	caps sandbox.Capabilities
}

// isolated asserts what holds where writes do not reach the resource.
func (s suite) isolated(t *testing.T) {
	t.Run("Untouched", s.untouched)
	t.Run("CreateCancelled", s.createCancelled)
	t.Run("SealAndApply", s.sealAndApply)
	t.Run("ApplyUnchanged", s.applyUnchanged)
	t.Run("ApplyCancelled", s.applyCancelled)
	t.Run("SealAgain", s.sealAgain)
	t.Run("ProtectedNames", s.protectedNames)
	t.Run("Conflict", s.conflict)
	t.Run("SeveralWorkspaces", s.severalWorkspaces)
	t.Run("Undo", s.undo)
	t.Run("Update", s.update)
	t.Run("UpdateConflict", s.updateConflict)
	t.Run("Archive", s.archive)
}

// recorded asserts what holds where states can be captured and restored.
func (s suite) recorded(t *testing.T) {
	t.Run("RestoreExactly", s.restoreExactly)
	t.Run("RestoreBase", s.restoreBase)
	t.Run("RestoreDryRun", s.restoreDryRun)
	t.Run("RestoreCancelled", s.restoreCancelled)
	t.Run("CaptureCancelled", s.captureCancelled)
	t.Run("EqualStates", s.equalStates)
	t.Run("CapturePaths", s.capturePaths)
	t.Run("Damaged", s.damaged)
	t.Run("SecondProcess", s.secondProcess)
	t.Run("Hidden", s.hidden)
	t.Run("U019_Diff", s.diff)
	t.Run("DiffStates", s.diffStates)
	t.Run("RandomOperations", s.randomOperations)
}

// box is one sandbox under test with the resource it is of.
type box struct {
	testing.TB
	suite
	strategy sandbox.Strategy
	dir      string // a folder for this test alone
	request  sandbox.CreateRequest
	ws       sandbox.Workspace
	before   string // the resource's digest at the start
}

// prepare makes the resource and the folders of a sandbox that is not created yet.
func (s suite) prepare(t testing.TB) *box {
	t.Helper()
	dir := tempDir(t)
	for _, name := range []string{"real", "sandboxes", "private"} {
		must(t, os.Mkdir(filepath.Join(dir, name), 0o700))
	}
	b := &box{TB: t, suite: s, strategy: s.New(t), dir: dir}
	b.request = sandbox.CreateRequest{
		SandboxID: newID(), PlanID: newID(), Resource: s.Resource(t, filepath.Join(dir, "real")),
		Dir: filepath.Join(dir, "sandboxes"), PrivateDir: filepath.Join(dir, "private"),
		Options: s.Options, Notify: func(line string) {
			if line == "" || strings.Contains(line, "\n") {
				t.Errorf("notice %q: want one line", line)
			}
		},
	}
	b.before = s.Digest(t, b.request.Resource)
	b.objects()
	return b
}

// open makes a sandbox.
func (s suite) open(t testing.TB) *box {
	t.Helper()
	b := s.prepare(t)
	b.make()
	return b
}

// second returns another sandbox of the same resource, not created yet.
func (b *box) second(t testing.TB, name string) *box {
	t.Helper()
	c := *b
	c.TB, c.dir, c.ws = t, filepath.Join(b.dir, name), sandbox.Workspace{}
	c.request.SandboxID, c.request.PlanID = newID(), newID()
	c.request.PrivateDir = filepath.Join(c.dir, "private")
	must(t, os.MkdirAll(c.request.PrivateDir, 0o700))
	c.objects()
	c.folder("base")
	return &c
}

func (b *box) make() {
	b.Helper()
	ws, err := b.strategy.Create(b.ctx(), b.request)
	if err != nil {
		b.Fatalf("Create: %v", err)
	}
	b.ws = ws
	if b.caps.Rollback {
		b.capture() // the base
	}
}

func (b *box) ctx() context.Context { return b.Context() }

func (b *box) do(ops ...op) {
	b.Helper()
	must(b, run(b.ws.Path, ops...))
}

// tree is what is in the workspace.
func (b *box) tree() Tree {
	b.Helper()
	t, err := ReadTree(b.ws.Path)
	must(b, err)
	return t
}

// home is what is in the resource.
func (b *box) home() Tree {
	b.Helper()
	t, err := ReadTree(b.request.Resource.Location)
	must(b, err)
	return t
}

// state is a captured state with the folder that holds its own part.
type state struct{ ref, dir string }

func (b *box) objects() string { return b.folder("objects") }

// folder returns a folder of this name, made when it is missing.
func (b *box) folder(name string) string {
	b.Helper()
	path := filepath.Join(b.dir, name)
	must(b, os.MkdirAll(path, 0o700))
	return path
}

// fresh returns a new empty folder.
func (b *box) fresh(kind string) string {
	b.Helper()
	path, err := os.MkdirTemp(b.folder(kind), "")
	must(b, err)
	return path
}

func (b *box) capture(paths ...string) state {
	b.Helper()
	req := sandbox.CaptureRequest{Objects: b.objects(), Dir: b.fresh("captures"), Paths: paths, Label: "conformance"}
	c, err := b.strategy.Capture(b.ctx(), b.ws, req)
	if err != nil {
		b.Fatalf("Capture: %v", err)
	}
	if c.Ref == "" {
		b.Fatal("Capture: no reference and no error")
	}
	return state{c.Ref, req.Dir}
}

func (b *box) restore(to state) []agents.RestoredPath {
	b.Helper()
	r, err := b.tryRestore(b.ctx(), to)
	if err != nil {
		b.Fatalf("Restore: %v", err)
	}
	return r.Changes
}

func (b *box) tryRestore(ctx context.Context, to state) (sandbox.Restored, error) {
	return b.strategy.Restore(ctx, b.ws, sandbox.RestoreRequest{Objects: b.objects(), Dir: to.dir, Ref: to.ref})
}

func (b *box) seal() sandbox.Sealed {
	b.Helper()
	sealed, err := b.strategy.Seal(b.ctx(), b.ws, sandbox.SealRequest{Message: "conformance", When: testTime()})
	if err != nil {
		b.Fatalf("Seal: %v", err)
	}
	return sealed
}

func (b *box) applyRequest(ref string) sandbox.ApplyRequest {
	b.Helper()
	return sandbox.ApplyRequest{Ref: ref, Message: "conformance", JournalDir: b.fresh("journal"), When: testTime()}
}

func (b *box) apply(req sandbox.ApplyRequest) agents.ResourceResult {
	b.Helper()
	res, err := b.strategy.Apply(b.ctx(), b.ws, req)
	if err != nil {
		b.Fatalf("Apply: %v", err)
	}
	return res
}

func (b *box) discard() {
	b.Helper()
	if err := b.strategy.Remove(b.ctx(), b.ws); err != nil {
		b.Fatalf("Remove: %v", err)
	}
}

// wantTree fails when the workspace does not hold exactly want.
func (b *box) wantTree(want Tree, when string) {
	b.Helper()
	if diff := Explain(b.tree(), want); diff != "" {
		b.Fatalf("the workspace %s is not what it should be:\n%s", when, diff)
	}
}

// wantUntouched fails when the real resource is not what it was at the start.
func (b *box) wantUntouched(when string) {
	b.Helper()
	if got := b.Digest(b, b.request.Resource); got != b.before {
		b.Fatalf("the real resource changed %s:\n%s", when, oracle.Diff(strings.Split(b.before, "\n"), strings.Split(got, "\n")))
	}
}

// wantNothingLeft fails when something of a sandbox is there.
func (b *box) wantNothingLeft(when string) {
	b.Helper()
	b.wantUntouched(when)
	if marks := b.Marks(b, b.request.Resource); len(marks) > 0 {
		b.Errorf("the real resource has marks %s: %q", when, marks)
	}
	if left := names(b, b.request.Dir); len(left) > 0 {
		b.Errorf("the sandbox folder has %q %s", left, when)
	}
}

// names lists a directory; one that is missing is empty.
func names(t testing.TB, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func paths(changes []agents.RestoredPath) []string {
	var out []string
	for _, c := range changes {
		if c.Action != "unchanged" {
			out = append(out, c.Path)
		}
	}
	return out
}

// tempDir is t.TempDir, but it can also remove read-only directories.
func tempDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "sandboxtest-")
	must(t, err)
	t.Cleanup(func() {
		if err := fsx.RemoveAll(dir); err != nil {
			t.Errorf("remove the test's folder: %v", err)
		}
	})
	dir, err = filepath.EvalSymlinks(dir)
	must(t, err)
	return dir
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newID() string { return agents.NewID(time.Now()) }

func testTime() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }

func sortedSet(lists ...[]string) []string {
	all := slices.Concat(lists...)
	slices.Sort(all)
	return slices.Compact(all)
}
