//go:build linux

package snapshot_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/snapshot"
)

// randomText returns n bytes that do not compress.
func randomText(seed uint64, n int) string {
	r := rand.New(rand.NewPCG(seed, 1))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return string(b)
}

func TestB007BigFilesAreRestoredNotDeleted(t *testing.T) {
	l := newLab(t)
	l.write("app.log", randomText(1, 30<<20))
	l.write("flat.log", strings.Repeat("x", 5<<20))
	first := l.capture()
	want := l.digest()
	f, err := os.OpenFile(l.path("app.log"), os.O_WRONLY|os.O_APPEND, 0)
	must(t, err)
	f.WriteString("x\n")
	must(t, f.Close())
	second := l.capture()
	wantSecond := l.digest()
	l.write("b", "1")
	must(t, os.Remove(l.path("flat.log")))
	l.restore(second.Ref)
	if d := diff(wantSecond, l.digest()); d != "" {
		t.Errorf("second state: %s", d)
	}
	got := l.restore(first.Ref)
	if d := diff(want, l.digest()); d != "" {
		t.Errorf("first state: %s", d)
	}
	if len(got.Changes) != 1 || got.Changes[0].Path != "app.log" || got.Changes[0].Action != "restored" {
		t.Errorf("changes: got %+v, want app.log alone", got.Changes)
	}
	l.fsck()
}

func TestB008DamagedPayloadChangesNothing(t *testing.T) {
	for name, damage := range map[string]func(t *testing.T, pack string){
		"pack cut to nothing": func(t *testing.T, pack string) { must(t, os.Truncate(pack, 0)) },
		"pack cut short": func(t *testing.T, pack string) {
			fi, err := os.Stat(pack)
			must(t, err)
			must(t, os.Truncate(pack, fi.Size()-1))
		},
		"pack missing": func(t *testing.T, pack string) { must(t, os.Remove(pack)) },
		"byte changed": func(t *testing.T, pack string) {
			b, err := os.ReadFile(pack)
			must(t, err)
			b[30] ^= 0x40
			must(t, os.WriteFile(pack, b, 0o600))
		},
		"index cut short": func(t *testing.T, pack string) { must(t, os.Truncate(strings.TrimSuffix(pack, ".pack")+".idx", 100)) },
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			for i := range 20 {
				l.write(fmt.Sprint("f", i), fmt.Sprint("old", i))
			}
			first := l.capture()
			packs, _ := filepath.Glob(filepath.Join(l.objects, "objects/pack/*.pack"))
			for i := range 20 {
				l.write(fmt.Sprint("f", i), fmt.Sprint("new", i))
			}
			second := l.capture()
			want := l.digest()
			damage(t, packs[0])
			l.open(snapshot.Options{})
			_, err := l.tracker.Restore(t.Context(), first.Ref, l.options())
			if !errors.Is(err, agents.ErrDamaged) {
				t.Errorf("restore: got %v, want ErrDamaged", err)
			}
			if err := l.store.Verify(t.Context(), first.Ref); !errors.Is(err, agents.ErrDamaged) {
				t.Errorf("verify of the damaged state: got %v, want ErrDamaged", err)
			}
			if d := diff(want, l.digest()); d != "" {
				t.Errorf("the tree changed: %s", d)
			}
			if _, err := os.Stat(l.options().Stage); err == nil {
				t.Error("the stage is still there")
			}
			third := l.capture()
			if third.TreeID != second.TreeID {
				t.Errorf("capture afterwards: got %s, want %s", third.TreeID, second.TreeID)
			}
			must(t, l.store.Verify(t.Context(), third.Ref))
		})
	}
}

func TestB013NestedRepositoriesArePlainTrees(t *testing.T) {
	l := newLab(t, ".git")
	for _, sub := range []string{".", "be", "deep/fe"} {
		l.write(filepath.Join(sub, "x"), "1")
		for _, args := range [][]string{{"init", "-q"}, {"add", "x"}, {"-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x"}} {
			if out, err := exec.Command("git", append([]string{"-C", l.path(sub)}, args...)...).CombinedOutput(); err != nil {
				t.Fatalf("git %v: %v %s", args, err, out)
			}
		}
	}
	first := l.capture()
	want := l.digest()
	l.write("be/x", "2")
	l.write("deep/fe/y", "3")
	l.write("be/.git/refs/heads/other", "junk")
	must(t, os.RemoveAll(l.path("deep/fe/.git")))
	l.capture()
	l.restore(first.Ref)
	if d := diff(want, l.digest()); d != "" {
		t.Errorf("restored: %s", d)
	}
	l.fsck()
	for _, line := range strings.Split(l.git("ls-tree", "-r", "--name-only", first.Ref), "\n") {
		if strings.HasPrefix(line, "files/.git/") {
			t.Errorf("the root's own .git is recorded: %s", line)
		}
	}
}

