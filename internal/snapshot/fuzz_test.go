//go:build linux

package snapshot_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cleveragents/agents/internal/snapshot"
)

// sample returns the files of a small store and cache.
func sample(f *testing.F) (cache, idx, pack []byte, objects map[string][]byte) {
	f.Helper()
	t := &testing.T{}
	base := f.TempDir()
	l := &lab{t: t, base: base, dir: filepath.Join(base, "files")}
	for _, p := range []string{"a", "d/b", "d/e/c"} {
		must(t, os.MkdirAll(filepath.Dir(l.path(p)), 0o755))
		must(t, os.WriteFile(l.path(p), []byte(p), 0o640))
	}
	must(t, unix.Setxattr(l.path("a"), "user.x", []byte("1"), 0))
	must(t, os.Chmod(l.path("d/b"), 0o600))
	store, err := snapshot.Open(f.Context(), filepath.Join(base, "store"), snapshot.Options{})
	must(t, err)
	defer store.Close()
	tracker, err := snapshot.NewTracker(store, []snapshot.Root{{Name: "files", Dir: l.dir}}, filepath.Join(base, "cache"))
	must(t, err)
	c, err := tracker.Capture(f.Context(), snapshot.CaptureOptions{})
	must(t, err)
	must(t, os.WriteFile(l.path("a"), []byte("changed"), 0o640))
	_, err = tracker.Capture(f.Context(), snapshot.CaptureOptions{})
	must(t, err)
	cache, err = os.ReadFile(filepath.Join(base, "cache"))
	must(t, err)
	names, _ := filepath.Glob(filepath.Join(base, "store/objects/pack/*.idx"))
	idx, err = os.ReadFile(names[0])
	must(t, err)
	pack, err = os.ReadFile(names[0][:len(names[0])-4] + ".pack")
	must(t, err)
	objects = map[string][]byte{}
	for _, what := range []string{"commit " + c.Ref, "tree " + c.TreeID, "blob " + c.Ref + ":attributes/files/entries"} {
		kind, name, _ := bytes.Cut([]byte(what), []byte(" "))
		out, err := exec.Command("git", "--git-dir="+filepath.Join(base, "store"), "cat-file", string(kind), string(name)).Output()
		must(t, err)
		objects[string(kind)] = out
	}
	return cache, idx, pack, objects
}

func FuzzCacheFile(f *testing.F) {
	cache, _, _, _ := sample(f)
	f.Add(cache)
	f.Add(cache[:len(cache)/2])
	f.Add([]byte{})
	if err := snapshot.ReadCacheFile(cache); err != nil {
		f.Fatalf("the file itself: %v", err)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		_ = snapshot.ReadCacheFile(b)
		_ = snapshot.ReadCacheFile(snapshot.FixCacheSums(b))
	})
}

func FuzzObjects(f *testing.F) {
	_, _, _, objects := sample(f)
	for _, b := range objects {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		_ = snapshot.ReadCommitObject(b)
		if once, twice, err := snapshot.ReadAttributes(b); err == nil && !bytes.Equal(once, twice) {
			t.Errorf("attributes: %q became %q", once, twice)
		}
		if out, err := snapshot.ReadTreeObject(b); err == nil && len(out) > len(b) {
			t.Errorf("tree of %d bytes became %d", len(b), len(out))
		}
	})
}

func FuzzPack(f *testing.F) {
	_, idx, pack, _ := sample(f)
	f.Add(idx, pack)
	f.Add(idx[:100], pack)
	f.Add(idx, pack[:20])
	dir := f.TempDir()
	if err := snapshot.ReadPack(dir, idx, pack); err != nil {
		f.Fatalf("the pack itself: %v", err)
	}
	f.Fuzz(func(t *testing.T, idx, pack []byte) {
		_ = snapshot.ReadPack(dir, snapshot.SumIndex(idx), pack)
	})
}
