//go:build linux

package copyonwrite_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/pkg/xattr"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/oracle"
	"github.com/cleveragents/agents/sandbox"
	"github.com/cleveragents/agents/sandbox/copyonwrite"
)

const (
	planID    = "01JQABCDEFGHJKMNPQRSTVWXYZ"
	sandboxID = "01JQSANDBOX"
)

// bench is one plan on one directory, with the folders that the engine would
// give. Everything is below dir; real is the resource.
type bench struct {
	t        *testing.T
	dir      string
	real     string
	strategy *copyonwrite.Strategy
	req      sandbox.CreateRequest
	ws       sandbox.Workspace
	objects  string
	journal  string
	told     []string
}

// newBench makes a directory with a script, and no sandbox yet.
func newBench(t *testing.T, script string) *bench {
	t.Helper()
	return newBenchIn(t, t.TempDir(), script)
}

func newBenchIn(t *testing.T, dir, script string) *bench {
	t.Helper()
	t.Cleanup(func() { _ = exec.Command("chmod", "-R", "u+rwX", dir).Run() })
	b := &bench{t: t, dir: dir, real: filepath.Join(dir, "real"), strategy: copyonwrite.New(),
		objects: filepath.Join(dir, "data", "objects"), journal: filepath.Join(dir, "data", "journal")}
	private := filepath.Join(dir, "data", "private")
	must(t, errors.Join(os.MkdirAll(b.real, 0o755), os.MkdirAll(private, 0o700)))
	sh(t, b.real, script)
	b.req = sandbox.CreateRequest{
		SandboxID: sandboxID, PlanID: planID, Dir: filepath.Join(dir, "data", "sandboxes"), PrivateDir: private,
		Resource: agents.Resource{Name: "directory", Type: agents.TypeDirectory, Location: b.real},
		Notify:   func(s string) { b.told = append(b.told, s) },
	}
	return b
}

// created is newBench with a sandbox, in which a plan has run.
func created(t *testing.T, script, plan string) *bench {
	t.Helper()
	b := newBench(t, script)
	b.create()
	b.plan(plan)
	return b
}

func (b *bench) create() {
	b.t.Helper()
	ws, err := b.strategy.Create(b.t.Context(), b.req)
	if err != nil {
		b.t.Fatalf("create: %v", err)
	}
	b.ws = ws
	b.prepare()
}

func (b *bench) prepare() {
	b.t.Helper()
	if _, err := b.strategy.Prepare(b.t.Context(), b.ws); err != nil {
		b.t.Fatalf("prepare: %v", err)
	}
}

func (b *bench) remove() {
	b.t.Helper()
	if err := b.strategy.Remove(b.t.Context(), b.ws); err != nil {
		b.t.Fatalf("remove: %v", err)
	}
}

// plan runs a script in the sandbox, user one in the resource.
func (b *bench) plan(script string) { b.t.Helper(); sh(b.t, b.ws.Path, script) }
func (b *bench) user(script string) { b.t.Helper(); sh(b.t, b.real, script) }

func (b *bench) capture() sandbox.Captured {
	b.t.Helper()
	c, err := b.strategy.Capture(b.t.Context(), b.ws, sandbox.CaptureRequest{Objects: b.objects})
	if err != nil {
		b.t.Fatalf("capture: %v", err)
	}
	return c
}

func (b *bench) restore(ref string) {
	b.t.Helper()
	if _, err := b.strategy.Restore(b.t.Context(), b.ws, sandbox.RestoreRequest{Objects: b.objects, Ref: ref}); err != nil {
		b.t.Fatalf("restore: %v", err)
	}
}

func (b *bench) seal() sandbox.Sealed {
	b.t.Helper()
	sealed, err := b.strategy.Seal(b.t.Context(), b.ws, sandbox.SealRequest{When: time.Unix(1700000001, 0)})
	if err != nil {
		b.t.Fatalf("seal: %v", err)
	}
	return sealed
}

// apply seals, looks, and applies. What the look says must come true.
func (b *bench) apply(merge bool) (agents.ResourceResult, error) {
	b.t.Helper()
	must(b.t, os.MkdirAll(b.journal, 0o700))
	req := sandbox.ApplyRequest{Ref: b.seal().Ref, Merge: merge, JournalDir: b.journal, DryRun: true}
	before := state(b.t, b.real)
	seen, seenErr := b.strategy.Apply(b.t.Context(), b.ws, req)
	same(b.t, "a preview", before, state(b.t, b.real))
	req.DryRun = false
	res, err := b.strategy.Apply(b.t.Context(), b.ws, req)
	if (err == nil) != (seenErr == nil) || err == nil && !slices.Equal(slices.Concat(seen.Added, seen.Changed, seen.Deleted), slices.Concat(res.Added, res.Changed, res.Deleted)) {
		b.t.Errorf("the preview said %+v, %v; the apply %+v, %v", seen, seenErr, res, err)
	}
	return res, err
}

