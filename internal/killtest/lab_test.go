//go:build linux && failpoint

package killtest_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"syscall"
	"testing"

	"github.com/cleveragents/agents/internal/oracle"
)

// program is the path of the program under test, built with failpoints.
var program string

func TestMain(m *testing.M) {
	os.Exit(build(m))
}

func build(m *testing.M) int {
	if program = os.Getenv("CLEVERAGENTS_KILLTEST_BINARY"); program != "" {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "killtest")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	program = filepath.Join(dir, "agents")
	out, err := exec.Command("go", "build", "-tags", "failpoint", "-o", program, "github.com/cleveragents/agents/cmd/agents").CombinedOutput()
	if err != nil {
		fmt.Fprintf(os.Stderr, "build: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// scratch is a folder for a lab: in memory where there is room, since every
// point of a loop fills and empties it.
func scratch(t *testing.T) string {
	t.Helper()
	var st syscall.Statfs_t
	if err := syscall.Statfs("/dev/shm", &st); err != nil || st.Bavail*uint64(st.Bsize) < 1<<30 {
		return t.TempDir()
	}
	dir, err := os.MkdirTemp("/dev/shm", "killtest")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// lab is a machine of its own: the user's repositories, and a data directory.
// Everything lies below dir, so that a copy of it can be put back.
type lab struct {
	t     *testing.T
	base  string // holds live, and saved copies of it
	dir   string // base/live: repo, second, linked, data, home, tmp
	env   []string
	uid   int // who runs the program; 0 = whoever runs the tests
	plan  string
	steps map[string]state // the states of the checkpoints that are known
}

func newLab(t *testing.T) *lab {
	t.Helper()
	base := scratch(t)
	l := &lab{t: t, base: base, dir: filepath.Join(base, "live"), steps: map[string]state{}}
	for _, d := range []string{"home", "tmp", "data"} {
		must(t, os.MkdirAll(l.at(d), 0o700))
	}
	l.env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + l.at("home"), "TMPDIR=" + l.at("tmp"), "LC_ALL=C", "NO_COLOR=1",
		"GIT_CONFIG_NOSYSTEM=1", "CLEVERAGENTS_DATA_DIR=" + l.at("data"), "CLEVERAGENTS_SANDBOX_MIN_FREE=0%",
	}
	l.repo("repo")
	return l
}

func (l *lab) at(parts ...string) string {
	return filepath.Join(append([]string{l.dir}, parts...)...)
}

// repo makes a repository in the middle of its user's work: changes staged and
// not, files untracked and ignored, a stash, a second branch, a linked
// worktree with changes, and hooks that tell when they run.
func (l *lab) repo(name string) {
	r := oracle.EmptyRepo(l.t, l.at(name))
	r.Write("a.txt", "a1\nsecond line\n")
	r.Write("b.txt", "b1\n")
	r.Write("dir/c.txt", "c1\n")
	r.Write("dir/deep/gone.txt", "to be deleted\n")
	r.Write("staged.txt", "s1\n")
	r.Write("edited.txt", "e1\n")
	r.Write("run.sh", "#!/bin/sh\n")
	r.Write(".gitignore", "ignored/\n*.log\n")
	r.Sh("chmod 755 run.sh; ln -s a.txt link; printf '\\0\\1\\2binary' >bin.dat")
	r.Commit("first")
	r.Write("dir/c.txt", "c2\n")
	r.Commit("second")
	r.Git("branch", "other")
	r.Git("worktree", "add", "-q", "-b", "linked", "../"+name+"-linked")
	r.Sh("cd ../" + name + "-linked && echo changed >a.txt && echo new >n.txt && git add n.txt")
	r.Sh("echo stashed >a.txt && git stash -q")
	r.Write("staged.txt", "s2\n")
	r.Write("added.txt", "new and staged\n")
	r.Git("add", "staged.txt", "added.txt")
	r.Write("edited.txt", "e2\n")
	r.Write("untracked.txt", "untracked\n")
	r.Write("ignored/secret.env", "KEY=1\n")
	r.Write("build.log", "log\n")
	r.Git("config", "user.name", "The User")
	r.Git("config", "user.email", "user@example.com")
	for _, hook := range strings.Fields("pre-commit prepare-commit-msg commit-msg post-commit pre-merge-commit post-checkout post-merge reference-transaction post-index-change post-rewrite pre-auto-gc") {
		r.Write(".git/hooks/"+hook, "#!/bin/sh\necho "+hook+" >>"+l.at("hook-ran")+"\n")
		r.Sh("chmod 755 .git/hooks/" + hook)
	}
}

// directory makes a directory that is no repository.
func (l *lab) directory() {
	l.t.Helper()
	dir := l.at("plain")
	for name, text := range map[string]string{"a.txt": "a1\n", "b.txt": "b1\n", "c.txt": "c1\n", "dir/deep/gone.txt": "to be deleted\n", "node_modules/m": "m\n"} {
		must(l.t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		must(l.t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	must(l.t, os.Symlink("a.txt", filepath.Join(dir, "link")))
	must(l.t, os.Link(filepath.Join(dir, "b.txt"), filepath.Join(dir, "hard.txt")))
}

// userCommits lets the user commit something while the plan runs, past hooks.
func (l *lab) userCommits(repo, file, content string) {
	r := oracle.At(l.t, l.at(repo))
	r.Write(file, content)
	r.Git("-c", "core.hooksPath=/dev/null", "commit", "-q", "-m", "the user's own", "--only", "--", file)
}

// save keeps the present state under a name; load puts it back, to the same place.
func (l *lab) save(name string) {
	l.t.Helper()
	l.copy(l.dir, filepath.Join(l.base, name))
}

func (l *lab) load(name string) {
	l.t.Helper()
	must(l.t, removeAll(l.dir))
	l.copy(filepath.Join(l.base, name), l.dir)
}

func (l *lab) copy(from, to string) {
	l.t.Helper()
	out, err := exec.Command("cp", "-a", from, to).CombinedOutput()
	if err != nil {
		l.t.Fatalf("copy: %v\n%s", err, out)
	}
}

// removeAll removes a tree with folders that forbid it.
func removeAll(dir string) error {
	if err := os.RemoveAll(dir); err == nil {
		return nil
	}
	out, err := exec.Command("sh", "-c", `chmod -R u+rwX "$1"; rm -rf "$1"`, "sh", dir).CombinedOutput()
	if err != nil {
		return fmt.Errorf("remove %s: %w\n%s", dir, err, out)
	}
	return nil
}

// result is what a run of the program came to.
type result struct {
	args           []string
	code           int // -1 = killed
	stdout, stderr string
	hits           []string // the failpoints that it passed, as logged
}

func (r result) String() string {
	return fmt.Sprintf("agents %s: exit %d\n%s%s", strings.Join(r.args, " "), r.code, r.stdout, r.stderr)
}

// decode reads the result's JSON document.
func (r result) decode(t *testing.T, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(r.stdout), into); err != nil {
		t.Fatalf("%v: %v", err, r)
	}
}

// run runs the program; point is what CLEVERAGENTS_FAILPOINT gets.
func (l *lab) run(point string, args ...string) result {
	l.t.Helper()
	log := filepath.Join(l.base, "hits")
	must(l.t, os.RemoveAll(log))
	cmd := exec.Command(program, args...)
	cmd.Dir = l.at("home")
	cmd.Env = append(slices.Clone(l.env), "CLEVERAGENTS_FAILPOINT_LOG="+log)
	if point != "" {
		cmd.Env = append(cmd.Env, "CLEVERAGENTS_FAILPOINT="+point)
	}
	if l.uid != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(l.uid), Gid: uint32(l.uid)}}
	}
	res := l.finish(cmd, args)
	hits, err := os.ReadFile(log)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		l.t.Fatal(err)
	}
	res.hits = strings.Split(strings.TrimSuffix(string(hits), "\n"), "\n")
	if len(hits) == 0 {
		res.hits = nil
	}
	return res
}

func (l *lab) finish(cmd *exec.Cmd, args []string) result {
	l.t.Helper()
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		l.t.Fatal(err)
	}
	return result{args: args, code: cmd.ProcessState.ExitCode(), stdout: out.String(), stderr: errs.String()}
}

