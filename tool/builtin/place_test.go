//go:build unix

package builtin_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	agents "github.com/cleveragents/agents"
)

// writers are calls that write at a path.
func writers(path string) map[string]string {
	p := quote(path)
	return map[string]string{
		"file-write":  fmt.Sprintf(`{"path": %s, "content": "x"}`, p),
		"file-edit":   fmt.Sprintf(`{"path": %s, "old": "s", "new": "x"}`, p),
		"file-delete": fmt.Sprintf(`{"path": %s, "recursive": true}`, p),
		"file-move":   fmt.Sprintf(`{"from": "here", "to": %s}`, p),
		"file-copy":   fmt.Sprintf(`{"from": "here", "to": %s}`, p),
		"dir-create":  fmt.Sprintf(`{"path": %s}`, p),
	}
}

// readers are calls that read at a path.
func readers(path string) map[string]string {
	p := quote(path)
	return map[string]string{
		"file-read":   fmt.Sprintf(`{"path": %s}`, p),
		"file-list":   fmt.Sprintf(`{"path": %s}`, p),
		"file-search": fmt.Sprintf(`{"path": %s, "pattern": "."}`, p),
		"file-info":   fmt.Sprintf(`{"path": %s}`, p),
		"shell":       fmt.Sprintf(`{"command": "echo ran", "cwd": %s}`, p),
	}
}

func TestU093B099B101PathsThatLeave(t *testing.T) {
	w := newWorld(t)
	w.put("here", "here s")
	w.put("dir/file", "s")
	w.link(w.outside, "abs")
	w.link("../sb-10", "rel")
	w.link("rel", "twice")
	w.link("dir/../../sb-10", "winding")
	w.link("loop", "loop")
	for _, path := range []string{
		"../sb-10/secret", "../sb-1/here", "dir/../../sb-10/secret", "dir/../here", "..", "./..",
		w.outside + "/secret", w.outside, w.sandbox + "0/secret", w.sandbox + "/../sb-10/secret", w.resource + "2/x", "/", "/etc/passwd",
		"//" + w.outside, "/proc/self/cwd", "/proc/self/root/etc/passwd",
		"abs/secret", "abs/new", "rel/secret", "rel/new/deep", "twice/secret", "winding/secret", "loop/x",
		"file://" + w.outside + "/secret", "file://host/x", "file:///%2e%2e/x",
		"nul\x00byte", `a\b`, `\x2e\x2e/sb-10/secret`, "abs/",
	} {
		for name, input := range writers(path) {
			w.refused(name, input, agents.ErrInvalid, "")
		}
		for name, input := range readers(path) {
			w.refused(name, input, agents.ErrInvalid, "")
		}
	}
	// At the end of a path, a link that leads out is refused where it would be
	// followed, and is itself what is meant where it would not.
	for _, path := range []string{"abs", "rel", "twice", "loop"} {
		for _, name := range []string{"file-write", "file-edit", "dir-create"} {
			w.refused(name, writers(path)[name], agents.ErrInvalid, "")
		}
		for _, name := range []string{"file-read", "file-list", "file-search", "shell"} {
			w.refused(name, readers(path)[name], agents.ErrInvalid, "")
		}
		w.must("file-copy", fmt.Sprintf(`{"from": %q, "to": "copy-%s"}`, path, path))
		w.must("file-move", fmt.Sprintf(`{"from": "copy-%s", "to": "moved-%s"}`, path, path))
		if w.mode("moved-"+path)&os.ModeSymlink == 0 {
			t.Errorf("%s: want the copy to be a link", path)
		}
		w.must("file-delete", fmt.Sprintf(`{"path": "moved-%s"}`, path))
	}
	w.refused("file-write", `{"path": "", "content": ""}`, agents.ErrInvalid, "path")
}

func TestTopAndGitAreNotWritten(t *testing.T) {
	w := newWorld(t)
	w.put("here", "s")
	w.put(".git/config", "s")
	w.put("nested/.git/config", "s")
	w.link("nested/.git", "hidden")
	w.link("nested", "alias")
	for _, path := range []string{
		".", "./", w.sandbox, w.resource,
		".git", ".git/config", ".git/new", "./.git/x", ".GIT", ".Git/config", ".git./x", ".git /x", "git~1/x",
		"nested/.git", "nested/.git/config", "nested/.git/hooks/x", "alias/.git/config", "hidden/config", w.resource + "/.git/config",
	} {
		for name, input := range writers(path) {
			w.refused(name, input, agents.ErrInvalid, "")
		}
	}
	w.refused("file-delete", `{"path": "nested", "recursive": true}`, agents.ErrInvalid, "nested/.git")
	w.refused("file-move", `{"from": "nested", "to": "elsewhere"}`, agents.ErrInvalid, "nested/.git")
	w.refused("file-copy", `{"from": "nested", "to": "elsewhere"}`, agents.ErrInvalid, "nested/.git")
	w.must("file-write", `{"path": ".gitignore", "content": "x"}`)
	w.must("file-write", `{"path": "x.git/y", "content": "x"}`)
	if out, _ := w.must("file-read", `{"path": "nested/.git/config"}`); out["content"] != "s" {
		t.Errorf("reading below .git: got %v, want it allowed", out)
	}
}

