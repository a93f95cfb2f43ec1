package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/cleveragents/agents/internal/view"
)

type planCreateOptions struct {
	planFlags
	readOnly bool
}

func newPlanCreate(a *app) *cobra.Command {
	var opts planCreateOptions
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Create a plan that is driven call by call",
		Long: `Create a plan on resources or projects. Sandboxes are made when a tool first
needs them; a resource that lies inside another one of the plan has its part
of that one's sandbox, and comes home with it. Drive it with plan exec and
tool run.`,
		Example: `  agents plan create -r ~/src/app
  agents plan create --project shop --name tidy --require-checkpoints`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.do(cmd, func(ctx context.Context) (view.Document, error) { return opts.run(ctx, a) })
		},
	}
	opts.register(a, cmd)
	cmd.Flags().StringArrayVar(&opts.projects, "project", nil, "project whose resources the plan gets (repeatable)")
	cmd.Flags().BoolVar(&opts.readOnly, "read-only", false, "refuse tools that write")
	flag(cmd, "project", a.projects())
	return exits(cmd, 0, 1, 2, 3, 4)
}

func (o *planCreateOptions) run(ctx context.Context, a *app) (view.Document, error) {
	s, err := a.open(ctx, changing)
	if err != nil {
		return view.Document{}, err
	}
	resources, err := s.detectAll(ctx, o.resources, false)
	if err != nil {
		return view.Document{}, err
	}
	req := o.request(resources)
	req.ReadOnly = o.readOnly
	p, err := s.engine.CreatePlan(ctx, req)
	if err != nil {
		return view.Document{}, err
	}
	return view.Plan(p, s.strategy), nil
}