// agents runs the program without a fault; it must exit with 0.
func (l *lab) agents(args ...string) result {
	l.t.Helper()
	res := l.run("", args...)
	if res.code != 0 {
		l.t.Fatalf("%v", res)
	}
	return res
}

// sweep runs a command that first ends what a killed one left, and changes
// nothing of the plan itself.
func (l *lab) sweep() {
	l.t.Helper()
	res := l.run("", "project", "delete", "--yes", "no-such-project")
	if res.code != 3 {
		l.t.Errorf("the command that sweeps: %v", res)
	}
	if strings.Contains(res.stderr, "could not be ended") {
		l.t.Errorf("the sweep failed: %s", res.stderr)
	}
}

// git runs git as the user, without touching anything.
func (l *lab) git(dir string, args ...string) string {
	cmd := exec.Command("git", append([]string{"--no-optional-locks"}, args...)...)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + l.at("home"), "LC_ALL=C", "GIT_CONFIG_NOSYSTEM=1"}
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Sprintf("git %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// status is what plan status tells.
type status struct {
	Plan struct {
		Phase string `json:"phase"`
		State string `json:"state"`
	} `json:"plan"`
	Sandboxes []struct {
		Resource string `json:"resource"`
		Status   string `json:"status"`
		Path     string `json:"path"`
	} `json:"sandboxes"`
}

func (s status) position() string { return s.Plan.Phase + "/" + s.Plan.State }

func (l *lab) status() (out status) {
	l.t.Helper()
	res := l.run("", "plan", "status", l.plan, "--format", "json")
	if res.code != 0 && res.code != 1 {
		l.t.Fatalf("%v", res)
	}
	res.decode(l.t, &out)
	return out
}

type checkpoint struct {
	ID       string `json:"checkpoint_id"`
	Active   bool   `json:"active"`
	Metadata struct {
		Reason string `json:"reason"`
	} `json:"metadata"`
}

func (l *lab) checkpoints() []checkpoint {
	l.t.Helper()
	var out struct {
		Checkpoints []checkpoint `json:"checkpoints"`
	}
	l.agents("plan", "checkpoint", "list", l.plan, "--format", "json").decode(l.t, &out)
	return out.Checkpoints
}

// state is what is in sandboxes, or in the user's repositories: to the byte,
// and with what depends on the time of day left out.
type state struct {
	exact, meaning string
	parts          []string // of sandboxes: the meaning of each
}

// sandboxes is the state of the plan's sandboxes.
func (l *lab) sandboxes(st status) (out state) {
	l.t.Helper()
	for _, box := range st.Sandboxes {
		if box.Status == "CLEANED_UP" || box.Status == "PENDING" {
			continue
		}
		one := l.sandbox(box.Path)
		out.exact += box.Resource + ":\n" + one.exact
		out.meaning += box.Resource + ":\n" + one.meaning
		out.parts = append(out.parts, box.Resource+":\n"+one.meaning)
	}
	return out
}

func (l *lab) sandbox(dir string) (out state) {
	l.t.Helper()
	if _, err := os.Lstat(dir); err != nil {
		return state{exact: "missing", meaning: "missing"}
	}
	files := strings.Join(oracle.Digest(l.t, dir, ".git"), "\n") + "\n" + l.git(dir, "ls-files", "--stage") + l.git(dir, "symbolic-ref", "-q", "HEAD") + l.git(dir, "stash", "list", "--format=%gs")
	out.exact = files + l.git(dir, "rev-parse", "HEAD") + l.git(dir, "for-each-ref")
	out.meaning = files + l.git(dir, "rev-parse", "HEAD^{tree}")
	return out
}

// user is the state of everything that is the user's: all but our branches,
// our worktree entries, and objects that were added.
func (l *lab) user() (out state) {
	l.t.Helper()
	for _, name := range l.trees() {
		dir := l.at(name)
		out.exact += name + ":\n" + strings.Join(oracle.Digest(l.t, dir, append(oracle.Placeholder(), ".git/objects/*", ".git/logs/refs/heads/cleveragents")...), "\n") + "\n"
		out.meaning += name + ":\n" + strings.Join(oracle.Digest(l.t, dir, ".git"), "\n") + "\n" +
			l.git(dir, "ls-files", "--stage") + l.git(dir, "status", "--porcelain") + l.git(dir, "symbolic-ref", "HEAD") +
			l.git(dir, "log", "--format=%T %an %s", "HEAD") + l.git(dir, "stash", "list", "--format=%T %gs") +
			l.refs(dir) + l.git(dir, "config", "--local", "--list")
	}
	if b, err := os.ReadFile(l.at("hook-ran")); err == nil {
		out.exact += "hooks ran: " + string(b)
		out.meaning += "hooks ran: " + string(b)
	}
	return out
}

// refs are the user's refs with the trees that they lead to.
func (l *lab) refs(dir string) (out string) {
	for line := range strings.Lines(l.git(dir, "for-each-ref", "--format=%(refname) %(tree)")) {
		if !strings.HasPrefix(line, "refs/heads/cleveragents/") {
			out += line
		}
	}
	return out
}

// trees are the user's working trees.
func (l *lab) trees() (out []string) {
	for _, name := range []string{"repo", "repo-linked", "second", "second-linked", "plain"} {
		if _, err := os.Lstat(l.at(name)); err == nil {
			out = append(out, name)
		}
	}
	return out
}

// objects lists the files of the user's object stores.
func (l *lab) objects() (out []string) {
	l.t.Helper()
	for _, name := range []string{"repo", "second"} {
		dir := l.at(name, ".git", "objects")
		if _, err := os.Lstat(dir); err != nil {
			continue
		}
		must(l.t, filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				out = append(out, p)
			}
			return err
		}))
	}
	return out
}

