//go:build linux

package fsx_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/pkg/xattr"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/fsx"
)

// richTree makes a directory with one of everything.
func richTree(t *testing.T) string {
	t.Helper()
	base := t.TempDir()
	t.Cleanup(func() { fsx.RemoveAll(base) })
	src := filepath.Join(base, "src")
	must(t, os.Mkdir(src, 0o750))
	plain{
		"plain": file("content"), "exec": {fsx.KindFile, "#!", 0o755}, "closed": {fsx.KindFile, "x", 0o444}, "empty": file(""),
		"d": dir(0o755), "d/e": dir(0o700), "ro": dir(0o555), "ro/f": {fsx.KindFile, "y", 0o400}, "ro/sub": dir(0o500), "ro/sub/g": file("z"),
		"link": link("plain"), "out": link("/nowhere/at all"), "\xfe": file("1"), "\xff": file("2"), "new\nline": file("3"), long: file("4"),
	}.write(t, src)
	must(t, os.Link(src+"/plain", src+"/d/again"))
	f, err := os.Create(src + "/sparse")
	must(t, err)
	must(t, f.Truncate(64<<20))
	_, err = f.WriteAt([]byte("island"), 32<<20)
	must(t, errors.Join(err, f.Close()))
	if err := xattr.Set(src+"/exec", "user.note", []byte("kept")); err != nil {
		t.Logf("no extended attributes here: %v", err)
	}
	old := time.Date(2001, 2, 3, 4, 5, 6, 789, time.UTC)
	for _, name := range []string{"/plain", "/d", "/ro", ""} {
		must(t, os.Chtimes(src+name, old, old))
	}
	return src
}

// describe lists a tree with all that a copy keeps.
func describe(t *testing.T, root string) []string {
	t.Helper()
	var out []string
	first := map[uint64]string{}
	must(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		must(t, err)
		rel, err := filepath.Rel(root, path)
		must(t, err)
		id, err := fsx.Identify(path)
		must(t, err)
		fi, err := os.Lstat(path)
		must(t, err)
		line := fmt.Sprintf("%q %s %o %q mtime=%d", rel, id.Kind, id.Mode, id.Target, id.Mtime)
		if id.Kind == fsx.KindFile {
			st := fi.Sys().(*syscall.Stat_t)
			if first[id.Ino] == "" {
				first[id.Ino] = rel
			}
			note, _ := xattr.Get(path, "user.note")
			b, err := os.ReadFile(path)
			must(t, err)
			line += fmt.Sprintf(" %q size=%d holes=%v first=%q note=%q", strings.Trim(string(b), "\x00"), id.Size, st.Blocks*512 < id.Size, first[id.Ino], note)
		}
		out = append(out, line)
		return nil
	}))
	return out
}

func TestB067CopyTreeKeepsEverything(t *testing.T) {
	src := richTree(t)
	dst := filepath.Join(filepath.Dir(src), "dst")
	report, err := fsx.CopyTree(t.Context(), src, dst)
	must(t, err)
	if diff := cmp.Diff(describe(t, src), describe(t, dst)); diff != "" {
		t.Errorf("copy (-want +got):\n%s", diff)
	}
	if report.Files != 11 || report.Bytes < 64<<20 || len(report.Skipped) > 0 {
		t.Errorf("report = %+v", report)
	}
	if _, err := fsx.CopyTree(t.Context(), src, dst); !errors.Is(err, fs.ErrExist) {
		t.Errorf("copy onto the copy: %v, want ErrExist", err)
	}
	must(t, fsx.RemoveAll(dst))
	if _, err := os.Lstat(dst); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after RemoveAll: %v", err)
	}
}

func TestB066CopySkipsWhatWouldHang(t *testing.T) {
	src := t.TempDir()
	must(t, os.Mkdir(src+"/d", 0o755))
	must(t, syscall.Mkfifo(src+"/d/p", 0o644))
	must(t, os.Chdir(src)) // names of sockets are short
	t.Cleanup(func() { os.Chdir("/") })
	socket, err := net.Listen("unix", "s")
	must(t, err)
	defer socket.Close()
	must(t, os.WriteFile("f", []byte("x"), 0o644))
	dst := filepath.Join(t.TempDir(), "dst")
	report, err := fsx.CopyTree(t.Context(), src, dst)
	must(t, err)
	var skipped []string
	for _, s := range report.Skipped {
		skipped = append(skipped, s.Path)
	}
	if diff := cmp.Diff([]string{"d/p", "s"}, skipped); diff != "" {
		t.Errorf("skipped (-want +got):\n%s", diff)
	}
	compare(t, dst, plain{"d": dir(0o755), "f": file("x")})
	for _, name := range []string{"d/p", "s", "d"} {
		if err := fsx.CopyFile(filepath.Join(src, name), filepath.Join(src, "copy")); !errors.Is(err, agents.ErrUnsupported) {
			t.Errorf("copy of %s: %v, want ErrUnsupported", name, err)
		}
	}
	if err := fsx.CopyFile(src+"/f", dst+"/f"); !errors.Is(err, fs.ErrExist) {
		t.Errorf("copy onto a file: %v, want ErrExist", err)
	}
	compare(t, dst, plain{"d": dir(0o755), "f": file("x")})
}

func TestCopyTreeLeavesNothingOnFailure(t *testing.T) {
	src := richTree(t)
	dst := filepath.Join(filepath.Dir(src), "dst")
	for looks := 0; looks < 30; looks += 3 {
		_, err := fsx.CopyTree(endsAfter(looks), src, dst)
		if err != nil {
			if !errors.Is(err, context.Canceled) {
				t.Fatalf("copy: %v", err)
			}
			if _, err := os.Lstat(dst); !errors.Is(err, fs.ErrNotExist) {
				t.Fatalf("after a copy that was stopped: %v", err)
			}
			continue
		}
		must(t, fsx.RemoveAll(dst))
	}
}

func TestSpace(t *testing.T) {
	s, err := fsx.SpaceOf(t.TempDir())
	must(t, err)
	if s.Total <= 0 || s.Free < 0 || s.Free > s.Total || s.FreePercent() < 0 || s.FreePercent() > 100 {
		t.Errorf("space = %+v", s)
	}
	for err, want := range map[error]bool{
		nil: false, fs.ErrNotExist: false, agents.ErrNoSpace: true, syscall.ENOSPC: true,
		&fs.PathError{Op: "write", Path: "x", Err: syscall.EDQUOT}: true, fmt.Errorf("x: %w", syscall.ENOSPC): true,
	} {
		if got := fsx.IsNoSpace(err); got != want {
			t.Errorf("IsNoSpace(%v) = %v", err, got)
		}
	}
}
