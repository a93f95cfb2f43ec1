package sandboxtest

import (
	"bytes"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/fsx"
	"github.com/cleveragents/agents/sandbox"
)

var (
	_ sandbox.Strategy  = (*Plain)(nil)
	_ sandbox.Undoer    = (*Plain)(nil)
	_ sandbox.Recoverer = (*Plain)(nil)
)

// Plain is the simplest strategy that meets the contract: whole copies of
// directories. It shows what Run asks for, and serves tests of what is built
// on strategies. It is slow, and survives no kill.
type Plain struct{}

// NewPlain returns the strategy.
func NewPlain() *Plain { return &Plain{} }

// Capabilities names it copy_on_write, which it stands in for.
func (*Plain) Capabilities() sandbox.Capabilities {
	return sandbox.Capabilities{
		Name: agents.CopyOnWrite, Isolates: true, Rollback: true, Files: true,
		EmptyDirsHome: true, FullModesHome: true, IgnoredHome: true,
	}
}

// Create copies the directory.
func (p *Plain) Create(ctx context.Context, req sandbox.CreateRequest) (sandbox.Workspace, error) {
	if fi, err := os.Stat(req.Resource.Location); err != nil || !fi.IsDir() {
		return sandbox.Workspace{}, fmt.Errorf("%s is no directory: %w", req.Resource.Location, agents.ErrInvalid)
	}
	ws, err := p.build(ctx, req)
	if err != nil {
		return sandbox.Workspace{}, errors.Join(err, p.Remove(context.WithoutCancel(ctx), sandbox.Workspace{PrivateDir: req.PrivateDir}))
	}
	return ws, nil
}

func (p *Plain) build(ctx context.Context, req sandbox.CreateRequest) (sandbox.Workspace, error) {
	if err := p.Remove(ctx, sandbox.Workspace{PrivateDir: req.PrivateDir}); err != nil {
		return sandbox.Workspace{}, err
	}
	ws := sandbox.Workspace{
		SandboxID: req.SandboxID, PlanID: req.PlanID, Resource: req.Resource, PrivateDir: req.PrivateDir, Options: req.Options,
		Path:     filepath.Join(req.Dir, "ca-sandbox-"+req.PlanID+"-"+req.SandboxID),
		Metadata: map[string]string{"strategy": string(agents.CopyOnWrite)},
	}
	if err := os.WriteFile(filepath.Join(req.PrivateDir, "path"), []byte(ws.Path), 0o600); err != nil {
		return ws, err
	}
	return ws, errors.Join(copyTree(ctx, req.Resource.Location, basePath(ws)), copyTree(ctx, req.Resource.Location, ws.Path))
}

func basePath(ws sandbox.Workspace) string { return filepath.Join(ws.PrivateDir, "base") }

// Capture copies the workspace into Objects, under its digest.
func (*Plain) Capture(ctx context.Context, ws sandbox.Workspace, req sandbox.CaptureRequest) (sandbox.Captured, error) {
	ref, err := keep(ctx, ws.Path, req.Objects)
	return sandbox.Captured{Ref: ref}, err
}

// keep copies a tree into a store of trees and returns its name there.
func keep(ctx context.Context, dir, store string) (string, error) {
	t, err := ReadTree(dir)
	if err != nil {
		return "", err
	}
	ref := strings.ReplaceAll(t.Digest(), " ", "-")
	if _, err := os.Stat(filepath.Join(store, ref)); err == nil {
		return ref, ctx.Err()
	}
	tmp := filepath.Join(store, "tmp")
	if err := errors.Join(os.RemoveAll(tmp), copyTree(ctx, dir, tmp)); err != nil {
		return "", err
	}
	return ref, os.Rename(tmp, filepath.Join(store, ref))
}

// kept returns where a tree is kept, once it is what its name says.
func kept(store, ref string) (string, Tree, error) {
	dir := filepath.Join(store, ref)
	t, err := ReadTree(dir)
	if err != nil || strings.ReplaceAll(t.Digest(), " ", "-") != ref {
		return "", nil, fmt.Errorf("state %s: %w", ref, agents.ErrDamaged)
	}
	return dir, t, nil
}

