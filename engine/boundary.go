package engine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/sandbox"
)

// A boundary is the outermost resource around others of the plan: all of them
// share its sandbox (DESIGN §2, "sandbox"; docs/adr/0008). Which they are is
// decided once, when the plan is made, and stored with it.

// setBoundaries settles for each resource of a plan whose sandbox it is in, and
// returns what the user should know about it. Resources of which nobody can
// say who has the last word are agents.ErrConflict.
func (e *Engine) setBoundaries(resources []agents.Resource) (notices []string, err error) {
	m := &boundaryMap{protected: e.set.Sandbox.ProtectedNames()}
	for _, r := range resources {
		r.Boundary, r.SubPath = "", ""
		m.sites = append(m.sites, e.site(r))
	}
	if err := m.relate(); err != nil {
		return nil, err
	}
	for i := range m.sites {
		at, sub := m.boundary(i)
		resources[i].Boundary, resources[i].SubPath = "", ""
		if at == i {
			continue
		}
		if !m.sites[i].isDir && sub != "." {
			return nil, fileInside(m.sites[i].Resource, m.sites[at].Resource)
		}
		resources[i].Boundary, resources[i].SubPath = m.sites[at].ID, sub
		notices = append(notices, m.shared(i, at)...)
	}
	return notices, nil
}

// site is a resource as boundaries see it.
type site struct {
	agents.Resource
	strategy agents.StrategyName
	caps     sandbox.Capabilities // zero where the strategy is not in this build
	known    bool                 // the strategy is in this build
	isDir    bool
	above    []step // from the location itself up to the root; none where it is not there
	inside   []enclosure
}

// step is a directory on the way up from a location, or the location itself.
type step struct {
	path string
	info fs.FileInfo
}

// enclosure says that a site lies inside another one.
type enclosure struct {
	site int
	down string
}

func (e *Engine) site(r agents.Resource) *site {
	s := &site{Resource: r}
	s.strategy, _ = r.EffectiveStrategy(e.set.Strategy)
	if strategy, err := e.strategies.Lookup(s.strategy); err == nil {
		s.caps, s.known = strategy.Capabilities(), true
	}
	info, err := agents.TypeInfoOf(r.Type)
	if err == nil && !info.LocationURL {
		s.above = upward(r.Location)
	}
	s.isDir = len(s.above) > 0 && s.above[0].info.IsDir()
	return s
}

// upward lists a place and the directories above it up to the root, links
// followed first. What is not there lies nowhere; making its sandbox says so.
func upward(place string) (steps []step) {
	at, err := filepath.EvalSymlinks(place)
	if err != nil {
		return nil
	}
	for {
		info, err := os.Stat(at)
		if err != nil {
			return steps
		}
		steps = append(steps, step{at, info})
		if at == filepath.Dir(at) {
			return steps
		}
		at = filepath.Dir(at)
	}
}

// name is the step's name as its directory lists it: in a case-insensitive
// directory the user's spelling may be another, which a sandbox elsewhere does
// not understand.
func (s step) name() string {
	name := filepath.Base(s.path)
	entries, err := os.ReadDir(filepath.Dir(s.path))
	if err != nil {
		return name
	}
	other := ""
	for _, entry := range entries {
		if entry.Name() == name {
			return name
		}
		if !strings.EqualFold(entry.Name(), name) {
			continue
		}
		if fi, err := entry.Info(); err == nil && os.SameFile(fi, s.info) {
			other = entry.Name()
		}
	}
	return orElse(other, name)
}

// shares reports whether the site is isolated at all: what is not has no
// sandbox that could be shared. A strategy that is not in this build counts,
// since its resource may be served by another's.
func (s *site) shares() bool {
	return s.strategy != agents.NoIsolation && (!s.known || s.caps.Isolates)
}

// files reports whether the site's own strategy would serve it as files.
func (s *site) files() bool {
	return s.caps.Files || !s.known && s.strategy != agents.TransactionRollback
}

