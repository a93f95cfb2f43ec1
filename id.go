package agents

import (
	"fmt"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"
)

// MinPrefix is the shortest prefix of an id, in characters, that commands
// accept in its place.
const MinPrefix = 6

// NewID returns a new ULID for the moment at: 26 characters of Crockford's
// base 32 that sort by time. Two calls never return the same id.
func NewID(at time.Time) string {
	return ulid.MustNew(ulid.Timestamp(at), ulid.DefaultEntropy()).String()
}

// ValidID reports whether s is a whole ULID as NewID writes them.
func ValidID(s string) bool {
	_, err := ulid.ParseStrict(s)
	return err == nil && s == strings.ToUpper(s)
}

// ParseIDPrefix returns s in the form in which ids are stored, if s can be an
// id or a prefix of one: MinPrefix to 26 characters of the ULID alphabet, in
// either case. Anything else is ErrInvalid, so that text which begins with a
// dash or holds a slash never reaches a file name or another program.
func ParseIDPrefix(s string) (string, error) {
	up := strings.ToUpper(s)
	if len(up) < MinPrefix || len(up) > ulid.EncodedSize {
		return "", fmt.Errorf("id %q: want %d to %d characters: %w", clip(s), MinPrefix, ulid.EncodedSize, ErrInvalid)
	}
	for _, c := range up {
		if !strings.ContainsRune(ulid.Encoding, c) {
			return "", fmt.Errorf("id %q: %q is not in the alphabet of ids: %w", clip(s), c, ErrInvalid)
		}
	}
	return up, nil
}

// clip shortens text from outside for use in a message.
func clip(s string) string {
	if len(s) > 40 {
		return s[:40] + "…"
	}
	return s
}
