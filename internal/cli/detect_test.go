package cli_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/cli"
)

// place makes a directory with one thing of each kind in it.
func place(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{"repo/.git", "repo/sub", "bare.git/objects", "bare.git/refs", "plain", "linked"} {
		mkdir(t, filepath.Join(dir, d))
	}
	for name, text := range map[string]string{
		"repo/.git/HEAD": "ref: refs/heads/main\n", "bare.git/HEAD": "ref: refs/heads/main\n", "linked/.git": "gitdir: /elsewhere\n",
		"file.txt": "hello", "app.db": "SQLite format 3\x00rest", "empty": "", "fs-file:odd": "x",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("repo", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	return dir
}

func mkdir(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
}

func TestClassify(t *testing.T) {
	dir := place(t)
	for _, c := range []struct {
		in   string
		want agents.ResourceType
		at   string // "" = the input
		err  error
	}{
		{dir + "/repo", agents.TypeGitCheckout, "", nil},
		{dir + "/repo/", agents.TypeGitCheckout, dir + "/repo", nil},
		{dir + "/link", agents.TypeGitCheckout, "", nil},
		{dir + "/linked", agents.TypeGitCheckout, "", nil},
		{dir + "/bare.git", agents.TypeGitCheckout, "", nil},
		{dir + "/plain", agents.TypeDirectory, "", nil},
		{dir + "/file.txt", agents.TypeFile, "", nil},
		{dir + "/app.db", agents.TypeSQLite, "", nil},
		{dir + "/empty", agents.TypeFile, "", nil},
		{"postgres://u@h/db?sslmode=disable", agents.TypePostgres, "", nil},
		{"postgresql://h/db", agents.TypePostgres, "", nil},
		{"fs-directory:" + dir + "/repo/sub", agents.TypeDirectory, dir + "/repo/sub", nil},
		{"fs-mount:" + dir + "/plain", agents.TypeMount, dir + "/plain", nil},
		{"git-checkout:" + dir + "/repo/sub", "", "", agents.ErrInvalid},
		{dir + "/repo/sub", "", "", agents.ErrInvalid},
		{dir + "/none", "", "", agents.ErrNotFound},
		{"git-checkout:" + dir + "/none", "", "", agents.ErrNotFound},
		{"mysql://h/db", "", "", agents.ErrInvalid},
		{"git-checkout:", "", "", agents.ErrInvalid},
		{"", "", "", agents.ErrInvalid},
		{"a\x00b", "", "", agents.ErrInvalid},
		{dir + "/file.txt/x", "", "", agents.ErrNotFound},
	} {
		kind, at, err := cli.Classify(c.in)
		want := c.at
		if want == "" {
			want = c.in
		}
		switch {
		case c.err != nil && !errors.Is(err, c.err):
			t.Errorf("%s: err = %v, want %v", c.in, err, c.err)
		case c.err == nil && (err != nil || kind != c.want || at != want):
			t.Errorf("%s: got %s %s, %v; want %s %s", c.in, kind, at, err, c.want, want)
		}
	}
}

func TestASubdirectoryIsRefusedAndTheRootNamed(t *testing.T) {
	dir := place(t)
	_, _, err := cli.Classify(dir + "/repo/sub")
	if err == nil || !strings.Contains(err.Error(), dir+"/repo,") || !strings.Contains(agents.HintOf(err), "-r "+dir+"/repo") {
		t.Errorf("err = %v, hint %q", err, agents.HintOf(err))
	}
}

func TestB105NamesAreMadeValid(t *testing.T) {
	for in, want := range map[string]string{
		"/src/app": "app", "/src/app.git": "app", "/": "resource", "/x/--force": "force", "/x/-rf": "rf", "/x/a b": "a-b", "/x/ü": "resource",
		"/x/a..b": "a.b", "/x/.hidden": "hidden", "postgres://u:p@h/shop?x=y": "shop", "/x/" + strings.Repeat("a", 300): strings.Repeat("a", 90),
		"/x/\xff\xfe": "resource", "/x/a\nb": "a-b", "/x/...": "resource",
	} {
		got := cli.NameFor(in)
		if got != want {
			t.Errorf("NameFor(%q) = %q, want %q", in, got, want)
		}
		if err := agents.ValidateName("name", got); err != nil {
			t.Error(err)
		}
	}
}
