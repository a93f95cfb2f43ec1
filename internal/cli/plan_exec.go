package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/engine"
	"github.com/cleveragents/agents/internal/view"
)

type planExecOptions struct {
	plan      string
	argv      []string
	resources []string
	onFailure onFailureFlag
	timeout   time.Duration
}

func newPlanExec(a *app) *cobra.Command {
	opts := planExecOptions{onFailure: onFailureFlag(agents.FailRollback)}
	cmd := &cobra.Command{
		Use:   "exec PLAN [flags] -- CMD [ARG...]",
		Short: "Run a command in a plan's sandbox",
		Long: `Run a command in a plan's sandbox, with a checkpoint before and after it. When
it fails its changes are rolled back, unless told to keep them, and agents exits
1; the command's own exit code is in the JSON document, as tool.exit_code. The
first resource named is the working directory.`,
		Example: `  agents plan exec 01JQ4Z -- make test
  agents plan exec 01JQ4Z --on-failure keep --timeout 5m -- ./migrate.sh`,
		Args:              a.atLeast("PLAN", "CMD"),
		ValidArgsFunction: inOrder(a.plans()),
		RunE: func(cmd *cobra.Command, args []string) error {
			opts.plan, opts.argv = args[0], args[1:]
			if at := cmd.ArgsLenAtDash(); at > 1 || at == 0 {
				return fmt.Errorf("want one PLAN before --")
			}
			return a.do(cmd, func(ctx context.Context) (view.Document, error) { return opts.run(ctx, a) })
		},
	}
	flags := cmd.Flags()
	flags.StringArrayVarP(&opts.resources, "resource", "r", nil, "resource to work on (repeatable; the first is the working directory)")
	flags.Var(&opts.onFailure, "on-failure", "what happens to the changes of a failed command: rollback or keep")
	flags.DurationVar(&opts.timeout, "timeout", 0, "end the command after that long")
	flag(cmd, "resource", a.resources())
	flag(cmd, "on-failure", fixed(string(agents.FailRollback), string(agents.FailKeep)))
	return exits(cmd, 0, 1, 2, 3, 4, 130)
}

func (o *planExecOptions) run(ctx context.Context, a *app) (view.Document, error) {
	if o.timeout < 0 {
		return view.Document{}, fmt.Errorf("--timeout %s: want a duration above zero: %w", o.timeout, agents.ErrInvalid)
	}
	s, err := a.open(ctx, changing)
	if err != nil {
		return view.Document{}, err
	}
	live, stop := a.live("running " + o.argv[0])
	inv, err := s.engine.Exec(ctx, engine.CommandRequest{
		Plan: o.plan, Resources: o.resources, Argv: o.argv, OnFailure: agents.OnFailure(o.onFailure), Timeout: o.timeout, Stdio: live,
	})
	stop()
	return a.called(inv, true, err)
}
