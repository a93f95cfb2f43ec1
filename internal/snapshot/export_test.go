package snapshot

import (
	"encoding/binary"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"unsafe"
)

// ReadCacheFile decodes a cache file's bytes and touches all that they say.
func ReadCacheFile(b []byte) error {
	aligned := make([]uint64, len(b)/8+1)
	buf := unsafe.Slice((*byte)(unsafe.Pointer(&aligned[0])), len(aligned)*8)[:len(b)]
	copy(buf, b)
	var config oid
	if f, ok := readFrame(buf); ok {
		config = f.config
	}
	c, err := decodeCache(buf, config)
	if err != nil {
		return err
	}
	c.encodeWhole(config)
	c.encodeChanges(config)
	return nil
}

// FixCacheSums makes the checksums of damaged frames fit, so that a fuzzer
// reaches what is behind them.
func FixCacheSums(b []byte) []byte {
	return fixFrames(append([]byte(nil), b...))
}

// ReadTreeObject parses a tree object and encodes it again.
func ReadTreeObject(b []byte) ([]byte, error) {
	f, _ := formatOf("sha1")
	entries, err := f.parseTree(b)
	if err != nil {
		return nil, err
	}
	var out []byte
	for _, e := range entries {
		out = f.appendTreeEntry(out, e.mode, []byte(e.name), e.id)
	}
	return out, nil
}

// ReadCommitObject parses a commit object.
func ReadCommitObject(b []byte) error {
	f, _ := formatOf("sha1")
	_, err := f.parseCommit(b)
	return err
}

// ReadAttributes decodes an entries blob and encodes it again, twice.
func ReadAttributes(b []byte) (once, twice []byte, err error) {
	d, err := decodeAttrs(b)
	if err != nil {
		return nil, nil, err
	}
	once = d.encode()
	again, err := decodeAttrs(once)
	if err != nil {
		return nil, nil, err
	}
	return once, again.encode(), nil
}

// ReadPack opens a pack of these bytes in dir and reads all its objects.
func ReadPack(dir string, idx, data []byte) error {
	f, _ := formatOf("sha1")
	name := filepath.Join(dir, "pack-x")
	if err := os.WriteFile(name+".idx", idx, 0o600); err != nil {
		return err
	}
	if err := os.WriteFile(name+".pack", data, 0o600); err != nil {
		return err
	}
	p, err := openPack(name, f)
	if err != nil {
		return err
	}
	defer p.close()
	p.deltas()
	if _, _, err := p.extents(func(oid) bool { return false }); err != nil {
		return err
	}
	for i := range p.n {
		var id oid
		copy(id[:], p.id(i))
		p.find(id)
		p.crc(i)
		o, err := p.open(i)
		if err != nil {
			continue
		}
		_, _ = io.Copy(io.Discard, io.LimitReader(o, 1<<20))
	}
	return nil
}

// SumIndex makes the checksum at the end of a pack index fit.
func SumIndex(idx []byte) []byte {
	f, _ := formatOf("sha1")
	if len(idx) < f.size {
		return idx
	}
	h := f.new()
	h.Write(idx[:len(idx)-f.size])
	return h.Sum(append([]byte(nil), idx[:len(idx)-f.size]...))
}

func fixFrames(b []byte) []byte {
	prev := uint32(0)
	for rest := b; len(rest) >= frameHead; {
		copy(rest, frameMagic)
		length := binary.NativeEndian.Uint64(rest[16:])
		if length < frameHead || length > uint64(len(rest)) {
			length = uint64(len(rest)) &^ 7
			binary.NativeEndian.PutUint64(rest[16:], length)
		}
		binary.NativeEndian.PutUint32(rest[12:], prev)
		prev = crc32.Checksum(rest[12:length], castagnoli())
		binary.NativeEndian.PutUint32(rest[8:], prev)
		rest = rest[length:]
	}
	return b
}
