package gitworktree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/fsx"
	"github.com/cleveragents/agents/internal/git"
	"github.com/cleveragents/agents/sandbox"
)

// includeFile names the patterns, in gitignore syntax, of ignored files that
// a sandbox needs.
const includeFile = ".worktreeinclude"

// include copies the ignored files in that the user asked for, and tells what
// stays outside.
func (b *box) include(ctx context.Context, req sandbox.CreateRequest) error {
	if b.rec.User.Bare {
		return nil
	}
	names, err := b.included(ctx, req.Options.GitInclude)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := b.copyIn(name); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	b.rec.Included = names
	b.tellOutside(ctx, req)
	return nil
}

// included lists the user's ignored files that match the patterns.
func (b *box) included(ctx context.Context, patterns []string) ([]string, error) {
	text, err := os.ReadFile(filepath.Join(b.rec.User.Root, includeFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	text = append(append(text, '\n'), strings.Join(patterns, "\n")...)
	if strings.TrimSpace(string(text)) == "" {
		return nil, nil
	}
	file := b.private("include")
	if err := put(file, append(text, '\n'), 0o600); err != nil {
		return nil, err
	}
	wanted, err := b.user().Read(ctx, "ls-files", "-z", "--others", "--ignored", "--exclude-from="+file)
	if err != nil {
		return nil, err
	}
	ignored, err := b.user().Read(ctx, "ls-files", "-z", "--others", "--ignored", "--exclude-standard")
	if err != nil {
		return nil, err
	}
	all := map[string]bool{}
	for _, name := range git.Fields(ignored) {
		all[name] = true
	}
	names := git.Fields(wanted)
	return slices.DeleteFunc(names, func(name string) bool { return !all[name] || strings.HasSuffix(name, "/") }), nil
}

// copyIn copies one file or link of the user's tree to the same place in the
// sandbox, unless something is there already.
func (b *box) copyIn(name string) error {
	from := filepath.Join(b.rec.User.Root, filepath.FromSlash(name))
	to := filepath.Join(b.rec.Path, filepath.FromSlash(name))
	fi, err := os.Lstat(from)
	if err != nil {
		return err
	}
	if exists(to) {
		return nil
	}
	if err := fsx.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	switch {
	case fi.Mode()&fs.ModeSymlink != 0:
		target, err := os.Readlink(from)
		if err != nil {
			return err
		}
		return fsx.Symlink(b.reroot(target), to)
	case !fi.Mode().IsRegular():
		return nil
	}
	if err := copyOver(from, to); err != nil {
		return err
	}
	if err := fsx.Chmod(to, fi.Mode().Perm()); err != nil {
		return err
	}
	return fsx.Chtimes(to, fi.ModTime())
}

// reroot turns a link target inside the user's tree into the same place in
// the sandbox.
func (b *box) reroot(target string) string {
	rel, err := filepath.Rel(b.rec.User.Root, target)
	if err != nil || !filepath.IsAbs(target) || rel == ".." || strings.HasPrefix(rel, "../") {
		return target
	}
	return filepath.Join(b.rec.Path, rel)
}

// tellOutside tells the user how much of the real tree the sandbox does not have.
// Filters do not run for it: they may write into the user's repository, as
// git-lfs does, and a count is not worth that.
func (b *box) tellOutside(ctx context.Context, req sandbox.CreateRequest) {
	user, out := b.user(), []byte(nil)
	settings, err := user.Settings(ctx)
	if err == nil {
		user.Config = append(user.Config, noFilters(settings)...)
		out, err = user.Read(ctx, "status", "--porcelain=v1", "-z", "--untracked-files=normal", "--ignored=matching", "--ignore-submodules=all", "--no-renames")
	}
	if err != nil {
		req.Notify("the uncommitted changes of " + b.rec.User.Root + " could not be counted; the sandbox does not have them")
		return
	}
	uncommitted, ignored := 0, 0
	for _, f := range git.Fields(out) {
		switch {
		case strings.HasPrefix(f, "!! ") && b.has(f[3:]):
		case strings.HasPrefix(f, "!! "):
			ignored++
		default:
			uncommitted++
		}
	}
	if uncommitted > 0 && !req.IncludeUncommitted {
		req.Notify(fmt.Sprintf("%s not in the sandbox: it starts from commit %.12s (--include-uncommitted takes them along)",
			count(uncommitted, "uncommitted change is", "uncommitted changes are"), b.rec.Start))
	}
	if ignored > 0 {
		req.Notify(fmt.Sprintf("%s not in the sandbox; name what it needs in %s or sandbox.git.include",
			count(ignored, "ignored file or directory is", "ignored files or directories are"), includeFile))
	}
}

// has reports whether the sandbox has the file, or anything of the directory.
func (b *box) has(name string) bool {
	return exists(filepath.Join(b.rec.Path, filepath.FromSlash(strings.TrimSuffix(name, "/"))))
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// foldUncommitted makes a tree of the user's present files: tracked ones as
// they are, staged or not, and untracked ones that are not ignored. The user's
// repository is only read: the work is done in the trusted git directory, where
// filters such as git-lfs put what they make.
func (b *box) foldUncommitted(ctx context.Context) error {
	if b.rec.User.Bare {
		return fmt.Errorf("%s is bare and has no files: %w", b.rec.User.Root, agents.ErrInvalid)
	}
	head, err := b.user().Head(ctx)
	if err != nil {
		return err
	}
	if head.Commit != b.rec.Start {
		return fmt.Errorf("the sandbox does not start from what is checked out: %w", agents.ErrInvalid)
	}
	index := b.private("trusted", "uncommitted-index")
	if err := copyOver(filepath.Join(b.rec.User.GitDir, "index"), index); err != nil {
		return err
	}
	if err := b.copySharedIndex(b.rec.User.GitDir); err != nil {
		return err
	}
	at := b.trusted()
	at.WorkTree, at.IndexFile = b.rec.User.Root, index
	if _, err := stageAll(ctx, at, ""); err != nil {
		return err
	}
	tree, err := at.WriteLine(ctx, "write-tree")
	if err != nil {
		return err
	}
	base, err := b.user().ReadLine(ctx, "rev-parse", "--verify", "--end-of-options", b.rec.Base+"^{tree}")
	if err != nil {
		return err
	}
	if tree == base {
		return nil
	}
	b.rec.Uncommitted = tree
	return b.shareLFS(ctx)
}

// warnStaged says which of the uncommitted changes are staged: the index is the
// user's, and apply refuses to put anything else there.
func (b *box) warnStaged(ctx context.Context, notify func(string)) error {
	out, err := b.user().Read(ctx, "diff-index", "--cached", "--name-only", "--no-renames", "-z", "HEAD", "--")
	if err != nil {
		return err
	}
	staged := git.Fields(out)
	if len(staged) == 0 {
		return nil
	}
	what := agents.EscapePath(staged[0])
	if len(staged) > 1 {
		what += fmt.Sprintf(" and %d more", len(staged)-1)
	}
	notify("staged changes of " + what + ": where the plan changes the same file, apply will refuse until they are unstaged or committed")
	return nil
}

// shareLFS lets the checkout find what git-lfs put aside for uncommitted files.
func (b *box) shareLFS(ctx context.Context) error {
	made := b.private("trusted", "lfs")
	if !isDir(made) {
		return nil
	}
	_, err := fsx.CopyTree(ctx, made, filepath.Join(b.planDir(), "lfs"))
	return err
}

// noFilters are settings that turn all clean filters off.
func noFilters(all []git.Setting) []string {
	off := map[string]string{"clean": "", "process": "", "required": "false"}
	var out []string
	for _, s := range all {
		if value, ok := off[s.Key[strings.LastIndexByte(s.Key, '.')+1:]]; ok && strings.HasPrefix(s.Key, "filter.") {
			out = append(out, s.Key+"="+value)
		}
	}
	return out
}
