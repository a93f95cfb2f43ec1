package gitworktree

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/git"
	"github.com/cleveragents/agents/sandbox"
)

// nobody signs commits where the user has no identity.
var nobody = git.Person{Name: "agents", Email: "agents@localhost"}

// Seal commits the present files through git's filters, with the trusted
// configuration, on top of the plan's own commits where these descend from the
// base; then it brings the commits to the user's object store and moves the
// plan's branch there. The commit is unsigned, and no hook runs. A new
// embedded repository that git would record as a bare link (no .gitmodules) is
// agents.ErrBlocked, as are unresolved conflicts.
func (s *Strategy) Seal(ctx context.Context, ws sandbox.Workspace, req sandbox.SealRequest) (sandbox.Sealed, error) {
	b, err := s.open(ws)
	if err != nil {
		return sandbox.Sealed{}, err
	}
	sealed, err := b.seal(ctx, req)
	if err != nil {
		return sandbox.Sealed{}, fmt.Errorf("seal: %w", err)
	}
	return sealed, nil
}

func (b *box) seal(ctx context.Context, req sandbox.SealRequest) (sandbox.Sealed, error) {
	if err := b.settleTip(ctx); err != nil {
		return sandbox.Sealed{}, err
	}
	at := b.trusted()
	st, err := b.stage(ctx, at)
	if err != nil {
		return sandbox.Sealed{}, err
	}
	changes, err := at.DiffTrees(ctx, b.from(), st.tree, git.DiffOptions{})
	if err != nil {
		return sandbox.Sealed{}, err
	}
	links, err := b.checkLinks(ctx, changes)
	if err != nil {
		return sandbox.Sealed{}, err
	}
	refs, err := b.planRefs()
	if err != nil {
		return sandbox.Sealed{}, err
	}
	out := sandbox.Sealed{Ref: b.rec.Base, Unchanged: len(changes) == 0, Notices: st.notices}
	if !out.Unchanged {
		if out.Ref, err = b.commit(ctx, at, st.tree, refs.head, req); err != nil {
			return sandbox.Sealed{}, err
		}
		if err := b.sendHome(ctx, out.Ref); err != nil {
			return sandbox.Sealed{}, fmt.Errorf("bring commits to %s: %w", b.rec.User.Root, err)
		}
	}
	out.LeftOut, err = b.leftOut(ctx, leftOutFacts{staged: st, links: links, refs: refs, sealed: out.Ref})
	return out, err
}

// commit makes the result's commit, or finds that it is there already.
func (b *box) commit(ctx context.Context, at git.Repo, tree, head string, req sandbox.SealRequest) (string, error) {
	parent, err := b.parent(ctx, at, head)
	if err != nil {
		return "", err
	}
	if b.rec.Uncommitted != "" {
		parent = b.rec.Base
		if tree, err = b.withoutUncommitted(ctx, at, tree, req.When); err != nil {
			return "", err
		}
	}
	if parent != b.rec.Base {
		if same, err := sameTree(ctx, at, parent, tree); err != nil || same {
			return parent, err
		}
	}
	if again, err := b.sealedBefore(ctx, at, tree, parent); err != nil || again != "" {
		return again, err
	}
	message := req.Message
	if message == "" {
		message = "cleveragents: plan " + b.rec.PlanID
	}
	who, err := b.person(ctx)
	if err != nil {
		return "", err
	}
	return at.CommitTree(ctx, git.NewCommit{Tree: tree, Parents: []string{parent}, Message: strings.TrimRight(message, "\n") + "\n",
		Author: who, Committer: who, When: whenOr(req.When)})
}

func whenOr(when time.Time) time.Time {
	if when.IsZero() {
		return time.Now()
	}
	return when
}

// parent is the plan's own head where it descends from the base, else the base.
func (b *box) parent(ctx context.Context, at git.Repo, head string) (string, error) {
	if head == "" || head == b.rec.Base {
		return b.rec.Base, nil
	}
	if _, err := at.Commit(ctx, head); err != nil {
		if errors.Is(err, agents.ErrNotFound) {
			err = nil
		}
		return b.rec.Base, err
	}
	above, err := at.IsAncestor(ctx, b.rec.Base, head)
	if err != nil || !above {
		return b.rec.Base, err
	}
	return head, nil
}

func sameTree(ctx context.Context, at git.Repo, commit, tree string) (bool, error) {
	id, err := at.ReadLine(ctx, "rev-parse", "--verify", "--end-of-options", commit+"^{tree}")
	return id == tree, err
}

