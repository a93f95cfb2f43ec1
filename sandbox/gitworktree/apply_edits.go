package gitworktree

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/cleveragents/agents/internal/git"
)

// A plan that was given the user's uncommitted edits may change the same
// files. Where both changed other lines, apply moves the commit and leaves the
// edits what they were: uncommitted changes, now of the new content.

// keepEdits returns the folder for merging uncommitted edits, or "" for a
// sandbox that began without them.
func (a *applying) keepEdits() string {
	rec, err := loadRecord(a.ws.PrivateDir)
	if err != nil || rec.Uncommitted == "" {
		return ""
	}
	return filepath.Join(a.ws.PrivateDir, "edits")
}

// editable returns the step at a path if uncommitted edits can be kept there:
// a file stays a file. It is -1 where they cannot.
func (in *inspection) editable(path string) int {
	if in.keep == "" {
		return -1
	}
	isFile := func(mode string) bool { return mode == git.ModeFile || mode == git.ModeExecutable }
	return slices.IndexFunc(in.steps, func(s step) bool { return s.Path == path && isFile(s.OldMode) && isFile(s.NewMode) })
}

// mergeEdits merges by lines, as the work tree has them, the commit's old and
// new content and what the user made of the old one.
func (in *inspection) mergeEdits(ctx context.Context) error {
	for _, i := range in.edited {
		s := &in.steps[i]
		ours, err := os.ReadFile(in.path(s.Path))
		if err != nil {
			return err
		}
		base, err := in.smudged(ctx, s.Path, s.OldID)
		if err != nil {
			return err
		}
		theirs, err := in.smudged(ctx, s.Path, s.NewID)
		if err != nil {
			return err
		}
		merged, clean, err := in.t.repo.Git.MergeFile(ctx, in.keep, ours, base, theirs)
		if err != nil {
			return fmt.Errorf("merge the uncommitted edits of %q: %w", s.Path, err)
		}
		if !clean {
			in.refuse(s.Path, "the plan changed the same lines as edits that are not committed")
			continue
		}
		s.merged = append([]byte{}, merged...)
	}
	return nil
}

// smudged is a blob as a checkout would write it at a path.
func (in *inspection) smudged(ctx context.Context, path, id string) ([]byte, error) {
	return in.index.Read(ctx, "cat-file", "--filters", "--path="+path, id)
}

// keepsEdits reports whether a step merges, or the undo of one takes back,
// uncommitted edits: git's own look at the work tree would refuse those.
func (m *transition) keepsEdits() bool {
	return slices.ContainsFunc(m.steps, func(s step) bool { return s.merged != nil }) || m.past != nil && m.past.edits
}
