package git

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	agents "github.com/cleveragents/agents"
)

// The modes of tree and index entries.
const (
	ModeFile       = "100644"
	ModeExecutable = "100755"
	ModeSymlink    = "120000"
	ModeGitlink    = "160000"
	ModeTree       = "040000"
	ModeNone       = "000000"
)

// Change is one entry that differs between two trees.
type Change struct {
	Status     byte // A D M T R C, as git diff --raw has it
	Score      int  // similarity of R and C, in per cent
	OldMode    string
	NewMode    string
	OldID      string
	NewID      string
	Path       string
	OldPath    string // R and C: where it was; else as Path
	Insertions int    // only with Counts
	Deletions  int
	Binary     bool
}

// DiffOptions say how trees are compared.
type DiffOptions struct {
	Renames bool     // find renames, with git's default limits
	Counts  bool     // fill Insertions, Deletions and Binary
	Paths   []string // only these, taken literally; nil = all
}

// DiffTrees compares two trees or commits, entry by entry, in git's order.
// No external diff and no text conversion runs.
func (r Repo) DiffTrees(ctx context.Context, from, to string, o DiffOptions) ([]Change, error) {
	args := []string{"diff-tree", "-r", "-z", "--raw", "--no-ext-diff", "--no-textconv", "--no-abbrev", "--ignore-submodules=none"}
	if o.Counts {
		args = append(args, "--numstat")
	}
	if o.Renames {
		args = append(args, "-M", "-l0")
	} else {
		args = append(args, "--no-renames")
	}
	args = append(append(args, "--end-of-options", from, to, "--"), o.Paths...)
	out, err := r.Read(ctx, args...)
	if err != nil {
		return nil, err
	}
	return parseRaw(out)
}

// parseRaw reads the output of --raw -z, with --numstat after it or not.
func parseRaw(out []byte) ([]Change, error) {
	var changes []Change
	at := map[string]int{}
	f := Fields(out)
	i := 0
	for i < len(f) && strings.HasPrefix(f[i], ":") {
		c, n, err := parseRawEntry(f[i:])
		if err != nil {
			return nil, err
		}
		at[c.Path] = len(changes)
		changes = append(changes, c)
		i += n
	}
	for i < len(f) {
		n, err := parseNumstat(f[i:], changes, at)
		if err != nil {
			return nil, err
		}
		i += n
	}
	return changes, nil
}

func parseRawEntry(f []string) (Change, int, error) {
	head := strings.Fields(strings.TrimPrefix(f[0], ":"))
	if len(head) != 5 || len(f) < 2 {
		return Change{}, 0, fmt.Errorf("diff-tree says %q: %w", f[0], agents.ErrDamaged)
	}
	c := Change{OldMode: head[0], NewMode: head[1], OldID: head[2], NewID: head[3], Status: head[4][0], Path: f[1], OldPath: f[1]}
	c.Score, _ = strconv.Atoi(head[4][1:])
	if c.Status != 'R' && c.Status != 'C' {
		return c, 2, nil
	}
	if len(f) < 3 {
		return Change{}, 0, fmt.Errorf("diff-tree ends within a rename: %w", agents.ErrDamaged)
	}
	c.Path = f[2]
	return c, 3, nil
}

func parseNumstat(f []string, changes []Change, at map[string]int) (int, error) {
	part := strings.SplitN(f[0], "\t", 3)
	if len(part) != 3 {
		return 0, fmt.Errorf("diff-tree says %q: %w", f[0], agents.ErrDamaged)
	}
	path, n := part[2], 1
	if path == "" {
		if len(f) < 3 {
			return 0, fmt.Errorf("diff-tree ends within a rename: %w", agents.ErrDamaged)
		}
		path, n = f[2], 3
	}
	i, ok := at[path]
	if !ok {
		return n, nil
	}
	if part[0] == "-" {
		changes[i].Binary = true
		return n, nil
	}
	changes[i].Insertions, _ = strconv.Atoi(part[0])
	changes[i].Deletions, _ = strconv.Atoi(part[1])
	return n, nil
}

