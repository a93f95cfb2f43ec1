//go:build linux && failpoint

package killtest_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cleveragents/agents/internal/oracle"
)

// TestUnwritable takes away the right to write, place by place, from an
// ordinary user: a command that would write fails with one error that names the
// place, before anything is changed; what only looks still answers; and once
// the right is back, all goes on.
func TestUnwritable(t *testing.T) {
	for _, c := range []struct {
		name   string
		place  []string
		fails  []string // commands, PLAN for the plan
		serves []string
	}{
		{"data directory", []string{"data"},
			[]string{"plan create -r repo=REPO", "plan exec PLAN -- sh -c CHANGE", "plan rollback --yes PLAN FIRST", "plan apply --yes PLAN", "plan cancel --yes PLAN"},
			[]string{"plan list", "plan status PLAN", "plan checkpoint list PLAN", "doctor"}},
		{"checkpoints", []string{"data", "checkpoints"},
			[]string{"plan exec PLAN -- sh -c CHANGE", "plan checkpoint create PLAN", "plan rollback --yes PLAN FIRST", "plan apply --yes PLAN"},
			[]string{"plan list", "plan status PLAN", "plan diff PLAN", "plan checkpoint list PLAN"}},
		{"private folders", []string{"data", "private"},
			[]string{"plan exec PLAN -- sh -c CHANGE", "plan apply --yes PLAN"},
			[]string{"plan list", "plan status PLAN", "plan checkpoint list PLAN"}},
		{"git directory", []string{"repo", ".git"},
			[]string{"plan apply --yes PLAN"},
			[]string{"plan list", "plan status PLAN", "plan diff PLAN", "plan exec PLAN -- true"}},
		{"repository", []string{"repo"},
			[]string{"plan apply --yes PLAN"},
			[]string{"plan status PLAN", "plan diff PLAN", "plan exec PLAN -- true"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t)
			l.ordinary()
			l.create("repo")
			l.agents("plan", "exec", l.plan, "--", "sh", "-ec", "echo v2 >a.txt")
			before := l.everything()
			writable := l.forbid(l.at(c.place...))
			for _, line := range c.fails {
				res := l.run("", l.words(line)...)
				l.oneError(res, l.at(c.place[0]))
			}
			for _, line := range c.serves {
				res := l.agents(l.words(line)...)
				if line == "doctor" && !strings.Contains(res.stdout, "cannot be written") {
					t.Errorf("doctor does not say so: %v", res)
				}
			}
			if _, err := os.Lstat(l.at("tmp", "ran")); err == nil {
				t.Error("a command ran that could not be taken back")
			}
			writable()
			if line := strings.Join(c.serves, " "); !strings.Contains(line, "exec") {
				if d := diff(before, l.everything()); d != "" {
					t.Errorf("something changed:\n%s", d)
				}
			}
			l.agents("plan", "exec", l.plan, "--", "sh", "-ec", "echo v3 >a.txt")
			l.agents("plan", "apply", "--yes", l.plan)
			if got, err := os.ReadFile(l.at("repo", "a.txt")); string(got) != "v3\n" {
				t.Errorf("after the apply a.txt is %q, %v", got, err)
			}
		})
	}
}

// ordinary gives the lab to a user whom permission bits bind.
func (l *lab) ordinary() {
	l.t.Helper()
	if os.Getuid() != 0 {
		return
	}
	l.uid = 65534
	must(l.t, os.Chmod(l.base, 0o755))
	must(l.t, filepath.WalkDir(l.base, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, l.uid, l.uid)
	}))
}

// everything is what lies in the repository and in the sandboxes.
func (l *lab) everything() string {
	l.t.Helper()
	return strings.Join(append(oracle.Digest(l.t, l.at("repo")), oracle.Digest(l.t, l.at("data", "sandboxes"))...), "\n")
}

// forbid takes the right to write from everything below a place, and returns
// what gives it back.
func (l *lab) forbid(place string) (allow func()) {
	l.t.Helper()
	was := map[string]fs.FileMode{}
	must(l.t, filepath.WalkDir(place, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == l.at("data", "sandboxes") {
			return err
		}
		fi, err := d.Info()
		if err != nil || fi.Mode()&fs.ModeSymlink != 0 {
			return err
		}
		was[path] = fi.Mode().Perm()
		return nil
	}))
	set := func(mask fs.FileMode) {
		for path, mode := range was {
			if err := os.Chmod(path, mode&^mask); err != nil && !os.IsNotExist(err) {
				l.t.Error(err)
			}
		}
	}
	set(0o222)
	l.t.Cleanup(func() { set(0) })
	return func() { set(0) }
}

// words splits a command line and fills it in.
func (l *lab) words(line string) []string {
	l.t.Helper()
	var out []string
	for word := range strings.FieldsSeq(line) {
		switch word {
		case "PLAN":
			word = l.plan
		case "FIRST":
			word = l.checkpoints()[0].ID
		case "CHANGE":
			word = "echo changed >a.txt; echo ran >" + l.at("tmp", "ran")
		}
		out = append(out, strings.ReplaceAll(word, "REPO", l.at("repo")))
	}
	return out
}
