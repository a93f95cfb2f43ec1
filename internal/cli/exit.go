package cli

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/fsx"
	"github.com/cleveragents/agents/internal/view"
)

// class is a row of the table of error classes: how documents call it, and the
// exit code of CLI.md.
type class struct {
	err  error
	code string
	exit int
}

// classes is in order of precedence, for an error that has several.
func classes() []class {
	return []class{
		{agents.ErrInterrupted, "interrupted", 130},
		{context.Canceled, "interrupted", 130},
		{agents.ErrPartial, "partial", 5},
		{agents.ErrToolFailed, "tool_failed", 1},
		{agents.ErrNewerData, "newer_data", 1},
		{agents.ErrDamaged, "damaged", 1},
		{agents.ErrNoSpace, "no_space", 1},
		{agents.ErrInvalid, "invalid", 2},
		{agents.ErrNotFound, "not_found", 3},
		{agents.ErrLocked, "locked", 4},
		{agents.ErrConflict, "conflict", 4},
		{agents.ErrExists, "exists", 4},
		{agents.ErrState, "wrong_state", 4},
		{agents.ErrBlocked, "blocked", 4},
		{agents.ErrUnsupported, "unsupported", 1},
		{errDeclined, "declined", 1},
		{fs.ErrPermission, "permission", 1},
	}
}

func classOf(err error) class {
	var u *usageError
	if errors.As(err, &u) {
		return class{agents.ErrInvalid, "usage", 2}
	}
	for _, c := range classes() {
		if errors.Is(err, c.err) {
			return c
		}
	}
	return class{err, "internal", 1}
}

// exitCode maps an error to the exit code. Whatever failed after the user
// stopped the program counts as interrupted.
func exitCode(ctx context.Context, err error) int {
	c := classOf(err)
	if ctx.Err() != nil && c.exit == 1 {
		return 130
	}
	return c.exit
}

// problem is an error as documents show it.
func problem(err error) *view.Problem {
	p := &view.Problem{Code: classOf(err).code, Message: oneLine(err), Hint: hintOf(err), Details: details(err)}
	if k := agents.KindOf(err); k != "" {
		p.Code = string(k)
	}
	return p
}

// hintOf is what to do about an error. What the system refused without a hint
// of ours is about one path, and that is where to look.
func hintOf(err error) string {
	hint := agents.HintOf(err)
	var at *fs.PathError
	if hint != "" || !errors.As(err, &at) {
		return hint
	}
	dir := agents.EscapePath(filepath.Dir(at.Path))
	switch {
	case errors.Is(at, fs.ErrPermission):
		return "see who may do that: ls -ld " + dir
	case fsx.IsNoSpace(at):
		return "free space: df " + dir
	}
	return ""
}

// oneLine is an error's text; joined errors stand behind each other. A class
// at an end is left out where what stands before it says as much.
func oneLine(err error) string {
	lines := strings.Split(err.Error(), "\n")
	for i, line := range lines {
		lines[i] = withoutClass(line)
	}
	return strings.Join(lines, "; ")
}

func withoutClass(message string) string {
	for _, c := range classes() {
		before, ended := strings.CutSuffix(message, ": "+c.err.Error())
		if !ended {
			continue
		}
		last := before[strings.LastIndex(before, ": ")+1:]
		if strings.HasSuffix(last, c.err.Error()) || !isReason(c.err) && isStatement(last) {
			return before
		}
	}
	return message
}

// isReason reports whether a class says why by itself.
func isReason(class error) bool {
	switch class {
	case agents.ErrNotFound, agents.ErrLocked, agents.ErrDamaged, agents.ErrNoSpace, agents.ErrNewerData, agents.ErrInterrupted,
		context.Canceled, fs.ErrPermission:
		return true
	}
	return false
}

// isStatement reports whether a part of a message says what is wrong, and does
// not only name what it is about.
func isStatement(part string) bool {
	return slices.ContainsFunc(strings.Fields(part), func(word string) bool {
		switch word {
		case "is", "are", "was", "were", "has", "have", "had", "holds", "needs", "want", "wants", "cannot", "can", "may", "must",
			"no", "not", "none", "already", "unknown", "missing", "unexpected", "exited", "differs", "changed", "stays", "both", "lies":
			return true
		}
		return false
	})
}

// details are those nearest to the outside of err's chain.
func details(err error) map[string]any {
	var u *usageError
	if errors.As(err, &u) {
		return u.details
	}
	var e *agents.Error
	for errors.As(err, &e) {
		if e.Details != nil {
			return e.Details
		}
		err = e.Err
	}
	return nil
}
