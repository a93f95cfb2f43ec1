package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/cleveragents/agents/internal/view"
)

func newPlan(a *app) *cobra.Command {
	return a.group("plan", "Make plans, drive them, look at them and bring their result home",
		newPlanCreate(a), newPlanUse(a), newPlanExecute(a), newPlanExec(a), newPlanShell(a),
		newPlanList(a), newPlanStatus(a), newPlanDiff(a), newPlanErrors(a), newPlanArtifacts(a), newPlanEvents(a),
		newPlanCheckpoint(a), newPlanRollback(a),
		newPlanUpdate(a), newPlanApply(a), newPlanUndo(a), newPlanExport(a), newPlanCancel(a))
}

// lookAt makes a command that reads one plan and shows it.
func (a *app) lookAt(use, short, long, example string, look func(ctx context.Context, s *session, plan string) (view.Document, error)) *cobra.Command {
	return exits(&cobra.Command{
		Use:               use + " PLAN",
		Short:             short,
		Long:              long,
		Example:           example,
		Args:              a.exactly("PLAN"),
		ValidArgsFunction: inOrder(a.plans()),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(cmd, reading, func(ctx context.Context, s *session) (view.Document, error) {
				return look(ctx, s, args[0])
			})
		},
	}, 0, 1, 2, 3)
}
