package gitworktree

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/fsx"
	"github.com/cleveragents/agents/internal/git"
	"github.com/cleveragents/agents/sandbox"
)

var _ sandbox.Archiver = (*Strategy)(nil)

// Unapplied reports whether the sandbox holds anything that is not in the
// user's repository: changes against the base, ignored files that the plan
// made, its own commits, branches, tags and stashes. What the original branch
// contains by now counts as applied.
func (s *Strategy) Unapplied(ctx context.Context, ws sandbox.Workspace) (bool, error) {
	b, err := s.open(ws)
	if err != nil {
		return false, err
	}
	unapplied, err := b.unapplied(ctx)
	if err != nil {
		return false, fmt.Errorf("look for unapplied work: %w", err)
	}
	return unapplied, nil
}

func (b *box) unapplied(ctx context.Context) (bool, error) {
	if err := b.settleTip(ctx); err != nil {
		return false, err
	}
	if b.baseGone(ctx) {
		return true, nil // nothing can be compared
	}
	if !isDir(b.rec.Path) {
		return b.unappliedBranch(ctx)
	}
	at, drop, err := b.quarantine()
	if err != nil {
		return false, err
	}
	defer drop()
	st, err := b.stage(ctx, at)
	if errors.Is(err, agents.ErrBlocked) {
		return true, nil // unresolved conflicts are work too
	}
	if err != nil {
		return false, err
	}
	home, err := b.isHome(ctx, at, st.tree)
	if err != nil || !home {
		return true, err
	}
	refs, err := b.planRefs()
	if err != nil {
		return false, err
	}
	left, err := b.leftOut(ctx, leftOutFacts{staged: st, refs: refs, sealed: b.homeCommit(ctx)})
	return len(left) > 0, err
}

// unappliedBranch answers for a sandbox whose directory is gone.
func (b *box) unappliedBranch(ctx context.Context) (bool, error) {
	if b.rec.Tip == "" {
		return false, nil
	}
	held, err := b.user().IsAncestor(ctx, b.rec.Tip, b.homeCommit(ctx))
	return !held, err
}

// homeCommit is where the result goes: the original branch's commit now, or
// the base where that is gone.
func (b *box) homeCommit(ctx context.Context) string {
	ref := b.rec.OriginalRef
	if ref == "" {
		ref = "HEAD"
	}
	if id, err := b.user().Commit(ctx, ref); err == nil {
		return id
	}
	return b.rec.Base
}

// isHome reports whether a tree holds no change, or only what was sealed and
// merged into the original branch.
func (b *box) isHome(ctx context.Context, at git.Repo, tree string) (bool, error) {
	changes, err := at.DiffTrees(ctx, b.from(), tree, git.DiffOptions{})
	if err != nil || len(changes) == 0 {
		return len(changes) == 0, err
	}
	if b.rec.Tip == b.rec.Start {
		return false, nil
	}
	merged, err := b.user().IsAncestor(ctx, b.rec.Tip, b.homeCommit(ctx))
	if err != nil || !merged {
		return false, err
	}
	return sameTree(ctx, at, b.rec.Tip, tree)
}

// What an archive holds.
const (
	archiveRecord  = "sandbox.json"
	archiveFiles   = "files"
	archiveGit     = "git"
	archiveObjects = "objects"
	archivePatch   = "result.patch"
	archiveBundle  = "result.bundle"
)

// Archive writes the whole sandbox into dir: its files and the plan's git
// directory byte for byte, with stashes, untracked and ignored files; and for
// people a patch of the result, and a bundle of the plan's refs that git
// fetch can read. Everything is durable when it returns.
func (s *Strategy) Archive(ctx context.Context, ws sandbox.Workspace, dir string) error {
	b, err := s.open(ws)
	if err != nil {
		return err
	}
	if err := b.archive(ctx, dir); err != nil {
		return fmt.Errorf("archive sandbox %s: %w", ws.SandboxID, err)
	}
	return nil
}

