package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	agents "github.com/cleveragents/agents"
)

// detect reads a value of -r: [NAME=]PATH|DSN, NAME=TYPE:PATH, or the name of
// a stored resource. It looks and changes nothing.
func (s *session) detect(ctx context.Context, arg string) (agents.Resource, error) {
	name, rest := splitName(arg)
	kind, location, err := classify(rest)
	if errors.Is(err, agents.ErrNotFound) && name == "" {
		if r, err := s.engine.Resource(ctx, arg); err == nil {
			return r, nil
		}
	}
	if err != nil {
		return agents.Resource{}, fmt.Errorf("resource %s: %w", arg, err)
	}
	return s.known(ctx, agents.Resource{Name: name, Type: kind, Location: location})
}

// detectAll reads all values of -r; without any, the working directory.
func (s *session) detectAll(ctx context.Context, args []string, orWorkDir bool) ([]agents.Resource, error) {
	if len(args) == 0 && orWorkDir {
		args = []string{"."}
	}
	var out []agents.Resource
	for _, arg := range args {
		r, err := s.detect(ctx, arg)
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, nil
}

// known returns the stored resource that r is, by type and by file identity,
// so that two spellings of a path are one resource. A new one gets a name.
func (s *session) known(ctx context.Context, r agents.Resource) (agents.Resource, error) {
	stored, err := s.engine.Resources(ctx)
	if err != nil {
		return agents.Resource{}, err
	}
	for _, k := range stored {
		if k.Type == r.Type && sameThing(k, r) && (r.Name == "" || r.Name == k.Name) {
			return k, nil
		}
	}
	if r.Name == "" {
		r.Name = nameFor(r.Location)
		return r, nil
	}
	for _, k := range stored {
		if k.Name == r.Name {
			return r, agents.WithHint(fmt.Errorf("resource %s is %s already: %w", r.Name, k.Location, agents.ErrExists), "choose another name")
		}
	}
	return r, agents.ValidateName("resource name", r.Name)
}

func sameThing(a, b agents.Resource) bool {
	if a.Location == b.Location {
		return true
	}
	fa, errA := os.Stat(a.Location)
	fb, errB := os.Stat(b.Location)
	return errA == nil && errB == nil && os.SameFile(fa, fb)
}

// splitName takes NAME= off the front, if what is there can be a name.
func splitName(arg string) (name, rest string) {
	name, rest, ok := strings.Cut(arg, "=")
	if !ok || agents.ValidateName("name", name) != nil {
		return "", arg
	}
	if _, err := os.Lstat(arg); err == nil {
		return "", arg // a path that holds "="
	}
	return name, rest
}

// classify finds the type of a path or DSN; TYPE:PATH says it.
func classify(s string) (agents.ResourceType, string, error) {
	if s == "" {
		return "", "", fmt.Errorf("no path: %w", agents.ErrInvalid)
	}
	if strings.HasPrefix(s, "postgres://") || strings.HasPrefix(s, "postgresql://") {
		return agents.TypePostgres, s, nil
	}
	if kind, path, ok := strings.Cut(s, ":"); ok {
		if info, err := agents.TypeInfoOf(agents.ResourceType(kind)); err == nil {
			return typed(info, path, "-r")
		}
	}
	if scheme, _, ok := strings.Cut(s, "://"); ok {
		return "", "", agents.WithHint(fmt.Errorf("URLs with %s:// are of no type that is known: %w", scheme, agents.ErrInvalid),
			"want a path or postgres://…")
	}
	return byContent(s)
}

// typed checks a location whose type the user named; with is the flag that
// takes it.
func typed(info agents.TypeInfo, location, with string) (agents.ResourceType, string, error) {
	if location == "" {
		return "", "", fmt.Errorf("%s: no path: %w", info.Type, agents.ErrInvalid)
	}
	if info.LocationURL {
		return info.Type, location, nil
	}
	abs, _, err := existing(location)
	if err == nil && info.Type == agents.TypeGitCheckout {
		err = refuseBelowRoot(abs, with)
	}
	return info.Type, abs, err
}

// byContent looks at what is at a path.
func byContent(path string) (agents.ResourceType, string, error) {
	abs, fi, err := existing(path)
	switch {
	case err != nil:
		return "", "", err
	case !fi.IsDir() && !fi.Mode().IsRegular(): // opening a FIFO would wait for a writer
		return "", "", agents.WithHint(fmt.Errorf("%s is neither a file nor a directory: %w", abs, agents.ErrInvalid), "name a file or a directory with -r")
	case !fi.IsDir() && isSQLite(abs):
		return agents.TypeSQLite, abs, nil
	case !fi.IsDir():
		return agents.TypeFile, abs, nil
	case isGitRoot(abs):
		return agents.TypeGitCheckout, abs, nil
	}
	return agents.TypeDirectory, abs, refuseBelowRoot(abs, "-r")
}

// existing returns the absolute spelling of a path and what is there.
func existing(path string) (string, fs.FileInfo, error) {
	if strings.ContainsRune(path, 0) {
		return "", nil, fmt.Errorf("path %q: %w", path, agents.ErrInvalid)
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", nil, err
	}
	fi, err := os.Stat(abs)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return "", nil, fmt.Errorf("path %s: %w", abs, agents.ErrNotFound)
	}
	return abs, fi, err
}

