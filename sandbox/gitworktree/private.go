package gitworktree

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cleveragents/agents/internal/fsx"
	"github.com/cleveragents/agents/internal/git"
)

// makePrivate makes the private common directory and the trusted git
// directory, and returns the user's settings.
func (b *box) makePrivate(ctx context.Context) ([]git.Setting, error) {
	if b.rec.Near != "" {
		if err := fsx.MkdirAll(b.near("git"), 0o700); err != nil {
			return nil, err
		}
		if err := fsx.Symlink(b.near("git"), b.private("git")); err != nil {
			return nil, err
		}
	}
	for _, dir := range []string{"git/refs/heads", "git/refs/tags", "git/objects/info", "git/hooks", "git/info",
		"git/worktrees/sandbox/info", "states", "trusted/refs", "trusted/objects/info", "trusted/info"} {
		if err := fsx.MkdirAll(b.private(filepath.FromSlash(dir)), 0o700); err != nil {
			return nil, err
		}
	}
	settings, err := b.makeConfig(ctx)
	if err != nil {
		return nil, err
	}
	b.rec.Partial = isPartial(settings)
	if err := b.makeObjects(); err != nil {
		return nil, err
	}
	if err := b.makeRefs(ctx); err != nil {
		return nil, err
	}
	if err := b.copyInfo(); err != nil {
		return nil, err
	}
	return settings, put(b.private("trusted", "mode"), nil, 0o666) // made with the umask: what a checkout gives
}

// makeConfig writes both directories' configuration from the user's.
func (b *box) makeConfig(ctx context.Context) ([]git.Setting, error) {
	user, err := b.user().Settings(ctx)
	if err != nil {
		return nil, fmt.Errorf("read git's settings: %w", err)
	}
	hooks := ""
	if hooksElsewhere(user) {
		hooks = filepath.Join(b.planDir(), "hooks")
	}
	for _, dir := range []string{b.planDir(), b.private("trusted")} {
		first, last := ours(b.rec.User.Format, hooks)
		// Detached, so that no branch counts as checked out outside the sandbox.
		if err := put(filepath.Join(dir, "HEAD"), []byte(b.rec.Base+"\n"), 0o600); err != nil {
			return nil, err
		}
		if err := put(filepath.Join(dir, "config"), renderConfig(formatVersion(first)), 0o600); err != nil {
			return nil, err
		}
		elsewhere, err := settingsElsewhere(ctx, b.run, dir)
		if err != nil {
			return nil, err
		}
		all := append(first, flatten(user, elsewhere, b.rec.User.Root)...)
		all = append(all, last...)
		all = append(all, identity(user)...)
		if err := put(filepath.Join(dir, "config"), renderConfig(formatVersion(all)), 0o600); err != nil {
			return nil, err
		}
	}
	return user, nil
}

// identity gives a plan's own commits an author where the user has none.
func identity(user []git.Setting) []git.Setting {
	var out []git.Setting
	for _, s := range []git.Setting{setting("user.name", nobody.Name), setting("user.email", nobody.Email)} {
		if v, ok := git.Value(user, s.Key); !ok || v == "" {
			out = append(out, s)
		}
	}
	return out
}

func isPartial(all []git.Setting) bool {
	return slices.ContainsFunc(all, func(s git.Setting) bool {
		return s.Key == "extensions.partialclone" || strings.HasPrefix(s.Key, "remote.") && strings.HasSuffix(s.Key, ".promisor")
	})
}

// makeObjects lets both directories read the user's objects, and the trusted
// one the plan's as well.
func (b *box) makeObjects() error {
	if err := put(filepath.Join(b.planDir(), "objects", "info", "alternates"), b.planAlternates(), 0o600); err != nil {
		return err
	}
	both := git.QuoteAlternate(filepath.Join(b.planDir(), "objects")) + "\n" + string(b.planAlternates())
	return put(b.private("trusted", "objects", "info", "alternates"), []byte(both), 0o600)
}