// Restore replaces the workspace by a copy of the kept one.
func (*Plain) Restore(ctx context.Context, ws sandbox.Workspace, req sandbox.RestoreRequest) (sandbox.Restored, error) {
	from, want, err := wanted(ws, req.Objects, req.Ref)
	if err != nil {
		return sandbox.Restored{}, err
	}
	now, err := ReadTree(ws.Path)
	if err != nil {
		return sandbox.Restored{}, err
	}
	var res sandbox.Restored
	for _, path := range now.Changed(want) {
		action := "restored"
		if _, stays := want[path]; !stays {
			action = "removed"
		}
		res.Changes = append(res.Changes, agents.RestoredPath{Resource: ws.Resource.Name, Path: path, Action: action})
	}
	if req.DryRun || len(res.Changes) == 0 {
		return res, ctx.Err()
	}
	return res, replace(ctx, ws, from)
}

func wanted(ws sandbox.Workspace, store, ref string) (string, Tree, error) {
	if ref != "" {
		return kept(store, ref)
	}
	t, err := ReadTree(basePath(ws))
	return basePath(ws), t, err
}

// replace swaps the workspace for a copy of another tree.
func replace(ctx context.Context, ws sandbox.Workspace, from string) error {
	stage, old := filepath.Join(ws.PrivateDir, "stage"), filepath.Join(ws.PrivateDir, "old")
	if err := errors.Join(fsx.RemoveAll(stage), copyTree(ctx, from, stage)); err != nil {
		return err
	}
	return errors.Join(os.Rename(ws.Path, old), os.Rename(stage, ws.Path), fsx.RemoveAll(old))
}

// Diff compares file by file.
func (*Plain) Diff(ctx context.Context, ws sandbox.Workspace, req sandbox.DiffRequest) ([]agents.FileChange, error) {
	from, old, err := wanted(ws, req.Objects, req.From)
	if err != nil {
		return nil, err
	}
	to := ws.Path
	now, err := ReadTree(to)
	if req.To != "" {
		to, now, err = kept(req.Objects, req.To)
	}
	if err != nil {
		return nil, err
	}
	return compareFiles(from, to, old.files(), now.files(), req), ctx.Err()
}

// Seal keeps a copy in the private folder.
func (*Plain) Seal(ctx context.Context, ws sandbox.Workspace, _ sandbox.SealRequest) (sandbox.Sealed, error) {
	store := filepath.Join(ws.PrivateDir, "sealed")
	if err := os.MkdirAll(store, 0o700); err != nil {
		return sandbox.Sealed{}, err
	}
	base, err := ReadTree(basePath(ws))
	if err != nil {
		return sandbox.Sealed{}, err
	}
	ref, err := keep(ctx, ws.Path, store)
	return sandbox.Sealed{Ref: ref, Unchanged: ref == strings.ReplaceAll(base.Digest(), " ", "-")}, err
}

// Apply writes the paths that differ from the base, where the resource still
// has what the base has.
func (*Plain) Apply(ctx context.Context, ws sandbox.Workspace, req sandbox.ApplyRequest) (agents.ResourceResult, error) {
	res := agents.ResourceResult{Resource: ws.Resource.Name, State: agents.ApplyFailed}
	from, want, err := kept(filepath.Join(ws.PrivateDir, "sealed"), req.Ref)
	if err != nil {
		return res, err
	}
	base, err := ReadTree(basePath(ws))
	if err != nil {
		return res, err
	}
	home, err := ReadTree(ws.Resource.Location)
	if err != nil {
		return res, err
	}
	paths := base.Changed(want)
	list(&res, paths, base, want)
	for _, path := range paths {
		if home[path] != base[path] && home[path] != want[path] {
			res.Conflicts = append(res.Conflicts, agents.PathReason{Resource: ws.Resource.Name, Path: path, Reason: "changed on the real side"})
		}
	}
	switch {
	case len(res.Conflicts) > 0:
		res.State = agents.ApplyConflict
	case len(paths) == 0:
		res.State = agents.ApplyUnchanged
	default:
		res.State = agents.ApplyApplied
	}
	if res.State != agents.ApplyApplied || req.DryRun {
		return res, ctx.Err()
	}
	if err := copyTree(ctx, ws.Resource.Location, filepath.Join(req.JournalDir, "before")); err != nil {
		return res, err
	}
	if err := bring(from, ws.Resource.Location, want, paths); err != nil {
		return res, err
	}
	return res, note(req.JournalDir, agents.ApplyApplied, home, paths, want)
}

