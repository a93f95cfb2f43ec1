package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/engine"
	"github.com/cleveragents/agents/internal/view"
)

type runOptions struct {
	planFlags
	apply, keep, discard bool
	argv                 []string
}

func newRun(a *app) *cobra.Command {
	var opts runOptions
	cmd := &cobra.Command{
		Use:   "run [flags] [--] CMD [ARG...]",
		Short: "Run a command in a sandbox and show what it changed",
		Long: `Run a command in a sandbox of the repository or directory that is the working
directory, or of the resources named with --resource. Its output is shown as it comes; at the
end stands what it changed. On a terminal the next step is asked for; elsewhere
the changes are kept and the next commands are printed.

The command's changes are kept whatever it exits with. --apply applies them
only if it succeeded. If the command fails, agents exits 1; the command's own
exit code is in the JSON document, as tool.exit_code.`,
		Example: `  agents run -- make fmt
  agents run -r ~/src/app --name tidy -- sh -c 'sed -i s/foo/bar/ *.go'
  agents run --apply -- go fix ./...
  agents run --format json -- make test 2>log | jq .diff_summary`,
		Args: a.atLeast("CMD"),
		RunE: func(cmd *cobra.Command, args []string) error {
			opts.argv = args
			return a.do(cmd, func(ctx context.Context) (view.Document, error) { return withSteps(opts.run(ctx, a)) })
		},
	}
	cmd.Flags().SetInterspersed(false)
	exits(cmd, 0, 1, 2, 3, 4, 130)
	opts.register(a, cmd)
	cmd.Flags().BoolVar(&opts.apply, "apply", false, "apply the changes if the command succeeds")
	cmd.Flags().BoolVar(&opts.keep, "keep", false, "keep the changes in the sandbox and ask nothing")
	cmd.Flags().BoolVar(&opts.discard, "discard", false, "archive the changes and remove the sandbox")
	cmd.MarkFlagsMutuallyExclusive("apply", "keep", "discard")
	return cmd
}

func (o *runOptions) run(ctx context.Context, a *app) (view.Document, error) {
	s, err := a.open(ctx, changing)
	if err != nil {
		return view.Document{}, err
	}
	resources, err := s.detectAll(ctx, o.resources, true)
	if err != nil {
		return view.Document{}, err
	}
	req := o.request(resources)
	req.Actor = filepath.Base(o.argv[0])
	live, stop := a.live("running " + req.Actor)
	res, err := s.engine.Run(ctx, req, engine.CommandRequest{
		Argv: o.argv, OnFailure: agents.FailKeep, Stdio: live,
	})
	stop()
	if res.Plan.ID == "" {
		return view.Document{}, err
	}
	a.tell(view.RunSummary(res, a.unsaid(res.Messages)))
	doc := view.Run(res, s.strategy)
	doc.Blocks = nil
	if err != nil && (ctx.Err() != nil || !errors.Is(err, agents.ErrToolFailed)) {
		return doc.Merge(s.kept(res.Plan.ID, changed(res))), err
	}
	after, then := o.next(ctx, s, res, err != nil)
	return doc.Merge(after), errors.Join(err, then)
}

// changed reports whether a run left anything that could be applied.
func changed(res agents.RunResult) bool {
	return res.Applies || res.Unknown || res.Diff.Summary.FilesChanged > 0
}

// next does what the flags or the user say about the changes.
func (o *runOptions) next(ctx context.Context, s *session, res agents.RunResult, failed bool) (view.Document, error) {
	plan := res.Plan.ID
	switch {
	case o.apply && failed:
		const why = "Not applied: the command failed."
		s.app.notify(why)
		doc := s.keep(plan, changed(res))
		doc.Messages = append([]string{why}, doc.Messages...)
		return doc, nil
	case o.apply:
		return s.applyNow(ctx, engine.ApplyRequest{Plan: plan})
	case o.discard:
		return s.discardNow(ctx, plan)
	case o.keep || !s.app.interactive() || !isTerminal(s.app.out) || s.app.view().Structured(), !changed(res):
		return s.keep(plan, changed(res)), nil
	}
	return s.menu(ctx, plan)
}

func (s *session) applyNow(ctx context.Context, req engine.ApplyRequest) (view.Document, error) {
	stop := s.app.beat("applying")
	res, err := s.engine.Apply(ctx, req)
	stop()
	if res.PlanID == "" && err != nil {
		return view.Document{}, err
	}
	res.NextSteps = s.app.typed(res.NextSteps)
	return view.Apply(res), err
}

func (s *session) discardNow(ctx context.Context, plan string) (view.Document, error) {
	res, err := s.engine.Cancel(ctx, engine.CancelRequest{Plan: plan, Reason: "discarded after the run", Discard: true})
	if err != nil {
		return view.Document{}, err
	}
	// The run's own plan and sandboxes are told already.
	doc := view.Cancel(res, s.strategy)
	doc.Keys = slices.DeleteFunc(doc.Keys, func(f view.Field) bool { return f.Name == "plan" || f.Name == "sandboxes" })
	return doc, nil
}

// menu asks what to do with the changes until one answer ends it. Interrupted,
// it keeps them.
func (s *session) menu(ctx context.Context, plan string) (view.Document, error) {
	const choices = `  a  apply    bring the changes into the real resources
  d  diff     show the patch
  s  shell    open a shell in the sandbox
  k  keep     leave the plan as it is and end (the default)
  x  discard  archive the changes and remove the sandbox
  ?  help     show this list
`
	for {
		answer, err := s.app.ask(ctx, "[a]pply, [d]iff, [s]hell, [k]eep, discard [x], help [?]? (default k) ")
		if err != nil {
			return s.kept(plan, true), err
		}
		switch answer {
		case "a", "apply":
			return s.applyNow(ctx, engine.ApplyRequest{Plan: plan})
		case "d", "diff":
			err = s.showPatch(ctx, engine.DiffRequest{Plan: plan, Patch: true})
		case "s", "shell":
			live, stop := s.app.live("opening a shell")
			_, err = s.engine.Exec(ctx, engine.CommandRequest{
				Plan: plan, Argv: []string{shell()}, OnFailure: agents.FailKeep, Stdio: live,
			})
			stop()
		case "k", "keep", "":
			return s.keep(plan, true), nil
		case "x", "discard":
			if err = s.app.confirm(ctx, "Archive the changes and remove the sandbox?", false); err == nil {
				return s.discardNow(ctx, plan)
			}
		case "?", "h", "help":
			fmt.Fprint(s.app.err, choices)
		default:
			s.app.notify(fmt.Sprintf("%q is no choice; ? lists them", answer))
		}
		switch {
		case ctx.Err() != nil:
			return s.kept(plan, true), fmt.Errorf("%s: %w", s.app.command, agents.ErrInterrupted)
		case err != nil && !errors.Is(err, agents.ErrToolFailed) && !errors.Is(err, errDeclined):
			return s.kept(plan, true), err
		}
	}
}

// shell is the user's shell.
func shell() string {
	if s := os.Getenv("SHELL"); s != "" {
		return s
	}
	return "/bin/sh"
}
