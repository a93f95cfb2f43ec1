//go:build unix

package builtin_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/tool"
)

func patchInput(patch string) string { return fmt.Sprintf(`{"patch": %s}`, quote(patch)) }

// TestFilePatchIsWhatGitDiffWrote makes changes, takes git's patch of them,
// goes back and applies it: the files must be as after the changes.
func TestFilePatchIsWhatGitDiffWrote(t *testing.T) {
	lines := "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n12\n13\n14\n15\n16\n17\n18\n19\n20\n"
	for _, tt := range []struct {
		name   string
		change func(w *world)
	}{
		{"modify", func(w *world) { w.put("f", strings.Replace(lines, "5\n", "five\n", 1)) }},
		{"two hunks", func(w *world) {
			w.put("f", strings.Replace(strings.Replace(lines, "2\n", "", 1), "19\n", "19\n19a\n", 1))
		}},
		{"new", func(w *world) { w.put("n/e/w", "new\n") }},
		{"new without a line end", func(w *world) { w.put("new", "new") }},
		{"new and empty", func(w *world) { w.put("new", "") }},
		{"emptied", func(w *world) { w.put("f", "") }},
		{"delete", func(w *world) { w.remove("f") }},
		{"delete the last of a directory", func(w *world) { w.remove("dir/sub/x") }},
		{"line end taken and given", func(w *world) { w.put("f", strings.TrimSuffix(lines, "\n")); w.put("noend", "noend\n") }},
		{"rename", func(w *world) { w.rename("f", "dir/g") }},
		{"rename and change", func(w *world) { w.rename("f", "g"); w.put("g", strings.Replace(lines, "5\n", "five\n", 1)) }},
		{"swap", func(w *world) { w.rename("f", "t"); w.rename("bin", "f"); w.rename("t", "bin") }},
		{"mode", func(w *world) { w.chmod("f", 0o755) }},
		{"mode back", func(w *world) { w.chmod("run", 0o644) }},
		{"mode and content", func(w *world) { w.chmod("f", 0o755); w.put("f", "x\n") }},
		{"binary", func(w *world) { w.put("bin", "\x00\x01"+strings.Repeat("abc\xff", 500)) }},
		{"binary delta", func(w *world) { w.put("bin", strings.Repeat("\x00\x01\x02\x03", 999)+"end") }},
		{"binary new", func(w *world) { w.put("bin2", "\x00") }},
		{"binary deleted", func(w *world) { w.remove("bin") }},
		{"link new", func(w *world) { w.link("dir/sub/x", "link2") }},
		{"link changed", func(w *world) { w.remove("link"); w.link("noend", "link") }},
		{"link deleted", func(w *world) { w.remove("link") }},
		{"file to link", func(w *world) { w.remove("f"); w.link("noend", "f") }},
		{"link to file", func(w *world) { w.remove("link"); w.put("link", "x\n") }},
		{"file to directory", func(w *world) { w.remove("f"); w.put("f/x", "x\n") }},
		{"directory to file", func(w *world) { w.removeAll("dir"); w.put("dir", "x\n") }},
		{"odd names", func(w *world) {
			w.put("a b", "x\n")
			w.put("tab\there", "x\n")
			w.put("new\nline", "x\n")
			w.put("caf\xe9", "x\n")
			w.put("é", "x\n")
			w.put("--force", "x\n")
			w.put(`q"uote`, "x\n")
		}},
		{"everything", func(w *world) {
			w.put("f", "x\n")
			w.remove("bin")
			w.rename("noend", "moved")
			w.chmod("run", 0o644)
			w.put("deep/er/file", "x")
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.put("f", lines)
			w.put("noend", "noend")
			w.put("dir/sub/x", "x\n")
			w.put("bin", strings.Repeat("\x00\x01\x02\x03", 1000))
			w.put("run", "#!/bin/sh\n")
			w.chmod("run", 0o755)
			w.link("f", "link")
			w.git("init", "-q")
			w.git("add", "-A")
			w.git("commit", "-q", "-m", "base")
			tt.change(w)
			want := w.files()
			w.git("add", "-A")
			patch := w.git("diff", "--cached", "--binary", "-M") + "\n"
			w.git("reset", "-q", "--hard")
			w.git("clean", "-qfdx")
			before := w.files()
			_, res := w.must("file-patch", patchInput(patch))
			if got := w.files(); !slices.Equal(got, want) {
				t.Errorf("got\n%s\nwant\n%s\npatch\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"), patch)
			}
			w.wantTouched(res, before)
		})
	}
}

