//go:build linux

package copyonwrite_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/fsx"
	"github.com/cleveragents/agents/internal/oracle"
	"github.com/cleveragents/agents/sandbox"
)

// mounted returns a directory with a new file system of this kind, for as long
// as the test runs.
func mounted(t *testing.T, kind string) string {
	t.Helper()
	if !asRoot() {
		t.Skip("only root can mount")
	}
	base, err := os.MkdirTemp("/dev/shm", "agents-test-") // syncing costs nothing there
	if err != nil {
		base = t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(base) })
	image, dir := filepath.Join(base, "image"), filepath.Join(base, "mount")
	must(t, os.Mkdir(dir, 0o755))
	args := []string{"-o", "loop", image, dir}
	if kind == "tmpfs" {
		args = []string{"-t", "tmpfs", "tmpfs", dir}
	} else {
		sh(t, base, "truncate -s 400M image")
		if out, err := exec.Command("mkfs."+kind, "-q", image).CombinedOutput(); err != nil {
			t.Skipf("mkfs.%s: %v: %s", kind, err, out)
		}
	}
	if out, err := exec.Command("mount", args...).CombinedOutput(); err != nil {
		t.Skipf("mount %s: %v: %s", kind, err, out)
	}
	t.Cleanup(func() {
		// Lazily, since a strategy keeps the stores open that it has used.
		if out, err := exec.Command("umount", "-l", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	})
	return dir
}

// TestConformanceWithClones is TestConformance on file systems whose files can
// share their bytes.
func TestConformanceWithClones(t *testing.T) {
	for _, kind := range []string{"xfs", "btrfs"} {
		t.Run(kind, func(t *testing.T) {
			dir := mounted(t, kind)
			if !fsx.CanClone(dir, dir) {
				t.Fatalf("%s makes no clones", kind)
			}
			t.Setenv("TMPDIR", dir)
			conformance(t)
		})
	}
}

// TestEverythingOnClones has what a sandbox does where its copy shares bytes.
func TestEverythingOnClones(t *testing.T) {
	for _, kind := range []string{"xfs", "btrfs"} {
		t.Run(kind, func(t *testing.T) {
			b := newBenchIn(t, filepath.Join(mounted(t, kind), "bench"), base+"; head -c 1000000 /dev/urandom >big; truncate -s 5M hole")
			rich(t, b)
		})
	}
}

// rich makes, changes, takes back, applies and undoes.
func rich(t *testing.T, b *bench) {
	t.Helper()
	before := state(t, b.real)
	b.create()
	same(t, "create", before, state(t, b.ws.Path))
	b.plan("echo p >a; rm del; echo x >>big; mkdir -p new/n; echo n >new/n/n; rm -r dir/sub; ln -sfn b link; chmod 600 b; echo h | dd of=hole bs=1 seek=9000 conv=notrunc status=none")
	changed := state(t, b.ws.Path)
	cp := b.capture()
	b.restore("")
	same(t, "restore of the base", before, state(t, b.ws.Path))
	b.restore(cp.Ref)
	same(t, "restore", changed, state(t, b.ws.Path))
	b.mustApply(false)
	same(t, "apply", oracle.Digest(t, b.ws.Path), oracle.Digest(t, b.real))
	b.mustUndo()
	same(t, "undo", before, state(t, b.real))
	b.remove()
	b.nothingLeft()
}

// TestResourceOnAnotherFileSystem than the data directory: nothing of ours is
// left there.
func TestResourceOnAnotherFileSystem(t *testing.T) {
	for _, kind := range []string{"tmpfs", "xfs"} {
		t.Run(kind, func(t *testing.T) {
			b := newBench(t, "")
			mount := mounted(t, kind)
			b.real = filepath.Join(mount, "below", "real")
			must(t, os.MkdirAll(b.real, 0o755))
			b.user(base + "; head -c 1000000 /dev/urandom >big; truncate -s 5M hole")
			b.req.Resource.Location = b.real
			rich(t, b)
			if entries, err := os.ReadDir(mount); err != nil || len(entries) != 1 {
				t.Errorf("left on the file system: %v, %v", entries, err)
			}
		})
		t.Run(kind+", the whole of it", func(t *testing.T) {
			b := newBench(t, "")
			b.real = mounted(t, kind)
			b.user(base)
			b.req.Resource.Location = b.real
			before := oracle.Digest(t, b.real)
			b.create()
			b.plan("echo p >a; rm del; mkdir new; echo n >new/n")
			b.mustApply(false)
			if got := read(t, b.real+"/a"); got != "p\n" {
				t.Errorf("a = %q", got)
			}
			b.mustUndo()
			b.remove()
			same(t, "undo", before, oracle.Digest(t, b.real))
		})
	}
}

// TestMountInTheSandbox: a plan mounts the resource into its own sandbox. No
// state holds it, nothing comes home through it, and removing the sandbox
// waits until it is gone.
func TestMountInTheSandbox(t *testing.T) {
	b := created(t, `mkdir s; echo 1 >s/f`, `echo 2 >g`)
	before := state(t, b.real)
	at := filepath.Join(b.ws.Path, "s")
	if out, err := exec.Command("mount", "--bind", b.real, at).CombinedOutput(); err != nil {
		t.Skipf("mounting needs root: %s", out)
	}
	defer func() { _ = exec.Command("umount", "-l", at).Run() }()
	if _, err := b.strategy.Capture(t.Context(), b.ws, sandbox.CaptureRequest{Objects: b.objects}); !errors.Is(err, agents.ErrBlocked) {
		t.Errorf("capture with a mount gave %v", err)
	}
	if _, err := b.strategy.Seal(t.Context(), b.ws, sandbox.SealRequest{}); !errors.Is(err, agents.ErrBlocked) {
		t.Errorf("seal with a mount gave %v", err)
	}
	if err := b.strategy.Remove(t.Context(), b.ws); !errors.Is(err, agents.ErrBlocked) {
		t.Errorf("remove with a mount gave %v", err)
	}
	same(t, "a mount in the sandbox", before, state(t, b.real))
	if out, err := exec.Command("umount", at).CombinedOutput(); err != nil {
		t.Fatalf("umount: %s", out)
	}
	b.remove()
	same(t, "removing the sandbox", before, state(t, b.real))
}
