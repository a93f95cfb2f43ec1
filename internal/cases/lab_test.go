//go:build linux

package cases_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cleveragents/agents/internal/oracle"
)

// program is the path of the program under test.
var program string

func TestMain(m *testing.M) {
	os.Exit(build(m))
}

func build(m *testing.M) int {
	if program = os.Getenv("CLEVERAGENTS_CASES_BINARY"); program != "" {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "cases")
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
	out, err := exec.Command("go", "build", "-o", program, "github.com/cleveragents/agents/cmd/agents").CombinedOutput()
	if err != nil {
		fmt.Fprintf(os.Stderr, "build: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// lab is a user's machine: a home, a data directory, and repositories. Nothing
// in it is shared with another lab, so tests run beside each other.
type lab struct {
	t   *testing.T
	dir string
	env []string
	uid int // who runs the program; 0 = whoever runs the test
}

func newLab(t *testing.T) *lab {
	t.Helper()
	t.Parallel()
	l := &lab{t: t, dir: scratch(t)}
	for _, d := range []string{"home", "tmp", "data"} {
		must(t, os.MkdirAll(l.at(d), 0o700))
	}
	l.env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + l.at("home"), "TMPDIR=" + l.at("tmp"), "LC_ALL=C", "NO_COLOR=1", "SHELL=/bin/sh",
		"GIT_CONFIG_NOSYSTEM=1", "CLEVERAGENTS_DATA_DIR=" + l.at("data"), "CLEVERAGENTS_SANDBOX_MIN_FREE=0%",
	}
	l.write("home/.gitconfig", "[user]\n\tname = Ann\n\temail = ann@example.com\n[init]\n\tdefaultBranch = main\n")
	return l
}

// scratch is a folder in memory where there is room: the program syncs all that
// it publishes, and that is not what these tests are about.
func scratch(t *testing.T) string {
	t.Helper()
	parent := "/dev/shm"
	var st syscall.Statfs_t
	if err := syscall.Statfs(parent, &st); err != nil || st.Bavail*uint64(st.Bsize) < 1<<30 {
		parent = ""
	}
	dir, err := os.MkdirTemp(parent, "cases")
	must(t, err)
	must(t, os.Chmod(dir, 0o755))
	t.Cleanup(func() {
		out, err := exec.Command("sh", "-c", `chmod -R u+rwX "$1" 2>/dev/null; rm -rf "$1"`, "sh", dir).CombinedOutput()
		if err != nil {
			t.Errorf("remove %s: %v\n%s", dir, err, out)
		}
	})
	return dir
}

func (l *lab) at(parts ...string) string {
	return filepath.Join(append([]string{l.dir}, parts...)...)
}

func (l *lab) write(name, content string) {
	l.t.Helper()
	must(l.t, os.MkdirAll(filepath.Dir(l.at(name)), 0o755))
	must(l.t, os.WriteFile(l.at(name), []byte(content), 0o644))
}

// set changes a variable of the program's environment.
func (l *lab) set(name, value string) {
	l.env = append(slices.DeleteFunc(l.env, func(kv string) bool { return strings.HasPrefix(kv, name+"=") }), name+"="+value)
}

// mkrepo makes a repository with a.txt = v1 on main, and more files, given as
// name and content in turn.
func (l *lab) mkrepo(name string, files ...string) *oracle.Repo {
	l.t.Helper()
	r := oracle.EmptyRepo(l.t, l.at(name))
	r.Write("a.txt", "v1\n")
	for i := 0; i < len(files); i += 2 {
		r.Write(files[i], files[i+1])
	}
	r.Commit("init")
	return r
}

// result is what a run of the program came to.
type result struct {
	args           []string
	code           int // -1 = killed
	stdout, stderr string
	doc            map[string]any // its JSON document
}

func (r result) String() string {
	doc := r.stdout
	if b, err := json.Marshal(r.doc); err == nil && r.doc != nil {
		doc = string(b) + "\n"
	}
	return fmt.Sprintf("agents %s: exit %d\n%s%s", strings.Join(r.args, " "), r.code, doc, r.stderr)
}

// command is a run of the program that is not started yet, with --format json.
func (l *lab) command(args ...string) *exec.Cmd {
	cmd := exec.Command(program, append([]string{"--format", "json"}, args...)...)
	cmd.Dir, cmd.Env = l.at("home"), slices.Clone(l.env)
	if l.uid != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(l.uid), Gid: uint32(l.uid)}}
	}
	return cmd
}

