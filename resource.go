package agents

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// StrategyName names a mechanism of isolation.
type StrategyName string

// The five strategies of ADR-015.
const (
	GitWorktree         StrategyName = "git_worktree"
	CopyOnWrite         StrategyName = "copy_on_write"
	Overlay             StrategyName = "overlay"
	TransactionRollback StrategyName = "transaction_rollback"
	NoIsolation         StrategyName = "none"
)

// Strategies lists every strategy name in the order in which messages print them.
func Strategies() []StrategyName {
	return []StrategyName{GitWorktree, CopyOnWrite, Overlay, TransactionRollback, NoIsolation}
}

// ParseStrategy returns the canonical name for s. "filesystem_copy" is
// accepted for copy_on_write and never printed. An unknown name is ErrInvalid
// and the message lists the valid ones.
func ParseStrategy(s string) (StrategyName, error) {
	if s == "filesystem_copy" {
		return CopyOnWrite, nil
	}
	if n := StrategyName(s); slices.Contains(Strategies(), n) {
		return n, nil
	}
	return "", fmt.Errorf("strategy %q: want one of %s: %w", clip(s), joinNames(Strategies()), ErrInvalid)
}

// ResourceType says what a resource is, and so which strategy it gets.
type ResourceType string

// The resource types of DESIGN §8.
const (
	TypeGitCheckout ResourceType = "git-checkout"
	TypeDirectory   ResourceType = "fs-directory"
	TypeFile        ResourceType = "fs-file"
	TypeMount       ResourceType = "fs-mount"
	TypePostgres    ResourceType = "postgres"
	TypeSQLite      ResourceType = "sqlite"
	TypeAPI         ResourceType = "api"
)

// TypeInfo is one row of the table of resource types.
type TypeInfo struct {
	Type        ResourceType
	Strategy    StrategyName // what the type gets when nobody says otherwise
	Allowed     []StrategyName
	LocationURL bool // the location is a URL, not a path
	Description string
}

// ResourceTypes returns the table of resource types, in the order in which
// lists print them (ADR-015, "Five Isolation Strategies").
func ResourceTypes() []TypeInfo {
	return []TypeInfo{
		{TypeGitCheckout, GitWorktree, []StrategyName{GitWorktree, CopyOnWrite, NoIsolation}, false, "a git repository, named by its root"},
		{TypeDirectory, CopyOnWrite, []StrategyName{CopyOnWrite, Overlay, NoIsolation}, false, "a directory"},
		{TypeFile, CopyOnWrite, []StrategyName{CopyOnWrite, NoIsolation}, false, "a single file"},
		{TypeMount, Overlay, []StrategyName{Overlay, CopyOnWrite, NoIsolation}, false, "a big directory tree or mount"},
		{TypePostgres, TransactionRollback, []StrategyName{TransactionRollback, NoIsolation}, true, "a PostgreSQL database"},
		{TypeSQLite, TransactionRollback, []StrategyName{TransactionRollback, CopyOnWrite, NoIsolation}, false, "a SQLite database file"},
		{TypeAPI, NoIsolation, []StrategyName{NoIsolation}, true, "an outside API, which cannot be isolated"},
	}
}

// TypeInfoOf returns the row for t. An unknown type is ErrInvalid and the
// message lists the valid ones.
func TypeInfoOf(t ResourceType) (TypeInfo, error) {
	var names []ResourceType
	for _, row := range ResourceTypes() {
		if row.Type == t {
			return row, nil
		}
		names = append(names, row.Type)
	}
	return TypeInfo{}, fmt.Errorf("resource type %q: want one of %s: %w", clip(string(t)), joinNames(names), ErrInvalid)
}

// Resource is a named thing that a plan may change.
type Resource struct {
	ID        string
	Name      string // unique; letters, digits, "-", "_", "." and "/"
	Type      ResourceType
	Location  string       // absolute path, or URL
	Branch    string       // git: the base branch; "" = what is checked out
	Strategy  StrategyName // override; "" = none given
	ReadOnly  bool
	CreatedAt time.Time

	// Within a plan, a resource that lies inside another one, or is the same
	// thing under another name, has no sandbox of its own but a part of the
	// other's.
	Boundary string // id of the resource whose sandbox it shares; "" = it has its own
	SubPath  string // where it lies in that sandbox: raw bytes, "/" between names, "." = all of it; "" without Boundary
}

// Strategy returns the strategy for r and, when a wish could not be met, a
// sentence that says so. The order is: the resource's own override, then
// configured (the value of sandbox.strategy if somebody set it, else ""), then
// the type's own. A configured value that the type cannot use falls to the
// type's own; none is never reached by falling back (DESIGN §8).
func (r Resource) EffectiveStrategy(configured StrategyName) (StrategyName, string) {
	if r.Strategy != "" {
		return r.Strategy, ""
	}
	info, err := TypeInfoOf(r.Type)
	if err != nil {
		return "", err.Error()
	}
	switch {
	case configured == "":
		return info.Strategy, ""
	case slices.Contains(info.Allowed, configured):
		return configured, ""
	}
	return info.Strategy, fmt.Sprintf("resource %s: strategy %s does not fit type %s; using %s", r.Name, configured, r.Type, info.Strategy)
}

// Validate reports the first thing that is wrong with r as ErrInvalid.
func (r Resource) Validate() error {
	if err := ValidateName("resource name", r.Name); err != nil {
		return err
	}
	info, err := TypeInfoOf(r.Type)
	if err != nil {
		return err
	}
	if r.Location == "" {
		return fmt.Errorf("resource %s: no location given: %w", r.Name, ErrInvalid)
	}
	if r.Strategy != "" && !slices.Contains(info.Allowed, r.Strategy) {
		return fmt.Errorf("resource %s: type %s cannot use strategy %s; want one of %s: %w",
			r.Name, r.Type, r.Strategy, joinNames(info.Allowed), ErrInvalid)
	}
	return nil
}

// ValidateName checks a name that a user gives to a resource, project, action
// or plan: 1 to 100 letters, digits, "-", "_", "." and "/", beginning with a
// letter or digit, without "..". The error is ErrInvalid and begins with what.
func ValidateName(what, name string) error {
	ok := len(name) > 0 && len(name) <= 100 && !strings.Contains(name, "..")
	for i, c := range name {
		alnum := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !alnum && (i == 0 || !strings.ContainsRune("-_./", c)) {
			ok = false
		}
	}
	if !ok {
		return fmt.Errorf("%s %q: want 1 to 100 letters, digits, - _ . and /, beginning with a letter or digit: %w", what, clip(name), ErrInvalid)
	}
	return nil
}

// Project is a named set of linked resources.
type Project struct {
	ID        string
	Name      string
	Resources []Resource // in the order in which they were linked
	CreatedAt time.Time
}

func joinNames[T ~string](names []T) string {
	s := make([]string, len(names))
	for i, n := range names {
		s[i] = string(n)
	}
	return strings.Join(s, ", ")
}
