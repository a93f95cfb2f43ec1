package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/view"
)

func newPlanList(a *app) *cobra.Command {
	var state string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the plans",
		Long: `List the plans, newest first. One without a name shows in brackets the command
that it was made for.`,
		Example: `  agents plan list --format json
  agents plan list --state complete`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.do(cmd, func(ctx context.Context) (view.Document, error) {
				if err := knownState(state); err != nil {
					return view.Document{}, err
				}
				s, err := a.open(ctx, reading)
				if err != nil {
					return view.Document{}, err
				}
				plans, err := s.engine.Plans(ctx)
				if err != nil {
					return view.Document{}, err
				}
				plans = slices.DeleteFunc(plans, func(p agents.Plan) bool { return state != "" && string(p.State) != state })
				sortPlans(plans)
				return view.Plans(plans, s.strategy, userName()), nil
			})
		},
	}
	cmd.Flags().StringVar(&state, "state", "", "only plans in this state: "+strings.Join(planStates(), ", "))
	flag(cmd, "state", fixed(planStates()...))
	return exits(cmd, 0, 1, 2)
}

func knownState(state string) error {
	if state == "" || slices.Contains(planStates(), state) {
		return nil
	}
	return fmt.Errorf("state %q: want one of %s: %w", state, strings.Join(planStates(), ", "), agents.ErrInvalid)
}

func planStates() []string {
	var out []string
	for _, s := range []agents.PlanState{
		agents.PlanQueued, agents.PlanProcessing, agents.PlanComplete, agents.PlanErrored, agents.PlanCancelled, agents.PlanApplied,
	} {
		out = append(out, string(s))
	}
	return out
}
