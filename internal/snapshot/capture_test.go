//go:build linux

package snapshot_test

import (
	"os"
	"strings"
	"testing"
)

func TestCaptureIsAGitCommit(t *testing.T) {
	l := newLab(t)
	l.write("a.txt", "one\n")
	l.write("dir/b.txt", "two\n")
	l.writeMode("run", "#!/bin/sh\n", 0o755)
	l.writeMode("secret", "s", 0o600)
	must(t, os.Symlink("a.txt", l.path("link")))
	must(t, os.Mkdir(l.path("empty"), 0o755))
	first := l.capture()
	if !first.Changed || first.FilesRead != 4 || first.BytesAdded == 0 {
		t.Errorf("first capture: got %+v", first)
	}
	l.fsck()
	got := l.git("ls-tree", "-r", "-t", first.Ref)
	for _, want := range []string{
		"040000 tree 4b825dc642cb6eb9a060e54bf8d69288fbee4904\tfiles/empty", "100755 blob", "files/run",
		"120000 blob", "files/dir/b.txt", "attributes/files/entries", "\tgit",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("ls-tree: no %q in\n%s", want, got)
		}
	}
	if got, want := l.git("show", first.Ref+":files/dir/b.txt"), "two\n"; got != want {
		t.Errorf("git show: got %q, want %q", got, want)
	}
	second := l.capture()
	if second.Changed || second.Ref != first.Ref || second.BytesAdded != 0 {
		t.Errorf("second capture: got %+v, want the first one's ref", second)
	}
	if got, want := l.fresh(), first.TreeID; got != want {
		t.Errorf("fresh tree: got %s, want %s", got, want)
	}
	l.write("dir/b.txt", "three\n")
	must(t, os.Remove(l.path("empty")))
	third := l.captureKnown("dir/b.txt", "empty")
	if got, want := third.TreeID, l.fresh(); got != want {
		t.Errorf("known paths: got %s, want %s", got, want)
	}
	if third.BytesRead > 6+17 {
		t.Errorf("bytes read: got %d", third.BytesRead)
	}
	l.fsck()
}
