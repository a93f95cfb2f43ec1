package snapshot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/fsx"
)

// scanTries is how often a scan begins again because files go away under it.
const scanTries = 4

// Capture records the present state of the roots. It is complete or refused:
// a file that cannot be read, or keeps changing while it is read
// (agents.ErrConflict), is an error that names it. Everything the state needs
// is durable when Capture returns.
func (t *Tracker) Capture(ctx context.Context, opts CaptureOptions) (Captured, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.checkCapture(opts); err != nil {
		return Captured{}, fmt.Errorf("capture: %w", err)
	}
	lock, err := t.store.lock(ctx)
	if err != nil {
		return Captured{}, fmt.Errorf("capture: %w", err)
	}
	defer lock.Release()
	captured, err := t.capture(ctx, opts)
	if err != nil {
		return Captured{}, fmt.Errorf("capture: %w", err)
	}
	return captured, nil
}

func (t *Tracker) checkCapture(opts CaptureOptions) error {
	if opts.Parent != "" {
		if _, err := t.store.f.parse(opts.Parent); err != nil {
			return err
		}
	}
	for _, p := range opts.Paths {
		if _, err := t.root(p.Root); err != nil {
			return err
		}
		if err := checkPath(p.Path); err != nil {
			return err
		}
	}
	return nil
}

// capture is Capture for callers that hold the locks.
func (t *Tracker) capture(ctx context.Context, opts CaptureOptions) (Captured, error) {
	rec, err := t.record(ctx, recordOptions{paths: opts.Paths})
	if err != nil {
		return Captured{}, err
	}
	defer rec.close()
	return t.publish(ctx, rec, opts)
}

// recording is a state that was scanned and read, and not yet published.
type recording struct {
	recorder
	tree oid
}

// recordOptions are what a recording may be told.
type recordOptions struct {
	paths []Path       // only these may have changed; none = anything may
	base  map[oid]bool // what need not be stored
	aside bool         // nothing is stored: the recording is only looked at
}

// record scans the roots and makes all objects of the present state.
func (t *Tracker) record(ctx context.Context, opts recordOptions) (*recording, error) {
	if err := t.store.sweep(); err != nil {
		return nil, err
	}
	for range scanTries {
		rec, err := t.recordOnce(ctx, opts)
		if !errors.Is(err, errMoving) {
			return rec, err
		}
		opts.paths = nil // what else changes is not among the known ones
	}
	return nil, agents.WithHint(fmt.Errorf("%w: %w", errMoving, agents.ErrConflict),
		"stop the programs that write there and try again")
}

func (t *Tracker) recordOnce(ctx context.Context, opts recordOptions) (*recording, error) {
	if err := t.refuseMounts(); err != nil {
		return nil, err
	}
	roots, err := openRoots(t.roots)
	if err != nil {
		return nil, err
	}
	c, whole := t.loadCache()
	if !whole {
		opts.paths = nil
	}
	rec := &recording{recorder: recorder{
		scanner: &scanner{ctx: ctx, c: c, roots: roots, exact: slices.ContainsFunc(t.roots, func(r Root) bool { return r.Exact }), start: fileClock()},
		pack:    newPackWriter(t.store.packDir(), t.store.f, t.store.sound),
		seeds:   t.seeds,
		base:    opts.base,
	}}
	if opts.aside {
		rec.pack.setAside()
	} else if t.store.clone {
		rec.clones = newCloneWriter(t.store.clonesDir(), t.store.f)
	}
	if rec.tree, err = rec.make(opts.paths); err != nil {
		return nil, errors.Join(rec.needs(err), rec.close())
	}
	return rec, nil
}

// refuseMounts refuses roots in which something is mounted: what is there is
// somebody else's, and no part of a state.
func (t *Tracker) refuseMounts() error {
	for _, r := range t.roots {
		mounts, err := fsx.MountsBelow(r.Dir)
		if err != nil {
			return &fs.PathError{Op: "look for mounts in", Path: r.Dir, Err: err}
		}
		for _, at := range mounts {
			if real, err := filepath.EvalSymlinks(r.Dir); err == nil && at != real {
				return agents.WithHint(fmt.Errorf("%s is mounted there: %w", at, agents.ErrBlocked), "unmount it: umount %s", at)
			}
		}
	}
	return nil
}

// needs adds to an error of a full disk how much room was wanted, and where.
func (rec *recording) needs(err error) error {
	if !fsx.IsNoSpace(err) {
		return err
	}
	var size uint64
	for _, j := range rec.jobs {
		size += j.was.size
	}
	return agents.WithHint(fmt.Errorf("%w: the files to record have %d bytes", err, size),
		"free that much in %s, or delete checkpoints, and try again", rec.pack.dir)
}

func (rec *recording) make(paths []Path) (oid, error) {
	if err := rec.scan(paths); err != nil {
		return oid{}, err
	}
	if paths != nil && rec.readsLinked() {
		return oid{}, errMoving // its other names are not among the known paths
	}
	if err := rec.read(); err != nil {
		return oid{}, err
	}
	rec.findLinks()
	return rec.trees()
}

// close drops what was not published. It may be called after publish.
func (rec *recording) close() error {
	closeRoots(rec.roots)
	rec.roots = nil
	err := rec.pack.discard()
	if rec.clones != nil {
		err = errors.Join(err, rec.clones.discard())
	}
	rec.c.unmap()
	return err
}

// commit makes the recording's commit.
func (rec *recording) commit(opts CaptureOptions) (oid, error) {
	when := opts.When
	if when.IsZero() {
		when = time.Now()
	}
	var z deflater
	return rec.pack.add(kindCommit, rec.pack.f.encodeCommit(rec.tree, opts.Parent, opts.Label, when), &z)
}

