package cli

import (
	"context"

	"github.com/spf13/cobra"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/view"
)

func newResource(a *app) *cobra.Command {
	return a.group("resource", "Name the things that plans may change",
		newResourceAdd(a), newResourceList(a), newResourceShow(a), newResourceRemove(a), newResourceType(a))
}

func newResourceList(a *app) *cobra.Command {
	return exits(&cobra.Command{
		Use:     "list",
		Short:   "List the resources",
		Long:    "List the resources with their type, strategy and location.",
		Example: "  agents resource list --format json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.with(cmd, reading, func(ctx context.Context, s *session) (view.Document, error) {
				list, err := s.engine.Resources(ctx)
				if err != nil {
					return view.Document{}, err
				}
				return view.Resources(list, s.strategy), nil
			})
		},
	}, 0, 1, 2)
}

func newResourceShow(a *app) *cobra.Command {
	return exits(&cobra.Command{
		Use:               "show RESOURCE",
		Short:             "Show a resource",
		Long:              "Show a resource by its name or id.",
		Example:           "  agents resource show app",
		Args:              a.exactly("RESOURCE"),
		ValidArgsFunction: inOrder(a.resources()),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(cmd, reading, func(ctx context.Context, s *session) (view.Document, error) {
				r, err := s.engine.Resource(ctx, args[0])
				if err != nil {
					return view.Document{}, err
				}
				return view.Resource(r, s.strategy, ""), nil
			})
		},
	}, 0, 1, 2, 3)
}

func newResourceRemove(a *app) *cobra.Command {
	return exits(&cobra.Command{
		Use:   "remove RESOURCE",
		Short: "Forget a resource",
		Long: `Forget a resource. What it names is not touched. A resource that a project
links or that an unfinished plan uses is refused.`,
		Example:           "  agents resource remove app",
		Args:              a.exactly("RESOURCE"),
		ValidArgsFunction: inOrder(a.resources()),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(cmd, changing, func(ctx context.Context, s *session) (view.Document, error) {
				r, err := s.engine.RemoveResource(ctx, args[0])
				if err != nil {
					return view.Document{}, err
				}
				return view.Resource(r, s.strategy, "Resource removed"), nil
			})
		},
	}, 0, 1, 2, 3, 4)
}

func newResourceType(a *app) *cobra.Command {
	list := exits(&cobra.Command{
		Use:     "list",
		Short:   "List the resource types",
		Long:    "List the resource types with the strategy that each gets.",
		Example: "  agents resource type list",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.do(cmd, func(context.Context) (view.Document, error) {
				return view.ResourceTypes(agents.ResourceTypes()), nil
			})
		},
	}, 0, 2)
	show := exits(&cobra.Command{
		Use:               "show TYPE",
		Short:             "Show a resource type",
		Long:              "Show a resource type and the strategies that it can use.",
		Example:           "  agents resource type show git-checkout",
		Args:              a.exactly("TYPE"),
		ValidArgsFunction: inOrder(fixed(typeNames()...)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.do(cmd, func(context.Context) (view.Document, error) {
				t, err := agents.TypeInfoOf(agents.ResourceType(args[0]))
				if err != nil {
					return view.Document{}, err
				}
				return view.ResourceType(t), nil
			})
		},
	}, 0, 2)
	return a.group("type", "Look at the types of resources", list, show)
}

func typeNames() []string {
	var names []string
	for _, t := range agents.ResourceTypes() {
		names = append(names, string(t.Type))
	}
	return names
}