// holds reports whether the site's sandbox is a directory in which others can be.
func (s *site) holds() bool { return s.known && s.caps.Isolates && s.caps.Files && s.isDir }

// boundaryMap is how the resources of one plan lie to each other.
type boundaryMap struct {
	sites     []*site
	first     []int    // for each site, the first one at the same place: it speaks for all
	protected []string // sandbox.protected
}

// relate finds out which sites are the same place and what lies inside what,
// the nearest first, and refuses what cannot be decided.
func (m *boundaryMap) relate() error {
	for i, s := range m.sites {
		at := i
		for j, other := range m.sites[:i] {
			if down, inside := within(s, other); !inside || down != "." || !s.shares() && !other.shares() {
				continue
			}
			if err := sameRules(other, s); err != nil {
				return err
			}
			at = min(at, j)
		}
		m.first = append(m.first, at)
	}
	for i, s := range m.sites {
		for j, other := range m.sites {
			down, inside := within(s, other)
			if inside && down != "." && m.first[j] == j {
				at := m.sites[m.first[i]]
				at.inside = append(at.inside, enclosure{j, down})
			}
		}
	}
	for i, s := range m.sites {
		slices.SortStableFunc(s.inside, func(a, b enclosure) int { return strings.Count(a.down, "/") - strings.Count(b.down, "/") })
		for _, in := range s.inside {
			if m.leads(in.site, i, map[int]bool{}) {
				return tie(s.Resource, m.sites[in.site].Resource, "each lies inside the other")
			}
		}
	}
	return nil
}

// leads reports whether site from is site to or lies inside it, over any
// number of others: mounts can make a ring.
func (m *boundaryMap) leads(from, to int, seen map[int]bool) bool {
	if from == to {
		return true
	}
	if seen[from] {
		return false
	}
	seen[from] = true
	return slices.ContainsFunc(m.sites[from].inside, func(in enclosure) bool { return m.leads(in.site, to, seen) })
}

// within reports whether a site lies in another one, told by the identity of
// the directories above it and not by text, and the way down to it.
func within(s, other *site) (down string, inside bool) {
	if len(s.above) == 0 || len(other.above) == 0 {
		return ".", s.Type == other.Type && s.Location == other.Location
	}
	i := slices.IndexFunc(s.above, func(up step) bool { return os.SameFile(up.info, other.above[0].info) })
	if i < 0 {
		return "", false
	}
	down = "."
	for _, below := range s.above[:i] {
		down = path.Join(below.name(), down)
	}
	return down, true
}

// boundary returns the site whose sandbox holds site i, and where.
func (m *boundaryMap) boundary(i int) (at int, sub string) {
	i = m.first[i]
	for _, in := range m.sites[i].inside {
		if !m.sites[in.site].holds() {
			continue
		}
		at, sub = m.boundary(in.site)
		if sub = path.Join(sub, in.down); m.covers(m.sites[at], m.sites[i], sub) {
			return at, sub
		}
	}
	return i, "."
}

// covers reports whether the sandbox of outer has what inner is, and brings it
// home. It has not: a repository inside a repository, which git keeps out;
// what has a protected name; and what the user may write inside a resource
// that is read-only, which never comes home.
func (m *boundaryMap) covers(outer, inner *site, sub string) bool {
	if !inner.shares() || !inner.files() || outer.ReadOnly && !inner.ReadOnly {
		return false
	}
	protected := m.protected
	if outer.caps.GitState {
		if inner.Type == agents.TypeGitCheckout {
			return false
		}
		protected = outer.caps.ProtectedNames
	}
	return !slices.ContainsFunc(strings.Split(sub, "/"), func(name string) bool { return slices.Contains(protected, name) })
}

// shared says what sharing means where it is not what the user may expect.
func (m *boundaryMap) shared(i, at int) (notices []string) {
	inner, outer := m.sites[i], m.sites[at]
	if inner.ReadOnly && !outer.ReadOnly {
		notices = append(notices, fmt.Sprintf("resource %s is read-only and lies inside %s, through which it can still be written", inner.Name, outer.Name))
	}
	if inner.Type == agents.TypeGitCheckout && !outer.caps.GitState {
		notices = append(notices, fmt.Sprintf("resource %s lies inside %s and comes home with it as files (%s), not as a merge", inner.Name, outer.Name, outer.strategy))
	}
	return notices
}

