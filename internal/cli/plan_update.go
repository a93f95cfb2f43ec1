package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/cleveragents/agents/internal/view"
)

func newPlanUpdate(a *app) *cobra.Command {
	var resource string
	cmd := &cobra.Command{
		Use:   "update PLAN",
		Short: "Bring the real side's changes into a plan's sandbox",
		Long: `Bring what happened on the real side since the sandbox was made into it, three
way. Conflicts are listed and leave the sandbox as it was.`,
		Example:           "  agents plan update 01JQ4Z",
		Args:              a.exactly("PLAN"),
		ValidArgsFunction: inOrder(a.plans()),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(cmd, changing, func(ctx context.Context, s *session) (view.Document, error) {
				stop := a.beat("updating")
				res, err := s.engine.Update(ctx, args[0], resource)
				stop()
				if res.Plan.ID == "" && err != nil {
					return view.Document{}, err
				}
				doc := view.Update(res, s.strategy)
				if err == nil {
					doc.Blocks = append(doc.Blocks, view.Footer{Text: "Plan updated"})
				}
				return doc, err
			})
		},
	}
	cmd.Flags().StringVar(&resource, "resource", "", "only this resource")
	flag(cmd, "resource", a.resources())
	return exits(cmd, 0, 1, 2, 3, 4, 130)
}
