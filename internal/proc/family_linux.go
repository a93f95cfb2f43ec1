package proc

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// reaping counts the runs for which this process is the reaper of orphaned
// descendants, and knows the children that belong to none. The kernel keeps
// both the attribute and the children once a process, so this cannot live
// anywhere smaller than the package.
var reaping struct {
	mu     sync.Mutex
	count  int
	before int32        // the attribute before the first run
	others map[int]bool // children that Start started, commands of runs among them
}

// Start is cmd.Start for a child of this process that is no part of a run, so
// that no Run which goes on at the same time takes it for an orphan of its
// own. It is needed for children that get a session of their own. done is
// called after the child has been waited for, and may be called when err is
// not nil.
func Start(cmd *exec.Cmd) (done func(), err error) {
	reaping.mu.Lock()
	defer reaping.mu.Unlock()
	if err := cmd.Start(); err != nil {
		return func() {}, err
	}
	if reaping.others == nil {
		reaping.others = map[int]bool{}
	}
	pid := cmd.Process.Pid
	reaping.others[pid] = true
	return func() {
		reaping.mu.Lock()
		defer reaping.mu.Unlock()
		delete(reaping.others, pid)
	}, nil
}

// family finds the processes that one command started, and ends them.
//
// An orphan is adopted by this process, beside children that other code of it
// started. It belongs to the command when it was started after it and its
// environment has the command's mark, or it is of the command's session or
// process group, or it cannot be anything but an orphan (see adopted).
type family struct {
	mark    string
	session int            // this process's own
	main    int            // the command; 0 before it started
	since   uint64         // when the command started, in the kernel's ticks
	before  map[int]uint64 // children from before, and when they started
	tty     *terminal
}

// join makes this process the reaper until leave.
func join(mark string) *family {
	reaping.mu.Lock()
	defer reaping.mu.Unlock()
	if reaping.count == 0 {
		_ = unix.Prctl(unix.PR_GET_CHILD_SUBREAPER, uintptr(unsafe.Pointer(&reaping.before)), 0, 0, 0)
		_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	}
	reaping.count++
	session, _ := unix.Getsid(0)
	f := &family{mark: mark, session: session, before: map[int]uint64{}}
	for _, st := range newTable().children(os.Getpid()) {
		f.before[st.pid] = st.start
	}
	return f
}

// leave gives up the terminal and the reaper's part.
func (f *family) leave() {
	f.tty.restore()
	reaping.mu.Lock()
	defer reaping.mu.Unlock()
	reaping.count--
	if reaping.count == 0 {
		_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, uintptr(reaping.before), 0, 0, 0)
	}
}

// isolate gives the command a session of its own, or on a terminal a process
// group in the foreground of it.
func (f *family) isolate(r *run) {
	attr := &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	r.cmd.SysProcAttr = attr
	if !r.TTY {
		attr.Setsid = true
		return
	}
	attr.Setpgid = true
	if f.tty = openTerminal(r.Stdin); f.tty != nil {
		attr.Foreground, attr.Ctty = true, f.tty.fd
	}
}

// started is called once, by the thread that started the command.
func (f *family) started(pid int) {
	f.main = pid
	if st, ok := readStat(pid); ok {
		f.since = st.start
	}
}

// attend returns when the command ended or no terminal needs attention. On a
// terminal it follows the command's stops.
func (f *family) attend() {
	if f.tty != nil {
		f.tty.attend(f.main)
	}
}

// terminate asks every process of the family to end.
func (f *family) terminate() {
	signals := []syscall.Signal{unix.SIGTERM, unix.SIGCONT}
	if f.tty != nil {
		signals = []syscall.Signal{unix.SIGHUP, unix.SIGTERM, unix.SIGCONT} // shells at a terminal ignore SIGTERM
	}
	all := f.everyone()
	for _, sig := range signals {
		f.signal(all, sig)
	}
}

// kill ends every process of the family, also those that are born meanwhile.
func (f *family) kill() {
	for range 3 {
		f.signal(f.everyone(), unix.SIGKILL)
	}
}

func (f *family) signal(all []stat, sig syscall.Signal) {
	for _, st := range all {
		send(st, sig)
	}
}

// send signals a process, and no other that got its number since.
func send(st stat, sig syscall.Signal) {
	fd, err := unix.PidfdOpen(st.pid, 0)
	if err == unix.ENOSYS {
		_ = unix.Kill(st.pid, sig)
		return
	}
	if err != nil {
		return
	}
	defer unix.Close(fd)
	if now, ok := readStat(st.pid); ok && now.start == st.start {
		_ = unix.PidfdSendSignal(fd, sig, nil, 0)
	}
}

// members returns the processes that the command left behind and that are
// alive, and buries the dead among those that this process adopted.
func (f *family) members() []process {
	var ps []process
	for _, st := range f.everyone() {
		ps = append(ps, process{st.pid, st.name, st.start})
	}
	return ps
}