func TestB013SkippedPathsAreNotTouched(t *testing.T) {
	l := newLab(t, ".git", "keep/me")
	l.write(".git/config", "a")
	l.write("keep/other", "b")
	first := l.capture()
	l.write("keep/me/x", "c")
	l.write(".git/config", "d")
	must(t, os.Remove(l.path("keep/other")))
	l.capture()
	l.restore(first.Ref)
	for p, want := range map[string]string{".git/config": "d", "keep/me/x": "c", "keep/other": "b"} {
		if got, err := os.ReadFile(l.path(p)); err != nil || string(got) != want {
			t.Errorf("%s: got %q %v, want %q", p, got, err, want)
		}
	}
}

func TestB016IgnoredFilesAreRestoredAndRemoved(t *testing.T) {
	l := newLab(t)
	l.write(".gitignore", ".env\ndist/\n")
	l.write(".env", "A=1")
	state := l.capture()
	want := l.digest()
	l.write(".env", "A=2")
	l.write("dist/o", "x")
	l.capture()
	got := l.restore(state.Ref)
	if d := diff(want, l.digest()); d != "" {
		t.Errorf("restored: %s", d)
	}
	wantChanges := []agents.RestoredPath{{Resource: "files", Path: ".env", Action: "restored"}, {Resource: "files", Path: "dist/o", Action: "removed"}}
	if !slices.Equal(got.Changes, wantChanges) {
		t.Errorf("changes: got %+v, want %+v", got.Changes, wantChanges)
	}
}

func TestB019EmptyDirectories(t *testing.T) {
	l := newLab(t)
	for _, d := range []string{"empty", ".git/refs/tags", "node_modules/.cache"} {
		must(t, os.MkdirAll(l.path(d), 0o755))
	}
	must(t, os.Chmod(l.path("empty"), 0o700))
	state := l.capture()
	want := l.digest()
	must(t, os.Remove(l.path("empty")))
	must(t, os.MkdirAll(l.path("n/e"), 0o755))
	l.capture()
	got := l.restore(state.Ref)
	if d := diff(want, l.digest()); d != "" {
		t.Errorf("restored: %s", d)
	}
	wantChanges := []agents.RestoredPath{{Resource: "files", Path: "empty", Action: "restored"}, {Resource: "files", Path: "n/e", Action: "removed"}}
	if !slices.Equal(got.Changes, wantChanges) {
		t.Errorf("changes: got %+v, want %+v", got.Changes, wantChanges)
	}
}

func TestB023StoreGrowsWithChangesOnly(t *testing.T) {
	l := newLab(t)
	total := 0
	for i := range 200 {
		s := randomText(uint64(i), 20_000)
		total += len(s)
		l.write(fmt.Sprintf("d%d/f%d", i%20, i), s)
	}
	l.capture()
	for i := range 10 {
		l.write("d1/f1", fmt.Sprint("line", i))
		l.capture()
	}
	size, err := l.store.Size()
	must(t, err)
	if float64(size) > 1.2*float64(total) {
		t.Errorf("store: %d bytes for %d", size, total)
	}
}

func TestB025OnlyChangedBytesAreRead(t *testing.T) {
	l := newLab(t)
	for i := range 500 {
		l.write(fmt.Sprintf("d%d/f%d", i%20, i), strings.Repeat("x", 10_000))
	}
	l.capture()
	l.capture() // reads what was too young for the first
	for i := range 5 {
		content := fmt.Sprint("changed", i)
		l.write("d3/f3", content)
		c := l.capture()
		if max := int64(len(content) + len("changed0")); c.BytesRead > max || c.FilesRead > 1 {
			t.Errorf("round %d: read %d bytes of %d files, want at most %d of 1", i, c.BytesRead, c.FilesRead, max)
		}
	}
	l.open(snapshot.Options{})
	if c := l.capture(); c.Changed || c.FilesRead > 1 {
		t.Errorf("another process: got %+v, want nothing read but the youngest file", c)
	}
}

