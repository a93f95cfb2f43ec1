package oracle_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cleveragents/agents/internal/oracle"
)

func TestDigestSeesEverything(t *testing.T) {
	r := oracle.NewRepo(t)
	for _, c := range []struct{ name, script string }{
		{"content", "printf x >>a.txt"},
		{"same size", "printf 'v2\\n' >a.txt"},
		{"mode", "chmod 600 a.txt"},
		{"new file", "touch new"},
		{"empty directory", "mkdir empty"},
		{"link", "ln -s a.txt link"},
		{"link target", "ln -sfn b.txt link"},
		{"in .git", "git config x.y z"},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := oracle.Digest(t, r.Dir)
			r.Sh(c.script)
			if oracle.Diff(before, oracle.Digest(t, r.Dir)) == "" {
				t.Errorf("%s: not seen", c.script)
			}
		})
	}
}

func TestDigestSkips(t *testing.T) {
	dir := t.TempDir()
	before := oracle.Digest(t, dir, "a", "b/x-*")
	for _, p := range []string{"a/deep", "b/x-1"} {
		if err := os.MkdirAll(filepath.Join(dir, p), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	got := oracle.Diff(before, oracle.Digest(t, dir, "a", "b/x-*"))
	if lines := strings.Count(got, "\n"); lines != 1 || !strings.HasPrefix(got, `+ "b" `) {
		t.Errorf("got %q, want the directory b alone", got)
	}
}
