package snapshot

import (
	"context"
	"crypto/sha256"
	"fmt"
	"iter"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	agents "github.com/cleveragents/agents"
)

// Tracker captures and restores a fixed set of directories. It may be used
// from several goroutines, which then take turns, and from several processes
// with the same cache file. It works on Linux; elsewhere its methods are
// agents.ErrUnsupported.
type Tracker struct {
	store     *Store
	roots     []Root
	cacheFile string
	config    oid // what a cache must have been written for

	mu    sync.Mutex
	seeds map[string]*seed // by root
}

// seed is what the caller knows to be stored: contents by path, and trees.
type seed struct {
	files map[string]seedFile
	trees map[oid]bool
}

type seedFile struct {
	mode uint32
	id   oid
}

// NewTracker returns a tracker of roots that records into store. The cache
// file says what the last scan saw; missing, damaged or another tracker's, it
// costs a full scan and is no error. Neither it nor the store may lie in a
// root, except below a path that is skipped.
func NewTracker(store *Store, roots []Root, cacheFile string) (*Tracker, error) {
	if len(roots) == 0 {
		return nil, fmt.Errorf("track directories: none given: %w", agents.ErrInvalid)
	}
	names := map[string]bool{}
	for _, r := range roots {
		if err := checkRoot(r); err != nil {
			return nil, err
		}
		if names[r.Name] {
			return nil, fmt.Errorf("root %q is given twice: %w", r.Name, agents.ErrInvalid)
		}
		names[r.Name] = true
	}
	t := &Tracker{store: store, roots: slices.Clone(roots), cacheFile: cacheFile, seeds: map[string]*seed{}}
	t.config = t.configuration()
	return t, nil
}

func checkRoot(r Root) error {
	bad := r.Name == "" || r.Name == "." || r.Name == ".." || strings.EqualFold(r.Name, ".git") ||
		strings.ContainsAny(r.Name, "/\x00") || r.Name == attributesName || len(r.Name) > 255
	if bad {
		return fmt.Errorf("root name %q: %w", clip(r.Name), agents.ErrInvalid)
	}
	if !filepath.IsAbs(r.Dir) {
		return fmt.Errorf("root %s: directory %q is not absolute: %w", r.Name, clip(r.Dir), agents.ErrInvalid)
	}
	for _, p := range r.Skip {
		if checkPath(p) != nil || p == "" {
			return fmt.Errorf("root %s: path %q to skip: %w", r.Name, clip(p), agents.ErrInvalid)
		}
	}
	return nil
}

// checkPath refuses what is not a clean relative slash path.
func checkPath(p string) error {
	if p == "" {
		return nil
	}
	for _, name := range strings.Split(p, "/") {
		if name == "" || name == "." || name == ".." || strings.ContainsRune(name, 0) {
			return fmt.Errorf("path %q: %w", clip(p), agents.ErrInvalid)
		}
	}
	return nil
}

// configuration stands for what the cache depends on.
func (t *Tracker) configuration() oid {
	h := sha256.New()
	fmt.Fprintf(h, "stat cache 1 %s %d %d\n", t.store.f.name, entrySize, strconv.IntSize)
	for _, r := range t.roots {
		skip := slices.Clone(r.Skip)
		slices.Sort(skip)
		fmt.Fprintf(h, "%q %q %q %v\n", r.Name, r.Dir, skip, r.Exact)
	}
	return oid(h.Sum(nil))
}

// root returns the root with this name.
func (t *Tracker) root(name string) (Root, error) {
	for _, r := range t.roots {
		if r.Name == name {
			return r, nil
		}
	}
	return Root{}, fmt.Errorf("root %q: %w", clip(name), agents.ErrInvalid)
}

// Seed tells the next Capture, if it has no cache to start from, which
// contents are stored already: what a fresh checkout wrote, with the ids of
// the index. Files that are not listed, or not of the listed kind, are read.
// Trees among known (mode 0o040000) save writing them. The caller vouches
// that nothing has changed a listed file since; a second Seed of a root
// replaces the first.
func (t *Tracker) Seed(ctx context.Context, root string, known iter.Seq[Seeded]) error {
	if _, err := t.root(root); err != nil {
		return err
	}
	s := &seed{files: map[string]seedFile{}, trees: map[oid]bool{}}
	for k := range known {
		if err := ctx.Err(); err != nil {
			return err
		}
		id, err := t.store.f.parse(k.ID)
		if err != nil {
			return fmt.Errorf("seed %q: %w", clip(k.Path), err)
		}
		switch k.Mode {
		case modeTree:
			s.trees[id] = true
		case modeFile, modeExec, modeLink:
			s.files[k.Path] = seedFile{k.Mode, id}
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.seeds[root] = s
	return nil
}
