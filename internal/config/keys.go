// Package config knows the settings: every key with its type, default and
// valid values, where a value comes from, and in which order the places win:
// flag, environment, project file, user file, default (DESIGN §11).
//
// It reads and edits the two TOML files and leaves what a setting means to
// package engine.
package config

import (
	"fmt"
	"slices"
	"strings"

	agents "github.com/cleveragents/agents"
)

// Kind is the type of a key's value.
type Kind string

// The kinds of value and how they are written.
const (
	Text     Kind = "string"
	Bool     Kind = "bool"     // true or false
	Int      Kind = "int"      // a whole number
	Size     Kind = "size"     // bytes: 1048576, "512MiB", "10GiB"; 0 = no limit
	Duration Kind = "duration" // "30s", "5m", "12h", "30d"; a bare number is seconds
	Percent  Kind = "percent"  // "5%" or 5
	List     Kind = "list"     // "a,b" or ["a", "b"]
	Path     Kind = "path"     // an absolute path, or one below the data directory
)

// Key is one row of the table of known keys.
type Key struct {
	Name    string
	Kind    Kind
	Default string
	Values  []string // the only valid values; nil = any of its Kind
	Help    string
	// check looks at a canonical value beyond its Kind; nil = nothing more.
	check func(string) error
	// tightens reports whether a project file that nobody has trusted may
	// change the value from one to the other; nil = it may.
	tightens func(from, to string) bool
}

// The names of the keys that the program itself reads.
const (
	KeyStrategy     = "sandbox.strategy"
	KeyCleanup      = "sandbox.cleanup"
	KeySandboxDir   = "sandbox.dir"
	KeyEnforce      = "sandbox.enforce"
	KeyGitTimeout   = "sandbox.git_timeout"
	KeyGitInclude   = "sandbox.git.include"
	KeyProtected    = "sandbox.protected"
	KeyMinFree      = "sandbox.min-free"
	KeyArchiveKeep  = "sandbox.archive-keep"
	KeyCheckpoints  = "sandbox.checkpoint.enabled"
	KeyCheckpDir    = "sandbox.checkpoint.dir"
	KeyMaxPerPlan   = "sandbox.checkpoint.max-per-plan"
	KeyIgnored      = "sandbox.checkpoint.ignored"
	KeyQuota        = "sandbox.checkpoint.quota"
	KeyTotalQuota   = "sandbox.checkpoint.total-quota"
	KeyAutoPrune    = "sandbox.checkpoint.auto-prune"
	KeyAutoCreateOn = "checkpoints.auto_create_on"
	KeyProfile      = "core.automation-profile"
)

// Keys returns the table of known keys, sorted by name.
func Keys() []Key {
	keys := []Key{
		{
			Name: KeyStrategy, Kind: Text, Default: string(agents.GitWorktree), Values: names(agents.Strategies()),
			Help:     "isolation strategy for resources that do not name one; unset, each type has its own",
			tightens: func(_, to string) bool { return to != string(agents.NoIsolation) },
		},
		{
			Name: KeyCleanup, Kind: Text, Default: "on_apply", Values: []string{"on_apply", "on_terminal", "manual"},
			Help: "when a plan's sandboxes are removed",
		},
		{
			Name: KeySandboxDir, Kind: Path, Default: "sandboxes", tightens: never,
			Help: "directory of the visible sandbox directories",
		},
		{
			Name: KeyEnforce, Kind: Text, Default: "auto", Values: []string{"auto", "required", "off"},
			Help:     "whether the kernel must keep commands inside the sandbox",
			tightens: rising("off", "auto", "required"),
		},
		{
			Name: KeyGitTimeout, Kind: Duration, Default: "30s", check: positive,
			Help: "a git call without progress for that long is ended",
		},
		{
			Name: KeyGitInclude, Kind: List, Default: "",
			Help: "patterns of ignored files that come into a git sandbox",
		},
		{
			Name: KeyProtected, Kind: List, Default: ".git,.cleveragents,node_modules", check: plainNames, tightens: superset,
			Help: "names that file strategies never write back, at any depth; empty = none",
		},
		{
			Name: KeyMinFree, Kind: Percent, Default: "5%", tightens: more(parsePercentNumber),
			Help: "share of the file system that checkpoints leave free",
		},
		{
			Name: KeyArchiveKeep, Kind: Duration, Default: "30d", check: positive, tightens: more(durationNumber),
			Help: "how long archived work is kept",
		},
		{
			Name: KeyCheckpoints, Kind: Bool, Default: "true", tightens: rising("false", "true"),
			Help: "whether checkpoints are made at all",
		},
		{
			Name: KeyCheckpDir, Kind: Path, Default: "checkpoints", tightens: never,
			Help: "directory of the checkpoint payloads",
		},
		{
			Name: KeyMaxPerPlan, Kind: Int, Default: "50", check: inRange(1, 100), tightens: more(intNumber),
			Help: "most checkpoints that a plan keeps, 1 to 100",
		},
		{
			Name: KeyIgnored, Kind: Text, Default: "changed", Values: []string{"changed", "all", "none"},
			Help:     "which ignored files a checkpoint holds",
			tightens: rising("none", "changed", "all"),
		},
		{
			Name: KeyQuota, Kind: Size, Default: "10GiB", tightens: moreOrNone,
			Help: "most bytes of one plan's checkpoints; 0 = no limit",
		},
		{
			Name: KeyTotalQuota, Kind: Size, Default: "50GiB", tightens: moreOrNone,
			Help: "most bytes of all checkpoints; 0 = no limit",
		},
		{
			Name: KeyAutoPrune, Kind: Bool, Default: "true", tightens: rising("true", "false"),
			Help: "whether the oldest checkpoints go when there are too many",
		},
		{
			Name: KeyAutoCreateOn, Kind: List, Default: strings.Join(names(agents.Triggers()), ","),
			Values: names(agents.Triggers()), tightens: superset,
			Help: "events that make a checkpoint by themselves; empty = none",
		},
		{
			Name: KeyProfile, Kind: Text, Default: agents.DefaultProfile, Values: profileNames(), tightens: stricterProfile,
			Help: "automation profile of plans that name none",
		},
	}
	slices.SortFunc(keys, func(a, b Key) int { return strings.Compare(a.Name, b.Name) })
	return keys
}

