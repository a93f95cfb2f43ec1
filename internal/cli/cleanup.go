package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/engine"
	"github.com/cleveragents/agents/internal/view"
)

func newCleanup(a *app) *cobra.Command {
	var req engine.CleanupRequest
	cmd := &cobra.Command{
		Use:   "cleanup",
		Short: "Remove what no plan needs any more",
		Long: `Remove sandboxes and checkpoints that no live process holds and no unfinished
plan needs, as sandbox.cleanup says. Unapplied work is never lost: it is
archived first, and the command that brings it back is printed.`,
		Example: `  agents cleanup --dry-run
  agents cleanup`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.do(cmd, func(ctx context.Context) (view.Document, error) { return runCleanup(ctx, a, req) })
		},
	}
	cmd.Flags().BoolVar(&req.DryRun, "dry-run", false, "say what would be removed and change nothing")
	cmd.Flags().StringVar(&req.Plan, "plan", "", "only this plan")
	flag(cmd, "plan", a.plans())
	exits(cmd, 0, 1, 2, 3, 4, 130)
	cmd.AddCommand(newCleanupStatus(a), newCleanupArchive(a))
	return cmd
}

func runCleanup(ctx context.Context, a *app, req engine.CleanupRequest) (view.Document, error) {
	m := changing
	if req.DryRun {
		m = reading
	}
	s, err := a.open(ctx, m)
	if err != nil {
		return view.Document{}, err
	}
	stop := a.beat("cleaning up")
	res, err := s.engine.Cleanup(ctx, req)
	stop()
	if err != nil {
		return view.Document{}, err
	}
	done := "Cleaned up"
	if req.DryRun {
		done = "Dry run: nothing was changed"
	}
	return view.Cleanup(res, done), nil
}

func newCleanupStatus(a *app) *cobra.Command {
	return exits(&cobra.Command{
		Use:     "status",
		Short:   "Show what cleanup would do",
		Long:    "Show the cleanup policy, where it comes from, and what is kept and why.",
		Example: "  agents cleanup status --format json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.with(cmd, reading, func(ctx context.Context, s *session) (view.Document, error) {
				res, err := s.engine.CleanupStatus(ctx)
				if err != nil {
					return view.Document{}, err
				}
				return view.Cleanup(res, ""), nil
			})
		},
	}, 0, 1, 2)
}

func newCleanupArchive(a *app) *cobra.Command {
	list := exits(&cobra.Command{
		Use:     "list",
		Short:   "List archived work",
		Long:    "List unapplied work that was archived before its sandbox went.",
		Example: "  agents cleanup archive list",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.with(cmd, reading, func(ctx context.Context, s *session) (view.Document, error) {
				archives, err := s.engine.Archives(ctx)
				if err != nil {
					return view.Document{}, err
				}
				return view.Archives(archives), nil
			})
		},
	}, 0, 1, 2)
	restore := exits(&cobra.Command{
		Use:               "restore ARCHIVE",
		Short:             "Bring archived work back",
		Long:              "Make the plan's sandboxes again from an archive. The plan can then be driven on or applied.",
		Example:           "  agents cleanup archive restore 01JQ4Z",
		Args:              a.exactly("ARCHIVE"),
		ValidArgsFunction: inOrder(a.archives()),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(cmd, changing, func(ctx context.Context, s *session) (view.Document, error) {
				stop := a.beat("restoring")
				p, err := s.engine.RestoreArchive(ctx, args[0])
				stop()
				if errors.Is(err, agents.ErrNotFound) {
					return view.Document{}, agents.WithHint(err, "agents cleanup archive list")
				}
				if err != nil {
					return view.Document{}, err
				}
				return view.Restored(p, s.strategy), nil
			})
		},
	}, 0, 1, 2, 3, 4, 130)
	return a.group("archive", "Look at archived work and bring it back", list, restore)
}