// run runs the program to its end. Whatever it ends with, standard output must
// be one JSON document that tells the exit code (B118).
func (l *lab) run(args ...string) result {
	l.t.Helper()
	return l.finish(l.command(args...), args)
}

func (l *lab) finish(cmd *exec.Cmd, args []string) result {
	l.t.Helper()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		l.t.Fatal(err)
	}
	r := result{args: args, code: cmd.ProcessState.ExitCode(), stdout: out.String(), stderr: errs.String()}
	if r.code >= 0 {
		r.doc = document(l.t, r)
	}
	return r
}

func document(t *testing.T, r result) (doc map[string]any) {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(r.stdout))
	if err := dec.Decode(&doc); err != nil {
		t.Fatalf("no JSON on standard output: %v: %v", err, r)
	}
	if err := dec.Decode(new(any)); !errors.Is(err, io.EOF) {
		t.Errorf("more than one document on standard output: %v", r)
	}
	for _, key := range []string{"command", "status", "exit_code", "timing", "messages"} {
		if _, ok := doc[key]; !ok {
			t.Errorf("the document has no %s: %v", key, r)
		}
	}
	if got := fmt.Sprint(doc["exit_code"]); got != strconv.Itoa(r.code) {
		t.Errorf("exit_code %s in the document, exit code %d: %v", got, r.code, r)
	}
	return doc
}

// ok runs the program; it must exit with 0.
func (l *lab) ok(args ...string) result {
	l.t.Helper()
	return l.exits(0, args...)
}

// exits runs the program; it must exit with code.
func (l *lab) exits(code int, args ...string) result {
	l.t.Helper()
	r := l.run(args...)
	if r.code != code {
		l.t.Fatalf("exit code %d, want %d: %v", r.code, code, r)
	}
	return r
}

// get finds a.b.0.c in the document; what is not there is nil.
func (r result) get(path string) any {
	var v any = r.doc
	for part := range strings.SplitSeq(path, ".") {
		switch at := v.(type) {
		case map[string]any:
			v = at[part]
		case []any:
			i, err := strconv.Atoi(part)
			if err != nil || i >= len(at) {
				return nil
			}
			v = at[i]
		default:
			return nil
		}
	}
	return v
}

// text is get as text; null and what is not there is "".
func (r result) text(path string) string {
	switch v := r.get(path).(type) {
	case nil:
		return ""
	case string:
		return v
	default:
		b, _ := json.Marshal(v)
		return string(b)
	}
}

// list is one key of every object of a list, or the list's own texts.
func (r result) list(path, key string) (out []string) {
	items, _ := r.get(path).([]any)
	for _, item := range items {
		if key == "" {
			out = append(out, fmt.Sprint(item))
		} else if m, ok := item.(map[string]any); ok {
			out = append(out, fmt.Sprint(m[key]))
		}
	}
	return out
}

// is fails the test where a value of the document is not want.
func (r result) is(t *testing.T, path, want string) {
	t.Helper()
	if got := r.text(path); got != want {
		t.Errorf("%s is %q, want %q: %v", path, got, want, r)
	}
}

// says fails the test where neither output has every one of the words.
func (r result) says(t *testing.T, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(r.stdout+r.stderr, w) {
			t.Errorf("nothing said of %q: %v", w, r)
		}
	}
}

// plan is a plan on repositories of the lab.
type plan struct {
	*lab
	id string
}