func (b *box) archive(ctx context.Context, dir string) error {
	if err := fsx.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := fsx.ClearDir(dir, ""); err != nil { // what a killed attempt left
		return err
	}
	if !b.baseGone(ctx) {
		if err := b.writeForPeople(ctx, dir); err != nil {
			return err
		}
	}
	for _, c := range []struct{ from, to string }{
		{b.rec.Path, archiveFiles},
		{b.planDir(), archiveGit},
		{b.private("trusted", "objects"), archiveObjects},
	} {
		if !isDir(c.from) {
			continue
		}
		if _, err := fsx.CopyTree(ctx, c.from, filepath.Join(dir, c.to)); err != nil {
			return err
		}
	}
	text, err := json.MarshalIndent(b.rec, "", "  ")
	if err != nil {
		return err
	}
	return fsx.Publish(filepath.Join(dir, archiveRecord), append(text, '\n'), 0o600)
}

// baseGone reports whether the user's git has removed the commit that the plan
// started from: the files are there, and nothing can be told in git's terms.
func (b *box) baseGone(ctx context.Context) bool {
	_, err := b.user().Commit(ctx, b.rec.Base)
	return errors.Is(err, agents.ErrNotFound)
}

// writeForPeople writes the patch and the bundle.
func (b *box) writeForPeople(ctx context.Context, dir string) error {
	if isDir(b.rec.Path) {
		if err := b.writePatch(ctx, filepath.Join(dir, archivePatch)); err != nil {
			return fmt.Errorf("%s: %w", archivePatch, err)
		}
	}
	if err := b.writeBundle(ctx, filepath.Join(dir, archiveBundle)); err != nil {
		return fmt.Errorf("%s: %w", archiveBundle, err)
	}
	return nil
}

// writePatch writes the result as git sees it. Unresolved conflicts are in
// the files, and then there is no patch.
func (b *box) writePatch(ctx context.Context, path string) error {
	at, drop, err := b.quarantine()
	if err != nil {
		return err
	}
	defer drop()
	st, err := b.stage(ctx, at)
	if errors.Is(err, agents.ErrBlocked) {
		return nil
	}
	if err != nil {
		return err
	}
	return writeSynced(path, func(w io.Writer) error { return at.Patch(ctx, w, b.from(), st.tree) })
}

func writeSynced(path string, write func(io.Writer) error) error {
	f, err := fsx.Create(path, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Sync(), f.Close())
}

// writeBundle writes the plan's commits that the user's repository lacks; none
// is no bundle.
func (b *box) writeBundle(ctx context.Context, path string) error {
	refs, err := b.planRefs()
	if err != nil {
		return err
	}
	given, err := b.givenRefs()
	if err != nil {
		return err
	}
	at, drop, err := b.bundleRefs(ctx, refs, given)
	if err != nil {
		return err
	}
	defer drop()
	args := []string{"bundle", "create", "--quiet", path, "--all", "^" + b.rec.Base}
	_, err = at.Do(ctx, git.Call{Args: args, Writes: true, OK: []int{128}}) // 128: an empty bundle is refused
	return err
}

