package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/engine"
	"github.com/cleveragents/agents/internal/view"
)

func newPlanShell(a *app) *cobra.Command {
	var resources []string
	cmd := &cobra.Command{
		Use:   "shell PLAN",
		Short: "Open a shell in a plan's sandbox",
		Long: `Open your shell ($SHELL) in a plan's sandbox. What you change is kept, with a
checkpoint before and after.`,
		Example:           "  agents plan shell 01JQ4Z",
		Args:              a.exactly("PLAN"),
		ValidArgsFunction: inOrder(a.plans()),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(cmd, changing, func(ctx context.Context, s *session) (view.Document, error) {
				live, stop := a.live("opening a shell")
				inv, err := s.engine.Exec(ctx, engine.CommandRequest{
					Plan: args[0], Resources: resources, Argv: []string{shell()}, OnFailure: agents.FailKeep, Stdio: live,
				})
				stop()
				if inv.ID != "" && errors.Is(err, agents.ErrToolFailed) {
					// A shell leaves with its last command's code: no failure.
					err = nil
				}
				if err != nil {
					return view.Document{}, err
				}
				a.tell(view.CallSummary(inv))
				return view.Call(inv, true), nil
			})
		},
	}
	cmd.Flags().StringArrayVarP(&resources, "resource", "r", nil, "resource to work on (repeatable; the first is the working directory)")
	flag(cmd, "resource", a.resources())
	return exits(cmd, 0, 1, 2, 3, 4, 130)
}
