package gitworktree

import (
	"bytes"
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/fsx"
	"github.com/cleveragents/agents/internal/git"
)

// step is one path that a move from one commit to another changes.
type step struct {
	git.Change
	before    fsx.Identity // what lies there; looked at before its content was
	indexOnly bool         // nothing on the disk changes: kept out by a sparse checkout, or a submodule
	makeDir   bool         // a new submodule's empty directory
	dropDir   bool         // an old submodule's empty directory
	flags     indexFlags   // of the entry that is there
	outside   bool         // a new path that the sparse checkout keeps out
	raw       string       // id of the bytes on the disk, unfiltered
	merged    []byte       // the new bytes with the user's uncommitted edits in them; nil = there are none
}

// indexFlags are the marks that a user can put on an index entry.
type indexFlags struct {
	Skip   bool `json:"skip_worktree,omitempty"`
	Assume bool `json:"assume_unchanged,omitempty"`
}

// inspection finds out whether a work tree and index can be moved.
type inspection struct {
	t       target
	index   git.Repo // t's repository with the index to look at
	from    string
	known   map[string]string    // ids of raw bytes that are from's, whatever a filter says
	keep    string               // a folder for merges of uncommitted edits; "" = those are in the way
	edited  []int                // steps at files with uncommitted edits
	entries []git.Entry          // the whole index, sorted
	at      map[string]git.Entry // entries of changed paths
	changed map[string]git.Change
	parents map[string]string // directory → why nothing can be changed in it, or ""
	doubts  []int             // steps whose bytes are not the blob's: git's filters decide
	steps   []step
	refused []agents.PathReason
}

// inspect looks at every path of changes, which lead from commit from to
// another one. It returns what to do at each path, or the paths that stand in
// the way with the reasons. It changes nothing. The ids of known are raw bytes
// that are from's. With keep, a folder, uncommitted edits of a file that
// changes are merged by lines with its new content, and stay uncommitted.
func inspect(ctx context.Context, t target, index git.Repo, from string, changes []git.Change, known map[string]string, keep string) ([]step, []agents.PathReason, error) {
	in := &inspection{
		t: t, index: index, from: from, known: known, keep: keep, changed: make(map[string]git.Change, len(changes)),
		at: make(map[string]git.Entry, len(changes)), parents: map[string]string{".": ""},
	}
	for _, c := range changes {
		in.changed[c.Path] = c
	}
	if err := in.readIndex(ctx); err != nil {
		return nil, nil, err
	}
	for _, c := range changes {
		if err := in.look(c); err != nil {
			return nil, nil, fmt.Errorf("look at %q: %w", c.Path, err)
		}
	}
	if err := in.resolveDoubts(ctx); err != nil {
		return nil, nil, err
	}
	if err := in.mergeEdits(ctx); err != nil {
		return nil, nil, err
	}
	if err := in.findIntents(ctx); err != nil {
		return nil, nil, err
	}
	slices.SortFunc(in.refused, func(a, b agents.PathReason) int { return strings.Compare(a.Path, b.Path) })
	return in.steps, in.refused, nil
}

func (in *inspection) readIndex(ctx context.Context) (err error) {
	if in.entries, err = in.index.Index(ctx); err != nil {
		return err
	}
	for _, e := range in.entries {
		if _, ok := in.changed[e.Path]; ok {
			in.at[e.Path] = e
		}
		if e.Stage > 1 && (len(in.refused) == 0 || in.refused[len(in.refused)-1].Path != e.Path) {
			in.refuse(e.Path, "it has an unresolved merge conflict")
		}
	}
	return nil
}

func (in *inspection) refuse(path, format string, args ...any) {
	in.refused = append(in.refused, agents.PathReason{Path: path, Reason: fmt.Sprintf(format, args...)})
}

// look checks one path's index entry, and then what lies on the disk.
func (in *inspection) look(c git.Change) error {
	s := step{Change: c}
	e, listed := in.at[c.Path]
	s.flags = indexFlags{Skip: e.SkipWorktree, Assume: e.AssumeValid}
	if why := in.staged(c, e, listed); why != "" {
		in.refuse(c.Path, "%s", why)
		return nil
	}
	if c.OldMode == git.ModeNone && listedBelow(in.entries, c.Path, in.changed) {
		in.refuse(c.Path, "a staged directory is in the way")
		return nil
	}
	var err error
	if s.before, err = fsx.Identify(in.path(c.Path)); err != nil && !errors.Is(err, syscall.ENOTDIR) {
		return err
	}
	if err := in.lookAtDisk(&s); err != nil {
		return err
	}
	in.steps = append(in.steps, s)
	return nil
}

