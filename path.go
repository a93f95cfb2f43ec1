package agents

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// EscapePath returns p as messages, panels and JSON documents spell it: bytes
// that are not UTF-8 become \xHH (two lower-case hex digits) and a backslash
// is doubled; everything else stays. UnescapePath(EscapePath(p)) is p for every p.
func EscapePath(p string) string {
	if utf8.ValidString(p) && !strings.Contains(p, `\`) {
		return p
	}
	var b strings.Builder
	for i := 0; i < len(p); {
		r, n := utf8.DecodeRuneInString(p[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, p[i])
		case r == '\\':
			b.WriteString(`\\`)
		default:
			b.WriteString(p[i : i+n])
		}
		i += n
	}
	return b.String()
}

// UnescapePath returns the raw bytes of a path that is spelt as EscapePath
// spells it. A backslash that begins neither \\ nor \xHH, or bytes that are not
// UTF-8, are ErrInvalid. Inputs of tools use the same spelling as their
// outputs, so a path that a tool printed can be given back to it.
func UnescapePath(s string) (string, error) {
	if !utf8.ValidString(s) {
		return "", fmt.Errorf("path %q: bytes that are not UTF-8 are written \\xHH: %w", clip(s), ErrInvalid)
	}
	if !strings.Contains(s, `\`) {
		return s, nil
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		rest := s[i:]
		switch {
		case rest[0] != '\\':
			b.WriteByte(rest[0])
			i++
		case strings.HasPrefix(rest, `\\`):
			b.WriteByte('\\')
			i += 2
		default:
			c, ok := hexEscape(rest)
			if !ok {
				return "", fmt.Errorf("path %q: a backslash is written \\\\, another byte \\xHH: %w", clip(s), ErrInvalid)
			}
			b.WriteByte(c)
			i += 4
		}
	}
	return b.String(), nil
}

// hexEscape reads the byte that \xHH at the beginning of s stands for.
func hexEscape(s string) (byte, bool) {
	if len(s) < 4 || s[1] != 'x' {
		return 0, false
	}
	n, err := strconv.ParseUint(s[2:4], 16, 8)
	return byte(n), err == nil
}
