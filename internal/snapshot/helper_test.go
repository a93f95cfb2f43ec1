//go:build linux

package snapshot_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cleveragents/agents/internal/snapshot"
)

// lab is a tracked directory with its store.
type lab struct {
	t       *testing.T
	base    string
	dir     string
	private string // the second root
	objects string
	cache   string
	roots   []snapshot.Root
	store   *snapshot.Store
	tracker *snapshot.Tracker
	exact   bool // digest tells times, links and holes
}

func newLab(t *testing.T, skip ...string) *lab {
	t.Helper()
	return newLabIn(t, t.TempDir(), skip...)
}

func newLabIn(t *testing.T, base string, skip ...string) *lab {
	t.Helper()
	l := &lab{t: t, base: base, dir: filepath.Join(base, "files"), private: filepath.Join(base, "git"),
		objects: filepath.Join(base, "store"), cache: filepath.Join(base, "cache")}
	for _, d := range []string{l.dir, l.private} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	l.roots = []snapshot.Root{{Name: "files", Dir: l.dir, Skip: skip}, {Name: "git", Dir: l.private}}
	l.open(snapshot.Options{})
	return l
}

// open starts anew, as another process would.
func (l *lab) open(opts snapshot.Options) {
	l.t.Helper()
	store, err := snapshot.Open(l.t.Context(), l.objects, opts)
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { store.Close() })
	tracker, err := snapshot.NewTracker(store, l.roots, l.cache)
	if err != nil {
		l.t.Fatal(err)
	}
	l.store, l.tracker = store, tracker
}

func (l *lab) path(p string) string { return filepath.Join(l.dir, p) }

func (l *lab) write(p, content string) {
	l.t.Helper()
	l.writeMode(p, content, 0o644)
}

func (l *lab) writeMode(p, content string, perm os.FileMode) {
	l.t.Helper()
	must(l.t, os.MkdirAll(filepath.Dir(l.path(p)), 0o755))
	must(l.t, os.WriteFile(l.path(p), []byte(content), perm))
	must(l.t, os.Chmod(l.path(p), perm))
}

func (l *lab) capture() snapshot.Captured {
	l.t.Helper()
	c, err := l.tracker.Capture(l.t.Context(), snapshot.CaptureOptions{Label: "test"})
	if err != nil {
		l.t.Fatalf("capture: %v", err)
	}
	return c
}

func (l *lab) captureKnown(paths ...string) snapshot.Captured {
	l.t.Helper()
	known := []snapshot.Path{}
	for _, p := range paths {
		known = append(known, snapshot.Path{Root: "files", Path: p})
	}
	c, err := l.tracker.Capture(l.t.Context(), snapshot.CaptureOptions{Label: "test", Paths: known})
	if err != nil {
		l.t.Fatalf("capture: %v", err)
	}
	return c
}

func (l *lab) options() snapshot.RestoreOptions {
	return snapshot.RestoreOptions{Stage: filepath.Join(l.base, "stage"), Journal: filepath.Join(l.base, "journal")}
}

func (l *lab) restore(ref string) snapshot.Restored {
	l.t.Helper()
	r, err := l.tracker.Restore(l.t.Context(), ref, l.options())
	if err != nil {
		l.t.Fatalf("restore: %v", err)
	}
	return r
}

// fresh returns the tree id that a new store and cache compute.
func (l *lab) fresh() string {
	l.t.Helper()
	other := l.t.TempDir()
	store, err := snapshot.Open(l.t.Context(), filepath.Join(other, "store"), snapshot.Options{})
	if err != nil {
		l.t.Fatal(err)
	}
	defer store.Close()
	tracker, err := snapshot.NewTracker(store, l.roots, filepath.Join(other, "cache"))
	if err != nil {
		l.t.Fatal(err)
	}
	c, err := tracker.Capture(l.t.Context(), snapshot.CaptureOptions{})
	if err != nil {
		l.t.Fatal(err)
	}
	return c.TreeID
}

