package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/cleveragents/agents/internal/view"
)

func newPlanList(a *app) *cobra.Command {
	return exits(&cobra.Command{
		Use:     "list",
		Short:   "List the plans",
		Long:    "List the plans, newest first.",
		Example: "  agents plan list --format json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.do(cmd, func(ctx context.Context) (view.Document, error) {
				s, err := a.open(ctx, reading)
				if err != nil {
					return view.Document{}, err
				}
				plans, err := s.engine.Plans(ctx)
				if err != nil {
					return view.Document{}, err
				}
				sortPlans(plans)
				return view.Plans(plans, s.strategy), nil
			})
		},
	}, 0, 1, 2)
}
