package cli

import (
	"context"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/cleveragents/agents/engine"
	"github.com/cleveragents/agents/internal/view"
)

func newPlanExport(a *app) *cobra.Command {
	var req engine.ExportRequest
	cmd := &cobra.Command{
		Use:   "export PLAN --branch NAME | --patch FILE [--resource R]",
		Short: "Write a plan's result to a branch or a patch",
		Long: `Write a plan's result to a new branch of the real repository, or to a patch
file, instead of applying it. An existing branch or file is refused. In a plan
over several resources, --resource names the one to export; a patch over all
has a line before each resource's part that names it.`,
		Example: `  agents plan export 01JQ4Z --branch review/tidy
  agents plan export 01JQ4Z --patch tidy.patch`,
		Args:              a.exactly("PLAN"),
		ValidArgsFunction: inOrder(a.plans()),
		RunE: func(cmd *cobra.Command, args []string) error {
			req.Plan = args[0]
			return a.do(cmd, func(ctx context.Context) (view.Document, error) {
				if req.Patch != "" {
					var err error
					if req.Patch, err = filepath.Abs(req.Patch); err != nil {
						return view.Document{}, err
					}
				}
				s, err := a.open(ctx, changing)
				if err != nil {
					return view.Document{}, err
				}
				stop := a.beat("exporting")
				made, err := s.engine.Export(ctx, req)
				stop()
				if err != nil {
					return view.Document{}, err
				}
				return view.Export(req.Plan, req.Branch, req.Patch, made), nil
			})
		},
	}
	cmd.Flags().StringVar(&req.Branch, "branch", "", "branch to make")
	cmd.Flags().StringVar(&req.Patch, "patch", "", "patch file to write")
	cmd.Flags().StringVar(&req.Resource, "resource", "", "only this resource")
	flag(cmd, "resource", a.resources())
	cmd.MarkFlagsMutuallyExclusive("branch", "patch")
	cmd.MarkFlagsOneRequired("branch", "patch")
	return exits(cmd, 0, 1, 2, 3, 4)
}