func TestB027CollectFreesBytes(t *testing.T) {
	l := newLab(t)
	l.write("small/one", "1")
	const each = 500_000
	var refs []string
	for i := range 20 {
		l.write("big", randomText(uint64(i), each))
		c := l.capture()
		refs = append(refs, c.Ref)
		must(t, l.store.Hold(fmt.Sprint("c", i), c.Ref))
		if i >= 5 {
			must(t, l.store.Release(fmt.Sprint("c", i-4)))
			freed, err := l.store.Collect(t.Context(), []string{refs[0]})
			must(t, err)
			if freed < each*9/10 {
				t.Errorf("round %d: freed %d bytes, want about %d", i, freed, each)
			}
		}
	}
	size, err := l.store.Size()
	must(t, err)
	if size > 6*each {
		t.Errorf("store: %d bytes, want about %d", size, 5*each)
	}
	held, err := l.store.Held()
	must(t, err)
	if len(held) != 5 {
		t.Errorf("held: got %v, want 5", held)
	}
	for _, ref := range held {
		must(t, l.store.Verify(t.Context(), ref))
	}
	l.restore(refs[0])
	if got, _ := os.ReadFile(l.path("big")); string(got) != randomText(0, each) {
		t.Error("the first state has other bytes")
	}
	l.fsck()
	l.write("small/two", "2")
	c := l.capture()
	must(t, l.store.Verify(t.Context(), c.Ref))
	if got := l.fresh(); got != c.TreeID {
		t.Errorf("capture after collecting: got %s, want %s", c.TreeID, got)
	}
}

// The state that is on the disk may be in no kept state: capturing it again
// must not believe the cache that its content is stored.
func TestB027CaptureAfterItsStateWasCollected(t *testing.T) {
	l := newLab(t)
	l.write("a", "1")
	must(t, os.Chmod(l.path("a"), 0o600))
	first := l.capture()
	l.write("d/e/b", randomText(7, 50_000))
	l.write("a", "2")
	second := l.capture()
	if _, err := l.store.Collect(t.Context(), []string{first.Ref}); err != nil {
		t.Fatal(err)
	}
	if err := l.store.Verify(t.Context(), second.Ref); err == nil {
		t.Error("the dropped state is still there")
	}
	for _, known := range []bool{true, false} {
		l.write("c", fmt.Sprint(known))
		c := snapshot.Captured{}
		if known {
			c = l.captureKnown("c")
		} else {
			c = l.capture()
		}
		must(t, l.store.Verify(t.Context(), c.Ref))
		if got := l.fresh(); got != c.TreeID {
			t.Errorf("got tree %s, want %s", c.TreeID, got)
		}
	}
	l.fsck()
}

func TestCollectJoinsSmallPacks(t *testing.T) {
	l := newLab(t)
	var refs []string
	for i := range 40 {
		l.write("f", fmt.Sprint(i))
		refs = append(refs, l.capture().Ref)
	}
	if _, err := l.store.Collect(t.Context(), refs); err != nil {
		t.Fatal(err)
	}
	packs, _ := filepath.Glob(filepath.Join(l.objects, "objects/pack/*.pack"))
	if len(packs) != 1 {
		t.Errorf("got %d packs, want 1", len(packs))
	}
	for _, ref := range refs {
		must(t, l.store.Verify(t.Context(), ref))
	}
}

func TestB069NamesThatAreNoText(t *testing.T) {
	l := newLab(t)
	l.write("\xfe", "1")
	l.write("\xff", "2")
	l.writeMode("dir\xff/new\nline", "3", 0o600)
	state := l.capture()
	want := l.digest()
	l.write("\xfe", "x")
	l.write("\xff", "y")
	must(t, os.RemoveAll(l.path("dir\xff")))
	l.capture()
	l.restore(state.Ref)
	if d := diff(want, l.digest()); d != "" {
		t.Errorf("restored: %s", d)
	}
	changes, err := l.store.Compare(t.Context(), "", state.Ref)
	must(t, err)
	var got []string
	for _, c := range changes {
		got = append(got, c.Path)
	}
	if !slices.Contains(got, "dir\xff/new\nline") || !slices.Contains(got, "\xfe") {
		t.Errorf("paths: got %q", got)
	}
}