// newPlan makes a plan on repositories.
func (l *lab) newPlan(repos ...*oracle.Repo) *plan {
	l.t.Helper()
	args := []string{"plan", "create"}
	for _, r := range repos {
		args = append(args, "-r", r.Dir)
	}
	return &plan{l, l.ok(args...).text("plan.plan_id")}
}

// call is a tool call that succeeded, with the checkpoints around it.
type call struct {
	result
	before, after string
}

func (r result) call() call {
	return call{r, r.text("tool.before_checkpoint_id"), r.text("tool.after_checkpoint_id")}
}

// sh runs a shell line as a step; it must succeed.
func (p *plan) sh(script string) call {
	p.t.Helper()
	return p.ok("plan", "exec", p.id, "--", "sh", "-ec", script).call()
}

// write runs file-write as a step.
func (p *plan) write(name, content string) call {
	p.t.Helper()
	return p.ok(p.tool("file-write", map[string]any{"path": name, "content": content})...).call()
}

// tool are the arguments of a tool's call.
func (p *plan) tool(name string, input map[string]any) []string {
	p.t.Helper()
	b, err := json.Marshal(input)
	must(p.t, err)
	return []string{"tool", "run", p.id, name, "--input", string(b)}
}

// rollback takes the plan back; it must succeed, and the sandboxes must be what want says.
func (p *plan) rollback(checkpoint string, want state) result {
	p.t.Helper()
	r := p.ok("plan", "rollback", "--yes", p.id, checkpoint)
	p.holds("after the rollback", want)
	return r
}

func (p *plan) apply(flags ...string) []string {
	return append([]string{"plan", "apply", "--yes", p.id}, flags...)
}

func (p *plan) status() result {
	p.t.Helper()
	return p.run("plan", "status", p.id)
}

func (p *plan) checkpoints() []string {
	p.t.Helper()
	return p.ok("plan", "checkpoint", "list", p.id).list("checkpoints", "checkpoint_id")
}

// box is the directory of the plan's i-th sandbox.
func (p *plan) box(i int) string {
	p.t.Helper()
	st := p.status()
	path := st.text(fmt.Sprintf("sandboxes.%d.path", i))
	if path == "" {
		p.t.Fatalf("no sandbox %d: %v", i, st)
	}
	return path
}

// state is what is in directories, to the last byte, and what git tells of them.
type state []string

// state is what is in the plan's sandboxes.
func (p *plan) state() (out state) {
	p.t.Helper()
	for _, path := range p.status().list("sandboxes", "path") {
		if _, err := os.Lstat(path); err != nil {
			out = append(out, "missing: "+path)
			continue
		}
		out = append(out, oracle.Digest(p.t, path)...)
		for _, q := range [][]string{{"rev-parse", "HEAD"}, {"symbolic-ref", "-q", "HEAD"}, {"for-each-ref"}, {"ls-files", "--stage"}, {"stash", "list"}} {
			out = append(out, p.git(path, q...))
		}
	}
	slices.Sort(out)
	return out
}

// holds fails the test where the sandboxes are not what want says.
func (p *plan) holds(what string, want state) {
	p.t.Helper()
	if d := oracle.Diff(want, p.state()); d != "" {
		p.t.Errorf("%s the sandboxes are not as they were (- before, + now):\n%s", what, d)
	}
}

