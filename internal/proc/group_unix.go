//go:build unix && !linux

package proc

import "syscall"

// isolate gives the command a session of its own. On a terminal it stays in
// our process group, so that it may use it.
func (f *family) isolate(r *run) {
	f.tty = r.TTY
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: !r.TTY}
}

func (f *family) terminate() {
	f.signal(syscall.SIGTERM)
	f.signal(syscall.SIGCONT)
}

func (f *family) kill() { f.signal(syscall.SIGKILL) }

func (f *family) signal(sig syscall.Signal) {
	if f.tty {
		_ = syscall.Kill(f.main, sig)
		return
	}
	_ = syscall.Kill(-f.main, sig)
}

func (f *family) alive() bool { return !f.tty && syscall.Kill(-f.main, 0) == nil }