// files describes the sandbox without its repository.
func (w *world) files() []string {
	w.t.Helper()
	var out []string
	for _, line := range describe(w.t, w.sandbox) {
		if !strings.HasPrefix(line, ".git") {
			out = append(out, line)
		}
	}
	return out
}

// wantTouched checks that a call's paths hold every path whose line differs
// from before.
func (w *world) wantTouched(res tool.Result, before []string) {
	w.t.Helper()
	after := w.files()
	for _, pair := range [][2][]string{{before, after}, {after, before}} {
		for _, line := range pair[0] {
			if slices.Contains(pair[1], line) {
				continue
			}
			if !slices.ContainsFunc(res.Paths, func(p string) bool { return strings.HasPrefix(line, p+" ") }) {
				w.t.Errorf("paths %q do not say that this changed: %s", res.Paths, line)
			}
		}
	}
}

func (w *world) remove(rel string) {
	w.t.Helper()
	if err := os.Remove(filepath.Join(w.sandbox, rel)); err != nil {
		w.t.Fatal(err)
	}
	// as git does
	for dir := filepath.Dir(rel); dir != "."; dir = filepath.Dir(dir) {
		if os.Remove(filepath.Join(w.sandbox, dir)) != nil {
			return
		}
	}
}

func (w *world) removeAll(rel string) {
	w.t.Helper()
	if err := os.RemoveAll(filepath.Join(w.sandbox, rel)); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) rename(from, to string) {
	w.t.Helper()
	if err := os.Rename(filepath.Join(w.sandbox, from), filepath.Join(w.sandbox, to)); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) chmod(rel string, mode os.FileMode) {
	w.t.Helper()
	if err := os.Chmod(filepath.Join(w.sandbox, rel), mode); err != nil {
		w.t.Fatal(err)
	}
}

func TestFilePatchOutput(t *testing.T) {
	w := newWorld(t)
	w.put("a.txt", "0\n0\none\ntwo\nthree\n")
	w.put("old", "same\n")
	w.chmod("a.txt", 0o600)
	out, res := w.must("file-patch", patchInput(`Some words before it.

diff --git a/a.txt b/a.txt
--- a/a.txt
+++ b/a.txt
@@ -1,3 +1,3 @@
 one
-two
+TWO
 three
diff --git a/old b/sub/new
similarity index 100%
rename from old
rename to sub/new
`))
	got, _ := json.Marshal(out["files"])
	want := `[{"change":"modified","path":"a.txt","shifted":true},{"change":"renamed","old_path":"old","path":"sub/new","shifted":false}]`
	if string(got) != want {
		t.Errorf("got %s, want %s", got, want)
	}
	wantPaths(t, res, "a.txt", "old", "sub", "sub/new")
	if got, want := w.content("a.txt"), "0\n0\none\nTWO\nthree\n"; got != want || w.mode("a.txt").Perm() != 0o600 {
		t.Errorf("got %q, %v, want %q and the mode kept", got, w.mode("a.txt"), want)
	}
}

func TestFilePatchOfDiffU(t *testing.T) {
	for name, header := range map[string]string{
		"with prefixes":    "--- a/dir/f\n+++ b/dir/f\n",
		"without prefixes": "--- dir/f\n+++ dir/f\n",
		"with times":       "--- dir/f\t2026-01-01 10:00:00.0 +0000\n+++ dir/f\t2026-01-01 10:00:01.0 +0000\n",
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.put("dir/f", "one\ntwo\n")
			w.must("file-patch", patchInput(header+"@@ -1,2 +1,2 @@\n one\n-two\n+2\n"))
			if got := w.content("dir/f"); got != "one\n2\n" {
				t.Errorf("got %q", got)
			}
		})
	}
	w := newWorld(t)
	w.put("gone", "x\n")
	w.must("file-patch", patchInput("--- /dev/null\n+++ b/new\n@@ -0,0 +1 @@\n+x\n--- a/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-x"))
	if w.exists("gone") || w.content("new") != "x\n" {
		t.Error("want one file new and one gone")
	}
}