// git asks git, as the user, without touching anything.
func (l *lab) git(dir string, args ...string) string {
	cmd := exec.Command("git", append([]string{"--no-optional-locks"}, args...)...)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + l.at("home"), "LC_ALL=C", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*"}
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Sprintf("git %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSuffix(string(out), "\n")
}

// real is the real side of plans: directories that nothing but a successful
// apply may change.
type real struct {
	l    *lab
	dirs []string
	was  []state
	objs []state
}

// watch remembers what directories hold now, to the last byte.
func (l *lab) watch(dirs ...string) *real {
	l.t.Helper()
	w := &real{l: l, dirs: dirs}
	for _, d := range dirs {
		w.was = append(w.was, l.real(d))
		w.objs = append(w.objs, l.objects(d))
	}
	return w
}

// real is everything in a directory but what a plan may leave there until it
// is over: its branch, its worktree's entry, and objects that were added.
func (l *lab) real(dir string) state {
	l.t.Helper()
	skip := append(oracle.Placeholder(), ".git/objects", ".git/worktrees", ".git/logs/refs/heads/cleveragents")
	out := state(oracle.Digest(l.t, dir, skip...))
	for _, e := range glob(l.t, dir, ".git/worktrees/*") {
		if !strings.HasPrefix(e, ".git/worktrees/ca-sandbox-") {
			for _, line := range oracle.Digest(l.t, filepath.Join(dir, e)) {
				out = append(out, e+": "+line)
			}
		}
	}
	slices.Sort(out)
	return out
}

func (l *lab) objects(dir string) (out state) {
	l.t.Helper()
	objects := filepath.Join(dir, ".git", "objects")
	if _, err := os.Stat(objects); err == nil {
		out = oracle.Digest(l.t, objects)
	}
	return out
}

// same fails the test where anything was changed since.
func (w *real) same(after string) {
	w.l.t.Helper()
	for i, d := range w.dirs {
		if diff := oracle.Diff(w.was[i], w.l.real(d)); diff != "" {
			w.l.t.Errorf("after %s %s is not what it was (- before, + now):\n%s", after, d, diff)
		}
		now := w.l.objects(d)
		for _, o := range w.objs[i] {
			if !slices.Contains(now, o) {
				w.l.t.Errorf("after %s %s has no %s any more", after, d, o)
			}
		}
	}
}

// clean fails the test where anything of a plan is left in a repository but
// objects: branches, worktrees, locks, temporary files.
func (l *lab) clean(r *oracle.Repo) {
	l.t.Helper()
	left := strings.Fields(l.git(r.Dir, "for-each-ref", "--format=%(refname)", "refs/heads/cleveragents", "refs/cleveragents"))
	for _, pattern := range []string{".git/worktrees/*", ".git/*.lock", ".git/refs/heads/*.lock", ".git/refs/heads/cleveragents", ".git/logs/refs/heads/cleveragents",
		".git/MERGE_*", ".git/objects/pack/tmp_*", ".git/objects/??/tmp_obj_*", ".git/objects/tmp_*", ".git/objects/incoming-*", ".agents-*", "*/.agents-*"} {
		left = append(left, glob(l.t, r.Dir, pattern)...)
	}
	if len(left) > 0 {
		l.t.Errorf("left in %s: %v", r.Dir, left)
	}
	if out, err := r.Try("fsck", "--full", "--strict", "--no-dangling"); err != nil {
		l.t.Errorf("fsck of %s: %v\n%s", r.Dir, err, out)
	}
}

// cleanData fails the test where the data directory holds anything of a plan
// that is over: only rows, locks, archives, and of applied plans what an undo
// needs may stay.
func (l *lab) cleanData(applied ...*plan) {
	l.t.Helper()
	var left []string
	for _, pattern := range []string{"data/sandboxes/*", "data/private/*", "data/journal/*/*", "data/checkpoints/0*", "data/checkpoints/trash/*", "data/archive/*.new", "data/archive/*.old", "tmp/*"} {
		left = append(left, glob(l.t, l.dir, pattern)...)
	}
	left = slices.DeleteFunc(left, func(path string) bool {
		return !strings.HasPrefix(path, "data/sandboxes/") && slices.ContainsFunc(applied, func(p *plan) bool { return strings.Contains(path, p.id) })
	})
	if len(left) > 0 {
		l.t.Errorf("left over: %v", left)
	}
}

func glob(t *testing.T, dir, pattern string) (out []string) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, pattern))
	must(t, err)
	for _, f := range found {
		rel, err := filepath.Rel(dir, f)
		must(t, err)
		out = append(out, rel)
	}
	return out
}

// until waits for something that another process does.
func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(60 * time.Second); !done(); {
		if time.Now().After(deadline) {
			t.Fatalf("%s did not come about", what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	must(t, err)
	return string(b)
}

func equal(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s is %q, want %q", what, got, want)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