// Patch writes the difference of two trees in git's patch format, binary
// content included, renames found; of these paths alone where any are given,
// taken literally.
func (r Repo) Patch(ctx context.Context, w io.Writer, from, to string, paths ...string) error {
	_, err := r.Do(ctx, Call{Stdout: w, Args: append([]string{"diff-tree", "-r", "-p", "--binary", "--full-index", "-M", "-l0",
		"--no-ext-diff", "--no-textconv", "--no-color", "--src-prefix=a/", "--dst-prefix=b/",
		"--ignore-submodules=none", "--end-of-options", from, to, "--"}, paths...)})
	return err
}

// Entry is one entry of an index.
type Entry struct {
	Mode         string
	ID           string
	Stage        int
	Path         string
	SkipWorktree bool // kept out of the work tree by a sparse checkout
	AssumeValid  bool // marked unchanged by the user
}

// Index lists the whole index, in its order.
func (r Repo) Index(ctx context.Context) ([]Entry, error) {
	out, err := r.Read(ctx, "ls-files", "-z", "-v", "--stage", "--full-name")
	if err != nil {
		return nil, err
	}
	var all []Entry
	for _, line := range Fields(out) {
		e, ok := parseEntry(line)
		if !ok {
			return nil, fmt.Errorf("ls-files says %q: %w", line, agents.ErrDamaged)
		}
		all = append(all, e)
	}
	return all, nil
}

// parseEntry reads "H 100644 <id> 0\t<path>".
func parseEntry(line string) (Entry, bool) {
	head, path, ok := strings.Cut(line, "\t")
	f := strings.Fields(head)
	if !ok || len(f) != 4 {
		return Entry{}, false
	}
	stage, err := strconv.Atoi(f[3])
	e := Entry{Mode: f[1], ID: f[2], Stage: stage, Path: path}
	e.SkipWorktree = strings.EqualFold(f[0], "S")
	e.AssumeValid = strings.ToLower(f[0]) == f[0] && f[0] != "?"
	return e, err == nil
}

// TreeEntry is one entry of a tree.
type TreeEntry struct {
	Mode string
	Type string // blob, tree, commit
	ID   string
	Path string
}

// Tree lists all entries below a tree or commit, files and links only.
func (r Repo) Tree(ctx context.Context, tree string, paths ...string) ([]TreeEntry, error) {
	out, err := r.Read(ctx, append([]string{"ls-tree", "-r", "-z", "--full-tree", "--end-of-options", tree}, paths...)...)
	if err != nil {
		return nil, err
	}
	var all []TreeEntry
	for _, line := range Fields(out) {
		head, path, _ := strings.Cut(line, "\t")
		f := strings.Fields(head)
		if len(f) != 3 {
			return nil, fmt.Errorf("ls-tree says %q: %w", line, agents.ErrDamaged)
		}
		all = append(all, TreeEntry{Mode: f[0], Type: f[1], ID: f[2], Path: path})
	}
	return all, nil
}

// Merged is what merging two commits would give.
type Merged struct {
	Tree      string              // with conflict markers where Conflicts is not empty
	Conflicts []string            // paths, each once
	Messages  []string            // git's own, one for each conflict or note
	Reasons   map[string][]string // for each path of Conflicts, git's own messages about it
}

// MergeTrees merges commit theirs into commit ours without touching any work
// tree, index or ref. Objects are written where the Repo says.
func (r Repo) MergeTrees(ctx context.Context, ours, theirs string) (Merged, error) {
	res, err := r.Do(ctx, Call{
		Args:   []string{"merge-tree", "--write-tree", "-z", "--name-only", "--messages", "--end-of-options", ours, theirs},
		Writes: true, OK: []int{1},
	})
	if err != nil {
		return Merged{}, err
	}
	f := Fields(res.Stdout)
	if len(f) == 0 || f[0] == "" {
		return Merged{}, fmt.Errorf("merge-tree gave no tree: %w", agents.ErrDamaged)
	}
	m := Merged{Tree: f[0]}
	i := 1
	for ; i < len(f) && f[i] != ""; i++ {
		m.Conflicts = append(m.Conflicts, f[i])
	}
	if res.ExitCode == 0 {
		m.Conflicts = nil
	}
	m.Messages, m.Reasons = mergeMessages(f[min(i+1, len(f)):], m.Conflicts)
	return m, nil
}

