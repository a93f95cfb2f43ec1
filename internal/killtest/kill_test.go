//go:build linux

package killtest_test

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestKill kills every command at a few of its failpoints, evenly spread. The
// tag failpoint takes more of them, and CLEVERAGENTS_KILLTEST=all every one.
func TestKill(t *testing.T) { killAll(t, few) }

// few is how many failpoints of each command are taken, at most.
const few = 2

// everything reports whether every failpoint is wanted.
func everything() bool { return os.Getenv("CLEVERAGENTS_KILLTEST") == "all" }

func killAll(t *testing.T, most int) {
	for _, s := range scenarios() {
		t.Run(s.name, func(t *testing.T) {
			l := prepare(t, s)
			ref := l.reference(s)
			points := spread(len(ref.hits), most)
			t.Logf("%d failpoints, %d of them taken", len(ref.hits), len(points))
			for _, n := range points {
				t.Run(fmt.Sprint(n), func(t *testing.T) { l.in(t).killedAt(s, ref, n) })
			}
		})
	}
}

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

// in is the lab within a subtest.
func (l *lab) in(t *testing.T) *lab {
	c := *l
	c.t = t
	return &c
}

// outcome is everything that a command may change, as seen from outside.
type outcome struct {
	user      state
	sandboxes state
	position  string
	archived  bool
	objects   []string
}

func (l *lab) outcome() outcome {
	l.t.Helper()
	st := l.status()
	return outcome{user: l.user(), sandboxes: l.sandboxes(st), position: st.position(), objects: l.objects(),
		archived: len(l.glob("data/archive", "0*")) > 0}
}

// reference is what the command does when nothing stops it.
type reference struct {
	args          []string
	hits          []string
	before, after outcome
	passed        []state  // what the sandboxes held at its checkpoints
	bare          []string // checkpoints whose payload is gone, by rule
	archive       state    // what the archive that it left holds
}

func (l *lab) reference(s scenario) *reference {
	l.t.Helper()
	ref := &reference{args: l.argv(s), before: l.outcome()}
	ref.passed = append(l.goBack(), ref.before.sandboxes)
	l.load("before")
	for _, cp := range l.checkpoints() {
		if _, err := os.Lstat(l.at("data", "checkpoints", l.plan, cp.ID)); err != nil {
			ref.bare = append(ref.bare, cp.ID)
		}
	}
	ref.hits = l.agents(ref.args...).hits
	ref.after = l.outcome()
	ref.passed = append(ref.passed, ref.after.sandboxes)
	if d := diff(ref.before.user.exact, ref.after.user.exact); !s.real && d != "" {
		l.t.Errorf("the undisturbed command changed what is the user's:\n%s", d)
	}
	if ref.after.archived && ref.after.sandboxes.exact == "" && ref.after.position != "apply/applied" {
		l.agents("cleanup", "archive", "restore", l.plan)
		ref.archive = l.sandboxes(l.status())
		ref.passed = append(ref.passed, ref.archive)
	}
	ref.passed = append(ref.passed, l.goBack()...)
	return ref
}

// was reports whether the sandboxes were all in this state at one moment. When
// some of them are gone already, each of the others must have been in its own.
func (ref *reference) was(now state) bool {
	return slices.ContainsFunc(ref.passed, func(st state) bool {
		if len(now.parts) >= len(ref.before.sandboxes.parts) {
			return st.meaning == now.meaning
		}
		return !slices.ContainsFunc(now.parts, func(part string) bool { return !slices.Contains(st.parts, part) })
	})
}

