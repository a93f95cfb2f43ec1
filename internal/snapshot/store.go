package snapshot

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"sync"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/fsx"
	"github.com/cleveragents/agents/internal/git"
)

// Store keeps states in a bare git layout (HEAD, config, objects, refs), so
// that `git --git-dir=<store> show <ref>` works. Its packs are written by this
// package alone. It may be used from several goroutines and processes at once.
type Store struct {
	dir    string
	f      format
	below  *Store // nil = none
	clone  bool   // contents of files may be clones
	reader ObjectReader

	readerMu sync.Mutex // an ObjectReader serves one goroutine

	mu      sync.Mutex
	packs   map[string]*pack // by path without ending
	clones  map[string]*clones
	order   []*pack          // biggest first: most look-ups end there
	damaged map[string]error // packs that could not be opened
	listed  map[string]int64 // what listPacks said last
	lent    *packWriter      // of a recording that is only looked at; nil = none
}

// Open opens the store in the folder objects, which it makes when missing. A
// store of another hash format is agents.ErrInvalid.
func Open(ctx context.Context, objects string, opts Options) (*Store, error) {
	f, err := formatOf(opts.Format)
	if err != nil {
		return nil, err
	}
	s := &Store{dir: objects, f: f, reader: opts.Reader, clone: opts.Clones, packs: map[string]*pack{}}
	if opts.Below == "" {
		opts.Below = Below(objects)
	}
	if opts.Below != "" {
		if s.below, err = Open(ctx, opts.Below, Options{Format: opts.Format}); err != nil {
			return nil, err
		}
		opts.Alternates = append(slices.Clone(opts.Alternates), filepath.Join(opts.Below, "objects"))
	}
	if err := s.lay(opts); err != nil {
		return nil, fmt.Errorf("open store %s: %w", objects, err)
	}
	if err := s.refresh(); err != nil {
		return nil, fmt.Errorf("open store %s: %w", objects, err)
	}
	return s, ctx.Err()
}

// Close lets go of the store's open files. States stay where they are.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var err error
	for _, p := range s.packs {
		err = errors.Join(err, p.close())
	}
	s.packs, s.order, s.listed, s.clones = map[string]*pack{}, nil, nil, nil
	if s.below != nil {
		err = errors.Join(err, s.below.Close())
	}
	return err
}

// Below returns the folder of the store below the one in this folder, "" when
// it has none.
func Below(objects string) string {
	text, err := os.ReadFile(filepath.Join(objects, belowName))
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(string(text), "\n")
}

// belowName is the file that names the store below.
const belowName = "below"

// lay makes what is missing of the layout.
func (s *Store) lay(opts Options) error {
	for _, dir := range []string{"objects/pack", "objects/info", "refs/heads", "refs/checkpoints"} {
		if err := fsx.MkdirAll(filepath.Join(s.dir, dir), 0o700); err != nil {
			return err
		}
	}
	if err := s.layConfig(); err != nil {
		return err
	}
	if err := s.publishOnce("HEAD", "ref: refs/heads/none\n"); err != nil {
		return err
	}
	var lines strings.Builder
	if opts.Below != "" {
		if err := s.publishOnce(belowName, opts.Below+"\n"); err != nil {
			return err
		}
	}
	for _, dir := range opts.Alternates {
		lines.WriteString(git.QuoteAlternate(dir) + "\n")
	}
	if lines.Len() == 0 {
		return nil
	}
	return s.publishOnce("objects/info/alternates", lines.String())
}

func (s *Store) layConfig() error {
	const sha256Line = "objectformat = sha256"
	text := "[core]\n\trepositoryformatversion = 0\n\tbare = true\n[gc]\n\tauto = 0\n"
	if s.f.name == "sha256" {
		text = "[core]\n\trepositoryformatversion = 1\n\tbare = true\n[extensions]\n\t" + sha256Line + "\n[gc]\n\tauto = 0\n"
	}
	have, err := os.ReadFile(filepath.Join(s.dir, "config"))
	if errors.Is(err, fs.ErrNotExist) {
		return s.publishOnce("config", text)
	}
	if err != nil {
		return err
	}
	if strings.Contains(string(have), sha256Line) != (s.f.name == "sha256") {
		return fmt.Errorf("the store's object format is not %s: %w", s.f.name, agents.ErrInvalid)
	}
	return nil
}

// publishOnce writes a file of the layout unless it says that already.
func (s *Store) publishOnce(name, text string) error {
	path := filepath.Join(s.dir, filepath.FromSlash(name))
	if have, err := os.ReadFile(path); err == nil && string(have) == text {
		return nil
	}
	return fsx.Publish(path, []byte(text), 0o600)
}

