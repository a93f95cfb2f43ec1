package gitworktree

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/fsx"
	"github.com/cleveragents/agents/internal/git"
	"github.com/cleveragents/agents/sandbox"
)

// merged is what merging a sealed result into a target would give.
type merged struct {
	tree      string
	changes   []git.Change // from the target's tip to tree, with counts, renames as two
	conflicts []agents.PathReason
	contained bool // the target has the sealed commit already
}

// quarantine is a git directory of our own in which a merge is computed: its
// objects are new ones alone, its configuration holds nothing but what decides
// how texts are merged, and the user's repository is only read.
type quarantine struct {
	dir  string
	repo git.Repo
}

// mergeSettings are the user's settings that decide what a merge gives, and
// those without which objects cannot be read.
var mergeSettings = regexp.MustCompile(
	`^(merge\.(renames|renamelimit|directoryrenames|renormalize|default)|merge\..+\.(driver|name|recursive)` +
		`|diff\.(renames|renamelimit)|core\.(ignorecase|precomposeunicode)|core\.repositoryformatversion|extensions\.(objectformat|partialclone)` +
		`|remote\..+\.(url|promisor|partialclonefilter))$`)

// quarantineDir is where Apply computes a merge.
func quarantineDir(ws sandbox.Workspace) string { return filepath.Join(ws.PrivateDir, "merge") }

// openQuarantine makes a quarantine in dir, which is removed first.
func openQuarantine(dir string, t target) (*quarantine, error) {
	if err := fsx.RemoveAll(dir); err != nil {
		return nil, err
	}
	for _, d := range []string{"", "refs", "objects", "objects/info", "tree"} {
		if err := fsx.Mkdir(filepath.Join(dir, d), 0o700); err != nil {
			return nil, err
		}
	}
	files := map[string]string{
		"HEAD":                    "ref: refs/heads/none\n",
		"config":                  quarantineConfig(t.settings),
		"objects/info/alternates": git.QuoteAlternate(t.found.Objects) + "\n",
	}
	if b, err := os.ReadFile(filepath.Join(t.found.CommonDir, "shallow")); err == nil {
		files["shallow"] = string(b)
	}
	for name, content := range files {
		if err := putFile(filepath.Join(dir, name), content); err != nil {
			return nil, err
		}
	}
	q := &quarantine{dir: dir, repo: git.Repo{Git: t.repo.Git, GitDir: dir, WorkTree: filepath.Join(dir, "tree")}}
	q.repo.Config = []string{"core.attributesFile=" + os.DevNull}
	if _, partial := git.Value(t.settings, "extensions.partialclone"); !partial {
		q.repo.Env = []string{"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=" + os.DevNull}
	}
	return q, nil
}

