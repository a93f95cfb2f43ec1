package builtin

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/fsx"
	"github.com/cleveragents/agents/tool"
)

// place is the workspace of a call, as file tools see it.
type place struct {
	root     *fsx.Root
	resource string // the resource's real location; "" = none
}

// enter opens the workspace. The root comes from the environment of the call
// and never from its input.
func enter(env tool.Env) (*place, error) {
	if !env.Files {
		return nil, fmt.Errorf("resource %s is no directory of files: %w", env.Resource.Name, agents.ErrUnsupported)
	}
	root, err := fsx.OpenRoot(env.Path)
	if err != nil {
		return nil, err
	}
	p := &place{root: root}
	if filepath.IsAbs(env.Resource.Location) {
		p.resource = env.Resource.Location
	}
	return p, nil
}

func (p *place) leave() { _ = p.root.Close() }

// spot is a path of an input.
type spot struct {
	given string // as the caller wrote it, for results and messages
	rel   string // where it lies: relative to the workspace, raw bytes, "/" between names
}

// at finds where a path leads, with every link followed.
func (p *place) at(given string) (spot, error) { return p.find(given, p.root.Resolve) }

// itself finds where a path lies: a link at its end is the thing meant, unless
// a slash follows it.
func (p *place) itself(given string) (spot, error) {
	if strings.HasSuffix(given, "/") {
		return p.at(given)
	}
	return p.find(given, p.root.Place)
}

// target is at for a path that will be written.
func (p *place) target(given string) (spot, error) {
	s, err := p.at(given)
	return s, errors.Join(err, writable(s))
}

// targetItself is itself for a path that will be written.
func (p *place) targetItself(given string) (spot, error) {
	s, err := p.itself(given)
	return s, errors.Join(err, writable(s))
}

func (p *place) find(given string, resolve func(string) (string, error)) (spot, error) {
	s := spot{given: given}
	raw, err := agents.UnescapePath(given)
	if err != nil {
		return s, err
	}
	raw, err = localFile(raw)
	if err != nil {
		return s, err
	}
	rel, err := resolve(p.mapped(raw))
	if err != nil {
		return s, outside(err)
	}
	s.rel = filepath.ToSlash(rel)
	return s, nil
}

// outside adds what to do to a refusal of the path guard.
func outside(err error) error {
	if !errors.Is(err, agents.ErrInvalid) {
		return err
	}
	return agents.WithHint(err, "name a path inside the resource, relative to its top")
}

// localFile turns a file URL into a path and leaves everything else.
func localFile(raw string) (string, error) {
	if !strings.HasPrefix(strings.ToLower(raw), "file://") {
		return raw, nil
	}
	u, err := url.Parse(raw)
	if err != nil || u.Host != "" && u.Host != "localhost" || u.RawQuery != "" || u.Fragment != "" {
		return "", invalid("path %q is no URL of a local file", raw)
	}
	return filepath.FromSlash(u.Path), nil
}

// mapped turns an absolute path below the resource's real location into one
// relative to the workspace. What lies below is told by the identity of the
// directories on the way, not by text, so that other names of the location
// count and look-alikes do not. Any other path is left to the guard.
func (p *place) mapped(raw string) string {
	if !filepath.IsAbs(raw) || p.resource == "" || hasDotDot(raw) {
		return raw
	}
	real, err := os.Stat(p.resource)
	if err != nil {
		return raw
	}
	if _, err := p.root.Place(raw); err == nil {
		return raw // inside the workspace already
	}
	names := strings.Split(filepath.ToSlash(raw), "/")
	for i := range names {
		above := filepath.FromSlash(strings.Join(names[:i+1], "/") + "/")
		fi, err := os.Stat(above)
		if err != nil {
			return raw
		}
		if os.SameFile(fi, real) {
			return filepath.FromSlash(path.Join(append([]string{"."}, names[i+1:]...)...))
		}
	}
	return raw
}

func hasDotDot(raw string) bool {
	for _, name := range strings.Split(filepath.ToSlash(raw), "/") {
		if name == ".." {
			return true
		}
	}
	return false
}