func TestFilePatchRefuses(t *testing.T) {
	newFile := func(name, mode, line string) string {
		return fmt.Sprintf("diff --git \"a/%s\" \"b/%s\"\nnew file mode %s\n--- /dev/null\n+++ \"b/%s\"\n@@ -0,0 +1 @@\n+%s\n\\ No newline at end of file\n", name, name, mode, name, line)
	}
	modify := func(name, old, now string) string {
		return fmt.Sprintf("diff --git a/%s b/%s\n--- a/%s\n+++ b/%s\n@@ -1 +1 @@\n-%s\n+%s\n", name, name, name, name, old, now)
	}
	good := modify("good", "good", "better")
	for _, tt := range []struct {
		name, patch string
		class       error
		says        string
	}{
		{"no patch", "hello\n", agents.ErrInvalid, "no changes"},
		{"broken", "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1,9 +1 @@\n x\n", agents.ErrInvalid, "patch"},
		{"hunk alone", "@@ -1 +1 @@\n-a\n+b\n", agents.ErrInvalid, "header"},
		{"does not exist", good + modify("none", "a", "b"), agents.ErrToolFailed, "none does not exist"},
		{"does not fit", good + modify("f", "other", "b"), agents.ErrToolFailed, "hunk 1 (line 1)"},
		{"exists", good + newFile("f", "100644", "x"), agents.ErrToolFailed, "exists already"},
		{"new twice", newFile("n", "100644", "x") + newFile("n", "100644", "y"), agents.ErrToolFailed, "exists already"},
		{"below a file", good + newFile("f/x", "100644", "x"), agents.ErrToolFailed, "f is not a directory"},
		{"below a new file", newFile("n", "100644", "x") + newFile("n/x", "100644", "x"), agents.ErrToolFailed, "n is not a directory"},
		{"a directory", good + newFile("dir", "100644", "x"), agents.ErrToolFailed, "dir is a directory"},
		{"rename onto", good + "diff --git a/f b/g\nsimilarity index 100%\nrename from f\nrename to g\n", agents.ErrToolFailed, "g exists already"},
		{"delete more", good + "diff --git a/two b/two\ndeleted file mode 100644\n--- a/two\n+++ /dev/null\n@@ -1 +0,0 @@\n-1\n", agents.ErrToolFailed, "more than the patch deletes"},
		{"delete as a link", "diff --git a/f b/f\ndeleted file mode 120000\n--- a/f\n+++ /dev/null\n@@ -1 +0,0 @@\n-f\n", agents.ErrToolFailed, "another type"},
		{"change of type", "diff --git a/f b/f\nold mode 100644\nnew mode 120000\n", agents.ErrInvalid, "changes its type"},
		{"submodule", newFile("sub", "160000", "x"), agents.ErrInvalid, "submodule"},
		{"odd mode", newFile("sub", "040000", "x"), agents.ErrInvalid, "mode"},
		{"binary without content", "diff --git a/bin b/bin\nindex 1234567..89abcde 100644\nBinary files a/bin and b/bin differ\n", agents.ErrInvalid, "--binary"},
		{"binary of another file", "diff --git a/bin b/bin\nindex 1111111111111111111111111111111111111111..2222222222222222222222222222222222222222 100644\nGIT binary patch\nliteral 1\nIcmZPo000310RR91\n\n", agents.ErrToolFailed, "made for"},
		{"leads up", newFile("../x", "100644", "x"), agents.ErrInvalid, "leads out"},
		{"leads up inside", newFile("dir/../../x", "100644", "x"), agents.ErrInvalid, "leads out"},
		{"absolute", newFile("/etc/x", "100644", "x"), agents.ErrInvalid, ""},
		{"through a link out", newFile("out/x", "100644", "x"), agents.ErrInvalid, "leads out"},
		{"through a link in", newFile("in/x", "100644", "x"), agents.ErrInvalid, "beyond a symbolic link"},
		{"into .git", newFile(".git/hooks/post-commit", "100755", "x"), agents.ErrInvalid, ".git"},
		{"into a nested .git", newFile("dir/.GIT/config", "100644", "x"), agents.ErrInvalid, ".git"},
		{"octal .git", newFile(`\056git/x`, "100644", "x"), agents.ErrInvalid, ".git"},
		{"rename into .git", "diff --git a/f b/.git/f\nsimilarity index 100%\nrename from f\nrename to .git/f\n", agents.ErrInvalid, ".git"},
		{"rename from outside", "diff --git a/../sb-10/secret b/x\nsimilarity index 100%\nrename from ../sb-10/secret\nrename to x\n", agents.ErrInvalid, "leads out"},
		{"copy from outside", "diff --git a/../sb-10/secret b/x\nsimilarity index 100%\ncopy from ../sb-10/secret\ncopy to x\n", agents.ErrInvalid, "leads out"},
		{"link out", newFile("l", "120000", "../x"), agents.ErrInvalid, "leads out"},
		{"link out, deep", newFile("dir/l", "120000", "../../x"), agents.ErrInvalid, "leads out"},
		{"link to an absolute path", newFile("l", "120000", "/etc/passwd"), agents.ErrInvalid, "leads out"},
		{"link into .git", newFile("l", "120000", ".git/config"), agents.ErrInvalid, ".git"},
		{"link, then through it", newFile("l", "120000", "dir") + newFile("l/x", "100644", "x"), agents.ErrToolFailed, "not a directory"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.put("good", "good\n")
			w.put("f", "f\n")
			w.put("g", "g\n")
			w.put("two", "1\n2\n")
			w.put("bin", "\x00")
			w.put("dir/x", "x\n")
			w.put(".git/config", "x")
			w.link("../sb-10", "out")
			w.link("dir", "in")
			w.refused("file-patch", patchInput(tt.patch), tt.class, tt.says)
		})
	}
}