func TestB113NewestPackDamaged(t *testing.T) {
	l := newLab(t)
	var refs []string
	var last string
	for i := range 5 {
		before, _ := filepath.Glob(filepath.Join(l.objects, "objects/pack/*.pack"))
		l.write("f", fmt.Sprint(i))
		refs = append(refs, l.capture().Ref)
		after, _ := filepath.Glob(filepath.Join(l.objects, "objects/pack/*.pack"))
		for _, p := range after {
			if !slices.Contains(before, p) {
				last = p
			}
		}
	}
	must(t, os.Truncate(last, 0))
	l.open(snapshot.Options{})
	for i, ref := range refs {
		err := l.store.Verify(t.Context(), ref)
		if i < 4 && err != nil || i == 4 && !errors.Is(err, agents.ErrDamaged) {
			t.Errorf("state %d: got %v", i, err)
		}
	}
	c := l.capture()
	must(t, l.store.Verify(t.Context(), c.Ref))
	l.restore(refs[2])
	if got, _ := os.ReadFile(l.path("f")); string(got) != "2" {
		t.Errorf("restored: got %q, want 2", got)
	}
}

func TestSpecialFilesAreLeftAlone(t *testing.T) {
	l := newLab(t)
	l.write("a", "1")
	state := l.capture()
	must(t, os.MkdirAll(l.path("new/deep"), 0o755))
	must(t, syscall.Mkfifo(l.path("new/deep/fifo"), 0o644))
	l.write("new/deep/file", "x")
	l.write("a", "2")
	c := l.capture()
	if len(c.LeftOut) != 1 || c.LeftOut[0].Path != "new/deep/fifo" || c.LeftOut[0].Resource != "files" {
		t.Errorf("left out: got %+v", c.LeftOut)
	}
	if again := l.capture(); len(again.LeftOut) != 1 {
		t.Errorf("left out of an unchanged state: got %+v", again.LeftOut)
	}
	got := l.restore(state.Ref)
	if _, err := os.Lstat(l.path("new/deep/fifo")); err != nil {
		t.Errorf("the FIFO: %v", err)
	}
	if _, err := os.Lstat(l.path("new/deep/file")); err == nil {
		t.Error("the file beside the FIFO is still there")
	}
	if len(got.Changes) != 2 || len(got.LeftOut) != 1 {
		t.Errorf("restored: got %+v", got)
	}

	must(t, os.Remove(l.path("a")))
	must(t, syscall.Mkfifo(l.path("a"), 0o644))
	_, err := l.tracker.Restore(t.Context(), state.Ref, l.options())
	if !errors.Is(err, agents.ErrBlocked) {
		t.Errorf("a FIFO in a file's place: got %v, want ErrBlocked", err)
	}
}

func TestAttributesAreRestored(t *testing.T) {
	l := newLab(t)
	l.writeMode("setuid", "x", os.ModeSetuid|0o755)
	l.writeMode("ro", "x", 0o644)
	must(t, os.MkdirAll(l.path("dir/sub"), 0o755))
	must(t, os.Chmod(l.path("dir/sub"), 0o2770|os.ModeSetgid))
	must(t, os.Chmod(l.dir, 0o711))
	must(t, unix.Setxattr(l.path("ro"), "user.note", []byte("a\x00b"), 0))
	must(t, os.Chmod(l.path("ro"), 0o444)) // then only root may set more of them
	must(t, unix.Setxattr(l.path("dir"), "user.dir", []byte("1"), 0))
	must(t, unix.Setxattr(l.dir, "user.top", []byte("1"), 0))
	l.write("locked/inside", "x")
	must(t, os.Chmod(l.path("locked"), 0o555))
	if os.Geteuid() == 0 {
		must(t, os.Lchown(l.path("dir/sub"), 11, 12))
		must(t, os.Lchown(l.path("ro"), 13, 14))
		must(t, os.Symlink("x", l.path("link")))
		must(t, os.Lchown(l.path("link"), 15, 16))
		must(t, os.Lchown(l.path("setuid"), 17, 18))
		must(t, os.Chmod(l.path("setuid"), os.ModeSetuid|0o755))
	}
	state := l.capture()
	want := l.digest()

	for _, p := range []string{"setuid", "ro", "dir/sub", "", "locked"} {
		must(t, os.Chmod(l.path(p), 0o700))
	}
	must(t, unix.Setxattr(l.path("ro"), "user.note", []byte("c"), 0))
	must(t, unix.Removexattr(l.path("dir"), "user.dir"))
	must(t, unix.Setxattr(l.dir, "user.more", []byte("1"), 0))
	l.write("locked/inside", "y")
	if os.Geteuid() == 0 {
		for _, p := range []string{"dir/sub", "ro", "link", "dir"} {
			must(t, os.Lchown(l.path(p), 0, 0))
		}
		must(t, os.Lchown(l.dir, 5, 5))
	}
	changed := l.capture()
	wantChanged := l.digest()
	l.restore(state.Ref)
	if d := diff(want, l.digest()); d != "" {
		t.Errorf("restored: %s", d)
	}
	if got := l.fresh(); got != state.TreeID {
		t.Errorf("tree: got %s, want %s", got, state.TreeID)
	}
	l.restore(changed.Ref)
	if d := diff(wantChanged, l.digest()); d != "" {
		t.Errorf("restored again: %s", d)
	}
}

