package cli

import (
	"context"

	"github.com/spf13/cobra"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/view"
)

func newPlanStatus(a *app) *cobra.Command {
	return a.lookAt("status", "Show where a plan stands",
		`Show a plan with its sandboxes, checkpoints and the state of applying. The
status of an errored plan is an error, with what failed beside it.`,
		"  agents plan status 01JQ4Z --format json",
		func(ctx context.Context, s *session, plan string) (view.Document, error) {
			st, err := s.engine.Status(ctx, plan)
			if err != nil {
				return view.Document{}, err
			}
			doc := view.Status(st, s.strategy)
			if st.Plan.State == agents.PlanErrored {
				doc.Problem, doc.ExitCode = planProblem(st.Plan), 1
			}
			return doc, nil
		})
}

// planProblem is an errored plan as an error (U121).
func planProblem(p agents.Plan) *view.Problem {
	e := p.Error
	if e == nil {
		e = &agents.PlanError{Message: "the plan failed"}
	}
	problem := &view.Problem{Code: "plan_errored", Message: e.Message, Plan: e}
	if e.Recoverable {
		problem.Hint = "agents plan execute " + p.ID + " goes on where it stopped"
	}
	return problem
}
