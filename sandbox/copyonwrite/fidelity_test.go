//go:build linux

package copyonwrite_test

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pkg/xattr"
	"pgregory.net/rapid"

	"github.com/cleveragents/agents/internal/oracle"
	"github.com/cleveragents/agents/sandbox"
)

// kinds are what the trees of TestEverythingIsKept must have had among them.
func kinds() []string {
	all := strings.Fields("file empty exec setuid link dangling dir emptydir readonlydir hardlink sparse xattr acl defaultacl time oddname")
	if asRoot() {
		all = append(all, "owner")
	}
	return all
}

func changes() []string { return []string{"remove", "rename", "write"} }

// grower makes random trees and changes them at random, noting what it made.
type grower struct {
	*rapid.T
	made map[string]int
}

// growth is one change, to be made in several directories alike: a path of
// what is there, and what becomes of it.
type growth struct {
	kind, path, to string
	n              int64
}

// grow draws a change of a tree.
func (g *grower) grow(root string) growth {
	dirs, files := []string{""}, []string{}
	_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		rel, rerr := filepath.Rel(root, path)
		switch {
		case err != nil || rerr != nil || rel == ".":
		case d.IsDir():
			dirs = append(dirs, rel)
		case d.Type().IsRegular():
			files = append(files, rel)
		}
		return nil
	})
	name := rapid.SampledFrom([]string{"a", "b", "c.txt", "d", "e e", "\xff\xfe", "n\nl", strings.Repeat("l", 255)}).Draw(g.T, "name")
	made := growth{
		kind: rapid.SampledFrom(append(kinds(), changes()...)).Draw(g.T, "kind"),
		path: filepath.Join(rapid.SampledFrom(dirs).Draw(g.T, "dir"), name),
		n:    rapid.Int64Range(0, 1<<40).Draw(g.T, "n"),
	}
	if len(files) > 0 {
		made.to = rapid.SampledFrom(files).Draw(g.T, "file")
	}
	return made
}

// in makes the change below root. One that cannot be made is none.
func (c growth) in(root string) error {
	path, to := filepath.Join(root, c.path), filepath.Join(root, c.to)
	attribute := func(name string, value []byte, at string) error { return xattr.LSet(at, name, value) }
	fresh := func(mode fs.FileMode) error {
		return errors.Join(os.WriteFile(path, fmt.Appendf(nil, "%d\n%d\n", c.n, c.n%7), 0o600), os.Chmod(path, mode))
	}
	switch c.kind {
	case "file", "oddname":
		return fresh(0o644)
	case "empty":
		return os.WriteFile(path, nil, 0o644)
	case "exec":
		return fresh(0o755)
	case "setuid":
		return fresh(0o755 | fs.ModeSetuid | fs.ModeSetgid)
	case "link":
		return os.Symlink("a", path)
	case "dangling":
		return os.Symlink(fmt.Sprintf("/nowhere/%d", c.n), path)
	case "dir", "emptydir":
		return os.Mkdir(path, 0o750)
	case "readonlydir":
		if err := os.Mkdir(path, 0o700); err != nil {
			return err
		}
		return errors.Join(os.WriteFile(path+"/in", []byte("in"), 0o400), os.Chmod(path, 0o555))
	case "sparse":
		f, err := os.Create(path)
		if err != nil {
			return err
		}
		_, err = f.WriteAt([]byte("island"), 1<<20)
		return errors.Join(err, f.Truncate(3<<20), f.Close())
	case "defaultacl":
		if err := os.Mkdir(path, 0o755); err != nil {
			return err
		}
		return attribute("system.posix_acl_default", acl(7), path)
	case "remove":
		return os.RemoveAll(path)
	}
	if c.to == "" {
		return fs.ErrNotExist
	}
	switch c.kind {
	case "hardlink":
		return os.Link(to, path)
	case "rename":
		return os.Rename(to, path)
	case "write":
		return os.WriteFile(to, fmt.Appendf(nil, "%d", c.n), 0o644)
	case "xattr":
		return attribute("user.n", fmt.Append(nil, c.n), to)
	case "acl":
		return attribute("system.posix_acl_access", acl(6), to)
	case "time":
		return os.Chtimes(to, time.Time{}, time.Unix(c.n>>10, c.n%1e9))
	case "owner":
		return os.Lchown(to, 1000+int(c.n%3), 1000)
	}
	return fmt.Errorf("no kind %q", c.kind)
}

