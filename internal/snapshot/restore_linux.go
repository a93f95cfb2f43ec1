package snapshot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/fsx"
)

// Restore puts the roots into the state ref. It captures the present state,
// compares the two, makes the new contents aside, which finds what is damaged
// (agents.ErrDamaged), moves everything under a journal and verifies the
// result by a scan. It touches only what differs, deletes only what the
// present state holds and ref does not, and keeps a directory with something
// in it that no state holds. On error the roots are as before, unless it says
// that taking back failed too: then Recover is to be called again.
func (t *Tracker) Restore(ctx context.Context, ref string, opts RestoreOptions) (Restored, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.checkRestore(opts); err != nil {
		return Restored{}, fmt.Errorf("restore: %w", err)
	}
	lock, err := t.store.lock(ctx)
	if err != nil {
		return Restored{}, fmt.Errorf("restore: %w", err)
	}
	defer lock.Release()
	if err := Recover(ctx, opts.Journal); err != nil {
		return Restored{}, fmt.Errorf("restore: %w", err)
	}
	r := &restorer{t: t, ref: ref, opts: opts, stager: newStager(ctx, t.store, opts.Stage)}
	done, err := r.restore()
	if err != nil {
		return Restored{}, fmt.Errorf("restore state %s: %w", clip(ref), err)
	}
	return done, nil
}

func (t *Tracker) checkRestore(opts RestoreOptions) error {
	if !opts.DryRun && !filepath.IsAbs(opts.Stage) {
		return fmt.Errorf("stage %q is not absolute: %w", clip(opts.Stage), agents.ErrInvalid)
	}
	if !filepath.IsAbs(opts.Journal) {
		return fmt.Errorf("journal %q is not absolute: %w", clip(opts.Journal), agents.ErrInvalid)
	}
	return t.checkCapture(CaptureOptions{Parent: opts.Parent})
}

// restorer is one Restore.
type restorer struct {
	t    *Tracker
	ref  string
	opts RestoreOptions

	present *recording
	before  Captured
	changes []change
	base    map[oid]bool     // what only an alternate has of the state
	alone   map[place]string // what no state holds, and why
	stays   map[place]bool   // directories that hold such things

	stager
	ops []fsx.Op
}

// place is a path of a root.
type place struct{ root, path string }

func (r *restorer) restore() (Restored, error) {
	if _, err := r.t.store.readCommit(r.ctx, r.ref); err != nil {
		return Restored{}, err
	}
	if err := r.compare(); err != nil {
		return Restored{}, err
	}
	defer r.present.close()
	if err := r.checkAlone(); err != nil {
		return Restored{}, err
	}
	out := Restored{Changes: r.list(), Before: r.before.Ref, LeftOut: r.before.LeftOut}
	if r.opts.DryRun || len(r.changes) == 0 {
		return out, nil
	}
	err := r.stage()
	if err == nil {
		err = r.move()
	}
	if err != nil {
		return Restored{}, err
	}
	return out, nil
}

// compare records the present state and finds what differs. Where the store
// has no room for the present state, that is only looked at: a state that is
// recorded must not be out of reach because the disk is full.
func (r *restorer) compare() error {
	cmp, err := r.comparePublished()
	if fsx.IsNoSpace(err) {
		cmp, err = r.compareAside()
	}
	if err != nil {
		return err
	}
	if r.changes, err = r.wholeLinks(cmp.out); err != nil {
		return err
	}
	r.base = map[oid]bool{}
	for id := range cmp.to {
		if !r.t.store.hasDamaged() && !r.t.store.has(id) {
			r.base[id] = true
		}
	}
	return nil
}

func (r *restorer) comparePublished() (*comparer, error) {
	rec, err := r.t.record(r.ctx, recordOptions{})
	if err != nil {
		return nil, err
	}
	var cmp *comparer
	if r.before, err = r.t.publish(r.ctx, rec, r.labelled("before")); err == nil {
		cmp, err = r.t.store.comparison(r.ctx, r.before.Ref, r.ref)
	}
	if err != nil {
		return nil, errors.Join(err, rec.close())
	}
	r.present = rec
	return cmp, nil
}

