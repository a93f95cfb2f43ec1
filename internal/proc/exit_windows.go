package proc

import (
	"os"
	"syscall"
)

// exitCode is the command's own code; this system has no signals.
func exitCode(state *os.ProcessState) (int, syscall.Signal) {
	if state == nil {
		return exitCannotStart, 0
	}
	return state.ExitCode(), 0
}
