package agents_test

import (
	"errors"
	"testing"
	"unicode/utf8"

	agents "github.com/cleveragents/agents"
)

func TestEscapePath(t *testing.T) {
	for _, tt := range []struct{ raw, want string }{
		{"", ""},
		{"a/b.txt", "a/b.txt"},
		{"caf\xe9", `caf\xe9`},
		{"café", "café"},
		{`a\b`, `a\\b`},
		{"\xff\xfe", `\xff\xfe`},
		{`\xff`, `\\xff`},
		{"line\nbreak", "line\nbreak"},
		{"�", "�"},
	} {
		if got := agents.EscapePath(tt.raw); got != tt.want {
			t.Errorf("EscapePath(%q) = %q, want %q", tt.raw, got, tt.want)
		}
		if got, err := agents.UnescapePath(tt.want); got != tt.raw || err != nil {
			t.Errorf("UnescapePath(%q) = %q, %v, want %q", tt.want, got, err, tt.raw)
		}
	}
}

func TestUnescapePathRefuses(t *testing.T) {
	for _, s := range []string{`\`, `a\`, `\x`, `\xf`, `\xgg`, `\n`, `a\b`, "\xff", `\x+1`} {
		if got, err := agents.UnescapePath(s); !errors.Is(err, agents.ErrInvalid) {
			t.Errorf("UnescapePath(%q) = %q, %v, want ErrInvalid", s, got, err)
		}
	}
}

func FuzzEscapePath(f *testing.F) {
	for _, s := range []string{"", "a", `\`, "\xff", `\xff`, "é\xe9", "a\x00b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		escaped := agents.EscapePath(raw)
		if !utf8.ValidString(escaped) {
			t.Errorf("EscapePath(%q) = %q: not UTF-8", raw, escaped)
		}
		if got, err := agents.UnescapePath(escaped); got != raw || err != nil {
			t.Errorf("UnescapePath(%q) = %q, %v, want %q", escaped, got, err, raw)
		}
	})
}

func FuzzUnescapePath(f *testing.F) {
	for _, s := range []string{"", `\\`, `\xff`, `\x`, `\x41`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		raw, err := agents.UnescapePath(s)
		if err != nil {
			return
		}
		again, err := agents.UnescapePath(agents.EscapePath(raw))
		if again != raw || err != nil {
			t.Errorf("round trip of %q: %q, %v, want %q", s, again, err, raw)
		}
	})
}