// leftovers lists what is still there of plans that are over.
func (l *lab) leftovers(archive bool) (out []string) {
	l.t.Helper()
	for _, name := range []string{"repo", "second"} {
		dir := l.at(name)
		if _, err := os.Lstat(dir); err != nil {
			continue
		}
		for _, ref := range strings.Fields(l.git(dir, "for-each-ref", "--format=%(refname)", "refs/heads/cleveragents", "refs/cleveragents")) {
			out = append(out, name+": "+ref)
		}
		for _, pattern := range []string{".git/worktrees/ca-sandbox-*", ".git/*.lock", ".git/refs/heads/*.lock", ".git/logs/refs/heads/cleveragents", ".git/objects/pack/tmp_*", ".git/objects/??/tmp_obj_*", ".git/objects/tmp_*", ".git/objects/incoming-*", ".agents-*", "*/.agents-*"} {
			out = append(out, l.glob(name, pattern)...)
		}
	}
	out = append(out, l.glob("plain", ".*")...)
	out = append(out, l.glob("", ".cleveragents*")...)
	for _, pattern := range []string{"data/sandboxes/*", "data/private/*", "data/journal/*/*", "data/checkpoints/trash/*", "data/checkpoints/0*", "data/archive/*.new", "data/archive/*.old", "tmp/*", "home/*"} {
		out = append(out, l.glob("", pattern)...)
	}
	if !archive {
		out = append(out, l.glob("data/archive", "*")...)
	}
	return out
}

func (l *lab) glob(dir, pattern string) (out []string) {
	found, err := filepath.Glob(l.at(dir, pattern))
	must(l.t, err)
	for _, f := range found {
		rel, err := filepath.Rel(l.dir, f)
		must(l.t, err)
		out = append(out, rel)
	}
	return out
}

// lockFiles lists the lock files of git that are left in the user's repositories.
func (l *lab) lockFiles() (out []string) {
	for _, name := range l.trees() {
		out = append(out, l.glob(name, ".git/*.lock")...)
		out = append(out, l.glob(name, ".git/refs/heads/*.lock")...)
		out = append(out, l.glob(name, ".git/worktrees/*/*.lock")...)
	}
	return out
}

// diff tells the lines in which two texts differ.
func diff(want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	sort.Strings(w)
	sort.Strings(g)
	return oracle.Diff(w, g)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
