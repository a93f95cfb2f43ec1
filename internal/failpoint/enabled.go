//go:build failpoint

// Package failpoint lets tests stop the program, or fill its disk, at the n-th
// outside effect: every write, rename, link, unlink, sync, git call and SQL
// commit passes through Hit. Built without the tag failpoint, it costs nothing
// and can do nothing.
//
// The environment says what happens. CLEVERAGENTS_FAILPOINT is "N:kill" (the
// process gets SIGKILL at the N-th hit, counted from 1) or "N:enospc" (the
// N-th hit and all later ones fail with ENOSPC) or "N:eio" (the N-th hit
// fails). CLEVERAGENTS_FAILPOINT_LOG names a file to which every hit is
// appended as "N op detail"; its last line tells a test what fired, and its
// absence of line N that the failpoint was not reached.
package failpoint

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// Enabled says whether this build can fail on purpose.
const Enabled = true

var state struct {
	once  sync.Once
	mu    sync.Mutex
	hits  int
	at    int
	what  string
	trace *os.File
}

// Hit marks the moment before an outside effect. It does not return when the
// effect is the one at which the test wants the process killed, and returns
// an error when it is to fail.
func Hit(op, detail string) error {
	state.once.Do(configure)
	state.mu.Lock()
	defer state.mu.Unlock()
	state.hits++
	if state.trace != nil {
		fmt.Fprintf(state.trace, "%d %s %q\n", state.hits, op, detail)
	}
	if state.at == 0 || state.hits < state.at {
		return nil
	}
	switch state.what {
	case "kill":
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	case "enospc":
		if op == "fsx.remove" || op == "fsx.undo" || op == "git.read" {
			return nil // a full disk can still delete, rename back and read
		}
		return &os.PathError{Op: op, Path: detail, Err: syscall.ENOSPC}
	case "eio":
		if state.hits == state.at {
			return &os.PathError{Op: op, Path: detail, Err: syscall.EIO}
		}
	}
	return nil
}

func configure() {
	n, what, ok := strings.Cut(os.Getenv("CLEVERAGENTS_FAILPOINT"), ":")
	if ok {
		at, err := strconv.Atoi(n)
		if err != nil || at < 1 {
			panic("CLEVERAGENTS_FAILPOINT: want N:kill, N:enospc or N:eio")
		}
		state.at, state.what = at, what
	}
	if path := os.Getenv("CLEVERAGENTS_FAILPOINT_LOG"); path != "" {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			panic(err)
		}
		state.trace = f
	}
}
