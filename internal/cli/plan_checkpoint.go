package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cleveragents/agents/engine"
	"github.com/cleveragents/agents/internal/view"
)

func newPlanCheckpoint(a *app) *cobra.Command {
	return a.group("checkpoint", "Look at the checkpoints of a plan, make and delete them",
		newCheckpointList(a), newCheckpointCreate(a), newCheckpointShow(a), newCheckpointDelete(a))
}

func newCheckpointList(a *app) *cobra.Command {
	var resource string
	cmd := a.lookAt("list", "List the checkpoints of a plan",
		"List the checkpoints of a plan, oldest first. The plan stands on the one marked *; one marked ! is damaged.",
		"  agents plan checkpoint list 01JQ4Z",
		func(ctx context.Context, s *session, plan string) (view.Document, error) {
			list, err := s.engine.Checkpoints(ctx, plan, resource)
			if err != nil {
				return view.Document{}, err
			}
			return view.Checkpoints(list), nil
		})
	cmd.Flags().StringVar(&resource, "resource", "", "only those that hold a state of this resource")
	flag(cmd, "resource", a.resources())
	return cmd
}

func newCheckpointCreate(a *app) *cobra.Command {
	var req engine.CheckpointRequest
	cmd := &cobra.Command{
		Use:               "create PLAN",
		Short:             "Record the present state of a plan",
		Long:              "Record the present state of all sandboxes of a plan, so that it can be gone back to.",
		Example:           `  agents plan checkpoint create 01JQ4Z --reason "before the migration"`,
		Args:              a.exactly("PLAN"),
		ValidArgsFunction: inOrder(a.plans()),
		RunE: func(cmd *cobra.Command, args []string) error {
			req.Plan = args[0]
			return a.with(cmd, changing, func(ctx context.Context, s *session) (view.Document, error) {
				stop := a.beat("recording")
				c, err := s.engine.CreateCheckpoint(ctx, req)
				stop()
				if err != nil {
					return view.Document{}, err
				}
				doc := view.Checkpoint(c, "")
				doc.Blocks = append(doc.Blocks, view.Footer{Text: "Checkpoint created"})
				return doc, nil
			})
		},
	}
	cmd.Flags().StringVar(&req.Reason, "reason", "", "why, for people")
	return exits(cmd, 0, 1, 2, 3, 4, 130)
}

func newCheckpointShow(a *app) *cobra.Command {
	return exits(&cobra.Command{
		Use:               "show PLAN CHECKPOINT",
		Short:             "Show a checkpoint",
		Long:              "Show a checkpoint, and a git command that shows its content.",
		Example:           "  agents plan checkpoint show 01JQ4Z 01JQ50",
		Args:              a.exactly("PLAN", "CHECKPOINT"),
		ValidArgsFunction: inOrder(a.plans(), a.checkpoints()),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(cmd, reading, func(ctx context.Context, s *session) (view.Document, error) {
				c, err := s.engine.Checkpoint(ctx, args[0], args[1])
				if err != nil {
					return view.Document{}, err
				}
				if c.Damaged {
					return view.Checkpoint(c, ""), nil
				}
				show, err := s.engine.CheckpointShowCommand(ctx, c)
				if err != nil {
					return view.Document{}, err
				}
				return view.Checkpoint(c, show), nil
			})
		},
	}, 0, 1, 2, 3)
}

func newCheckpointDelete(a *app) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:               "delete PLAN CHECKPOINT...",
		Short:             "Delete checkpoints",
		Long:              "Delete checkpoints and free their bytes. The plan cannot go back to them any more.",
		Example:           "  agents plan checkpoint delete --yes 01JQ4Z 01JQ50",
		Args:              a.atLeast("PLAN", "CHECKPOINT"),
		ValidArgsFunction: inOrder(a.plans(), a.checkpoints(), a.checkpoints(), a.checkpoints()),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.do(cmd, func(ctx context.Context) (view.Document, error) {
				question := fmt.Sprintf("Delete %d of plan %s's checkpoints?", len(args)-1, args[0])
				if err := a.confirm(ctx, question, yes); err != nil {
					return view.Document{}, err
				}
				s, err := a.open(ctx, changing)
				if err != nil {
					return view.Document{}, err
				}
				ids, freed, err := s.engine.DeleteCheckpoints(ctx, args[0], args[1:])
				if err != nil {
					return view.Document{}, err
				}
				return view.CheckpointsDeleted(ids, freed), nil
			})
		},
	}
	yesFlag(cmd, &yes)
	return exits(cmd, 0, 1, 2, 3, 4)
}