// staged says what is wrong with a path's index entry, which must be that of
// the commit that the work tree is at.
func (in *inspection) staged(c git.Change, e git.Entry, listed bool) string {
	was := listed && e.Stage == 0 && e.Mode == c.OldMode && e.ID == c.OldID
	switch {
	case listed && e.Stage > 0:
		return "" // said already
	case was, !listed && c.OldMode == git.ModeNone:
		return ""
	case !listed && c.NewMode == git.ModeNone:
		return "its deletion is staged already"
	case !listed:
		return "its deletion is staged"
	case e.Mode == c.NewMode && e.ID == c.NewID:
		return "the same change is staged already"
	case c.OldMode == git.ModeNone:
		return "another file of this name is in the index"
	}
	return "it has staged changes"
}

// listedBelow reports whether the index has entries below path that are not
// among the changed ones.
func listedBelow(entries []git.Entry, path string, changed map[string]git.Change) bool {
	below := path + "/"
	i, _ := slices.BinarySearchFunc(entries, below, func(e git.Entry, p string) int { return strings.Compare(e.Path, p) })
	for ; i < len(entries) && strings.HasPrefix(entries[i].Path, below); i++ {
		if _, ok := changed[entries[i].Path]; !ok {
			return true
		}
	}
	return false
}

func (in *inspection) path(p string) string { return filepath.Join(in.t.root, filepath.FromSlash(p)) }

// lookAtDisk checks what lies at a path, and whether its directory lets it be changed.
func (in *inspection) lookAtDisk(s *step) error {
	why, err := in.parent(path.Dir(s.Path))
	if err != nil {
		return err
	}
	switch {
	case why != "" && s.flags.Skip && s.before.Kind == fsx.KindNone:
		s.indexOnly = true
		return nil
	case why != "":
		in.refuse(s.Path, "%s", why)
		return nil
	case s.OldMode == git.ModeNone:
		return in.lookAtFree(s)
	case s.OldMode == git.ModeGitlink:
		return in.lookAtSubmodule(s)
	}
	return in.lookAtOld(s)
}

// lookAtFree checks a path at which nothing may lie.
func (in *inspection) lookAtFree(s *step) error {
	if s.NewMode == git.ModeGitlink {
		return in.lookAtNewSubmodule(s)
	}
	switch s.before.Kind {
	case fsx.KindNone:
		return nil
	case fsx.KindDir:
		return in.lookInside(s)
	}
	in.refuse(s.Path, "%s is in the way that git does not track", s.before.Kind)
	return nil
}

// lookInside checks a directory that is to give way to a file: everything in
// it must be among the paths that go.
func (in *inspection) lookInside(s *step) error {
	left, err := in.leftOver(s.Path)
	if err != nil {
		return err
	}
	if left != "" {
		in.refuse(s.Path, "a directory is in the way; it holds %q", left)
	}
	return nil
}

// leftOver returns the first path below dir that does not go with the changes,
// dir itself if it is empty, or "".
func (in *inspection) leftOver(dir string) (string, error) {
	names, err := os.ReadDir(in.path(dir))
	if err != nil {
		return "", err
	}
	if len(names) == 0 {
		return dir, nil
	}
	for _, n := range names {
		p := dir + "/" + n.Name()
		c, ok := in.changed[p]
		goes := ok && c.OldMode != git.ModeNone && c.OldMode != git.ModeGitlink
		switch {
		case goes && !n.IsDir():
		case n.IsDir() && n.Name() != ".git" && !ok:
			if left, err := in.leftOver(p); left != "" || err != nil {
				return left, err
			}
		default:
			return p, nil
		}
	}
	return "", nil
}

