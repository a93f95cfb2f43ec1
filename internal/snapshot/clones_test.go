//go:build linux

package snapshot_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/snapshot"
)

// cloneLab is a lab above a store that keeps contents as clones, or as copies
// where the file system does not clone.
func cloneLab(t *testing.T) (l *lab, base snapshot.Captured) {
	t.Helper()
	l = newLab(t)
	l.exact, l.roots[0].Exact = true, true
	l.write("big", strings.Repeat("a line\n", 2000))
	l.write("d/other", strings.Repeat("another\n", 3000))
	l.write("small", "small\n")
	below := filepath.Join(l.base, "below")
	store, err := snapshot.Open(t.Context(), below, snapshot.Options{Clones: true})
	must(t, err)
	tracker, err := snapshot.NewTracker(store, l.roots, l.cache)
	must(t, err)
	base, err = tracker.Capture(t.Context(), snapshot.CaptureOptions{Label: "base"})
	must(t, err)
	must(t, store.Close())
	l.open(snapshot.Options{Below: below})
	return l, base
}

func clonesOf(t *testing.T, l *lab) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(l.base, "below", "objects", "clones", "clones-*", "*", "*"))
	must(t, err)
	return files
}

// TestClonesAreStates: what is kept as clones is restored, shared by the states
// above, verified as it is read, and shown to git on demand.
func TestClonesAreStates(t *testing.T) {
	l, base := cloneLab(t)
	want := l.digest()
	if n := len(clonesOf(t, l)); n != 2 {
		t.Fatalf("%d clones, want those of the two big files", n)
	}
	l.write("big", strings.Repeat("changed\n", 2000))
	must(t, os.Remove(l.path("d/other")))
	second := l.capture()
	if second.FilesRead > 2 { // one may have been written in the tick of the first capture
		t.Errorf("%d files were read, want the changed one", second.FilesRead)
	}
	must(t, l.store.Verify(t.Context(), second.Ref))
	must(t, l.store.Unfold(t.Context(), base.Ref, second.Ref))
	if got := l.git("diff", "--stat", base.Ref+":files", second.Ref+":files"); !strings.Contains(got, "2 files changed, 2000 insertions(+), 5000 deletions(-)") {
		t.Errorf("git diff says %s", got)
	}
	l.restore(base.Ref)
	if d := diff(want, l.digest()); d != "" {
		t.Errorf("restored from clones:\n%s", d)
	}
}

// TestDamagedCloneChangesNothing: B008 for clones.
func TestDamagedCloneChangesNothing(t *testing.T) {
	for _, c := range []struct {
		name   string
		damage func(path string) error
	}{
		{"gone", os.Remove},
		{"cut", func(path string) error { return errors.Join(os.Chmod(path, 0o600), os.Truncate(path, 100)) }},
		{"changed", func(path string) error {
			return errors.Join(os.Remove(path), os.WriteFile(path, []byte(strings.Repeat("wrong", 4000)), 0o400))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, base := cloneLab(t)
			l.write("big", "changed\n")
			must(t, os.Remove(l.path("d/other")))
			l.capture()
			before := l.digest()
			for _, path := range clonesOf(t, l) {
				must(t, c.damage(path))
			}
			if _, err := l.tracker.Restore(t.Context(), base.Ref, l.options()); !errors.Is(err, agents.ErrDamaged) {
				t.Errorf("restore from damaged clones gave %v", err)
			}
			if d := diff(before, l.digest()); d != "" {
				t.Errorf("a failed restore changed:\n%s", d)
			}
		})
	}
}
