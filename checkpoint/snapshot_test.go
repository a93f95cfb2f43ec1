//go:build linux

package checkpoint_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/checkpoint"
	"github.com/cleveragents/agents/internal/snapshot"
)

// TestStatesInGitFormat takes real states of a directory, some of whose content
// lies in a repository that is the store's alternate.
func TestStatesInGitFormat(t *testing.T) {
	repo := filepath.Join(t.TempDir(), "repo")
	must(t, os.MkdirAll(repo, 0o755))
	must(t, os.WriteFile(filepath.Join(repo, "known"), []byte("known content"), 0o644))
	gitIn(t, repo, "init", "-q")
	gitIn(t, repo, "add", "known")

	s, err := checkpoint.Open(filepath.Join(t.TempDir(), "checkpoints"))
	must(t, err)
	plan, sandbox := newID(), newID()
	objects := s.Objects(plan, sandbox)
	store, err := snapshot.Open(t.Context(), objects, snapshot.Options{Alternates: []string{filepath.Join(repo, ".git", "objects")}})
	must(t, err)
	defer store.Close()
	tracker, err := snapshot.NewTracker(store, []snapshot.Root{{Name: "files", Dir: repo, Skip: []string{".git"}}}, filepath.Join(t.TempDir(), "cache"))
	must(t, err)
	capture := func(content string) checkpoint.Manifest {
		must(t, os.WriteFile(filepath.Join(repo, "f"), []byte(content), 0o644))
		got, err := tracker.Capture(t.Context(), snapshot.CaptureOptions{Label: "state", When: time.Now()})
		must(t, err)
		st, err := s.Stage(plan)
		must(t, err)
		m := checkpoint.Manifest{CheckpointID: newID(), PlanID: plan, Parts: []checkpoint.Part{{SandboxID: sandbox, Ref: got.Ref}}}
		must(t, st.Publish(t.Context(), m))
		return m
	}
	big := make([]byte, 1<<20)
	for i := range big {
		big[i] = byte(i * i >> 3)
	}
	one, two, three := capture("one"), capture(string(big)), capture("three")
	for _, m := range []checkpoint.Manifest{one, two, three} {
		must(t, s.Verify(t.Context(), plan, m.CheckpointID))
	}
	before, err := s.Usage(plan)
	must(t, err)
	freed, err := s.Delete(t.Context(), plan, []string{two.CheckpointID}, map[string][]string{sandbox: {one.Parts[0].Ref}})
	must(t, err)
	after, err := s.Usage(plan)
	must(t, err)
	if freed <= 0 || before-after < freed {
		t.Errorf("freed = %d, usage went from %d to %d", freed, before, after)
	}
	for _, m := range []checkpoint.Manifest{one, three} {
		must(t, s.Verify(t.Context(), plan, m.CheckpointID))
	}
	packs, err := filepath.Glob(filepath.Join(objects, "objects", "pack", "*.pack"))
	must(t, err)
	for _, pack := range packs {
		must(t, os.Chmod(pack, 0o600))
		must(t, os.Truncate(pack, 0))
	}
	for _, m := range []checkpoint.Manifest{one, three} {
		if err := s.Verify(t.Context(), plan, m.CheckpointID); !errors.Is(err, agents.ErrDamaged) {
			t.Errorf("B113: an emptied pack: %v, want ErrDamaged", err)
		}
	}
}

func gitIn(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git %v: %v: %s", args, err, out)
	}
}