// sealedBefore returns the commit on our branch when it is this very result.
func (b *box) sealedBefore(ctx context.Context, at git.Repo, tree, parent string) (string, error) {
	if b.rec.Tip == "" || b.rec.Tip == b.rec.Start {
		return "", nil
	}
	parents, err := at.ReadLine(ctx, "rev-list", "--parents", "--no-walk", "--end-of-options", b.rec.Tip)
	if err != nil || parents != b.rec.Tip+" "+parent {
		return "", err
	}
	same, err := sameTree(ctx, at, b.rec.Tip, tree)
	if err != nil || !same {
		return "", err
	}
	return b.rec.Tip, nil
}

// person is the user's identity, or nobody's.
func (b *box) person(ctx context.Context) (git.Person, error) {
	who, known, err := b.trusted().Committer(ctx)
	if err != nil {
		return git.Person{}, err
	}
	if !known {
		return nobody, nil
	}
	return who, nil
}

// withoutUncommitted takes the user's uncommitted changes, which the sandbox
// started with, out of the tree again. Where the plan changed the same lines, or
// took such changes back, that cannot be done, and is agents.ErrConflict.
func (b *box) withoutUncommitted(ctx context.Context, at git.Repo, tree string, when time.Time) (string, error) {
	commit := func(tree string, parents ...string) (string, error) {
		return at.CommitTree(ctx, git.NewCommit{Tree: tree, Parents: parents, Message: "uncommitted\n",
			Author: nobody, Committer: nobody, When: whenOr(when)})
	}
	start, err := commit(b.rec.Uncommitted, b.rec.Base)
	if err != nil {
		return "", err
	}
	plan, err := commit(tree, start)
	if err != nil {
		return "", err
	}
	clean, err := commit(b.rec.Base+"^{tree}", start)
	if err != nil {
		return "", err
	}
	merged, err := at.MergeTrees(ctx, clean, plan)
	if err != nil {
		return "", err
	}
	lost := merged.Conflicts
	if len(lost) == 0 {
		if lost, err = b.lostWithout(ctx, at, merged.Tree, start, tree, commit); err != nil {
			return "", err
		}
	}
	if len(lost) > 0 {
		return "", agents.WithHint(
			fmt.Errorf("the plan changed lines of uncommitted changes in %s: %w", agents.EscapePath(strings.Join(lost, ", ")), agents.ErrConflict),
			"take the plan's changes into your work tree by hand: agents plan diff %s --patch >plan.patch; git -C %s apply plan.patch",
			b.rec.PlanID, agents.EscapePath(b.rec.User.Root))
	}
	return merged.Tree, nil
}

// lostWithout lists the paths at which the result, brought to the user's
// uncommitted changes, would not give what the plan made: it took some of them
// back, which no commit can say.
func (b *box) lostWithout(ctx context.Context, at git.Repo, result, start, tree string, commit func(string, ...string) (string, error)) ([]string, error) {
	home, err := commit(result, b.rec.Base)
	if err != nil {
		return nil, err
	}
	again, err := at.MergeTrees(ctx, home, start)
	if err != nil || len(again.Conflicts) > 0 {
		return again.Conflicts, err
	}
	changes, err := at.DiffTrees(ctx, again.Tree, tree, git.DiffOptions{})
	var paths []string
	for _, c := range changes {
		paths = append(paths, c.Path)
	}
	return paths, err
}

// checkLinks refuses a new gitlink that no .gitmodules explains, and returns
// the submodules whose commit changed.
func (b *box) checkLinks(ctx context.Context, changes []git.Change) ([]string, error) {
	var changed []string
	known, err := b.submodules(ctx)
	if err != nil {
		return nil, err
	}
	for _, c := range changes {
		switch {
		case c.NewMode != git.ModeGitlink:
		case c.OldMode != git.ModeGitlink && !known[c.Path]:
			return nil, agents.WithHint(
				fmt.Errorf("%s is an embedded repository, which git would record without its files and without .gitmodules: %w", c.Path, agents.ErrBlocked),
				"in the sandbox: git submodule add it; or git rm --cached it to leave it out; or remove %s/.git to carry its files", c.Path)
		default:
			changed = append(changed, c.Path)
		}
	}
	return changed, nil
}

// submodules lists the paths that the sandbox's .gitmodules names.
func (b *box) submodules(ctx context.Context) (map[string]bool, error) {
	known := map[string]bool{}
	text, err := readRegular(b.rec.Path + "/.gitmodules")
	if err != nil || len(text) == 0 {
		return known, nil // no regular file names no submodule
	}
	res, err := b.trusted().Do(ctx, git.Call{Args: []string{"config", "-z", "--file=" + b.rec.Path + "/.gitmodules", "--no-includes",
		"--get-regexp", `^submodule\..*\.path$`}, OK: []int{1}})
	if err != nil {
		return nil, err
	}
	for _, f := range git.Fields(res.Stdout) {
		if _, path, ok := strings.Cut(f, "\n"); ok {
			known[strings.TrimSuffix(path, "/")] = true
		}
	}
	return known, nil
}