func (r *restorer) compareAside() (*comparer, error) {
	rec, err := r.t.record(r.ctx, recordOptions{aside: true})
	if err != nil {
		return nil, err
	}
	cmp, err := r.compareWith(rec, "before")
	if err != nil {
		return nil, errors.Join(err, rec.close())
	}
	r.present, r.before = rec, Captured{LeftOut: rec.specials()}
	return cmp, nil
}

// compareWith compares a recording that is only looked at with the target.
func (r *restorer) compareWith(rec *recording, when string) (*comparer, error) {
	ref, err := rec.commit(r.labelled(when))
	if err != nil {
		return nil, err
	}
	defer r.t.store.lend(rec.pack)()
	return r.t.store.comparison(r.ctx, r.t.store.f.hex(ref), r.ref)
}

// labelled are the options of a state before or after this restore.
func (r *restorer) labelled(when string) CaptureOptions {
	return CaptureOptions{Label: when + " the restore of " + r.ref, Parent: r.opts.Parent, When: r.opts.When}
}

// list says what changes for whoever looks at files: a directory counts when
// it comes or goes empty, or is there before and after with other attributes.
func (r *restorer) list() []agents.RestoredPath {
	var out []agents.RestoredPath
	for i, c := range r.changes {
		cameOrWent := c.old.exists() != c.new.exists() && (c.old.isDir() || c.new.isDir())
		if cameOrWent && r.below(i) || !c.new.exists() && r.stays[place{c.root, c.path}] || c.quiet() {
			continue
		}
		action := "restored"
		if !c.new.exists() {
			action = "removed"
		}
		out = append(out, agents.RestoredPath{Resource: c.root, Path: c.path, Action: action})
	}
	return out
}

// below reports whether something below the i-th change changes too.
func (r *restorer) below(i int) bool {
	prefix := join(r.changes[i].path, "")
	for _, c := range r.changes[i+1:] {
		if c.root != r.changes[i].root {
			return false
		}
		if strings.HasPrefix(c.path, prefix) {
			return true
		}
		if c.path > prefix {
			return false
		}
	}
	return false
}

// checkAlone finds what no state holds and what must stay because of it. The
// target must have room beside it.
func (r *restorer) checkAlone() error {
	r.alone, r.stays = map[place]string{}, map[place]bool{}
	for _, p := range r.before.LeftOut {
		r.leaveAlone(place{p.Resource, p.Path}, p.Reason)
	}
	for _, root := range r.t.roots {
		for _, p := range root.Skip {
			if _, err := os.Lstat(filepath.Join(root.Dir, filepath.FromSlash(p))); err == nil {
				r.leaveAlone(place{root.Name, p}, "is not a part of states")
			}
		}
	}
	for _, c := range r.changes {
		at := place{c.root, c.path}
		why, special := r.alone[at]
		if !special && !r.stays[at] || !c.new.exists() || c.new.isDir() && !special {
			continue
		}
		if why == "" {
			why = "it holds what is not recorded"
		}
		return agents.WithHint(fmt.Errorf("%s %q is in the way: %s: %w", c.root, c.path, why, agents.ErrBlocked),
			"remove it and try again")
	}
	return nil
}

func (r *restorer) leaveAlone(p place, why string) {
	r.alone[p] = why
	for path := p.path; strings.Contains(path, "/"); {
		path = path[:strings.LastIndexByte(path, '/')]
		r.stays[place{p.root, path}] = true
	}
}

// stage makes the new contents and the list of operations.
func (r *restorer) stage() error {
	if err := r.begin(); err != nil {
		return err
	}
	err := r.stageAll()
	if err != nil {
		return errors.Join(err, fsx.RemoveAll(r.opts.Stage))
	}
	return nil
}

func (r *restorer) stageAll() error {
	files := 0
	for _, c := range r.changes {
		if c.new.isFile() {
			files++
		}
	}
	for _, c := range r.changes {
		if !c.new.exists() && r.stays[place{c.root, c.path}] {
			continue
		}
		if err := r.ctx.Err(); err != nil {
			return err
		}
		if err := r.operation(c, files <= syncEach); err != nil {
			return fmt.Errorf("%s %q: %w", c.root, c.path, err)
		}
	}
	if err := r.keepTimes(); err != nil {
		return err
	}
	return r.sync(files)
}

