package gitworktree

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/fsx"
	"github.com/cleveragents/agents/internal/git"
)

// staged is the present tree of a sandbox as git would store it.
type staged struct {
	tree    string
	nested  []string // embedded repositories, which are not in the tree
	links   []string // submodules
	ignored []string // paths that git cannot take, such as ".GIT/x"
	notices []string
}

// stage makes a tree of the sandbox's present files through the filters of the
// trusted configuration. It works on a copy of the plan's index, so that what
// the plan tracks counts, and leaves the plan's own alone. New objects go
// where at says.
func (b *box) stage(ctx context.Context, at git.Repo) (staged, error) {
	index, err := b.copyIndex(ctx, at)
	if err != nil {
		return staged{}, err
	}
	at.IndexFile = index.path
	st, err := stageAll(ctx, at, filepath.Join(b.planDir(), "info", "exclude"))
	if err != nil {
		return st, err
	}
	st.notices = append(st.notices, index.notices...)
	if err := b.dropIncluded(ctx, at); err != nil {
		return st, err
	}
	st.tree, err = at.WriteLine(ctx, "write-tree")
	return st, err
}

type indexCopy struct {
	path    string
	notices []string
}

// copyIndex copies the plan's index, or the one from creation where the
// plan's is missing or damaged.
func (b *box) copyIndex(ctx context.Context, at git.Repo) (indexCopy, error) {
	c := indexCopy{path: b.private("trusted", "stage-index")}
	if err := b.clearIndex(c.path); err != nil {
		return c, err
	}
	from := filepath.Join(b.planGitDir(), "index")
	if fi, err := os.Lstat(from); err == nil && fi.Mode().IsRegular() {
		if err := copyOver(from, c.path); err != nil {
			return c, err
		}
		if err := b.copySharedIndex(b.planGitDir()); err != nil {
			return c, err
		}
		at.IndexFile = c.path
		if _, err := at.Read(ctx, "ls-files", "-z", "--unmerged"); err == nil {
			return c, nil
		}
		if err := b.clearIndex(c.path); err != nil {
			return c, err
		}
	}
	c.notices = []string{"the sandbox's index was missing or damaged; the one from creation was taken"}
	return c, copyOver(b.private("trusted", "index"), c.path)
}

func (b *box) clearIndex(path string) error {
	return errors.Join(fsx.Remove(path), fsx.Remove(path+".lock"))
}

// copySharedIndex copies the other half of a split index from a git directory
// into the trusted one.
func (b *box) copySharedIndex(gitDir string) error {
	shared, err := filepath.Glob(filepath.Join(globQuote(gitDir), "sharedindex.*"))
	if err != nil {
		return err
	}
	for _, from := range shared {
		if fi, err := os.Lstat(from); err != nil || !fi.Mode().IsRegular() {
			continue
		}
		if err := copyOver(from, b.private("trusted", filepath.Base(from))); err != nil {
			return err
		}
	}
	return nil
}

