package engine_test

import (
	"errors"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/engine"
)

// Mounts can show one directory at two places, and put two into each other.
func TestBoundariesOverMounts(t *testing.T) {
	runtime.LockOSThread() // never unlocked: the thread with its mounts ends with the test
	if err := syscall.Unshare(syscall.CLONE_NEWNS | syscall.CLONE_FS); err != nil {
		t.Skipf("no mounts of our own: %v", err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""))
	c := newWithCopies(t)
	top := c.directory("x/sub/f", "x/y/f", "y/x/f", "y/z/f", "z/x/f", "other/f").Dir
	at := func(name string) string { return filepath.Join(top, name) }
	bind := func(from, to string) {
		t.Helper()
		must(syscall.Mount(at(from), at(to), "", syscall.MS_BIND, ""))
		t.Cleanup(func() { _ = syscall.Unmount(at(to), syscall.MNT_DETACH) })
	}
	bind("x", "other")
	p := c.planOn(dir("out", at("other")), dir("in", at("x/sub")), dir("same", at("x")))
	if got := boundaries(p); got != "in=out:sub out same=out:." {
		t.Errorf("a directory under its other mount: got %q", got)
	}
	c.forget([]agents.Resource{{Name: "out"}, {Name: "in"}, {Name: "same"}})

	bind("y", "x/y")
	bind("x", "y/x")
	ring := func(names ...string) {
		t.Helper()
		var resources []agents.Resource
		for _, name := range names {
			resources = append(resources, dir("r-"+strings.ReplaceAll(name, "/", "-"), at(name)))
		}
		_, err := c.CreatePlan(t.Context(), engine.PlanRequest{Resources: resources})
		if !errors.Is(err, agents.ErrConflict) || !strings.Contains(err.Error(), "each lies inside the other") {
			t.Errorf("a plan on %v: got %v, want agents.ErrConflict", names, err)
		}
	}
	ring("x/y", "y/x")
	bind("z", "y/z")
	bind("x", "z/x")
	ring("z/x", "x/y", "y/z")
}
