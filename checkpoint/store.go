// Package checkpoint keeps the payloads of checkpoints: stage, publish, open,
// verify, delete, sweep, and the byte quota (checkpointing.md, "Checkpoint";
// sandbox.md, "Checkpoint and Rollback Hooks").
//
// A strategy captures into folders that it gets from here and owns what is in
// them; this package owns their names, when they count, whether they still are
// what was written, and when they go. It leaves rows, order, retention and
// rollback to others. Manager has the specification's four calls as a view.
package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/fsx"
)

// Names in the store's directory and in that of a plan; ids cannot be equal to
// one, since theirs are 26 capitals and digits.
const (
	locksName   = "locks"   // <dir>/locks/<n>.lock
	trashName   = "trash"   // <dir>/trash/<…>: what is being deleted
	stagesName  = "stages"  // <plan>/stages/<…>: payloads that are not published
	objectsName = "objects" // <plan>/objects/<sandbox>
	partsName   = "parts"   // <plan>/<checkpoint>/parts/<sandbox>
)

// lockCount is how many locks all plans share; their number does not grow with
// the plans that ever were.
const lockCount = 64

// lockPatience is how long a call waits for another process that collects
// garbage of a plan.
const lockPatience = 5 * time.Minute

// Store is the payload store of all plans. It may be used from several
// goroutines, and its directory from several processes.
type Store struct {
	dir     string
	objects ObjectStore

	inProcess [lockCount]sync.Mutex // in front of the lock files, so that goroutines do not poll

	mu       sync.Mutex
	stages   map[string]bool     // lock files of the stages that this Store holds
	measures map[string]*measure // by plan
}

// ObjectStore checks and prunes the object stores of sandboxes.
type ObjectStore interface {
	// Verify reports whether everything that the states refs need is in the
	// store at dir, or can be read through it, unchanged; agents.ErrDamaged
	// if not.
	Verify(ctx context.Context, dir string, refs []string) error
	// Collect removes what no state of keep needs and returns the bytes that
	// this freed.
	Collect(ctx context.Context, dir string, keep []string) (freed int64, err error)
}

// Options are what a Store can be told. The zero value is what the product uses.
type Options struct {
	Objects ObjectStore // nil = git-format stores as internal/snapshot writes them
}

// Open returns the store in dir, which is made when something is written.
func Open(dir string, opts ...Options) (*Store, error) {
	if !filepath.IsAbs(dir) {
		return nil, fmt.Errorf("checkpoint store %q: want an absolute path: %w", dir, agents.ErrInvalid)
	}
	if fi, err := os.Stat(dir); err == nil && !fi.IsDir() {
		return nil, fmt.Errorf("checkpoint store %s is not a directory: %w", dir, agents.ErrInvalid)
	}
	s := &Store{dir: filepath.Clean(dir), objects: snapshotObjects{}, stages: map[string]bool{}}
	for _, o := range opts {
		if o.Objects != nil {
			s.objects = o.Objects
		}
	}
	return s, nil
}

// Dir returns the store's directory.
func (s *Store) Dir() string { return s.dir }

// nowhere is a path that every system call refuses. It stands for ids that
// are none, so that text from outside never becomes a path.
const nowhere = "\x00"

// Objects returns the folder shared by all captures of a sandbox. It need not
// exist. For an id that is none it is a path that cannot be opened or made.
func (s *Store) Objects(planID, sandboxID string) string {
	if !agents.ValidID(planID) || !agents.ValidID(sandboxID) {
		return nowhere
	}
	return filepath.Join(s.dir, planID, objectsName, sandboxID)
}

// PartDir returns the folder that a published checkpoint has of one sandbox. It
// is not there when nothing was put into it.
// For an id that is none it is a path that cannot be opened or made.
func (s *Store) PartDir(planID, id, sandboxID string) string {
	if !agents.ValidID(planID) || !agents.ValidID(id) || !agents.ValidID(sandboxID) {
		return nowhere
	}
	return filepath.Join(s.dir, planID, id, partsName, sandboxID)
}

// Plans returns the ids of the plans that have a directory here, sorted.
func (s *Store) Plans() ([]string, error) { return ids(s.dir) }

// Checkpoints returns the ids of a plan's published checkpoints, sorted,
// damaged ones too.
func (s *Store) Checkpoints(planID string) ([]string, error) {
	if err := valid("plan", planID); err != nil {
		return nil, err
	}
	return ids(filepath.Join(s.dir, planID))
}

// ids returns the names in dir that are ids.
func ids(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list checkpoint store: %w", err)
	}
	var out []string
	for _, e := range entries {
		if e.IsDir() && agents.ValidID(e.Name()) {
			out = append(out, e.Name())
		}
	}
	return out, nil
}

// Writable makes sure that something can be written into the store, by doing
// so (ADR-015, "require_checkpoints"). The error says why not.
func (s *Store) Writable() error {
	if err := s.probe(); err != nil {
		return fmt.Errorf("checkpoint store %s cannot be written: %w", s.dir, noSpace(err))
	}
	return nil
}

func (s *Store) probe() error {
	if err := fsx.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	path := filepath.Join(s.dir, ".probe-"+token())
	err := fsx.WriteFile(path, make([]byte, 4096), 0o600)
	if rerr := fsx.Remove(path); err == nil {
		err = rerr
	}
	return err
}

// noSpace gives an error of a full disk the class that callers ask for.
func noSpace(err error) error {
	if fsx.IsNoSpace(err) && !errors.Is(err, agents.ErrNoSpace) {
		return fmt.Errorf("%w: %w", err, agents.ErrNoSpace)
	}
	return err
}

// valid is agents.ErrInvalid for an id that is none.
func valid(what, id string) error {
	if !agents.ValidID(id) {
		return fmt.Errorf("%s id %q is not an id: %w", what, clip(id), agents.ErrInvalid)
	}
	return nil
}

func clip(s string) string {
	if len(s) > 40 {
		return s[:40] + "…"
	}
	return s
}

// token returns a name that is not in use.
func token() string { return strconv.FormatUint(rand.Uint64(), 36) }

// locked runs fn while nobody else, in this process or another, makes or
// sweeps stages of the plan or collects its garbage.
func (s *Store) locked(ctx context.Context, planID string, fn func() error) error {
	h := fnv.New32a()
	h.Write([]byte(planID))
	n := h.Sum32() % lockCount
	s.inProcess[n].Lock()
	defer s.inProcess[n].Unlock()
	ctx, cancel := context.WithTimeout(ctx, lockPatience)
	defer cancel()
	lock, err := fsx.WaitLock(ctx, filepath.Join(s.dir, locksName, strconv.Itoa(int(n))+".lock"), "checkpoint store")
	if err != nil {
		return fmt.Errorf("checkpoint store: %w", noSpace(err))
	}
	defer lock.Release()
	return fn()
}
