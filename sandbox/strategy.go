// Package sandbox has the contract that every strategy of isolation meets, the
// registry that finds one by name, and the one Sandbox that wraps them all:
// states, laziness, locks and the path guard live here once.
//
// It leaves rows to package metastore and payload files to package checkpoint:
// a strategy is handed folders and never chooses where they are.
package sandbox

import (
	"context"
	"io"
	"time"

	agents "github.com/cleveragents/agents"
)

// Strategy is a mechanism of isolation. This comment is the contract that
// sandboxtest.Run holds every strategy to.
//
// A strategy is dumb: it knows no states, no database rows and no terminal,
// and remembers nothing between calls but what lies in the Workspace's
// folders. It may be used from several goroutines for different workspaces;
// the caller makes sure that one workspace serves one call at a time.
//
// The real resource stays byte for byte what it was through every method but
// Apply (without DryRun) and what Capabilities.Marks names. A method that
// fails leaves the workspace as it was before the call, or says in the error
// that it could not (agents.ErrDamaged). After a kill at any moment, calling
// the same method again, or Remove, succeeds.
//
// Paths are relative to the workspace, raw bytes, with "/" between components.
type Strategy interface {
	// Capabilities says what the strategy can do. It never changes.
	Capabilities() Capabilities

	// Create makes the isolated state and returns its workspace, with Path
	// and Metadata filled in. On failure nothing is left behind, in the
	// resource or elsewhere. Errors: agents.ErrUnsupported when this resource
	// or machine cannot be served (the message says why and what to do);
	// agents.ErrInvalid when the resource is not what its type says;
	// agents.ErrConflict when its state forbids it; agents.ErrNoSpace.
	Create(ctx context.Context, req CreateRequest) (Workspace, error)

	// Capture records the whole state of the workspace and returns a
	// reference to it. Complete or refused: a capture that could not read or
	// store something is an error and leaves no reference. Everything the
	// state needs is synced into req.Objects and req.Dir before it returns.
	// The first capture is made before anything can have changed in the
	// workspace: it is the base, which Restore knows without req.Dir.
	Capture(ctx context.Context, ws Workspace, req CaptureRequest) (Captured, error)

	// Restore puts the workspace into the state that ref names: build aside,
	// verify, move, verify. It touches only what differs. On error the
	// workspace is as before. Damaged or missing payload is agents.ErrDamaged
	// and is found before anything is moved.
	Restore(ctx context.Context, ws Workspace, req RestoreRequest) (Restored, error)

	// Diff lists what changed between two states, sorted by path. An empty
	// From is the base, an empty To is the present state.
	Diff(ctx context.Context, ws Workspace, req DiffRequest) ([]agents.FileChange, error)

	// Seal fixes the present state as the result that Apply will bring home.
	// It may be called again after further changes. It does not change what
	// tools see.
	Seal(ctx context.Context, ws Workspace, req SealRequest) (Sealed, error)

	// Apply brings a sealed result into the real resource, or with DryRun
	// says what would happen and touches nothing. All or nothing: a result
	// other than applied or unchanged leaves the resource byte for byte as it
	// was. After a kill, Recoverer.Recover finishes or undoes it.
	Apply(ctx context.Context, ws Workspace, req ApplyRequest) (agents.ResourceResult, error)

	// Remove takes away everything that Create made, in the resource and in
	// the workspace's folders. It works on a half-made or half-removed
	// workspace (only PrivateDir is sure to be known) and is idempotent.
	Remove(ctx context.Context, ws Workspace) error
}

// Capabilities is what a strategy can do, as data: callers and the
// conformance suite ask it, never a strategy's name.
type Capabilities struct {
	Name           agents.StrategyName
	Isolates       bool // writes do not reach the real resource before Apply
	Rollback       bool // Capture and Restore work; else they are agents.ErrUnsupported
	Files          bool // the workspace is a directory of files
	GitState       bool // a captured state holds HEAD, index, refs, stash and reflogs
	EmptyDirsHome  bool // Apply carries empty directories home
	FullModesHome  bool // Apply carries all permission bits home, not the executable bit alone
	IgnoredHome    bool // Apply carries files home that the resource's own rules ignore
	ProtectedNames []string
	Marks          string // what Create leaves in the real resource until Remove; "" = nothing
	Available      error  // nil, or why this machine cannot run it
}

// Options are the settings that strategies read. The zero value has defaults.
type Options struct {
	GitTimeout   time.Duration // git: give up after no progress for that long; 0 = 30 s
	GitInclude   []string      // git: patterns of ignored files that come into the sandbox
	IgnoredScope string        // which ignored files a state holds: changed (default), all, none
	Protected    []string      // names never written back by file strategies; nil = the default of ProtectedNames
	DataDir      string        // where plans and states are kept: where it lies in a resource it is no part of it; "" = nowhere
}

// ProtectedNames returns the names that file strategies never write back, at
// any depth: Protected, or the default where it is nil.
func (o Options) ProtectedNames() []string {
	if o.Protected == nil {
		return []string{".git", ".cleveragents", "node_modules"}
	}
	return o.Protected
}

// CreateRequest is what Create needs to know.
type CreateRequest struct {
	SandboxID          string
	PlanID             string
	Resource           agents.Resource
	Dir                string // where the visible directory may be made: sandbox.dir
	PrivateDir         string // exists, mode 0700, empty or left by a killed Create; for this sandbox alone
	Shared             string // folder for content that all sandboxes of this resource share; it outlives them, and what is there already is never removed; "" = none
	IncludeUncommitted bool
	Like               map[string]string // Metadata of an earlier life of this sandbox, to be made on the same base; nil = none
	Options            Options
	Notify             func(string)        // a sentence for the user, at most one line; never nil
	Progress           func(done, all int) // called now and then while files are copied; nil = not
}

