//go:build linux && failpoint

package snapshot_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cleveragents/agents/internal/snapshot"
)

// scene has three states, and changes since the last one.
func scene(t *testing.T, n int, change bool) (l *lab, refs, digests []string) {
	t.Helper()
	l = newLabIn(t, filepath.Join(t.TempDir(), fmt.Sprint(n)))
	note := func() {
		refs = append(refs, l.capture().Ref)
		digests = append(digests, l.digest())
		must(t, l.store.Hold(fmt.Sprint("c", len(refs)), refs[len(refs)-1]))
	}
	l.write("a", "1")
	l.write("d/b", randomText(1, 3000))
	l.writeMode("d/ro/x", "1", 0o444)
	must(t, os.Mkdir(l.path("empty"), 0o755))
	must(t, os.Symlink("a", l.path("link")))
	must(t, unix.Setxattr(l.path("d"), "user.dir", []byte("1"), 0))
	must(t, os.WriteFile(filepath.Join(l.private, "HEAD"), []byte("1"), 0o644))
	note()
	l.write("a", "2")
	l.write("d/b", randomText(2, 200_000))
	must(t, os.RemoveAll(l.path("empty")))
	note()
	l.write("a", "3")
	l.write("d/b", "3")
	l.write("more/deep/f", "x")
	must(t, os.Chmod(l.path("d/ro/x"), 0o600))
	must(t, os.Chmod(l.path("d/ro"), 0o555))
	must(t, os.Remove(l.path("link")))
	must(t, unix.Setxattr(l.path("d"), "user.dir", []byte("3"), 0))
	must(t, os.WriteFile(filepath.Join(l.private, "HEAD"), []byte("3"), 0o644))
	note()
	if change {
		l.write("a", "4")
		l.write("d/new", randomText(3, 100_000))
	}
	must(t, l.store.Close())
	return l, refs, digests
}

// run lets a child do something and fail at the n-th effect. It reports
// whether that was reached.
func run(t *testing.T, l *lab, what string, refs []string, point string) bool {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	log := filepath.Join(l.base, "log")
	must(t, os.RemoveAll(log))
	cmd.Env = append(os.Environ(), "SNAPSHOT_CHILD="+what, "SNAPSHOT_BASE="+l.base, "SNAPSHOT_REFS="+strings.Join(refs, " "),
		"CLEVERAGENTS_FAILPOINT="+point, "CLEVERAGENTS_FAILPOINT_LOG="+log)
	out, err := cmd.CombinedOutput()
	n, mode, _ := strings.Cut(point, ":")
	b, _ := os.ReadFile(log)
	fired := strings.Contains("\n"+string(b), "\n"+n+" ")
	switch {
	case !fired && err != nil:
		t.Fatalf("%s without a fault: %v\n%s", what, err, out)
	case fired && err == nil && !harmless(string(b), n):
		t.Errorf("%s with %s at %s: no error\n%s", what, mode, n, b)
	case fired && mode == "kill" && cmd.ProcessState.ExitCode() != -1:
		t.Errorf("%s: not killed: %v\n%s", what, err, out)
	}
	return fired
}

// harmless reports whether a fault is one that nothing depends on: of writing
// the stat cache, and of removing what a killed process left.
func harmless(log, n string) bool {
	for _, line := range strings.Split(log, "\n") {
		if strings.HasPrefix(line, n+" ") {
			return strings.Contains(line, "/cache") || strings.HasPrefix(line, n+" fsx.remove")
		}
	}
	return false
}

