//go:build linux

package snapshot_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/cleveragents/agents/internal/snapshot"
)

// names that have made trouble elsewhere: they sort oddly, are not text, or
// mean something to git.
var names = []string{
	"a", "a.b", "a-b", "a0", "ab", "b", "B", ".git", ".GIT", ".gitignore", "HEAD", "-n", "--", " ", "new\nline", "tab\t",
	"\xfe", "\xff", "ü", `quo"te`, "back\\slash", "entries", "+a", "attributes", "files", "con", "x=y z", "\x01",
}

// actor changes a tree at random and knows which paths it touched.
type actor struct {
	t       *rapid.T
	dir     string
	touched []string
	exact   bool // it links files, makes holes and sets times too
}

func (a *actor) draw(label string, n int) int { return rapid.IntRange(0, n-1).Draw(a.t, label) }

func (a *actor) list() (files, dirs []string) {
	dirs = []string{""}
	_ = filepath.WalkDir(a.dir, func(p string, e os.DirEntry, err error) error {
		rel, _ := filepath.Rel(a.dir, p)
		switch {
		case err != nil || rel == ".":
		case e.IsDir():
			dirs = append(dirs, rel)
		default:
			files = append(files, rel)
		}
		return nil
	})
	return files, dirs
}

func (a *actor) touch(p string) string {
	a.touched = append(a.touched, p)
	return filepath.Join(a.dir, p)
}

// step makes one change.
func (a *actor) step() {
	files, dirs := a.list()
	dir := dirs[a.draw("dir", len(dirs))]
	name := filepath.Join(dir, names[a.draw("name", len(names))])
	file := name
	if len(files) > 0 {
		file = files[a.draw("file", len(files))]
	}
	perms := []os.FileMode{0o644, 0o755, 0o600, 0o444, 0o400, 0o700, 0o666, os.ModeSetuid | 0o755, 0o100, 0}
	perm := perms[a.draw("perm", len(perms))]
	if os.Geteuid() != 0 {
		perm |= 0o400 // what its owner may not read is refused, as it must be
	}
	ops := 12
	if a.exact {
		ops = 16
	}
	switch a.draw("op", ops) {
	case 0, 1, 2:
		content := fmt.Sprint(rapid.IntRange(0, 50).Draw(a.t, "content"))
		if a.draw("big", 20) == 0 {
			content = strings.Repeat(content+"\n", 800_000)
		}
		path := a.touch(name)
		if target, err := os.Readlink(path); err == nil {
			a.touch(filepath.Join(filepath.Dir(name), target)) // a write follows the link
		}
		_ = os.WriteFile(path, []byte(content), 0o644)
	case 3:
		if f, err := os.OpenFile(a.touch(file), os.O_WRONLY|os.O_APPEND|unix.O_NOFOLLOW, 0); err == nil {
			_, _ = f.WriteString("more")
			f.Close()
		}
	case 4:
		_ = os.Remove(a.touch(file))
	case 5:
		_ = os.Mkdir(a.touch(name), 0o755)
	case 6:
		_ = os.RemoveAll(a.touch(name))
	case 7:
		_ = os.Symlink("target"+fmt.Sprint(a.draw("target", 3)), a.touch(name))
	case 8:
		if fi, err := os.Lstat(filepath.Join(a.dir, file)); err == nil && fi.Mode().IsRegular() {
			_ = os.Chmod(a.touch(file), perm)
		}
	case 9:
		_ = os.Rename(a.touch(file), a.touch(name))
	case 10:
		if dir != "" {
			_ = os.Chmod(a.touch(dir), perm|0o700)
			_ = os.Rename(a.touch(dir), a.touch(name))
		}
	case 11:
		if fi, err := os.Lstat(filepath.Join(a.dir, file)); err == nil && fi.Mode().IsRegular() {
			if os.Geteuid() == 0 && a.draw("own", 2) == 0 {
				_ = os.Lchown(a.touch(file), 1234, 4321)
				return
			}
			_ = unix.Setxattr(a.touch(file), "user.test", []byte{0, 1, byte(a.draw("attr", 9))}, 0)
		}
	case 12, 13:
		if fi, err := os.Lstat(filepath.Join(a.dir, file)); err == nil && fi.Mode().IsRegular() {
			_ = os.Link(a.touch(file), a.touch(name))
		}
	case 14:
		if f, err := os.OpenFile(a.touch(file), os.O_WRONLY|unix.O_NOFOLLOW, 0); err == nil {
			_, _ = f.WriteAt([]byte("end"), int64(20_000+a.draw("hole", 100_000)))
			f.Close()
		}
	case 15:
		what := []string{file, dir}[a.draw("what", 2)]
		at := []unix.Timespec{{Sec: 1}, {Sec: int64(a.draw("time", 2_000_000_000)), Nsec: int64(a.draw("nanoseconds", 1_000_000_000))}}
		_ = unix.UtimesNanoAt(unix.AT_FDCWD, a.touch(what), at, unix.AT_SYMLINK_NOFOLLOW)
	}
}

