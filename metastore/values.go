package metastore

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	agents "github.com/cleveragents/agents"
)

// timeLayout is ISO 8601 in UTC, to the nanosecond: 30 characters that sort by time.
const timeLayout = "2006-01-02T15:04:05.000000000Z"

// stamp is a time as a column holds it.
func stamp(t time.Time) string { return t.UTC().Format(timeLayout) }

// stampOrNull is a time that may be missing.
func stampOrNull(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return stamp(t)
}

// textOrNull is a text that may be missing.
func textOrNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// column reads a column with its own rule; NULL is passed on as nil.
type column func(src any) error

// Scan implements sql.Scanner.
func (c column) Scan(src any) error { return c(src) }

// timeColumn reads what stamp or stampOrNull wrote.
func timeColumn(t *time.Time) column {
	return func(src any) error {
		if src == nil {
			*t = time.Time{}
			return nil
		}
		v, err := time.Parse(timeLayout, asText(src))
		if err != nil {
			return fmt.Errorf("time %q: %w", clip(asText(src)), agents.ErrDamaged)
		}
		*t = v
		return nil
	}
}

// textColumn reads what textOrNull wrote.
func textColumn(s *string) column {
	return func(src any) error {
		*s = asText(src)
		return nil
	}
}

// jsonColumn reads what encode wrote; NULL leaves v alone.
func jsonColumn(v any) column {
	return func(src any) error {
		if src == nil {
			return nil
		}
		if err := decode(asText(src), v); err != nil {
			return fmt.Errorf("json: %w: %w", agents.ErrDamaged, err)
		}
		return nil
	}
}

// mapColumn reads what encodeMap wrote.
func mapColumn(m *map[string]string) column {
	return func(src any) error {
		var escaped map[string]string
		if err := jsonColumn(&escaped).Scan(src); err != nil {
			return err
		}
		*m = convertMap(escaped, unescape)
		return nil
	}
}

func asText(src any) string {
	switch v := src.(type) {
	case string:
		return v
	case []byte:
		return string(v)
	case nil:
		return ""
	}
	return fmt.Sprint(src)
}

func encode(v any) (string, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("encode: %w: %w", agents.ErrInvalid, err)
	}
	return string(b), nil
}

// decode reads JSON. Numbers come back as int where they are whole, so that a
// step's input is what the action file said.
func decode(s string, v any) error {
	d := json.NewDecoder(strings.NewReader(s))
	d.UseNumber()
	if err := d.Decode(v); err != nil {
		return err
	}
	if m, ok := v.(*map[string]any); ok {
		for k, x := range *m {
			(*m)[k] = plainNumbers(x)
		}
	}
	return nil
}

func plainNumbers(v any) any {
	switch v := v.(type) {
	case json.Number:
		if i, err := strconv.Atoi(v.String()); err == nil {
			return i
		}
		if f, err := v.Float64(); err == nil {
			return f
		}
	case map[string]any:
		for k, x := range v {
			v[k] = plainNumbers(x)
		}
	case []any:
		for i, x := range v {
			v[i] = plainNumbers(x)
		}
	}
	return v
}

// encodeMap writes names and values that may hold any bytes (a path of the
// file system, say) as JSON, which may not.
func encodeMap(m map[string]string) (string, error) {
	return encode(convertMap(m, escape))
}

func convertMap(m map[string]string, f func(string) string) map[string]string {
	if m == nil {
		return nil
	}
	out := make(map[string]string, len(m))
	for k, v := range m {
		out[f(k)] = f(v)
	}
	return out
}

// escape writes a byte that is not UTF-8 as \xHH and doubles the backslash.
func escape(s string) string {
	if utf8.ValidString(s) && !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02X`, s[0])
		case r == '\\':
			b.WriteString(`\\`)
		default:
			b.WriteString(s[:n])
		}
		s = s[n:]
	}
	return b.String()
}

// unescape takes back what escape did.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] != '\\':
			b.WriteByte(s[i])
		case strings.HasPrefix(s[i:], `\\`):
			b.WriteByte('\\')
			i++
		case len(s) >= i+4 && s[i+1] == 'x':
			v, err := strconv.ParseUint(s[i+2:i+4], 16, 8)
			if err != nil {
				b.WriteByte('\\')
				continue
			}
			b.WriteByte(byte(v))
			i += 3
		default:
			b.WriteByte('\\')
		}
	}
	return b.String()
}

// clip shortens text from outside for use in a message.
func clip(s string) string {
	if len(s) > 40 {
		return s[:40] + "…"
	}
	return s
}

// bytesOrNull is a value that may be missing: nil, which is not the same as empty.
func bytesOrNull(b []byte) any {
	if b == nil {
		return nil
	}
	return b
}
