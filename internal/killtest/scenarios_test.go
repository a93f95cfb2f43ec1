//go:build linux && failpoint

package killtest_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// scenario is one command that changes something, and what comes before it.
type scenario struct {
	name  string
	setup func(l *lab)
	args  []string // PLAN and FIRST stand for the plan and its first checkpoint
	real  bool     // the command may change the user's repositories
	env   []string
}

// scenarios are the commands that change something.
func scenarios() []scenario {
	return []scenario{
		{name: "create", setup: func(l *lab) { l.create("repo") },
			args: []string{"tool", "run", "PLAN", "file-write", "--input", `{"path":"new/added.txt","content":"added\n"}`}},
		{name: "tool", setup: func(l *lab) { l.create("repo"); l.write("b.txt", "b2\n") },
			args: []string{"tool", "run", "PLAN", "file-write", "--input", `{"path":"new/added.txt","content":"added\n"}`}},
		{name: "exec", setup: func(l *lab) { l.create("repo"); l.write("b.txt", "b2\n") },
			args: []string{"plan", "exec", "PLAN", "--", "sh", "-ec", commits}},
		{name: "checkpoint", setup: func(l *lab) {
			l.create("repo")
			l.write("b.txt", "b2\n")
			l.behind("a.txt", "written past the tools\n")
		},
			args: []string{"plan", "checkpoint", "create", "PLAN", "--reason", "mine"}},
		{name: "prune", env: []string{"CLEVERAGENTS_SANDBOX_CHECKPOINT_MAX_PER_PLAN=3"},
			setup: func(l *lab) {
				l.create("repo")
				for _, text := range []string{"one\n", "two\n", "three\n"} {
					l.write("b.txt", text)
				}
			},
			args: []string{"tool", "run", "PLAN", "file-write", "--input", `{"path":"b.txt","content":"four\n"}`}},
		{name: "rollback", setup: changed, args: []string{"plan", "rollback", "--yes", "PLAN", "FIRST"}},
		{name: "execute", setup: func(l *lab) { l.action() }, args: []string{"plan", "execute", "PLAN"}},
		{name: "apply", real: true,
			setup: func(l *lab) { changed(l); l.userCommits("repo", "dir/c.txt", "the user's\n") },
			args:  []string{"plan", "apply", "--yes", "PLAN"}},
		{name: "apply two", real: true, setup: two, args: []string{"plan", "apply", "--yes", "PLAN"}},
		{name: "undo", real: true,
			setup: func(l *lab) { changed(l); l.agents("plan", "apply", "--yes", l.plan) },
			args:  []string{"plan", "undo", "--yes", "PLAN"}},
		{name: "undo kept", real: true,
			setup: func(l *lab) { changed(l); l.agents("plan", "apply", "--yes", "--keep-sandbox", l.plan) },
			args:  []string{"plan", "undo", "--yes", "PLAN"}},
		{name: "undo two", real: true,
			setup: func(l *lab) { two(l); l.agents("plan", "apply", "--yes", l.plan) },
			args:  []string{"plan", "undo", "--yes", "PLAN"}},
		{name: "update",
			setup: func(l *lab) { changed(l); l.userCommits("repo", "dir/c.txt", "the user's\n") },
			args:  []string{"plan", "update", "PLAN"}},
		{name: "discard", setup: changed, args: []string{"plan", "cancel", "--yes", "--discard", "PLAN"}},
		{name: "discard two", setup: two, args: []string{"plan", "cancel", "--yes", "--discard", "PLAN"}},
		{name: "cleanup", setup: func(l *lab) { changed(l); l.agents("plan", "cancel", "--yes", l.plan) }, args: []string{"cleanup"}},
		{name: "archive restore", setup: func(l *lab) { changed(l); l.agents("plan", "cancel", "--yes", "--discard", l.plan) },
			args: []string{"cleanup", "archive", "restore", "PLAN"}},
		{name: "directory create", setup: func(l *lab) { l.directory(); l.create("plain") },
			args: []string{"tool", "run", "PLAN", "file-write", "--input", `{"path":"new/added.txt","content":"added\n"}`}},
		{name: "directory exec", setup: func(l *lab) { l.directory(); l.create("plain"); l.write("b.txt", "b2\n") },
			args: []string{"plan", "exec", "PLAN", "--", "sh", "-ec", moves}},
		{name: "directory rollback", setup: changedDirectory, args: []string{"plan", "rollback", "--yes", "PLAN", "FIRST"}},
		{name: "directory apply", real: true,
			setup: func(l *lab) {
				changedDirectory(l)
				must(l.t, os.WriteFile(l.at("plain", "dir", "theirs.txt"), []byte("the user's\n"), 0o644))
			},
			args: []string{"plan", "apply", "--yes", "PLAN"}},
		{name: "apply to both", real: true,
			setup: func(l *lab) {
				l.directory()
				l.create("repo", "plain")
				l.agents("plan", "exec", l.plan, "--resource", "repo", "--", "sh", "-ec", commits)
				l.note()
				l.agents("plan", "exec", l.plan, "--resource", "plain", "--", "sh", "-ec", moves)
				l.note()
			},
			args: []string{"plan", "apply", "--yes", "PLAN"}},
		{name: "directory discard", setup: changedDirectory, args: []string{"plan", "cancel", "--yes", "--discard", "PLAN"}},
		{name: "directory archive restore", setup: func(l *lab) { changedDirectory(l); l.agents("plan", "cancel", "--yes", "--discard", l.plan) },
			args: []string{"cleanup", "archive", "restore", "PLAN"}},
		{name: "export", real: true, setup: changed, args: []string{"plan", "export", "PLAN", "--branch", "review/it"}},
	}
}

