//go:build unix

package metastore_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/metastore"
)

func roles() map[string]func(context.Context, string) error {
	return map[string]func(context.Context, string) error{
		"writer":    writeAlongOthers,
		"units":     writeUnits,
		"reader":    asNobody(readWhatCannotBeWritten),
		"beginner":  asNobody(openIsRefused),
		"old":       asNobody(openIsRefused),
		"unclean":   asNobody(readOrRefuse),
		"file only": asNobody(readWhatCannotBeWritten),
	}
}

// asNobody gives up root, which no permission stops.
func asNobody(f func(context.Context, string) error) func(context.Context, string) error {
	return func(ctx context.Context, path string) error {
		if os.Getuid() == 0 {
			if err := errors.Join(syscall.Setgid(65534), syscall.Setuid(65534)); err != nil {
				return err
			}
		}
		return f(ctx, path)
	}
}

func readWhatCannotBeWritten(ctx context.Context, path string) error {
	s, err := metastore.Open(ctx, path, metastore.Options{})
	if err != nil {
		return err
	}
	defer s.Close()
	if s.Writable() == nil {
		return errors.New("the store says that it may be written")
	}
	if err := s.Read(ctx, func(tx *metastore.Tx) error { _, err := tx.Plans().Resolve("kept"); return err }); err != nil {
		return err
	}
	return clear(path, s.Write(ctx, func(*metastore.Tx) error { return errors.New("ran") }))
}

func openIsRefused(ctx context.Context, path string) error {
	s, err := metastore.Open(ctx, path, metastore.Options{})
	if err == nil {
		s.Close()
	}
	return clear(path, err)
}

func readOrRefuse(ctx context.Context, path string) error {
	s, err := metastore.Open(ctx, path, metastore.Options{})
	if err != nil {
		return clear(path, err)
	}
	defer s.Close()
	return s.Read(ctx, func(tx *metastore.Tx) error { _, err := tx.Plans().Resolve("kept"); return err })
}

// clear says what an error about a directory that cannot be written lacks.
func clear(path string, err error) error {
	if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(agents.HintOf(err), "--data-dir") {
		return fmt.Errorf("error = %w with hint %q, want one that names the database and says what to do", err, agents.HintOf(err))
	}
	return nil
}

// reachable lets other users come as far as the test's directory.
func reachable(t *testing.T, path string) {
	t.Helper()
	for dir := filepath.Dir(path); dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// closeOff takes away the right to write from a directory and its files.
func closeOff(t *testing.T, dir string, fileMode, dirMode fs.FileMode) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !e.IsDir() {
			if err := os.Chmod(filepath.Join(dir, e.Name()), fileMode); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.Chmod(dir, dirMode); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(dir, 0o755) })
}

func TestDirectoryThatCannotBeWritten(t *testing.T) {
	f := newFixture(t)
	f.plan("kept", 1)
	f.store.Close()
	whole := snapshotDir(t, filepath.Dir(f.path))
	left := uncleanFiles(t)
	old := func(path string) {
		rawExec(t, path, migrationFiles(t)[0], fmt.Sprintf("PRAGMA application_id=%d", 0x63616774), "PRAGMA user_version=1")
	}
	for role, c := range map[string]struct {
		files   map[string][]byte
		prepare func(path string)
		dirMode fs.FileMode
	}{
		"reader":    {files: whole, dirMode: 0o555},
		"file only": {files: whole, dirMode: 0o777},
		"beginner":  {dirMode: 0o555},
		"old":       {prepare: old, dirMode: 0o555},
		"unclean":   {files: left, dirMode: 0o555},
	} {
		t.Run(role, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "agents.db")
			reachable(t, path)
			for name, b := range c.files {
				if err := os.WriteFile(filepath.Join(filepath.Dir(path), name), b, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if c.prepare != nil {
				c.prepare(path)
			}
			closeOff(t, filepath.Dir(path), 0o444, c.dirMode)
			want := snapshotDir(t, filepath.Dir(path))
			if out, err := asProcess(t.Context(), role, path).CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
			got := snapshotDir(t, filepath.Dir(path))
			if c.dirMode&0o222 != 0 { // a directory that may be written takes the index of the log
				delete(got, "agents.db-shm")
				delete(got, "agents.db-wal")
			}
			sameFiles(t, got, want)
		})
	}
}

// uncleanFiles are a database and its log as a killed process leaves them.
func uncleanFiles(t *testing.T) map[string][]byte {
	t.Helper()
	f := newFixture(t)
	f.plan("kept", 1)
	left := snapshotDir(t, filepath.Dir(f.path))
	if len(left["agents.db-wal"]) == 0 {
		t.Fatal("the test made no log")
	}
	delete(left, "agents.db-shm")
	return left
}

// TestKilledProcessLeavesItsCommittedRows: the log of a process that died is read.
func TestKilledProcessLeavesItsCommittedRows(t *testing.T) {
	dir := t.TempDir()
	for name, b := range uncleanFiles(t) {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s, err := metastore.Open(t.Context(), filepath.Join(dir, "agents.db"), metastore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Read(t.Context(), func(tx *metastore.Tx) error { _, err := tx.Plans().Resolve("kept"); return err }); err != nil {
		t.Error(err)
	}
}
