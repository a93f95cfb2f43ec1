package cli

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	agents "github.com/cleveragents/agents"
)

// usageError is a command line that makes no sense. It is agents.ErrInvalid.
type usageError struct {
	message string
	details map[string]any
}

func (e *usageError) Error() string { return e.message }

// Is makes errors.Is(err, agents.ErrInvalid) true.
func (e *usageError) Is(target error) bool { return target == agents.ErrInvalid }

// usage turns what cobra says into a usage error with a hint.
func usage(root, cmd *cobra.Command, args []string, err error) error {
	if wrong := wrongCommand(root, args); wrong != nil {
		return wrong
	}
	var u *usageError
	if errors.As(err, &u) && agents.HintOf(err) != "" {
		return err
	}
	message, hint, _ := strings.Cut(strings.TrimSpace(err.Error()), "\n")
	hint = strings.Join(strings.Fields(hint), " ")
	var unknown notDefined
	if errors.As(err, &unknown) && strings.HasPrefix(message, "unknown ") {
		hint = flagHint(root, cmd, args, unknown)
	}
	if hint == "" {
		hint = "see " + cmd.CommandPath() + " --help"
	}
	return agents.WithHint(&usageError{message: ownWords(strings.TrimSpace(message))}, "%s", hint)
}

// ownWords says in this program's words what cobra says about flags together.
func ownWords(message string) string {
	for _, r := range []struct{ theirs, join, ours string }{
		{`^if any flags in the group .* none of the others can be; \[(.+)\] were all set$`, " and ", "%s exclude each other"},
		{`^at least one of the flags in the group \[(.+)\] is required$`, " or ", "want %s"},
		{`^required flag\(s\) "(.+)" not set$`, " and ", "missing %s"},
	} {
		m := regexp.MustCompile(r.theirs).FindStringSubmatch(message)
		if m == nil {
			continue
		}
		names := strings.FieldsFunc(m[1], func(c rune) bool { return strings.ContainsRune(`", `, c) })
		return fmt.Sprintf(r.ours, "--"+strings.Join(names, r.join+"--"))
	}
	return message
}

// group makes a command that only holds others.
func (a *app) group(use, short string, children ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use:   use + " COMMAND",
		Short: short,
		Long:  short + ".",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownCommand(cmd, args)
			}
			if a.view().Structured() {
				return errors.New("missing command for " + cmd.CommandPath())
			}
			return cmd.Help()
		},
	}
	cmd.AddCommand(children...)
	return exits(cmd, 0, 2)
}

// noArgs refuses arguments.
func noArgs(cmd *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return nil
	case cmd.HasSubCommands():
		return unknownCommand(cmd, args)
	}
	return fmt.Errorf("unexpected argument %q for %s", args[0], cmd.CommandPath())
}

// exactly wants one argument for each of these names, no more. A missing PLAN
// is never guessed: the error lists the candidates (U125).
func (a *app) exactly(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > len(names) {
			return fmt.Errorf("unexpected argument %q for %s", args[len(names)], cmd.CommandPath())
		}
		return a.atLeast(names...)(cmd, args)
	}
}

// atLeast wants an argument for each of these names.
func (a *app) atLeast(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		for i, arg := range args[:min(len(args), len(names))] {
			if arg == "" {
				return fmt.Errorf("argument %d of %s is empty", i+1, cmd.CommandPath())
			}
		}
		if len(args) >= len(names) {
			return nil
		}
		missing := names[len(args)]
		u := &usageError{message: fmt.Sprintf("missing %s for %s", missing, cmd.CommandPath())}
		candidates := a.candidates(cmd.Context(), missing, args)
		if len(candidates) == 0 {
			return agents.WithHint(u, "usage: %s", cmd.UseLine())
		}
		var ids []string
		var lines strings.Builder
		for _, c := range candidates {
			ids = append(ids, c.id)
			fmt.Fprintf(&lines, "\n  %s  %s", c.id, c.about)
		}
		u.details = map[string]any{"candidates": ids}
		return agents.WithHint(u, "name one of:%s", lines.String())
	}
}

// candidate is something that a missing argument could name.
type candidate struct{ id, about string }

// candidates lists what a missing argument could name, as far as it is known.
func (a *app) candidates(ctx context.Context, missing string, before []string) []candidate {
	if missing != "PLAN" && missing != "CHECKPOINT" {
		return nil
	}
	s, err := a.open(ctx, reading)
	if err != nil {
		return nil
	}
	if missing == "PLAN" {
		return s.planCandidates(ctx)
	}
	return s.checkpointCandidates(ctx, before[0])
}

// exits notes the exit codes that a command's help lists.
func exits(cmd *cobra.Command, codes ...int) *cobra.Command {
	meaning := map[int]string{
		0:   "done",
		1:   "failed",
		2:   "wrong usage or an invalid value",
		3:   "not found",
		4:   "conflict with the existing state",
		5:   "applied in part",
		130: "interrupted",
	}
	var lines []string
	for _, c := range codes {
		lines = append(lines, fmt.Sprintf("  %-3d  %s", c, meaning[c]))
	}
	cmd.Annotations = map[string]string{"exits": strings.Join(lines, "\n")}
	return cmd
}
