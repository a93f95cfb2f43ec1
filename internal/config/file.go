package config

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"

	agents "github.com/cleveragents/agents"
)

// entry is one key of a file: its canonical value and where it stands.
type entry struct {
	key   Key
	value string
	line  int
}

// readFile returns the entries of a configuration file. A missing file has
// none. Whatever is wrong in it is agents.ErrInvalid with the file and line.
func readFile(path string) ([]entry, []byte, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read configuration: %w", err)
	}
	entries, err := parseFile(path, data)
	return entries, data, err
}

// parseFile is readFile for content that is already there; path is for messages.
func parseFile(path string, data []byte) ([]entry, error) {
	var tree map[string]any
	if err := toml.Unmarshal(data, &tree); err != nil {
		return nil, syntaxError(path, err)
	}
	places, err := locate(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", path, err, agents.ErrInvalid)
	}
	var entries []entry
	for _, p := range places {
		found, err := p.entries(valueAt(tree, p.path), path)
		if err != nil {
			return nil, err
		}
		entries = append(entries, found...)
	}
	return entries, nil
}

func syntaxError(path string, err error) error {
	var de *toml.DecodeError
	if errors.As(err, &de) {
		line, _ := de.Position()
		return fmt.Errorf("%s:%d: %s: %w", path, line, strings.TrimPrefix(de.Error(), "toml: "), agents.ErrInvalid)
	}
	return fmt.Errorf("%s: %s: %w", path, strings.TrimPrefix(err.Error(), "toml: "), agents.ErrInvalid)
}

// place is where a key = value line stands in a file.
type place struct {
	path   []string // table and key
	line   int
	start  int // of the value's bytes
	length int
	scalar bool // the bytes are the whole value
}

// locate lists the key = value lines of valid TOML in the order in which they stand.
func locate(data []byte) ([]place, error) {
	var (
		p      unstable.Parser
		places []place
		table  []string
	)
	p.Reset(data)
	for p.NextExpression() {
		expr := p.Expression()
		parts, line := keyOf(&p, expr)
		switch expr.Kind {
		case unstable.Table, unstable.ArrayTable:
			table = parts
		case unstable.KeyValue:
			raw := expr.Value().Raw
			kind := expr.Value().Kind
			places = append(places, place{
				path:   append(append([]string(nil), table...), parts...),
				line:   line,
				start:  int(raw.Offset),
				length: int(raw.Length),
				scalar: raw.Length > 0 && kind != unstable.Array && kind != unstable.InlineTable,
			})
		}
	}
	return places, p.Error()
}

func keyOf(p *unstable.Parser, expr *unstable.Node) (parts []string, line int) {
	for it := expr.Key(); it.Next(); {
		n := it.Node()
		if parts == nil {
			line = 1 + bytes.Count(p.Data()[:n.Raw.Offset], []byte("\n"))
		}
		parts = append(parts, string(n.Data))
	}
	return parts, line
}

func valueAt(tree map[string]any, path []string) any {
	var v any = tree
	for _, part := range path {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[part]
	}
	return v
}

// entries checks the value at p; an inline table has several keys.
func (p place) entries(v any, file string) ([]entry, error) {
	name := strings.Join(p.path, ".")
	if table, ok := v.(map[string]any); ok {
		var all []entry
		for part, inner := range table {
			q := p
			q.path = append(append([]string(nil), p.path...), part)
			found, err := q.entries(inner, file)
			if err != nil {
				return nil, err
			}
			all = append(all, found...)
		}
		return all, nil
	}
	key, err := KeyByName(name)
	if err != nil {
		return nil, fmt.Errorf("%s:%d: %w", file, p.line, err)
	}
	text, err := scalarText(key, v)
	if err == nil {
		text, err = key.Parse(text)
	}
	if err != nil {
		return nil, fmt.Errorf("%s:%d: %w", file, p.line, err)
	}
	return []entry{{key, text, p.line}}, nil
}

// scalarText is the text of a TOML value, as Key.Parse reads it.
func scalarText(k Key, v any) (string, error) {
	switch v := v.(type) {
	case string:
		return v, nil
	case bool:
		return strconv.FormatBool(v), nil
	case int64:
		return strconv.FormatInt(v, 10), nil
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64), nil
	case []any:
		return arrayText(k, v)
	}
	return "", fmt.Errorf("%s: a %s cannot be written like that: %w", k.Name, k.Kind, agents.ErrInvalid)
}

func arrayText(k Key, list []any) (string, error) {
	if k.Kind != List {
		return "", fmt.Errorf("%s: want one value, not a list: %w", k.Name, agents.ErrInvalid)
	}
	items := make([]string, len(list))
	for i, item := range list {
		s, ok := item.(string)
		if !ok || strings.Contains(s, ",") {
			return "", fmt.Errorf("%s: want a list of strings without commas: %w", k.Name, agents.ErrInvalid)
		}
		items[i] = s
	}
	return strings.Join(items, ","), nil
}
