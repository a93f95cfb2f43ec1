package snapshot

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sort"
	"sync"

	"github.com/klauspost/compress/zlib"

	"github.com/cleveragents/agents/internal/fsx"
)

// spillAt is how many bytes of a pack are kept in memory before it becomes a
// temporary file; a checkpoint of a few files never does until it is whole.
const spillAt = 4 << 20

// tmpPrefix begins the names of unfinished packs; git's own gc knows it too.
const tmpPrefix = "tmp_pack_"

// packEntry is an object's place in a pack.
type packEntry struct {
	id  oid
	off uint64
	crc uint32
}

// packWriter makes one pack. Nothing of it can be seen before publish. Its
// methods may be called from several goroutines.
type packWriter struct {
	dir    string // the folder of packs
	f      format
	stored func(oid) bool // reports whether the store has an object already

	mu      sync.Mutex
	file    *fsx.File // nil until spilled
	tmp     string
	buf     []byte // what is not in the file yet
	base    uint64 // where buf begins
	entries []packEntry
	have    map[oid]struct{}

	// aside takes the objects of a pack that is not to be: see setAside.
	aside map[oid]asideObject
}

// asideObject is an object that is in memory alone.
type asideObject struct {
	kind    kind
	content []byte
}

func newPackWriter(dir string, f format, stored func(oid) bool) *packWriter {
	w := &packWriter{dir: dir, f: f, stored: stored, have: map[oid]struct{}{}}
	w.buf = append(w.buf, "PACK\x00\x00\x00\x02\x00\x00\x00\x00"...)
	return w
}

// setAside makes this a pack that stores nothing: trees, attributes and the
// commit are kept in memory, where Store.lend lets readers find them, and the
// contents of files and links are only hashed. It takes no room on a disk.
func (w *packWriter) setAside() { w.aside = map[oid]asideObject{} }

// storeAside makes it an ordinary pack again, with what was kept in memory.
func (w *packWriter) storeAside() error {
	aside := w.aside
	w.aside = nil
	var d deflater
	for id, o := range aside {
		if err := w.put(id, o.kind, o.content, &d); err != nil {
			return err
		}
	}
	return nil
}

// has reports whether an object is in this pack or in the store.
func (w *packWriter) has(id oid) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.hasLocked(id)
}

func (w *packWriter) hasLocked(id oid) bool {
	if _, ok := w.have[id]; ok {
		return true
	}
	if _, ok := w.aside[id]; ok {
		return true
	}
	return w.stored(id)
}

// add stores an object if it is not there yet and returns its id.
func (w *packWriter) add(k kind, content []byte, d *deflater) (oid, error) {
	id := w.f.idOf(k, content)
	if w.has(id) {
		return id, nil
	}
	return id, w.put(id, k, content, d)
}

