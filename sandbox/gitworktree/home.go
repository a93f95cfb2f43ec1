package gitworktree

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/git"
)

// sendHome brings a commit and what it needs to the user's object store, and
// moves the plan's branch there to it.
func (b *box) sendHome(ctx context.Context, commit string) error {
	if commit == b.rec.Tip {
		return b.repairBranch(ctx)
	}
	if err := b.copyObjects(ctx, commit, []string{b.rec.Base, b.rec.Start}, b.user()); err != nil {
		return err
	}
	err := b.moveBranch(ctx, b.rec.Tip, commit)
	if errors.Is(err, agents.ErrConflict) {
		return agents.WithHint(fmt.Errorf("branch %s was moved outside of the plan: %w", short(b.rec.Branch), err),
			"move it back: git update-ref %s %s", b.rec.Branch, b.rec.Tip)
	}
	return err
}

// repairBranch makes the plan's branch again if the user deleted it, also where
// git has removed its commits since: the sandbox still has them.
func (b *box) repairBranch(ctx context.Context) error {
	_, err := b.user().Ref(ctx, b.rec.Branch)
	if !errors.Is(err, agents.ErrNotFound) {
		return err
	}
	_, err = b.user().Commit(ctx, b.rec.Tip)
	if errors.Is(err, agents.ErrNotFound) {
		err = b.copyObjects(ctx, b.rec.Tip, []string{b.rec.Base, b.rec.Start}, b.user())
	}
	if err != nil {
		return err
	}
	return b.swapBranch(ctx, git.RefChange{Ref: b.rec.Branch, New: b.rec.Tip})
}

// unpackBelow is the number of objects from which on a pack stays a pack, as
// git's own fetch does.
const unpackBelow = 100

// copyObjects writes the objects that commit has and the commits of have do
// not into another store. git checks each one on arrival. Killed in the middle
// it leaves objects that nothing names, which gc removes.
func (b *box) copyObjects(ctx context.Context, commit string, have []string, to git.Repo) error {
	if slices.Contains(have, commit) {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r, w := io.Pipe()
	sent := make(chan error, 1)
	go func() {
		err := b.packFor(ctx, commit, have, w)
		w.CloseWithError(err)
		sent <- err
	}()
	err := receive(ctx, r, to)
	r.CloseWithError(err)
	if serr := <-sent; serr != nil && !errors.Is(serr, io.ErrClosedPipe) {
		return serr
	}
	return err
}

func (b *box) packFor(ctx context.Context, commit string, have []string, w io.Writer) error {
	revs := commit + "\n"
	for _, h := range have {
		revs += "^" + h + "\n"
	}
	args := []string{"pack-objects", "--revs", "--stdout", "-q", "--delta-base-offset"}
	if b.rec.Partial {
		args = append(args, "--exclude-promisor-objects")
	}
	_, err := b.trusted().Do(ctx, git.Call{Args: args, Stdin: strings.NewReader(revs), Stdout: w})
	return err
}

func receive(ctx context.Context, r io.Reader, to git.Repo) error {
	in := bufio.NewReader(r)
	head, err := in.Peek(12)
	if err != nil {
		return err
	}
	args := []string{"index-pack", "--stdin", "--fix-thin"}
	if binary.BigEndian.Uint32(head[8:]) < unpackBelow {
		args = []string{"unpack-objects", "-q"}
	}
	_, err = to.Feed(ctx, in, args...)
	return err
}
