package folder

import (
	"fmt"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/fsx"
)

// LeftNotices says which paths were left as somebody made them.
func LeftNotices(left []fsx.Left) (notices []string) {
	for _, l := range left {
		text := agents.EscapePath(l.Path) + ": it was changed while an apply was under way that was taken back, and stays so"
		if l.Kept != "" {
			text += "; what it was before is in " + agents.EscapePath(l.Kept)
		}
		notices = append(notices, text)
	}
	return notices
}

// LateNotices says in which files there is what programs wrote into ones that
// they had open.
func LateNotices(late []fsx.Late) (notices []string) {
	for _, l := range late {
		notices = append(notices, fmt.Sprintf("%s: a program that had it open wrote to what was replaced; those bytes are in %s",
			agents.EscapePath(l.Path), agents.EscapePath(l.Held)))
	}
	return notices
}