// put is add for an object of a known id that is not there yet.
func (w *packWriter) put(id oid, k kind, content []byte, d *deflater) error {
	if w.aside == nil {
		return w.append(id, d.entry(k, content))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.aside[id] = asideObject{k, bytes.Clone(content)}
	return nil
}

// append adds a finished entry: header and compressed content.
func (w *packWriter) append(id oid, entry []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.hasLocked(id) {
		return nil
	}
	w.note(id, w.offset(), crc32.ChecksumIEEE(entry))
	w.buf = append(w.buf, entry...)
	return w.spill(spillAt)
}

func (w *packWriter) offset() uint64 { return w.base + uint64(len(w.buf)) }

func (w *packWriter) note(id oid, off uint64, crc uint32) {
	w.entries = append(w.entries, packEntry{id, off, crc})
	w.have[id] = struct{}{}
}

// spill writes buf to the temporary file once it holds more than limit bytes.
func (w *packWriter) spill(limit int) error {
	if len(w.buf) <= limit {
		return nil
	}
	if w.file == nil {
		tmp := filepath.Join(w.dir, fmt.Sprintf("%s%d_%08x", tmpPrefix, os.Getpid(), rand.Uint32()))
		f, err := fsx.OpenFile(tmp, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		w.file, w.tmp = f, tmp
	}
	if _, err := w.file.WriteAt(w.buf, int64(w.base)); err != nil {
		return err
	}
	w.base += uint64(len(w.buf))
	w.buf = w.buf[:0]
	return nil
}

// stream stores an object that is too big for memory: size bytes from r, which
// read must deliver exactly, else the pack is as before and the error is
// io.ErrUnexpectedEOF or errLonger. An object that the store has already
// leaves nothing behind.
func (w *packWriter) stream(k kind, size int64, r io.Reader, d *deflater) (oid, error) {
	if w.aside != nil {
		return w.f.idOfStream(k, size, r)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.spill(0); err != nil {
		return oid{}, err
	}
	if w.file == nil { // the header alone always spills; this keeps the invariant plain
		return oid{}, errors.New("pack without a file")
	}
	start := w.base
	id, end, crc, err := w.copyEntry(k, size, r, d)
	if err == nil && !w.hasLocked(id) {
		w.note(id, start, crc)
		w.base = end
		return id, nil
	}
	if terr := w.file.Truncate(int64(start)); terr != nil {
		return oid{}, errors.Join(err, terr)
	}
	return id, err
}

// errLonger says that a reader had more bytes than its file was long.
var errLonger = errors.New("more bytes than expected")

func (w *packWriter) copyEntry(k kind, size int64, r io.Reader, d *deflater) (id oid, end uint64, crc uint32, err error) {
	out := &packTail{file: w.file, at: int64(w.base), crc: crc32.NewIEEE()}
	h := w.f.newObject(k, size)
	if _, err := out.Write(appendEntryHeader(nil, k, size)); err != nil {
		return id, 0, 0, err
	}
	chunk := make([]byte, 1<<20)
	var z *zlib.Writer
	for left := size; left > 0; {
		n, rerr := io.ReadFull(r, chunk[:min(left, int64(len(chunk)))])
		if n == 0 && rerr != nil {
			return id, 0, 0, io.ErrUnexpectedEOF
		}
		if z == nil {
			z = d.writerFor(out, chunk[:n])
		}
		h.Write(chunk[:n])
		if _, err := z.Write(chunk[:n]); err != nil {
			return id, 0, 0, err
		}
		left -= int64(n)
		if rerr != nil && left > 0 {
			return id, 0, 0, io.ErrUnexpectedEOF
		}
	}
	if z == nil {
		z = d.writerFor(out, nil)
	}
	if err := z.Close(); err != nil {
		return id, 0, 0, err
	}
	if n, _ := r.Read(chunk[:1]); n > 0 {
		return id, 0, 0, errLonger
	}
	if err := out.flush(); err != nil {
		return id, 0, 0, err
	}
	return w.f.sum(h), uint64(out.at), out.crc.Sum32(), nil
}

// packTail appends to a pack's file and keeps an entry's checksum.
type packTail struct {
	file *fsx.File
	at   int64
	buf  []byte
	crc  hash.Hash32
}

func (t *packTail) Write(p []byte) (int, error) {
	t.crc.Write(p)
	t.buf = append(t.buf, p...)
	if len(t.buf) < 256<<10 {
		return len(p), nil
	}
	return len(p), t.flush()
}

func (t *packTail) flush() error {
	n, err := t.file.WriteAt(t.buf, t.at)
	t.at += int64(n)
	t.buf = t.buf[:0]
	return err
}

// publish makes the pack part of the store, durably: the pack's name before
// the index's, since readers look for the index. It returns the name without
// its ending, and how many bytes both files have. An empty pack is "".
func (w *packWriter) publish() (name string, size int64, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.entries) == 0 {
		return "", 0, w.discardLocked()
	}
	sum, err := w.finish()
	if err != nil {
		return "", 0, errors.Join(err, w.discardLocked())
	}
	idx := w.index(sum)
	name = filepath.Join(w.dir, "pack-"+hex.EncodeToString(sum))
	size = int64(w.base) + int64(len(idx))
	tmpIdx := w.tmp + "_idx"
	if err := fsx.WriteFile(tmpIdx, idx, 0o600); err != nil {
		return "", 0, errors.Join(err, removeIfThere(tmpIdx), w.discardLocked())
	}
	for _, move := range [][2]string{{w.tmp, name + ".pack"}, {tmpIdx, name + ".idx"}} {
		if err := fsx.Rename(move[0], move[1]); err != nil {
			return "", 0, errors.Join(err, removeIfThere(tmpIdx), w.discardLocked())
		}
	}
	if err := removeIfThere(name + suspectEnding); err != nil { // it was written anew
		return "", 0, err
	}
	return name, size, fsx.SyncDir(w.dir)
}

// finish completes, syncs and closes the pack's file and returns its checksum.
func (w *packWriter) finish() ([]byte, error) {
	var count [4]byte
	binary.BigEndian.PutUint32(count[:], uint32(len(w.entries)))
	h := w.f.new()
	if w.file == nil {
		copy(w.buf[8:12], count[:])
		h.Write(w.buf)
	} else {
		if err := w.spill(0); err != nil {
			return nil, err
		}
		if _, err := w.file.WriteAt(count[:], 8); err != nil {
			return nil, err
		}
		if _, err := io.Copy(h, io.NewSectionReader(w.file, 0, int64(w.base))); err != nil {
			return nil, err
		}
	}
	sum := h.Sum(nil)
	w.buf = append(w.buf, sum...)
	if err := w.spill(0); err != nil {
		return nil, err
	}
	if err := w.file.Sync(); err != nil {
		return nil, err
	}
	return sum, w.file.Close()
}

// index returns the pack's index, version 2.
func (w *packWriter) index(packSum []byte) []byte {
	sort.Slice(w.entries, func(i, j int) bool { return bytes.Compare(w.entries[i].id[:], w.entries[j].id[:]) < 0 })
	out := make([]byte, 0, 8+1024+len(w.entries)*(w.f.size+8)+2*w.f.size)
	out = append(out, "\xfftOc\x00\x00\x00\x02"...)
	n := 0
	for first := range 256 {
		for n < len(w.entries) && int(w.entries[n].id[0]) <= first {
			n++
		}
		out = binary.BigEndian.AppendUint32(out, uint32(n))
	}
	for _, e := range w.entries {
		out = append(out, e.id[:w.f.size]...)
	}
	for _, e := range w.entries {
		out = binary.BigEndian.AppendUint32(out, e.crc)
	}
	var large []byte
	for _, e := range w.entries {
		if e.off <= math.MaxInt32 {
			out = binary.BigEndian.AppendUint32(out, uint32(e.off))
			continue
		}
		out = binary.BigEndian.AppendUint32(out, 1<<31|uint32(len(large)/8))
		large = binary.BigEndian.AppendUint64(large, e.off)
	}
	out = append(out, large...)
	out = append(out, packSum...)
	h := w.f.new()
	h.Write(out)
	return h.Sum(out)
}

// discard drops the pack and its temporary file.
func (w *packWriter) discard() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.discardLocked()
}

func (w *packWriter) discardLocked() error {
	if w.file == nil {
		return nil
	}
	_ = w.file.Close()
	w.file = nil
	return removeIfThere(w.tmp)
}

// removeIfThere removes a file, through fsx only if it is there: a clean-up
// that has nothing to do is no effect.
func removeIfThere(path string) error {
	if _, err := os.Lstat(path); err != nil {
		return nil
	}
	return fsx.Remove(path)
}

// appendEntryHeader writes the type and size that begin a pack entry.
func appendEntryHeader(b []byte, k kind, size int64) []byte {
	c := byte(k)<<4 | byte(size&15)
	size >>= 4
	for size > 0 {
		b = append(b, c|0x80)
		c = byte(size & 0x7f)
		size >>= 7
	}
	return append(b, c)
}

// deflater makes pack entries; it serves one goroutine.
type deflater struct {
	buf   bytes.Buffer
	fast  *zlib.Writer
	store *zlib.Writer
	probe bytes.Buffer
}

// entry returns a whole entry, which stays valid until the next call.
func (d *deflater) entry(k kind, content []byte) []byte {
	d.buf.Reset()
	d.buf.Write(appendEntryHeader(nil, k, int64(len(content))))
	z := d.writerFor(&d.buf, content)
	z.Write(content) // a bytes.Buffer takes everything
	z.Close()
	return d.buf.Bytes()
}

// probeSize is how much of a big file is compressed to see whether that pays.
const probeSize = 64 << 10

// writerFor returns a compressor for content that begins with these bytes:
// one that only stores where they do not get smaller.
func (d *deflater) writerFor(w io.Writer, begin []byte) *zlib.Writer {
	if d.fast == nil {
		d.fast, _ = zlib.NewWriterLevel(io.Discard, zlib.BestSpeed) // a level that exists
	}
	z := d.fast
	if len(begin) >= probeSize {
		d.probe.Reset()
		d.fast.Reset(&d.probe)
		d.fast.Write(begin[:probeSize])
		d.fast.Close()
		if d.probe.Len() > probeSize*97/100 {
			if d.store == nil {
				d.store, _ = zlib.NewWriterLevel(io.Discard, zlib.NoCompression)
			}
			z = d.store
		}
	}
	z.Reset(w)
	return z
}
