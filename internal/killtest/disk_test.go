//go:build linux && failpoint

package killtest_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// oneError checks that a command failed with exit code 1 and one error that
// says this.
func (l *lab) oneError(res result, says string) {
	l.t.Helper()
	if res.code != 1 {
		l.t.Errorf("want exit code 1: %v", res)
	}
	if n := strings.Count("\n"+res.stderr, "\nError: "); n != 1 {
		l.t.Errorf("got %d errors: %v", n, res)
	}
	if !strings.Contains(res.stderr, says) {
		l.t.Errorf("no word of %q: %v", says, res)
	}
}

// TestB031RealFullDisk has the data directory on a file system that is full:
// one error that names the path, the step taken back, no half checkpoint, the
// earlier ones usable, and the step works once there is room.
func TestB031RealFullDisk(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounting a small file system takes root")
	}
	l := newLab(t)
	mountSmall(t, l.at("data"), 64<<20)
	l.create("repo")
	l.agents("plan", "exec", l.plan, "--", "sh", "-ec", "head -c 3000000 /dev/urandom >big")
	l.note()
	ref := &reference{before: l.outcome(), after: l.outcome()}
	ref.passed = []state{ref.before.sandboxes}
	for _, leave := range []int64{0, 40_000, 400_000, 3_500_000, 7_000_000} {
		t.Run(fmt.Sprint(leave), func(t *testing.T) { l.in(t).stepWithout(ref, leave) })
	}
	l.agents("plan", "exec", l.plan, "--", "sh", "-ec", "head -c 3000000 /dev/urandom >big")
	l.goBack()
	l.end(ref, l.outcome())
}

// TestB031FullCheckpointStore has the checkpoints on a file system of 5 MB and
// takes steps of 3 MB: the one that does not fit fails with one error that says
// where and how much, and is taken back, also when not a byte is free.
func TestB031FullCheckpointStore(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounting a small file system takes root")
	}
	l := newLab(t)
	store := l.at("data", "checkpoints")
	must(t, os.Mkdir(store, 0o700))
	mount(t, store, "-t", "tmpfs", "-o", "size=5m,mode=700", "tmpfs")
	l.create("repo")
	step := func() result {
		return l.run("", "plan", "exec", l.plan, "--", "sh", "-ec", "head -c 3000000 /dev/urandom >big; mkdir -p more; echo x >>more/x")
	}
	if res := step(); res.code != 0 {
		t.Fatalf("the step that fits: %v", res)
	}
	before, listed := l.sandboxes(l.status()), l.checkpoints()
	ballast := filepath.Join(store, "ballast")
	for _, leave := range []string{"some", "nothing"} {
		if leave == "nothing" {
			fill, err := os.Create(ballast)
			must(t, err)
			fillDisk(fill)
			fill.Close()
		}
		res := step()
		l.oneError(res, "space")
		if leave == "some" && (!strings.Contains(res.stderr, store) || !strings.Contains(res.stderr, "3000")) {
			t.Errorf("no word of where and how much: %v", res)
		}
		if d := diff(before.exact, l.sandboxes(l.status()).exact); d != "" {
			t.Errorf("with %s left, the step was not taken back:\n%s%v", leave, d, res)
		}
		if now := l.checkpoints(); len(now) != len(listed) {
			t.Errorf("with %s left, %d checkpoints, want the %d from before", leave, len(now), len(listed))
		}
	}
	must(t, os.Remove(ballast))
	l.agents("plan", "rollback", "--yes", l.plan, listed[0].ID)
	l.agents("plan", "rollback", "--yes", l.plan, listed[len(listed)-1].ID)
	if d := diff(before.exact, l.sandboxes(l.status()).exact); d != "" {
		t.Errorf("the earlier checkpoints are not what they were:\n%s", d)
	}
	l.agents("plan", "checkpoint", "delete", "--yes", l.plan, listed[0].ID)
	must(t, exec.Command("mount", "-o", "remount,size=20m", store).Run())
	if res := step(); res.code != 0 {
		t.Errorf("the step once there is room: %v", res)
	}
}