// commits makes commits in a sandbox that have the same ids at any time, and
// nothing new when it is run again.
const commits = `export GIT_AUTHOR_DATE='1700000000 +0000' GIT_COMMITTER_DATE='1700000000 +0000'
rm -f loose.txt; mkdir -p made; echo made >made/file; rm -f dir/deep/gone.txt; chmod 755 a.txt; echo ignored >plan.log
git add -A
git diff --cached --quiet || git -c core.hooksPath=/dev/null commit -q -m 'by the plan'
echo later >>made/file; printf 'x' >made/file; echo 'not committed' >loose.txt`

// moves changes a directory in every way, and nothing more when it is run again.
const moves = `rm -f dir/deep/gone.txt; mkdir -p made; printf x >made/file; chmod 755 a.txt; ln -sfn b.txt link
[ ! -e c.txt ] || mv c.txt moved.txt; [ ! -d dir/deep ] || rmdir dir/deep; printf 'a2\n' >a.txt`

// changedDirectory has a copy with changes of every kind, and checkpoints.
func changedDirectory(l *lab) {
	l.directory()
	l.create("plain")
	l.write("new/added.txt", "added\n")
	l.agents("plan", "exec", l.plan, "--", "sh", "-ec", moves)
	l.note()
}

// changed has a sandbox with changes of every kind, and checkpoints.
func changed(l *lab) {
	l.create("repo")
	l.write("new/added.txt", "added\n")
	l.write("a.txt", "a2\nsecond line\n")
	l.agents("plan", "exec", l.plan, "--", "sh", "-ec", commits)
	l.note()
}

// two has a plan with changes in two repositories.
func two(l *lab) {
	l.repo("second")
	l.create("repo", "second")
	for _, name := range []string{"repo", "second"} {
		l.agents("plan", "exec", l.plan, "--resource", name, "--", "sh", "-ec", commits)
		l.note()
	}
	l.userCommits("second", "dir/c.txt", "the user's\n")
}

// create makes a plan on these repositories.
func (l *lab) create(repos ...string) {
	l.t.Helper()
	args := []string{"plan", "create", "--format", "json"}
	for _, name := range repos {
		args = append(args, "-r", name+"="+l.at(name))
	}
	var out struct {
		Plan struct {
			ID string `json:"plan_id"`
		} `json:"plan"`
	}
	l.agents(args...).decode(l.t, &out)
	l.plan = out.Plan.ID
}

// action makes a plan with two steps.
func (l *lab) action() {
	l.t.Helper()
	file := filepath.Join(l.base, "action.yaml")
	must(l.t, os.WriteFile(file, []byte(`name: local/two
steps:
  - {id: one, tool: builtin/file-write, with: {path: one.txt, content: "1\n"}}
  - {id: two, tool: builtin/shell, with: {command: "echo 2 >two.txt; rm b.txt"}}
`), 0o644))
	l.agents("action", "create", "--config", file)
	l.agents("resource", "add", "git-checkout", "repo", "--path", l.at("repo"))
	l.agents("project", "create", "shop")
	l.agents("project", "link-resource", "shop", "repo")
	var out struct {
		Plan struct {
			ID string `json:"plan_id"`
		} `json:"plan"`
	}
	l.agents("plan", "use", "local/two", "shop", "--format", "json").decode(l.t, &out)
	l.plan = out.Plan.ID
}

// write writes a file by the file tool.
func (l *lab) write(path, content string) {
	l.t.Helper()
	l.agents("tool", "run", l.plan, "file-write", "--input", `{"path":"`+path+`","content":"`+strings.ReplaceAll(content, "\n", `\n`)+`"}`)
	l.note()
}

// behind writes a file in the sandbox past the tools.
func (l *lab) behind(path, content string) {
	l.t.Helper()
	must(l.t, os.WriteFile(filepath.Join(l.status().Sandboxes[0].Path, path), []byte(content), 0o644))
}

// note remembers the present state as that of the checkpoint that the plan
// stands on.
func (l *lab) note() {
	l.t.Helper()
	for _, cp := range l.checkpoints() {
		if cp.Active {
			l.steps[cp.ID] = l.sandboxes(l.status())
		}
	}
}

// argv fills a scenario's command in.
func (l *lab) argv(s scenario) (out []string) {
	l.t.Helper()
	for _, a := range s.args {
		switch a {
		case "PLAN":
			a = l.plan
		case "FIRST":
			a = l.checkpoints()[0].ID
		}
		out = append(out, a)
	}
	return out
}

// prepare makes the lab of a scenario and saves it as "before".
func prepare(t *testing.T, s scenario) *lab {
	t.Helper()
	l := newLab(t)
	l.env = append(l.env, s.env...)
	s.setup(l)
	l.save("before")
	return l
}