// list sorts the paths of files into the result's lists.
func list(res *agents.ResourceResult, paths []string, base, want Tree) {
	base, want = base.files(), want.files()
	for _, path := range paths {
		_, was := base[path]
		_, is := want[path]
		switch {
		case !was && is:
			res.Added = append(res.Added, path)
		case was && !is:
			res.Deleted = append(res.Deleted, path)
		case was && is:
			res.Changed = append(res.Changed, path)
		}
	}
}

// plainJournal is what Plain remembers of an apply.
type plainJournal struct {
	State  agents.ApplyState
	Paths  []string
	Before Tree
	After  Tree
}

func note(dir string, state agents.ApplyState, before Tree, paths []string, after Tree) error {
	var data bytes.Buffer
	if err := gob.NewEncoder(&data).Encode(plainJournal{state, paths, before, after}); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "journal"), data.Bytes(), 0o600)
}

func readJournal(dir string) (plainJournal, error) {
	var j plainJournal
	data, err := os.ReadFile(filepath.Join(dir, "journal"))
	if err != nil {
		return j, err
	}
	return j, gob.NewDecoder(bytes.NewReader(data)).Decode(&j)
}

// CanUndo compares what the apply wrote with what is there.
func (*Plain) CanUndo(_ context.Context, ws sandbox.Workspace, journalDir string) error {
	j, err := readJournal(journalDir)
	if err != nil {
		return err
	}
	home, err := ReadTree(ws.Resource.Location)
	if err != nil {
		return err
	}
	for _, path := range j.Paths {
		if home[path] != j.After[path] {
			return fmt.Errorf("%s has changed since: %w", path, agents.ErrConflict)
		}
	}
	return nil
}

// Undo brings back what was there before the apply.
func (p *Plain) Undo(ctx context.Context, ws sandbox.Workspace, journalDir string) error {
	j, err := readJournal(journalDir)
	if err != nil {
		return err
	}
	if err := p.CanUndo(ctx, ws, journalDir); err != nil {
		return err
	}
	if err := bring(filepath.Join(journalDir, "before"), ws.Resource.Location, j.Before, j.Paths); err != nil {
		return err
	}
	return note(journalDir, agents.ApplyReverted, j.Before, j.Paths, j.After)
}

// Recover reads what the last call noted: a kill is not survived.
func (*Plain) Recover(ctx context.Context, ws sandbox.Workspace, journalDir string) (sandbox.Recovered, error) {
	j, err := readJournal(journalDir)
	if errors.Is(err, fs.ErrNotExist) {
		return sandbox.Recovered{State: agents.ApplyReverted}, nil
	}
	return sandbox.Recovered{State: j.State}, err
}

