package builtin

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/git"
	"github.com/cleveragents/agents/tool"
)

// patchCap bounds the bytes of a diff that one call gives back.
const patchCap = 1 << 20

// The identity of commits where the user has none.
const (
	fallbackName  = "cleveragents"
	fallbackEmail = "cleveragents@localhost"
)

// gitPlace is the workspace of a call, as git tools see it: its own repository
// with its own configuration, hooks and signing off, and never one above it.
type gitPlace struct {
	*place
	repo git.Repo
}

// enterGit opens the workspace and its repository.
func enterGit(ctx context.Context, env tool.Env) (*gitPlace, error) {
	p, err := enter(env)
	if err != nil {
		return nil, err
	}
	g := &gitPlace{place: p, repo: git.Repo{
		Git: &git.Runner{Env: env.Environ},
		Dir: env.Path,
		Env: []string{"GIT_CEILING_DIRECTORIES=" + filepath.Dir(env.Path)},
	}}
	if _, err := g.repo.ReadLine(ctx, "rev-parse", "--git-dir"); err != nil {
		p.leave()
		return nil, gitFailed(err)
	}
	return g, nil
}

// gitFailed makes a tool's own no of what git said. All that git said goes
// into the result's Stderr.
func gitFailed(err error) error {
	var ge *git.Error
	if !errors.As(err, &ge) || ge.ExitCode < 0 {
		return err
	}
	return fmt.Errorf("%w: %w", ge, agents.ErrToolFailed)
}

// paths turns paths of an input into those that git is given after "--".
func (g *gitPlace) paths(given []string) ([]string, error) {
	var out []string
	for _, path := range given {
		s, err := g.itself(path)
		if err != nil {
			return nil, err
		}
		if inGit(s.rel) {
			return nil, invalid("path %q is git's own", path)
		}
		out = append(out, s.rel)
	}
	return out, nil
}

// commit resolves the name of a commit to its id, so that nothing that an
// input says can be an option.
func (g *gitPlace) commit(ctx context.Context, name string) (string, error) {
	if err := checkRef(name); err != nil {
		return "", err
	}
	id, err := g.repo.ReadLine(ctx, "rev-parse", "--verify", "--quiet", "--end-of-options", name+"^{commit}")
	if err != nil {
		var ge *git.Error
		if errors.As(err, &ge) && ge.ExitCode == 1 {
			return "", failed("%q names no commit", name)
		}
		return "", gitFailed(err)
	}
	return id, nil
}

// checkRef refuses names that could be anything but a name.
func checkRef(name string) error {
	if name == "" || strings.HasPrefix(name, "-") || strings.ContainsAny(name, "\x00\n") {
		return invalid("%q is no name of a commit or branch", name)
	}
	return nil
}

// checkBranch refuses what git would not take for a branch's name.
func (g *gitPlace) checkBranch(ctx context.Context, name string) error {
	if err := checkRef(name); err != nil {
		return err
	}
	_, err := g.repo.Read(ctx, "check-ref-format", "refs/heads/"+name)
	var ge *git.Error
	if errors.As(err, &ge) && ge.ExitCode == 1 || name == "HEAD" || strings.HasPrefix(name, "@{") {
		return invalid("%q is no name for a branch", name)
	}
	return gitFailed(err)
}

// withIdentity makes commits work where the user has no name or address.
func (g *gitPlace) withIdentity(ctx context.Context) git.Repo {
	repo := g.repo
	for _, who := range []string{"AUTHOR", "COMMITTER"} {
		if _, err := repo.Read(ctx, "var", "GIT_"+who+"_IDENT"); err != nil {
			repo.Env = append(slices.Clone(repo.Env), "GIT_"+who+"_NAME="+fallbackName, "GIT_"+who+"_EMAIL="+fallbackEmail)
		}
	}
	return repo
}

// branch returns the branch that is checked out, or "" for none.
func (g *gitPlace) branch(ctx context.Context) (string, error) {
	res, err := g.repo.Do(ctx, git.Call{Args: []string{"symbolic-ref", "--quiet", "--short", "HEAD"}, OK: []int{1}})
	return strings.TrimSuffix(string(res.Stdout), "\n"), gitFailed(err)
}

// head returns the commit that is checked out, or "" before the first.
func (g *gitPlace) head(ctx context.Context) (string, error) {
	res, err := g.repo.Do(ctx, git.Call{Args: []string{"rev-parse", "--verify", "--quiet", "HEAD^{commit}"}, OK: []int{1}})
	return strings.TrimSuffix(string(res.Stdout), "\n"), gitFailed(err)
}

type gitStatusInput struct{}

// gitStatusOutput is the answer of git-status.
type gitStatusOutput struct {
	Branch  string        `json:"branch"` // "" = detached
	Head    string        `json:"head"`   // "" = no commit yet
	Clean   bool          `json:"clean"`
	Entries []statusEntry `json:"entries"`
}