func TestUmaskCostsLittle(t *testing.T) {
	l := newLab(t)
	for i := range 300 {
		l.writeMode(fmt.Sprintf("d%d/f%d", i%30, i), "x", 0o660)
	}
	l.capture()
	l.writeMode("d1/f1", "y", 0o660)
	c := l.capture()
	if c.BytesAdded > 4000 {
		t.Errorf("one file changed: %d bytes added", c.BytesAdded)
	}
	blob := l.git("show", c.Ref+":attributes/files/+d1/entries")
	if want := "modes 0660 0755 0755\n"; blob != want {
		t.Errorf("attributes: got %q, want %q", blob, want)
	}
}

func TestUnreadableFileRefusesTheCapture(t *testing.T) {
	if os.Geteuid() == 0 {
		runAsNobody(t)
		return
	}
	l := newLab(t)
	l.write("a", "1")
	first := l.capture()
	l.writeMode("sub/locked", "2", 0)
	_, err := l.tracker.Capture(t.Context(), snapshot.CaptureOptions{})
	if err == nil || !strings.Contains(err.Error(), "sub/locked") || agents.HintOf(err) == "" {
		t.Errorf("got %v, want an error that names the file and a hint", err)
	}
	must(t, l.store.Verify(t.Context(), first.Ref))
	must(t, os.Chmod(l.path("sub/locked"), 0o400))
	must(t, os.Chmod(l.path("sub"), 0o555))
	second := l.capture()
	want := l.digest()
	must(t, os.Chmod(l.path("sub"), 0o755))
	must(t, os.RemoveAll(l.path("sub")))
	l.restore(second.Ref)
	if d := diff(want, l.digest()); d != "" {
		t.Errorf("read-only directory: %s", d)
	}
	l.restore(first.Ref)
	if _, err := os.Lstat(l.path("sub")); err == nil {
		t.Error("the read-only directory is still there")
	}
}

// runAsNobody runs the test again as a user whom permissions bind.
func runAsNobody(t *testing.T) {
	t.Helper()
	exe, err := os.Executable()
	must(t, err)
	dir, err := os.MkdirTemp("", "snapshot-nobody")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	must(t, os.Chmod(dir, 0o777))
	bin := filepath.Join(dir, "test")
	b, err := os.ReadFile(exe)
	must(t, err)
	must(t, os.WriteFile(bin, b, 0o755))
	cmd := exec.Command(bin, "-test.run", "^"+t.Name()+"$")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "TMPDIR="+dir, "HOME="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("as another user: %v\n%s", err, out)
	}
}

func TestFileThatKeepsChangingRefusesTheCapture(t *testing.T) {
	l := newLab(t)
	l.write("log", strings.Repeat("x", 3<<20))
	stop, done := make(chan bool), make(chan bool)
	go func() {
		defer close(done)
		f, err := os.OpenFile(l.path("log"), os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			return
		}
		defer f.Close()
		for {
			select {
			case <-stop:
				return
			default:
				f.WriteString("y")
			}
		}
	}()
	var err error
	for end := time.Now().Add(20 * time.Second); err == nil && time.Now().Before(end); {
		_, err = l.tracker.Capture(t.Context(), snapshot.CaptureOptions{}) // the writer may have had no turn
	}
	close(stop)
	<-done
	if !errors.Is(err, agents.ErrConflict) || !strings.Contains(err.Error(), "log") {
		t.Errorf("got %v, want ErrConflict naming the file", err)
	}
	c := l.capture()
	must(t, l.store.Verify(t.Context(), c.Ref))
}