// sameRules refuses one place under two names whose rules disagree: neither
// can have the last word.
func sameRules(a, b *site) error {
	why := ""
	switch {
	case a.Type != b.Type:
		why = fmt.Sprintf("one place as %s and as %s", a.Type, b.Type)
	case a.strategy != b.strategy:
		why = fmt.Sprintf("one place with strategy %s and with %s", a.strategy, b.strategy)
	case a.ReadOnly != b.ReadOnly:
		why = "one place, read-only and not"
	case a.Branch != b.Branch:
		why = fmt.Sprintf("one place with base branch %q and with %q", a.Branch, b.Branch)
	default:
		return nil
	}
	return tie(a.Resource, b.Resource, why)
}

func tie(a, b agents.Resource, why string) error {
	return agents.WithHint(fmt.Errorf("resources %s (%s) and %s (%s): %s: %w", a.Name, a.Location, b.Name, b.Location, why, agents.ErrConflict),
		"keep one of them: leave the other out of the plan, or agents project unlink-resource PROJECT %s", b.Name)
}

// fileInside refuses a file inside a directory of the plan: the sandbox has
// it, but a tool needs a directory to work in, and that would have its
// neighbours too.
func fileInside(file, dir agents.Resource) error {
	return agents.WithHint(fmt.Errorf("resource %s is a file inside resource %s, whose sandbox has it already: %w", file.Name, dir.Name, agents.ErrConflict),
		"leave %s out and work on %s", file.Name, dir.Name)
}

// find returns the sandbox that holds a resource, or nil.
func (s *session) find(resourceID string) *box {
	for _, r := range s.plan.Resources {
		if r.ID == resourceID {
			resourceID = s.plan.Boundary(r).ID
			break
		}
	}
	for _, b := range s.boxes {
		if b.Resource().ID == resourceID {
			return b
		}
	}
	return nil
}

// workspace is the directory of a sandbox that is a resource's. That of one
// inside another is reached without following a link: a call of the plan may
// have put one there, and it would lead out of the resource.
func (s *session) workspace(b *box, r agents.Resource) (string, error) {
	at := b.Record().Path
	if r.SubPath == "" || r.SubPath == "." {
		return at, nil
	}
	for _, name := range strings.Split(r.SubPath, "/") {
		at = filepath.Join(at, name)
		fi, err := os.Lstat(at)
		if err == nil && fi.IsDir() {
			continue
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("resource %s: %w", r.Name, err)
		}
		outer := b.Resource().Name
		return "", agents.WithHint(
			fmt.Errorf("resource %s has no directory in the sandbox of %s: %s is missing or no directory there: %w", r.Name, outer, agents.EscapePath(r.SubPath), agents.ErrBlocked),
			"work on %s with --resource %s; what git ignores comes into a sandbox with sandbox.git.include", agents.EscapePath(r.SubPath), outer)
	}
	return at, nil
}

// whole finds the resource that a caller means where only whole sandboxes can
// be served, and refuses one that is a part of another's.
func (s *session) whole(name string) (agents.Resource, error) {
	r, err := pickResource(s.plan.Resources, name)
	if err != nil || r.Boundary == "" {
		return r, err
	}
	outer := s.plan.Boundary(r)
	if r.SubPath == "." {
		return outer, nil
	}
	return r, agents.WithHint(fmt.Errorf("resource %s shares the sandbox of %s, and cannot go alone: %w", r.Name, outer.Name, agents.ErrConflict),
		"name %s: both go together", outer.Name)
}

// sharing lists the resources that have a part of this one's sandbox.
func sharing(resources []agents.Resource, boundary agents.Resource) (out []agents.Resource) {
	for _, r := range resources {
		if r.Boundary == boundary.ID {
			out = append(out, r)
		}
	}
	return out
}
