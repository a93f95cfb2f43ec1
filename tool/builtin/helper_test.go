//go:build unix

package builtin_test

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/proc"
	"github.com/cleveragents/agents/tool"
	"github.com/cleveragents/agents/tool/builtin"
)

// world is a sandbox, the resource that it stands for, and what is outside.
type world struct {
	t        *testing.T
	sandbox  string
	resource string
	outside  string
	tools    *tool.Registry
	env      tool.Env
}

func newWorld(t *testing.T) *world {
	t.Helper()
	top := t.TempDir()
	w := &world{t: t, sandbox: filepath.Join(top, "sb-1"), resource: filepath.Join(top, "real"), outside: filepath.Join(top, "sb-10")}
	for _, dir := range []string{w.sandbox, w.resource, w.outside} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	reg, err := tool.NewRegistry(builtin.All()...)
	if err != nil {
		t.Fatal(err)
	}
	w.tools = reg
	w.env = tool.Env{
		PlanID: "01", Resource: agents.Resource{Name: "app", Location: w.resource},
		Path: w.sandbox, Files: true, Environ: proc.Environ(os.Environ(), w.sandbox),
	}
	w.put("../sb-10/secret", "secret")
	w.put("../real/a.txt", "real")
	return w
}

// put writes a file, relative to the sandbox, with its parents.
func (w *world) put(rel, content string) {
	w.t.Helper()
	at := filepath.Join(w.sandbox, rel)
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(at, []byte(content), 0o644); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) link(target, rel string) {
	w.t.Helper()
	if err := os.Symlink(target, filepath.Join(w.sandbox, rel)); err != nil {
		w.t.Fatal(err)
	}
}

// call checks an input against the schema and calls the tool.
func (w *world) call(name, input string) (tool.Result, error) {
	w.t.Helper()
	tl, err := w.tools.Lookup(name)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := tool.CheckInput(tl.Spec(), json.RawMessage(input)); err != nil {
		return tool.Result{}, err
	}
	return tl.Call(w.t.Context(), w.env, json.RawMessage(input))
}

// must is call for what should work. It returns the output as JSON would.
func (w *world) must(name, input string) (map[string]any, tool.Result) {
	w.t.Helper()
	res, err := w.call(name, input)
	if err != nil {
		w.t.Fatalf("%s %s: %v", name, input, err)
	}
	b, err := json.Marshal(res.Output)
	if err != nil {
		w.t.Fatal(err)
	}
	var out map[string]any
	if err := json.Unmarshal(b, &out); err != nil {
		w.t.Fatal(err)
	}
	return out, res
}

// refused checks that a call fails with a class, says something, and changes
// nothing anywhere.
func (w *world) refused(name, input string, class error, says string) {
	w.t.Helper()
	before := w.everything()
	res, err := w.call(name, input)
	if !errors.Is(err, class) || err != nil && !strings.Contains(err.Error()+" "+agents.HintOf(err)+res.Stderr, says) {
		w.t.Errorf("%s %s: got %v, want %v that says %q", name, input, err, class, says)
	}
	if after := w.everything(); !slices.Equal(before, after) {
		w.t.Errorf("%s %s: changed\n%s\nto\n%s", name, input, strings.Join(before, "\n"), strings.Join(after, "\n"))
	}
}

// everything describes the sandbox, the resource and the outside, but for
// times.
func (w *world) everything() []string {
	w.t.Helper()
	return describe(w.t, filepath.Dir(w.sandbox))
}

// describe lists all entries of a tree with type, mode and content.
func describe(t testing.TB, top string) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(top, path)
		line := rel + " " + fi.Mode().String()
		switch {
		case fi.Mode().IsRegular():
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			line += " " + string(b)
		case fi.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			line += " -> " + target
		}
		all = append(all, line)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// content reads a file of the sandbox.
func (w *world) content(rel string) string {
	w.t.Helper()
	b, err := os.ReadFile(filepath.Join(w.sandbox, rel))
	if err != nil {
		w.t.Error(err)
	}
	return string(b)
}

func (w *world) exists(rel string) bool {
	_, err := os.Lstat(filepath.Join(w.sandbox, rel))
	return err == nil
}

func (w *world) mode(rel string) fs.FileMode {
	w.t.Helper()
	fi, err := os.Lstat(filepath.Join(w.sandbox, rel))
	if err != nil {
		w.t.Error(err)
		return 0
	}
	return fi.Mode()
}

// git runs git in the sandbox as a user would.
func (w *world) git(args ...string) string {
	w.t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = w.sandbox
	cmd.Env = append(proc.Environ(os.Environ(), w.sandbox),
		"GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null", "GIT_CEILING_DIRECTORIES="+filepath.Dir(w.sandbox),
		"GIT_AUTHOR_NAME=A", "GIT_AUTHOR_EMAIL=a@example.org", "GIT_COMMITTER_NAME=A", "GIT_COMMITTER_EMAIL=a@example.org")
	out, err := cmd.CombinedOutput()
	if err != nil {
		w.t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// wantPaths compares what a call says it changed.
func wantPaths(t *testing.T, res tool.Result, want ...string) {
	t.Helper()
	got := slices.Clone(res.Paths)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("paths: got %q, want %q", got, want)
	}
}

// quote makes a JSON string.
func quote(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}
