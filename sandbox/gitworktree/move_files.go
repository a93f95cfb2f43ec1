package gitworktree

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/fsx"
	"github.com/cleveragents/agents/internal/git"
)

// staged is where a path's new content is made.
func (m *transition) staged(p string) string {
	return filepath.Join(m.stage, "new", filepath.FromSlash(p))
}

// onDisk is where a path lies.
func (m *transition) onDisk(p string) string { return filepath.Join(m.t.root, filepath.FromSlash(p)) }

// comes reports whether the step puts a file or link on the disk.
func (s *step) comes() bool {
	return !s.indexOnly && s.NewMode != git.ModeNone && s.NewMode != git.ModeGitlink
}

// findOutside marks new paths that a sparse checkout keeps out of the work
// tree. git is asked by having it check out a tree of empty files.
func (m *transition) findOutside(ctx context.Context, repo git.Repo) error {
	if !git.True(m.t.settings, "core.sparsecheckout") {
		return nil
	}
	var in bytes.Buffer
	for _, s := range m.steps {
		if s.OldMode == git.ModeNone && s.comes() {
			fmt.Fprintf(&in, "%s %s\t%s\x00", git.ModeFile, emptyBlob(m.t.found.ObjectFormat), s.Path)
		}
	}
	if in.Len() == 0 {
		return nil
	}
	outside, err := m.askSparse(ctx, repo, &in)
	if err != nil {
		return fmt.Errorf("ask for the sparse checkout: %w", err)
	}
	for i := range m.steps {
		if s := &m.steps[i]; outside[s.Path] && s.OldMode == git.ModeNone {
			s.outside, s.indexOnly = true, true
		}
	}
	return nil
}

// askSparse returns which of the entries lie outside the sparse checkout.
func (m *transition) askSparse(ctx context.Context, repo git.Repo, entries *bytes.Buffer) (map[string]bool, error) {
	scratch := filepath.Join(m.stage, "scratch")
	repo.WorkTree, repo.Dir = filepath.Join(scratch, "tree"), ""
	repo.IndexFile, repo.ObjectDir = filepath.Join(scratch, "index"), filepath.Join(scratch, "objects")
	repo.Alternates = append(repo.Alternates[:len(repo.Alternates):len(repo.Alternates)], m.t.found.Objects)
	repo.Config = append(repo.Config[:len(repo.Config):len(repo.Config)], "index.sparse=false", "core.attributesFile="+os.DevNull)
	for _, dir := range []string{repo.WorkTree, repo.ObjectDir} {
		if err := fsx.Mkdir(dir, 0o700); err != nil {
			return nil, err
		}
	}
	if _, err := repo.Feed(ctx, strings.NewReader(""), "hash-object", "-w", "--stdin"); err != nil {
		return nil, err
	}
	if _, err := repo.Feed(ctx, entries, "update-index", "-z", "--index-info"); err != nil {
		return nil, err
	}
	tree, err := repo.WriteLine(ctx, "write-tree")
	if err != nil {
		return nil, err
	}
	if err := fsx.Remove(repo.IndexFile); err != nil {
		return nil, err
	}
	if _, err := repo.Write(ctx, "read-tree", "-m", "-u", tree); err != nil {
		return nil, err
	}
	listed, err := repo.Index(ctx)
	outside := map[string]bool{}
	for _, e := range listed {
		if e.SkipWorktree {
			outside[e.Path] = true
		}
	}
	return outside, err
}

// stageContents makes every new file aside: what the undo of an apply gives
// back is copied, the rest is checked out by git, with its filters.
func (m *transition) stageContents(ctx context.Context) error {
	var out []*step
	for i := range m.steps {
		s := &m.steps[i]
		switch {
		case s.makeDir:
			if err := fsx.MkdirAll(m.staged(s.Path), 0o777); err != nil {
				return err
			}
		case !s.comes():
		case s.merged != nil:
			if err := m.stageMerged(s); err != nil {
				return fmt.Errorf("stage %q: %w", s.Path, err)
			}
		case m.past.has(s.Path):
			if err := m.past.stage(s.Path, m.staged(s.Path)); err != nil {
				return fmt.Errorf("stage %q: %w", s.Path, err)
			}
		default:
			out = append(out, s)
		}
	}
	if err := m.checkOut(ctx, out); err != nil {
		return fmt.Errorf("check out the new contents: %w", err)
	}
	for _, s := range out {
		if err := m.settleStaged(s); err != nil {
			return fmt.Errorf("stage %q: %w", s.Path, err)
		}
	}
	return nil
}

// stageMerged writes the new content with the user's edits in it.
func (m *transition) stageMerged(s *step) error {
	p := m.staged(s.Path)
	if err := fsx.MkdirAll(filepath.Dir(p), 0o777); err != nil {
		return err
	}
	if err := fsx.WriteFile(p, s.merged, 0o644); err != nil {
		return err
	}
	return m.settleStaged(s)
}

