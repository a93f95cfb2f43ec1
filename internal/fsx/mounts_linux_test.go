package fsx_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cleveragents/agents/internal/fsx"
)

// bind mounts one directory over another until the test ends.
func bind(t *testing.T, from, to string) {
	t.Helper()
	if err := unix.Mount(from, to, "", unix.MS_BIND, ""); errors.Is(err, unix.EPERM) {
		t.Skip("mounting needs root")
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(to, unix.MNT_DETACH) })
}

// TestRemoveAllCrossesNoBindMount: what is mounted in a tree, of the same file
// system too, is somebody else's.
func TestRemoveAllCrossesNoBindMount(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"tree/a b/deep", "real", "sandbox"} {
		must(t, os.MkdirAll(filepath.Join(dir, name), 0o755))
	}
	must(t, os.WriteFile(filepath.Join(dir, "real", "f"), []byte("mine"), 0o644))
	bind(t, filepath.Join(dir, "real"), filepath.Join(dir, "tree", "a b"))
	bind(t, filepath.Join(dir, "real"), filepath.Join(dir, "sandbox"))
	if got, err := fsx.MountsBelow(filepath.Join(dir, "tree")); err != nil || len(got) != 1 || filepath.Base(got[0]) != "a b" {
		t.Errorf("mounted are %q, %v, want the one", got, err)
	}
	for _, name := range []string{"tree", "sandbox"} {
		if err := fsx.RemoveAll(filepath.Join(dir, name)); err == nil {
			t.Errorf("%s was removed with what is mounted in it", name)
		}
	}
	if got, err := os.ReadFile(filepath.Join(dir, "real", "f")); err != nil || string(got) != "mine" {
		t.Errorf("the mounted file is %q, %v", got, err)
	}
}
