package snapshot

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/zlib"

	agents "github.com/cleveragents/agents"
)

// errDelta says that an entry is a difference to another object, which this
// package never writes but git does when somebody repacks the store.
var errDelta = errors.New("stored as a delta")

// pack is one pack of a store, opened for reading. Once loaded it does not
// change and serves several goroutines.
type pack struct {
	name string // path without ending
	size int64  // of the pack file
	f    format
	idx  []byte
	n    int // objects
	file *os.File

	suspect bool // an object in it was found damaged
}

// openPack loads the index and checks that the pack fits it: a pack that a
// crash or a person cut short is agents.ErrDamaged.
func openPack(name string, f format) (*pack, error) {
	idx, err := os.ReadFile(name + ".idx")
	if err != nil {
		return nil, err
	}
	p := &pack{name: name, f: f, idx: idx}
	if err := p.checkIndex(); err != nil {
		return nil, fmt.Errorf("pack index %s: %w", filepath.Base(name), err)
	}
	if p.file, err = os.Open(name + ".pack"); err != nil {
		return nil, err
	}
	if err := p.checkFile(); err != nil {
		return nil, errors.Join(fmt.Errorf("pack %s: %w", filepath.Base(name), err), p.file.Close())
	}
	return p, nil
}

func (p *pack) close() error { return p.file.Close() }

// checkIndex makes sure that every look-up stays inside the index.
func (p *pack) checkIndex() error {
	const head = 8 + 256*4
	if len(p.idx) < head+2*p.f.size || string(p.idx[:8]) != "\xfftOc\x00\x00\x00\x02" {
		return fmt.Errorf("not a version 2 index: %w", agents.ErrDamaged)
	}
	last := uint32(0)
	for i := range 256 {
		n := p.fan(i)
		if n < last {
			return fmt.Errorf("fan-out table: %w", agents.ErrDamaged)
		}
		last = n
	}
	p.n = int(last)
	body := int64(len(p.idx)) - head - 2*int64(p.f.size)
	least := int64(p.n) * int64(p.f.size+8)
	if body < least || (body-least)%8 != 0 {
		return fmt.Errorf("cut short: %w", agents.ErrDamaged)
	}
	h := p.f.new()
	h.Write(p.idx[:len(p.idx)-p.f.size])
	if !bytes.Equal(h.Sum(nil), p.idx[len(p.idx)-p.f.size:]) {
		return fmt.Errorf("checksum: %w", agents.ErrDamaged)
	}
	return nil
}

// checkFile compares the pack's size, head and checksum with what the index
// says of them, without reading what is between.
func (p *pack) checkFile() error {
	fi, err := p.file.Stat()
	if err != nil {
		return err
	}
	p.size = fi.Size()
	head, tail := make([]byte, 12), make([]byte, p.f.size)
	if p.size < int64(len(head)+len(tail)) {
		return fmt.Errorf("cut short: %w", agents.ErrDamaged)
	}
	if _, err := p.file.ReadAt(head, 0); err != nil {
		return err
	}
	if _, err := p.file.ReadAt(tail, p.size-int64(len(tail))); err != nil {
		return err
	}
	want := p.idx[len(p.idx)-2*p.f.size : len(p.idx)-p.f.size]
	if string(head[:8]) != "PACK\x00\x00\x00\x02" || int(binary.BigEndian.Uint32(head[8:])) != p.n || !bytes.Equal(tail, want) {
		return fmt.Errorf("does not fit its index: %w", agents.ErrDamaged)
	}
	return nil
}

func (p *pack) fan(i int) uint32 { return binary.BigEndian.Uint32(p.idx[8+4*i:]) }

func (p *pack) id(i int) []byte {
	at := 8 + 1024 + i*p.f.size
	return p.idx[at : at+p.f.size]
}

// find returns the number of an object in the index.
func (p *pack) find(id oid) (int, bool) {
	lo, hi := 0, int(p.fan(int(id[0])))
	if id[0] > 0 {
		lo = int(p.fan(int(id[0]) - 1))
	}
	for lo < hi {
		mid := (lo + hi) / 2
		switch c := bytes.Compare(p.id(mid), id[:p.f.size]); {
		case c == 0:
			return mid, true
		case c < 0:
			lo = mid + 1
		default:
			hi = mid
		}
	}
	return 0, false
}

// crc returns the checksum of the i-th object's entry.
func (p *pack) crc(i int) uint32 {
	return binary.BigEndian.Uint32(p.idx[8+1024+p.n*p.f.size+4*i:])
}