// checkOut has git write contents into the stage. The index for it holds these
// paths and the .gitattributes files that decide about them.
func (m *transition) checkOut(ctx context.Context, steps []*step) error {
	if len(steps) == 0 {
		return nil
	}
	repo := m.repo()
	repo.WorkTree, repo.Dir, repo.IndexFile = filepath.Join(m.stage, "new"), "", filepath.Join(m.stage, "index.new")
	repo.Config = append(repo.Config[:len(repo.Config):len(repo.Config)],
		"core.sparseCheckout=false", "index.sparse=false", "core.untrackedCache=false")
	var entries bytes.Buffer
	var names []string
	for _, s := range steps {
		fmt.Fprintf(&entries, "%s %s\t%s\x00", s.NewMode, s.NewID, s.Path)
		names = append(names, s.Path)
	}
	attributes, err := m.attributes(ctx, repo, names)
	if err != nil {
		return err
	}
	for _, e := range attributes {
		fmt.Fprintf(&entries, "%s %s\t%s\x00", e.Mode, e.ID, e.Path)
	}
	if _, err := repo.Feed(ctx, &entries, "update-index", "-z", "--index-info"); err != nil {
		return err
	}
	_, err = repo.Feed(ctx, git.NulList(names), "checkout-index", "-f", "-z", "--stdin")
	return err
}

// attributes lists the .gitattributes files of the new commit above names.
func (m *transition) attributes(ctx context.Context, repo git.Repo, names []string) ([]git.TreeEntry, error) {
	seen := map[string]bool{}
	var ask []string
	for _, n := range names {
		for dir := path.Dir(n); !seen[dir]; dir = path.Dir(dir) {
			seen[dir] = true
			ask = append(ask, path.Join(dir, ".gitattributes"))
		}
	}
	var all []git.TreeEntry
	for chunk := range slices.Chunk(ask, 500) {
		entries, err := repo.Tree(ctx, m.to, chunk...)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if path.Base(e.Path) == ".gitattributes" && e.Type == "blob" && !slices.Contains(names, e.Path) {
				all = append(all, e)
			}
		}
	}
	return all, nil
}

// settleStaged gives a checked out file the permission bits of the one that it
// replaces, as far as the executable bit allows, and makes it durable.
func (m *transition) settleStaged(s *step) error {
	p := m.staged(s.Path)
	id, err := fsx.Identify(p)
	switch {
	case err != nil:
		return err
	case id.Kind == fsx.KindNone:
		return fmt.Errorf("git did not write it: %w", agents.ErrDamaged)
	case id.Kind != fsx.KindFile:
		return nil
	}
	if s.before.Kind == fsx.KindFile {
		want := s.before.Mode &^ 0o111
		if s.NewMode == git.ModeExecutable {
			want = s.before.Mode | (s.before.Mode&0o444)>>2
		}
		if s.NewMode == s.OldMode {
			want = s.before.Mode
		}
		if want != id.Mode {
			if err := fsx.Chmod(p, fs.FileMode(want).Perm()); err != nil {
				return err
			}
		}
	}
	return syncFile(p)
}

