package gitworktree

import (
	"fmt"
	"strings"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/sandbox/internal/folder"
)

// branchSpace begins the full names of all plans' branches.
const branchSpace = "refs/heads/cleveragents/"

// branchOf returns the full name of a plan's branch: letters, digits, "-",
// "_", "/" and "." of the plan's id are kept, runs of others become one "-"
// (git-worktree-sandbox.md, "Branch Naming"), and then what git refuses in a
// branch name does too. An id of which nothing is left is agents.ErrInvalid.
func branchOf(planID string) (string, error) {
	name := sanitise(planID)
	if strings.Trim(name, "-/.") == "" || len(name) > 200 {
		return "", fmt.Errorf("plan id %.40q gives no branch name: %w", planID, agents.ErrInvalid)
	}
	return branchSpace + "plan-" + name, nil
}

func sanitise(id string) string {
	var b strings.Builder
	for _, c := range id {
		switch {
		case c < 0x80 && (isAlnum(byte(c)) || strings.ContainsRune("-_/.", c)):
			b.WriteRune(c)
		case !strings.HasSuffix(b.String(), "-"):
			b.WriteByte('-')
		}
	}
	parts := strings.Split(b.String(), "/")
	for i, p := range parts {
		parts[i] = refComponent(p, i > 0)
	}
	return strings.Join(parts, "/")
}

// refComponent mends what git check-ref-format refuses in one component. The
// first one follows "plan-" and may begin with anything.
func refComponent(p string, alone bool) string {
	for strings.Contains(p, "..") {
		p = strings.ReplaceAll(p, "..", "-")
	}
	if alone && strings.HasPrefix(p, ".") {
		p = "-" + p[1:]
	}
	if strings.HasSuffix(p, ".lock") {
		p = strings.TrimSuffix(p, ".lock") + "-lock"
	}
	if strings.HasSuffix(p, ".") {
		p = p[:len(p)-1] + "-"
	}
	if alone && p == "" {
		p = "-"
	}
	return p
}

func isAlnum(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

// newEntry returns the name of a new sandbox's directory.
func newEntry(planID string) string { return folder.NewEntry(entryName(planID)) }

// entryName is a plan's id as a file name.
func entryName(planID string) string { return strings.ReplaceAll(sanitise(planID), "/", "-") }

// entriesOf is what the names of all sandboxes of a plan begin with.
func entriesOf(planID string) string {
	plan := entryName(planID)
	return folder.EntryPrefix + plan[:min(len(plan), 100)] + "-"
}

// short returns a branch's name without refs/heads/.
func short(ref string) string { return strings.TrimPrefix(ref, "refs/heads/") }
