package fsx

import (
	"errors"

	agents "github.com/cleveragents/agents"
)

// Space is the room on a file system, in bytes.
type Space struct {
	Free  int64 // what this user may still write
	Total int64
}

// FreePercent returns Free of Total in percent; 100 when nothing is known.
func (s Space) FreePercent() float64 {
	if s.Total <= 0 {
		return 100
	}
	return 100 * float64(s.Free) / float64(s.Total)
}

// IsNoSpace reports whether err says that a disk, a disk quota or a quota of
// the product is full.
func IsNoSpace(err error) bool {
	return errors.Is(err, agents.ErrNoSpace) || isDiskFull(err)
}