func (b *bench) mustApply(merge bool) agents.ResourceResult {
	b.t.Helper()
	res, err := b.apply(merge)
	if err != nil {
		b.t.Fatalf("apply: %v (%+v)", err, res)
	}
	return res
}

// mustRefuse wants conflicts in these paths and nothing changed.
func (b *bench) mustRefuse(merge bool, paths ...string) agents.ResourceResult {
	b.t.Helper()
	before := state(b.t, b.real)
	res, err := b.apply(merge)
	if !errors.Is(err, agents.ErrConflict) || res.State != agents.ApplyConflict {
		b.t.Errorf("apply: %s, %v, want a conflict", res.State, err)
	}
	var got []string
	for _, c := range res.Conflicts {
		got = append(got, c.Path)
	}
	slices.Sort(got)
	if !slices.Equal(got, paths) {
		b.t.Errorf("conflicts %+v, want in %q", res.Conflicts, paths)
	}
	same(b.t, "a refused apply", before, state(b.t, b.real))
	if entries, err := os.ReadDir(b.journal); err == nil && len(entries) > 0 {
		b.t.Errorf("a refused apply left a journal: %v", entries)
	}
	return res
}

func (b *bench) mustUndo() {
	b.t.Helper()
	for range 2 { // twice is no error
		if err := b.strategy.Undo(b.t.Context(), b.ws, b.journal); err != nil {
			b.t.Fatalf("undo: %v", err)
		}
	}
}

// nothingLeft looks for what Remove should have taken away.
func (b *bench) nothingLeft() {
	b.t.Helper()
	for _, dir := range []string{b.req.Dir, b.req.PrivateDir} {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			b.t.Fatal(err)
		}
		for _, e := range entries {
			b.t.Errorf("left in %s: %s", dir, e.Name())
		}
	}
}

// state lists a directory with all that an undo, or a copy, must give back.
func state(t testing.TB, root string) []string {
	t.Helper()
	var lines []string
	names := map[uint64]string{}
	must(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		line, err := describe(path, rel, names)
		lines = append(lines, line)
		return err
	}))
	return lines
}

// describe is one line of a state. Names of one file are told by the first.
func describe(path, rel string, names map[uint64]string) (string, error) {
	fi, err := os.Lstat(path)
	if err != nil {
		return "", err
	}
	st := fi.Sys().(*syscall.Stat_t)
	line := fmt.Sprintf("%q %v %d:%d %d", rel, fi.Mode(), st.Uid, st.Gid, fi.ModTime().UnixNano())
	switch {
	case fi.Mode()&fs.ModeSymlink != 0:
		target, err := os.Readlink(path)
		return line + fmt.Sprintf(" → %q", target), err
	case fi.Mode().IsRegular():
		sum, err := digest(path)
		if err != nil {
			return "", err
		}
		line += fmt.Sprintf(" %d %s sparse=%v", fi.Size(), sum, st.Blocks*512 < fi.Size()&^4095)
		if first := names[st.Ino]; first != "" {
			line += fmt.Sprintf(" = %q", first)
		} else {
			names[st.Ino] = rel
		}
	case !fi.IsDir():
		return line, nil
	}
	list, err := xattr.LList(path)
	if err != nil {
		return line, nil // a file system without them
	}
	slices.Sort(list)
	for _, name := range list {
		value, err := xattr.LGet(path, name)
		if err != nil {
			return "", err
		}
		line += fmt.Sprintf(" %s=%x", name, value)
	}
	return line, nil
}

func digest(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	return fmt.Sprintf("%x", h.Sum(nil)[:8]), err
}

// same compares two states.
func same(t testing.TB, what string, want, got []string) {
	t.Helper()
	if d := oracle.Diff(want, got); d != "" {
		t.Errorf("after %s:\n%s", what, d)
	}
}

// sh runs a script that makes, changes or looks at files.
func sh(t testing.TB, dir, script string) string {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "bash", "-euc", script)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
	return string(out)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func read(t testing.TB, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	return string(text)
}

func asRoot() bool { return os.Geteuid() == 0 }