// putFile makes a file that need not outlive a power cut.
func putFile(path, content string) error {
	f, err := fsx.Create(path, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(content)
	return errors.Join(err, f.Close())
}

// quarantineConfig writes the settings that a merge needs as a config file.
func quarantineConfig(all []git.Setting) string {
	var b strings.Builder
	b.WriteString("[core]\n\tbare = false\n\tlogAllRefUpdates = false\n")
	for _, s := range all {
		if !mergeSettings.MatchString(s.Key) {
			continue
		}
		first, last := strings.Index(s.Key, "."), strings.LastIndex(s.Key, ".")
		section, name := s.Key[:first], s.Key[last+1:]
		if first != last {
			section += ` "` + configQuote(s.Key[first+1:last]) + `"`
		}
		fmt.Fprintf(&b, "[%s]\n\t%s", section, name)
		if !s.Bare {
			fmt.Fprintf(&b, ` = "%s"`, strings.ReplaceAll(configQuote(s.Value), "\n", `\n`))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func configQuote(s string) string {
	return strings.ReplaceAll(strings.ReplaceAll(s, `\`, `\\`), `"`, `\"`)
}

// objects is where the quarantine's own objects lie.
func (q *quarantine) objects() string { return filepath.Join(q.dir, "objects") }

func (q *quarantine) close() error { return fsx.RemoveAll(q.dir) }

// merge computes what merging sealed into tip gives.
func (q *quarantine) merge(ctx context.Context, tip, sealed string) (merged, error) {
	base, err := q.repo.MergeBase(ctx, tip, sealed)
	switch {
	case err != nil:
		return merged{}, err
	case base == "":
		return merged{}, fmt.Errorf("the branch has no common history with the plan any more: %w", agents.ErrConflict)
	case base == sealed:
		return merged{contained: true}, nil
	}
	m := merged{}
	if base == tip {
		m.tree, err = q.repo.ReadLine(ctx, "rev-parse", "--verify", "--end-of-options", sealed+"^{tree}")
	} else {
		err = q.mergeTexts(ctx, &m, tip, sealed)
	}
	if err != nil || len(m.conflicts) > 0 {
		return m, err
	}
	m.changes, err = q.repo.DiffTrees(ctx, tip, m.tree, git.DiffOptions{Counts: true})
	return m, err
}

// mergeTexts runs the three-way merge. The attributes that say how a file is
// merged come from the tip, as they do in the user's own merges.
func (q *quarantine) mergeTexts(ctx context.Context, m *merged, tip, sealed string) error {
	if err := q.writeAttributes(ctx, tip); err != nil {
		return err
	}
	got, err := q.repo.MergeTrees(ctx, tip, sealed)
	if err != nil {
		return err
	}
	m.tree = got.Tree
	for _, path := range got.Conflicts {
		m.conflicts = append(m.conflicts, agents.PathReason{Path: path, Reason: conflictReason(got.Reasons[path], tip, sealed)})
	}
	return nil
}

// conflictLine is how git tells of a conflict, with its kind.
var conflictLine = regexp.MustCompile(`^CONFLICT \(([^)]*)\): `)

// conflictReason says in the user's words what git said about a path: which
// side did what.
func conflictReason(said []string, tip, sealed string) string {
	var reasons []string
	for _, line := range said {
		kind := ""
		if m := conflictLine.FindStringSubmatch(line); m != nil {
			kind, line = m[1], line[len(m[0]):]
		}
		switch {
		case kind == "content":
			line = "both sides changed the same lines"
		case kind == "add/add":
			line = "both sides added it"
		case kind == "modify/delete" && strings.Contains(line, "deleted in "+tip):
			line = "the repository deleted it and the plan changed it"
		case kind == "modify/delete":
			line = "the plan deleted it and the repository changed it"
		default:
			line = strings.NewReplacer(tip, "the repository", sealed, "the plan").Replace(line)
		}
		reasons = append(reasons, line)
	}
	if len(reasons) == 0 {
		return "both sides changed it"
	}
	return strings.Join(reasons, "; ")
}

// writeAttributes puts the .gitattributes files of commit into the
// quarantine's work tree, where merging looks for them.
func (q *quarantine) writeAttributes(ctx context.Context, commit string) error {
	entries, err := q.repo.Tree(ctx, commit)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if filepath.Base(e.Path) != ".gitattributes" || e.Mode == git.ModeSymlink || e.Type != "blob" {
			continue
		}
		content, err := q.repo.Read(ctx, "cat-file", "blob", e.ID)
		if err != nil {
			return err
		}
		path := filepath.Join(q.dir, "tree", filepath.FromSlash(e.Path))
		if err := fsx.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		if err := putFile(path, string(content)); err != nil {
			return err
		}
	}
	return nil
}

// commit makes the merge commit in the quarantine.
func (q *quarantine) commit(ctx context.Context, c git.NewCommit) (string, error) {
	r := q.repo
	r.Config = append(r.Config[:len(r.Config):len(r.Config)], "i18n.commitEncoding=UTF-8")
	return r.CommitTree(ctx, c)
}

// bringHome copies the quarantine's objects into the user's repository.
// Existing ones are left as they are.
func (q *quarantine) bringHome(ctx context.Context, home git.Repo) error {
	ids, err := q.loose()
	if err != nil || len(ids) == 0 {
		return err
	}
	pack, err := q.repo.Ask(ctx, strings.NewReader(strings.Join(ids, "\n")+"\n"), "pack-objects", "--stdout", "-q")
	if err != nil {
		return fmt.Errorf("pack the merge: %w", err)
	}
	if _, err := durable(home).Feed(ctx, strings.NewReader(string(pack)), "unpack-objects", "-q"); err != nil {
		return fmt.Errorf("store the merge: %w", err)
	}
	return nil
}

// loose lists the ids of the quarantine's loose objects.
func (q *quarantine) loose() ([]string, error) {
	fans, err := os.ReadDir(q.objects())
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, fan := range fans {
		if len(fan.Name()) != 2 {
			continue
		}
		files, err := os.ReadDir(filepath.Join(q.objects(), fan.Name()))
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			if id := fan.Name() + f.Name(); !strings.HasPrefix(f.Name(), "tmp_obj_") {
				ids = append(ids, id)
			}
		}
	}
	return ids, nil
}

// durable returns repo with everything that it writes flushed to the disk.
func durable(repo git.Repo) git.Repo {
	repo.Config = append(repo.Config[:len(repo.Config):len(repo.Config)], "core.fsync=all", "core.fsyncMethod=fsync")
	return repo
}

// person returns who makes the merge commit: the user, where the environment
// or git's configuration knows them.
func person(ctx context.Context, repo git.Repo) (git.Person, error) {
	env := repo.Git.Env
	if env == nil {
		env = os.Environ()
	}
	var p git.Person
	for _, kv := range env {
		switch name, value, _ := strings.Cut(kv, "="); name {
		case "GIT_COMMITTER_NAME":
			p.Name = value
		case "GIT_COMMITTER_EMAIL":
			p.Email = value
		}
	}
	if p.Name != "" && p.Email != "" {
		return p, nil
	}
	p, known, err := repo.Committer(ctx)
	if err != nil || known {
		return p, err
	}
	return nobody, nil
}