// acl is a POSIX ACL in the kernel's form, with a user of its own.
func acl(bits uint16) []byte {
	out := []byte{2, 0, 0, 0}
	for _, e := range []struct {
		tag, perm uint16
		id        uint32
	}{{1, bits, 1<<32 - 1}, {2, 4, 12345}, {4, 4, 1<<32 - 1}, {0x10, 4, 1<<32 - 1}, {0x20, 0, 1<<32 - 1}} {
		out = append(out, byte(e.tag), 0, byte(e.perm), 0, byte(e.id), byte(e.id>>8), byte(e.id>>16), byte(e.id>>24))
	}
	return out
}

// make makes something of one kind for sure.
func (g *grower) make(kind, dir string) {
	for _, c := range []growth{{kind: "file", path: "sure"}, {kind: kind, path: "sure " + kind, to: "sure", n: 1 << 35}, {kind: kind, path: "sure", to: "sure"}} {
		if g.made[kind] == 0 && c.in(dir) == nil {
			g.made[c.kind]++
		}
	}
}

// change makes n changes in the first directory, and those that could be made
// in the others too.
func (g *grower) change(n int, dirs ...string) {
	for range n {
		c := g.grow(dirs[0])
		before := ""
		if fi, err := os.Lstat(filepath.Join(dirs[0], c.path)); err == nil && c.kind != "remove" {
			before = fi.Mode().String()
		}
		if before != "" && !slices.Contains(strings.Fields("write xattr acl time owner"), c.kind) {
			continue // something has the name
		}
		err := c.in(dirs[0])
		for _, dir := range dirs[1:] {
			if other := c.in(dir); (err == nil) != (other == nil) {
				g.Fatalf("%+v: %v in the one, %v in the other", c, err, other)
			}
		}
		if err == nil {
			g.made[c.kind]++
			if !strings.HasPrefix(filepath.Base(c.path), "a") {
				g.made["oddname"]++
			}
		}
	}
}

// TestEverythingIsKept: a copy, a recorded state and an applied result are what
// a plain directory is that went through the same.
func TestEverythingIsKept(t *testing.T) {
	base := t.TempDir()
	if err := xattr.LSet(base, "user.test", []byte("x")); err != nil {
		t.Skipf("no extended attributes in %s: %v", base, err)
	}
	syscall.Umask(0o022)
	made, runs := map[string]int{}, 0
	rapid.Check(t, func(rt *rapid.T) {
		runs++
		g := &grower{rt, made}
		b := newBenchIn(t, filepath.Join(base, fmt.Sprint(runs)), "")
		defer func() {
			sh(t, base, fmt.Sprintf("chmod -R u+rwX %d; rm -rf %d", runs, runs))
		}()
		fail := func(what string, want, got []string) {
			if d := oracle.Diff(want, got); d != "" {
				rt.Fatalf("%s:\n%s", what, d)
			}
		}
		g.change(rapid.IntRange(0, 30).Draw(rt, "size"), b.real)
		for i, all := 0, append(kinds(), changes()...); i < 5; i++ { // as few runs as -short has make all
			g.make(all[(runs*5+i)%len(all)], b.real)
		}
		real := state(t, b.real)
		b.create()
		fail("the copy", real, state(t, b.ws.Path))
		plain := filepath.Join(b.dir, "plain")
		sh(t, b.dir, "cp -a real plain")
		g.change(rapid.IntRange(1, 10).Draw(rt, "changes"), b.ws.Path, plain)
		now := state(t, b.ws.Path)
		cp := b.capture()
		g.change(rapid.IntRange(0, 10).Draw(rt, "more"), b.ws.Path)
		restore := func(ref string) {
			if _, err := b.strategy.Restore(t.Context(), b.ws, sandbox.RestoreRequest{Objects: b.objects, Ref: ref}); err != nil {
				rt.Fatalf("restore: %v", err)
			}
		}
		restore("")
		fail("the base again", real, state(t, b.ws.Path))
		restore(cp.Ref)
		fail("the state again", now, state(t, b.ws.Path))
		fail("the resource", real, state(t, b.real))
		if res := b.mustApply(false); res.State == "applied" {
			fail("the result", untimed(t, plain), untimed(t, b.real))
			b.mustUndo()
		}
		fail("the undone", real, state(t, b.real))
		b.remove()
		b.nothingLeft()
	})
	for _, kind := range append(kinds(), changes()...) {
		if made[kind] == 0 {
			t.Errorf("no tree had %s: %v", kind, slices.Sorted(maps.Keys(made)))
		}
	}
	t.Logf("%v", made)
}

// untimed is a state without the times: two directories that went through the
// same did so at different moments.
func untimed(t testing.TB, root string) []string {
	lines := state(t, root)
	for i, line := range lines {
		at := strings.Index(line, `" `)
		parts := strings.Split(line[at+2:], " ")
		lines[i] = line[:at+2] + strings.Join(slices.Delete(parts, 2, 3), " ")
	}
	return lines
}
