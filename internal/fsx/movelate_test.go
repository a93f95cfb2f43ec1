//go:build linux

package fsx_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/fsx"
)

var (
	lateFrom = plain{
		"swap": file("1"), "gone": file("2"), "quiet": file("3"), "d": dir(0o755), "d/in": file("4"), "l": link("swap"), "d2f": dir(0o755), "d2f/x": file("5"), long: file("6"),
	}
	lateTo = plain{"swap": file("11"), "quiet": file("33"), "l": file("12"), "d2f": file("55"), long: file("66")}
	lateAt = []string{"d/in", "d2f/x", "gone", long, "swap"}
)

// openAll opens files as a program has them that goes on writing.
func openAll(t *testing.T, root string, paths []string) (write func()) {
	t.Helper()
	var all []*os.File
	for _, path := range paths {
		f, err := os.OpenFile(filepath.Join(root, path), os.O_WRONLY|os.O_APPEND, 0)
		must(t, err)
		t.Cleanup(func() { f.Close() })
		all = append(all, f)
	}
	return func() {
		for _, f := range all {
			_, err := f.WriteString(" late")
			must(t, err)
		}
	}
}

func latePaths(t *testing.T, m *fsx.Move) []string {
	t.Helper()
	late, err := m.LateWrites()
	must(t, err)
	var paths []string
	for _, l := range late {
		if got, err := os.ReadFile(l.Held); err != nil || !strings.HasSuffix(string(got), " late") {
			t.Fatalf("before-image of %s = %q, %v", l.Path, got, err)
		}
		paths = append(paths, l.Path)
	}
	return paths
}

func TestMoveLateWrites(t *testing.T) {
	for _, how := range []string{"undo", "undo committed", "keep", "keep elsewhere", "killed forget"} {
		t.Run(how, func(t *testing.T) {
			b := newBench(t, lateFrom)
			write := openAll(t, b.root, lateAt)
			m := b.prepare(t, lateFrom, lateTo)
			must(t, m.Run(t.Context()))
			if got := latePaths(t, m); got != nil {
				t.Fatalf("late = %q before anybody wrote", got)
			}
			write()
			if how != "undo" {
				must(t, m.Commit())
			}
			m, err := fsx.LoadMove(b.journal)
			must(t, err)
			if diff := cmp.Diff(lateAt, latePaths(t, m)); diff != "" {
				t.Fatalf("late (-want +got):\n%s", diff)
			}
			if strings.HasPrefix(how, "undo") {
				must(t, m.Undo())
				if got := latePaths(t, m); got != nil {
					t.Fatalf("late = %q after undo", got)
				}
				want := plain{}
				for path, n := range lateFrom {
					want[path] = n
				}
				for _, path := range lateAt {
					want[path] = file(lateFrom[path].content + " late")
				}
				compare(t, b.root, want)
				write() // the inode is back, so this too is at the path
				got, _ := read(t, b.root)
				if got["swap"].content != "1 late late" {
					t.Errorf("swap = %q", got["swap"].content)
				}
				must(t, m.Forget())
				b.empty(t)
				return
			}
			if how == "killed forget" { // and what is late came after it
				must(t, os.Rename(filepath.Join(b.journal, "move-committed"), filepath.Join(b.journal, "move-forgotten")))
				m, err = fsx.LoadMove(b.journal)
				must(t, err)
				if err := m.Undo(); !errors.Is(err, agents.ErrState) {
					t.Errorf("undo: %v, want ErrState", err)
				}
			}
			err = m.Forget()
			var at *fsx.MoveError
			if !errors.Is(err, agents.ErrBlocked) || !errors.As(err, &at) || at.Path != lateAt[0] {
				t.Fatalf("forget: %v, want it blocked by %s", err, lateAt[0])
			}
			latePaths(t, m) // all are there still

			keep := filepath.Join(filepath.Dir(b.root), "kept")
			if how == "keep elsewhere" {
				keep = filepath.Join(memoryDir(t), "kept")
			}
			// Names that are taken, and a file where a folder is wanted.
			plain{"d": file("other"), "swap": file("other"), "swap.1": dir(0o755), long: file("other")}.write(t, mkdir700(t, keep))
			for _, want := range []int{len(lateAt), 0} { // then nothing is left to do
				kept, err := m.KeepLate(keep)
				if err != nil || len(kept) != want {
					t.Fatalf("kept %v, %v, want %d", kept, err, want)
				}
			}
			got, _ := read(t, keep)
			want := plain{
				"d": file("other"), "swap": file("other"), "swap.1": dir(0o755), long: file("other"),
				"d.1": dir(0o700), "d.1/in": file("4 late"), "d2f": dir(0o700), "d2f/x": file("5 late"), "gone": file("2 late"),
				"swap.2": file("1 late"), long[:253] + ".1": file("6 late"),
			}
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(node{})); diff != "" {
				t.Fatalf("kept (-want +got):\n%s", diff)
			}
			must(t, m.Forget())
			compare(t, b.root, lateTo)
			b.empty(t)
		})
	}
}

func mkdir700(t *testing.T, path string) string {
	t.Helper()
	must(t, os.Mkdir(path, 0o700))
	return path
}

// TestKeepLateNeedsAnEnd: what Undo still needs is not moved away.
func TestKeepLateNeedsAnEnd(t *testing.T) {
	b := newBench(t, lateFrom)
	write := openAll(t, b.root, lateAt)
	m := b.prepare(t, lateFrom, lateTo)
	must(t, m.Run(t.Context()))
	write()
	if _, err := m.KeepLate(filepath.Join(b.root, "kept")); !errors.Is(err, agents.ErrState) {
		t.Errorf("keep of a prepared move: %v, want ErrState", err)
	}
	must(t, m.Undo())
}
