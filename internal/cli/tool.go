package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/spf13/cobra"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/engine"
	"github.com/cleveragents/agents/internal/view"
)

func newTool(a *app) *cobra.Command {
	return a.group("tool", "Look at tools and call them", newToolList(a), newToolRun(a))
}

func newToolList(a *app) *cobra.Command {
	return exits(&cobra.Command{
		Use:     "list",
		Short:   "List the tools",
		Long:    "List the tools with what they declare about writing and taking back. The JSON form has their input schemas.",
		Example: "  agents tool list",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.with(cmd, reading, func(ctx context.Context, s *session) (view.Document, error) {
				return view.Tools(s.tools.Specs()), nil
			})
		},
	}, 0, 1, 2)
}

type toolRunOptions struct {
	plan, tool string
	resource   string
	input      string
	onFailure  onFailureFlag
}

func newToolRun(a *app) *cobra.Command {
	opts := toolRunOptions{onFailure: onFailureFlag(agents.FailRollback)}
	cmd := &cobra.Command{
		Use:   "run PLAN TOOL",
		Short: "Call a tool in a plan's sandbox",
		Long: `Call a tool in a plan's sandbox, with a checkpoint before and after it. When
the call fails its changes are rolled back, unless told to keep them. The
prefix builtin/ of a tool's name may be left out.`,
		Example: `  agents tool run 01JQ4Z file-write --input '{"path":"a.txt","content":"hello"}'
  agents tool run 01JQ4Z shell --input @call.json`,
		Args:              a.exactly("PLAN", "TOOL"),
		ValidArgsFunction: inOrder(a.plans(), a.tools()),
		RunE: func(cmd *cobra.Command, args []string) error {
			opts.plan, opts.tool = args[0], args[1]
			return a.do(cmd, func(ctx context.Context) (view.Document, error) { return opts.run(ctx, a) })
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&opts.resource, "resource", "", "resource to work on, where the plan has several")
	flags.StringVar(&opts.input, "input", "{}", "input as JSON, or @FILE (@- is standard input)")
	flags.Var(&opts.onFailure, "on-failure", "what happens to the changes of a failed call: rollback or keep")
	flag(cmd, "resource", a.resources())
	flag(cmd, "on-failure", fixed(string(agents.FailRollback), string(agents.FailKeep)))
	return exits(cmd, 0, 1, 2, 3, 4, 130)
}

func (o *toolRunOptions) run(ctx context.Context, a *app) (view.Document, error) {
	input, err := o.json(a)
	if err != nil {
		return view.Document{}, err
	}
	s, err := a.open(ctx, changing)
	if err != nil {
		return view.Document{}, err
	}
	var shown atomic.Bool
	live := engine.Stdio{Out: a.out, Err: a.err}
	if a.view().Structured() {
		live.Out = a.err
	}
	stop := sync.OnceFunc(a.beat("running " + o.tool))
	came := func() { shown.Store(true); stop() }
	live.Out, live.Err = noted{live.Out, came}, noted{live.Err, came}
	inv, err := s.engine.RunTool(ctx, engine.ToolRequest{
		Plan: o.plan, Tool: o.tool, Resource: o.resource, Input: input, OnFailure: agents.OnFailure(o.onFailure), Stdio: live,
	})
	stop()
	return a.called(inv, shown.Load(), err)
}

func (o *toolRunOptions) json(a *app) (json.RawMessage, error) {
	raw := []byte(o.input)
	if file, ok := strings.CutPrefix(o.input, "@"); ok {
		var err error
		if raw, err = a.readInput(file); err != nil {
			return nil, err
		}
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(raw, &object); err != nil || object == nil {
		return nil, agents.WithHint(fmt.Errorf("--input is no JSON object: %w", agents.ErrInvalid), `such as --input '{"path":"a.txt"}'`)
	}
	return raw, nil
}

// called is the outcome of one call. One that never began has no record.
func (a *app) called(inv agents.Invocation, live bool, err error) (view.Document, error) {
	if inv.ID == "" {
		return view.Document{}, err
	}
	a.tell(view.CallSummary(inv))
	doc := view.Call(inv, live)
	if err == nil && inv.ExitCode != 0 {
		err = fmt.Errorf("%s exited %d: %w", inv.Tool, inv.ExitCode, agents.ErrToolFailed)
	}
	return doc, err
}

// onFailureFlag is the value of --on-failure; an unknown one is refused.
type onFailureFlag agents.OnFailure

func (f *onFailureFlag) String() string { return string(*f) }
func (f *onFailureFlag) Type() string   { return "rollback|keep" }

// Set checks and keeps the value.
func (f *onFailureFlag) Set(s string) error {
	if v := agents.OnFailure(s); v != agents.FailRollback && v != agents.FailKeep {
		return fmt.Errorf("want rollback or keep")
	}
	*f = onFailureFlag(s)
	return nil
}
