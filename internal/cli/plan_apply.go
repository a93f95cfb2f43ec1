package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/engine"
	"github.com/cleveragents/agents/internal/view"
)

type planApplyOptions struct {
	req engine.ApplyRequest
	yes bool
}

func newPlanApply(a *app) *cobra.Command {
	var opts planApplyOptions
	cmd := &cobra.Command{
		Use:   "apply PLAN",
		Short: "Bring a plan's result into the real resources",
		Long: `Bring a plan's result into the real resources: all of it or nothing, unless
--only or --partial say otherwise. Everything is looked at first; conflicts,
drift and files in the way leave every resource as it was, and the plan usable:
plan update brings the other side's changes into the sandbox.`,
		Example: `  agents plan apply 01JQ4Z
  agents plan apply --yes --format json 01JQ4Z
  agents plan apply --yes --only app --into review 01JQ4Z`,
		Args:              a.exactly("PLAN"),
		ValidArgsFunction: inOrder(a.plans()),
		RunE: func(cmd *cobra.Command, args []string) error {
			opts.req.Plan = args[0]
			return a.do(cmd, func(ctx context.Context) (view.Document, error) { return withSteps(opts.run(ctx, a)) })
		},
	}
	flags := cmd.Flags()
	yesFlag(cmd, &opts.yes)
	flags.BoolVar(&opts.req.DryRun, "dry-run", false, "say what would happen and touch nothing")
	flags.StringArrayVar(&opts.req.Only, "only", nil, "only this resource (repeatable)")
	flags.BoolVar(&opts.req.Partial, "partial", false, "apply what can be applied and leave the rest")
	flags.BoolVar(&opts.req.Merge, "merge", false, "merge the text of files that both sides changed, where the strategy can")
	flags.StringVar(&opts.req.Into, "into", "", "branch that takes the result (else the one recorded at creation)")
	flags.BoolVar(&opts.req.KeepSandbox, "keep-sandbox", false, "do not remove the sandbox afterwards")
	flag(cmd, "only", a.resources())
	return exits(cmd, 0, 1, 2, 3, 4, 5, 130)
}

func (o *planApplyOptions) run(ctx context.Context, a *app) (view.Document, error) {
	ask := !o.yes && !o.req.DryRun
	if ask {
		if err := a.mayAsk(); err != nil {
			return view.Document{}, err
		}
	}
	m := changing
	if o.req.DryRun {
		m = reading
	}
	s, err := a.open(ctx, m)
	if err != nil {
		return view.Document{}, err
	}
	if ask {
		if doc, err := o.confirm(ctx, s); err != nil {
			return doc, err
		}
	}
	return s.applyNow(ctx, o.req)
}

// confirm asks, with what would happen. Where nothing could be applied it says
// why instead.
func (o *planApplyOptions) confirm(ctx context.Context, s *session) (view.Document, error) {
	dry := o.req
	dry.DryRun = true
	stop := s.app.beat("looking at the resources")
	preview, err := s.engine.Apply(ctx, dry)
	stop()
	switch {
	case err != nil && preview.PlanID == "":
		return view.Document{}, err
	case err != nil && !errors.Is(err, agents.ErrPartial):
		preview.DryRun = false // nobody asked for one
		return view.Apply(preview), err
	}
	question := fmt.Sprintf("Apply plan %s: %s?", preview.PlanID, view.ApplyPreview(preview))
	return view.Document{}, s.app.confirm(ctx, question, false)
}
