//go:build !linux

package fsx

import (
	"fmt"

	agents "github.com/cleveragents/agents"
)

// Look is agents.ErrUnsupported: copies for sandboxes need Linux.
func Look(path string) (SurveyEntry, error) {
	return SurveyEntry{}, fmt.Errorf("look at %s: needs Linux: %w", showPath(path), agents.ErrUnsupported)
}

// SameMount is not known here.
func SameMount(a, b string) bool { return false }

// Writable is not known here.
func Writable(path string) bool { return false }

// CanClone is not known here.
func CanClone(from, to string) bool { return false }

// DatabaseInUse is not known here.
func DatabaseInUse(path string) bool { return false }

// IsDatabase is not known here.
func IsDatabase(path string) bool { return false }

// DatabaseLogs are the endings of the names of a database's logs.
func DatabaseLogs() []string { return []string{"-wal", "-journal"} }
