package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/view"
)

type resourceAddOptions struct {
	kind, name string
	path, url  string
	branch     string
	strategy   string
	readOnly   bool
}

func newResourceAdd(a *app) *cobra.Command {
	var opts resourceAddOptions
	cmd := &cobra.Command{
		Use:   "add TYPE NAME --path DIR | --url DSN",
		Short: "Name a resource",
		Long: `Name a resource. A git-checkout is named by the root of its repository; a
directory below the root is refused. An unknown type or strategy, and a
strategy that the type cannot use, are refused here, not at first use.`,
		Example: `  agents resource add git-checkout app --path ~/src/app
  agents resource add git-checkout site --path ~/src/site --branch main`,
		Args:              a.exactly("TYPE", "NAME"),
		ValidArgsFunction: inOrder(fixed(typeNames()...)),
		RunE: func(cmd *cobra.Command, args []string) error {
			opts.kind, opts.name = args[0], args[1]
			return a.do(cmd, func(ctx context.Context) (view.Document, error) { return opts.run(ctx, a) })
		},
	}
	exits(cmd, 0, 1, 2, 3, 4)
	flags := cmd.Flags()
	flags.StringVar(&opts.path, "path", "", "the file or directory")
	flags.StringVar(&opts.url, "url", "", "the database or service")
	flags.StringVar(&opts.branch, "branch", "", "base branch of a repository (else what is checked out)")
	flags.StringVar(&opts.strategy, "strategy", "", "isolation strategy (else the type's own)")
	flags.BoolVar(&opts.readOnly, "read-only", false, "refuse tools that write to it")
	cmd.MarkFlagsMutuallyExclusive("path", "url")
	cmd.MarkFlagsOneRequired("path", "url")
	flag(cmd, "strategy", fixed(strategyNames()...))
	return cmd
}

func (o *resourceAddOptions) run(ctx context.Context, a *app) (view.Document, error) {
	r, err := o.resource()
	if err != nil {
		return view.Document{}, err
	}
	s, err := a.open(ctx, changing)
	if err != nil {
		return view.Document{}, err
	}
	if r, err = s.engine.AddResource(ctx, r); err != nil {
		return view.Document{}, err
	}
	return view.Resource(r, s.strategy, "Resource added"), nil
}

// resource checks the flags before anything is opened.
func (o *resourceAddOptions) resource() (agents.Resource, error) {
	info, err := agents.TypeInfoOf(agents.ResourceType(o.kind))
	if err != nil {
		return agents.Resource{}, err
	}
	r := agents.Resource{Name: o.name, Type: info.Type, Location: o.url, Branch: o.branch, ReadOnly: o.readOnly}
	if o.strategy != "" {
		if r.Strategy, err = agents.ParseStrategy(o.strategy); err != nil {
			return r, err
		}
	}
	switch {
	case info.LocationURL && o.url == "":
		return r, fmt.Errorf("type %s needs --url: %w", info.Type, agents.ErrInvalid)
	case !info.LocationURL && o.path == "":
		return r, fmt.Errorf("type %s needs --path: %w", info.Type, agents.ErrInvalid)
	case o.branch != "" && info.Type != agents.TypeGitCheckout:
		return r, fmt.Errorf("--branch is for %s, not %s: %w", agents.TypeGitCheckout, info.Type, agents.ErrInvalid)
	case !info.LocationURL:
		if _, r.Location, err = typed(info, o.path, "--path"); err != nil {
			return r, err
		}
	}
	return r, r.Validate()
}
