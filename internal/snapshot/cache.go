package snapshot

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"slices"
	"unsafe"
)

// The stat cache is a file of frames that is only appended to, until it is
// written anew. A frame holds whole directories, each with the entries that a
// scan saw and what git object each was; of a directory that is in several
// frames the last one counts. Every frame has a checksum and names the one
// before it, so that a torn or stale tail is not taken for a part.
//
// What a frame says is that a file with this inode, size and times had that
// content: it stays true for ever, so that an old cache costs time and never
// correctness. What may cease to be true is that the store has the content:
// digest names the set of packs for which it was checked.
//
// Numbers are in the machine's own byte order; a file from another kind of
// machine is a damaged one.

// entry is one name in a directory. Its layout is that of the cache file.
type entry struct {
	ino, size    uint64
	mtime, ctime int64 // nanoseconds
	mode         uint32
	uid, gid     uint32
	nameOff      uint32 // into the directory's names, where a NUL follows
	xattrOff     uint32
	xattrLen     uint32
	nameLen      uint16
	flags        uint16
	child        uint32 // a directory's number; 0 = none
	id           oid
}

const entrySize = int(unsafe.Sizeof(entry{}))

// The flags of an entry.
const (
	flagRacy   = 1 << iota // changed so late that its times cannot tell: look again
	flagInBase             // the store does not have the object; the base commit reaches it
	flagRead               // content or attributes must be read; never in a file
	flagLinked             // a file with other names, in the root or elsewhere
	flagSparse             // a file with holes
)

// dir is a directory of the cache. The entries and names of one that was
// loaded are those of the file: own makes them changeable.
type dir struct {
	number  uint32
	parent  *dir
	attrs   oid    // the tree of its attributes
	xattr   string // its own extended attributes
	entries []entry
	names   []byte
	special bool // has entries that no state holds

	owned bool
	dirty bool // must be written to the cache
	hash  bool // its tree must be made again
	outer bool // its own attributes changed: the parent's tree must be made again
}

// own makes the entries changeable and marks the directory for writing.
func (d *dir) own() {
	d.dirty = true
	if d.owned {
		return
	}
	d.owned = true
	d.entries = slices.Clone(d.entries)
	d.names = d.names[:len(d.names):len(d.names)]
}

func (d *dir) name(i int) []byte {
	e := &d.entries[i]
	return d.names[e.nameOff : e.nameOff+uint32(e.nameLen)]
}

func (d *dir) entryXattr(i int) string {
	e := &d.entries[i]
	return string(d.names[e.xattrOff : e.xattrOff+e.xattrLen])
}

// setXattr records the attributes of an entry of an owned directory.
func (d *dir) setXattr(i int, xattr string) {
	e := &d.entries[i]
	e.xattrOff, e.xattrLen = 0, uint32(len(xattr))
	if xattr != "" {
		e.xattrOff = uint32(len(d.names))
		d.names = append(d.names, xattr...)
	}
}

// index returns the place of the entry that is the directory child.
func (d *dir) index(child *dir) int {
	return slices.IndexFunc(d.entries, func(e entry) bool { return e.child == child.number })
}

// cache is the stat cache in memory. Directory 0 has the roots as entries.
type cache struct {
	dirs     []*dir // by number; nil = not in use
	digest   oid    // of the packs beside which it was written
	lastRef  oid    // the last state captured or restored; zero = none
	lastTree oid

	changedRef bool // lastRef is not what the file says

	chain  uint32 // checksum of the last frame
	end    int    // where the next frame goes; 0 = the file must be written anew
	first  int    // bytes of the first frame
	mapped []byte
}

// newCache returns a cache that knows nothing.
func newCache() *cache { return &cache{dirs: []*dir{{}}} }

func (c *cache) top() *dir { return c.dirs[0] }

// addDir returns a new directory below parent.
func (c *cache) addDir(parent *dir) *dir {
	d := &dir{number: uint32(len(c.dirs)), parent: parent, owned: true, dirty: true, hash: true}
	c.dirs = append(c.dirs, d)
	return d
}

const (
	frameMagic = "AGSTAT\x00\x01"
	frameHead  = 8 + 4 + 4 + 8 + 4 + 4 + 4 + 4 + 4*32
	blockHead  = 4 + 4 + 4 + 4 + 4 + 4 + 32
)

// frame is the head of a frame: magic, checksum of all that follows it, the
// checksum of the frame before (0 = this is the first), length, number of
// blocks, first free directory number.
type frame struct {
	sum, prev    uint32
	length       uint64
	blocks, next uint32
	config       oid
	digest       oid
	lastRef      oid
	lastTree     oid
}

