package proc

import (
	"io"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// terminal is the user's terminal, while a command has its foreground.
type terminal struct {
	fd     int
	group  int // this program's own process group
	before *unix.Termios
}

// openTerminal returns the terminal whose foreground this program may hand
// on, or nil: it is no terminal, not ours, or we are in the background.
func openTerminal(stdin io.Reader) *terminal {
	f, ok := stdin.(*os.File)
	if !ok {
		return nil
	}
	t := &terminal{fd: int(f.Fd()), group: unix.Getpgrp()}
	if front, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP); err != nil || front != t.group {
		return nil
	}
	t.before, _ = unix.IoctlGetTermios(t.fd, unix.TCGETS)
	return t
}

// attend follows the stops of the command: when it stops, this program's
// process group takes the terminal back and stops too, so that the user's
// shell is in charge; when that continues us, the command goes on. It returns
// when the command has ended.
func (t *terminal) attend(pid int) {
	for {
		switch code := waitChange(pid); code {
		case cldStopped, cldTrapped:
			t.suspend(pid)
		default:
			return
		}
	}
}

func (t *terminal) suspend(pid int) {
	theirs, _ := unix.IoctlGetTermios(t.fd, unix.TCGETS)
	t.restore()
	_ = unix.Kill(0, unix.SIGTSTP)
	// Here we are after the user's shell continued us, or at once where
	// nobody is there to do so.
	if front, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP); err == nil && front == t.group {
		if theirs != nil {
			_ = unix.IoctlSetTermios(t.fd, unix.TCSETSW, theirs)
		}
		t.give(pid)
	}
	_ = unix.Kill(-pid, unix.SIGCONT)
}

// restore takes the foreground back and sets the terminal as it was.
func (t *terminal) restore() {
	if t == nil {
		return
	}
	t.give(t.group)
	if t.before != nil {
		_ = unix.IoctlSetTermios(t.fd, unix.TCSETSW, t.before)
	}
}

// give makes a process group the foreground one. The kernel stops a
// background process that does so, unless it blocks SIGTTOU.
func (t *terminal) give(group int) {
	runtime.LockOSThread() // the mask is the thread's
	defer runtime.UnlockOSThread()
	var old, block unix.Sigset_t
	block.Val[0] = 1 << (uint(unix.SIGTTOU) - 1)
	_ = unix.PthreadSigmask(unix.SIG_BLOCK, &block, &old)
	_ = unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, group)
	_ = unix.PthreadSigmask(unix.SIG_SETMASK, &old, nil)
}

// The codes of waitid(2) for a child that stopped.
const (
	cldTrapped = 4
	cldStopped = 5
)

// waitChange waits until a child ends or stops and returns the code. Only a
// stop is consumed.
func waitChange(pid int) int32 {
	for {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WSTOPPED|unix.WNOWAIT, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return 0
		}
		if info.Code == cldStopped || info.Code == cldTrapped {
			_ = unix.Waitid(unix.P_PID, pid, nil, unix.WSTOPPED|unix.WNOHANG, nil)
		}
		return info.Code
	}
}
