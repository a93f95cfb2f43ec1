//go:build unix && !linux

package git

import (
	"os/exec"
	"syscall"
)

// isolate gives cmd a session of its own.
func isolate(cmd *exec.Cmd, _ bool) { cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }

func termGroup(pid int) { _ = syscall.Kill(-pid, syscall.SIGTERM) }

func killGroup(pid int) { _ = syscall.Kill(-pid, syscall.SIGKILL) }

// progress cannot be told here: a call ends with its context alone.
func progress(int) activity { return unknown }
