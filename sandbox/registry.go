package sandbox

import (
	"fmt"

	agents "github.com/cleveragents/agents"
)

// Registry finds a strategy by name. It is made once and not changed afterwards.
type Registry struct {
	strategies map[agents.StrategyName]Strategy
}

// NewRegistry returns a registry of these strategies; a name given twice is
// agents.ErrInvalid.
func NewRegistry(strategies ...Strategy) (*Registry, error) {
	r := &Registry{strategies: make(map[agents.StrategyName]Strategy, len(strategies))}
	for _, s := range strategies {
		name := s.Capabilities().Name
		if _, dup := r.strategies[name]; dup {
			return nil, fmt.Errorf("strategy %s: registered twice: %w", name, agents.ErrInvalid)
		}
		r.strategies[name] = s
	}
	return r, nil
}

// Lookup returns the strategy with this name. One that is a valid name but is
// not in this build is agents.ErrUnsupported.
func (r *Registry) Lookup(name agents.StrategyName) (Strategy, error) {
	if s, ok := r.strategies[name]; ok {
		return s, nil
	}
	if _, err := agents.ParseStrategy(string(name)); err != nil {
		return nil, err
	}
	return nil, agents.WithHint(fmt.Errorf("strategy %s is not in this build: %w", name, agents.ErrUnsupported),
		"agents doctor shows what this machine can do")
}

// All returns the registered strategies in the order of agents.Strategies.
func (r *Registry) All() []Strategy {
	var out []Strategy
	for _, name := range agents.Strategies() {
		if s, ok := r.strategies[name]; ok {
			out = append(out, s)
		}
	}
	return out
}