// lookAtOld checks a path that must be as the commit has it.
func (in *inspection) lookAtOld(s *step) error {
	if s.before.Kind == fsx.KindNone {
		if s.flags.Skip {
			s.indexOnly = true
		} else {
			in.refuse(s.Path, "it was deleted and the deletion is not committed")
		}
		return nil
	}
	if s.flags.Skip && git.True(in.t.settings, "core.sparsecheckout") {
		in.refuse(s.Path, "it lies outside the sparse checkout but is there")
		return nil
	}
	if why := in.wrongKind(s); why != "" {
		in.refuse(s.Path, "%s", why)
		return nil
	}
	s.makeDir = s.NewMode == git.ModeGitlink
	var err error
	if s.raw, err = rawID(in.path(s.Path), s.before, in.t.found.ObjectFormat); err != nil {
		return err
	}
	if s.raw != s.OldID && s.raw != in.known[s.Path] {
		if s.OldMode == git.ModeSymlink {
			in.refuse(s.Path, "it has changes that are not committed")
			return nil
		}
		in.doubts = append(in.doubts, len(in.steps))
	}
	return nil
}

// wrongKind says why what lies at a path cannot be what the commit has there.
func (in *inspection) wrongKind(s *step) string {
	links := !in.off("core.symlinks")
	switch {
	case s.before.Kind == fsx.KindSymlink && s.OldMode == git.ModeSymlink:
		return ""
	case s.before.Kind != fsx.KindFile, s.OldMode == git.ModeSymlink && links:
		return fmt.Sprintf("it is now %s, which is not committed", s.before.Kind)
	case s.OldMode == git.ModeSymlink:
		return ""
	}
	if executable := s.before.Mode&0o100 != 0; executable != (s.OldMode == git.ModeExecutable) && !in.off("core.filemode") {
		return "its executable bit was changed and that is not committed"
	}
	return ""
}

func (in *inspection) off(key string) bool {
	_, given := git.Value(in.t.settings, key)
	return given && !git.True(in.t.settings, key)
}

// lookAtSubmodule checks a path that was a submodule: only the index has it,
// and its directory goes when it is empty.
func (in *inspection) lookAtSubmodule(s *step) error {
	s.indexOnly = true
	if s.NewMode == git.ModeGitlink || s.before.Kind == fsx.KindNone && s.NewMode == git.ModeNone {
		return nil
	}
	s.indexOnly = s.NewMode == git.ModeNone
	if s.before.Kind != fsx.KindDir {
		if s.before.Kind != fsx.KindNone {
			in.refuse(s.Path, "%s is where a submodule was", s.before.Kind)
		}
		return nil
	}
	names, err := os.ReadDir(in.path(s.Path))
	switch {
	case err != nil:
		return err
	case len(names) == 0:
		s.dropDir = true
	case s.NewMode != git.ModeNone:
		in.refuse(s.Path, "a submodule is in the way")
	}
	return nil
}

// lookAtNewSubmodule checks a path that becomes a submodule. git gives it an
// empty directory; a repository that is there already stays.
func (in *inspection) lookAtNewSubmodule(s *step) error {
	s.indexOnly = true
	switch s.before.Kind {
	case fsx.KindNone:
		s.makeDir = true
		return nil
	case fsx.KindDir:
		names, err := os.ReadDir(in.path(s.Path))
		if err != nil {
			return err
		}
		if _, err := os.Lstat(in.path(s.Path + "/.git")); err == nil || len(names) == 0 {
			return nil
		}
	}
	in.refuse(s.Path, "%s is where a submodule comes", s.before.Kind)
	return nil
}

// parent says why nothing can be changed in a directory of the work tree, or
// "". One that is not there yet, or that replaces a file which goes, can be.
func (in *inspection) parent(dir string) (why string, err error) {
	if why, known := in.parents[dir]; known {
		return why, nil
	}
	defer func() { in.parents[dir] = why }()
	if why, err := in.parent(path.Dir(dir)); why != "" || err != nil {
		return why, err
	}
	fi, err := lstatOrNil(in.path(dir))
	if err != nil || fi == nil {
		return "", err
	}
	if !fi.IsDir() {
		if c, ok := in.changed[dir]; ok && c.OldMode != git.ModeNone && c.NewMode == git.ModeNone {
			return "", nil
		}
		if fi.Mode()&os.ModeSymlink != 0 {
			return fmt.Sprintf("%q above it is now a symbolic link", dir), nil
		}
		return fmt.Sprintf("the file %q is in the way", dir), nil
	}
	if _, err := os.Lstat(in.path(dir + "/.git")); err == nil {
		return fmt.Sprintf("it is inside another repository, %q", dir), nil
	}
	if !writable(in.path(dir)) {
		return fmt.Sprintf("the directory %q cannot be written", dir), nil
	}
	return "", nil
}

