package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/engine"
	"github.com/cleveragents/agents/internal/view"
)

func newPlanExecute(a *app) *cobra.Command {
	var req engine.ExecuteRequest
	cmd := &cobra.Command{
		Use:   "execute PLAN",
		Short: "Run the steps of a plan",
		Long: `Run the steps of a plan, from the first one that is not done. Each step is a
transaction: what a failed step changed is rolled back. A plan without steps is
sealed, ready to apply.`,
		Example: `  agents plan execute 01JQ4Z
  agents plan execute 01JQ4Z --dry-run`,
		Args:              a.exactly("PLAN"),
		ValidArgsFunction: inOrder(a.plans()),
		RunE: func(cmd *cobra.Command, args []string) error {
			req.Plan = args[0]
			return a.do(cmd, func(ctx context.Context) (view.Document, error) { return withSteps(runPlanExecute(ctx, a, req)) })
		},
	}
	cmd.Flags().BoolVar(&req.FromStart, "from-start", false, "run all steps again, from the state before the first")
	cmd.Flags().BoolVar(&req.DryRun, "dry-run", false, "say where it would start and run nothing")
	return exits(cmd, 0, 1, 2, 3, 4, 130)
}

func runPlanExecute(ctx context.Context, a *app, req engine.ExecuteRequest) (view.Document, error) {
	m := changing
	if req.DryRun {
		m = reading
	}
	s, err := a.open(ctx, m)
	if err != nil {
		return view.Document{}, err
	}
	// The steps' output is for the records; people see it on standard error.
	if !a.quiet {
		req.Stdio = engine.Stdio{Out: a.err, Err: a.err}
	}
	stop := a.beat("executing")
	res, err := s.engine.Execute(ctx, req)
	stop()
	if res.Plan.ID == "" {
		return view.Document{}, err
	}
	doc := view.Execute(res, s.strategy, req.DryRun)
	return doc.Merge(view.NextSteps(a.typed(executeSteps(res, req.DryRun, err)))), err
}

// executeSteps are the ways to go on after the steps of a plan.
func executeSteps(res agents.ExecuteResult, dryRun bool, err error) []string {
	plan := res.Plan.ID
	switch {
	case dryRun && res.Resume == "":
		return nil
	case dryRun:
		return []string{"agents plan execute " + plan}
	case errors.Is(err, agents.ErrState):
		return nil // the hint says it
	case err != nil:
		return []string{"agents plan errors " + plan, "agents plan execute " + plan, "agents plan cancel " + plan + " --discard"}
	case res.Diff.Summary.FilesChanged == 0:
		return []string{endStep(plan)}
	}
	return planSteps(plan)
}
