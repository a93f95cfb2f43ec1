package config

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	agents "github.com/cleveragents/agents"
)

// Parse checks s and returns it in the canonical form of the key: lists as
// "a,b", true and false in full, the strategy's canonical name. What does not
// fit is agents.ErrInvalid and the message names what does.
func (k Key) Parse(s string) (string, error) {
	s = strings.TrimSpace(s)
	v, err := k.canonical(s)
	if err == nil && k.check != nil {
		err = k.check(v)
	}
	if err != nil {
		return "", fmt.Errorf("%s = %q: want %w: %w", k.Name, s, err, agents.ErrInvalid)
	}
	return v, nil
}

// canonical converts s; its error says what is wanted.
func (k Key) canonical(s string) (string, error) {
	switch k.Kind {
	case Bool:
		if s != "true" && s != "false" {
			return "", wanted("true or false")
		}
	case Int:
		n, err := strconv.Atoi(s)
		if err != nil {
			return "", wanted("a whole number")
		}
		return strconv.Itoa(n), nil
	case Size:
		_, err := ParseSize(s)
		return s, err
	case Duration:
		_, err := ParseDuration(s)
		return s, err
	case Percent:
		_, err := ParsePercent(s)
		return s, err
	case Path:
		if s == "" {
			return "", wanted("a path")
		}
	case List:
		return k.canonicalList(s)
	case Text:
		return k.canonicalText(s)
	}
	return s, nil
}

func (k Key) canonicalText(s string) (string, error) {
	if k.Name == KeyStrategy {
		if n, err := agents.ParseStrategy(s); err == nil {
			return string(n), nil
		}
	}
	if k.Values != nil && !slices.Contains(k.Values, s) {
		return "", wanted("one of " + strings.Join(k.Values, ", "))
	}
	return s, nil
}

func (k Key) canonicalList(s string) (string, error) {
	list := splitList(s)
	for _, item := range list {
		if k.Values != nil && !slices.Contains(k.Values, item) {
			return "", wanted("any of " + strings.Join(k.Values, ", "))
		}
	}
	return strings.Join(list, ","), nil
}

// wanted is an error that says what a value must look like.
type wanted string

func (w wanted) Error() string { return string(w) }

// splitList splits at commas, trims, and drops empty and repeated items.
func splitList(s string) []string {
	var out []string
	for _, item := range strings.Split(s, ",") {
		if item = strings.TrimSpace(item); item != "" && !slices.Contains(out, item) {
			out = append(out, item)
		}
	}
	return out
}

// ParseSize reads a number of bytes: a whole number with an optional unit
// B, K, KB, KiB, M … T. All units are powers of 1024 but KB, MB, GB and TB,
// which are powers of 1000.
func ParseSize(s string) (int64, error) {
	want := wanted(`a size such as "512MiB" or "10GiB"`)
	digits := strings.TrimRight(s, "BKMGTibkmgt ")
	n, err := strconv.ParseFloat(digits, 64)
	if err != nil || n < 0 || math.IsNaN(n) || math.IsInf(n, 0) {
		return 0, want
	}
	unit := strings.ToUpper(strings.TrimSpace(s[len(digits):]))
	powers := map[string]float64{
		"": 1, "B": 1,
		"K": 1 << 10, "KIB": 1 << 10, "KB": 1e3,
		"M": 1 << 20, "MIB": 1 << 20, "MB": 1e6,
		"G": 1 << 30, "GIB": 1 << 30, "GB": 1e9,
		"T": 1 << 40, "TIB": 1 << 40, "TB": 1e12,
	}
	p, ok := powers[unit]
	if !ok || n*p >= math.MaxInt64 {
		return 0, want
	}
	return int64(n * p), nil
}

// ParseDuration reads a span of time: Go's notation, "30d" for days, or a bare
// number of seconds.
func ParseDuration(s string) (time.Duration, error) {
	if n, err := strconv.Atoi(s); err == nil {
		return scaled(n, time.Second)
	}
	if days, ok := strings.CutSuffix(s, "d"); ok {
		if n, err := strconv.Atoi(days); err == nil {
			return scaled(n, 24*time.Hour)
		}
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return 0, errDuration
	}
	return d, nil
}

const errDuration = wanted(`a duration such as "30s", "5m" or "30d"`)

func scaled(n int, unit time.Duration) (time.Duration, error) {
	if n < 0 || int64(n) > math.MaxInt64/int64(unit) {
		return 0, errDuration
	}
	return time.Duration(n) * unit, nil
}

// ParsePercent reads a share of 0 to 100 percent, with or without the sign.
func ParsePercent(s string) (float64, error) {
	n, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(s, "%")), 64)
	if err != nil || !(n >= 0 && n <= 100) {
		return 0, wanted(`a percentage such as "5%"`)
	}
	return n, nil
}

func parsePercentNumber(s string) (float64, error) { return ParsePercent(s) }

func durationNumber(s string) (float64, error) {
	d, err := ParseDuration(s)
	return float64(d), err
}

func intNumber(s string) (float64, error) {
	n, err := strconv.Atoi(s)
	return float64(n), err
}

// positive refuses a duration of zero.
func positive(s string) error {
	if d, err := ParseDuration(s); err != nil || d <= 0 {
		return wanted("a duration above zero")
	}
	return nil
}

func inRange(low, high int) func(string) error {
	return func(s string) error {
		if n, err := strconv.Atoi(s); err != nil || n < low || n > high {
			return wanted(fmt.Sprintf("a whole number from %d to %d", low, high))
		}
		return nil
	}
}

// plainNames refuses a list with something that no file can be called: names
// count at any depth, so that a path among them would never be met.
func plainNames(s string) error {
	for _, name := range splitList(s) {
		if name == "." || name == ".." || strings.ContainsAny(name, "/\x00") {
			return wanted(`plain names without "/", such as node_modules`)
		}
	}
	return nil
}

// resolve makes a Path value absolute: below base where it is relative. A
// leading ~ is the home directory.
func resolve(base, home, p string) string {
	if rest, ok := strings.CutPrefix(p, "~/"); ok && home != "" {
		return filepath.Join(home, rest)
	}
	if filepath.IsAbs(p) {
		return filepath.Clean(p)
	}
	return filepath.Join(base, p)
}
