package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cleveragents/agents/internal/view"
)

func newProject(a *app) *cobra.Command {
	return a.group("project", "Group resources",
		newProjectCreate(a), newProjectList(a), newProjectShow(a), newProjectDelete(a),
		newProjectLink(a, "link-resource", "Link a resource to a project", "linked"),
		newProjectLink(a, "unlink-resource", "Take a resource out of a project", "unlinked"))
}

func newProjectCreate(a *app) *cobra.Command {
	return exits(&cobra.Command{
		Use:     "create NAME",
		Short:   "Create a project",
		Long:    "Create an empty project. Link resources to it with link-resource.",
		Example: "  agents project create shop",
		Args:    a.exactly("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(cmd, changing, func(ctx context.Context, s *session) (view.Document, error) {
				p, err := s.engine.CreateProject(ctx, args[0])
				if err != nil {
					return view.Document{}, err
				}
				return view.Project(p, s.strategy, "Project created"), nil
			})
		},
	}, 0, 1, 2, 4)
}

func newProjectList(a *app) *cobra.Command {
	return exits(&cobra.Command{
		Use:     "list",
		Short:   "List the projects",
		Long:    "List the projects with the resources that they link.",
		Example: "  agents project list",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.with(cmd, reading, func(ctx context.Context, s *session) (view.Document, error) {
				list, err := s.engine.Projects(ctx)
				if err != nil {
					return view.Document{}, err
				}
				return view.Projects(list, s.strategy), nil
			})
		},
	}, 0, 1, 2)
}

func newProjectShow(a *app) *cobra.Command {
	return exits(&cobra.Command{
		Use:               "show PROJECT",
		Short:             "Show a project",
		Long:              "Show a project and its resources.",
		Example:           "  agents project show shop",
		Args:              a.exactly("PROJECT"),
		ValidArgsFunction: inOrder(a.projects()),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(cmd, reading, func(ctx context.Context, s *session) (view.Document, error) {
				p, err := s.engine.Project(ctx, args[0])
				if err != nil {
					return view.Document{}, err
				}
				return view.Project(p, s.strategy, ""), nil
			})
		},
	}, 0, 1, 2, 3)
}

func newProjectDelete(a *app) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "delete PROJECT",
		Short: "Delete a project",
		Long: `Delete a project and its links. The resources stay. A project that an
unfinished plan uses is refused.`,
		Example:           "  agents project delete --yes shop",
		Args:              a.exactly("PROJECT"),
		ValidArgsFunction: inOrder(a.projects()),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.do(cmd, func(ctx context.Context) (view.Document, error) {
				if err := a.confirm(ctx, fmt.Sprintf("Delete project %s?", args[0]), yes); err != nil {
					return view.Document{}, err
				}
				s, err := a.open(ctx, changing)
				if err != nil {
					return view.Document{}, err
				}
				p, err := s.engine.DeleteProject(ctx, args[0])
				if err != nil {
					return view.Document{}, err
				}
				return view.Project(p, s.strategy, "Project deleted"), nil
			})
		},
	}
	yesFlag(cmd, &yes)
	return exits(cmd, 0, 1, 2, 3, 4)
}

// newProjectLink makes link-resource and unlink-resource.
func newProjectLink(a *app, use, short, done string) *cobra.Command {
	return exits(&cobra.Command{
		Use:               use + " PROJECT RESOURCE",
		Short:             short,
		Long:              short + ". Doing it twice is no error.",
		Example:           "  agents project " + use + " shop app",
		Args:              a.exactly("PROJECT", "RESOURCE"),
		ValidArgsFunction: inOrder(a.projects(), a.resources()),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(cmd, changing, func(ctx context.Context, s *session) (view.Document, error) {
				change := s.engine.LinkResource
				if use == "unlink-resource" {
					change = s.engine.UnlinkResource
				}
				p, err := change(ctx, args[0], args[1])
				if err != nil {
					return view.Document{}, err
				}
				return view.Project(p, s.strategy, "Resource "+done), nil
			})
		},
	}, 0, 1, 2, 3)
}

// yesFlag adds --yes to a command that asks.
func yesFlag(cmd *cobra.Command, yes *bool) {
	cmd.Flags().BoolVarP(yes, "yes", "y", false, "do not ask")
}
