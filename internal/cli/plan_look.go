package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/cleveragents/agents/internal/view"
)

func newPlanErrors(a *app) *cobra.Command {
	return a.lookAt("errors", "Show what failed in a plan",
		"Show why a plan is errored, and every tool call of it that failed, oldest first.",
		"  agents plan errors 01JQ4Z",
		func(ctx context.Context, s *session, plan string) (view.Document, error) {
			p, err := s.engine.Plan(ctx, plan)
			if err != nil {
				return view.Document{}, err
			}
			calls, err := s.engine.Invocations(ctx, p.ID)
			if err != nil {
				return view.Document{}, err
			}
			return view.PlanErrors(p, calls), nil
		})
}

func newPlanArtifacts(a *app) *cobra.Command {
	return a.lookAt("artifacts", "List the files that a plan added or changed",
		"List the files that a plan added or changed.",
		"  agents plan artifacts 01JQ4Z",
		func(ctx context.Context, s *session, plan string) (view.Document, error) {
			d, err := s.engine.Artifacts(ctx, plan)
			if err != nil {
				return view.Document{}, err
			}
			return view.Artifacts(d), nil
		})
}

func newPlanEvents(a *app) *cobra.Command {
	return a.lookAt("events", "Show a plan's log",
		"Show what happened in a plan, oldest first.",
		"  agents plan events 01JQ4Z",
		func(ctx context.Context, s *session, plan string) (view.Document, error) {
			events, err := s.engine.Events(ctx, plan)
			if err != nil {
				return view.Document{}, err
			}
			return view.Events(events), nil
		})
}
