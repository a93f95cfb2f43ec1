//go:build linux

package snapshot_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/git"
	"github.com/cleveragents/agents/internal/snapshot"
)

// fakeReader has objects in memory.
type fakeReader map[string]string

func (r fakeReader) StatObjects(ctx context.Context, ids []string) ([]snapshot.ObjectInfo, error) {
	out := make([]snapshot.ObjectInfo, len(ids))
	for i, id := range ids {
		if s, ok := r[id]; ok {
			out[i] = snapshot.ObjectInfo{Kind: "blob", Size: int64(len(s))}
		}
	}
	return out, nil
}

func (r fakeReader) CopyObject(ctx context.Context, id string, w io.Writer) (snapshot.ObjectInfo, error) {
	s, ok := r[id]
	if !ok {
		return snapshot.ObjectInfo{}, agents.ErrNotFound
	}
	_, err := io.WriteString(w, s)
	return snapshot.ObjectInfo{Kind: "blob", Size: int64(len(s))}, err
}

func runGit(t *testing.T, dir string, args ...string) string {
	t.Helper()
	out, err := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=a", "-c", "user.email=a@b"}, args...)...).Output()
	if err != nil {
		t.Fatalf("git %v: %v", args, err)
	}
	return strings.TrimSpace(string(out))
}

// seedFrom tells the tracker what the commit HEAD of dir holds.
func (l *lab) seedFrom(dir string) {
	l.t.Helper()
	out := runGit(l.t, dir, "ls-tree", "-r", "-t", "-z", "HEAD")
	var known []snapshot.Seeded
	for line := range strings.SplitSeq(strings.TrimSuffix(out, "\x00"), "\x00") {
		meta, path, _ := strings.Cut(line, "\t")
		f := strings.Fields(meta)
		known = append(known, snapshot.Seeded{Path: path, Mode: mode(f[0]), ID: f[2]})
	}
	must(l.t, l.tracker.Seed(l.t.Context(), "files", slices.Values(known)))
}

func TestSeededContentStaysInTheAlternate(t *testing.T) {
	l := newLab(t, ".git")
	for i := range 50 {
		l.write(filepath.Join("d", string(rune('a'+i%5)), string(rune('A'+i))), randomText(uint64(i), 5000))
	}
	runGit(t, l.dir, "init", "-q")
	runGit(t, l.dir, "add", "-A")
	runGit(t, l.dir, "commit", "-qm", "x")
	// An object that nothing reaches may be gone any time: it does not count.
	l.write("loose", "unreachable")
	runGit(t, l.dir, "hash-object", "-w", "loose")
	reader := snapshot.NewGitReader(git.Repo{GitDir: filepath.Join(l.dir, ".git")})
	t.Cleanup(reader.Close)
	opts := snapshot.Options{Alternates: []string{filepath.Join(l.dir, ".git", "objects")}, Reader: reader}
	l.open(opts)
	l.seedFrom(l.dir)
	first := l.capture()
	if first.FilesRead != 1 || first.BytesAdded > 5000 {
		t.Errorf("first capture: got %+v, want one file read", first)
	}
	want := l.digest()
	if got := l.fresh(); got != first.TreeID {
		t.Errorf("tree: got %s, fresh %s", first.TreeID, got)
	}
	l.fsck()
	runGit(t, l.dir, "prune", "--expire=now")
	must(t, l.store.Verify(t.Context(), first.Ref))

	must(t, os.RemoveAll(l.path("d/a")))
	l.write("d/b/B", "changed")
	second := l.capture()
	got := l.restore(first.Ref)
	if len(got.Changes) != 11 {
		t.Errorf("changes: got %d, want 11", len(got.Changes))
	}
	if d := diff(want, l.digest()); ignoreGit(d) != "" {
		t.Errorf("restored: %s", ignoreGit(d))
	}
	if c := l.capture(); c.Ref != first.Ref {
		t.Errorf("capture after restore: got %s, want %s", c.Ref, first.Ref)
	}
	if _, err := l.store.Collect(t.Context(), []string{first.Ref}); err != nil {
		t.Fatal(err)
	}
	l.write("d/c/new", "x")
	third := l.captureKnown("d/c/new")
	must(t, l.store.Verify(t.Context(), third.Ref))
	must(t, l.store.Verify(t.Context(), first.Ref))
	if err := l.store.Verify(t.Context(), second.Ref); err == nil {
		t.Error("the collected state is whole")
	}
	var b bytes.Buffer
	if e, err := l.store.ReadFile(t.Context(), first.Ref, snapshot.Path{Root: "files", Path: "d/a/A"}, &b); err != nil || b.String() != randomText(0, 5000) || e.Mode != 0o644 {
		t.Errorf("read file: %v %v", e, err)
	}
	l.fsck()

	// The user's store loses an object that the state needs.
	must(t, os.RemoveAll(l.path("d/a")))
	l.capture()
	before := ignoreGit(diff("", l.digest()))
	id := runGit(t, l.dir, "rev-parse", "HEAD:d/a/A")
	must(t, os.Remove(filepath.Join(l.dir, ".git", "objects", id[:2], id[2:])))
	if _, err := l.tracker.Restore(t.Context(), first.Ref, l.options()); !errors.Is(err, agents.ErrDamaged) || !strings.Contains(err.Error(), id) {
		t.Errorf("restore: got %v, want ErrDamaged naming %s", err, id)
	}
	if after := ignoreGit(diff("", l.digest())); after != before {
		t.Errorf("the tree changed")
	}
}

// ignoreGit drops the lines about the repository itself.
func ignoreGit(d string) string {
	var out []string
	for line := range strings.SplitSeq(d, "\n") {
		if !strings.Contains(line, `"files/.git`) {
			out = append(out, line)
		}
	}
	return strings.TrimSpace(strings.Join(out, "\n"))
}

func TestForeignObjectWithOtherBytes(t *testing.T) {
	l := newLab(t)
	l.write("a", "good")
	good := runGit(t, l.base, "hash-object", l.path("a"))
	reader := fakeReader{good: "evil"}
	l.open(snapshot.Options{Reader: reader})
	must(t, l.tracker.Seed(t.Context(), "files", slices.Values([]snapshot.Seeded{{Path: "a", Mode: 0o100644, ID: good}})))
	state := l.capture()
	l.write("a", "new")
	_, err := l.tracker.Restore(t.Context(), state.Ref, l.options())
	if !errors.Is(err, agents.ErrDamaged) {
		t.Errorf("restore: got %v, want ErrDamaged", err)
	}
	reader[good] = "good"
	l.restore(state.Ref)
	if b, _ := os.ReadFile(l.path("a")); string(b) != "good" {
		t.Errorf("restored: got %q", b)
	}
	delete(reader, good)
	if err := l.store.Verify(t.Context(), state.Ref); !errors.Is(err, agents.ErrDamaged) {
		t.Errorf("verify: got %v, want ErrDamaged", err)
	}
}