func (s *Store) packDir() string { return filepath.Join(s.dir, "objects", "pack") }

// lock keeps other processes from changing the store's packs.
func (s *Store) lock(ctx context.Context) (*fsx.Lock, error) {
	l, err := fsx.WaitLock(ctx, filepath.Join(s.dir, "snapshot.lock"), "writing objects")
	if err != nil {
		return nil, fmt.Errorf("store %s: %w", filepath.Base(s.dir), err)
	}
	return l, nil
}

// sweep removes what a killed process left unfinished, and looks for packs
// that came or went. The caller holds the lock.
func (s *Store) sweep() error {
	top, err := os.ReadDir(s.dir)
	if err != nil {
		return err
	}
	for _, e := range top {
		if strings.HasPrefix(e.Name(), tmpRef) {
			if err := fsx.Remove(filepath.Join(s.dir, e.Name())); err != nil {
				return err
			}
		}
	}
	if err := sweepUnfinished(s.packDir(), ".pack"); err != nil {
		return err
	}
	if err := sweepUnfinished(s.clonesDir(), ""); err != nil {
		return err
	}
	return s.refresh()
}

// sweepUnfinished removes temporary files, and what has this ending and no
// index. A dir that is not there has none.
func sweepUnfinished(dir, ending string) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	names := map[string]bool{}
	for _, e := range entries {
		names[e.Name()] = true
	}
	for name := range names {
		stem, holds := strings.CutSuffix(name, ending)
		holds = holds && filepath.Ext(name) == ending
		if strings.HasPrefix(name, tmpPrefix) || strings.Contains(name, ".idx.tmp-") || holds && !names[stem+".idx"] {
			if err := fsx.RemoveAll(filepath.Join(dir, name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// refresh looks for packs that came or went.
func (s *Store) refresh() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refreshLocked()
}

func (s *Store) refreshLocked() error {
	listed, err := listPacks(s.packDir())
	if err != nil {
		return err
	}
	s.listed, s.damaged = listed, map[string]error{}
	if err := s.refreshClones(); err != nil {
		return err
	}
	for name, p := range s.packs {
		if listed[name] != p.size {
			delete(s.packs, name)
			_ = p.close()
		}
	}
	for name := range listed {
		if s.packs[name] != nil {
			continue
		}
		p, err := openPack(name, s.f)
		if err != nil {
			s.damaged[name] = err
			continue
		}
		s.packs[name] = p
	}
	for name, p := range s.packs {
		p.suspect = isSuspect(name)
	}
	s.order = s.order[:0]
	for _, p := range s.packs {
		s.order = append(s.order, p)
	}
	sort.Slice(s.order, func(i, j int) bool {
		a, b := s.order[i], s.order[j]
		if a.suspect != b.suspect {
			return b.suspect
		}
		return a.n > b.n || a.n == b.n && a.name < b.name
	})
	return nil
}

// digest stands for the set of packs: a stat cache that was written beside
// another set does not know what the store has.
func (s *Store) digest() oid {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := make([]string, 0, len(s.listed))
	for name := range s.listed {
		if p := s.packs[name]; p != nil && !p.suspect {
			names = append(names, name)
		}
	}
	for name := range s.clones {
		names = append(names, name)
	}
	sort.Strings(names)
	h := sha256.New()
	for _, name := range names {
		fmt.Fprintf(h, "%s %d\n", filepath.Base(name), s.listed[name])
	}
	return oid(h.Sum(nil))
}

// Has reports whether the store, or the store below, holds an object.
func (s *Store) Has(id string) bool {
	parsed, err := s.f.parse(id)
	return err == nil && s.sound(parsed)
}

// has reports whether the store's own packs, or the store below, hold an object.
func (s *Store) has(id oid) bool {
	return s.owns(id) || s.below != nil && s.below.has(id)
}

// owns reports whether the store's own packs or clones hold an object.
func (s *Store) owns(id oid) bool {
	if _, _, ok := s.find(id); ok {
		return true
	}
	_, _, ok := s.cloned(id)
	return ok
}

// sound is has, but for what lies in a suspect pack alone: that is written again.
func (s *Store) sound(id oid) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.order {
		if _, ok := p.find(id); ok {
			return !p.suspect
		}
	}
	if _, _, ok := s.clonedLocked(id); ok {
		return true
	}
	return s.below != nil && s.below.sound(id)
}

func (s *Store) find(id oid) (*pack, int, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.order {
		if i, ok := p.find(id); ok {
			return p, i, true
		}
	}
	return nil, 0, false
}

// findFresh is find, with a second look for packs of other processes.
func (s *Store) findFresh(id oid) (*pack, int, bool) {
	if p, i, ok := s.find(id); ok {
		return p, i, true
	}
	if err := s.refresh(); err != nil {
		return nil, 0, false
	}
	return s.find(id)
}

// copyObject writes an object's content to w and checks that it hashes to its
// id. What is missing or damaged is agents.ErrDamaged: states refer to nothing
// that may be missing.
func (s *Store) copyObject(ctx context.Context, id oid, want kind, w io.Writer) error {
	if o, ok := s.lentObject(id); ok && o.kind == want {
		_, err := w.Write(o.content)
		return err
	}
	if path, size, ok := s.cloned(id); ok && want == kindBlob {
		return s.copyClone(ctx, id, path, size, w)
	}
	if s.below != nil && !s.owns(id) && s.below.has(id) {
		return s.below.copyObject(ctx, id, want, w)
	}
	p, i, ok := s.findFresh(id)
	if !ok && s.below != nil {
		return s.below.copyObject(ctx, id, want, w)
	}
	if !ok {
		return s.copyForeign(ctx, id, want, w)
	}
	o, err := p.open(i)
	if errors.Is(err, errDelta) {
		return s.copyForeign(ctx, id, want, w)
	}
	if err == nil && o.kind != want {
		err = fmt.Errorf("is a %s: %w", o.kind, agents.ErrDamaged)
	}
	if err == nil {
		err = s.copyChecked(ctx, id, o, w)
	}
	if err != nil {
		return fmt.Errorf("%s %s in pack %s: %w", want, s.f.hex(id), packID(p.name), s.suspect(p, err))
	}
	return nil
}

// lend lets readers find what a recording has in memory, until the returned
// function is called.
func (s *Store) lend(w *packWriter) (end func()) {
	set := func(to *packWriter) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.lent = to
	}
	set(w)
	return func() { set(nil) }
}

func (s *Store) lentObject(id oid) (asideObject, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lent == nil {
		return asideObject{}, false
	}
	o, ok := s.lent.aside[id]
	return o, ok
}

// suspect marks a pack in which damage was found, and all others that have
// any: it seldom comes alone. It returns that damage.
func (s *Store) suspect(p *pack, err error) error {
	if !errors.Is(err, agents.ErrDamaged) {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.suspect {
		return err
	}
	for _, other := range s.order {
		if other != p && other.intact() {
			continue
		}
		if merr := fsx.WriteFile(other.name+suspectEnding, nil, 0o600); merr != nil {
			return errors.Join(err, merr)
		}
	}
	return errors.Join(err, s.refreshLocked())
}

func (s *Store) copyChecked(ctx context.Context, id oid, o object, w io.Writer) error {
	h := s.f.newObject(o.kind, o.size)
	both := io.MultiWriter(h, w)
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		_, err := io.CopyN(both, o, 8<<20)
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
	}
	if s.f.sum(h) != id {
		return fmt.Errorf("does not hash to its id: %w", agents.ErrDamaged)
	}
	return nil
}

// copyForeign is copyObject for what only the ObjectReader has.
func (s *Store) copyForeign(ctx context.Context, id oid, want kind, w io.Writer) error {
	name := s.f.hex(id)
	if s.reader == nil {
		return fmt.Errorf("%s %s is missing: %w", want, name, agents.ErrDamaged)
	}
	s.readerMu.Lock()
	defer s.readerMu.Unlock()
	infos, err := s.reader.StatObjects(ctx, []string{name})
	switch {
	case err != nil:
		return fmt.Errorf("%s %s: %w", want, name, err)
	case len(infos) != 1 || infos[0].Kind == "":
		return fmt.Errorf("%s %s is missing: %w", want, name, agents.ErrDamaged)
	case infos[0].Kind != want.String():
		return fmt.Errorf("%s %s is a %s: %w", want, name, infos[0].Kind, agents.ErrDamaged)
	}
	h := s.f.newObject(want, infos[0].Size)
	if _, err := s.reader.CopyObject(ctx, name, io.MultiWriter(h, w)); err != nil {
		if errors.Is(err, agents.ErrNotFound) {
			err = fmt.Errorf("%w: %w", agents.ErrDamaged, err)
		}
		return fmt.Errorf("%s %s: %w", want, name, err)
	}
	if s.f.sum(h) != id {
		return fmt.Errorf("%s %s does not hash to its id: %w", want, name, agents.ErrDamaged)
	}
	return nil
}

// hasDamaged reports whether a pack could not be opened, or is suspect.
func (s *Store) hasDamaged() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.damaged) > 0 || len(s.order) > 0 && s.order[len(s.order)-1].suspect || s.below != nil && s.below.hasDamaged()
}

