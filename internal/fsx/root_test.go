//go:build unix

package fsx_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/fsx"
)

// fence is a root among neighbours that no path may reach.
type fence struct {
	*fsx.Root
	dir, outside string
}

func newFence(t testing.TB) fence {
	t.Helper()
	base := t.TempDir()
	t.Cleanup(func() { fsx.RemoveAll(base) })
	f := fence{dir: filepath.Join(base, "sb-1"), outside: filepath.Join(base, "outside")}
	for _, d := range []string{f.dir, f.outside, f.dir + "0", f.dir + "/d", f.dir + "/ro"} {
		must(t, os.Mkdir(d, 0o755))
	}
	for at, content := range map[string]string{
		f.outside + "/secret": "secret", f.dir + "0/a": "neighbour", f.dir + "/a": "a", f.dir + "/d/b": "b", f.dir + "/ro/c": "c",
	} {
		must(t, os.WriteFile(at, []byte(content), 0o644))
	}
	for at, target := range map[string]string{
		"/lnk": f.outside, "/rel": "../outside", "/file": f.outside + "/secret", "/in": "d", "/up": "d/../a", "/abs": f.dir + "/d",
		"/loop": "loop", "/twice": "lnk", "/d/back": "..", "/d/out": "../../outside", "/dangling": f.outside + "/new", "/newin": "d/new",
	} {
		must(t, os.Symlink(target, f.dir+at))
	}
	var err error
	f.Root, err = fsx.OpenRoot(f.dir)
	must(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

// out are paths that lead out, each in another way (U093, B099, B101).
func (f fence) out() []string {
	return []string{
		"", "..", "../x", "../sb-10/a", "d/../../outside/secret", "d/../a", "a\x00b", f.outside, f.outside + "/secret", f.dir + "0", f.dir + "0/a", f.dir + "/../sb-10/a",
		"/", "/etc/passwd", "lnk", "lnk/secret", "lnk/new", "rel/secret", "file", "twice/secret", "d/out/secret", "d/back/lnk/secret", "dangling", "loop",
		f.dir + "/lnk/secret", "//" + f.outside + "/secret", f.dir + "/./../outside",
	}
}

func TestU093B099B101NoPathLeadsOut(t *testing.T) {
	f := newFence(t)
	for _, path := range f.out() {
		t.Run(strings.ReplaceAll(path, "/", "|"), func(t *testing.T) {
			calls := map[string]func() error{
				"resolve": func() error { _, err := f.Resolve(path); return err },
				"read":    func() error { _, err := f.ReadFile(path); return err },
				"stat":    func() error { _, err := f.Stat(path); return err },
				"list":    func() error { _, err := f.List(path); return err },
				"write":   func() error { return f.WriteFile(path, []byte("x"), 0o644) },
				"mkdir":   func() error { return f.MkdirAll(path, 0o755) },
			}
			for what, call := range calls {
				if err := call(); !errors.Is(err, agents.ErrInvalid) {
					t.Errorf("%s %q: %v, want ErrInvalid", what, path, err)
				}
			}
			if path != "lnk" && path != "file" && path != "dangling" && path != "loop" { // links themselves may go and be moved
				for what, err := range map[string]error{
					"remove": f.Remove(path, true), "move to": f.Move("a", path, true), "move": f.Move(path, "z", true),
					"copy to": f.Copy("a", path, true), "copy": f.Copy(path, "z", true),
				} {
					if !errors.Is(err, agents.ErrInvalid) {
						t.Errorf("%s %q: %v, want ErrInvalid", what, path, err)
					}
				}
			}
		})
	}
	f.untouched(t)
}

// untouched fails the test if something outside has changed.
func (f fence) untouched(t testing.TB) {
	t.Helper()
	outside, err := os.ReadDir(f.outside)
	must(t, err)
	secret, err := os.ReadFile(f.outside + "/secret")
	must(t, err)
	neighbour, err := os.ReadFile(f.dir + "0/a")
	must(t, err)
	if len(outside) != 1 || string(secret) != "secret" || string(neighbour) != "neighbour" {
		t.Fatalf("outside: %v %q %q", outside, secret, neighbour)
	}
}

func TestRootPathsInside(t *testing.T) {
	f := newFence(t)
	alias := filepath.Join(filepath.Dir(f.dir), "alias")
	must(t, os.Symlink(f.dir, alias))
	for path, want := range map[string]string{
		"a": "a", "./a": "a", "d//b": "d/b", "d/b/": "d/b", "in/b": "d/b", "up": "a", "abs/b": "d/b", "d/back/a": "a", ".": ".", f.dir: ".", f.dir + "/": ".",
		f.dir + "/d/b": "d/b", f.dir + "//d/./b": "d/b", alias + "/d/b": "d/b", "new/deep": "new/deep", "newin": "d/new", "...": "...", "..a": "..a", "\xff": "\xff",
	} {
		if got, err := f.Resolve(path); err != nil || got != want {
			t.Errorf("resolve %q = %q, %v, want %q", path, got, err, want)
		}
	}
}

func TestRootWriteKeepsModeAndFollowsInside(t *testing.T) {
	f := newFence(t)
	must(t, os.Chmod(f.dir+"/d/b", 0o755))
	must(t, f.WriteFile("in/b", []byte("new"), 0o600))
	must(t, f.WriteFile("newin", []byte("made"), 0o640))
	must(t, f.WriteFile("empty", nil, 0o640))
	for path, want := range map[string]node{
		"/d/b": {fsx.KindFile, "new", 0o755}, "/d/new": {fsx.KindFile, "made", 0o640}, "/empty": {fsx.KindFile, "", 0o640},
	} {
		fi, err := os.Lstat(f.dir + path)
		must(t, err)
		got, err := os.ReadFile(f.dir + path)
		must(t, err)
		if string(got) != want.content || fi.Mode() != want.mode {
			t.Errorf("%s = %q %v, want %q %v", path, got, fi.Mode(), want.content, want.mode)
		}
	}
	if fi, err := os.Lstat(f.dir + "/newin"); err != nil || fi.Mode()&fs.ModeSymlink == 0 {
		t.Errorf("the link was replaced: %v %v", fi, err)
	}
	for _, path := range []string{"d", "fifo"} {
		if path == "fifo" {
			must(t, syscall.Mkfifo(f.dir+"/fifo", 0o644))
		}
		if err := f.WriteFile(path, nil, 0o644); !errors.Is(err, agents.ErrInvalid) {
			t.Errorf("write %s: %v, want ErrInvalid", path, err)
		}
		if _, err := f.ReadFile(path); !errors.Is(err, agents.ErrInvalid) {
			t.Errorf("read %s: %v, want ErrInvalid", path, err)
		}
	}
}

func TestRootMoveCopyRemove(t *testing.T) {
	f := newFence(t)
	must(t, os.Chmod(f.dir+"/ro", 0o555))
	must(t, f.Copy("ro", "copy", false))
	must(t, f.Copy("lnk", "lnk2", false))
	must(t, f.MkdirAll("p/q", 0o755))
	must(t, f.Move("d", "p/q/d", false))
	must(t, f.Move("p/q/d/b", "a", true))
	for what, err := range map[string]error{
		"move onto a file":       f.Move("ro/c", "a", false),
		"copy onto a directory":  f.Copy("a", "p", true),
		"move onto a directory":  f.Move("a", "p", true),
		"copy onto another file": f.Copy("ro/c", "a", false),
	} {
		if !errors.Is(err, agents.ErrExists) {
			t.Errorf("%s: %v, want ErrExists", what, err)
		}
	}
	for what, err := range map[string]error{
		"directory into itself": f.Move("p", "p/q/p", false), "itself": f.Remove(".", true), "copy into itself": f.Copy("p", "p/z", false),
	} {
		if !errors.Is(err, agents.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", what, err)
		}
	}
	if err := f.Remove("p", false); err == nil {
		t.Error("a directory that is not empty went without recursive")
	}
	must(t, f.Remove("ro", true)) // B067
	must(t, f.Remove("lnk", true))
	if err := f.Remove("lnk", true); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("remove what is not there: %v", err)
	}
	got, _ := read(t, f.dir)
	if got["copy"].mode != 0o555 || got["copy/c"].content != "c" || got["a"].content != "b" || got["lnk2"].kind != fsx.KindSymlink || got["ro"].kind != fsx.KindNone {
		t.Errorf("tree = %v", got)
	}
	f.untouched(t)
}

// FuzzRootResolve: whatever the path, what it resolves to is inside, and what
// is written through it is too.
func FuzzRootResolve(t *testing.F) {
	for _, seed := range newFence(t).out() {
		t.Add(seed)
	}
	for _, seed := range []string{"a", "d/b", "in/../a", "x/y", "d/back/d/back/a", "rel/", "/proc/self/root", "lnk/../a", "./", "a/b"} {
		t.Add(seed)
	}
	t.Fuzz(func(t *testing.T, path string) {
		f := newFence(t)
		if rel, err := f.Resolve(path); err == nil && !filepath.IsLocal(rel) {
			t.Errorf("resolve %q = %q", path, rel)
		}
		if f.WriteFile(path, []byte("x"), 0o644) == nil {
			must(t, f.Remove(path, true))
		}
		_ = f.MkdirAll(path, 0o755)
		_ = f.Move("a", path, true)
		_ = f.Copy("d/b", path, true)
		_ = f.Remove(path, true)
		f.untouched(t)
	})
}
