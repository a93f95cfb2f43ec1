//go:build unix

package fsx_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/fsx"
)

func TestRootEntries(t *testing.T) {
	dir := t.TempDir()
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.WriteFile(outside, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := fsx.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()

	if err := r.Symlink(outside, "out"); err != nil {
		t.Fatal(err)
	}
	if err := r.Symlink("x", "out"); !errors.Is(err, agents.ErrExists) {
		t.Errorf("a second link: got %v, want ErrExists", err)
	}
	if got, err := r.Readlink("out"); got != outside || err != nil {
		t.Errorf("Readlink: got %q, %v, want %q", got, err, outside)
	}
	if got, err := r.Place("out"); got != "out" || err != nil {
		t.Errorf("Place: got %q, %v, want the link itself", got, err)
	}
	if err := r.Chmod("out", 0o777); !errors.Is(err, agents.ErrInvalid) {
		t.Errorf("Chmod of a link: got %v, want ErrInvalid", err)
	}
	if fi, err := os.Stat(outside); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("outside: got %v, %v, want it as before", fi.Mode(), err)
	}
	if err := r.WriteFile("f", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := r.Chmod("f", 0o755); err != nil {
		t.Error(err)
	}
	if fi, err := os.Stat(filepath.Join(dir, "f")); err != nil || fi.Mode().Perm() != 0o755 {
		t.Errorf("f: got %v, %v, want 0755", fi.Mode(), err)
	}
	for _, path := range []string{"../x", "", "/", "out/x"} {
		if err := r.Symlink("t", path); !errors.Is(err, agents.ErrInvalid) {
			t.Errorf("Symlink at %q: got %v, want ErrInvalid", path, err)
		}
	}
}