func globQuote(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

// stageAll brings the index of at up to its work tree: all tracked files, and
// all others that are not ignored. A file that a sparse checkout left out
// stays as it is; one that is marked unchanged counts all the same. Embedded
// repositories are left out and named. The patterns of the file exclude count
// as well, if it is there.
func stageAll(ctx context.Context, at git.Repo, exclude string) (staged, error) {
	var st staged
	entries, err := at.Index(ctx)
	if err != nil {
		return st, err
	}
	for _, e := range entries {
		if e.Mode == git.ModeGitlink {
			st.links = append(st.links, e.Path)
		}
	}
	if err := settleFlags(ctx, at, entries); err != nil {
		return st, err
	}
	args := []string{"ls-files", "-z", "-t", "--others", "--modified", "--deleted", "--exclude-standard"}
	if fi, err := os.Lstat(exclude); err == nil && fi.Mode().IsRegular() {
		args = append(args, "--exclude-from="+exclude)
	}
	out, err := at.Read(ctx, args...)
	if err != nil {
		return st, err
	}
	var paths, gone []string
	linked := linkedDirs{root: at.WorkTree}
	for _, f := range git.Fields(out) {
		if len(f) < 3 {
			continue
		}
		path := f[2:]
		switch {
		case strings.HasSuffix(path, "/"):
			st.nested = append(st.nested, strings.TrimSuffix(path, "/"))
		case !takes(path):
			st.ignored = append(st.ignored, path)
		case linked.above(path):
			gone = append(gone, path) // git would refuse to look there
		default:
			paths = append(paths, path)
		}
	}
	if len(gone) > 0 {
		slices.Sort(gone)
		if _, err := at.Feed(ctx, git.NulList(slices.Compact(gone)), "update-index", "--force-remove", "-z", "--stdin"); err != nil {
			return st, err
		}
	}
	if len(paths) == 0 {
		return st, nil
	}
	slices.Sort(paths)
	_, err = at.Feed(ctx, git.NulList(slices.Compact(paths)), "update-index", "--add", "--remove", "--replace", "-z", "--stdin")
	return st, err
}

// linkedDirs knows which directories of a work tree are symbolic links by now.
type linkedDirs struct {
	root string
	seen map[string]bool
}

// above reports whether a link stands in place of a directory above the path.
func (l *linkedDirs) above(slash string) bool {
	dir := path.Dir(slash)
	if dir == "." {
		return false
	}
	if is, known := l.seen[dir]; known {
		return is
	}
	fi, err := os.Lstat(filepath.Join(l.root, filepath.FromSlash(dir)))
	is := err == nil && fi.Mode()&os.ModeSymlink != 0 || l.above(dir)
	if l.seen == nil {
		l.seen = map[string]bool{}
	}
	l.seen[dir] = is
	return is
}

// takes reports whether git would take the path into an index.
func takes(path string) bool {
	for _, c := range strings.Split(path, "/") {
		if strings.EqualFold(c, ".git") || strings.EqualFold(c, "git~1") {
			return false
		}
	}
	return true
}

// settleFlags makes every file that is there count, whatever the index's
// flags say, and refuses conflicts that nobody has resolved.
func settleFlags(ctx context.Context, at git.Repo, entries []git.Entry) error {
	var assumed, skipped, unresolved []string
	for _, e := range entries {
		switch {
		case e.Stage > 0:
			if hasMarkers(filepath.Join(at.WorkTree, filepath.FromSlash(e.Path))) {
				unresolved = append(unresolved, e.Path)
			}
		case e.SkipWorktree && exists(filepath.Join(at.WorkTree, filepath.FromSlash(e.Path))):
			skipped = append(skipped, e.Path)
		case e.AssumeValid:
			assumed = append(assumed, e.Path)
		}
	}
	if len(unresolved) > 0 {
		return agents.WithHint(fmt.Errorf("unresolved conflicts in %s: %w", strings.Join(slices.Compact(unresolved), ", "), agents.ErrBlocked),
			"resolve them in the sandbox, or roll back")
	}
	for _, f := range []struct {
		option string
		paths  []string
	}{{"--no-assume-unchanged", assumed}, {"--no-skip-worktree", skipped}} {
		if len(f.paths) == 0 {
			continue
		}
		if _, err := at.Feed(ctx, git.NulList(f.paths), "update-index", f.option, "-z", "--stdin"); err != nil {
			return err
		}
	}
	return nil
}

// hasMarkers reports whether a file holds a whole conflict as git marks it.
func hasMarkers(path string) bool {
	text, err := readRegular(path)
	if err != nil {
		return false
	}
	text = append([]byte("\n"), text...)
	return bytes.Contains(text, []byte("\n<<<<<<< ")) && bytes.Contains(text, []byte("\n>>>>>>> "))
}

// dropIncluded takes the ignored files that were copied in out of the index,
// where the plan added them.
func (b *box) dropIncluded(ctx context.Context, at git.Repo) error {
	if len(b.rec.Included) == 0 {
		return nil
	}
	_, err := at.Feed(ctx, git.NulList(b.rec.Included), "update-index", "--force-remove", "-z", "--stdin")
	return err
}

// from is what a sandbox's changes are counted from: the base commit, or the
// tree of uncommitted changes that it was created with.
func (b *box) from() string {
	if b.rec.Uncommitted != "" {
		return b.rec.Uncommitted
	}
	return b.rec.Base
}
