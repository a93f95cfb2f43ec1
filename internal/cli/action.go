package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/view"
)

func newAction(a *app) *cobra.Command {
	return a.group("action", "Keep plan templates", newActionCreate(a), newActionList(a), newActionShow(a))
}

func newActionCreate(a *app) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "create --config FILE",
		Short: "Store an action from a YAML file",
		Long: `Store an action from a YAML file; "-" is standard input. What is wrong in the
file is refused with its line, and nothing is stored.`,
		Example: "  agents action create --config tidy.yaml",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.do(cmd, func(ctx context.Context) (view.Document, error) {
				source, err := a.readInput(file)
				if err != nil {
					return view.Document{}, err
				}
				s, err := a.open(ctx, changing)
				if err != nil {
					return view.Document{}, err
				}
				action, err := s.engine.CreateAction(ctx, source)
				if err != nil {
					return view.Document{}, fmt.Errorf("%s: %w", file, err)
				}
				return view.Action(action, "Action created"), nil
			})
		},
	}
	cmd.Flags().StringVar(&file, "config", "", "the action file")
	if err := cmd.MarkFlagRequired("config"); err != nil {
		return cmd
	}
	return exits(cmd, 0, 1, 2, 3, 4)
}

// readInput reads a file that the user names; "-" is standard input.
func (a *app) readInput(name string) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(a.in)
	}
	b, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("file %s: %w", name, agents.ErrNotFound)
	}
	return b, err
}

func newActionList(a *app) *cobra.Command {
	return exits(&cobra.Command{
		Use:     "list",
		Short:   "List the actions",
		Long:    "List the stored actions.",
		Example: "  agents action list",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.with(cmd, reading, func(ctx context.Context, s *session) (view.Document, error) {
				list, err := s.engine.Actions(ctx)
				if err != nil {
					return view.Document{}, err
				}
				return view.Actions(list), nil
			})
		},
	}, 0, 1, 2)
}

func newActionShow(a *app) *cobra.Command {
	return exits(&cobra.Command{
		Use:               "show ACTION",
		Short:             "Show an action",
		Long:              "Show an action with its arguments and steps.",
		Example:           "  agents action show local/tidy",
		Args:              a.exactly("ACTION"),
		ValidArgsFunction: inOrder(a.actions()),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(cmd, reading, func(ctx context.Context, s *session) (view.Document, error) {
				action, err := s.engine.Action(ctx, args[0])
				if err != nil {
					return view.Document{}, err
				}
				return view.Action(action, ""), nil
			})
		},
	}, 0, 1, 2, 3)
}
