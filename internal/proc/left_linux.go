package proc

import (
	"bytes"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// marked lists the living processes of a plan that are neither this one nor
// above it.
func marked(plan string) []process {
	mine := map[int]bool{}
	for pid := os.Getpid(); pid > 0; {
		st, ok := readStat(pid)
		if !ok || mine[pid] {
			break
		}
		mine[pid], pid = true, st.parent
	}
	want := []byte("\x00" + PlanVariable + "=" + plan + "\x00")
	entries, _ := os.ReadDir("/proc")
	var found []process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || mine[pid] {
			continue
		}
		env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if err != nil || !bytes.Contains(append([]byte{0}, env...), want) {
			continue
		}
		if st, ok := readStat(pid); ok && !st.dead() {
			found = append(found, process{pid: pid, name: st.name, start: st.start})
		}
	}
	return found
}

// signalAll asks processes to end, or makes them.
func signalAll(ps []process, kill bool) {
	for _, p := range ps {
		st := stat{pid: p.pid, start: p.start}
		if kill {
			send(st, unix.SIGKILL)
			continue
		}
		send(st, unix.SIGTERM)
		send(st, unix.SIGCONT)
	}
}