// refuseBelowRoot refuses a directory inside a repository, which is easily
// meant for its root.
func refuseBelowRoot(dir, with string) error {
	if isGitRoot(dir) {
		return nil
	}
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return err
	}
	for up := filepath.Dir(real); ; up = filepath.Dir(up) {
		if isGitRoot(up) {
			hint := "name the root with " + with + " " + quoted(up)
			if with == "-r" {
				hint += ", or take a plain copy of this directory alone with -r " + string(agents.TypeDirectory) + ":" + quoted(dir)
			}
			return agents.WithHint(fmt.Errorf("%s is inside the repository %s, not its root: %w", dir, up, agents.ErrInvalid), "%s", hint)
		}
		if up == filepath.Dir(up) {
			return nil
		}
	}
}

// isGitRoot reports whether dir is the root of a repository: it holds .git, or
// is a bare repository itself.
func isGitRoot(dir string) bool {
	if fi, err := os.Stat(filepath.Join(dir, ".git")); err == nil {
		if fi.Mode().IsRegular() {
			b, err := os.ReadFile(filepath.Join(dir, ".git"))
			return err == nil && bytes.HasPrefix(b, []byte("gitdir:"))
		}
		return exists(filepath.Join(dir, ".git", "HEAD"))
	}
	return exists(filepath.Join(dir, "HEAD")) && exists(filepath.Join(dir, "objects")) && exists(filepath.Join(dir, "refs"))
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// isSQLite looks for the magic of the file format.
func isSQLite(path string) bool {
	const magic = "SQLite format 3\x00"
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	head := make([]byte, len(magic))
	_, err = io.ReadFull(f, head)
	return err == nil && string(head) == magic
}

// nameFor makes a valid name of a location's last part.
func nameFor(location string) string {
	location, _, _ = strings.Cut(location, "?")
	base := strings.TrimSuffix(filepath.Base(location), ".git")
	var b strings.Builder
	for _, r := range base {
		alnum := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
		switch {
		case alnum || b.Len() > 0 && (r == '_' || r == '-' || r == '.'):
			b.WriteRune(r)
		case b.Len() > 0:
			b.WriteByte('-')
		}
	}
	name := b.String()
	for strings.Contains(name, "..") {
		name = strings.ReplaceAll(name, "..", ".")
	}
	if name = strings.TrimRight(name[:min(len(name), 90)], "-."); name == "" {
		return "resource"
	}
	return name
}
