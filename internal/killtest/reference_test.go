//go:build linux && failpoint

package killtest_test

import (
	"os"
	"slices"
	"strings"
	"testing"
)

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

// keep keeps the machine of a failed test where CLEVERAGENTS_KILLTEST_KEEP says.
func (l *lab) keep() {
	if dir := os.Getenv("CLEVERAGENTS_KILLTEST_KEEP"); dir != "" {
		to := dir + "/" + strings.ReplaceAll(l.t.Name(), "/", "_")
		must(l.t, removeAll(to))
		l.copy(l.dir, to)
	}
}

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