func TestSharedMappingIsSeen(t *testing.T) {
	l := newLab(t)
	l.write("db", strings.Repeat("a", 8192))
	l.capture()
	f, err := os.OpenFile(l.path("db"), os.O_RDWR, 0)
	must(t, err)
	defer f.Close()
	m, err := unix.Mmap(int(f.Fd()), 0, 8192, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	must(t, err)
	defer unix.Munmap(m)
	for i := range 20 {
		m[i] = byte('A' + i)
		c := l.capture()
		m[4096+i] = byte('A' + i)
		d := l.capture()
		if c.TreeID == d.TreeID {
			t.Fatalf("write %d through the mapping was missed", i)
		}
	}
	if c := l.capture(); c.TreeID != l.fresh() {
		t.Error("the tree is not what a fresh capture says")
	}
}

func TestDryRunTouchesNothing(t *testing.T) {
	l := newLab(t)
	l.write("a", "1")
	first := l.capture()
	l.write("a", "2")
	l.write("b", "3")
	want := l.digest()
	opts := l.options()
	opts.DryRun = true
	got, err := l.tracker.Restore(t.Context(), first.Ref, opts)
	must(t, err)
	if len(got.Changes) != 2 || got.Before == "" {
		t.Errorf("dry run: got %+v", got)
	}
	if d := diff(want, l.digest()); d != "" {
		t.Errorf("dry run changed: %s", d)
	}
	l.restore(first.Ref)
	l.restore(got.Before)
	if d := diff(want, l.digest()); d != "" {
		t.Errorf("the state from before: %s", d)
	}
}

func TestSHA256Store(t *testing.T) {
	l := newLab(t)
	l.objects, l.cache = filepath.Join(l.base, "store256"), filepath.Join(l.base, "cache256")
	l.open(snapshot.Options{Format: "sha256"})
	l.write("a", "1")
	must(t, os.Mkdir(l.path("empty"), 0o755))
	first := l.capture()
	if len(first.Ref) != 64 {
		t.Errorf("ref: got %q", first.Ref)
	}
	want := l.digest()
	l.write("a", "2")
	l.restore(first.Ref)
	if d := diff(want, l.digest()); d != "" {
		t.Errorf("restored: %s", d)
	}
	l.fsck()
	if _, err := snapshot.Open(t.Context(), l.objects, snapshot.Options{}); !errors.Is(err, agents.ErrInvalid) {
		t.Errorf("open as sha1: got %v, want ErrInvalid", err)
	}
}

func TestCacheOfAnyKindIsHarmless(t *testing.T) {
	l := newLab(t)
	for i := range 30 {
		l.write(fmt.Sprintf("d%d/f%d", i%3, i), fmt.Sprint(i))
	}
	l.capture()
	l.write("d1/f1", "new")
	whole, err := os.ReadFile(l.cache)
	must(t, err)
	want := l.capture().TreeID
	newer, err := os.ReadFile(l.cache)
	must(t, err)
	for name, b := range map[string][]byte{
		"older": whole, "empty": {}, "junk": []byte(randomText(3, 5000)), "cut": newer[:len(newer)-5], "half": newer[:len(newer)/2/8*8],
		"flipped": flip(newer, len(newer)/3), "flipped tail": flip(newer, len(newer)-50), "longer": append(slices.Clone(newer), newer...),
	} {
		must(t, os.WriteFile(l.cache, b, 0o600))
		if got := l.capture().TreeID; got != want {
			t.Errorf("%s cache: got %s, want %s", name, got, want)
		}
	}
	must(t, os.RemoveAll(l.objects)) // a cache that another store was beside
	l.open(snapshot.Options{})
	c := l.capture()
	if c.TreeID != want {
		t.Errorf("new store: got %s, want %s", c.TreeID, want)
	}
	must(t, l.store.Verify(t.Context(), c.Ref))
}

func flip(b []byte, i int) []byte {
	b = slices.Clone(b)
	b[i] ^= 1
	return b
}

func TestManyCapturesLeaveFewPacks(t *testing.T) {
	l := newLab(t)
	var refs []string
	for i := range 140 {
		l.write("f", fmt.Sprint(i))
		refs = append(refs, l.captureKnown("f").Ref)
	}
	packs, _ := filepath.Glob(filepath.Join(l.objects, "objects/pack/*.pack"))
	if len(packs) > 70 {
		t.Errorf("got %d packs", len(packs))
	}
	for _, ref := range refs {
		must(t, l.store.Verify(t.Context(), ref))
	}
	if c := l.capture(); c.Changed || c.FilesRead > 1 {
		t.Errorf("capture after joining: got %+v", c)
	}
}