// errCache says that the cache cannot be used; the reason does not matter.
var errCache = errors.New("stat cache unusable")

// decodeCache reads a cache file for a tracker with this configuration. The
// cache refers to b.
func decodeCache(b []byte, config oid) (*cache, error) {
	if uintptr(unsafe.Pointer(unsafe.SliceData(b)))%8 != 0 {
		return nil, errCache
	}
	c := &cache{}
	for {
		f, ok := readFrame(b[c.end:])
		if !ok || (f.prev != c.chain) || (c.end > 0) == (f.prev == 0) || f.config != config {
			break
		}
		if err := c.readBlocks(b[c.end+frameHead:c.end+int(f.length)], f); err != nil {
			return nil, err
		}
		c.chain, c.digest, c.lastRef, c.lastTree = f.sum, f.digest, f.lastRef, f.lastTree
		c.end += int(f.length)
		if c.first == 0 {
			c.first = c.end
		}
	}
	if c.end == 0 {
		return nil, errCache
	}
	return c, c.connect()
}

func readFrame(b []byte) (frame, bool) {
	if len(b) < frameHead || string(b[:8]) != frameMagic {
		return frame{}, false
	}
	n := binary.NativeEndian
	f := frame{
		sum: n.Uint32(b[8:]), prev: n.Uint32(b[12:]), length: n.Uint64(b[16:]),
		blocks: n.Uint32(b[24:]), next: n.Uint32(b[28:]),
	}
	if f.length < frameHead || f.length > uint64(len(b)) || f.length%8 != 0 {
		return frame{}, false
	}
	copy(f.config[:], b[40:])
	copy(f.digest[:], b[72:])
	copy(f.lastRef[:], b[104:])
	copy(f.lastTree[:], b[136:])
	return f, crc32.Checksum(b[12:f.length], castagnoli()) == f.sum && f.sum != 0
}

func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

// readBlocks takes in the directories of one frame.
func (c *cache) readBlocks(b []byte, f frame) error {
	if uint64(f.blocks) > uint64(len(b))/blockHead || f.next > 1<<28 || int(f.next) < len(c.dirs) {
		return errCache
	}
	if uint64(f.next) > uint64(len(c.dirs))+uint64(f.blocks) {
		return errCache
	}
	c.dirs = append(c.dirs, make([]*dir, int(f.next)-len(c.dirs))...)
	slab := make([]dir, f.blocks)
	for i := range slab {
		used, err := slab[i].read(b)
		if err != nil {
			return err
		}
		if slab[i].number >= f.next {
			return errCache
		}
		c.dirs[slab[i].number] = &slab[i]
		b = b[used:]
	}
	return nil
}

// read takes in one directory and returns how many bytes it has.
func (d *dir) read(b []byte) (int, error) {
	if len(b) < blockHead {
		return 0, errCache
	}
	n := binary.NativeEndian
	count, names := uint64(n.Uint32(b[4:])), uint64(n.Uint32(b[8:]))
	xattrOff, xattrLen := uint64(n.Uint32(b[12:])), uint64(n.Uint32(b[16:]))
	size := blockHead + count*uint64(entrySize) + (names+7)&^7
	if size > uint64(len(b)) || xattrOff+xattrLen > names {
		return 0, errCache
	}
	d.number = n.Uint32(b)
	copy(d.attrs[:], b[24:])
	if count > 0 {
		d.entries = unsafe.Slice((*entry)(unsafe.Pointer(&b[blockHead])), count)
	}
	at := blockHead + count*uint64(entrySize)
	d.names = b[at : at+names : at+names]
	d.xattr = string(d.names[xattrOff : xattrOff+xattrLen])
	return int(size), nil
}

// connect checks every directory that can be reached, finds its parent, and
// drops the others.
func (c *cache) connect() error {
	used := make([]*dir, len(c.dirs))
	if len(c.dirs) == 0 || c.dirs[0] == nil {
		return errCache
	}
	used[0] = c.dirs[0]
	queue := []*dir{c.dirs[0]}
	for len(queue) > 0 {
		d := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		for i := range d.entries {
			e := &d.entries[i]
			end := uint64(e.nameOff) + uint64(e.nameLen)
			if e.nameLen == 0 || end >= uint64(len(d.names)) || d.names[end] != 0 ||
				uint64(e.xattrOff)+uint64(e.xattrLen) > uint64(len(d.names)) || e.flags&flagRead != 0 {
				return errCache
			}
			d.special = d.special || special(e.mode)
			if (e.child != 0) != (e.mode&typeMask == typeDir) {
				return errCache
			}
			if e.child == 0 {
				continue
			}
			if int(e.child) >= len(c.dirs) || c.dirs[e.child] == nil || used[e.child] != nil {
				return errCache
			}
			child := c.dirs[e.child]
			child.parent = d
			used[e.child] = child
			queue = append(queue, child)
		}
	}
	c.dirs = used
	return nil
}