// publish makes a recording a state: its commit, the pack, the cache.
func (t *Tracker) publish(ctx context.Context, rec *recording, opts CaptureOptions) (Captured, error) {
	f := t.store.f
	out := Captured{
		TreeID: f.hex(rec.tree), FilesRead: int(rec.files.Load()), BytesRead: rec.bytes.Load(),
		LeftOut: rec.specials(), Notices: volatileRoots(rec.roots),
	}
	c := rec.c
	if c.lastTree != rec.tree || !t.store.sound(c.lastRef) {
		ref, err := rec.commit(opts)
		if err != nil {
			return Captured{}, err
		}
		out.Changed = true
		c.lastRef, c.lastTree, c.changedRef = ref, rec.tree, true
	}
	if err := ctx.Err(); err != nil {
		return Captured{}, err
	}
	var cloned int64
	if rec.clones != nil {
		var err error
		if cloned, err = rec.clones.publish(); err != nil {
			return Captured{}, fmt.Errorf("store clones: %w", rec.needs(err))
		}
	}
	_, size, err := rec.pack.publish()
	if err != nil {
		return Captured{}, fmt.Errorf("store objects: %w", rec.needs(err))
	}
	size += cloned
	if size > 0 {
		if err := t.store.refresh(); err != nil {
			return Captured{}, err
		}
	}
	out.Ref, out.BytesAdded = f.hex(c.lastRef), size
	t.seeds = map[string]*seed{}
	// The state is whole and durable. What follows makes later ones cheaper.
	if err := t.store.join(ctx); err != nil {
		out.Notices = append(out.Notices, fmt.Sprintf("packs were not joined: %v", err))
	}
	if err := t.saveCache(c); err != nil {
		out.Notices = append(out.Notices, fmt.Sprintf("the stat cache was not written, so the next capture reads more: %v", err))
	}
	return out, nil
}

// specials lists what the state does not hold.
func (sc *scanner) specials() []agents.PathReason {
	var out []agents.PathReason
	sc.leftOut(func(r *scanRoot, path string, mode uint32) {
		out = append(out, agents.PathReason{Resource: r.Name, Path: path, Reason: specialName(mode)})
	})
	slices.SortFunc(out, func(a, b agents.PathReason) int {
		return cmp.Or(cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Path, b.Path))
	})
	return out
}

// loadCache returns what the cache file knows. whole is false where the store
// does not have all of that any more, so that everything must be looked at.
func (t *Tracker) loadCache() (c *cache, whole bool) {
	c, err := mapCache(t.cacheFile, t.config)
	if err != nil {
		return newCache(), false
	}
	if c.digest == t.store.digest() {
		return c, true
	}
	return c, c.distrust(t.store.sound)
}

// mapCache maps and decodes a cache file.
func mapCache(path string, config oid) (*cache, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil || fi.Size() < frameHead || !fi.Mode().IsRegular() {
		return nil, errCache
	}
	b, err := unix.Mmap(int(f.Fd()), 0, int(fi.Size()), unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_POPULATE)
	if err != nil {
		return nil, err
	}
	c, err := decodeCache(b, config)
	if err != nil {
		return nil, errors.Join(err, unix.Munmap(b))
	}
	c.mapped = b
	return c, nil
}

// unmap lets go of the file. The cache must not be used afterwards.
func (c *cache) unmap() {
	if c.mapped != nil {
		_ = unix.Munmap(c.mapped)
		c.mapped, c.dirs = nil, nil
	}
}

// saveCache writes what has changed: as a frame at the end of the file, or the
// whole file anew when the changes have grown. The cache is not synced: a
// crash that loses a part of it costs time alone.
func (t *Tracker) saveCache(c *cache) error {
	digest := t.store.digest()
	changes := []byte(nil)
	if c.end > 0 {
		if digest == c.digest && !c.dirtied() {
			return nil
		}
		c.digest = digest
		changes = c.encodeChanges(t.config)
	}
	c.digest = digest
	if c.end == 0 || c.end-c.first+len(changes) > c.first/2+1<<20 {
		return t.writeCache(c.encodeWhole(t.config))
	}
	f, err := fsx.OpenFile(t.cacheFile, os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(changes, int64(c.end))
	return errors.Join(err, f.Close())
}

func (t *Tracker) writeCache(b []byte) error {
	if err := fsx.MkdirAll(filepath.Dir(t.cacheFile), 0o700); err != nil {
		return err
	}
	tmp := t.cacheFile + ".new"
	f, err := fsx.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, removeIfThere(tmp))
	}
	return fsx.Rename(tmp, t.cacheFile)
}

// dirtied reports whether anything differs from the file.
func (c *cache) dirtied() bool {
	return c.changedRef || slices.ContainsFunc(c.dirs, func(d *dir) bool { return d != nil && d.dirty })
}

// distrust marks what the store does not have for being read and made again,
// and reports whether no file is among it.
func (c *cache) distrust(has func(oid) bool) bool {
	whole := true
	for _, d := range c.dirs {
		if d == nil {
			continue
		}
		if d.attrs != (oid{}) {
			d.hash = true
		}
		for i := range d.entries {
			e := &d.entries[i]
			if special(e.mode) || e.flags&flagInBase != 0 || has(e.id) {
				continue
			}
			if e.child != 0 {
				c.dirs[e.child].hash = true
				continue
			}
			d.own()
			d.entries[i].ctime = 0 // no file has it: read it again
			whole = false
		}
	}
	return whole
}
