package snapshot

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"sort"
	"strconv"
	"strings"

	agents "github.com/cleveragents/agents"
)

// What trees cannot say lies in a second hierarchy of trees, "attributes",
// which has a directory of a state only where something in it or below it is
// worth a line. There a blob "entries" speaks of the directory's own entries,
// and a tree "+<name>" of what is below one of them. So a state whose one
// directory changed shares all others' attributes with the state before.
const (
	attributesName = "attributes"
	entriesName    = "entries"
	belowPrefix    = "+"
)

// perms are the permission bits that hold in one directory where no line of
// its entries says otherwise: the most frequent ones, so that a umask of 077
// costs one line a directory and not one a file.
type perms struct{ file, exec, dir uint32 }

// usual are the bits that need no line at all.
func usual() perms { return perms{0o644, 0o755, 0o755} }

// of returns the bits for an entry with git's mode.
func (p perms) of(gitMode uint32) uint32 {
	switch gitMode {
	case modeTree:
		return p.dir
	case modeExec:
		return p.exec
	case modeLink:
		return 0o777
	}
	return p.file
}

// attr is what a line says about one entry. A nil pointer says nothing.
type attr struct {
	perm   *uint32
	owner  *owner
	mtime  *int64 // nanoseconds since 1970
	link   string // see linkID
	sparse bool
	xattr  string // as encodeXattrs returns it
}

// owner is a user and a group.
type owner struct{ uid, gid uint32 }

func (a attr) empty() bool {
	return a.perm == nil && a.owner == nil && a.mtime == nil && a.link == "" && !a.sparse && a.xattr == ""
}

// dirAttrs is the content of an entries blob.
type dirAttrs struct {
	perms   perms
	self    *attr // of the directory itself; only at the top of a root, where it names the owner that all else is compared with
	entries map[string]attr
}

// encode returns the blob, empty when there is nothing to say.
func (d dirAttrs) encode() []byte {
	var b bytes.Buffer
	if d.perms != usual() {
		fmt.Fprintf(&b, "modes %04o %04o %04o\n", d.perms.file, d.perms.exec, d.perms.dir)
	}
	if d.self != nil {
		d.self.line(&b, ".")
	}
	names := make([]string, 0, len(d.entries))
	for name := range d.entries {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		a := d.entries[name]
		a.line(&b, strconv.Quote(name))
	}
	return b.Bytes()
}

func (a attr) line(b *bytes.Buffer, name string) {
	perm, own, xattr := "-", "-", "-"
	if a.perm != nil {
		perm = fmt.Sprintf("%04o", *a.perm)
	}
	if a.owner != nil {
		own = fmt.Sprintf("%d:%d", a.owner.uid, a.owner.gid)
	}
	if a.xattr != "" {
		xattr = a.xattr
	}
	fmt.Fprintf(b, "%s %s %s", name, perm, own)
	if a.mtime != nil {
		fmt.Fprintf(b, " t%d", *a.mtime)
	}
	if a.link != "" {
		b.WriteString(" l" + a.link)
	}
	if a.sparse {
		b.WriteString(" s")
	}
	fmt.Fprintf(b, " %s\n", xattr)
}

// decodeAttrs reads an entries blob. A malformed one is agents.ErrDamaged.
func decodeAttrs(b []byte) (dirAttrs, error) {
	d := dirAttrs{perms: usual(), entries: map[string]attr{}}
	for n := 1; len(b) > 0; n++ {
		line, rest, ok := strings.Cut(string(b), "\n")
		if !ok {
			return dirAttrs{}, fmt.Errorf("attributes line %d: %w", n, agents.ErrDamaged)
		}
		b = []byte(rest)
		if err := d.decodeLine(line, n == 1); err != nil {
			return dirAttrs{}, fmt.Errorf("attributes line %d: %w", n, err)
		}
	}
	return d, nil
}