// readObject returns an object's whole content; for trees, commits and
// attributes.
func (s *Store) readObject(ctx context.Context, id oid, want kind) ([]byte, error) {
	var b bytes.Buffer
	if err := s.copyObject(ctx, id, want, &b); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// readCommit reads the commit that ref names.
func (s *Store) readCommit(ctx context.Context, ref string) (commit, error) {
	id, err := s.f.parse(ref)
	if err != nil {
		return commit{}, err
	}
	b, err := s.readObject(ctx, id, kindCommit)
	if err != nil {
		return commit{}, err
	}
	c, err := s.f.parseCommit(b)
	if err != nil {
		return commit{}, fmt.Errorf("commit %s: %w", ref, err)
	}
	return c, nil
}

// readTree reads a tree; the zero id is the tree without entries.
func (s *Store) readTree(ctx context.Context, id oid) ([]treeEntry, error) {
	if id == (oid{}) {
		return nil, nil
	}
	b, err := s.readObject(ctx, id, kindTree)
	if err != nil {
		return nil, err
	}
	entries, err := s.f.parseTree(b)
	if err != nil {
		return nil, fmt.Errorf("tree %s: %w", s.f.hex(id), err)
	}
	return entries, nil
}

// Hold writes refs/checkpoints/<name>, which keeps the commit ref from
// Collect. A name that holds another commit is moved.
func (s *Store) Hold(name, ref string) error {
	path, err := s.refPath(name)
	if err != nil {
		return err
	}
	if _, err := s.f.parse(ref); err != nil {
		return err
	}
	// git takes every file below refs for a ref: the unfinished one is elsewhere.
	tmp := filepath.Join(s.dir, fmt.Sprintf("%s%d", tmpRef, os.Getpid()))
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := removeIfThere(tmp); err != nil {
		return fmt.Errorf("hold %s: %w", name, err)
	}
	if err := fsx.WriteFile(tmp, []byte(ref+"\n"), 0o600); err != nil {
		return errors.Join(fmt.Errorf("hold %s: %w", name, err), removeIfThere(tmp))
	}
	if err := fsx.PublishRename(tmp, path); err != nil {
		return errors.Join(fmt.Errorf("hold %s: %w", name, err), removeIfThere(tmp))
	}
	return nil
}

// tmpRef begins the names of unfinished refs, in the store's own folder.
const tmpRef = "tmp_ref_"

// Release removes refs/checkpoints/<name>; one that is not there is no error.
func (s *Store) Release(name string) error {
	path, err := s.refPath(name)
	if err != nil {
		return err
	}
	if err := fsx.Remove(path); err != nil {
		return fmt.Errorf("release %s: %w", name, err)
	}
	if err := fsx.SyncDir(filepath.Dir(path)); err != nil {
		return fmt.Errorf("release %s: %w", name, err)
	}
	return nil
}

// refPath refuses what git would not take as the last component of a ref.
func (s *Store) refPath(name string) (string, error) {
	bad := name == "" || len(name) > 200 || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "-") ||
		strings.HasSuffix(name, ".") || strings.HasSuffix(name, ".lock") ||
		strings.Contains(name, "..") || strings.Contains(name, "@{")
	for _, c := range []byte(name) {
		bad = bad || c <= ' ' || c >= 0x7f || strings.IndexByte(`~^:?*[\/`, c) >= 0
	}
	if bad {
		return "", fmt.Errorf("ref name %q: %w", clip(name), agents.ErrInvalid)
	}
	return filepath.Join(s.dir, "refs", "checkpoints", name), nil
}

// Held returns the held commits by name. A ref that a crash emptied is
// agents.ErrDamaged.
func (s *Store) Held() (map[string]string, error) {
	dir := filepath.Join(s.dir, "refs", "checkpoints")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("list held states: %w", err)
	}
	held := map[string]string{}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, fmt.Errorf("list held states: %w", err)
		}
		ref := strings.TrimSpace(string(b))
		if _, err := s.f.parse(ref); err != nil {
			return nil, fmt.Errorf("held state %s: %w", e.Name(), agents.ErrDamaged)
		}
		held[e.Name()] = ref
	}
	return held, nil
}

// Size returns the bytes of the store's own objects.
func (s *Store) Size() (int64, error) {
	entries, err := os.ReadDir(s.packDir())
	if err != nil {
		return 0, fmt.Errorf("measure store: %w", err)
	}
	var size int64
	for _, e := range entries {
		fi, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("measure store: %w", err)
		}
		size += fi.Size()
	}
	return size, nil
}