// operation turns a change into an operation and stages what it needs.
func (r *restorer) operation(c change, sync bool) error {
	op := fsx.Op{Root: r.rootIndex(c.root), Path: c.path}
	if c.path == "" {
		op.Path = "."
	}
	if op.Root < 0 {
		return fmt.Errorf("is not tracked: %w", agents.ErrInvalid)
	}
	var err error
	if op.Before, err = r.seen(c); err != nil {
		return err
	}
	op.Perm = fileMode(0, c.new.perm)
	switch {
	case !c.new.exists():
	case c.new.isDir():
		err = r.directory(c, r.t.roots[op.Root].Dir, &op)
	case c.keeps() && !r.hasOtherNames(c):
		op.Keep, op.Mtime = true, c.new.time()
	default:
		op.Staged, err = r.make(c.root, c.new, sync)
	}
	r.ops = append(r.ops, op)
	return err
}

// keeps reports whether a file needs other bits or another time alone.
func (c change) keeps() bool {
	a, b := c.old, c.new
	return a.isFile() && b.isFile() && a.id == b.id && a.owner == b.owner && a.xattr == b.xattr &&
		a.link == "" && b.link == "" && a.sparse == b.sparse
}

// hasOtherNames reports whether a file has other names: one of them may lie
// outside of the roots, and must not get the mode that this one had.
func (r *restorer) hasOtherNames(c change) bool {
	var st unix.Stat_t
	err := unix.Lstat(filepath.Join(r.t.roots[r.rootIndex(c.root)].Dir, filepath.FromSlash(c.path)), &st)
	return err != nil || st.Nlink > 1
}

// setXattrs changes the recorded attributes of a path.
func setXattrs(path, from, to string) error {
	set, remove, err := xattrChanges(from, to)
	if err != nil {
		return err
	}
	for _, name := range remove {
		if err := fsx.RemoveXattr(path, name); err != nil {
			return err
		}
	}
	for name, value := range set {
		if err := fsx.SetXattr(path, name, []byte(value)); err != nil {
			return err
		}
	}
	return nil
}

// xattrChanges says what makes one set of attributes another.
func xattrChanges(from, to string) (set map[string]string, remove []string, err error) {
	if from == to {
		return nil, nil, nil
	}
	have, err := decodeXattrs(from)
	if err != nil {
		return nil, nil, err
	}
	want, err := decodeXattrs(to)
	if err != nil {
		return nil, nil, err
	}
	set = map[string]string{}
	for name := range have {
		if _, ok := want[name]; !ok {
			remove = append(remove, name)
		}
	}
	for name, value := range want {
		if old, ok := have[name]; !ok || old != value {
			set[name] = value
		}
	}
	return set, remove, nil
}

func (r *restorer) rootIndex(name string) int {
	for i, root := range r.t.roots {
		if root.Name == name {
			return i
		}
	}
	return -1
}

// seen identifies what is at a path and makes sure that it is what the scan
// saw: what has changed since is in no state.
func (r *restorer) seen(c change) (fsx.Identity, error) {
	path := filepath.Join(r.t.roots[r.rootIndex(c.root)].Dir, filepath.FromSlash(c.path))
	if !c.old.exists() {
		return fsx.Identity{}, nil // PrepareMove looks
	}
	id, err := fsx.Identify(path)
	if err != nil {
		return fsx.Identity{}, err
	}
	e := r.present.entryAt(c.root, c.path)
	if e == nil || id.Ino != e.ino || id.Mtime != e.mtime || id.Ctime != e.ctime || uint64(id.Size) != e.size || id.Mode != e.mode&0o7777 {
		return fsx.Identity{}, fmt.Errorf("changed while it was restored: %w", agents.ErrConflict)
	}
	return id, nil
}

// entryAt returns what a scan saw at a path, or nil.
func (sc *scanner) entryAt(root, path string) *entry {
	names := []string{root}
	if path != "" {
		names = append(names, strings.Split(path, "/")...)
	}
	d := sc.c.top()
	for n, name := range names {
		e := d.entryNamed(name)
		if e == nil || n == len(names)-1 {
			return e
		}
		if e.child == 0 {
			return nil
		}
		d = sc.c.dirs[e.child]
	}
	return nil
}

func (d *dir) entryNamed(name string) *entry {
	for i := range d.entries {
		if string(d.name(i)) == name {
			return &d.entries[i]
		}
	}
	return nil
}