// sound checks that the states are whole, that a new capture is right, and
// that each state can be restored.
func sound(t *testing.T, l *lab, refs, digests []string) {
	t.Helper()
	l.open(snapshot.Options{})
	defer l.store.Close()
	for _, ref := range refs {
		must(t, l.store.Verify(t.Context(), ref))
	}
	c := l.capture()
	if got := l.fresh(); got != c.TreeID {
		t.Errorf("capture afterwards: got %s, want %s", c.TreeID, got)
	}
	must(t, l.store.Verify(t.Context(), c.Ref))
	for i, ref := range refs {
		l.restore(ref)
		if d := diff(digests[i], l.digest()); d != "" {
			t.Errorf("state %d: %s", i, d)
		}
	}
	l.fsck()
	left, _ := filepath.Glob(filepath.Join(l.objects, "objects/pack/tmp_*"))
	for _, p := range append(left, l.options().Stage, l.options().Journal) {
		if _, err := os.Lstat(p); err == nil {
			t.Errorf("%s was left behind", p)
		}
	}
}

// loop calls try for every failpoint until none is reached.
func loop(t *testing.T, try func(t *testing.T, n int, mode string) bool) {
	for _, mode := range []string{"kill", "enospc"} {
		t.Run(mode, func(t *testing.T) {
			for n := 1; ; n++ {
				if !try(t, n, mode) || t.Failed() {
					if n < 4 {
						t.Errorf("only %d failpoints", n-1)
					}
					t.Logf("%d failpoints", n-1)
					return
				}
			}
		})
	}
}

func TestKilledCapture(t *testing.T) {
	for _, what := range []string{"capture", "known"} {
		t.Run(what, func(t *testing.T) {
			loop(t, func(t *testing.T, n int, mode string) bool {
				l, refs, digests := scene(t, n, true)
				fired := run(t, l, what, nil, fmt.Sprint(n, ":", mode))
				if mode == "kill" && what == "capture" && n%3 == 0 { // killed twice
					run(t, l, what, nil, fmt.Sprint(n, ":", mode))
				}
				sound(t, l, refs, digests)
				return fired
			})
		})
	}
}

func TestKilledRestore(t *testing.T) {
	loop(t, func(t *testing.T, n int, mode string) bool {
		l, refs, digests := scene(t, n, false)
		fired := run(t, l, "restore", refs[:1], fmt.Sprint(n, ":", mode))
		if mode == "kill" {
			must(t, snapshot.Recover(t.Context(), l.options().Journal))
		}
		now := l.digest()
		switch {
		case !fired && now != digests[0]:
			t.Errorf("restored: %s", diff(digests[0], now))
		case now != digests[0] && now != digests[2]:
			t.Errorf("neither old nor new after failpoint %d: %s", n, diff(digests[2], now))
		}
		sound(t, l, refs, digests)
		return fired
	})
}

func TestKilledRecover(t *testing.T) {
	for at := 30; at < 200; at += 9 {
		n := 0
		for more := true; more; {
			n++
			l, refs, digests := scene(t, at*1000+n, false)
			if !run(t, l, "restore", refs[:1], fmt.Sprint(at, ":kill")) {
				return
			}
			more = run(t, l, "recover", nil, fmt.Sprint(n, ":kill"))
			must(t, snapshot.Recover(t.Context(), l.options().Journal))
			if now := l.digest(); now != digests[0] && now != digests[2] {
				t.Fatalf("neither old nor new, killed at %d and %d: %s", at, n, diff(digests[2], now))
			}
			n += 2
		}
	}
}

func TestKilledCollect(t *testing.T) {
	loop(t, func(t *testing.T, n int, mode string) bool {
		l, refs, digests := scene(t, n, false)
		l.open(snapshot.Options{})
		must(t, l.store.Release("c2"))
		must(t, l.store.Close())
		keep, kept := []string{refs[0], refs[2]}, []string{digests[0], digests[2]}
		fired := run(t, l, "collect", keep, fmt.Sprint(n, ":", mode))
		sound(t, l, keep, kept)
		l.open(snapshot.Options{})
		if _, err := l.store.Collect(t.Context(), keep); err != nil {
			t.Error(err)
		}
		if size, _ := l.store.Size(); size > 100_000 {
			t.Errorf("store after collecting again: %d bytes", size)
		}
		sound(t, l, keep, kept)
		return fired
	})
}
