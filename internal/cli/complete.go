package cli

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	agents "github.com/cleveragents/agents"
)

// completer lists what an argument or a flag's value can be, as cobra wants it.
type completer = cobra.CompletionFunc

// flag registers a completer for a flag's value. The flag is there: a mistake
// is one of this package, which its tests find.
func flag(cmd *cobra.Command, name string, c completer) {
	if err := cmd.RegisterFlagCompletionFunc(name, c); err != nil {
		cmd.Annotations["bad-completion"] = err.Error()
	}
}

// inOrder completes the n-th argument with the n-th completer.
func inOrder(cs ...completer) completer {
	return func(cmd *cobra.Command, before []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(before) >= len(cs) {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return cs[len(before)](cmd, before, typed)
	}
}

// fixed completes from a list that never changes.
func fixed(values ...string) completer {
	return func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return values, cobra.ShellCompDirectiveNoFileComp
	}
}

// lookup completes from what the store holds. It never prints and never fails.
func (a *app) lookup(list func(ctx context.Context, s *session, before []string) []candidate) completer {
	return func(cmd *cobra.Command, before []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		a.quiet = true
		ctx := cmd.Context()
		if ctx == nil {
			ctx = context.Background()
		}
		s, err := a.open(ctx, reading)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var out []cobra.Completion
		for _, c := range list(ctx, s, before) {
			out = append(out, cobra.CompletionWithDesc(c.id, c.about))
		}
		return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	}
}

func (a *app) plans() completer {
	return a.lookup(func(ctx context.Context, s *session, _ []string) []candidate { return s.planCandidates(ctx) })
}

func (a *app) checkpoints() completer {
	return a.lookup(func(ctx context.Context, s *session, before []string) []candidate {
		if len(before) == 0 {
			return nil
		}
		return s.checkpointCandidates(ctx, before[0])
	})
}

func (a *app) resources() completer {
	return a.lookup(func(ctx context.Context, s *session, _ []string) (out []candidate) {
		list, err := s.engine.Resources(ctx)
		if err != nil {
			return nil
		}
		for _, r := range list {
			out = append(out, candidate{r.Name, string(r.Type)})
		}
		return out
	})
}

func (a *app) projects() completer {
	return a.lookup(func(ctx context.Context, s *session, _ []string) (out []candidate) {
		list, err := s.engine.Projects(ctx)
		if err != nil {
			return nil
		}
		for _, p := range list {
			out = append(out, candidate{p.Name, "project"})
		}
		return out
	})
}

func (a *app) actions() completer {
	return a.lookup(func(ctx context.Context, s *session, _ []string) (out []candidate) {
		list, err := s.engine.Actions(ctx)
		if err != nil {
			return nil
		}
		for _, x := range list {
			out = append(out, candidate{x.Name, x.Description})
		}
		return out
	})
}

func (a *app) tools() completer {
	return a.lookup(func(_ context.Context, s *session, _ []string) (out []candidate) {
		for _, t := range s.tools.Specs() {
			out = append(out, candidate{t.Name, t.Description})
		}
		return out
	})
}

func (a *app) archives() completer {
	return a.lookup(func(ctx context.Context, s *session, _ []string) (out []candidate) {
		list, err := s.engine.Archives(ctx)
		if err != nil {
			return nil
		}
		for _, x := range list {
			out = append(out, candidate{x.ID, "expires " + x.ExpiresAt.Format("2006-01-02")})
		}
		return out
	})
}

// planCandidates are the plans that are not over, newest first, then the others.
func (s *session) planCandidates(ctx context.Context) (out []candidate) {
	const most = 20
	plans, err := s.engine.Plans(ctx)
	if err != nil {
		return nil
	}
	sortPlans(plans)
	slices.SortStableFunc(plans, func(a, b agents.Plan) int {
		switch {
		case a.Terminal() == b.Terminal():
			return 0
		case a.Terminal():
			return 1
		}
		return -1
	})
	for _, p := range plans[:min(len(plans), most)] {
		about := p.Position().String()
		if p.Name != "" {
			about = p.Name + ", " + about
		}
		out = append(out, candidate{p.ID, about})
	}
	return out
}

func (s *session) checkpointCandidates(ctx context.Context, plan string) (out []candidate) {
	list, err := s.engine.Checkpoints(ctx, plan, "")
	if err != nil {
		return nil
	}
	for _, c := range list {
		about := string(c.Type)
		if c.Metadata.Reason != "" {
			about += ", " + c.Metadata.Reason
		}
		out = append(out, candidate{c.ID, about})
	}
	return out
}

// sortPlans puts the newest first; ids sort by time.
func sortPlans(plans []agents.Plan) {
	slices.SortStableFunc(plans, func(a, b agents.Plan) int {
		if c := b.CreatedAt.Compare(a.CreatedAt); c != 0 {
			return c
		}
		switch {
		case a.ID > b.ID:
			return -1
		case a.ID < b.ID:
			return 1
		}
		return 0
	})
}

func strategyNames() []string {
	var names []string
	for _, s := range agents.Strategies() {
		names = append(names, string(s))
	}
	return names
}

func profileNames() []string {
	var names []string
	for _, p := range agents.Profiles() {
		names = append(names, p.Name)
	}
	return names
}
