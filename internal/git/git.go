// Package git is the only package that runs git.
//
// A call is an argument list, never a shell line. It sees none of the caller's
// GIT_* variables, and names its repository, work tree, index and object
// directories itself. It runs no hook, file system monitor, external diff,
// text conversion, signing program, pager, editor, automatic maintenance or
// credential prompt; filters and merge drivers run only where a caller uses a
// command that needs them, with the configuration of the git directory that
// the caller names. Answers come in machine formats, separated by NUL.
//
// A call ends when its context ends, or when git and what it started used
// neither processor nor disk for Runner.Idle; the whole process group is
// killed then. Calls pass the failpoints git.read and git.write.
package git

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/failpoint"
)

// Runner starts git. One may be used from several goroutines and for any
// number of repositories; its fields are not changed after the first call.
type Runner struct {
	Program string        // the git program; "" = "git" on PATH
	Idle    time.Duration // give up after no progress for that long; 0 = 30 s
	Env     []string      // the environment; nil = the process's own

	like    *Runner // whose probe counts for this one too; nil = its own
	probe   sync.Once
	version [2]int
	err     error
}

// WithIdle returns a runner like g with another time limit, which shares what
// g knows of the program; 0 keeps g's limit.
func (g *Runner) WithIdle(idle time.Duration) *Runner {
	if idle <= 0 {
		idle = g.Idle
	}
	return &Runner{Program: g.Program, Idle: idle, Env: g.Env, like: g}
}

// Repo says which repository, work tree, index and object store calls use. It
// is plain data: copy it and change a field to look at the same repository
// with another index. Empty fields are left to git.
type Repo struct {
	Git        *Runner
	Dir        string   // working directory of the calls; "" = GitDir, so that nothing depends on the process's own
	GitDir     string   // "" = git searches from Dir
	CommonDir  string   // "" = what GitDir says
	WorkTree   string   // "" = what GitDir says
	IndexFile  string   // "" = the repository's own
	ObjectDir  string   // where new objects go; "" = the repository's own
	Alternates []string // further places to read objects from
	Config     []string // "key=value" of these calls alone, after the package's own
	Env        []string // further variables, "NAME=value"
}

// Call is one run of git.
type Call struct {
	Args   []string  // subcommand, options, then "--" or "--end-of-options" before what a user named
	Stdin  io.Reader // nil = empty
	Stdout io.Writer // nil = collected in the Result
	Writes bool      // changes something outside the process: failpoint git.write instead of git.read
	OK     []int     // exit codes other than 0 that are an answer, not a failure
	Finish bool      // a short call that holds a lock of the user's repository: once begun it runs to its end, whether the context ends or this program
}

// Result is what a call that did not fail said.
type Result struct {
	Stdout   []byte // empty where Call.Stdout was set
	Stderr   string
	ExitCode int
}

// Error is a git call that failed. Its message begins with the first line
// that git itself said.
type Error struct {
	Args     []string
	ExitCode int // -1 = killed
	Stderr   string
	Err      error // why it was killed or could not be started; nil when git itself gave up
}

// Error begins with git's own first line of complaint.
func (e *Error) Error() string {
	name := ""
	if len(e.Args) > 0 {
		name = " " + e.Args[0]
	}
	said := firstLine(e.Stderr)
	switch {
	case e.Err != nil && said != "":
		return fmt.Sprintf("%s (git%s: %v)", said, name, e.Err)
	case e.Err != nil:
		return fmt.Sprintf("git%s: %v", name, e.Err)
	case said != "":
		return fmt.Sprintf("%s (git%s, exit %d)", said, name, e.ExitCode)
	}
	return fmt.Sprintf("git%s: exit %d", name, e.ExitCode)
}

// Unwrap returns why git was killed or not started, if it was.
func (e *Error) Unwrap() error { return e.Err }

// ErrIdle is the cause in an Error of a call that made no progress for Runner.Idle.
var ErrIdle = errors.New("no progress")

// firstLine returns the line of s that says what went wrong: the first that
// git marks as fatal or error, else the first that is not empty.
func firstLine(s string) string {
	first := ""
	for line := range strings.Lines(s) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "fatal: ") || strings.HasPrefix(line, "error: ") {
			return line
		}
		if first == "" && !strings.HasPrefix(line, "warning: ") && !strings.HasPrefix(line, "hint: ") {
			first = line
		}
	}
	return first
}

// Do runs one call. A failure is an *Error; a git that is missing or too old
// is agents.ErrUnsupported.
func (r Repo) Do(ctx context.Context, c Call) (Result, error) {
	if len(c.Args) == 0 {
		return Result{}, fmt.Errorf("git: no command: %w", agents.ErrInvalid)
	}
	if err := r.runner().check(ctx); err != nil {
		return Result{}, err
	}
	if err := failpoint.Hit(c.op(), strings.Join(c.Args, " ")); err != nil {
		return Result{}, err
	}
	return r.run(ctx, c)
}