// statusEntry is a path that differs, with git's letters: M modified, T type,
// A added, D deleted, R renamed, C copied, U unmerged, ? untracked, . the same.
type statusEntry struct {
	Path     string `json:"path"`
	OldPath  string `json:"old_path,omitempty"`
	Index    string `json:"index"`
	Worktree string `json:"worktree"`
}

func gitStatus() tool.Tool {
	return define("git-status", "Show the branch and what differs from the last commit, in the index and in the files.",
		reads(), `{}`, nil, runGitStatus)
}

func runGitStatus(ctx context.Context, env tool.Env, _ gitStatusInput) (tool.Result, error) {
	g, err := enterGit(ctx, env)
	if err != nil {
		return tool.Result{}, err
	}
	defer g.leave()
	var out gitStatusOutput
	if out.Branch, err = g.branch(ctx); err != nil {
		return tool.Result{}, err
	}
	if out.Head, err = g.head(ctx); err != nil {
		return tool.Result{}, err
	}
	raw, err := g.repo.Read(ctx, "status", "--porcelain=v2", "-z", "--untracked-files=all")
	if err != nil {
		return tool.Result{}, gitFailed(err)
	}
	out.Entries = parseStatus(git.Fields(raw))
	out.Clean = len(out.Entries) == 0
	return tool.Result{Output: out}, nil
}

// parseStatus reads the records of git status --porcelain=v2 -z.
func parseStatus(records []string) []statusEntry {
	entries := []statusEntry{}
	for i := 0; i < len(records); i++ {
		kind, rest, _ := strings.Cut(records[i], " ")
		// how many fields stand before the path
		before := map[string]int{"1": 7, "2": 8, "u": 9}[kind]
		if kind == "?" {
			entries = append(entries, statusEntry{Path: agents.EscapePath(rest), Index: "?", Worktree: "?"})
			continue
		}
		fields := strings.SplitN(rest, " ", before+1)
		if before == 0 || len(fields) <= before || len(fields[0]) != 2 {
			continue
		}
		e := statusEntry{Path: agents.EscapePath(fields[before]), Index: fields[0][:1], Worktree: fields[0][1:]}
		if kind == "2" && i+1 < len(records) {
			i++
			e.OldPath = agents.EscapePath(records[i])
		}
		entries = append(entries, e)
	}
	return entries
}

type gitDiffInput struct {
	From   string   `json:"from"`
	To     string   `json:"to"`
	Paths  []string `json:"paths"`
	Staged bool     `json:"staged"`
}

// gitDiffOutput is the answer of git-diff.
type gitDiffOutput struct {
	Files     []diffFile `json:"files"`
	Patch     string     `json:"patch"` // what is not UTF-8 is replaced
	Truncated bool       `json:"truncated"`
}

// diffFile counts the lines of one file of a diff.
type diffFile struct {
	Path       string `json:"path"`
	OldPath    string `json:"old_path,omitempty"`
	Insertions int    `json:"insertions"`
	Deletions  int    `json:"deletions"`
	Binary     bool   `json:"binary"`
}

func gitDiff() tool.Tool {
	return define("git-diff",
		"Show what changed: the files against the index, with staged the index against the last commit, with from the files against that commit, with from and to one commit against another. Untracked files are not in it; at most 1 MiB.",
		reads(), `{
			"from": {"type": "string", "minLength": 1, "description": "a commit"},
			"to": {"type": "string", "minLength": 1, "description": "a commit; needs from"},
			"paths": {"type": "array", "items": {"type": "string", "minLength": 1}},
			"staged": {"type": "boolean"}
		}`, nil, runGitDiff)
}

func runGitDiff(ctx context.Context, env tool.Env, in gitDiffInput) (tool.Result, error) {
	if in.To != "" && (in.From == "" || in.Staged) {
		return tool.Result{}, invalid("to needs from, and goes without staged")
	}
	g, err := enterGit(ctx, env)
	if err != nil {
		return tool.Result{}, err
	}
	defer g.leave()
	what, err := g.diffArgs(ctx, in)
	if err != nil {
		return tool.Result{}, err
	}
	counts, err := g.repo.Read(ctx, append([]string{"diff", "--no-ext-diff", "--no-textconv", "-M", "--numstat", "-z"}, what...)...)
	if err != nil {
		return tool.Result{}, gitFailed(err)
	}
	patch := &firstBytes{max: patchCap}
	_, err = g.repo.Do(ctx, git.Call{Args: append([]string{"diff", "--no-ext-diff", "--no-textconv", "-M", "--no-color"}, what...), Stdout: patch})
	if err != nil {
		return tool.Result{}, gitFailed(err)
	}
	out := gitDiffOutput{Files: parseNumstat(git.Fields(counts)), Patch: strings.ToValidUTF8(string(patch.kept), "�"), Truncated: patch.more}
	return tool.Result{Output: out}, nil
}

// diffArgs are the arguments that say what is compared.
func (g *gitPlace) diffArgs(ctx context.Context, in gitDiffInput) ([]string, error) {
	var args []string
	if in.Staged {
		args = append(args, "--cached")
	}
	for _, name := range []string{in.From, in.To} {
		if name == "" {
			continue
		}
		id, err := g.commit(ctx, name)
		if err != nil {
			return nil, err
		}
		args = append(args, id)
	}
	paths, err := g.paths(in.Paths)
	return append(append(args, "--"), paths...), err
}