// move changes the roots: all or nothing.
func (r *restorer) move() error {
	in := intent{Stage: []byte(r.opts.Stage), Dirs: r.dirs}
	m, err := r.prepare(in)
	if err != nil {
		return err
	}
	err = m.Run(r.ctx)
	var rec *recording
	if err == nil {
		rec, err = r.verify()
	}
	if err == nil {
		err = m.Commit()
	}
	if err != nil {
		return errors.Join(err, r.takeBack(m, in, rec))
	}
	defer rec.close()
	if err := r.keep(rec); err != nil {
		// The roots are right; a cache that was not written costs a scan.
		_ = removeIfThere(r.t.cacheFile)
	}
	return finish(r.opts.Journal, m, in)
}

// prepare writes the intent and prepares the move.
func (r *restorer) prepare(in intent) (*fsx.Move, error) {
	err := in.write(r.opts.Journal)
	if err != nil {
		return nil, errors.Join(err, fsx.RemoveAll(r.opts.Stage))
	}
	dirs := make([]string, len(r.t.roots))
	for i, root := range r.t.roots {
		dirs[i] = root.Dir
	}
	m, err := fsx.PrepareMove(moveDir(r.opts.Journal), dirs, filepath.Join(r.opts.Stage, "hold"), r.ops)
	if err != nil {
		return nil, errors.Join(err, fsx.RemoveAll(r.opts.Stage), fsx.RemoveAll(r.opts.Journal))
	}
	m.Beside(in.apply, in.revert)
	return m, nil
}

// takeBack ends a move that failed.
func (r *restorer) takeBack(m *fsx.Move, in intent, rec *recording) error {
	var err error
	if rec != nil {
		err = rec.close()
	}
	if m.State() != fsx.MoveUndone {
		if uerr := m.Undo(); uerr != nil {
			return errors.Join(err, fmt.Errorf("take back: %w: %w", uerr, agents.ErrDamaged))
		}
	}
	return errors.Join(err, finish(r.opts.Journal, m, in))
}

// verify scans the result and compares it with the target. It stores nothing,
// so that it needs no room, but where the store is damaged and wants again what
// it has lost.
func (r *restorer) verify() (*recording, error) {
	rec, err := r.t.record(r.ctx, recordOptions{base: r.base, aside: !r.t.store.hasDamaged()})
	if err != nil {
		return nil, fmt.Errorf("verify the result: %w", err)
	}
	target, err := r.t.store.readCommit(r.ctx, r.ref)
	if err == nil && target.tree != rec.tree {
		err = r.explain(rec)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("verify the result: %w", err), rec.close())
	}
	if target.tree == rec.tree {
		rec.c.lastRef, rec.c.lastTree, rec.c.changedRef = r.refID(), target.tree, true
	}
	return rec, nil
}

// keep makes what verify found a state, whose contents are all stored, and
// saves the stat cache.
func (r *restorer) keep(rec *recording) error {
	if err := rec.pack.storeAside(); err != nil {
		return err
	}
	_, err := r.t.publish(r.ctx, rec, r.labelled("after"))
	return err
}

func (r *restorer) refID() oid {
	id, _ := r.t.store.f.parse(r.ref) // readCommit has parsed it
	return id
}

// explain looks for differences to the target that are no directories kept
// for what no state holds.
func (r *restorer) explain(rec *recording) error {
	cmp, err := r.compareResult(rec)
	if err != nil {
		return err
	}
	for _, c := range cmp.out {
		if c.new.exists() || !c.old.isDir() || !r.stays[place{c.root, c.path}] {
			return fmt.Errorf("%s %q is not what the state has: %w", c.root, c.path, agents.ErrConflict)
		}
	}
	return nil
}

func (r *restorer) compareResult(rec *recording) (*comparer, error) {
	if rec.pack.aside != nil {
		return r.compareWith(rec, "after")
	}
	got, err := r.t.publish(r.ctx, rec, r.labelled("after"))
	if err != nil {
		return nil, err
	}
	return r.t.store.comparison(r.ctx, got.Ref, r.ref)
}

// dirChange is another owner or other extended attributes of a directory that
// stays: what a move of names cannot do.
type dirChange struct {
	Path            []byte // raw, which a JSON string could not hold
	Perm, OldPerm   uint32
	Owner, OldOwner [2]uint32
	Xattr, OldXattr string
}

// check makes sure that the directory is still one.
func (d dirChange) check() error {
	fi, err := os.Lstat(string(d.Path))
	if err == nil && !fi.IsDir() {
		err = fmt.Errorf("%s is no directory any more: %w", d.Path, agents.ErrConflict)
	}
	return err
}