func (b *box) planAlternates() []byte { return []byte(git.QuoteAlternate(b.rec.User.Objects) + "\n") }

// makeRefs copies the user's refs, but for the stash, the plans' branches and
// what belongs to the user's worktree alone, and puts the sandbox on its branch.
func (b *box) makeRefs(ctx context.Context) error {
	refs, err := b.user().Refs(ctx)
	if err != nil {
		return fmt.Errorf("list refs: %w", err)
	}
	var packed, replaced bytes.Buffer
	packed.WriteString("# pack-refs with: sorted \n")
	replaced.WriteString("# pack-refs with: sorted \n")
	for _, r := range refs {
		switch {
		case notForPlans(r.Name):
		case r.Symref != "":
			if err := put(filepath.Join(b.planDir(), filepath.FromSlash(r.Name)), []byte("ref: "+r.Symref+"\n"), 0o600); err != nil {
				return err
			}
		default:
			fmt.Fprintf(&packed, "%s %s\n", r.ID, r.Name)
			if strings.HasPrefix(r.Name, "refs/replace/") {
				fmt.Fprintf(&replaced, "%s %s\n", r.ID, r.Name)
			}
		}
	}
	for _, f := range []struct {
		path string
		data []byte
	}{
		{filepath.Join(b.planDir(), "packed-refs"), packed.Bytes()},
		{b.private("trusted", "packed-refs"), replaced.Bytes()},
		{b.private("trusted", "given-refs"), packed.Bytes()},
		{filepath.Join(b.planDir(), filepath.FromSlash(b.rec.Branch)), []byte(b.rec.Start + "\n")},
		{filepath.Join(b.planDir(), marker), []byte(b.rec.Base + "\n")},
		{filepath.Join(b.planGitDir(), "HEAD"), []byte("ref: " + b.rec.Branch + "\n")},
		{filepath.Join(b.planGitDir(), "commondir"), []byte("../..\n")},
		{filepath.Join(b.planGitDir(), "gitdir"), []byte(filepath.Join(b.rec.Path, ".git") + "\n")},
	} {
		if err := put(f.path, f.data, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func notForPlans(ref string) bool {
	if ref == "refs/stash" {
		return true
	}
	for _, prefix := range []string{branchSpace, "refs/bisect/", "refs/worktree/", "refs/rewritten/"} {
		if strings.HasPrefix(ref, prefix) {
			return true
		}
	}
	return false
}

// copyInfo copies info/*, the shallow file and the sparse patterns.
func (b *box) copyInfo() error {
	entries, err := os.ReadDir(filepath.Join(b.rec.User.CommonDir, "info"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		if !e.Type().IsRegular() || e.Name() == "sparse-checkout" {
			continue
		}
		for _, to := range []string{"git", "trusted"} {
			if err := copyOver(filepath.Join(b.rec.User.CommonDir, "info", e.Name()), b.private(to, "info", e.Name())); err != nil {
				return err
			}
		}
	}
	for _, to := range []string{"git", "trusted"} {
		if err := copyOver(filepath.Join(b.rec.User.CommonDir, "shallow"), b.private(to, "shallow")); err != nil {
			return err
		}
	}
	return copyOver(filepath.Join(b.rec.User.GitDir, "info", "sparse-checkout"), filepath.Join(b.planGitDir(), "info", "sparse-checkout"))
}

// unlinkShared gives the private directory files of its own where git-lfs
// linked the user's, so that a plan cannot write through them.
func (b *box) unlinkShared() error {
	root := filepath.Join(b.planDir(), "lfs")
	if !exists(root) {
		return nil
	}
	return filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || !hasOtherLinks(p) {
			return err
		}
		if err := copyOver(p, p+".own"); err != nil {
			return err
		}
		return fsx.Rename(p+".own", p)
	})
}
