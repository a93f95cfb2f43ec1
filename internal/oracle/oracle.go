// Package oracle tells tests, without help from the code under test, what is
// in a directory to the last byte, and builds the repositories they start from.
package oracle

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Digest lists everything below dir, one line each, sorted: path, type, all
// permission bits, and the SHA-256 of a file's bytes or the target of a link.
// Times are left out. Each skip is a path below dir, or a path.Match pattern
// for one, that is left out with all that it holds.
func Digest(t testing.TB, dir string, skip ...string) []string {
	t.Helper()
	var lines []string
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, p)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if skipped(rel, skip) {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		line, err := describe(p, rel)
		lines = append(lines, line)
		return err
	})
	if err != nil {
		t.Fatalf("digest of %s: %v", dir, err)
	}
	slices.Sort(lines)
	return lines
}

func skipped(rel string, skip []string) bool {
	for _, s := range skip {
		if rel == s {
			return true
		}
		if ok, _ := path.Match(s, rel); ok {
			return true
		}
	}
	return false
}

func describe(p, rel string) (string, error) {
	fi, err := os.Lstat(p)
	if err != nil {
		return "", err
	}
	content := ""
	switch fi.Mode().Type() {
	case 0:
		content, err = sum(p)
	case fs.ModeSymlink:
		content, err = os.Readlink(p)
	}
	bits := fi.Mode() & (fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky)
	return fmt.Sprintf("%q %s %v %q", rel, fi.Mode().Type(), bits, content), err
}

func sum(p string) (string, error) {
	f, err := os.Open(p)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	return hex.EncodeToString(h.Sum(nil)), err
}

// Diff returns the lines that only one of two digests has, marked "-" for want
// and "+" for got; "" means equal.
func Diff(want, got []string) string {
	var b strings.Builder
	i, j := 0, 0
	for i < len(want) || j < len(got) {
		switch {
		case j == len(got) || i < len(want) && want[i] < got[j]:
			fmt.Fprintf(&b, "- %s\n", want[i])
			i++
		case i == len(want) || got[j] < want[i]:
			fmt.Fprintf(&b, "+ %s\n", got[j])
			j++
		default:
			i, j = i+1, j+1
		}
	}
	return b.String()
}

// Same fails the test when dir is not as want says any more.
func Same(t testing.TB, what, dir string, want []string, skip ...string) {
	t.Helper()
	if d := Diff(want, Digest(t, dir, skip...)); d != "" {
		t.Errorf("%s: %s changed:\n%s", what, dir, d)
	}
}

// Placeholder are the paths below a repository where a sandbox may be seen
// until it is removed: for Digest's skip.
func Placeholder() []string {
	return []string{".git/refs/heads/cleveragents", ".git/worktrees/ca-sandbox-*"}
}

// Repo is a repository that a test owns.
type Repo struct {
	Dir string
	t   testing.TB
	env []string
}

// NewRepo makes a repository on branch main with one commit of a.txt that
// holds "v1\n".
func NewRepo(t testing.TB) *Repo {
	t.Helper()
	r := EmptyRepo(t, filepath.Join(t.TempDir(), "repo"))
	r.Write("a.txt", "v1\n")
	r.Commit("init")
	return r
}

// EmptyRepo makes a repository without commits at dir; options go to git init.
func EmptyRepo(t testing.TB, dir string, options ...string) *Repo {
	t.Helper()
	r := At(t, dir)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	r.Git(append([]string{"init", "-q", "-b", "main"}, options...)...)
	return r
}

// At is a handle on a repository that is there already, or will be.
func At(t testing.TB, dir string) *Repo {
	return &Repo{Dir: dir, t: t, env: append(cleanEnv(),
		"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL="+os.DevNull, "LC_ALL=C",
		"GIT_AUTHOR_NAME=User", "GIT_AUTHOR_EMAIL=user@example.com", "GIT_AUTHOR_DATE=1700000000 +0000",
		"GIT_COMMITTER_NAME=User", "GIT_COMMITTER_EMAIL=user@example.com", "GIT_COMMITTER_DATE=1700000000 +0000",
		"GIT_ALLOW_PROTOCOL=file")}
}

func cleanEnv() []string {
	return slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, "GIT_") })
}

// Git runs git in the repository and returns what it printed, without the
// last line end. A failure fails the test.
func (r *Repo) Git(args ...string) string {
	r.t.Helper()
	out, err := r.Try(args...)
	if err != nil {
		r.t.Fatalf("git %s in %s: %v\n%s", strings.Join(args, " "), r.Dir, err, out)
	}
	return out
}

// Try is Git that returns the failure; the output then holds what git complained.
func (r *Repo) Try(args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Env = r.Dir, r.env
	out, err := cmd.CombinedOutput()
	return strings.TrimSuffix(string(out), "\n"), err
}

// Sh runs a shell line in the repository, as a user or a plan would.
func (r *Repo) Sh(script string) string {
	r.t.Helper()
	cmd := exec.Command("sh", "-ec", script)
	cmd.Dir, cmd.Env = r.Dir, r.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		r.t.Fatalf("sh %q in %s: %v\n%s", script, r.Dir, err, out)
	}
	return strings.TrimSuffix(string(out), "\n")
}

// Write makes or replaces a file, and the directories that it needs.
func (r *Repo) Write(name, content string) {
	r.t.Helper()
	p := filepath.Join(r.Dir, name)
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(p, []byte(content), 0o644); err != nil {
		r.t.Fatal(err)
	}
}

// Read returns a file's content; a missing one fails the test.
func (r *Repo) Read(name string) string {
	r.t.Helper()
	b, err := os.ReadFile(filepath.Join(r.Dir, name))
	if err != nil {
		r.t.Fatal(err)
	}
	return string(b)
}

// Commit adds everything and commits it, and returns the commit's id.
func (r *Repo) Commit(message string) string {
	r.t.Helper()
	r.Git("add", "-A")
	r.Git("commit", "-q", "--allow-empty", "-m", message)
	return r.Git("rev-parse", "HEAD")
}
