package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/engine"
	"github.com/cleveragents/agents/internal/view"
)

type planUseOptions struct {
	req  engine.UseRequest
	args []string
}

func newPlanUse(a *app) *cobra.Command {
	var opts planUseOptions
	cmd := &cobra.Command{
		Use:   "use ACTION PROJECT...",
		Short: "Create a plan from an action",
		Long: `Create a plan that runs an action's steps on the resources of projects. The
arguments and every step's input are checked before anything is stored. Run it
with plan execute.`,
		Example:           "  agents plan use local/tidy shop --arg word=foo",
		Args:              a.atLeast("ACTION", "PROJECT"),
		ValidArgsFunction: inOrder(a.actions(), a.projects(), a.projects(), a.projects()),
		RunE: func(cmd *cobra.Command, args []string) error {
			opts.req.Action, opts.req.Projects = args[0], args[1:]
			return a.do(cmd, func(ctx context.Context) (view.Document, error) { return opts.run(ctx, a) })
		},
	}
	flags := cmd.Flags()
	flags.StringArrayVar(&opts.args, "arg", nil, "argument of the action, as KEY=VALUE (repeatable)")
	flags.StringVar(&opts.req.Name, "name", "", "name of the plan")
	flags.StringVar(&opts.req.Profile, "profile", "", "automation profile (else core.automation-profile)")
	flags.BoolVar(&opts.req.RequireCheckpoints, "require-checkpoints", false, "refuse tools whose effects cannot be taken back")
	flag(cmd, "profile", fixed(profileNames()...))
	return exits(cmd, 0, 1, 2, 3, 4)
}

func (o *planUseOptions) run(ctx context.Context, a *app) (view.Document, error) {
	arguments, err := keyValues(o.args)
	if err != nil {
		return view.Document{}, err
	}
	o.req.Arguments = arguments
	s, err := a.open(ctx, changing)
	if err != nil {
		return view.Document{}, err
	}
	p, err := s.engine.UseAction(ctx, o.req)
	if err != nil {
		return view.Document{}, err
	}
	return view.Plan(p, s.strategy), nil
}

// keyValues reads KEY=VALUE pairs; a key given twice is agents.ErrInvalid.
func keyValues(pairs []string) (map[string]string, error) {
	out := map[string]string{}
	for _, pair := range pairs {
		key, value, ok := strings.Cut(pair, "=")
		if !ok || key == "" {
			return nil, fmt.Errorf("--arg %q: want KEY=VALUE: %w", pair, agents.ErrInvalid)
		}
		if _, dup := out[key]; dup {
			return nil, fmt.Errorf("--arg %s is given twice: %w", key, agents.ErrInvalid)
		}
		out[key] = value
	}
	return out, nil
}