// resolveDoubts asks git whether files whose bytes differ from the commit's
// blobs are the same once its filters and line ends are applied.
func (in *inspection) resolveDoubts(ctx context.Context) error {
	if len(in.doubts) == 0 {
		return nil
	}
	var names bytes.Buffer
	for _, i := range in.doubts {
		names.WriteString(quoteC(in.steps[i].Path) + "\n")
	}
	out, err := in.index.Ask(ctx, &names, "hash-object", "--stdin-paths")
	if err != nil {
		return fmt.Errorf("compare the work tree with the commit: %w", err)
	}
	ids := strings.Fields(string(out))
	if len(ids) != len(in.doubts) {
		return fmt.Errorf("hash-object gave %d ids for %d files: %w", len(ids), len(in.doubts), agents.ErrDamaged)
	}
	var differ []string
	for n, i := range in.doubts {
		if s := &in.steps[i]; ids[n] != s.OldID {
			differ = append(differ, s.Path)
		}
	}
	return in.resolveByTimes(ctx, differ)
}

// resolveByTimes refuses the paths that differ, unless git knows by their
// times that they are as it wrote them: a filter need not give the same bytes
// twice.
func (in *inspection) resolveByTimes(ctx context.Context, differ []string) error {
	for chunk := range slices.Chunk(differ, 500) {
		out, err := in.index.Read(ctx, append([]string{"diff-files", "--name-only", "-z", "--"}, chunk...)...)
		if err != nil {
			return err
		}
		dirty := git.Fields(out)
		for _, p := range chunk {
			e := in.at[p]
			if !slices.Contains(dirty, p) && !e.AssumeValid && !e.SkipWorktree {
				continue
			}
			if at := in.editable(p); at >= 0 {
				in.edited = append(in.edited, at)
				continue
			}
			in.refuse(p, "it has changes that are not committed")
		}
	}
	return nil
}

// findIntents refuses paths that are in the index only as an intent to add:
// git lists them like an empty file.
func (in *inspection) findIntents(ctx context.Context) error {
	empty := emptyBlob(in.t.found.ObjectFormat)
	var doubtful []string
	for _, s := range in.steps {
		if s.OldID == empty {
			doubtful = append(doubtful, s.Path)
		}
	}
	if len(doubtful) == 0 {
		return nil
	}
	args := []string{"diff-index", "--cached", "--name-only", "-z", "--no-renames", "--ita-invisible-in-index", in.from, "--"}
	out, err := in.index.Read(ctx, append(args, doubtful...)...)
	for _, p := range git.Fields(out) {
		in.refuse(p, "its deletion is staged")
	}
	return err
}

// rawID returns the id that git would give the bytes of a file, or the target
// of a link, without any filter.
func rawID(path string, id fsx.Identity, format string) (string, error) {
	var h hash.Hash = sha1.New()
	if format == "sha256" {
		h = sha256.New()
	}
	if id.Kind == fsx.KindSymlink {
		fmt.Fprintf(h, "blob %d\x00%s", len(id.Target), id.Target)
		return hex.EncodeToString(h.Sum(nil)), nil
	}
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	fmt.Fprintf(h, "blob %d\x00", id.Size)
	n, err := io.Copy(h, f)
	if err == nil && n != id.Size {
		return "", fmt.Errorf("%s changes while it is read: %w", path, agents.ErrConflict)
	}
	return hex.EncodeToString(h.Sum(nil)), err
}

func emptyBlob(format string) string {
	if format == "sha256" {
		return "473a0f4c3be8a93681a267e3b1e9a7dcda1185436fe141f7749120a303721813"
	}
	return "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"
}

// quoteC spells a name as git reads it from lines: names that hold a line end
// or begin with a quote are quoted like strings in C.
func quoteC(name string) string {
	if !strings.ContainsAny(name, "\"\\\n\r") {
		return name
	}
	r := strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\r", `\r`)
	return `"` + r.Replace(name) + `"`
}