// TestFullDataDirectory fills the file system of the data directory to its last
// byte: what looks still answers, and what would change something says so.
func TestFullDataDirectory(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounting a small file system takes root")
	}
	l := newLab(t)
	mountSmall(t, l.at("data"), 64<<20)
	l.create("repo")
	l.agents("plan", "exec", l.plan, "--", "sh", "-ec", "echo v2 >a.txt")
	before := l.everything()
	fill, err := os.Create(l.at("data", "ballast"))
	must(t, err)
	fillDisk(fill)
	fill.Close()
	for _, line := range []string{"plan list", "plan status PLAN", "plan checkpoint list PLAN", "plan events PLAN", "doctor"} {
		l.agents(l.words(line)...)
	}
	for _, line := range []string{"plan exec PLAN -- sh -c CHANGE", "plan apply --yes PLAN", "plan rollback --yes PLAN FIRST", "plan cancel --yes --discard PLAN", "plan create -r repo=REPO"} {
		l.oneError(l.run("", l.words(line)...), "space")
	}
	if d := diff(before, l.everything()); d != "" {
		t.Errorf("something changed:\n%s", d)
	}
	must(t, os.Remove(l.at("data", "ballast")))
	l.agents("plan", "apply", "--yes", l.plan)
}

// stepWithout fills the disk up to this many bytes and makes a step that needs
// more.
func (l *lab) stepWithout(ref *reference, leave int64) {
	ballast := l.at("data", "ballast")
	var st syscall.Statfs_t
	must(l.t, syscall.Statfs(l.at("data"), &st))
	fill, err := os.Create(ballast)
	must(l.t, err)
	defer fill.Close()
	must(l.t, syscall.Fallocate(int(fill.Fd()), 0, 0, max(1, int64(st.Bavail)*int64(st.Bsize)-leave-100_000)))
	if leave == 0 {
		fillDisk(fill)
	}
	started := time.Now()
	res := l.run("", "plan", "exec", l.plan, "--", "sh", "-ec", "head -c 6000000 /dev/urandom >big; echo more >more")
	l.oneError(res, "space")
	if d := time.Since(started); d > time.Minute {
		l.t.Errorf("it took %v to give up", d)
	}
	if d := diff(ref.before.user.exact, l.user().exact); d != "" {
		l.t.Errorf("what is the user's changed:\n%s", d)
	}
	must(l.t, os.Remove(ballast))
	fill.Close()
	l.sweep()
	l.judge(ref)
	if l.t.Failed() {
		l.t.Logf("%v", res)
	}
}

// fillDisk writes to a file until the disk takes no block more.
func fillDisk(f *os.File) {
	var err error
	for block := make([]byte, 4096); err == nil; _, err = f.Write(block) {
	}
}

// mountSmall mounts an ext4 of this size at dir.
func mountSmall(t *testing.T, dir string, size int64) {
	t.Helper()
	image := filepath.Join(t.TempDir(), "image")
	f, err := os.Create(image)
	must(t, err)
	must(t, f.Truncate(size))
	must(t, f.Close())
	if out, err := exec.Command("mkfs.ext4", "-q", "-m", "0", image).CombinedOutput(); err != nil {
		t.Skipf("mkfs.ext4: %v: %s", err, out)
	}
	mount(t, dir, "-o", "loop", image)
	must(t, os.Remove(filepath.Join(dir, "lost+found")))
	must(t, os.Chmod(dir, 0o700))
}

// mount mounts something at dir for as long as the test runs.
func mount(t *testing.T, dir string, args ...string) {
	t.Helper()
	if out, err := exec.Command("mount", append(args, dir)...).CombinedOutput(); err != nil {
		t.Skipf("mount: %v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	})
}
