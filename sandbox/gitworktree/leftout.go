package gitworktree

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/git"
)

// leftOutFacts is what sealing found out on its way.
type leftOutFacts struct {
	staged staged
	links  []string // submodules with another commit
	refs   planRefs
	sealed string
}

// leftOut lists what the sandbox holds and a commit cannot carry.
func (b *box) leftOut(ctx context.Context, f leftOutFacts) ([]agents.PathReason, error) {
	var out []agents.PathReason
	add := func(path, format string, args ...any) {
		out = append(out, agents.PathReason{Resource: b.ws.Resource.Name, Path: path, Reason: fmt.Sprintf(format, args...)})
	}
	for _, p := range f.staged.nested {
		add(p, "an embedded repository")
	}
	for _, p := range f.staged.ignored {
		add(p, "a name that git does not take")
	}
	for _, p := range f.links {
		add(p, "the submodule's new commits; push them from the sandbox")
	}
	for _, list := range []func(context.Context, leftOutFacts, func(string, string, ...any)) error{b.ignoredLeft, b.refsLeft, b.filesLeft} {
		if err := list(ctx, f, add); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(out, func(x, y agents.PathReason) int { return strings.Compare(x.Path, y.Path) })
	return out, nil
}

// ignoredLeft lists ignored files that the plan made or changed, a directory
// that holds nothing else as one. Copied-in files that still are the user's do
// not count.
func (b *box) ignoredLeft(ctx context.Context, f leftOutFacts, add func(string, string, ...any)) error {
	var options []string
	if len(b.rec.Included) == 0 {
		options = append(options, "--directory")
	}
	paths, err := b.ignored(ctx, options...)
	if err != nil {
		return err
	}
	for _, p := range paths {
		if slices.Contains(b.rec.Included, p) && b.sameAsUsers(p) {
			continue
		}
		add(p, "ignored by the repository's rules")
	}
	return nil
}

// ignored lists what the repository's rules and the plan's own exclude file
// ignore, by the index that was last staged.
func (b *box) ignored(ctx context.Context, options ...string) ([]string, error) {
	at := b.trusted()
	at.IndexFile = b.private("trusted", "stage-index")
	args := append([]string{"ls-files", "-z", "--others", "--ignored", "--exclude-standard"}, options...)
	exclude := filepath.Join(b.planDir(), "info", "exclude")
	if fi, err := os.Lstat(exclude); err == nil && fi.Mode().IsRegular() {
		args = append(args, "--exclude-from="+exclude)
	}
	out, err := at.Read(ctx, args...)
	if err != nil {
		return nil, err
	}
	paths := git.Fields(out)
	for i := range paths {
		paths[i] = strings.TrimSuffix(paths[i], "/")
	}
	return paths, nil
}

// sameAsUsers reports whether a copied-in file still looks like the user's.
func (b *box) sameAsUsers(name string) bool {
	mine, err := os.Lstat(filepath.Join(b.rec.Path, filepath.FromSlash(name)))
	if err != nil {
		return false
	}
	theirs, err := os.Lstat(filepath.Join(b.rec.User.Root, filepath.FromSlash(name)))
	if err != nil {
		return false
	}
	if mine.Mode().Type() == fs.ModeSymlink {
		return theirs.Mode().Type() == fs.ModeSymlink
	}
	return mine.Size() == theirs.Size() && mine.ModTime().Equal(theirs.ModTime()) && mine.Mode() == theirs.Mode()
}

// refsLeft lists branches, tags, notes and stashes of the plan that lead to
// commits which the result does not hold.
func (b *box) refsLeft(ctx context.Context, f leftOutFacts, add func(string, string, ...any)) error {
	given, err := b.givenRefs()
	if err != nil {
		return err
	}
	at := b.trusted()
	names := make([]string, 0, len(f.refs.refs))
	for name, id := range f.refs.refs {
		if given[name] != id && !strings.HasPrefix(name, "refs/remotes/") && name != f.refs.branch {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		held, err := at.IsAncestor(ctx, f.refs.refs[name], f.sealed)
		if err != nil || !held {
			add(name, "%s of the plan that the result does not hold", refKind(name))
		}
	}
	if head := f.refs.head; head != "" {
		if held, err := at.IsAncestor(ctx, head, f.sealed); err != nil || !held {
			add("HEAD", "commits of the plan that do not descend from the base; their files are in the result, they are not")
		}
	}
	return ctx.Err()
}

func refKind(name string) string {
	switch {
	case name == "refs/stash":
		return "a stash"
	case strings.HasPrefix(name, "refs/heads/"):
		return "a branch"
	case strings.HasPrefix(name, "refs/tags/"):
		return "a tag"
	}
	return "a ref"
}

// givenRefs are the refs that the plan was given at creation.
func (b *box) givenRefs() (map[string]string, error) {
	text, err := os.ReadFile(b.private("trusted", "given-refs"))
	given := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if id, name, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			given[name] = id
		}
	}
	return given, err
}