// offset returns where the i-th object of the index begins.
func (p *pack) offset(i int) (int64, error) {
	at := 8 + 1024 + p.n*(p.f.size+4) + 4*i
	off := uint64(binary.BigEndian.Uint32(p.idx[at:]))
	if off&(1<<31) != 0 {
		at = 8 + 1024 + p.n*(p.f.size+8) + 8*int(off&^(1<<31))
		if at+8 > len(p.idx)-2*p.f.size {
			return 0, fmt.Errorf("index entry %d: %w", i, agents.ErrDamaged)
		}
		off = binary.BigEndian.Uint64(p.idx[at:])
	}
	if off < 12 || off >= uint64(p.size-int64(p.f.size)) {
		return 0, fmt.Errorf("index entry %d: %w", i, agents.ErrDamaged)
	}
	return int64(off), nil
}

// object is an open object of a pack.
type object struct {
	kind kind
	size int64
	io.Reader
}

// open returns the i-th object of the index. The reader ends with an error
// where the content is damaged or not size bytes long.
func (p *pack) open(i int) (object, error) {
	off, err := p.offset(i)
	if err != nil {
		return object{}, err
	}
	r := bufio.NewReaderSize(io.NewSectionReader(p.file, off, p.size-int64(p.f.size)-off), 16<<10)
	k, size, err := readEntryHeader(r)
	if err != nil {
		return object{}, err
	}
	z, err := zlib.NewReader(r)
	if err != nil {
		return object{}, fmt.Errorf("compressed data: %w: %w", agents.ErrDamaged, err)
	}
	return object{k, size, &exactly{r: z, left: size}}, nil
}

// readEntryHeader reads the type and size that begin a pack entry.
func readEntryHeader(r io.ByteReader) (kind, int64, error) {
	c, err := r.ReadByte()
	if err != nil {
		return 0, 0, fmt.Errorf("entry header: %w", agents.ErrDamaged)
	}
	k, size := kind(c>>4&7), int64(c&15)
	for shift := 4; c&0x80 != 0; shift += 7 {
		if c, err = r.ReadByte(); err != nil || shift > 53 {
			return 0, 0, fmt.Errorf("entry header: %w", agents.ErrDamaged)
		}
		size |= int64(c&0x7f) << shift
	}
	switch k {
	case kindCommit, kindTree, kindBlob, kindTag:
		return k, size, nil
	case 6, 7:
		return 0, 0, errDelta
	}
	return 0, 0, fmt.Errorf("entry type %d: %w", k, agents.ErrDamaged)
}

// exactly reads left bytes of r, and fails where r has fewer, more, or a
// checksum that does not fit.
type exactly struct {
	r    io.Reader
	left int64
}

func (e *exactly) Read(p []byte) (int, error) {
	if e.left == 0 {
		var one [1]byte
		n, err := io.ReadFull(e.r, one[:])
		if n == 0 && err == io.EOF {
			return 0, io.EOF
		}
		return 0, fmt.Errorf("compressed data: %w", agents.ErrDamaged)
	}
	n, err := e.r.Read(p[:min(int64(len(p)), e.left)])
	e.left -= int64(n)
	if err == io.EOF && e.left == 0 {
		err = nil
	}
	if err != nil {
		err = fmt.Errorf("compressed data: %w: %w", agents.ErrDamaged, err)
	}
	return n, err
}

// listPacks returns the paths without ending of the packs in dir that have an
// index, with the size of their pack files; 0 where the pack is missing.
func listPacks(dir string) (map[string]int64, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	packs := map[string]int64{}
	for _, e := range entries {
		stem, ok := strings.CutSuffix(e.Name(), ".idx")
		if !ok || !strings.HasPrefix(stem, "pack-") {
			continue
		}
		name := filepath.Join(dir, stem)
		packs[name] = 0
		if fi, err := os.Stat(name + ".pack"); err == nil {
			packs[name] = fi.Size()
		}
	}
	return packs, nil
}

// intact reports whether all entries have the checksums that the index says.
func (p *pack) intact() bool {
	all, _, err := p.extents(func(oid) bool { return true })
	if err != nil {
		return false
	}
	for _, e := range all {
		h := crc32.NewIEEE()
		if _, err := io.Copy(h, io.NewSectionReader(p.file, e.off, e.end-e.off)); err != nil || h.Sum32() != p.crc(e.i) {
			return false
		}
	}
	return true
}

// suspectEnding marks a pack of which an object was found damaged, so that
// every process knows: its good objects are read, and none is relied on by
// what is recorded from now on.
const suspectEnding = ".suspect"

func isSuspect(name string) bool {
	_, err := os.Lstat(name + suspectEnding)
	return err == nil
}

// packID returns the checksum in a pack's name, for messages.
func packID(name string) string {
	id := strings.TrimPrefix(filepath.Base(name), "pack-")
	if _, err := hex.DecodeString(id); err != nil {
		return clip(id)
	}
	return id[:min(12, len(id))]
}