// KeyByName returns the row for name. An unknown name is agents.ErrInvalid and
// the message lists the valid ones.
func KeyByName(name string) (Key, error) {
	keys := Keys()
	known := make([]string, len(keys))
	for i, k := range keys {
		if k.Name == name {
			return k, nil
		}
		known[i] = k.Name
	}
	return Key{}, fmt.Errorf("unknown configuration key %q: want one of %s: %w", name, strings.Join(known, ", "), agents.ErrInvalid)
}

// Env returns the environment variable that sets the key: CLEVERAGENTS_ and
// the name in capitals with every other sign as "_".
func (k Key) Env() string {
	return "CLEVERAGENTS_" + strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, strings.ToUpper(k.Name))
}

// mayTighten reports whether an untrusted project file may change from to to.
func (k Key) mayTighten(from, to string) bool {
	return k.tightens == nil || from == to || k.tightens(from, to)
}

func names[T ~string](list []T) []string {
	out := make([]string, len(list))
	for i, n := range list {
		out[i] = string(n)
	}
	return out
}

func profileNames() []string {
	var out []string
	for _, p := range agents.Profiles() {
		out = append(out, p.Name)
	}
	return out
}

func never(string, string) bool { return false }

// rising allows a move to a later value of this order.
func rising(order ...string) func(from, to string) bool {
	return func(from, to string) bool { return slices.Index(order, to) >= slices.Index(order, from) }
}

// more allows a move to a greater number.
func more(number func(string) (float64, error)) func(from, to string) bool {
	return func(from, to string) bool {
		a, errA := number(from)
		b, errB := number(to)
		return errA == nil && errB == nil && b >= a
	}
}

// moreOrNone allows a move to a greater number of bytes, where 0 is no limit.
func moreOrNone(from, to string) bool {
	a, errA := ParseSize(from)
	b, errB := ParseSize(to)
	return errA == nil && errB == nil && (b == 0 || a != 0 && b >= a)
}

// superset allows a move to a list that holds everything in the one before.
func superset(from, to string) bool {
	list := splitList(to)
	for _, item := range splitList(from) {
		if !slices.Contains(list, item) {
			return false
		}
	}
	return true
}

// stricterProfile allows a move to a profile that permits nothing more.
func stricterProfile(from, to string) bool {
	a, errA := agents.ProfileByName(from)
	b, errB := agents.ProfileByName(to)
	if errA != nil || errB != nil {
		return false
	}
	return (b.RequireSandbox || !a.RequireSandbox) &&
		(b.RequireCheckpoints || !a.RequireCheckpoints) &&
		(!b.AllowUnsafeTools || a.AllowUnsafeTools)
}
