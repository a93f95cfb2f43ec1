//go:build unix

package gitworktree_test

import (
	"os/exec"
	"syscall"
)

// asNobody makes a command run as a user without rights.
func asNobody(cmd *exec.Cmd) *exec.Cmd {
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	return cmd
}