// The file types of Unix, which the cache uses on every system.
const (
	typeMask = 0o170000
	typeDir  = 0o040000
	typeFile = 0o100000
	typeLink = 0o120000
)

// special reports whether no state holds files of this type.
func special(mode uint32) bool {
	switch mode & typeMask {
	case typeDir, typeFile, typeLink:
		return false
	}
	return true
}

// appendFrame adds a frame with these directories. number says what a
// directory is called in the file.
func (c *cache) appendFrame(b []byte, config oid, prev uint32, next int, dirs []*dir, number func(uint32) uint32) []byte {
	start := len(b)
	n := binary.NativeEndian
	b = append(b, frameMagic...)
	b = append(b, make([]byte, frameHead-8)...)
	for _, d := range dirs {
		b = d.appendTo(b, number)
	}
	f := b[start:]
	n.PutUint32(f[12:], prev)
	n.PutUint64(f[16:], uint64(len(f)))
	n.PutUint32(f[24:], uint32(len(dirs)))
	n.PutUint32(f[28:], uint32(next))
	copy(f[40:], config[:])
	copy(f[72:], c.digest[:])
	copy(f[104:], c.lastRef[:])
	copy(f[136:], c.lastTree[:])
	n.PutUint32(f[8:], crc32.Checksum(f[12:], castagnoli()))
	return b
}

// appendTo writes the directory with its names packed anew, since a changed
// one's names may hold what no entry refers to.
func (d *dir) appendTo(b []byte, number func(uint32) uint32) []byte {
	n := binary.NativeEndian
	start := len(b)
	b = append(b, make([]byte, blockHead)...)
	entries := len(b)
	if len(d.entries) > 0 {
		b = append(b, unsafe.Slice((*byte)(unsafe.Pointer(&d.entries[0])), len(d.entries)*entrySize)...)
	}
	names := len(b)
	for i := range d.entries {
		name, xattr := d.name(i), d.entryXattr(i)
		e := (*entry)(unsafe.Pointer(&b[entries+i*entrySize]))
		e.nameOff = uint32(len(b) - names)
		if e.child != 0 {
			e.child = number(e.child)
		}
		b = append(append(b, name...), 0)
		e = (*entry)(unsafe.Pointer(&b[entries+i*entrySize]))
		e.xattrOff, e.xattrLen = uint32(len(b)-names), uint32(len(xattr))
		b = append(b, xattr...)
	}
	xattrOff := len(b) - names
	b = append(b, d.xattr...)
	length := len(b) - names
	b = append(b, bytes.Repeat([]byte{0}, (8-length%8)%8)...)
	h := b[start:]
	n.PutUint32(h, number(d.number))
	n.PutUint32(h[4:], uint32(len(d.entries)))
	n.PutUint32(h[8:], uint32(length))
	n.PutUint32(h[12:], uint32(xattrOff))
	n.PutUint32(h[16:], uint32(len(d.xattr)))
	copy(h[24:], d.attrs[:])
	return b
}

// encodeWhole returns the cache as one frame, with directories numbered anew.
func (c *cache) encodeWhole(config oid) []byte {
	numbers := make([]uint32, len(c.dirs))
	order := make([]*dir, 0, len(c.dirs))
	size := frameHead
	for queue := []*dir{c.top()}; len(queue) > 0; {
		d := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		numbers[d.number] = uint32(len(order))
		order = append(order, d)
		size += blockHead + len(d.entries)*entrySize + len(d.names) + len(d.xattr) + 8
		for i := range d.entries {
			if n := d.entries[i].child; n != 0 {
				queue = append(queue, c.dirs[n])
			}
		}
	}
	return c.appendFrame(make([]byte, 0, size), config, 0, len(order), order, func(n uint32) uint32 { return numbers[n] })
}

// encodeChanges returns a frame with the directories that changed.
func (c *cache) encodeChanges(config oid) []byte {
	var dirs []*dir
	for _, d := range c.dirs {
		if d != nil && d.dirty {
			dirs = append(dirs, d)
		}
	}
	return c.appendFrame(nil, config, c.chain, len(c.dirs), dirs, func(n uint32) uint32 { return n })
}
