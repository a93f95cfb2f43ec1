package cli

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cleveragents/agents/engine"
	"github.com/cleveragents/agents/internal/view"
)

type planDiffOptions struct {
	req  engine.DiffRequest
	stat bool // what is shown without --patch anyway
}

func newPlanDiff(a *app) *cobra.Command {
	var opts planDiffOptions
	cmd := &cobra.Command{
		Use:   "diff PLAN",
		Short: "Show what a plan changed",
		Long: `Show what a plan changed: a line a file and the counts, or the whole patch with
--patch, in colour and through your pager on a terminal. --from and --to name
checkpoints; without them it is from the base to the present.`,
		Example: `  agents plan diff 01JQ4Z
  agents plan diff 01JQ4Z --patch --resource app | git apply --check
  agents plan diff 01JQ4Z --from 01JQ50 --to 01JQ51`,
		Args:              a.exactly("PLAN"),
		ValidArgsFunction: inOrder(a.plans()),
		RunE: func(cmd *cobra.Command, args []string) error {
			opts.req.Plan = args[0]
			return a.do(cmd, func(ctx context.Context) (view.Document, error) { return opts.run(ctx, a) })
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&opts.stat, "stat", false, "a line for each file and the counts (the default)")
	flags.BoolVarP(&opts.req.Patch, "patch", "p", false, "the whole patch")
	flags.StringVar(&opts.req.Resource, "resource", "", "only this resource")
	flags.StringVar(&opts.req.From, "from", "", "checkpoint to start from (else the base)")
	flags.StringVar(&opts.req.To, "to", "", "checkpoint to end at (else the present)")
	flag(cmd, "resource", a.resources())
	flag(cmd, "from", a.checkpoints())
	flag(cmd, "to", a.checkpoints())
	return exits(cmd, 0, 1, 2, 3, 4)
}

func (o *planDiffOptions) run(ctx context.Context, a *app) (view.Document, error) {
	s, err := a.open(ctx, reading)
	if err != nil {
		return view.Document{}, err
	}
	if o.req.Patch && !a.view().Structured() {
		return view.Document{}, s.showPatch(ctx, o.req)
	}
	stop := a.beat("comparing")
	d, err := s.engine.Diff(ctx, o.req)
	stop()
	if err != nil {
		return view.Document{}, err
	}
	return view.Diff(d), nil
}

// showPatch prints a patch: byte for byte into a pipe or file, in colour
// through the pager on a terminal.
func (s *session) showPatch(ctx context.Context, req engine.DiffRequest) error {
	a := s.app
	stop := a.beat("comparing")
	d, err := s.engine.Diff(ctx, req)
	stop()
	if err != nil {
		return err
	}
	if !isTerminal(a.out) {
		_, err := a.out.Write(d.Patch)
		return err
	}
	text := string(d.Patch)
	if !a.noColor && os.Getenv("NO_COLOR") == "" {
		text = view.ColourPatch(text)
	}
	return a.page(ctx, text)
}

// page shows text through the user's pager, as git chooses it.
func (a *app) page(ctx context.Context, text string) error {
	pager := "less"
	for _, name := range []string{"GIT_PAGER", "PAGER"} {
		if v, ok := os.LookupEnv(name); ok {
			pager = v
			break
		}
	}
	if pager == "" || pager == "cat" {
		_, err := fmt.Fprint(a.plainWriter(a.out), text)
		return err
	}
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", pager)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(text), a.out, a.err
	cmd.Env = os.Environ()
	if _, ok := os.LookupEnv("LESS"); !ok {
		cmd.Env = append(cmd.Env, "LESS=FRX")
	}
	if err := cmd.Run(); err != nil {
		// No pager is no reason not to show it; one that was left early is fine.
		if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() == 127 {
			_, err := fmt.Fprint(a.plainWriter(a.out), text)
			return err
		}
	}
	return nil
}
