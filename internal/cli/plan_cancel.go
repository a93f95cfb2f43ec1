package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cleveragents/agents/engine"
	"github.com/cleveragents/agents/internal/view"
)

func newPlanCancel(a *app) *cobra.Command {
	var (
		req engine.CancelRequest
		yes bool
	)
	cmd := &cobra.Command{
		Use:   "cancel PLAN",
		Short: "End a plan without applying it",
		Long: `End a plan without applying it. What happens to its sandboxes says
sandbox.cleanup; --discard archives unapplied work and removes them whatever it
says. The commands that bring the work back are printed.`,
		Example: `  agents plan cancel 01JQ4Z -r "not needed any more"
  agents plan cancel --discard --yes 01JQ4Z`,
		Args:              a.exactly("PLAN"),
		ValidArgsFunction: inOrder(a.plans()),
		RunE: func(cmd *cobra.Command, args []string) error {
			req.Plan = args[0]
			return a.do(cmd, func(ctx context.Context) (view.Document, error) {
				question := fmt.Sprintf("Archive the unapplied work of plan %s and remove its sandboxes?", req.Plan)
				if err := a.confirm(ctx, question, yes || !req.Discard); err != nil {
					return view.Document{}, err
				}
				s, err := a.open(ctx, changing)
				if err != nil {
					return view.Document{}, err
				}
				stop := a.beat("cancelling")
				res, err := s.engine.Cancel(ctx, req)
				stop()
				if err != nil {
					return view.Document{}, err
				}
				return view.Cancel(res, s.strategy), nil
			})
		},
	}
	cmd.Flags().StringVarP(&req.Reason, "reason", "r", "", "why, for people")
	cmd.Flags().BoolVar(&req.Discard, "discard", false, "archive and remove the sandboxes whatever sandbox.cleanup says")
	yesFlag(cmd, &yes)
	return exits(cmd, 0, 1, 2, 3, 4, 130)
}
