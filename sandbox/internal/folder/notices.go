package folder

import (
	"fmt"
	"strings"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/fsx"
)

// LeftNotices says which paths could not be taken back, up to ten.
func LeftNotices(left []fsx.Left) (notices []string) {
	const most = 10
	for i, l := range left {
		if i == most {
			return append(notices, fmt.Sprintf("and %d other paths; what they were before is in the same place", len(left)-most))
		}
		why := strings.TrimSuffix(l.Err.Error(), ": "+agents.ErrConflict.Error())
		text := agents.EscapePath(l.Path) + " could not be taken back and stays as it is: " + why
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