// TestIncrementalEqualsFreshAndRestoreEqualsOracle walks random trees through
// random changes. After each round the captured tree must be the one that a
// new store and cache compute; restoring any earlier state must give the
// bytes, modes, owners, links, empty directories and attributes it had.
func TestIncrementalEqualsFreshAndRestoreEqualsOracle(t *testing.T) { randomTrees(t, false) }

// TestExactRoots is the same for a root whose times, hard links and holes are
// recorded too.
func TestExactRoots(t *testing.T) { randomTrees(t, true) }

func randomTrees(t *testing.T, exact bool) {
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		base := filepath.Join(t.TempDir(), fmt.Sprint(n))
		l := newLabIn(t, base)
		if l.exact = exact; exact {
			l.roots[0].Exact = true
			l.open(snapshot.Options{})
		}
		defer l.store.Close()
		type recorded struct{ ref, tree, digest string }
		var states []recorded
		for range rapid.IntRange(2, 6).Draw(rt, "rounds") {
			a := &actor{t: rt, dir: l.dir, exact: exact}
			for range rapid.IntRange(0, 12).Draw(rt, "steps") {
				a.step()
			}
			var c snapshot.Captured
			if rapid.Bool().Draw(rt, "known paths") {
				sort.Strings(a.touched)
				c = l.captureKnown(a.touched...)
			} else {
				c = l.capture()
			}
			want := l.digest()
			if got := l.fresh(); got != c.TreeID {
				rt.Fatalf("incremental tree %s, fresh tree %s, touched %q:\n%s", c.TreeID, got, a.touched, want)
			}
			states = append(states, recorded{c.Ref, c.TreeID, want})
			if rapid.IntRange(0, 3).Draw(rt, "restart") == 0 {
				l.store.Close()
				l.open(snapshot.Options{})
			}
			if rapid.IntRange(0, 2).Draw(rt, "restore") != 0 {
				continue
			}
			back := states[rapid.IntRange(0, len(states)-1).Draw(rt, "to")]
			l.restore(back.ref)
			if d := diff(back.digest, l.digest()); d != "" {
				rt.Fatalf("restored state differs:\n%s", d)
			}
			if got := l.capture(); got.TreeID != back.tree || got.Ref != back.ref {
				rt.Fatalf("capture after restore: got %+v, want ref %s", got, back.ref)
			}
		}
		for _, s := range states {
			must(t, l.store.Verify(t.Context(), s.ref))
		}
		if n%10 == 1 {
			for _, s := range states {
				must(t, l.store.Hold("c"+s.ref, s.ref))
			}
			if _, err := exec.LookPath("git"); err == nil {
				l.fsck()
			}
		}
		must(t, os.RemoveAll(l.objects))
	})
}
