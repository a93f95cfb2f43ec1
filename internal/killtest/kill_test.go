//go:build linux && failpoint

package killtest_test

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestKill kills every command at some of its failpoints.
func TestKill(t *testing.T) {
	everywhere(t, scenarios(), 6, (*lab).killedAt)
}

// everywhere tries the commands of these scenarios at up to so many of their
// failpoints each.
func everywhere(t *testing.T, all []scenario, most int, try func(l *lab, s scenario, ref *reference, n int)) {
	for _, s := range all {
		t.Run(s.name, func(t *testing.T) {
			l := prepare(t, s)
			ref := l.reference(s)
			points := spread(len(ref.hits), most)
			t.Logf("%d failpoints, %d of them taken", len(ref.hits), len(points))
			for _, n := range points {
				t.Run(fmt.Sprint(n), func(t *testing.T) { try(l.in(t), s, ref, n) })
			}
		})
	}
}

// killedAt kills the command at its n-th failpoint and judges what follows, in
// one of three ways: the next command sweeps and every checkpoint is gone back
// to; it sweeps and the command is repeated; the command is repeated at once.
func (l *lab) killedAt(s scenario, ref *reference, n int) {
	ways := []func(*reference){l.thenRollBack, l.thenRepeat, l.thenRepeatAtOnce}
	if !everything() {
		ways = ways[n%3 : n%3+1]
	}
	for _, way := range ways {
		l.load("before")
		res := l.run(fmt.Sprint(n, ":kill"), ref.args...)
		if len(res.hits) < n {
			if res.code != 0 {
				l.t.Errorf("nothing fired, and yet: %v", res)
			}
			return
		}
		if res.code != -1 {
			l.t.Fatalf("killed at %s, and yet: %v", res.hits[n-1], res)
		}
		way(ref)
		if l.t.Failed() {
			l.t.Logf("killed at %s", res.hits[n-1])
			l.keep()
			return
		}
	}
}

func (l *lab) thenRollBack(ref *reference) {
	l.sweep()
	now := l.judge(ref)
	if now.position == "apply/applied" || now.sandboxes.exact == "" {
		l.end(ref, now)
		return
	}
	for _, cp := range l.checkpoints() {
		if !l.listed(cp.ID) {
			continue // pruned since, to make room for the record of the present
		}
		res := l.run("", "plan", "rollback", "--yes", l.plan, cp.ID)
		if res.code == 3 && slices.Contains(ref.bare, cp.ID) {
			continue // an apply has removed its payload
		}
		if len(now.sandboxes.parts) < len(ref.before.sandboxes.parts) && strings.Contains(res.stderr, "sandbox is missing") {
			// One of several is in the archive already: it comes back, and then all can.
			l.agents("cleanup", "archive", "restore", l.plan)
			now = l.judge(ref)
			res = l.run("", "plan", "rollback", "--yes", l.plan, cp.ID)
		}
		if res.code != 0 {
			l.t.Errorf("rollback to %q: %v", cp.Metadata.Reason, res)
			continue
		}
		got := l.sandboxes(l.status())
		if want, ok := l.steps[cp.ID]; ok && len(want.parts) == len(got.parts) { // a later sandbox goes to its base
			if d := diff(want.exact, got.exact); d != "" {
				l.t.Errorf("rollback to %q is not what was recorded:\n%s", cp.Metadata.Reason, d)
			}
		} else if !ref.was(got) {
			l.t.Errorf("rollback to %q gives a state that never was:\n%s", cp.Metadata.Reason, diff(ref.after.sandboxes.meaning, got.meaning))
		}
	}
	l.end(ref, l.outcome())
}

func (l *lab) listed(id string) bool {
	return slices.ContainsFunc(l.checkpoints(), func(cp checkpoint) bool { return cp.ID == id })
}

func (l *lab) thenRepeat(ref *reference) {
	l.sweep()
	l.judge(ref)
	l.end(ref, l.repeat(ref))
}

func (l *lab) thenRepeatAtOnce(ref *reference) { l.repeat(ref) }

// TestFullDisk lets the disk be full from a failpoint on: the command ends
// with one error, leaves nothing half-made, and does its work once there is room.
func TestFullDisk(t *testing.T) {
	fill := slices.DeleteFunc(scenarios(), func(s scenario) bool { return !slices.Contains(starved, s.name) })
	everywhere(t, fill, 3, (*lab).fullAt)
}

// starved are the scenarios whose disk fills up.
var starved = strings.Fields("create tool exec checkpoint rollback execute apply undo update discard export")

func (l *lab) fullAt(s scenario, ref *reference, n int) {
	l.load("before")
	res := l.run(fmt.Sprint(n, ":enospc"), ref.args...)
	if len(res.hits) < n {
		if res.code != 0 {
			l.t.Errorf("nothing fired, and yet: %v", res)
		}
		return
	}
	if res.code != 0 {
		l.oneError(res, "space")
	}
	user := l.user()
	if user.exact != ref.before.user.exact && (!s.real || user.meaning != ref.after.user.meaning) {
		l.t.Errorf("with a full disk, what is the user's is neither as before nor wholly changed:\n%s", diff(ref.before.user.exact, user.exact))
	}
	l.sweep()
	l.judge(ref)
	l.end(ref, l.repeat(ref))
	if l.t.Failed() {
		l.t.Logf("full from %s on: %v", res.hits[n-1], res)
		l.keep()
	}
}

// everything reports whether every failpoint is wanted.
func everything() bool { return os.Getenv("CLEVERAGENTS_KILLTEST") == "all" }

// spread picks at most most of the numbers 1 to n, evenly, the first and the
// last among them.
func spread(n, most int) (out []int) {
	if one, err := strconv.Atoi(os.Getenv("CLEVERAGENTS_KILLTEST")); err == nil {
		return []int{one}
	}
	if everything() || n <= most {
		most = n
	}
	for i := range most {
		at := 1
		if most > 1 {
			at = 1 + i*(n-1)/(most-1)
		}
		out = append(out, at)
	}
	return out
}