// firstBytes keeps the beginning of what is written to it.
type firstBytes struct {
	max  int
	kept []byte
	more bool
}

func (f *firstBytes) Write(p []byte) (int, error) {
	room := min(f.max-len(f.kept), len(p))
	f.kept = append(f.kept, p[:room]...)
	f.more = f.more || room < len(p)
	return len(p), nil
}

// parseNumstat reads the records of git diff --numstat -z: a rename has an
// empty path and then two records.
func parseNumstat(records []string) []diffFile {
	files := []diffFile{}
	for i := 0; i < len(records); i++ {
		fields := strings.SplitN(records[i], "\t", 3)
		if len(fields) < 3 {
			continue
		}
		f := diffFile{Path: agents.EscapePath(fields[2]), Binary: fields[0] == "-"}
		f.Insertions, _ = strconv.Atoi(fields[0])
		f.Deletions, _ = strconv.Atoi(fields[1])
		if fields[2] == "" && i+2 < len(records) {
			f.OldPath, f.Path = agents.EscapePath(records[i+1]), agents.EscapePath(records[i+2])
			i += 2
		}
		files = append(files, f)
	}
	return files
}

type gitLogInput struct {
	Limit int    `json:"limit"`
	Ref   string `json:"ref"`
	Path  string `json:"path"`
}

// gitLogOutput is the answer of git-log.
type gitLogOutput struct {
	Commits []logCommit `json:"commits"`
}

// logCommit is one commit.
type logCommit struct {
	Commit  string    `json:"commit"`
	Parents []string  `json:"parents"`
	Author  string    `json:"author"`
	Email   string    `json:"email"`
	Date    time.Time `json:"date"` // of the author
	Subject string    `json:"subject"`
	Body    string    `json:"body"`
}

func gitLog() tool.Tool {
	return define("git-log", "Show commits, newest first: 20 unless limit says otherwise.",
		reads(), `{
			"limit": {"type": "integer", "minimum": 1, "maximum": 1000},
			"ref": {"type": "string", "minLength": 1, "description": "where to begin; what is checked out if not said"},
			"path": {"type": "string", "minLength": 1, "description": "only commits that changed it"}
		}`, nil, runGitLog)
}

func runGitLog(ctx context.Context, env tool.Env, in gitLogInput) (tool.Result, error) {
	g, err := enterGit(ctx, env)
	if err != nil {
		return tool.Result{}, err
	}
	defer g.leave()
	out := gitLogOutput{Commits: []logCommit{}}
	from := in.Ref
	if from == "" {
		if from, err = g.head(ctx); err != nil || from == "" {
			return tool.Result{Output: out}, err
		}
	}
	id, err := g.commit(ctx, from)
	if err != nil {
		return tool.Result{}, err
	}
	if in.Limit <= 0 {
		in.Limit = 20
	}
	args := []string{"log", "-z", "--no-color", "--encoding=UTF-8", "--format=%H%n%P%n%an%n%ae%n%at%n%s%n%b", "-n", strconv.Itoa(in.Limit), id, "--"}
	if in.Path != "" {
		paths, err := g.paths([]string{in.Path})
		if err != nil {
			return tool.Result{}, err
		}
		args = append(args, paths...)
	}
	raw, err := g.repo.Read(ctx, args...)
	if err != nil {
		return tool.Result{}, gitFailed(err)
	}
	for _, record := range git.Fields(raw) {
		if c, ok := parseCommit(record); ok {
			out.Commits = append(out.Commits, c)
		}
	}
	return tool.Result{Output: out}, nil
}

// parseCommit reads one record of the format above.
func parseCommit(record string) (logCommit, bool) {
	lines := strings.SplitN(record, "\n", 7)
	if len(lines) < 7 {
		return logCommit{}, false
	}
	at, err := strconv.ParseInt(lines[4], 10, 64)
	if err != nil {
		return logCommit{}, false
	}
	clean := func(s string) string { return strings.ToValidUTF8(s, "�") }
	return logCommit{
		Commit: lines[0], Parents: strings.Fields(lines[1]), Author: clean(lines[2]), Email: clean(lines[3]),
		Date: time.Unix(at, 0).UTC(), Subject: clean(lines[5]), Body: clean(strings.TrimSpace(lines[6])),
	}, true
}

// describeHead is what the writing git tools tell when they are done.
type describeHead struct {
	Branch string `json:"branch"` // "" = detached
	Head   string `json:"head"`   // "" = no commit yet
}

func (g *gitPlace) describe(ctx context.Context) (describeHead, error) {
	branch, err := g.branch(ctx)
	if err != nil {
		return describeHead{}, err
	}
	head, err := g.head(ctx)
	return describeHead{Branch: branch, Head: head}, err
}

// write runs a call that changes the repository.
func write(ctx context.Context, repo git.Repo, args ...string) error {
	_, err := repo.Write(ctx, args...)
	return gitFailed(err)
}