// everyone lists the living processes of the family, the command included.
func (f *family) everyone() []stat {
	reaping.mu.Lock()
	defer reaping.mu.Unlock()
	table := newTable()
	var all []stat
	for _, st := range table.children(os.Getpid()) {
		if !f.owns(st) {
			continue
		}
		if st.pid != f.main && st.dead() && bury(st.pid) {
			continue
		}
		all = table.descend(all, st)
	}
	return all
}

// bury reaps an adopted process. It reports false while a thread of it lives.
func bury(pid int) bool {
	got, err := unix.Wait4(pid, nil, unix.WNOHANG, nil)
	return got == pid || err == unix.ECHILD
}

// owns tells the family's among this process's children.
func (f *family) owns(st stat) bool {
	since, known := f.before[st.pid]
	switch {
	case st.pid == f.main:
		return true
	case reaping.others[st.pid], st.start < f.since, known && since == st.start:
		return false
	case st.session == f.main, st.group == f.main:
		return true
	}
	switch f.marked(st.pid) {
	case markedOurs:
		return true
	case markedOther:
		return false
	}
	return f.adopted(st)
}

// adopted reports whether a child without a mark must be an orphan. It has
// left this process's session: a child that was started here has done so only
// as the leader of a session, and then Start knows it. The kernel gives
// orphans to the first thread, and lists other children at the thread that
// started them.
func (f *family) adopted(st stat) bool {
	switch {
	case st.session == f.session:
		return false
	case st.session != st.pid:
		return true
	}
	return st.thread == 0 || st.thread == os.Getpid()
}

type markFound int

const (
	unmarked markFound = iota
	markedOurs
	markedOther
)

// marked looks for the mark of a run in a process's environment.
func (f *family) marked(pid int) markFound {
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return unmarked
	}
	found := unmarked
	for kv := range bytes.SplitSeq(env, []byte{0}) {
		value, ok := bytes.CutPrefix(kv, []byte(MarkVariable+"="))
		if !ok {
			continue
		}
		v := string(value)
		if v == f.mark || strings.HasPrefix(v, f.mark+"/") {
			return markedOurs
		}
		found = markedOther
	}
	return found
}

// stat is what /proc says about a process.
type stat struct {
	pid     int
	thread  int // of the parent, which lists it as its child; 0 = not known
	parent  int
	group   int
	session int
	start   uint64
	state   byte
	name    string
}

// dead reports whether the process has ended and waits for its parent; a
// thread of it may live on.
func (st stat) dead() bool { return st.state == 'Z' || st.state == 'X' }

// readStat reads /proc/PID/stat. See proc_pid_stat(5): the name may hold any
// sign, so the fields are counted from its last parenthesis.
func readStat(pid int) (stat, bool) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return stat{}, false
	}
	open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 0 || end < open {
		return stat{}, false
	}
	fields := strings.Fields(string(b[end+1:]))
	if len(fields) < 20 {
		return stat{}, false
	}
	st := stat{pid: pid, name: string(b[open+1 : end]), state: fields[0][0]}
	st.parent, _ = strconv.Atoi(fields[1])
	st.group, _ = strconv.Atoi(fields[2])
	st.session, _ = strconv.Atoi(fields[3])
	st.start, _ = strconv.ParseUint(fields[19], 10, 64)
	return st, true
}

// table answers who is whose child: from the kernel's lists of children where
// it keeps them, else from one look at all processes.
type table struct{ all map[int][]stat }

func newTable() *table {
	if _, err := os.Stat(fmt.Sprintf("/proc/self/task/%d/children", os.Getpid())); err == nil {
		return &table{}
	}
	t := &table{all: map[int][]stat{}}
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if st, ok := readStat(pid); ok {
			t.all[st.parent] = append(t.all[st.parent], st)
		}
	}
	return t
}

// children returns the children of a process, dead ones included.
func (t *table) children(pid int) []stat {
	if t.all != nil {
		return t.all[pid]
	}
	var out []stat
	tasks, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	for _, task := range tasks {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", pid, task.Name()))
		for _, field := range strings.Fields(string(b)) {
			child, _ := strconv.Atoi(field)
			if st, ok := readStat(child); ok {
				st.thread, _ = strconv.Atoi(task.Name())
				out = append(out, st)
			}
		}
	}
	return out
}

// descend adds st and everything below it, as far as it lives.
func (t *table) descend(all []stat, st stat) []stat {
	if slices.ContainsFunc(all, func(s stat) bool { return s.pid == st.pid }) {
		return all
	}
	if !st.dead() || threads(st.pid) > 1 {
		all = append(all, st)
	}
	for _, child := range t.children(st.pid) {
		all = t.descend(all, child)
	}
	return all
}

// threads counts the threads of a process.
func threads(pid int) int {
	entries, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	return len(entries)
}
