package git

import (
	"bytes"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// isolate gives cmd a session of its own. With bound, the kernel tells it to
// end, with its locks removed, at the end of the thread that starts it.
func isolate(cmd *exec.Cmd, bound bool) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if bound {
		cmd.SysProcAttr.Pdeathsig = syscall.SIGTERM
	}
}

func termGroup(pid int) { _ = syscall.Kill(-pid, syscall.SIGTERM) }

func killGroup(pid int) { _ = syscall.Kill(-pid, syscall.SIGKILL) }

// progress adds up processor time and bytes read and written over all
// processes of pid's session, dead children of living ones included.
func progress(pid int) activity {
	dir, err := os.Open("/proc")
	if err != nil {
		return unknown
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return unknown
	}
	var sum activity
	for _, name := range names {
		if _, err := strconv.Atoi(name); err != nil {
			continue
		}
		cpu, ok := processorTime(name, pid)
		if !ok {
			continue
		}
		sum.cpu += cpu
		sum.io += transferred(name)
	}
	return sum
}

// processorTime returns the clock ticks of a process, its waited-for children
// included, if it belongs to the session.
func processorTime(proc string, session int) (uint64, bool) {
	b, err := os.ReadFile("/proc/" + proc + "/stat")
	if err != nil {
		return 0, false
	}
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	// f[0] is the state, field 3 of proc(5); session is field 6, utime to cstime 14 to 17.
	if len(f) < 15 || f[3] != strconv.Itoa(session) {
		return 0, false
	}
	var sum uint64
	for _, s := range f[11:15] {
		n, _ := strconv.ParseUint(s, 10, 64)
		sum += n
	}
	return sum, true
}

// transferred returns the bytes that a process moved by system calls.
func transferred(proc string) uint64 {
	b, err := os.ReadFile("/proc/" + proc + "/io")
	if err != nil {
		return 0
	}
	var sum uint64
	for line := range strings.Lines(string(b)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		if name == "rchar" || name == "wchar" || name == "syscr" || name == "syscw" {
			n, _ := strconv.ParseUint(value, 10, 64)
			sum += n
		}
	}
	return sum
}
