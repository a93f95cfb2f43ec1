package git

import (
	"os"
	"os/exec"
)

// isolate does nothing here.
func isolate(*exec.Cmd, bool) {}

func termGroup(pid int) { killGroup(pid) }

func killGroup(pid int) {
	if p, err := os.FindProcess(pid); err == nil {
		_ = p.Kill()
	}
}

// progress cannot be told here: a call ends with its context alone.
func progress(int) activity { return unknown }