// filesLeft lists empty directories and permission bits that git does not
// know. Embedded repositories and ignored directories have been named already.
func (b *box) filesLeft(ctx context.Context, f leftOutFacts, add func(string, string, ...any)) error {
	usual, err := usualModes(b.private("trusted", "mode"))
	if err != nil {
		return err
	}
	w := oddities{ctx: ctx, root: b.rec.Path, usual: usual, skip: map[string]bool{".git": true}, add: add}
	ignored, err := b.ignored(ctx, "--directory")
	if err != nil {
		return err
	}
	for _, p := range slices.Concat(f.staged.nested, f.staged.links, ignored) {
		w.skip[p] = true
	}
	_, err = w.walk("")
	return err
}

// modes are the permission bits that a checkout gives here.
type modes struct{ file, program, dir fs.FileMode }

// usualModes learns them from a file that was made with all read and write bits.
func usualModes(path string) (modes, error) {
	fi, err := os.Stat(path)
	if err != nil {
		return modes{}, err
	}
	file := fi.Mode().Perm()
	x := file & 0o444 >> 2
	return modes{file: file, program: file | x, dir: file | x}, nil
}

// oddities walks a sandbox for what a tree cannot say.
type oddities struct {
	ctx   context.Context
	root  string
	usual modes
	skip  map[string]bool
	add   func(string, string, ...any)
}

// walk reports whether there is any file below dir.
func (w *oddities) walk(dir string) (bool, error) {
	if err := w.ctx.Err(); err != nil {
		return false, err
	}
	entries, err := os.ReadDir(filepath.Join(w.root, filepath.FromSlash(dir)))
	if err != nil {
		return false, err
	}
	holds := false
	for _, e := range entries {
		path := strings.TrimPrefix(dir+"/"+e.Name(), "/")
		if w.skip[path] {
			holds = true
			continue
		}
		if e.Name() == ".git" {
			holds = true
			w.add(path, "never written back")
			continue
		}
		full, err := w.entry(path, e)
		if err != nil {
			return false, err
		}
		holds = holds || full
	}
	if !holds && dir != "" {
		w.add(dir, "an empty directory")
	}
	return holds, nil
}

// entry reports whether path is a file, or a directory with a file in it.
func (w *oddities) entry(path string, e fs.DirEntry) (bool, error) {
	fi, err := e.Info()
	if err != nil {
		return false, err
	}
	want := w.usual.file
	switch {
	case fi.IsDir():
		want = w.usual.dir
	case fi.Mode()&fs.ModeSymlink != 0:
		return true, nil
	case !fi.Mode().IsRegular():
		w.add(path, "neither a file nor a directory nor a link")
		return true, nil
	case fi.Mode()&0o100 != 0:
		want = w.usual.program
	}
	if got := fi.Mode() & (fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky); got != want {
		w.add(path, "permission bits %v, which git does not keep", got)
	}
	if !fi.IsDir() {
		return true, nil
	}
	return w.walk(path)
}