// goBack rolls back to each checkpoint that has a payload, and returns what
// the sandboxes then held. A state that the tests have not seen themselves is
// from then on the one that a checkpoint has to give.
func (l *lab) goBack() (out []state) {
	l.t.Helper()
	for _, cp := range l.checkpoints() {
		if l.run("", "plan", "rollback", "--yes", l.plan, cp.ID).code != 0 {
			continue
		}
		st := l.sandboxes(l.status())
		if _, ok := l.steps[cp.ID]; !ok {
			l.steps[cp.ID] = st
		}
		out = append(out, st)
	}
	return out
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

// keep keeps the machine of a failed test where CLEVERAGENTS_KILLTEST_KEEP says.
func (l *lab) keep() {
	if dir := os.Getenv("CLEVERAGENTS_KILLTEST_KEEP"); dir != "" {
		to := dir + "/" + strings.ReplaceAll(l.t.Name(), "/", "_")
		must(l.t, removeAll(to))
		l.copy(l.dir, to)
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

// judge checks that nothing is half-done after the sweep.
func (l *lab) judge(ref *reference) outcome {
	l.t.Helper()
	now := l.outcome()
	if left := l.lockFiles(); len(left) > 0 {
		l.t.Errorf("git's locks are left: %v", left)
	}
	l.judgeObjects(ref)
	untouched, whole := now.user.exact == ref.before.user.exact, now.user.meaning == ref.after.user.meaning
	if len(ref.before.sandboxes.parts) > 1 || len(ref.after.sandboxes.parts) > 1 {
		untouched = untouched || now.user.meaning == ref.before.user.meaning // one was applied and undone: reflogs grow
	}
	if !untouched && (ref.before.user.meaning == ref.after.user.meaning || !whole) {
		l.t.Errorf("what is the user's is neither as before nor wholly changed; to before:\n%s\nto wholly changed:\n%s",
			diff(ref.before.user.exact, now.user.exact), diff(ref.after.user.meaning, now.user.meaning))
	}
	if ref.before.position != ref.after.position && ref.before.user.meaning != ref.after.user.meaning {
		if got, want := now.position == "apply/applied", whole == (ref.after.position == "apply/applied"); got != want {
			l.t.Errorf("the plan is %s and the resource wholly changed: %v", now.position, whole)
		}
	}
	if strings.HasSuffix(now.position, "/processing") {
		l.t.Errorf("the plan is still %s", now.position)
	}
	if now.sandboxes.exact != "" && !ref.was(now.sandboxes) {
		l.t.Errorf("the sandbox is in a state that never was; to before:\n%s\nto after:\n%s",
			diff(ref.before.sandboxes.meaning, now.sandboxes.meaning), diff(ref.after.sandboxes.meaning, now.sandboxes.meaning))
	}
	return now
}

func (l *lab) judgeObjects(ref *reference) {
	l.t.Helper()
	now := l.objects()
	for _, o := range ref.before.objects {
		if !slices.Contains(now, o) {
			l.t.Errorf("the user's object %s is gone", o)
		}
	}
	for _, name := range l.trees() {
		if name == "plain" {
			continue
		}
		if said := l.git(l.at(name), "fsck", "--no-dangling", "--no-progress"); said != "" {
			l.t.Errorf("git fsck in %s: %s", name, said)
		}
	}
}

// repeat runs the killed command again: it must end where it would have.
func (l *lab) repeat(ref *reference) outcome {
	l.t.Helper()
	res := l.run("", ref.args...)
	now := l.outcome()
	if res.code != 0 && res.code != 4 {
		l.t.Errorf("repeated: %v", res)
	}
	for _, c := range []struct{ what, want, got string }{
		{"what is the user's", ref.after.user.meaning, now.user.meaning},
		{"the sandbox", ref.after.sandboxes.meaning, now.sandboxes.meaning},
		{"the plan", ref.after.position, now.position},
	} {
		if d := diff(c.want, c.got); d != "" {
			l.t.Errorf("repeated, %s is not what it would have been:\n%s%v", c.what, d, res)
		}
	}
	if ref.after.archived && !now.archived {
		l.t.Errorf("repeated, and there is no archive: %v", res)
	}
	if left := l.lockFiles(); len(left) > 0 {
		l.t.Errorf("git's locks are left: %v", left)
	}
	return now
}

// end ends the plan: everything goes but the archive, and the archive holds
// the work.
func (l *lab) end(ref *reference, last outcome) {
	l.t.Helper()
	if l.t.Failed() {
		return
	}
	applied := last.position == "apply/applied"
	if !applied {
		if res := l.run("", "plan", "cancel", "--yes", "--discard", l.plan); res.code != 0 {
			l.t.Errorf("discard: %v", res)
		}
	}
	if res := l.run("", "cleanup"); res.code != 0 {
		l.t.Errorf("cleanup: %v", res)
	}
	left := l.leftovers(true)
	if applied { // what an undo needs stays
		left = slices.DeleteFunc(left, func(s string) bool {
			return strings.HasPrefix(s, "data/journal/") || strings.HasPrefix(s, "data/checkpoints/0")
		})
	}
	if len(left) > 0 {
		l.t.Errorf("left over: %q", left)
	}
	archived := len(l.glob("data/archive", "0*")) > 0
	if last.archived && !archived {
		l.t.Errorf("the archive is gone")
	}
	if applied || !archived {
		return
	}
	want := last.sandboxes
	if want.exact == "" {
		want = ref.archive
	}
	if want.exact == "" { // killed while the archive was brought back
		want = ref.after.sandboxes
	}
	if res := l.run("", "cleanup", "archive", "restore", l.plan); res.code != 0 {
		l.t.Errorf("archive restore: %v", res)
	}
	if d := diff(want.meaning, l.sandboxes(l.status()).meaning); d != "" {
		l.t.Errorf("the archive does not hold the work:\n%s", d)
	}
}