// Remove removes the copies.
func (*Plain) Remove(_ context.Context, ws sandbox.Workspace) error {
	path, err := os.ReadFile(filepath.Join(ws.PrivateDir, "path"))
	if err == nil {
		err = fsx.RemoveAll(string(path))
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	for _, name := range []string{"base", "sealed", "stage", "old", "path"} {
		err = errors.Join(err, fsx.RemoveAll(filepath.Join(ws.PrivateDir, name)))
	}
	return err
}

// copyTree copies a directory but its .git: bytes, permission bits and links.
func copyTree(ctx context.Context, from, to string) error {
	t, err := ReadTree(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	if err := bring(from, to, t, slices.Sorted(maps.Keys(t))); err != nil {
		return err
	}
	return ctx.Err()
}

// bring makes these sorted paths in to what they are in from, whose tree is
// want: first what goes, from the leaves up, then what comes, from the root
// down, then the directories' permission bits.
func bring(from, to string, want Tree, paths []string) error {
	for _, path := range slices.Backward(paths) {
		fi, err := os.Lstat(at(to, path))
		if err != nil || want[path].Mode.IsDir() && fi.IsDir() {
			continue
		}
		if err := fsx.RemoveAll(at(to, path)); err != nil {
			return err
		}
	}
	for _, path := range paths {
		if err := copyEntry(at(from, path), at(to, path), want[path]); err != nil {
			return err
		}
	}
	for _, path := range slices.Backward(paths) {
		if e := want[path]; e.Mode.IsDir() {
			if err := os.Chmod(at(to, path), e.Mode.Perm()); err != nil {
				return err
			}
		}
	}
	return nil
}

func copyEntry(from, to string, e Entry) error {
	switch {
	case e == Entry{}:
		return nil
	case e.Mode.IsDir():
		return errors.Join(os.MkdirAll(to, 0o700), os.Chmod(to, 0o700))
	case e.Mode&fs.ModeSymlink != 0:
		return os.Symlink(e.Target, to)
	}
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(to, data, 0o600), os.Chmod(to, e.Mode.Perm()))
}

// compareFiles lists how two trees of files differ.
func compareFiles(from, to string, old, now Tree, req sandbox.DiffRequest) []agents.FileChange {
	var changes []agents.FileChange
	for _, path := range old.Changed(now) {
		was, is := old[path], now[path]
		c := agents.FileChange{Path: path, Change: agents.ChangeModified}
		switch {
		case was == Entry{}:
			c.Change = agents.ChangeAdded
		case is == Entry{}:
			c.Change = agents.ChangeDeleted
		case was.Sum == is.Sum && was.Target == is.Target:
			c.Change = agents.ChangeMode
		}
		if c.Change != agents.ChangeMode {
			countLines(&c, content(from, path, was), content(to, path, is), req)
		}
		changes = append(changes, c)
	}
	if req.Counts {
		changes = findRenames(changes, old, now)
	}
	return changes
}

// content is what a diff compares of an entry: bytes, or a link's target.
func content(root, path string, e Entry) string {
	if e.Mode&fs.ModeSymlink != 0 || e == (Entry{}) {
		return e.Target
	}
	data, err := os.ReadFile(at(root, path))
	if err != nil {
		return ""
	}
	return string(data)
}

// countLines compares line by line, with the longest common subsequence.
func countLines(c *agents.FileChange, old, now string, req sandbox.DiffRequest) {
	if strings.Contains(old+now, "\x00") {
		c.Binary = req.Counts
		return
	}
	was, is := strings.SplitAfter(old, "\n"), strings.SplitAfter(now, "\n")
	was, is = slices.DeleteFunc(was, isEmpty), slices.DeleteFunc(is, isEmpty)
	if req.Patch != nil {
		fmt.Fprintf(req.Patch, "--- a/%s\n+++ b/%s\n-%s+%s", c.Path, c.Path, strings.Join(was, "-"), strings.Join(is, "+"))
	}
	if req.Counts {
		common := commonLines(was, is)
		c.Insertions, c.Deletions = len(is)-common, len(was)-common
	}
}

func isEmpty(s string) bool { return s == "" }

func commonLines(a, b []string) int {
	row := make([]int, len(b)+1)
	for i := range a {
		diagonal := 0
		for j := range b {
			above := row[j+1]
			row[j+1] = max(row[j+1], row[j])
			if a[i] == b[j] {
				row[j+1] = diagonal + 1
			}
			diagonal = above
		}
	}
	return row[len(b)]
}

// findRenames joins what went with what came under another name, unchanged.
func findRenames(changes []agents.FileChange, old, now Tree) []agents.FileChange {
	gone := map[string]string{}
	for _, c := range changes {
		if c.Change == agents.ChangeDeleted && old[c.Path].Sum != "" {
			gone[old[c.Path].Sum] = c.Path
		}
	}
	moved := map[string]bool{}
	for i, c := range changes {
		from, ok := gone[now[c.Path].Sum]
		if c.Change == agents.ChangeAdded && ok && !moved[from] {
			changes[i] = agents.FileChange{Path: c.Path, OldPath: from, Change: agents.ChangeRenamed}
			moved[from] = true
		}
	}
	return slices.DeleteFunc(changes, func(c agents.FileChange) bool {
		return c.Change == agents.ChangeDeleted && moved[c.Path]
	})
}