// bundleRefs makes a git directory whose refs are those of the plan that
// differ from what it was given.
func (b *box) bundleRefs(ctx context.Context, refs planRefs, given map[string]string) (git.Repo, func(), error) {
	dir := b.private("trusted", "bundle")
	if err := fsx.RemoveAll(dir); err != nil {
		return git.Repo{}, nil, err
	}
	drop := func() { _ = fsx.RemoveAll(dir) }
	config, err := os.ReadFile(b.private("trusted", "config"))
	if err != nil {
		return git.Repo{}, nil, err
	}
	packed := "# pack-refs with: sorted \n"
	at := b.trusted()
	for _, name := range sortedKeys(refs.refs) {
		id := refs.refs[name]
		if _, err := at.Commit(ctx, id); err == nil && given[name] != id {
			packed += id + " " + name + "\n"
		}
	}
	for name, text := range map[string]string{
		"config": string(config), "packed-refs": packed, "HEAD": "ref: refs/heads/none\n",
		"objects/info/alternates": git.QuoteAlternate(b.private("trusted", "objects")) + "\n", "refs/.keep": "",
	} {
		if err := put(filepath.Join(dir, filepath.FromSlash(name)), []byte(text), 0o600); err != nil {
			return git.Repo{}, nil, errors.Join(err, fsx.RemoveAll(dir))
		}
	}
	return git.Repo{Git: b.run, GitDir: dir}, drop, nil
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// Unarchive makes a sandbox from an archive again, with the same base and
// branch. A repository that does not have the base commit any more is
// agents.ErrNotFound, a folder that is no archive agents.ErrDamaged.
func (s *Strategy) Unarchive(ctx context.Context, req sandbox.CreateRequest, dir string) (sandbox.Workspace, error) {
	old, err := readArchive(dir)
	if err != nil {
		return sandbox.Workspace{}, err
	}
	b, err := s.plan(ctx, req)
	if err != nil {
		return sandbox.Workspace{}, err
	}
	b.rec.Base, b.rec.Start, b.rec.OriginalRef, b.rec.Uncommitted = old.Base, old.Base, old.OriginalRef, old.Uncommitted
	b.rec.Included, b.rec.BaseState = old.Included, ""
	if _, err := b.user().Commit(ctx, old.Base); err != nil {
		return sandbox.Workspace{}, fmt.Errorf("base of the archive: %w", err)
	}
	if err := b.rebuild(ctx, req.Dir, dir, old); err != nil {
		detached, cancel := sandbox.Detach(ctx)
		defer cancel()
		return sandbox.Workspace{}, errors.Join(fmt.Errorf("restore archive: %w", err), s.Remove(detached, b.ws))
	}
	return b.ws, nil
}

func readArchive(dir string) (record, error) {
	old, err := loadRecord(dir)
	if err == nil && (!isDir(filepath.Join(dir, archiveGit)) || !isID(old.Base)) {
		err = fmt.Errorf("archive %s: %w", dir, agents.ErrDamaged)
	}
	return old, err
}

// rebuild is build from an archive.
func (b *box) rebuild(ctx context.Context, sandboxes, dir string, old record) error {
	if err := b.save(); err != nil {
		return err
	}
	settings, err := b.makePrivate(ctx)
	if err != nil {
		return err
	}
	b.rec.RawOnly = convertsLineEnds(settings)
	if err := fsx.MkdirAll(sandboxes, 0o700); err != nil {
		return err
	}
	for _, c := range []struct{ from, to string }{
		{archiveGit, b.planDir()},
		{archiveObjects, b.private("trusted", "objects")},
		{archiveFiles, b.rec.Path},
	} {
		from := filepath.Join(dir, c.from)
		if !isDir(from) {
			continue
		}
		if err := fsx.RemoveAll(c.to); err != nil {
			return err
		}
		if _, err := fsx.CopyTree(ctx, from, c.to); err != nil {
			return err
		}
	}
	return b.settleRebuilt(ctx, old)
}

// settleRebuilt makes the copies this sandbox's own.
func (b *box) settleRebuilt(ctx context.Context, old record) error {
	if err := fsx.MkdirAll(b.rec.Path, 0o700); err != nil {
		return err
	}
	if err := b.makeObjects(); err != nil {
		return err
	}
	if err := b.repair(); err != nil {
		return err
	}
	at := b.trusted()
	at.IndexFile = b.private("trusted", "index")
	if _, err := at.Write(ctx, "read-tree", "--end-of-options", b.rec.Base); err != nil {
		return err
	}
	if err := b.placeholder(ctx); err != nil {
		return err
	}
	b.rec.Ready, b.rec.Bases = true, old.Bases
	b.ws.Metadata = b.rec.metadata()
	return b.save()
}