// mergeMessages reads <count> <path>… <type> <message> groups. A message is a
// reason for the conflicts of its paths unless it only tells of progress.
func mergeMessages(f []string, conflicts []string) ([]string, map[string][]string) {
	var all []string
	reasons := make(map[string][]string, len(conflicts))
	for _, c := range conflicts {
		reasons[c] = nil
	}
	for len(f) > 0 {
		n, err := strconv.Atoi(f[0])
		if err != nil || len(f) < n+3 {
			return all, reasons
		}
		message := strings.TrimSuffix(f[n+2], "\n")
		all = append(all, message)
		for _, path := range f[1 : n+1] {
			if said, conflicted := reasons[path]; conflicted && f[n+1] != "Auto-merging" {
				reasons[path] = append(said, message)
			}
		}
		f = f[n+3:]
	}
	return all, reasons
}

// Person is an author or committer.
type Person struct {
	Name  string
	Email string
}

// Committer returns the identity that the configuration gives, or false where
// it gives none. git's guesses from the machine's name do not count.
func (r Repo) Committer(ctx context.Context) (Person, bool, error) {
	all, err := r.Settings(ctx)
	if err != nil {
		return Person{}, false, err
	}
	p := Person{Name: firstValue(all, "committer.name", "user.name"), Email: firstValue(all, "committer.email", "user.email")}
	return p, p.Name != "" && p.Email != "", nil
}

func firstValue(all []Setting, keys ...string) string {
	for _, k := range keys {
		if v, ok := Value(all, k); ok && v != "" {
			return v
		}
	}
	return ""
}

// NewCommit is a commit to be made.
type NewCommit struct {
	Tree      string
	Parents   []string
	Message   string
	Author    Person
	Committer Person
	When      time.Time
}

// CommitTree makes a commit object, unsigned, and returns its id.
func (r Repo) CommitTree(ctx context.Context, c NewCommit) (string, error) {
	args := []string{"commit-tree", "--no-gpg-sign"}
	for _, p := range c.Parents {
		args = append(args, "-p", p)
	}
	date := fmt.Sprintf("%d %s", c.When.Unix(), c.When.Format("-0700"))
	r.Env = append(append([]string(nil), r.Env...),
		"GIT_AUTHOR_NAME="+c.Author.Name, "GIT_AUTHOR_EMAIL="+c.Author.Email, "GIT_AUTHOR_DATE="+date,
		"GIT_COMMITTER_NAME="+c.Committer.Name, "GIT_COMMITTER_EMAIL="+c.Committer.Email, "GIT_COMMITTER_DATE="+date)
	out, err := r.Feed(ctx, strings.NewReader(c.Message), append(args, "--end-of-options", c.Tree)...)
	return strings.TrimSpace(string(out)), err
}

// Attr is the value of one attribute of one path: "set", "unset",
// "unspecified" or a string.
type Attr struct{ Path, Name, Value string }

// Attrs asks for attributes of paths, from the work tree's .gitattributes
// files where cached is false, else from the index's.
func (r Repo) Attrs(ctx context.Context, cached bool, names, paths []string) ([]Attr, error) {
	args := []string{"check-attr", "-z", "--stdin"}
	if cached {
		args = append(args, "--cached")
	}
	out, err := r.Ask(ctx, NulList(paths), append(args, names...)...)
	if err != nil {
		return nil, err
	}
	f := Fields(out)
	all := make([]Attr, 0, len(f)/3)
	for i := 0; i+2 < len(f); i += 3 {
		all = append(all, Attr{f[i], f[i+1], f[i+2]})
	}
	return all, nil
}
