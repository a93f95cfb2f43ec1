package gitworktree

import (
	"maps"
	"path/filepath"
	"strings"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/git"
	"github.com/cleveragents/agents/sandbox/internal/folder"
)

// record is sandbox.json. It is written before anything is made outside the
// private folder (Ready is false then), so that Remove finds everything after
// a kill at any moment.
type record struct {
	Version   int      `json:"version"`
	Ready     bool     `json:"ready"`
	SandboxID string   `json:"sandbox_id"`
	PlanID    string   `json:"plan_id"`
	Path      string   `json:"path"`   // the sandbox's directory
	Entry     string   `json:"entry"`  // its name, and that of the placeholder's worktree entry
	Near      string   `json:"near"`   // the private folder's part beside the sandbox; "" = no such part
	Branch    string   `json:"branch"` // refs/heads/cleveragents/plan-…
	User      userRepo `json:"user"`

	Base        string `json:"base"`         // the commit that changes are counted from, unless the marker names another of Bases
	Start       string `json:"start"`        // what was checked out first: Base, or a commit of an earlier life
	Before      string `json:"before"`       // what our branch held before Create; "" = it was not there
	OriginalRef string `json:"original_ref"` // the branch that Apply goes to; "" = the detached head
	Tip         string `json:"tip"`          // what our branch in the user's repository holds; "" = not made by us
	NextTip     string `json:"next_tip"`     // what it is about to hold
	BaseState   string `json:"base_state"`   // the first captured state; "" = none yet

	Partial     bool     `json:"partial"`     // objects may be missing and come from a remote
	RawOnly     bool     `json:"raw_only"`    // checkout converts line ends: no file can be taken to equal its blob
	Included    []string `json:"included"`    // ignored files that were copied in
	Uncommitted string   `json:"uncommitted"` // the tree that the plan started from, where it is not the base's

	// Bases are all commits that were the base, with the tree of uncommitted
	// changes that went with each ("" = none). Which one counts is written in
	// the private common directory (see marker), so that it comes and goes
	// with the recorded states.
	Bases map[string]string `json:"bases"`
}

// userRepo says where the user's repository is.
type userRepo struct {
	Root      string `json:"root"`
	GitDir    string `json:"git_dir"`
	CommonDir string `json:"common_dir"`
	Objects   string `json:"objects"`
	Bare      bool   `json:"bare"`
	Format    string `json:"format"` // sha1 or sha256
}

func (u userRepo) repo(run *git.Runner) git.Repo {
	r := git.Repo{Git: run, GitDir: u.GitDir}
	if !u.Bare {
		r.WorkTree = u.Root
	}
	return r
}

const recordVersion = 1

// loadRecord reads sandbox.json. None is agents.ErrNotFound; one that cannot
// be understood is agents.ErrDamaged.
func loadRecord(privateDir string) (rec record, err error) {
	err = folder.Load(privateDir, recordVersion, &rec)
	return rec, err
}

// save publishes the record.
func (rec record) save(privateDir string) error {
	rec.Version = recordVersion
	return folder.Save(privateDir, rec)
}

// marker is the file in the private common directory that names the present
// base. A plan can write there, so it only chooses among the record's Bases.
const marker = "agents-base"

// settleBase takes over the base that the marker names.
func (b *box) settleBase() {
	text, err := readRegular(filepath.Join(b.planDir(), marker))
	if err != nil {
		return
	}
	id := strings.TrimSpace(string(text))
	if uncommitted, known := b.rec.Bases[id]; known {
		b.rec.Base, b.rec.Uncommitted = id, uncommitted
	}
}

// knowBase makes a commit one that the marker may name, durably.
func (b *box) knowBase(base, uncommitted string) error {
	if known, ok := b.rec.Bases[base]; ok && known == uncommitted {
		return nil
	}
	b.rec.Bases = maps.Clone(b.rec.Bases)
	if b.rec.Bases == nil {
		b.rec.Bases = map[string]string{}
	}
	b.rec.Bases[base] = uncommitted
	return b.save()
}

// save publishes the box's record.
func (b *box) save() error { return b.rec.save(b.ws.PrivateDir) }

// metadata is the specification's context metadata.
func (rec record) metadata() map[string]string {
	return map[string]string{
		"strategy":        string(agents.GitWorktree),
		"branch":          short(rec.Branch),
		"original_branch": short(rec.OriginalRef),
		"base_commit":     rec.Base,
		"worktree_path":   rec.Path,
	}
}
