package gitworktree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/fsx"
	"github.com/cleveragents/agents/internal/git"
	"github.com/cleveragents/agents/internal/snapshot"
	"github.com/cleveragents/agents/sandbox"
)

// recorder is what captures and restores one workspace.
type recorder struct {
	store   *snapshot.Store
	tracker *snapshot.Tracker
	objects string
	leftOut []agents.PathReason // ignored paths that the workspace's scope leaves out
}

// close ends the reader's process.
func (r *recorder) close() { r.store.Rest() }

// recorder opens the object store of the workspace's states. The roots are the
// worktree without its .git file, and the private common directory.
func (b *box) recorder(ctx context.Context, objects string) (*recorder, error) {
	if objects == "" {
		return nil, fmt.Errorf("no folder for the states of sandbox %s: %w", b.ws.SandboxID, agents.ErrInvalid)
	}
	store, err := b.states.Get(ctx, objects, func() snapshot.Options {
		return snapshot.Options{Format: b.rec.User.Format, Alternates: []string{b.rec.User.Objects}, Reader: snapshot.NewGitReader(b.user())}
	})
	if err != nil {
		return nil, fmt.Errorf("open states of sandbox %s: %w", b.ws.SandboxID, err)
	}
	r := &recorder{store: store, objects: objects}
	skip := []string{".git"}
	if b.ws.Options.IgnoredScope == "none" {
		ignored, err := b.ignoredNow(ctx)
		if err != nil {
			r.close()
			return nil, err
		}
		for _, p := range ignored {
			skip = append(skip, p)
			r.leftOut = append(r.leftOut, agents.PathReason{Resource: b.ws.Resource.Name, Path: p, Reason: "ignored, and sandbox.checkpoint.ignored is none"})
		}
	}
	r.tracker, err = snapshot.NewTracker(store, []snapshot.Root{
		{Name: "files", Dir: b.rec.Path, Skip: skip},
		{Name: "git", Dir: b.planDir()},
	}, b.private("states", "cache"))
	if err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

// ignoredNow lists the paths that the repository's rules ignore, whole
// directories as one.
func (b *box) ignoredNow(ctx context.Context) ([]string, error) {
	at := b.trusted()
	out, err := at.Read(ctx, "ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory")
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, p := range git.Fields(out) {
		paths = append(paths, strings.TrimSuffix(p, "/"))
	}
	return paths, nil
}

// Capture records the raw bytes of the worktree, ignored files included, and
// the plan's whole git state: HEAD, index, refs, stash, reflogs, objects. The
// first capture of a sandbox is its base state, and the parent of all later
// ones. Each state names the base commit that it belongs to.
func (s *Strategy) Capture(ctx context.Context, ws sandbox.Workspace, req sandbox.CaptureRequest) (sandbox.Captured, error) {
	b, err := s.open(ws)
	if err != nil {
		return sandbox.Captured{}, err
	}
	r, err := b.recorder(ctx, req.Objects)
	if err != nil {
		return sandbox.Captured{}, err
	}
	defer r.close()
	got, err := b.capture(ctx, r, req)
	if err != nil {
		return sandbox.Captured{}, fmt.Errorf("capture sandbox %s: %w", ws.SandboxID, err)
	}
	return got, nil
}

func (b *box) capture(ctx context.Context, r *recorder, req sandbox.CaptureRequest) (sandbox.Captured, error) {
	if err := b.setAside(); err != nil {
		return sandbox.Captured{}, err
	}
	if err := b.seed(ctx, r); err != nil {
		return sandbox.Captured{}, err
	}
	opts := snapshot.CaptureOptions{Parent: b.rec.BaseState, Label: b.label(req.Label)}
	for _, p := range req.Paths {
		opts.Paths = append(opts.Paths, snapshot.Path{Root: "files", Path: p})
	}
	c, err := r.tracker.Capture(ctx, opts)
	if err != nil {
		return sandbox.Captured{}, err
	}
	if b.rec.BaseState == "" {
		b.rec.BaseState = c.Ref
		if err := b.save(); err != nil {
			return sandbox.Captured{}, err
		}
	}
	return sandbox.Captured{Ref: c.Ref, SizeBytes: c.BytesAdded, LeftOut: append(r.leftOut, b.renamed(c.LeftOut)...), Notices: c.Notices}, nil
}

// label is a state's commit message: a line for people, and which base it
// belongs to, for a restore into a sandbox that has another.
func (b *box) label(reason string) string {
	if reason == "" {
		reason = "state of sandbox " + b.ws.SandboxID
	}
	return reason + "\n\n" + baseTrailer + b.rec.Base + "\n" + startTreeTrailer + b.rec.Uncommitted + "\n"
}

const (
	baseTrailer      = "Base-Commit: "
	startTreeTrailer = "Start-Tree: "
)

// renamed gives snapshot's root names the resource's, and paths of the git
// directory the place where people know it.
func (b *box) renamed(list []agents.PathReason) []agents.PathReason {
	out := make([]agents.PathReason, len(list))
	for i, p := range list {
		if p.Resource == "git" {
			p.Path = ".git/" + p.Path
		}
		p.Resource = b.ws.Resource.Name
		out[i] = p
	}
	return out
}

// Restore puts files and git state back. It reports files only; a state that
// belongs to another base commit brings that base back too.
func (s *Strategy) Restore(ctx context.Context, ws sandbox.Workspace, req sandbox.RestoreRequest) (sandbox.Restored, error) {
	b, err := s.open(ws)
	if err != nil {
		return sandbox.Restored{}, err
	}
	got, err := b.restore(ctx, req)
	if err != nil {
		return sandbox.Restored{}, fmt.Errorf("restore sandbox %s: %w", ws.SandboxID, err)
	}
	return got, nil
}

func (b *box) restore(ctx context.Context, req sandbox.RestoreRequest) (sandbox.Restored, error) {
	if err := b.recoverMove(ctx); err != nil {
		return sandbox.Restored{}, err
	}
	ref := req.Ref
	if ref == "" {
		ref = b.rec.BaseState
	}
	if ref == "" {
		return sandbox.Restored{}, fmt.Errorf("no state was captured since creation: %w", agents.ErrNotFound)
	}
	r, err := b.recorder(ctx, req.Objects)
	if err != nil {
		return sandbox.Restored{}, err
	}
	defer r.close()
	origin, err := b.originOf(ctx, req.Objects, ref)
	if err != nil {
		return sandbox.Restored{}, err
	}
	if err := b.seed(ctx, r); err != nil {
		return sandbox.Restored{}, err
	}
	if !req.DryRun {
		if err := b.setAside(); err != nil {
			return sandbox.Restored{}, err
		}
		if err := b.knowBase(origin.base, origin.uncommitted); err != nil {
			return sandbox.Restored{}, err
		}
	}
	done, err := r.tracker.Restore(ctx, ref, snapshot.RestoreOptions{
		Stage: b.stageDir(), Journal: b.private("move"), DryRun: req.DryRun, Parent: b.rec.BaseState})
	if err != nil {
		return sandbox.Restored{}, err
	}
	out := sandbox.Restored{Changes: b.filesOf(done.Changes)}
	if req.DryRun {
		return out, nil
	}
	return out, b.repair()
}

// stageDir is where new contents are made: beside the sandbox, on its file system.
func (b *box) stageDir() string { return b.near("stage") }

// recoverMove ends a restore or an update that was killed.
func (b *box) recoverMove(ctx context.Context) error {
	if err := b.recoverUpdate(); err != nil {
		return err
	}
	if !exists(b.private("move")) {
		return nil
	}
	if err := snapshot.Recover(ctx, b.private("move")); err != nil {
		return err
	}
	b.settleBase()
	return nil
}

func (b *box) filesOf(list []agents.RestoredPath) []agents.RestoredPath {
	var out []agents.RestoredPath
	for _, p := range list {
		if p.Resource == "files" && p.Path != "" {
			p.Resource = b.ws.Resource.Name
			out = append(out, p)
		}
	}
	return out
}

// origin is what a state was counted from.
type origin struct{ base, uncommitted string }

// originOf reads it from the state's own commit.
func (b *box) originOf(ctx context.Context, objects, ref string) (origin, error) {
	store := git.Repo{Git: b.run, GitDir: objects}
	text, err := store.Read(ctx, "cat-file", "commit", ref)
	if err != nil {
		var said *git.Error
		if errors.As(err, &said) && said.Err == nil {
			return origin{}, fmt.Errorf("state %s: %w: %w", ref, err, agents.ErrDamaged)
		}
		return origin{}, err
	}
	var o origin
	for line := range strings.Lines(string(text)) {
		if v, ok := strings.CutPrefix(line, baseTrailer); ok {
			o.base = strings.TrimSpace(v)
		}
		if v, ok := strings.CutPrefix(line, startTreeTrailer); ok {
			o.uncommitted = strings.TrimSpace(v)
		}
	}
	if !isID(o.base) {
		return origin{}, fmt.Errorf("state %s names no base commit: %w", ref, agents.ErrDamaged)
	}
	return o, nil
}

// Prepare repairs what a command or an outsider may have broken around the
// sandbox: its .git file, locks that a killed git left in the private
// directory, the placeholder in the user's repository. The caller makes sure
// that no process of the plan is alive. The environment keeps git inside the
// sandbox from finding a repository above it.
func (s *Strategy) Prepare(ctx context.Context, ws sandbox.Workspace) ([]string, error) {
	b, err := s.open(ws)
	if err != nil {
		return nil, err
	}
	if err := b.recoverMove(ctx); err != nil {
		return nil, fmt.Errorf("end a killed restore: %w", err)
	}
	if err := b.repair(); err != nil {
		return nil, fmt.Errorf("repair sandbox: %w", err)
	}
	if err := b.repairPlaceholder(ctx); err != nil {
		return nil, fmt.Errorf("repair the plan's mark in %s: %w", b.rec.User.Root, err)
	}
	return []string{
		"GIT_CEILING_DIRECTORIES=" + filepath.Dir(b.rec.Path),
		"GIT_TERMINAL_PROMPT=0",
	}, ctx.Err()
}

// repair rewrites the links between the sandbox and its git directory where
// they are wrong, and removes stale locks.
func (b *box) repair() error {
	if !exists(b.rec.Path) {
		return agents.WithHint(fmt.Errorf("the sandbox's directory %s is gone: %w", b.rec.Path, agents.ErrNotFound), "its checkpoints can bring it back")
	}
	if err := b.setAside(); err != nil {
		return err
	}
	for _, f := range []struct {
		path string
		want []byte
	}{
		{filepath.Join(b.rec.Path, ".git"), b.pointer()},
		{filepath.Join(b.planGitDir(), "gitdir"), []byte(filepath.Join(b.rec.Path, ".git") + "\n")},
		{filepath.Join(b.planGitDir(), "commondir"), []byte("../..\n")},
		{filepath.Join(b.planDir(), "objects", "info", "alternates"), b.planAlternates()},
	} {
		if err := ensure(f.path, f.want); err != nil {
			return err
		}
	}
	if err := removeLocks(b.planDir()); err != nil {
		return err
	}
	return b.unlinkShared()
}

// setAside moves what a plan put in the place of the sandbox's .git file, such
// as a repository of its own, into the private directory, where states and
// archives hold it.
func (b *box) setAside() error {
	at := filepath.Join(b.rec.Path, ".git")
	fi, err := os.Lstat(at)
	if errors.Is(err, fs.ErrNotExist) || err == nil && fi.Mode().IsRegular() {
		return nil
	}
	if err != nil {
		return err
	}
	for n := 1; ; n++ {
		to := filepath.Join(b.planDir(), fmt.Sprintf("set-aside-%d", n))
		if exists(to) {
			continue
		}
		if err := fsx.Rename(at, to); err != nil {
			return err
		}
		return b.point()
	}
}

// repairPlaceholder makes the entry and the branch again where the user's
// worktree prune, repair or branch commands took them away.
func (b *box) repairPlaceholder(ctx context.Context) error {
	if !exists(b.rec.User.CommonDir) {
		return nil
	}
	if err := errors.Join(b.makeEntry(), b.settleTip(ctx)); err != nil {
		return err
	}
	if exists(filepath.Join(b.rec.User.CommonDir, filepath.FromSlash(b.rec.Branch))) {
		return nil // the usual case, without asking git
	}
	return b.repairBranch(ctx)
}
