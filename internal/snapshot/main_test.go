//go:build linux

package snapshot_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cleveragents/agents/internal/snapshot"
)

// TestMain lets the test binary be the process that is killed.
func TestMain(m *testing.M) {
	if what := os.Getenv("SNAPSHOT_CHILD"); what != "" {
		os.Exit(child(what, os.Getenv("SNAPSHOT_BASE"), strings.Fields(os.Getenv("SNAPSHOT_REFS"))))
	}
	if f := flag.Lookup("rapid.checks"); f != nil {
		_ = f.Value.Set("25") // -rapid.checks asks for more
	}
	flag.Parse()
	os.Exit(m.Run())
}

// child does one thing with the lab in base.
func child(what, base string, refs []string) int {
	err := act(context.Background(), what, base, refs)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 3
	}
	return 0
}

func act(ctx context.Context, what, base string, refs []string) error {
	opts := snapshot.RestoreOptions{Stage: filepath.Join(base, "stage"), Journal: filepath.Join(base, "journal")}
	if what == "recover" {
		return snapshot.Recover(ctx, opts.Journal)
	}
	store, err := snapshot.Open(ctx, filepath.Join(base, "store"), snapshot.Options{})
	if err != nil {
		return err
	}
	defer store.Close()
	tracker, err := snapshot.NewTracker(store, []snapshot.Root{
		{Name: "files", Dir: filepath.Join(base, "files")}, {Name: "git", Dir: filepath.Join(base, "git")},
	}, filepath.Join(base, "cache"))
	if err != nil {
		return err
	}
	switch what {
	case "capture":
		c, err := tracker.Capture(ctx, snapshot.CaptureOptions{})
		if err != nil {
			return err
		}
		return store.Hold("new", c.Ref)
	case "known":
		_, err = tracker.Capture(ctx, snapshot.CaptureOptions{Paths: []snapshot.Path{{Root: "files", Path: "a"}, {Root: "files", Path: "d/new"}}})
	case "restore":
		_, err = tracker.Restore(ctx, refs[0], opts)
	case "collect":
		_, err = store.Collect(ctx, refs)
	}
	return err
}
