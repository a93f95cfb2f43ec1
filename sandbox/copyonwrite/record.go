package copyonwrite

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/sandbox"
	"github.com/cleveragents/agents/sandbox/internal/folder"
)

// record is sandbox.json. It is written before anything is made outside the
// private folder (Ready is false then), so that Remove finds everything after
// a kill at any moment.
type record struct {
	Version   int    `json:"version"`
	Ready     bool   `json:"ready"`
	SandboxID string `json:"sandbox_id"`
	PlanID    string `json:"plan_id"`
	Path      string `json:"path"`       // the sandbox's directory
	Entry     string `json:"entry"`      // its name
	Near      string `json:"near"`       // the private folder's part beside the sandbox; "" = no such part
	Dir       string `json:"dir"`        // the directory that was copied, links in its path resolved
	File      string `json:"file"`       // a single file's name in Dir; "" = the whole directory is the resource
	Base      string `json:"base"`       // the base store
	BaseState string `json:"base_state"` // the state that changes are counted from; "" = not recorded yet
	Origin    string `json:"origin"`     // what lay at each path of the resource then: a name in the base store
	Objects   string `json:"objects"`    // where states were captured last; "" = nowhere yet
	Begun     int64  `json:"begun"`      // nanoseconds since 1970, when the copy began; see settled
	Boot      string `json:"boot"`       // the machine's run in which the copy was made
	Synced    bool   `json:"synced"`     // the copy is on the disk: it outlives that run
}

const recordVersion = 1

// loadRecord reads sandbox.json. None is agents.ErrNotFound; one that cannot
// be understood is agents.ErrDamaged.
func loadRecord(privateDir string) (rec record, err error) {
	err = folder.Load(privateDir, recordVersion, &rec)
	return rec, err
}

// save publishes the record.
func (b *box) save() error {
	b.rec.Version = recordVersion
	return folder.Save(b.ws.PrivateDir, b.rec)
}

// The keys of Workspace.Metadata by which another life of the sandbox is made
// on the same base (beside sandbox.MetaBaseRef).
const (
	metaBase   = "base_store"
	metaOrigin = "origin"
)

// metadata is the specification's context metadata.
func (rec record) metadata() map[string]string {
	m := map[string]string{
		"strategy":     string(agents.CopyOnWrite),
		"original":     filepath.Join(rec.Dir, rec.File),
		"sandbox_path": rec.Path,
		metaBase:       rec.Base,
		metaOrigin:     rec.Origin,
	}
	if rec.BaseState != "" {
		m[sandbox.MetaBaseRef] = rec.BaseState
	}
	return m
}

// whole is agents.ErrBlocked where the machine has stopped before the copy was
// on the disk: files of it may be empty or cut.
func (rec record) whole() error {
	if rec.Synced || rec.Boot == bootID() {
		return nil
	}
	err := fmt.Errorf("the machine stopped before the copy in %s was on the disk: %w", rec.Path, agents.ErrBlocked)
	return agents.WithHint(err, "the plan's next call makes the sandbox again from its newest checkpoint")
}

// settled reports whether a time of change is so long before the copy that the
// file cannot have changed again within one tick of its clock: else its times
// do not tell whether it has.
func (rec record) settled(ctime int64) bool {
	return ctime > 0 && ctime < rec.Begun-int64(2*time.Second)
}

// bootID names the machine's present run; "" where it has no such name.
func bootID() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return string(id)
}
