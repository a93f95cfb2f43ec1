package tool

import (
	"fmt"
	"slices"
	"strings"

	agents "github.com/cleveragents/agents"
)

// BuiltinPrefix may be left out of a tool's name.
const BuiltinPrefix = "builtin/"

// Registry finds a tool by name. It is made once and not changed afterwards.
type Registry struct{ tools map[string]Tool }

// NewRegistry returns a registry of these tools. A contradiction in one's
// Spec, or a name given twice, is agents.ErrInvalid.
func NewRegistry(tools ...Tool) (*Registry, error) {
	r := &Registry{tools: make(map[string]Tool, len(tools))}
	for _, t := range tools {
		s := t.Spec()
		if err := s.Capability.Validate(); err != nil {
			return nil, fmt.Errorf("tool %s: %w", s.Name, err)
		}
		if _, dup := r.tools[s.Name]; dup {
			return nil, fmt.Errorf("tool %s: registered twice: %w", s.Name, agents.ErrInvalid)
		}
		r.tools[s.Name] = t
	}
	return r, nil
}

// Lookup returns the tool with this name; the prefix builtin/ may be left out.
// An unknown name is agents.ErrNotFound.
func (r *Registry) Lookup(name string) (Tool, error) {
	if t, ok := r.tools[name]; ok {
		return t, nil
	}
	if t, ok := r.tools[BuiltinPrefix+name]; ok && !strings.Contains(name, "/") {
		return t, nil
	}
	return nil, agents.WithHint(fmt.Errorf("tool %q: %w", name, agents.ErrNotFound), "agents tool list shows the tools")
}

// Specs returns every tool's description, sorted by name.
func (r *Registry) Specs() []Spec {
	specs := make([]Spec, 0, len(r.tools))
	for _, t := range r.tools {
		specs = append(specs, t.Spec())
	}
	slices.SortFunc(specs, func(a, b Spec) int { return strings.Compare(a.Name, b.Name) })
	return specs
}
