package cli

import (
	"context"

	"github.com/spf13/cobra"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/view"
)

func newProfile(a *app) *cobra.Command {
	list := exits(&cobra.Command{
		Use:     "list",
		Short:   "List the automation profiles",
		Long:    "List the automation profiles, from the strictest to the freest.",
		Example: "  agents automation-profile list",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.do(cmd, func(context.Context) (view.Document, error) {
				return view.Profiles(agents.Profiles()), nil
			})
		},
	}, 0, 2)
	show := exits(&cobra.Command{
		Use:               "show PROFILE",
		Short:             "Show an automation profile",
		Long:              "Show what an automation profile demands and allows.",
		Example:           "  agents automation-profile show supervised",
		Args:              a.exactly("PROFILE"),
		ValidArgsFunction: inOrder(fixed(profileNames()...)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.do(cmd, func(context.Context) (view.Document, error) {
				p, err := agents.ProfileByName(args[0])
				if err != nil {
					return view.Document{}, err
				}
				return view.Profile(p), nil
			})
		},
	}, 0, 2)
	return a.group("automation-profile", "Look at the automation profiles", list, show)
}