func TestB107U097AbsolutePathsOfTheResource(t *testing.T) {
	w := newWorld(t)
	alias := filepath.Join(filepath.Dir(w.sandbox), "alias")
	if err := os.Symlink(w.resource, alias); err != nil {
		t.Fatal(err)
	}
	w.put("dir/b.txt", "b")
	before := describe(t, w.resource)
	for i, path := range []string{
		w.resource + "/a.txt", w.resource + "//a.txt", w.resource + "/./a.txt", alias + "/a.txt",
		"file://" + w.resource + "/a%2etxt", "FILE://localhost" + w.resource + "/a.txt", w.sandbox + "/a.txt",
	} {
		text := fmt.Sprintf("text %d", i)
		out, res := w.must("file-write", fmt.Sprintf(`{"path": %q, "content": %q}`, path, text))
		if out["path"] != path {
			t.Errorf("got path %v, want it as the caller wrote it: %s", out["path"], path)
		}
		wantPaths(t, res, "a.txt")
		if got := w.content("a.txt"); got != text {
			t.Errorf("%s: got %q in the sandbox, want %q", path, got, text)
		}
	}
	out, _ := w.must("file-list", fmt.Sprintf(`{"path": %q}`, w.resource+"/dir"))
	entry := out["entries"].([]any)[0].(map[string]any)
	if want := w.resource + "/dir/b.txt"; entry["path"] != want {
		t.Errorf("got entry %v, want %s", entry["path"], want)
	}
	res, err := w.call("shell", fmt.Sprintf(`{"command": "pwd -P; echo $PWD", "cwd": %q}`, w.resource+"/dir"))
	if want := w.sandbox + "/dir\n" + w.sandbox + "/dir\n"; res.Stdout != want || err != nil {
		t.Errorf("cwd: got %q, %v, want %q", res.Stdout, err, want)
	}
	if after := describe(t, w.resource); !slices.Equal(before, after) {
		t.Errorf("the resource changed: got %q, want %q", after, before)
	}
}

func TestB105NamesThatLookLikeOptions(t *testing.T) {
	w := newWorld(t)
	w.git("init", "-q", "-b", "main")
	for _, name := range []string{"-rf", "--force", "-", "--", "--output=x", ":(top)x", ":!x", "*", "a b", "new\nline", "tab\t", `quo"te`, "é", "$(touch x)", "~", "-b/-c"} {
		in := fmt.Sprintf(`{"path": %s, "content": "one\n"}`, quote(name))
		_, res := w.must("file-write", in)
		if !slices.Contains(res.Paths, name) {
			t.Errorf("%q: got paths %q", name, res.Paths)
		}
		w.must("file-edit", fmt.Sprintf(`{"path": %s, "old": "one", "new": "two"}`, quote(name)))
		if got := w.content(name); got != "two\n" {
			t.Errorf("%q: got %q, want two", name, got)
		}
		if !slices.Contains([]string{"-rf", "--force", "--output=x", ":(top)x", "*", "-b/-c"}, name) {
			continue
		}
		out, _ := w.must("git-commit", fmt.Sprintf(`{"message": "-m", "paths": [%s]}`, quote(name)))
		files := out["files"].([]any)
		if len(files) != 1 || files[0].(map[string]any)["path"] != name {
			t.Errorf("%q: commit holds %v, want this file alone", name, files)
		}
		w.must("git-log", fmt.Sprintf(`{"path": %s}`, quote(name)))
		w.must("git-diff", fmt.Sprintf(`{"paths": [%s]}`, quote(name)))
		w.must("git-checkout", fmt.Sprintf(`{"paths": [%s]}`, quote(name)))
		w.must("git-reset", fmt.Sprintf(`{"paths": [%s]}`, quote(name)))
		w.must("file-move", fmt.Sprintf(`{"from": %s, "to": %s}`, quote(name), quote("-moved-"+strings.ReplaceAll(name, "/", "_"))))
	}
	if got := w.exists("x"); got {
		t.Error("a name ran as a command")
	}
}

func TestNamesThatAreNotUTF8(t *testing.T) {
	w := newWorld(t)
	w.put("caf\xe9", "s")
	w.put(`back\slash`, "s")
	out, _ := w.must("file-list", `{}`)
	var got []string
	for _, e := range out["entries"].([]any) {
		got = append(got, e.(map[string]any)["path"].(string))
	}
	if want := []string{`back\\slash`, `caf\xe9`}; !slices.Equal(got, want) {
		t.Fatalf("got %q, want %q", got, want)
	}
	for i, name := range got {
		w.must("file-edit", fmt.Sprintf(`{"path": %s, "old": "s", "new": "t"}`, quote(name)))
		_, res := w.must("file-copy", fmt.Sprintf(`{"from": %s, "to": %s}`, quote(name), quote(name+`\xff`)))
		wantPaths(t, res, []string{`back\slash`, "caf\xe9"}[i]+"\xff")
	}
	if got := w.content("caf\xe9"); got != "t" {
		t.Errorf("got %q, want the edit", got)
	}
}

func TestLinksInsideAreFollowed(t *testing.T) {
	w := newWorld(t)
	w.put("dir/file", "old")
	w.link("dir", "link")
	w.link("link/file", "file")
	w.link("dir/new", "dangling")
	_, res := w.must("file-write", `{"path": "file", "content": "new"}`)
	wantPaths(t, res, "dir/file")
	_, res = w.must("file-write", `{"path": "link/other", "content": "x"}`)
	wantPaths(t, res, "dir/other")
	_, res = w.must("file-write", `{"path": "dangling", "content": "x"}`)
	wantPaths(t, res, "dir/new")
	if got := w.content("dir/file"); got != "new" || w.mode("file")&os.ModeSymlink == 0 {
		t.Errorf("got %q, %v, want the file changed and the link kept", got, w.mode("file"))
	}
	out, _ := w.must("file-info", `{"path": "file"}`)
	if out["type"] != "symlink" || out["target"] != "link/file" || out["leads_to"] != "dir/file" {
		t.Errorf("got %v, want the link and where it leads", out)
	}
	if _, err := w.call("file-write", `{"path": "dir", "content": ""}`); !errors.Is(err, agents.ErrToolFailed) {
		t.Errorf("write to a directory: got %v, want ErrToolFailed", err)
	}
}
