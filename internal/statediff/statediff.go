// Package statediff tells in the product's words how two recorded states
// differ: by the objects of package snapshot, or with git, which counts lines,
// finds renames and writes patches.
package statediff

import (
	"context"
	"io"
	"io/fs"
	"slices"
	"strings"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/git"
	"github.com/cleveragents/agents/internal/snapshot"
)

// Request names two trees for Git.
type Request struct {
	From, To string    // trees or commits
	Counts   bool      // fill Insertions, Deletions and Binary, and find renames
	Patch    io.Writer // nil = none; else git's patch format goes here
	Skip     []string  // paths that do not show, with all below them
}

// Git compares two trees as git does, in git's order. No program that a
// configuration names runs.
func Git(ctx context.Context, repo git.Repo, req Request) ([]agents.FileChange, error) {
	changes, err := repo.DiffTrees(ctx, req.From, req.To, git.DiffOptions{Renames: req.Counts, Counts: req.Counts})
	if err != nil {
		return nil, err
	}
	all := len(changes)
	changes = slices.DeleteFunc(changes, func(c git.Change) bool { return Below(req.Skip, c.Path) || Below(req.Skip, c.OldPath) })
	if req.Patch != nil && len(changes) > 0 {
		var paths []string
		for _, c := range changes {
			if len(changes) < all {
				paths = append(paths, c.OldPath, c.Path)
			}
		}
		if err := repo.Patch(ctx, req.Patch, req.From, req.To, slices.Compact(paths)...); err != nil {
			return nil, err
		}
	}
	out := make([]agents.FileChange, len(changes))
	for i, c := range changes {
		out[i] = agents.FileChange{Path: c.Path, Change: kindOf(c), Insertions: c.Insertions, Deletions: c.Deletions, Binary: c.Binary}
		if c.Status == 'R' {
			out[i].OldPath = c.OldPath
		}
	}
	return out, nil
}

func kindOf(c git.Change) agents.ChangeKind {
	switch {
	case c.Status == 'A' || c.Status == 'C':
		return agents.ChangeAdded
	case c.Status == 'D':
		return agents.ChangeDeleted
	case c.Status == 'R':
		return agents.ChangeRenamed
	case c.Status == 'M' && c.OldID == c.NewID && c.OldMode != c.NewMode:
		return agents.ChangeMode
	}
	return agents.ChangeModified
}

// Below reports whether path is one of these or lies below one.
func Below(tops []string, path string) bool {
	return slices.ContainsFunc(tops, func(top string) bool { return path == top || strings.HasPrefix(path, top+"/") })
}

// Files keeps of a root's changes those of files and links: their content,
// type or permission bits.
func Files(changes []snapshot.Change, root string) []agents.FileChange {
	var out []agents.FileChange
	for _, c := range changes {
		if c.Root == root && (isFile(c.Old) || isFile(c.New)) && !quiet(c) {
			out = append(out, agents.FileChange{Path: c.Path, Change: stateKind(c)})
		}
	}
	return out
}

func isFile(e snapshot.Entry) bool { return e.Exists() && !e.Mode.IsDir() }

// quiet reports whether only times, names of the file or holes differ.
func quiet(c snapshot.Change) bool {
	a, b := c.Old, c.New
	return a.Mode == b.Mode && a.ID == b.ID && a.UID == b.UID && a.GID == b.GID && len(a.Xattr) == 0 && len(b.Xattr) == 0
}

func stateKind(c snapshot.Change) agents.ChangeKind {
	switch {
	case !isFile(c.Old):
		return agents.ChangeAdded
	case !isFile(c.New):
		return agents.ChangeDeleted
	case c.Old.ID == c.New.ID && c.Old.Mode&fs.ModeType == c.New.Mode&fs.ModeType:
		return agents.ChangeMode
	}
	return agents.ChangeModified
}
