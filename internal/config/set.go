package config

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/fsx"
)

// Set puts name = value into a configuration file and keeps its comments and
// layout. The name, the value and the file are checked first; what is wrong is
// agents.ErrInvalid and nothing is written. A missing file is made, mode 0600.
func Set(file, name, value string) error {
	key, err := KeyByName(name)
	if err != nil {
		return err
	}
	canonical, err := key.Parse(value)
	if err != nil {
		return err
	}
	_, data, err := readFile(file)
	if err != nil {
		return err
	}
	edited, err := edit(file, data, key, canonical)
	if err != nil {
		return err
	}
	if err := fsx.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	return fsx.Publish(file, edited, 0o600)
}

// edit returns data with the key set. It tries the ways to write that from the
// most natural to the plainest, and takes the first that reads back right: a
// table that is spelt with dotted keys, say, cannot be opened a second time.
func edit(file string, data []byte, key Key, value string) ([]byte, error) {
	places, err := locate(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", file, err, agents.ErrInvalid)
	}
	path := strings.Split(key.Name, ".")
	text := tomlText(key, value)
	for _, try := range []func() []byte{
		func() []byte { return replaceValue(data, places, path, text) },
		func() []byte { return insertInTable(data, path, text) },
		func() []byte { return appendTable(data, path, text) },
		func() []byte { return prependDotted(data, path, text) },
	} {
		if out := try(); out != nil && readsBack(file, out, data, key, value) {
			return out, nil
		}
	}
	return nil, agents.WithHint(fmt.Errorf("%s: no place for %s: %w", file, key.Name, agents.ErrInvalid), "edit the file by hand")
}

// readsBack reports whether edited holds the value, and everything else that
// was in data.
func readsBack(file string, edited, data []byte, key Key, value string) bool {
	got, err := parseFile(file, edited)
	if err != nil {
		return false
	}
	before, err := parseFile(file, data)
	if err != nil {
		return false
	}
	want := map[string]string{}
	for _, e := range before {
		want[e.key.Name] = e.value
	}
	want[key.Name] = value
	for _, e := range got {
		if want[e.key.Name] != e.value {
			return false
		}
	}
	return len(got) == len(want)
}

func replaceValue(data []byte, places []place, path []string, text string) []byte {
	for _, p := range places {
		if slices.Equal(p.path, path) {
			start, end := p.start, p.start+p.length
			if !p.scalar {
				start, end = arrayRange(data, p)
			}
			return slices.Concat(data[:start], []byte(text), data[end:])
		}
	}
	return nil
}

// arrayRange finds the bytes of an array: from the "=" of its line to the
// bracket that closes it, with strings and comments skipped.
func arrayRange(data []byte, p place) (start, end int) {
	at := 0
	for range p.line - 1 {
		at += bytes.IndexByte(data[at:], '\n') + 1
	}
	start = at + bytes.IndexByte(data[at:], '[')
	depth := 0
	for i := start; i < len(data); i++ {
		switch c := data[i]; c {
		case '[':
			depth++
		case ']':
			if depth--; depth == 0 {
				return start, i + 1
			}
		case '#':
			i += bytes.IndexByte(data[i:], '\n')
		case '"', '\'':
			for i++; i < len(data) && data[i] != c; i++ {
				if c == '"' && data[i] == '\\' {
					i++
				}
			}
		}
	}
	return start, start
}

// insertInTable puts the key behind the last line of its table that is no
// comment and not blank.
func insertInTable(data []byte, path []string, text string) []byte {
	header := "[" + strings.Join(path[:len(path)-1], ".") + "]"
	lines := bytes.SplitAfter(data, []byte("\n"))
	at := -1
	inside := false
	for i, line := range lines {
		trimmed := string(bytes.TrimSpace(stripComment(line)))
		switch {
		case strings.HasPrefix(trimmed, "["):
			inside = strings.ReplaceAll(trimmed, " ", "") == header
			if inside {
				at = i + 1
			}
		case inside && trimmed != "":
			at = i + 1
		}
	}
	if at < 0 {
		return nil
	}
	return joinLines(lines[:at], path[len(path)-1]+" = "+text, lines[at:], eol(data))
}

func appendTable(data []byte, path []string, text string) []byte {
	end := eol(data)
	var b bytes.Buffer
	b.Write(data)
	if len(data) > 0 {
		if !bytes.HasSuffix(data, []byte("\n")) {
			b.WriteString(end)
		}
		b.WriteString(end)
	}
	b.WriteString("[" + strings.Join(path[:len(path)-1], ".") + "]" + end)
	b.WriteString(path[len(path)-1] + " = " + text + end)
	return b.Bytes()
}

func prependDotted(data []byte, path []string, text string) []byte {
	return joinLines(nil, strings.Join(path, ".")+" = "+text, [][]byte{data}, eol(data))
}

func joinLines(before [][]byte, line string, after [][]byte, end string) []byte {
	head := bytes.Join(before, nil)
	if len(head) > 0 && !bytes.HasSuffix(head, []byte("\n")) {
		head = append(slices.Clone(head), end...)
	}
	return slices.Concat(head, []byte(line+end), bytes.Join(after, nil))
}

// eol is the line end that a file uses.
func eol(data []byte) string {
	if bytes.Contains(data, []byte("\r\n")) {
		return "\r\n"
	}
	return "\n"
}

// stripComment cuts a line at its "#". A "#" in a string cuts too much, which
// does not matter to a caller that only asks whether the line is empty or a header.
func stripComment(line []byte) []byte {
	if i := bytes.IndexByte(line, '#'); i >= 0 {
		return line[:i]
	}
	return line
}

// tomlText writes a canonical value in TOML.
func tomlText(k Key, value string) string {
	switch k.Kind {
	case Bool, Int:
		return value
	case List:
		items := splitList(value)
		for i, item := range items {
			items[i] = quote(item)
		}
		return "[" + strings.Join(items, ", ") + "]"
	}
	return quote(value)
}

// quote writes a TOML basic string.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r < ' ' || r == 0x7f:
			b.WriteString(`\u00` + strconv.FormatInt(int64(r)+0x100, 16)[1:])
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