func (d dirChange) apply() error {
	if err := d.check(); err != nil {
		return err
	}
	path := string(d.Path)
	if d.Owner != d.OldOwner {
		if err := fsx.Lchown(path, int(d.Owner[0]), int(d.Owner[1])); err != nil {
			return err
		}
	}
	if err := setXattrs(path, d.OldXattr, d.Xattr); err != nil {
		return err
	}
	return fsx.Chmod(path, fileMode(0, d.Perm))
}

// revert undoes apply, also where that did nothing or a part.
func (d dirChange) revert() error {
	if err := d.check(); err != nil {
		return err
	}
	have, err := pathXattrs(string(d.Path))
	if err != nil {
		return err
	}
	old := fsx.Attributes{UID: int(d.OldOwner[0]), GID: int(d.OldOwner[1]), Perm: fileMode(0, d.OldPerm)}
	if old.Set, old.Remove, err = xattrChanges(have, d.OldXattr); err != nil {
		return err
	}
	return fsx.UndoAttributes(string(d.Path), old)
}

// intent is what Recover must know beside the move's own journal.
type intent struct {
	Stage []byte
	Dirs  []dirChange
}

// clear removes the stage.
func (in intent) clear() error {
	if len(in.Stage) == 0 {
		return nil
	}
	return fsx.RemoveAll(string(in.Stage))
}

func moveDir(journal string) string    { return filepath.Join(journal, "move") }
func intentFile(journal string) string { return filepath.Join(journal, "restore.json") }

func (in intent) write(journal string) error {
	b, err := json.Marshal(in)
	if err != nil {
		return err
	}
	if err := fsx.MkdirAll(moveDir(journal), 0o700); err != nil {
		return err
	}
	return fsx.Publish(intentFile(journal), b, 0o600)
}

func (in intent) apply() error {
	for _, d := range in.Dirs {
		if err := d.apply(); err != nil {
			return err
		}
	}
	return nil
}

func (in intent) revert() error {
	var errs []error
	for _, d := range in.Dirs {
		errs = append(errs, d.revert())
	}
	return errors.Join(errs...)
}

// lateDir, beside the journal, has what programs wrote into files that they had
// open, and what was at paths that they changed while a restore was taken back.
func lateDir(journal string) string { return filepath.Join(filepath.Dir(journal), "late") }

// finish forgets a move that is committed or undone.
func finish(journal string, m *fsx.Move, in intent) error {
	if _, err := m.ForgetButLate(lateDir(journal)); err != nil {
		return err
	}
	if err := in.clear(); err != nil {
		return err
	}
	return fsx.RemoveAll(journal)
}

// Recover ends a Restore that was killed: afterwards the roots are as before
// it, or hold the whole state; what somebody changed since stays so. Without a
// journal there is nothing to do. It may be called again after a failure.
func Recover(ctx context.Context, journal string) error {
	if _, err := os.Lstat(journal); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	in, err := readIntent(journal)
	if err != nil {
		return fmt.Errorf("recover a restore: %w", err)
	}
	m, err := fsx.LoadMove(moveDir(journal))
	if errors.Is(err, fs.ErrNotExist) {
		return errors.Join(in.clear(), fsx.RemoveAll(journal))
	}
	if err != nil {
		return fmt.Errorf("recover a restore: %w", err)
	}
	m.Beside(in.apply, in.revert)
	if m.State() == fsx.MovePrepared {
		if _, err := m.UndoLeaving(lateDir(journal)); err != nil {
			return fmt.Errorf("recover a restore: %w", err)
		}
	}
	if err := finish(journal, m, in); err != nil {
		return fmt.Errorf("recover a restore: %w", err)
	}
	return nil
}

// readIntent reads the intent; one that was never published is empty.
func readIntent(journal string) (intent, error) {
	b, err := os.ReadFile(intentFile(journal))
	if errors.Is(err, fs.ErrNotExist) {
		return intent{}, nil
	}
	if err != nil {
		return intent{}, err
	}
	var in intent
	if err := json.Unmarshal(b, &in); err != nil {
		return intent{}, fmt.Errorf("%s: %w: %w", intentFile(journal), agents.ErrDamaged, err)
	}
	return in, nil
}
