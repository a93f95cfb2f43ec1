//go:build linux

package snapshot_test

import (
	"os"
	"testing"

	"github.com/cleveragents/agents/internal/snapshot"
)

// TestExactDirectoryTimes restores a file that was written in place: the
// directory's time was never another, and is not afterwards.
func TestExactDirectoryTimes(t *testing.T) {
	l := newLab(t)
	l.exact, l.roots[0].Exact = true, true
	l.open(snapshot.Options{})
	l.write("d/f", "one")
	want, first := l.digest(), l.capture()
	must(t, os.WriteFile(l.path("d/f"), []byte("two"), 0))
	l.capture()
	l.restore(first.Ref)
	if d := diff(want, l.digest()); d != "" {
		t.Errorf("the restored directory differs:\n%s", d)
	}
}