// git runs git on the store.
func (l *lab) git(args ...string) string {
	l.t.Helper()
	out, err := l.tryGit(args...)
	if err != nil {
		l.t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return out
}

func (l *lab) tryGit(args ...string) (string, error) {
	cmd := exec.Command("git", append([]string{"--git-dir=" + l.objects}, args...)...)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "HOME="+l.base)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// fsck checks that git takes the store for sound; what states hold on purpose
// (entries named .git and the like) it may warn of.
func (l *lab) fsck() {
	l.t.Helper()
	out, err := l.tryGit("fsck", "--no-dangling", "--full")
	for _, line := range strings.Split(out, "\n") {
		if strings.Contains(line, "hasDotgit") || strings.Contains(line, "gitignoreSymlink") || strings.Contains(line, "gitattributesSymlink") ||
			strings.HasPrefix(line, "notice:") || line == "" || strings.HasPrefix(line, "Checking") {
			continue
		}
		l.t.Errorf("git fsck: %s", line)
	}
	if err != nil {
		l.t.Errorf("git fsck: %v", err)
	}
}

// digest describes everything below dirs that a state holds, one line a path.
func digest(t *testing.T, dirs ...string) string {
	t.Helper()
	var lines []string
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			line, err := describe(path)
			if err != nil {
				return err
			}
			rel, _ := filepath.Rel(filepath.Dir(dir), path)
			lines = append(lines, fmt.Sprintf("%q %s", rel, line))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	sort.Strings(lines)
	return strings.Join(lines, "\n")
}

func describe(path string) (string, error) {
	fi, err := os.Lstat(path)
	if err != nil {
		return "", err
	}
	st := fi.Sys().(*syscall.Stat_t)
	s := fmt.Sprintf("%v %d:%d", fi.Mode(), st.Uid, st.Gid)
	switch {
	case fi.Mode().IsRegular():
		b, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		if len(b) > 200 {
			b = fmt.Appendf(nil, "%d bytes %x", len(b), sha256.Sum256(b))
		}
		s += fmt.Sprintf(" %q", b)
	case fi.Mode()&fs.ModeSymlink != 0:
		target, err := os.Readlink(path)
		if err != nil {
			return "", err
		}
		return s + " -> " + fmt.Sprintf("%q", target), nil
	}
	b := make([]byte, 4096)
	n, err := unix.Llistxattr(path, b)
	if err == nil && n > 0 {
		names := strings.Split(strings.TrimSuffix(string(b[:n]), "\x00"), "\x00")
		sort.Strings(names)
		for _, name := range names {
			if strings.HasPrefix(name, "user.") {
				v := make([]byte, 4096)
				n, err := unix.Lgetxattr(path, name, v)
				if err != nil {
					return "", err
				}
				s += fmt.Sprintf(" %s=%q", name, v[:n])
			}
		}
	}
	return s, nil
}

func (l *lab) digest() string {
	l.t.Helper()
	if l.exact {
		return digest(l.t, l.dir, l.private) + "\n" + exactly(l.t, l.dir)
	}
	return digest(l.t, l.dir, l.private)
}

// exactly tells times, hard links and holes.
func exactly(t *testing.T, dir string) string {
	t.Helper()
	var lines []string
	first := map[uint64]string{}
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		st := fi.Sys().(*syscall.Stat_t)
		line := fmt.Sprintf("%q at %d", path, st.Mtim.Nano())
		if fi.Mode().IsRegular() {
			if first[st.Ino] == "" {
				first[st.Ino] = path
			}
			f, err := os.Open(path)
			if err != nil {
				return err
			}
			hole, err := unix.Seek(int(f.Fd()), 0, unix.SEEK_HOLE)
			if err != nil {
				return err
			}
			f.Close()
			line += fmt.Sprintf(" is %q with %d names, holes %v", first[st.Ino], st.Nlink, hole < st.Size)
		}
		lines = append(lines, line)
		return nil
	}))
	return strings.Join(lines, "\n")
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func diff(want, got string) string {
	a, b := strings.Split(want, "\n"), strings.Split(got, "\n")
	have := map[string]bool{}
	for _, x := range a {
		have[x] = true
	}
	var out bytes.Buffer
	for _, x := range b {
		if !have[x] {
			fmt.Fprintf(&out, "+ %s\n", clipLine(x))
		}
		delete(have, x)
	}
	for x := range have {
		fmt.Fprintf(&out, "- %s\n", clipLine(x))
	}
	return out.String()
}

func clipLine(s string) string {
	if len(s) > 200 {
		return s[:200] + "…"
	}
	return s
}