func (d *dirAttrs) decodeLine(line string, first bool) error {
	if modes, ok := strings.CutPrefix(line, "modes "); ok && first {
		return d.decodeModes(modes)
	}
	name, rest := ".", strings.TrimPrefix(line, ".")
	if strings.HasPrefix(line, `"`) {
		quoted, err := strconv.QuotedPrefix(line)
		if err != nil {
			return agents.ErrDamaged
		}
		if name, err = strconv.Unquote(quoted); err != nil || name == "." {
			return agents.ErrDamaged
		}
		rest = line[len(quoted):]
	} else if rest == line {
		return agents.ErrDamaged
	}
	a, err := decodeAttr(rest)
	if err != nil {
		return err
	}
	if name == "." {
		d.self = &a
		return nil
	}
	d.entries[name] = a
	return nil
}

func (d *dirAttrs) decodeModes(s string) error {
	f := strings.Split(s, " ")
	if len(f) != 3 {
		return agents.ErrDamaged
	}
	for i, to := range []*uint32{&d.perms.file, &d.perms.exec, &d.perms.dir} {
		v, err := strconv.ParseUint(f[i], 8, 12)
		if err != nil {
			return agents.ErrDamaged
		}
		*to = uint32(v)
	}
	return nil
}

func decodeAttr(s string) (attr, error) {
	f := strings.SplitN(strings.TrimPrefix(s, " "), " ", 3)
	if len(f) != 3 {
		return attr{}, agents.ErrDamaged
	}
	var a attr
	if f[0] != "-" {
		v, err := strconv.ParseUint(f[0], 8, 12)
		if err != nil {
			return attr{}, agents.ErrDamaged
		}
		perm := uint32(v)
		a.perm = &perm
	}
	if f[1] != "-" {
		u, g, ok := strings.Cut(f[1], ":")
		uid, uerr := strconv.ParseUint(u, 10, 32)
		gid, gerr := strconv.ParseUint(g, 10, 32)
		if !ok || uerr != nil || gerr != nil {
			return attr{}, agents.ErrDamaged
		}
		a.owner = &owner{uint32(uid), uint32(gid)}
	}
	xattr, err := a.decodeExact(f[2])
	if err != nil || xattr == "-" {
		return a, err
	}
	if _, err := decodeXattrs(xattr); err != nil {
		return attr{}, err
	}
	a.xattr = xattr
	return a, nil
}

// decodeExact takes the words of an exact root off a line and returns the rest.
func (a *attr) decodeExact(s string) (rest string, err error) {
	for s != "" && s[0] != '-' && s[0] != '"' {
		word, rest, ok := strings.Cut(s, " ")
		if !ok {
			return "", agents.ErrDamaged
		}
		switch word[0] {
		case 't':
			mtime, err := strconv.ParseInt(word[1:], 10, 64)
			if err != nil {
				return "", agents.ErrDamaged
			}
			a.mtime = &mtime
		case 'l':
			a.link = word[1:]
		case 's':
			a.sparse = true
		default:
			return "", agents.ErrDamaged
		}
		s = rest
	}
	return s, nil
}

// encodeXattrs spells extended attributes on one line, sorted by name.
func encodeXattrs(m map[string]string) string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	sort.Strings(names)
	var b strings.Builder
	for i, name := range names {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Quote(name))
		b.WriteByte(':')
		b.WriteString(base64.StdEncoding.EncodeToString([]byte(m[name])))
	}
	return b.String()
}

// decodeXattrs reads what encodeXattrs wrote. A malformed text is
// agents.ErrDamaged; the empty one is nil.
func decodeXattrs(s string) (map[string]string, error) {
	if s == "" {
		return nil, nil
	}
	m := map[string]string{}
	for {
		quoted, err := strconv.QuotedPrefix(s)
		if err != nil {
			return nil, fmt.Errorf("extended attributes: %w", agents.ErrDamaged)
		}
		name, err := strconv.Unquote(quoted)
		if err != nil {
			return nil, fmt.Errorf("extended attributes: %w", agents.ErrDamaged)
		}
		rest, ok := strings.CutPrefix(s[len(quoted):], ":")
		value, more, again := strings.Cut(rest, ",")
		data, err := base64.StdEncoding.DecodeString(value)
		if !ok || err != nil {
			return nil, fmt.Errorf("extended attributes: %w", agents.ErrDamaged)
		}
		m[name] = string(data)
		if !again {
			return m, nil
		}
		s = more
	}
}
