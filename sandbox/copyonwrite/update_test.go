//go:build linux

package copyonwrite_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/sandbox"
)

// update brings the real side's changes into the sandbox.
func (b *bench) update() (agents.ResourceResult, error) {
	b.t.Helper()
	before := state(b.t, b.real)
	res, ws, err := b.strategy.Update(b.t.Context(), b.ws, time.Time{})
	same(b.t, "an update", before, state(b.t, b.real))
	b.ws = ws
	return res, err
}

func content(t *testing.T, dir, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestUpdate: what both sides made comes together, lines of one file too, and
// the apply after it has no conflict left.
func TestUpdate(t *testing.T) {
	b := created(t, `seq 1 30 >text; echo 1 >theirs; echo 1 >gone; mkdir d; echo 1 >d/x`,
		`sed -i 's/^2$/plan/' text; echo 1 >mine`)
	b.user(`sed -i 's/^29$/user/' text; echo 2 >theirs; rm gone; echo new >d/new; chmod 700 d`)
	if _, err := b.apply(false); !errors.Is(err, agents.ErrConflict) {
		t.Fatalf("apply before the update gave %v", err)
	}
	res, err := b.update()
	if err != nil || res.State != agents.ApplyApplied || len(res.Added) != 1 || len(res.Changed) != 2 || len(res.Deleted) != 1 {
		t.Fatalf("update gave %+v, %v", res, err)
	}
	b.plan(`grep -qx plan text && grep -qx user text && grep -qx 2 theirs && test ! -e gone && grep -qx new d/new && test "$(stat -c %a d)" = 700`)
	if res, err := b.apply(false); err != nil || len(res.Changed) != 1 || len(res.Added) != 1 {
		t.Fatalf("apply after the update gave %+v, %v", res, err)
	}
	b.user(`grep -qx plan text && grep -qx user text && grep -qx 1 mine`)
}

// TestUpdateRefused: what does not come together changes nothing.
func TestUpdateRefused(t *testing.T) {
	for name, c := range map[string]struct{ plan, user, path string }{
		"the same lines":         {`sed -i 's/^2$/plan/' text`, `sed -i 's/^2$/user/' text`, "text"},
		"changed and deleted":    {`echo p >>text`, `rm text`, "text"},
		"added by both":          {`echo p >new`, `echo u >new`, "new"},
		"into a removed place":   {`echo p >d/new`, `rm -r d`, "d/new"},
		"a file for a directory": {`rm -r d; echo p >d`, `echo u >d/x`, "d/x"},
	} {
		t.Run(name, func(t *testing.T) {
			b := created(t, `seq 1 30 >text; mkdir d; echo 1 >d/x`, c.plan)
			before := state(t, b.ws.Path)
			b.user(c.user)
			res, err := b.update()
			if !errors.Is(err, agents.ErrConflict) || len(res.Conflicts) == 0 || res.Conflicts[0].Path != c.path {
				t.Errorf("update gave %+v, %v, want a conflict at %s", res.Conflicts, err, c.path)
			}
			same(t, "a refused update", before, state(t, b.ws.Path))
		})
	}
}

// TestRollbackOverAnUpdate: a state from before an update has the old base:
// what the user changed is a conflict again and not taken back.
func TestRollbackOverAnUpdate(t *testing.T) {
	b := created(t, `echo 1 >f; echo 1 >g`, `echo plan >g`)
	old := b.capture()
	b.user(`echo user >f`)
	if _, err := b.update(); err != nil {
		t.Fatal(err)
	}
	b.capture()
	b.restore(old.Ref)
	b.plan(`grep -qx 1 f`)
	if res, err := b.apply(false); err != nil || len(res.Changed) != 1 {
		t.Fatalf("apply gave %+v, %v", res, err)
	}
	if got := content(t, b.real, "f"); got != "user\n" {
		t.Errorf("the user's change became %q", got)
	}
	if got := content(t, b.real, "g"); got != "plan\n" {
		t.Errorf("the plan's change came home as %q", got)
	}
}

// TestPlansShareABase: a second plan on the directory stores nothing of it
// again and reads what has not changed for no base; what changed is right.
func TestPlansShareABase(t *testing.T) {
	b := newBench(t, `for i in $(seq 50); do seq $i 2000 >f$i; done; touch -d '2020-01-01' f*; sleep 0.01`)
	b.req.Shared = filepath.Join(b.dir, "data", "shared")
	b.create()
	before := treeSize(t, b.req.Shared)
	b.user(`echo changed >>f7`)
	second := *b
	second.req.PrivateDir = filepath.Join(b.dir, "data", "private2")
	second.req.SandboxID, second.objects = "01JQSANDBOX2", filepath.Join(b.dir, "data", "objects2")
	must(t, os.Mkdir(second.req.PrivateDir, 0o700))
	second.create()
	if grown := treeSize(t, b.req.Shared) - before; grown > 32<<10 {
		t.Errorf("the second plan on the directory added %d bytes to %d", grown, before)
	}
	second.plan(`echo plan >>f7; echo plan >>f8`)
	first, err := second.strategy.Diff(t.Context(), second.ws, sandbox.DiffRequest{Objects: second.objects, Counts: true})
	if err != nil || len(first) != 2 || first[0].Insertions != 1 || first[1].Insertions != 1 {
		t.Errorf("diff of the second plan: %+v, %v, want one line in f7 and in f8", first, err)
	}
	if res, err := second.apply(false); err != nil || len(res.Changed) != 2 {
		t.Errorf("apply of the second plan gave %+v, %v", res, err)
	}
}

func treeSize(t *testing.T, dir string) (bytes int64) {
	t.Helper()
	must(t, filepath.WalkDir(dir, func(_ string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		fi, err := d.Info()
		if err == nil {
			bytes += fi.Size()
		}
		return err
	}))
	return bytes
}