func (c Call) op() string {
	if c.Writes {
		return "git.write"
	}
	return "git.read"
}

// Read runs a call that changes nothing and returns what it printed.
func (r Repo) Read(ctx context.Context, args ...string) ([]byte, error) {
	res, err := r.Do(ctx, Call{Args: args})
	return res.Stdout, err
}

// ReadLine is Read for an answer of one line, without its line end.
func (r Repo) ReadLine(ctx context.Context, args ...string) (string, error) {
	out, err := r.Read(ctx, args...)
	return strings.TrimSuffix(string(out), "\n"), err
}

// Write runs a call that changes something and returns what it printed.
func (r Repo) Write(ctx context.Context, args ...string) ([]byte, error) {
	res, err := r.Do(ctx, Call{Args: args, Writes: true})
	return res.Stdout, err
}

// WriteLine is Write for an answer of one line, without its line end.
func (r Repo) WriteLine(ctx context.Context, args ...string) (string, error) {
	out, err := r.Write(ctx, args...)
	return strings.TrimSuffix(string(out), "\n"), err
}

// Feed is Write with input.
func (r Repo) Feed(ctx context.Context, stdin io.Reader, args ...string) ([]byte, error) {
	res, err := r.Do(ctx, Call{Args: args, Stdin: stdin, Writes: true})
	return res.Stdout, err
}

// Ask is Read with input.
func (r Repo) Ask(ctx context.Context, stdin io.Reader, args ...string) ([]byte, error) {
	res, err := r.Do(ctx, Call{Args: args, Stdin: stdin})
	return res.Stdout, err
}

// Fields splits a machine answer at its NULs; a NUL at the end ends the last field.
func Fields(out []byte) []string {
	if len(out) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
}

// NulList joins names into input for commands that take -z --stdin.
func NulList(names []string) io.Reader {
	var b bytes.Buffer
	for _, n := range names {
		b.WriteString(n)
		b.WriteByte(0)
	}
	return &b
}

// neutral are the settings that keep git from running anything of its own
// accord, from asking, and from tidying up in the background.
func neutral() []string {
	return []string{
		"core.hooksPath=" + os.DevNull,
		"core.fsmonitor=false",
		"core.pager=cat",
		"core.editor=true",
		"core.askPass=",
		"credential.interactive=never",
		"commit.gpgSign=false",
		"tag.gpgSign=false",
		"merge.verifySignatures=false",
		"log.showSignature=false",
		"submodule.recurse=false",
		"fetch.recurseSubmodules=false",
		"push.recurseSubmodules=no",
		"gc.auto=0",
		"maintenance.auto=false",
		"rerere.enabled=false",
		"color.ui=false",
		"core.quotePath=false",
		"core.splitIndex=false",
		"diff.ignoreSubmodules=none",
		"status.showUntrackedFiles=all",
		"advice.detachedHead=false",
	}
}

// environment is the caller's without its GIT_* variables, then the place of
// this Repo.
func (r Repo) environment() []string {
	base := r.runner().Env
	if base == nil {
		base = os.Environ()
	}
	env := make([]string, 0, len(base)+16)
	for _, kv := range base {
		name, _, _ := strings.Cut(kv, "=")
		if strings.HasPrefix(name, "GIT_") || name == "LC_ALL" || name == "LANGUAGE" || name == "SSH_ASKPASS" {
			continue
		}
		env = append(env, kv)
	}
	env = append(env, "GIT_OPTIONAL_LOCKS=0", "GIT_TERMINAL_PROMPT=0", "GIT_PAGER=cat", "GIT_EDITOR=true",
		"GIT_ASKPASS=false", "LC_ALL=C", "GIT_LITERAL_PATHSPECS=1")
	for _, kv := range []struct{ name, value string }{
		{"GIT_DIR", r.GitDir},
		{"GIT_COMMON_DIR", r.CommonDir},
		{"GIT_WORK_TREE", r.WorkTree},
		{"GIT_INDEX_FILE", r.IndexFile},
		{"GIT_OBJECT_DIRECTORY", r.ObjectDir},
		{"GIT_ALTERNATE_OBJECT_DIRECTORIES", JoinAlternates(r.Alternates)},
	} {
		if kv.value != "" {
			env = append(env, kv.name+"="+kv.value)
		}
	}
	return append(env, r.Env...)
}

// JoinAlternates spells object directories as git's environment variable
// wants them, names with odd signs quoted.
func JoinAlternates(dirs []string) string {
	quoted := make([]string, len(dirs))
	for i, d := range dirs {
		quoted[i] = QuoteAlternate(d)
	}
	return strings.Join(quoted, string(os.PathListSeparator))
}

