package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cleveragents/agents/internal/view"
)

func newPlanUndo(a *app) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "undo PLAN",
		Short: "Take back a plan's apply",
		Long: `Take back a plan's apply, as long as nothing that it touched has changed since.
Otherwise nothing is done and the way to go on is named. The plan is live again
afterwards: it can be changed, applied once more, or cancelled.`,
		Example:           "  agents plan undo --yes 01JQ4Z",
		Args:              a.exactly("PLAN"),
		ValidArgsFunction: inOrder(a.plans()),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.do(cmd, func(ctx context.Context) (view.Document, error) {
				return withSteps(runPlanUndo(ctx, a, args[0], yes))
			})
		},
	}
	yesFlag(cmd, &yes)
	return exits(cmd, 0, 1, 2, 3, 4, 130)
}

func runPlanUndo(ctx context.Context, a *app, plan string, yes bool) (view.Document, error) {
	if err := a.confirm(ctx, fmt.Sprintf("Take back the apply of plan %s?", plan), yes); err != nil {
		return view.Document{}, err
	}
	s, err := a.open(ctx, changing)
	if err != nil {
		return view.Document{}, err
	}
	stop := a.beat("taking back")
	res, err := s.engine.UndoApply(ctx, plan)
	stop()
	if err == nil {
		res.NextSteps = append(res.NextSteps, planSteps(res.PlanID)...)
	}
	res.NextSteps = a.typed(res.NextSteps)
	return view.Undo(res, err != nil), err
}