func TestFilePatchIsTakenBackWhole(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Log("as root nothing is read-only: a directory that cannot be removed stands in")
	}
	w := newWorld(t)
	w.put("a", "a\n")
	w.put("gone/x", "x\n")
	w.link("a", "l")
	// A name that is too long fails only when it is written.
	long := strings.Repeat("n", 300)
	patch := "diff --git a/a b/a\nold mode 100644\nnew mode 100755\n--- a/a\n+++ b/a\n@@ -1 +1 @@\n-a\n+A\n" +
		"diff --git a/gone/x b/gone/x\ndeleted file mode 100644\n--- a/gone/x\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n" +
		"diff --git a/l b/l\n--- a/l\n+++ b/l\n@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+b\n\\ No newline at end of file\n" +
		"diff --git a/b/c b/b/c\nnew file mode 100644\n--- /dev/null\n+++ b/b/c\n@@ -0,0 +1 @@\n+c\n" +
		fmt.Sprintf("diff --git a/z/%s b/z/%s\nnew file mode 100644\n--- /dev/null\n+++ b/z/%s\n@@ -0,0 +1 @@\n+c\n", long, long, long)
	w.refused("file-patch", patchInput(patch), agents.ErrToolFailed, "")
}

func FuzzFilePatch(f *testing.F) {
	for _, s := range []string{
		"diff --git a/f b/f\n--- a/f\n+++ b/f\n@@ -1 +1 @@\n-f\n+g\n",
		"diff --git a/n b/n\nnew file mode 120000\n--- /dev/null\n+++ b/n\n@@ -0,0 +1 @@\n+f\n\\ No newline at end of file\n",
		"diff --git a/f b/dir/g\nsimilarity index 100%\nrename from f\nrename to dir/g\n",
		"diff --git a/bin b/bin\nGIT binary patch\nliteral 1\nIcmZPo000310RR91\n\n",
		"--- a/f\n+++ b/f\n@@ -0,0 +1 @@\n+g\n",
		"--- a/f\n+++ b/f\n@@ -999999999999999 +1 @@\n-f\n+g\n",
		"diff --git a/f b/f\ndeleted file mode 100644\n--- a/f\n+++ /dev/null\n@@ -1 +0,0 @@\n-f\n",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, patch string) {
		w := newWorld(t)
		w.put("f", "f\n")
		w.put("dir/x", "x\n")
		w.put("bin", "\x00")
		w.put(".git/config", "x")
		w.link("../sb-10", "out")
		before, outside := w.files(), describe(t, w.outside)
		res, err := w.call("file-patch", patchInput(patch))
		if err != nil {
			if after := w.files(); !slices.Equal(before, after) {
				t.Errorf("refused with %v, but changed %q to %q", err, before, after)
			}
		} else {
			w.wantTouched(res, before)
		}
		if after := describe(t, w.outside); !slices.Equal(outside, after) {
			t.Errorf("outside changed from %q to %q", outside, after)
		}
		if w.content(".git/config") != "x" {
			t.Error(".git changed")
		}
	})
}