// Workspace is a strategy's handle on one sandbox: plain data that another
// process rebuilds from the sandbox's record.
type Workspace struct {
	SandboxID  string
	PlanID     string
	Resource   agents.Resource
	Path       string            // where tools read and write
	PrivateDir string            // what no tool may see
	Metadata   map[string]string // the spec's context metadata: strategy, branch, original_branch, base_commit, worktree_path
	Options    Options
}

// CaptureRequest says where a state goes.
type CaptureRequest struct {
	Objects string   // folder shared by all captures of this sandbox: immutable files named by content
	Dir     string   // folder of this capture alone; published or dropped as a whole
	Paths   []string // nil = look at everything; else the only paths that can have changed since the last Capture or Restore
	Label   string   // one line for people, such as the checkpoint's reason
}

// Captured is a recorded state.
type Captured struct {
	Ref       string              // equal for equal states captured one after another
	SizeBytes int64               // bytes that this capture added to Objects and Dir
	LeftOut   []agents.PathReason // what is outside the guarantee; a restore leaves it alone
	Notices   []string
}

// RestoreRequest names the state to go back to.
type RestoreRequest struct {
	Objects string
	Dir     string // the folder that Capture filled; "" for the base
	Ref     string // "" with Dir "" = the base too
	DryRun  bool   // list, change nothing
}

// Restored is what a restore did: one entry for each path whose bytes, mode or
// existence changed, sorted, measured by comparing before and after.
type Restored struct {
	Changes []agents.RestoredPath
}

// DiffRequest names two states. Objects is where captured states lie.
type DiffRequest struct {
	Objects string
	From    string    // "" = the base
	To      string    // "" = the present state
	Patch   io.Writer // nil = counts only; else git's patch format goes here
	Counts  bool      // fill Insertions, Deletions and Binary, and find renames
}

// SealRequest is what Seal needs.
type SealRequest struct {
	Message string // of the commit, where there is one
	When    time.Time
}

// Sealed is a result that Apply can bring home.
type Sealed struct {
	Ref       string              // git: the commit on the plan's branch
	Unchanged bool                // nothing differs from the base
	LeftOut   []agents.PathReason // what the result cannot carry
	Notices   []string
}

// ApplyRequest says what to bring home and how.
type ApplyRequest struct {
	Ref        string // what Seal returned
	DryRun     bool
	Into       string // git: another branch than the recorded one; "" = the recorded one
	Message    string // of the merge commit; "" = the specification's own
	Merge      bool   // merge the text of files that both sides changed, where the strategy can
	JournalDir string // exists, empty: the intent journal goes here and stays for Undo
	When       time.Time
}

// A Checker finds out whether a workspace whose folders are there can be gone on
// with. agents.ErrBlocked says that it has to be made again.
type Checker interface {
	Check(ctx context.Context, ws Workspace) error
}

// An Updater brings the real resource's newer state into the workspace
// (`plan update`), three-way. Conflicts are an agents.ErrConflict error, the
// result lists them, and the workspace is unchanged.
type Updater interface {
	Update(ctx context.Context, ws Workspace, when time.Time) (agents.ResourceResult, Workspace, error)
}

// An Undoer takes back an Apply from its journal. It refuses with
// agents.ErrConflict, changing nothing, where the resource has moved on since.
type Undoer interface {
	Undo(ctx context.Context, ws Workspace, journalDir string) error

	// CanUndo returns the error that Undo would refuse with now, and changes
	// nothing in the resource.
	CanUndo(ctx context.Context, ws Workspace, journalDir string) error
}

// A Recoverer ends an Apply or Undo that was killed, and lets go of what is of
// no use any more once the apply is taken back.
type Recoverer interface {
	Recover(ctx context.Context, ws Workspace, journalDir string) (Recovered, error)
}

// Recovered is what a killed Apply or Undo came to.
type Recovered struct {
	State   agents.ApplyState // applied: the resource holds the whole result; reverted: it is as before, but for what somebody changed since
	Commit  string            // of the result, where there is one
	Notices []string          // paths that were left so, and where is what they were before
}

// LateDir is where a strategy keeps, beside the journal of an apply and longer
// than that, what programs wrote into files that were taken from them, and what
// was at paths that somebody changed while an apply was ended.
func LateDir(journalDir string) string { return journalDir + ".late" }

// An Exporter writes a sealed result somewhere else than Apply: as a branch
// of the real repository that must not exist yet, or as a patch.
type Exporter interface {
	ExportBranch(ctx context.Context, ws Workspace, ref, branch string) error
	ExportPatch(ctx context.Context, ws Workspace, ref string, w io.Writer) error
}

// An Archiver writes everything unapplied in the workspace into a folder, and
// makes a workspace from such a folder again.
type Archiver interface {
	// Unapplied reports whether the workspace holds changes, commits, stashes
	// or branches that exist nowhere else.
	Unapplied(ctx context.Context, ws Workspace) (bool, error)
	Archive(ctx context.Context, ws Workspace, dir string) error
	Unarchive(ctx context.Context, req CreateRequest, dir string) (Workspace, error)
}

// A Preparer readies a workspace for a tool call: it repairs what outsiders
// broke, removes locks that a killed process of the plan left, and returns
// the environment variables that the call's processes need.
type Preparer interface {
	Prepare(ctx context.Context, ws Workspace) (env []string, err error)
}
