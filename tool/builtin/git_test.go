//go:build unix

package builtin_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/proc"
)

// newRepo is a world whose sandbox is a repository with one commit.
func newRepo(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.env.Environ = proc.Environ(os.Environ(), w.sandbox, "GIT_CONFIG_GLOBAL=/dev/null")
	w.put("f", "one\n")
	w.put("dir/g", "g\n")
	w.put(".gitignore", "*.log\n")
	w.git("init", "-q", "-b", "main")
	w.git("add", "-A")
	w.git("commit", "-q", "-m", "first")
	return w
}

// jsonOf is a part of an output as JSON.
func jsonOf(v any) string {
	b, _ := json.Marshal(v)
	return string(b)
}

func TestGitStatus(t *testing.T) {
	w := newRepo(t)
	out, _ := w.must("git-status", `{}`)
	if out["branch"] != "main" || out["clean"] != true || out["head"] != w.git("rev-parse", "HEAD") {
		t.Errorf("got %v, want a clean main", out)
	}
	w.git("mv", "dir/g", "dir/h h")
	w.put("f", "two\n")
	w.put("new\nline", "x")
	w.put("x.log", "x")
	w.put("caf\xe9", "x")
	out, _ = w.must("git-status", `{}`)
	want := `[{"index":"R","old_path":"dir/g","path":"dir/h h","worktree":"."},` +
		`{"index":".","path":"f","worktree":"M"},` +
		`{"index":"?","path":"caf\\xe9","worktree":"?"},` +
		`{"index":"?","path":"new\nline","worktree":"?"}]`
	if got := jsonOf(out["entries"]); got != want || out["clean"] != false {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestGitCommit(t *testing.T) {
	w := newRepo(t)
	w.put("f", "two\n")
	w.put("new", "x\n")
	w.put("x.log", "x")
	if err := os.Remove(filepath.Join(w.sandbox, "dir/g")); err != nil {
		t.Fatal(err)
	}
	out, res := w.must("git-commit", `{"message": "-m only f\n\nand more", "paths": ["f"]}`)
	if got, want := jsonOf(out["files"]), `[{"binary":false,"deletions":1,"insertions":1,"path":"f"}]`; got != want {
		t.Errorf("paths: got files %s, want %s", got, want)
	}
	if out["subject"] != "-m only f" || out["branch"] != "main" || out["head"] != w.git("rev-parse", "HEAD") {
		t.Errorf("got %v", out)
	}
	wantPaths(t, res)
	out, _ = w.must("git-commit", `{"message": "all"}`)
	if got := jsonOf(out["files"]); !strings.Contains(got, `"dir/g"`) || !strings.Contains(got, `"new"`) || strings.Contains(got, "x.log") {
		t.Errorf("all: got files %s, want dir/g and new, not what is ignored", got)
	}
	for _, tt := range []struct {
		input string
		class error
		says  string
	}{
		{`{"message": "again"}`, agents.ErrToolFailed, "nothing to commit"},
		{`{"message": " \n"}`, agents.ErrInvalid, "message"},
		{`{}`, agents.ErrInvalid, `"message" is missing`},
		{`{"message": "x", "paths": ["none"]}`, agents.ErrToolFailed, "none"},
		{`{"message": "x", "paths": ["../sb-10/secret"]}`, agents.ErrInvalid, "leads out"},
		{`{"message": "x", "paths": [".git/config"]}`, agents.ErrInvalid, "git's own"},
		{`{"message": "x", "paths": []}`, agents.ErrInvalid, `"paths"`},
		{`{"message": "x", "amend": true}`, agents.ErrInvalid, "unknown"},
	} {
		if _, err := w.call("git-commit", tt.input); !is(err, tt.class, tt.says) {
			t.Errorf("%s: got %v, want %v that says %q", tt.input, err, tt.class, tt.says)
		}
	}
	w.must("git-commit", fmt.Sprintf(`{"message": "x", "paths": [%q]}`, w.change("new")))
}

// change changes a file and returns its path in the real resource.
func (w *world) change(rel string) string {
	w.put(rel, w.content(rel)+"more\n")
	return filepath.Join(w.resource, rel)
}

func TestB039CommitWithoutIdentityAndWithSigning(t *testing.T) {
	w := newRepo(t)
	w.git("config", "user.useConfigOnly", "true")
	w.git("config", "commit.gpgSign", "true")
	w.git("config", "gpg.program", "/bin/false")
	w.put(".git/hooks/pre-commit", "#!/bin/sh\nexit 1\n")
	w.put(".git/hooks/post-commit", "#!/bin/sh\ntouch ../ran ran\n")
	for _, hook := range []string{"pre-commit", "post-commit"} {
		w.chmod(".git/hooks/"+hook, 0o755)
	}
	w.env.Environ = proc.Environ([]string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent"}, w.sandbox)
	w.put("f", "two\n")
	w.must("git-commit", `{"message": "mine"}`)
	if got, want := w.git("log", "-1", "--format=%an <%ae> %cn %s %G?"), "cleveragents <cleveragents@localhost> cleveragents mine N"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if w.exists("ran") || w.exists("../ran") {
		t.Error("a hook ran")
	}
	w.git("config", "user.name", "User")
	w.git("config", "user.email", "u@example.org")
	w.put("f", "three\n")
	w.must("git-commit", `{"message": "theirs"}`)
	if got, want := w.git("log", "-1", "--format=%an <%ae>"), "User <u@example.org>"; got != want {
		t.Errorf("got %s, want the user's own %s", got, want)
	}
}

func TestGitDiffAndLog(t *testing.T) {
	w := newRepo(t)
	first := w.git("rev-parse", "HEAD")
	w.put("f", "two\n")
	w.git("commit", "-q", "-a", "-m", "second\n\nbody\nof it")
	w.put("f", "three\n")
	w.git("add", "f")
	w.put("dir/g", "G\n")
	for input, want := range map[string]string{
		`{}`:                                     "dir/g",
		`{"staged": true}`:                       "f",
		`{"from": "HEAD"}`:                       "dir/g f",
		`{"from": "HEAD", "paths": ["f"]}`:       "f",
		`{"from": "HEAD", "paths": ["dir"]}`:     "dir/g",
		`{"from": "HEAD~1", "to": "HEAD"}`:       "f",
		`{"from": "` + first + `", "to":"main"}`: "f",
	} {
		out, _ := w.must("git-diff", input)
		var got []string
		for _, f := range out["files"].([]any) {
			got = append(got, f.(map[string]any)["path"].(string))
		}
		if strings.Join(got, " ") != want || strings.Count(out["patch"].(string), "diff --git") != len(got) || out["truncated"] != false {
			t.Errorf("%s: got %v, want %s", input, out, want)
		}
	}
	out, _ := w.must("git-log", `{}`)
	commits := out["commits"].([]any)
	newest := commits[0].(map[string]any)
	if len(commits) != 2 || newest["subject"] != "second" || newest["body"] != "body\nof it" || newest["author"] != "A" || jsonOf(newest["parents"]) != `["`+first+`"]` {
		t.Errorf("log: got %v", out)
	}
	for input, want := range map[string]int{
		`{"limit": 1}`: 1, `{"ref": "HEAD~1"}`: 1, `{"path": "dir/g"}`: 1, `{"path": "f"}`: 2, `{"path": "none"}`: 0,
	} {
		out, _ := w.must("git-log", input)
		if got := len(out["commits"].([]any)); got != want {
			t.Errorf("log %s: got %d commits, want %d", input, got, want)
		}
	}
	for _, tt := range []struct {
		name, input string
		class       error
		says        string
	}{
		{"git-diff", `{"to": "HEAD"}`, agents.ErrInvalid, "needs from"},
		{"git-diff", `{"from": "none"}`, agents.ErrToolFailed, "names no commit"},
		{"git-diff", `{"from": "--output=pwn"}`, agents.ErrInvalid, "no name"},
		{"git-diff", `{"from": "HEAD --output=pwn"}`, agents.ErrToolFailed, "names no commit"},
		{"git-diff", `{"paths": ["../x"]}`, agents.ErrInvalid, "leads out"},
		{"git-log", `{"ref": "--output=pwn"}`, agents.ErrInvalid, "no name"},
		{"git-log", `{"limit": 0}`, agents.ErrInvalid, `"limit"`},
	} {
		w.refused(tt.name, tt.input, tt.class, tt.says)
	}
}

func TestGitDiffIsCapped(t *testing.T) {
	w := newRepo(t)
	w.put("f", strings.Repeat("0123456789abcdef\n", 1<<17))
	out, _ := w.must("git-diff", `{}`)
	if len(out["patch"].(string)) != 1<<20 || out["truncated"] != true {
		t.Errorf("got %d bytes, truncated %v, want 1 MiB and that said", len(out["patch"].(string)), out["truncated"])
	}
}

func TestGitBranchAndCheckout(t *testing.T) {
	w := newRepo(t)
	first := w.git("rev-parse", "HEAD")
	w.must("git-branch", `{"name": "topic/a"}`)
	w.put("f", "two\n")
	w.git("commit", "-q", "-a", "-m", "second")
	out, _ := w.must("git-branch", `{"name": "old", "start": "HEAD~1"}`)
	want := fmt.Sprintf(`[{"commit":%q,"current":true,"name":"main"},{"commit":%q,"current":false,"name":"old"},{"commit":%q,"current":false,"name":"topic/a"}]`,
		w.git("rev-parse", "HEAD"), first, first)
	if got := jsonOf(out["branches"]); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	out, _ = w.must("git-checkout", `{"ref": "topic/a"}`)
	if out["branch"] != "topic/a" || w.content("f") != "one\n" {
		t.Errorf("branch: got %v, f %q", out, w.content("f"))
	}
	out, _ = w.must("git-checkout", `{"ref": "main~0"}`)
	if out["branch"] != "" || w.content("f") != "two\n" {
		t.Errorf("commit: got %v, want it detached", out)
	}
	out, _ = w.must("git-checkout", `{"create": "made", "ref": "old"}`)
	if out["branch"] != "made" || out["head"] != first {
		t.Errorf("create: got %v", out)
	}
	w.put("f", "changed\n")
	w.must("git-checkout", `{"paths": ["f"]}`)
	if got := w.content("f"); got != "one\n" {
		t.Errorf("paths: got %q, want one", got)
	}
	w.must("git-checkout", `{"paths": ["f"], "ref": "main"}`)
	if got := w.content("f"); got != "two\n" {
		t.Errorf("paths from a commit: got %q, want two", got)
	}
	w.git("reset", "-q", "--hard")
	w.put("x.log", "mine")
	w.git("checkout", "-q", "main")
	w.git("add", "-f", "x.log")
	w.git("commit", "-q", "-m", "with an ignored file")
	w.git("checkout", "-q", "old")
	w.put("x.log", "precious")
	for _, tt := range []struct {
		name, input string
		class       error
		says        string
	}{
		{"git-checkout", `{"ref": "main"}`, agents.ErrToolFailed, "x.log"},
		{"git-checkout", `{}`, agents.ErrInvalid, "want ref"},
		{"git-checkout", `{"create": "x", "paths": ["f"]}`, agents.ErrInvalid, "not both"},
		{"git-checkout", `{"ref": "none"}`, agents.ErrToolFailed, "names no commit"},
		{"git-checkout", `{"ref": "--force"}`, agents.ErrInvalid, "no name"},
		{"git-checkout", `{"ref": "f"}`, agents.ErrToolFailed, "names no commit"},
		{"git-checkout", `{"create": "-b"}`, agents.ErrInvalid, "no name"},
		{"git-checkout", `{"create": "made"}`, agents.ErrToolFailed, "already exists"},
		{"git-checkout", `{"paths": ["none"]}`, agents.ErrToolFailed, "none"},
		{"git-checkout", `{"paths": ["../real/a.txt"]}`, agents.ErrInvalid, "leads out"},
		{"git-branch", `{"name": "-D"}`, agents.ErrInvalid, "no name"},
		{"git-branch", `{"name": "a..b"}`, agents.ErrInvalid, "no name for a branch"},
		{"git-branch", `{"name": "HEAD"}`, agents.ErrInvalid, "no name for a branch"},
		{"git-branch", `{"name": "../../x"}`, agents.ErrInvalid, "no name for a branch"},
		{"git-branch", `{"name": "made"}`, agents.ErrToolFailed, "already exists"},
		{"git-branch", `{"name": "n", "start": "--upload-pack=x"}`, agents.ErrInvalid, "no name"},
		{"git-branch", `{"name": "main", "delete": true}`, agents.ErrToolFailed, "not fully merged"},
		{"git-branch", `{"name": "old", "delete": true}`, agents.ErrToolFailed, "old"},
		{"git-branch", `{"delete": true}`, agents.ErrInvalid, "need a name"},
		{"git-branch", `{"name": "x", "start": "main", "delete": true}`, agents.ErrInvalid, "not both"},
	} {
		w.refused(tt.name, tt.input, tt.class, tt.says)
	}
	out, _ = w.must("git-branch", `{"name": "made", "delete": true}`)
	if strings.Contains(jsonOf(out), "made") {
		t.Errorf("delete: got %v", out)
	}
}

func TestGitReset(t *testing.T) {
	w := newRepo(t)
	first := w.git("rev-parse", "HEAD")
	for _, tt := range []struct{ input, status, content string }{
		{`{"ref": "HEAD~1", "mode": "soft"}`, "M  f", "two\n"},
		{`{"ref": "HEAD~1"}`, "M f", "two\n"},
		{`{"ref": "HEAD~1", "mode": "hard"}`, "", "one\n"},
		{`{"ref": "HEAD~1", "mode": "keep"}`, "", "one\n"},
	} {
		w.put("f", "two\n")
		w.git("commit", "-q", "-a", "-m", "second")
		out, _ := w.must("git-reset", tt.input)
		if out["head"] != first || w.git("status", "--porcelain") != tt.status || w.content("f") != tt.content {
			t.Errorf("%s: got %v, status %q, content %q", tt.input, out, w.git("status", "--porcelain"), w.content("f"))
		}
		w.git("reset", "-q", "--hard")
	}
	w.put("f", "three\n")
	w.put("dir/g", "three\n")
	w.git("add", "-A")
	w.must("git-reset", `{"paths": ["f"]}`)
	if got, want := w.git("status", "--porcelain"), "M  dir/g\n M f"; got != want {
		t.Errorf("paths: got %q, want %q", got, want)
	}
	for _, tt := range []struct {
		input string
		class error
		says  string
	}{
		{`{"mode": "merge"}`, agents.ErrInvalid, `"mode"`},
		{`{"mode": "hard", "paths": ["f"]}`, agents.ErrInvalid, "mixed only"},
		{`{"ref": "--hard"}`, agents.ErrInvalid, "no name"},
		{`{"ref": "none"}`, agents.ErrToolFailed, "names no commit"},
		{`{"mode": "keep", "ref": "HEAD~1"}`, agents.ErrToolFailed, "names no commit"},
	} {
		w.refused("git-reset", tt.input, tt.class, tt.says)
	}
}

func TestGitToolsNeverFindARepositoryAbove(t *testing.T) {
	w := newWorld(t)
	above := &world{t: t, sandbox: filepath.Dir(w.sandbox)}
	above.git("init", "-q", "-b", "main")
	w.put("f", "x")
	for name, input := range map[string]string{
		"git-status": `{}`, "git-diff": `{}`, "git-log": `{}`, "git-commit": `{"message": "x"}`,
		"git-branch": `{"name": "x"}`, "git-checkout": `{"create": "x"}`, "git-reset": `{}`,
	} {
		w.refused(name, input, agents.ErrToolFailed, "not a git repository")
	}
}

func TestGitToolsBeforeTheFirstCommit(t *testing.T) {
	w := newWorld(t)
	w.git("init", "-q", "-b", "main")
	w.put("f", "x\n")
	out, _ := w.must("git-status", `{}`)
	if out["head"] != "" || out["branch"] != "main" {
		t.Errorf("status: got %v", out)
	}
	if out, _ = w.must("git-log", `{}`); jsonOf(out) != `{"commits":[]}` {
		t.Errorf("log: got %v", out)
	}
	w.refused("git-reset", `{}`, agents.ErrToolFailed, "names no commit")
	out, _ = w.must("git-commit", `{"message": "first"}`)
	if got := jsonOf(out["files"]); !strings.Contains(got, `"f"`) {
		t.Errorf("commit: got %v", out)
	}
}
