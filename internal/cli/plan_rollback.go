package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cleveragents/agents/engine"
	"github.com/cleveragents/agents/internal/view"
)

type planRollbackOptions struct {
	req engine.RollbackRequest
	yes bool
}

func newPlanRollback(a *app) *cobra.Command {
	var opts planRollbackOptions
	cmd := &cobra.Command{
		Use:   "rollback PLAN CHECKPOINT",
		Short: "Go back to a checkpoint",
		Long: `Put the sandboxes of a plan back into exactly the state of a checkpoint. The
present state is recorded first, so a rollback can itself be rolled back. The
real resources are not touched.`,
		Example: `  agents plan rollback 01JQ4Z 01JQ50
  agents plan rollback --yes --format json 01JQ4Z 01JQ50`,
		Args:              a.exactly("PLAN", "CHECKPOINT"),
		ValidArgsFunction: inOrder(a.plans(), a.checkpoints()),
		RunE: func(cmd *cobra.Command, args []string) error {
			opts.req.Plan, opts.req.Checkpoint = args[0], args[1]
			return a.do(cmd, func(ctx context.Context) (view.Document, error) { return opts.run(ctx, a) })
		},
	}
	yesFlag(cmd, &opts.yes)
	cmd.Flags().BoolVar(&opts.req.DryRun, "dry-run", false, "list what would change and change nothing")
	cmd.Flags().StringVar(&opts.req.Resource, "resource", "", "only the files of this resource")
	flag(cmd, "resource", a.resources())
	return exits(cmd, 0, 1, 2, 3, 4, 130)
}

func (o *planRollbackOptions) run(ctx context.Context, a *app) (view.Document, error) {
	ask := !o.yes && !o.req.DryRun
	if ask {
		if err := a.mayAsk(); err != nil {
			return view.Document{}, err
		}
	}
	m := changing
	if o.req.DryRun {
		m = reading
	}
	s, err := a.open(ctx, m)
	if err != nil {
		return view.Document{}, err
	}
	if ask {
		if err := o.confirm(ctx, s); err != nil {
			return view.Document{}, err
		}
	}
	stop := a.beat("rolling back")
	res, err := s.engine.Rollback(ctx, o.req)
	stop()
	if err != nil {
		return view.Document{}, err
	}
	return view.Rollback(res), nil
}

// confirm asks, with what would change.
func (o *planRollbackOptions) confirm(ctx context.Context, s *session) error {
	dry := o.req
	dry.DryRun = true
	preview, err := s.engine.Rollback(ctx, dry)
	if err != nil {
		return err
	}
	question := fmt.Sprintf("Roll plan %s back to %s? Changed paths: %d.", preview.PlanID, preview.FromCheckpointID, len(preview.ChangedPaths))
	return s.app.confirm(ctx, question, false)
}
