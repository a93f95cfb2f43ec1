package snapshot

import (
	"bytes"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"sort"
	"strconv"
	"strings"
	"time"

	agents "github.com/cleveragents/agents"
)

// oid is an object id; with SHA-1 the last twelve bytes are zero. The zero oid
// is no object.
type oid [sha256.Size]byte

// format is a store's hash function.
type format struct {
	name string
	size int // bytes of an id
	new  func() hash.Hash
}

// formatOf returns the format that Options.Format names.
func formatOf(name string) (format, error) {
	switch name {
	case "", "sha1":
		return format{"sha1", sha1.Size, sha1.New}, nil
	case "sha256":
		return format{"sha256", sha256.Size, sha256.New}, nil
	}
	return format{}, fmt.Errorf("object format %q: want sha1 or sha256: %w", name, agents.ErrInvalid)
}

// hex spells an id.
func (f format) hex(id oid) string { return hex.EncodeToString(id[:f.size]) }

// parse reads an id that hex spelled; anything else is agents.ErrInvalid.
func (f format) parse(s string) (oid, error) {
	var id oid
	if len(s) != 2*f.size {
		return oid{}, fmt.Errorf("object id %q: want %d digits: %w", clip(s), 2*f.size, agents.ErrInvalid)
	}
	if _, err := hex.Decode(id[:], []byte(s)); err != nil {
		return oid{}, fmt.Errorf("object id %q: %w", clip(s), agents.ErrInvalid)
	}
	return id, nil
}

// sum finishes a hash that newObject began.
func (f format) sum(h hash.Hash) oid {
	var id oid
	h.Sum(id[:0])
	return id
}

// newObject returns a hash that has taken in the header of an object.
func (f format) newObject(k kind, size int64) hash.Hash {
	h := f.new()
	fmt.Fprintf(h, "%s %d\x00", k, size)
	return h
}

// idOf returns the id of an object.
func (f format) idOf(k kind, content []byte) oid {
	h := f.newObject(k, int64(len(content)))
	h.Write(content)
	return f.sum(h)
}

// idOfStream is idOf for size bytes from r, with the errors of packWriter.stream.
func (f format) idOfStream(k kind, size int64, r io.Reader) (oid, error) {
	h := f.newObject(k, size)
	if _, err := io.CopyN(h, r, size); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return oid{}, err
	}
	var more [1]byte
	if n, _ := r.Read(more[:]); n > 0 {
		return oid{}, errLonger
	}
	return f.sum(h), nil
}

// clip shortens text from outside for use in a message.
func clip(s string) string {
	if len(s) > 70 {
		return s[:70] + "…"
	}
	return s
}

// kind is an object's type as pack files number it.
type kind uint8

const (
	kindCommit kind = 1
	kindTree   kind = 2
	kindBlob   kind = 3
	kindTag    kind = 4
)

func (k kind) String() string {
	switch k {
	case kindCommit:
		return "commit"
	case kindTree:
		return "tree"
	case kindBlob:
		return "blob"
	case kindTag:
		return "tag"
	}
	return "object type " + strconv.Itoa(int(k))
}

// The modes of tree entries.
const (
	modeTree = 0o040000
	modeFile = 0o100644
	modeExec = 0o100755
	modeLink = 0o120000
)

// treeEntry is one line of a tree object.
type treeEntry struct {
	mode uint32
	name string
	id   oid
}

// appendTreeEntry adds a line to a tree object.
func (f format) appendTreeEntry(b []byte, mode uint32, name []byte, id oid) []byte {
	b = strconv.AppendUint(b, uint64(mode), 8)
	b = append(b, ' ')
	b = append(b, name...)
	b = append(b, 0)
	return append(b, id[:f.size]...)
}

// encodeTree returns the tree object of entries, which it sorts.
func (f format) encodeTree(entries []treeEntry) []byte {
	sort.Slice(entries, func(i, j int) bool {
		a, b := entries[i], entries[j]
		return treeLess(a.name, a.mode == modeTree, b.name, b.mode == modeTree)
	})
	var out []byte
	for _, e := range entries {
		out = f.appendTreeEntry(out, e.mode, []byte(e.name), e.id)
	}
	return out
}

// treeLess is git's order of tree entries: a directory sorts as if its name
// ended in a slash.
func treeLess(a string, aDir bool, b string, bDir bool) bool {
	n := min(len(a), len(b))
	if a[:n] != b[:n] {
		return a[:n] < b[:n]
	}
	at := func(s string, dir bool) int {
		switch {
		case len(s) > n:
			return int(s[n])
		case dir:
			return '/'
		}
		return -1
	}
	return at(a, aDir) < at(b, bDir)
}

// parseTree reads a tree object. A malformed one is agents.ErrDamaged.
func (f format) parseTree(b []byte) ([]treeEntry, error) {
	entries := make([]treeEntry, 0, len(b)/(f.size+16))
	for len(b) > 0 {
		space := bytes.IndexByte(b, ' ')
		nul := bytes.IndexByte(b, 0)
		if space < 1 || space > 7 || nul < space+2 || len(b) < nul+1+f.size {
			return nil, fmt.Errorf("tree entry %d: %w", len(entries), agents.ErrDamaged)
		}
		mode, err := strconv.ParseUint(string(b[:space]), 8, 32)
		if err != nil {
			return nil, fmt.Errorf("tree entry %d: mode: %w", len(entries), agents.ErrDamaged)
		}
		e := treeEntry{mode: uint32(mode), name: string(b[space+1 : nul])}
		if e.name == "." || e.name == ".." || strings.Contains(e.name, "/") {
			return nil, fmt.Errorf("tree entry %q: %w", clip(e.name), agents.ErrDamaged)
		}
		copy(e.id[:], b[nul+1:nul+1+f.size])
		entries = append(entries, e)
		b = b[nul+1+f.size:]
	}
	return entries, nil
}

// commit is the part of a commit object that states use.
type commit struct {
	tree    oid
	parents []oid
	message string
}

const author = "agents <agents@cleveragents.invalid>"

// encodeCommit returns a commit object.
func (f format) encodeCommit(tree oid, parent string, label string, when time.Time) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "tree %s\n", f.hex(tree))
	if parent != "" {
		fmt.Fprintf(&b, "parent %s\n", parent)
	}
	stamp := fmt.Sprintf("%s %d +0000", author, when.Unix())
	fmt.Fprintf(&b, "author %s\ncommitter %s\n\n%s\n", stamp, stamp, strings.ReplaceAll(label, "\x00", "\\0"))
	return b.Bytes()
}

// parseCommit reads the headers of a commit object. A malformed one is
// agents.ErrDamaged.
func (f format) parseCommit(b []byte) (commit, error) {
	var c commit
	_, message, _ := bytes.Cut(b, []byte("\n\n"))
	c.message = string(message)
	for first := true; ; first = false {
		line, rest, ok := bytes.Cut(b, []byte("\n"))
		if !ok {
			return commit{}, fmt.Errorf("commit header: %w", agents.ErrDamaged)
		}
		b = rest
		key, value, _ := strings.Cut(string(line), " ")
		if first != (key == "tree") {
			return commit{}, fmt.Errorf("commit header: %w", agents.ErrDamaged)
		}
		if key != "tree" && key != "parent" {
			return c, nil
		}
		id, err := f.parse(value)
		if err != nil {
			return commit{}, fmt.Errorf("commit header: %w", agents.ErrDamaged)
		}
		if key == "tree" {
			c.tree = id
		} else {
			c.parents = append(c.parents, id)
		}
	}
}