// writable refuses the workspace's top and everything called .git.
func writable(s spot) error {
	if s.rel == "" {
		return nil // not found in the first place; that error speaks
	}
	if s.rel == "." {
		return invalid("path %q is the top of the resource itself", s.given)
	}
	if inGit(s.rel) || inGit(filepath.ToSlash(s.given)) {
		return agents.WithHint(invalid("path %q: nothing called .git is written by file tools", s.given), "the git tools and shell do git's work")
	}
	return nil
}

// inGit reports whether a name on the path is .git in any spelling that some
// file system takes for it.
func inGit(rel string) bool {
	for _, name := range strings.Split(rel, "/") {
		if isGit(name) {
			return true
		}
	}
	return false
}

func isGit(name string) bool {
	name = strings.TrimRight(name, ". ")
	return strings.EqualFold(name, ".git") || strings.EqualFold(name, "git~1")
}

// show is a path for results: below the spot, as the caller named the spot.
func (s spot) show(below string) string {
	escaped := agents.EscapePath(below)
	switch {
	case below == "" || below == ".":
		return s.given
	case s.given == ".":
		return escaped
	}
	return strings.TrimSuffix(s.given, "/") + "/" + escaped
}

// lstat tells of what lies at the spot; nil = nothing.
func (p *place) lstat(s spot) (fs.FileInfo, error) {
	fi, err := p.root.Lstat(s.rel)
	if absent(err) {
		return nil, nil
	}
	return fi, err
}

// absent reports that a path names nothing.
func absent(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// existing is lstat for what must be there.
func (p *place) existing(s spot) (fs.FileInfo, error) {
	fi, err := p.lstat(s)
	if err == nil && fi == nil {
		err = failed("%s does not exist", s.given)
	}
	return fi, err
}

// parents makes the directories above a spot and returns those that were
// missing, topmost first.
func (p *place) parents(s spot) ([]string, error) {
	return p.makeDir(path.Dir(s.rel))
}

// makeDir makes a directory and those above it, and returns what was missing.
func (p *place) makeDir(rel string) ([]string, error) {
	var missing []string
	for dir := rel; dir != "."; dir = path.Dir(dir) {
		fi, err := p.root.Lstat(dir)
		if err == nil && !fi.IsDir() {
			return nil, failed("%s is not a directory", agents.EscapePath(dir))
		}
		if err == nil {
			break
		}
		missing = append([]string{dir}, missing...)
	}
	if len(missing) == 0 {
		return nil, nil
	}
	return missing, p.root.MkdirAll(rel, 0o755)
}

// walk calls visit for everything below a directory, in order of names, each
// directory before what is in it. visit's answer to a directory says whether
// to go into it.
func (p *place) walk(dir string, visit func(rel string, d fs.DirEntry) (bool, error)) error {
	entries, err := p.root.List(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		rel := path.Join(dir, e.Name())
		down, err := visit(rel, e)
		if err != nil {
			return err
		}
		if down && e.IsDir() {
			if err := p.walk(rel, visit); err != nil {
				return err
			}
		}
	}
	return nil
}

// everything lists rel and all that is below it. Something called .git below
// is a refusal: writing tools leave it alone.
func (p *place) everything(s spot, fi fs.FileInfo) ([]string, error) {
	all := []string{s.rel}
	if !fi.IsDir() {
		return all, nil
	}
	err := p.walk(s.rel, func(rel string, d fs.DirEntry) (bool, error) {
		if isGit(d.Name()) {
			return false, agents.WithHint(invalid("%s holds %s, which file tools leave alone", s.given, agents.EscapePath(rel)), "use the shell tool")
		}
		all = append(all, rel)
		return true, nil
	})
	return all, err
}

// kindOf is the type of an entry, as results spell it.
func kindOf(m fs.FileMode) string {
	switch {
	case m.IsRegular():
		return "file"
	case m.IsDir():
		return "directory"
	case m&fs.ModeSymlink != 0:
		return "symlink"
	}
	return "other"
}

// octal spells permission bits.
func octal(m fs.FileMode) string { return fmt.Sprintf("%04o", m.Perm()) }