func syncFile(path string) error {
	f, err := fsx.OpenFile(path, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// saveBefore copies what goes or changes into the journal, and writes down
// every path.
func (m *transition) saveBefore() error {
	dir := filepath.Join(m.dir, beforeDir)
	if err := fsx.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for i := range m.steps {
		s := &m.steps[i]
		p := pathIntent{
			Path: rawPath(s.Path), OldMode: s.OldMode, OldID: s.OldID, NewMode: s.NewMode, NewID: s.NewID,
			IndexOnly: s.indexOnly, Outside: s.outside, Flags: s.flags, OldRaw: s.raw, Edits: s.merged != nil,
		}
		if !s.indexOnly && s.OldMode != git.ModeNone && s.before.Kind != fsx.KindNone {
			saved, err := m.save(s, dir, strconv.Itoa(i))
			if err != nil {
				return fmt.Errorf("%q: %w", s.Path, err)
			}
			p.Before = saved
		}
		if s.comes() {
			id, err := fsx.Identify(m.staged(s.Path))
			if err != nil {
				return err
			}
			if p.NewRaw, err = rawID(m.staged(s.Path), id, m.t.found.ObjectFormat); err != nil {
				return err
			}
		}
		m.intent.Paths = append(m.intent.Paths, p)
	}
	return fsx.SyncDir(dir)
}

// save copies one file into dir.
func (m *transition) save(s *step, dir, name string) (*savedFile, error) {
	saved := &savedFile{Perm: s.before.Mode, Mtime: s.before.Mtime}
	switch s.before.Kind {
	case fsx.KindSymlink:
		saved.Link = rawPath(s.before.Target)
		return saved, nil
	case fsx.KindDir:
		saved.IsDir = true
		return saved, nil
	}
	saved.File = name
	return saved, copyFile(m.onDisk(s.Path), filepath.Join(dir, name), 0o600)
}

// copyFile makes a durable copy of a file's bytes.
func copyFile(from, to string, perm fs.FileMode) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := fsx.Create(to, perm)
	if err != nil {
		return err
	}
	if _, err := out.ReadFrom(in); err != nil {
		return errors.Join(err, out.Close())
	}
	return errors.Join(out.Sync(), out.Close())
}

// prepareFiles writes the intent and prepares the move of the files.
func (m *transition) prepareFiles() error {
	ops, err := m.ops()
	if err != nil {
		return err
	}
	if err := putJSON(m.dir, intentFile, m.intent); err != nil {
		return err
	}
	journal := filepath.Join(m.dir, moveDir)
	if err := fsx.Mkdir(journal, 0o700); err != nil {
		return err
	}
	m.files, err = fsx.PrepareMove(journal, []string{m.t.root}, filepath.Join(m.stage, "hold"), ops)
	return err
}

// ops lists what changes on the disk: files and links, directories that are
// needed, and directories that are left empty.
func (m *transition) ops() ([]fsx.Op, error) {
	byPath := map[string]*fsx.Op{}
	for i := range m.steps {
		s := &m.steps[i]
		op := fsx.Op{Path: s.Path, Before: s.before}
		switch {
		case s.makeDir:
			op.Dir, op.Perm = true, m.stagedPerm(s.Path)
		case s.comes():
			op.Staged = m.staged(s.Path)
		case s.dropDir, !s.indexOnly && s.OldMode != git.ModeGitlink:
		default:
			continue
		}
		byPath[s.Path] = &op
	}
	if err := m.addParents(byPath); err != nil {
		return nil, err
	}
	if err := m.addEmptied(byPath); err != nil {
		return nil, err
	}
	ops := make([]fsx.Op, 0, len(byPath))
	for _, op := range byPath {
		ops = append(ops, *op)
	}
	slices.SortFunc(ops, func(a, b fsx.Op) int { return cmp.Compare(a.Path, b.Path) })
	return ops, nil
}

func goes(op *fsx.Op) bool { return op.Staged == "" && !op.Dir }

// stagedPerm is what git, or the before-image, gave a directory in the stage.
func (m *transition) stagedPerm(dir string) fs.FileMode {
	if perm, ok := m.past.dirPerm(dir); ok {
		return perm
	}
	if fi, err := os.Stat(m.staged(dir)); err == nil {
		return fi.Mode().Perm()
	}
	return 0o755
}

// addParents adds the directories that are missing above what comes.
func (m *transition) addParents(byPath map[string]*fsx.Op) error {
	var need []string
	for p, op := range byPath {
		if !goes(op) {
			need = append(need, path.Dir(p))
		}
	}
	for _, dir := range need {
		for ; dir != "."; dir = path.Dir(dir) {
			if op := byPath[dir]; op != nil {
				if goes(op) {
					op.Dir, op.Perm = true, m.stagedPerm(dir)
				}
				continue
			}
			fi, err := lstatOrNil(m.onDisk(dir))
			if err != nil {
				return err
			}
			if fi != nil {
				continue
			}
			byPath[dir] = &fsx.Op{Path: dir, Dir: true, Perm: m.stagedPerm(dir)}
		}
	}
	return nil
}

// addEmptied adds the directories in which nothing is left, as git does.
func (m *transition) addEmptied(byPath map[string]*fsx.Op) error {
	var dirs []string
	seen := map[string]bool{}
	for p, op := range byPath {
		if !goes(op) || op.Before.Kind == fsx.KindNone {
			continue
		}
		for dir := path.Dir(p); dir != "." && !seen[dir]; dir = path.Dir(dir) {
			seen[dir] = true
			dirs = append(dirs, dir)
		}
	}
	slices.SortFunc(dirs, func(a, b string) int { return cmp.Compare(strings.Count(b, "/"), strings.Count(a, "/")) })
	needed := neededDirs(byPath)
	for _, dir := range dirs {
		if op := byPath[dir]; op != nil { // it becomes a file
			if op.Before.Kind == fsx.KindDir {
				m.noteBits(dir, op.Before)
			}
			continue
		}
		if needed[dir] {
			continue // something comes into it
		}
		if err := m.addIfEmptied(byPath, dir); err != nil {
			return err
		}
	}
	return nil
}

func (m *transition) addIfEmptied(byPath map[string]*fsx.Op, dir string) error {
	id, err := fsx.Identify(m.onDisk(dir))
	if err != nil {
		return err
	}
	names, err := os.ReadDir(m.onDisk(dir))
	if err != nil {
		return err
	}
	for _, n := range names {
		if op := byPath[dir+"/"+n.Name()]; op == nil || !goes(op) {
			return nil
		}
	}
	byPath[dir] = &fsx.Op{Path: dir, Before: id}
	m.noteBits(dir, id)
	return nil
}

// noteBits keeps the permission bits of a directory that goes, for an undo.
func (m *transition) noteBits(dir string, id fsx.Identity) {
	m.intent.Dirs = append(m.intent.Dirs, pathIntent{Path: rawPath(dir), Before: &savedFile{IsDir: true, Perm: id.Mode}})
}

// neededDirs is the set of directories above what comes.
func neededDirs(byPath map[string]*fsx.Op) map[string]bool {
	needed := map[string]bool{}
	for p, op := range byPath {
		if goes(op) {
			continue
		}
		for dir := path.Dir(p); dir != "." && !needed[dir]; dir = path.Dir(dir) {
			needed[dir] = true
		}
	}
	return needed
}
