//go:build !linux && !darwin

package fsx

import (
	"fmt"
	"os"
	"runtime"

	agents "github.com/cleveragents/agents"
)

// SpaceOf is agents.ErrUnsupported on this system.
func SpaceOf(path string) (Space, error) {
	return Space{}, fmt.Errorf("free space on %s: %w", runtime.GOOS, agents.ErrUnsupported)
}

func isDiskFull(err error) bool { return false }

// notDirectory is not told apart on this system.
func notDirectory(err error) bool { return false }

// giveOwner leaves the owner: files have none here that could be set.
func giveOwner(f *os.File, old os.FileInfo) {}
