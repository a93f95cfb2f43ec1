package snapshot

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sort"
	"sync"

	"github.com/cleveragents/agents/internal/fsx"
)

// cloneFrom is the size in bytes from which a content is worth a clone: what is
// smaller takes less room in a pack than a file does.
const cloneFrom = 4096

// cloneWriter makes one folder of clones. Nothing of it can be seen before
// publish. Its methods may be called from several goroutines.
type cloneWriter struct {
	dir string // the folder of such folders
	f   format

	mu      sync.Mutex
	name    string // this one's; "" until something is cloned
	entries []cloneEntry
	have    map[oid]bool
}

type cloneEntry struct {
	id   oid
	size int64
}

func newCloneWriter(dir string, f format) *cloneWriter {
	return &cloneWriter{dir: dir, f: f, have: map[oid]bool{}}
}

// add clones an open file of this size and id.
func (w *cloneWriter) add(id oid, in *os.File, size int64) error {
	path, err := w.reserve(id, size)
	if err != nil || path == "" {
		return err
	}
	out, err := fsx.Create(path, 0o400)
	if err != nil {
		return err
	}
	err = fsx.Clone(out, in)
	if err != nil && !fsx.IsNoSpace(err) { // this one cannot be shared
		_, err = out.ReadFrom(io.NewSectionReader(in, 0, size))
	}
	return errors.Join(err, out.Close())
}

// reserve returns where a content is to be, or "" where another one is at it.
func (w *cloneWriter) reserve(id oid, size int64) (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.have[id] {
		return "", nil
	}
	if w.name == "" {
		var random [8]byte
		_, _ = rand.Read(random[:]) // never fails
		w.name = filepath.Join(w.dir, clonesPrefix+hex.EncodeToString(random[:]))
	}
	w.have[id] = true
	w.entries = append(w.entries, cloneEntry{id, size})
	path := clonePath(w.name, w.f.hex(id))
	return path, fsx.MkdirAll(filepath.Dir(path), 0o700)
}

// publish makes the folder part of the store, durably, and returns how many
// bytes it takes beside the shared ones.
func (w *cloneWriter) publish() (int64, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.name == "" {
		return 0, nil
	}
	idx := w.index()
	err := fsx.SyncFS(w.name)
	if err == nil {
		err = fsx.Publish(w.name+".idx", idx, 0o600)
	}
	if err != nil {
		return 0, err
	}
	w.name = ""
	return int64(len(idx)), nil
}

func (w *cloneWriter) index() []byte {
	sort.Slice(w.entries, func(i, j int) bool { return bytes.Compare(w.entries[i].id[:], w.entries[j].id[:]) < 0 })
	out := append([]byte{}, clonesMagic...)
	for _, e := range w.entries {
		out = append(out, e.id[:]...)
		out = binary.BigEndian.AppendUint64(out, uint64(e.size))
	}
	sum := sha256.Sum256(out)
	return append(out, sum[:]...)
}

// discard drops what was not published.
func (w *cloneWriter) discard() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.name == "" {
		return nil
	}
	name := w.name
	w.name = ""
	return fsx.RemoveAll(name)
}

// clone stores a file's content as a clone, if it is not stored yet.
func (w *reader) clone(j readJob, f *os.File, size int64, content io.Reader) (oid, error) {
	id, err := w.f().idOfStream(kindBlob, size, content)
	if err != nil || w.keeps(j, id) || w.pack.has(id) {
		return id, err
	}
	return id, w.clones.add(id, f, size)
}
