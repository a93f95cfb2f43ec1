package git

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	agents "github.com/cleveragents/agents"
)

// Ref is one reference.
type Ref struct {
	Name   string
	ID     string
	Symref string // what it points at, for a symbolic one
}

// Refs lists references whose names begin with one of the prefixes (whole
// components, or none for all), sorted by name.
func (r Repo) Refs(ctx context.Context, prefixes ...string) ([]Ref, error) {
	args := append([]string{"for-each-ref", "--format=%(objectname)%00%(symref)%00%(refname)%00", "--"}, prefixes...)
	out, err := r.Read(ctx, args...)
	if err != nil {
		return nil, err
	}
	f := Fields(out)
	refs := make([]Ref, 0, len(f)/3)
	for i := 0; i+2 < len(f); i += 3 {
		refs = append(refs, Ref{ID: strings.TrimPrefix(f[i], "\n"), Symref: f[i+1], Name: f[i+2]})
	}
	return refs, nil
}

// Ref returns the id that a full reference name holds, or agents.ErrNotFound.
func (r Repo) Ref(ctx context.Context, name string) (string, error) {
	res, err := r.Do(ctx, Call{Args: []string{"rev-parse", "--verify", "--quiet", "--end-of-options", name}, OK: []int{1, 128}})
	if err != nil {
		return "", err
	}
	if res.ExitCode != 0 {
		return "", fmt.Errorf("ref %s: %w", name, agents.ErrNotFound)
	}
	return strings.TrimSuffix(string(res.Stdout), "\n"), nil
}

// RefChange is one change of a reference, by compare-and-swap.
type RefChange struct {
	Ref string
	Old string // the id it must have; "" = it must not exist
	New string // "" = delete it
}

// UpdateRefs makes all changes or none. A reference that is not at its Old
// is agents.ErrConflict. It writes a reflog entry with message where the
// repository keeps reflogs and message is not "".
func (r Repo) UpdateRefs(ctx context.Context, message string, changes ...RefChange) error {
	var in bytes.Buffer
	in.WriteString("start\x00")
	for _, c := range changes {
		switch {
		case c.New == "":
			fmt.Fprintf(&in, "delete %s\x00%s\x00", c.Ref, c.Old)
		case c.Old == "":
			fmt.Fprintf(&in, "create %s\x00%s\x00", c.Ref, c.New)
		default:
			fmt.Fprintf(&in, "update %s\x00%s\x00%s\x00", c.Ref, c.New, c.Old)
		}
	}
	in.WriteString("prepare\x00commit\x00")
	args := []string{"update-ref", "--no-deref", "--stdin", "-z"}
	if message != "" {
		args = append([]string{"update-ref", "-m", message}, args[1:]...)
	} else {
		r.Config = append(append([]string(nil), r.Config...), "core.logAllRefUpdates=false")
	}
	_, err := r.Do(ctx, Call{Args: args, Stdin: &in, Writes: true, Finish: true})
	var said *Error
	if errors.As(err, &said) && said.Err == nil {
		return fmt.Errorf("move refs: %w: %w", err, agents.ErrConflict)
	}
	return err
}

// IsAncestor reports whether commit a is reachable from commit b.
func (r Repo) IsAncestor(ctx context.Context, a, b string) (bool, error) {
	res, err := r.Do(ctx, Call{Args: []string{"merge-base", "--is-ancestor", "--end-of-options", a, b}, OK: []int{1}})
	return err == nil && res.ExitCode == 0, err
}

// MergeBase returns the best common ancestor of two commits, or "" where there is none.
func (r Repo) MergeBase(ctx context.Context, a, b string) (string, error) {
	res, err := r.Do(ctx, Call{Args: []string{"merge-base", "--end-of-options", a, b}, OK: []int{1}})
	return strings.TrimSuffix(string(res.Stdout), "\n"), err
}

// Setting is one value of git's configuration.
type Setting struct {
	Scope  string // system, global, local, worktree, command
	Origin string // "file:…", as git prints it
	Key    string // section and name in lower case, the subsection as it is
	Value  string
	Bare   bool // the key stands alone, which means true
}

// Settings lists the whole configuration in force, includes followed, in
// order: the last value of a key wins. Settings of the call itself are left out.
func (r Repo) Settings(ctx context.Context) ([]Setting, error) {
	out, err := r.Read(ctx, "config", "--list", "--includes", "--show-scope", "--show-origin", "-z")
	if err != nil {
		return nil, err
	}
	f := Fields(out)
	all := make([]Setting, 0, len(f)/3)
	for i := 0; i+2 < len(f); i += 3 {
		if f[i] == "command" {
			continue
		}
		key, value, found := strings.Cut(f[i+2], "\n")
		all = append(all, Setting{Scope: f[i], Origin: f[i+1], Key: key, Value: value, Bare: !found})
	}
	return all, nil
}

// Value returns the value in force of a key, and whether there is one.
func Value(all []Setting, key string) (string, bool) {
	for i := len(all) - 1; i >= 0; i-- {
		if strings.EqualFold(all[i].Key, key) {
			if all[i].Bare {
				return "true", true
			}
			return all[i].Value, true
		}
	}
	return "", false
}

// True reports whether the value in force of a key means true.
func True(all []Setting, key string) bool {
	v, ok := Value(all, key)
	switch strings.ToLower(v) {
	case "", "false", "no", "off", "0":
		return false
	}
	return ok
}
