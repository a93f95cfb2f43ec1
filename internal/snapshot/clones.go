package snapshot

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"

	agents "github.com/cleveragents/agents"
)

// Where the file system clones, a store can keep contents of files as clones:
// files of their own, named by content, which share their blocks with the file
// that was read. They cost what a file's name costs, and the hashing. git does
// not know them: Unfold gives it what it is to see.

const (
	clonesMagic  = "AGCLONE\x01"
	cloneRecord  = 32 + 8 // id and size
	clonesPrefix = "clones-"
)

// clones is a folder of such files, and its index.
type clones struct {
	name string // path; the index has the ending .idx
	f    format
	n    int
	recs []byte // sorted by id
}

func openClones(name string, f format) (*clones, error) {
	b, err := os.ReadFile(name + ".idx")
	if err != nil {
		return nil, err
	}
	body := len(b) - len(clonesMagic) - sha256.Size
	if body < 0 || body%cloneRecord != 0 || string(b[:len(clonesMagic)]) != clonesMagic {
		return nil, fmt.Errorf("index of %s: %w", filepath.Base(name), agents.ErrDamaged)
	}
	if sum := sha256.Sum256(b[:len(b)-sha256.Size]); !bytes.Equal(sum[:], b[len(b)-sha256.Size:]) {
		return nil, fmt.Errorf("index of %s: checksum: %w", filepath.Base(name), agents.ErrDamaged)
	}
	return &clones{name: name, f: f, n: body / cloneRecord, recs: b[len(clonesMagic) : len(clonesMagic)+body]}, nil
}

// clonePath is where a folder of clones has a content.
func clonePath(name, id string) string { return filepath.Join(name, id[:2], id[2:]) }

// find returns the size of a content, if it is there.
func (c *clones) find(id oid) (size int64, ok bool) {
	i := sort.Search(c.n, func(i int) bool { return bytes.Compare(c.recs[i*cloneRecord:i*cloneRecord+32], id[:]) >= 0 })
	if i == c.n || !bytes.Equal(c.recs[i*cloneRecord:i*cloneRecord+32], id[:]) {
		return 0, false
	}
	return int64(binary.BigEndian.Uint64(c.recs[i*cloneRecord+32:])), true
}

func (s *Store) clonesDir() string { return filepath.Join(s.dir, "objects", "clones") }

// refreshClones looks for files of clones that came. The caller holds the
// store's mutex.
func (s *Store) refreshClones() error {
	entries, err := os.ReadDir(s.clonesDir())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		stem, ok := strings.CutSuffix(e.Name(), ".idx")
		name := filepath.Join(s.clonesDir(), stem)
		if !ok || !strings.HasPrefix(stem, clonesPrefix) || s.clones[name] != nil {
			continue
		}
		c, err := openClones(name, s.f)
		if err != nil {
			s.damaged[name] = err
			continue
		}
		if s.clones == nil {
			s.clones = map[string]*clones{}
		}
		s.clones[name] = c
	}
	return nil
}

// cloned returns where the store has an object as a clone.
func (s *Store) cloned(id oid) (path string, size int64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.clonedLocked(id)
}

func (s *Store) clonedLocked(id oid) (path string, size int64, ok bool) {
	for _, c := range s.clones {
		if size, ok := c.find(id); ok {
			return clonePath(c.name, s.f.hex(id)), size, true
		}
	}
	return "", 0, false
}

// copyClone is copyObject for a clone.
func (s *Store) copyClone(ctx context.Context, id oid, path string, size int64, w io.Writer) error {
	f, err := os.Open(path)
	if err == nil {
		defer f.Close()
		err = s.copyChecked(ctx, id, object{kindBlob, size, f}, w)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = agents.ErrDamaged
	}
	if err != nil {
		return fmt.Errorf("blob %s, a clone: %w", s.f.hex(id), err)
	}
	return nil
}

// Unfold stores the contents in which two states differ as git knows them,
// where the store, or the one below, has them as clones alone. The next
// Collect frees what it added.
func (s *Store) Unfold(ctx context.Context, from, to string) error {
	if !s.hasClones() {
		return nil
	}
	cmp, err := s.comparison(ctx, from, to)
	if err != nil {
		return err
	}
	lock, err := s.lock(ctx)
	if err != nil {
		return err
	}
	defer lock.Release()
	w := newPackWriter(s.packDir(), s.f, s.packed)
	var z deflater
	for _, c := range cmp.out {
		for _, it := range []item{c.old, c.new} {
			if !it.isFile() || w.has(it.id) {
				continue
			}
			var content bytes.Buffer
			err := s.copyObject(ctx, it.id, kindBlob, &content)
			if err == nil {
				err = w.put(it.id, kindBlob, content.Bytes(), &z)
			}
			if err != nil {
				return errors.Join(fmt.Errorf("unfold %q: %w", c.path, err), w.discard())
			}
		}
	}
	if _, _, err := w.publish(); err != nil {
		return err
	}
	return s.refresh()
}

// hasClones reports whether the store, or the one below, keeps any.
func (s *Store) hasClones() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.clones) > 0 || s.below != nil && s.below.hasClones()
}

// packed reports whether git can read an object.
func (s *Store) packed(id oid) bool {
	_, _, ok := s.find(id)
	return ok || s.below != nil && s.below.packed(id)
}
