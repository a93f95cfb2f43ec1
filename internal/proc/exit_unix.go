//go:build unix

package proc

import (
	"os"
	"syscall"
)

// exitCode is the code as shells count it, and the signal that ended the
// command, or 0.
func exitCode(state *os.ProcessState) (int, syscall.Signal) {
	if state == nil {
		return exitCannotStart, 0
	}
	if ws, ok := state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal()), ws.Signal()
	}
	return state.ExitCode(), 0
}