// QuoteAlternate spells one object directory for objects/info/alternates.
func QuoteAlternate(dir string) string {
	if !strings.ContainsAny(dir, "\n\"\\#"+string(os.PathListSeparator)) {
		return dir
	}
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(dir) {
		switch c := dir[i]; c {
		case '"', '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case '\n':
			b.WriteString(`\n`)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// arguments puts the settings before the call's own arguments.
func (r Repo) arguments(c Call) []string {
	args := []string{"--no-pager"}
	for _, kv := range neutral() {
		args = append(args, "-c", kv)
	}
	for _, kv := range r.Config {
		args = append(args, "-c", kv)
	}
	return append(args, c.Args...)
}

func (r Repo) workingDir() string {
	switch {
	case r.Dir != "":
		return r.Dir
	case r.WorkTree != "":
		return r.WorkTree
	}
	return r.GitDir
}

func (r Repo) runner() *Runner {
	if r.Git == nil {
		return &Runner{}
	}
	return r.Git
}

// run starts git and waits for it.
func (r Repo) run(ctx context.Context, c Call) (Result, error) {
	if err := ctx.Err(); err != nil {
		return Result{}, &Error{Args: c.Args, ExitCode: -1, Err: err}
	}
	var stdout bytes.Buffer
	stderr := &head{max: 64 << 10}
	cmd := r.command(c)
	cmd.Stdin = c.Stdin
	cmd.Stdout = c.Stdout
	if c.Stdout == nil {
		cmd.Stdout = &stdout
	}
	cmd.Stderr = stderr
	if c.Finish {
		ctx = context.WithoutCancel(ctx)
	}
	err := supervise(ctx, cmd, r.runner().idle(), !c.Finish)
	res := Result{Stdout: stdout.Bytes(), Stderr: stderr.String()}
	return res, r.outcome(&res, c, err)
}

// outcome turns how the process ended into a call's error.
func (r Repo) outcome(res *Result, c Call, err error) error {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &exit) && exit.ExitCode() >= 0:
		res.ExitCode = exit.ExitCode()
		for _, code := range c.OK {
			if code == res.ExitCode {
				return nil
			}
		}
		return &Error{Args: c.Args, ExitCode: res.ExitCode, Stderr: res.Stderr}
	case errors.Is(err, exec.ErrNotFound):
		return notInstalled(err)
	}
	return &Error{Args: c.Args, ExitCode: -1, Stderr: res.Stderr, Err: err}
}

func (r Repo) command(c Call) *exec.Cmd {
	cmd := exec.Command(r.runner().program(), r.arguments(c)...)
	cmd.Dir = r.workingDir()
	cmd.Env = r.environment()
	return cmd
}

func (g *Runner) idle() time.Duration {
	if g.Idle > 0 {
		return g.Idle
	}
	return 30 * time.Second
}

func (g *Runner) program() string {
	if g.Program != "" {
		return g.Program
	}
	return "git"
}

// Version returns git's version, or agents.ErrUnsupported when git is missing
// or older than 2.38. The first call asks git, later ones remember.
func (g *Runner) Version(ctx context.Context) (major, minor int, err error) {
	if err := g.check(ctx); err != nil {
		return 0, 0, err
	}
	if g.like != nil {
		return g.like.Version(ctx)
	}
	return g.version[0], g.version[1], nil
}

func (g *Runner) check(ctx context.Context) error {
	if g.like != nil {
		return g.like.check(ctx)
	}
	g.probe.Do(func() { g.version, g.err = g.ask(context.WithoutCancel(ctx)) })
	return g.err
}

func (g *Runner) ask(ctx context.Context) (v [2]int, err error) {
	if _, err := exec.LookPath(g.program()); err != nil {
		return v, notInstalled(err)
	}
	res, err := Repo{Git: g, Dir: string(filepath.Separator)}.run(ctx, Call{Args: []string{"version"}})
	if err != nil {
		return v, fmt.Errorf("ask git for its version: %w: %w", err, agents.ErrUnsupported)
	}
	text := strings.TrimSpace(string(res.Stdout))
	parts := strings.Split(strings.TrimPrefix(text, "git version "), ".")
	if len(parts) < 2 {
		return v, fmt.Errorf("git says %q, which is no version: %w", text, agents.ErrUnsupported)
	}
	v[0], _ = strconv.Atoi(parts[0])
	v[1], _ = strconv.Atoi(parts[1])
	if v[0] < 2 || v[0] == 2 && v[1] < 38 {
		return v, agents.WithHint(fmt.Errorf("git %d.%d is too old: %w", v[0], v[1], agents.ErrUnsupported), "install git 2.38 or newer")
	}
	return v, nil
}

func notInstalled(err error) error {
	return agents.WithHint(fmt.Errorf("git is not installed (%v): %w", err, agents.ErrUnsupported), "install git 2.38 or newer")
}

// head keeps the first part of what is written to it, up to max bytes.
type head struct {
	max int
	buf bytes.Buffer
}

func (t *head) Write(p []byte) (int, error) {
	if room := t.max - t.buf.Len(); room > 0 {
		t.buf.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}

func (t *head) String() string { return t.buf.String() }
