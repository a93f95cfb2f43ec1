package cli

import (
	"bytes"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cleveragents/agents/internal/config"
	"github.com/cleveragents/agents/internal/view"
)

func newRoot(a *app) *cobra.Command {
	var version bool
	root := &cobra.Command{
		Use:   "agents COMMAND",
		Short: "Let agents change things in isolation, look, take steps back, and apply",
		Long: `agents lets any command, tool or AI agent change repositories and directories in isolated
sandboxes. A checkpoint is kept around every tool call, any of them can be
taken back, and the reviewed result comes home in one careful step. The real
resource stays byte for byte what it was until apply.

"agents completion SHELL" prints a completion script, "agents man DIR" writes
the manual pages.`,
		Example: `  agents run -- make fmt
  agents plan list
  agents plan diff 01JQ4Z --patch
  agents plan apply 01JQ4Z`,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownCommand(cmd, args)
			}
			if version {
				a.command = "version"
				a.emit(cmd.Context(), view.Version(buildInfo()), nil)
				return nil
			}
			if a.view().Structured() {
				return fmt.Errorf("missing command")
			}
			return cmd.Help()
		},
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	exits(root, 0, 1, 2, 3, 4, 5, 130)
	flags := root.PersistentFlags()
	flags.Var((*formatFlag)(&a.format), "format", "output: rich, plain, table, json or yaml (rich on a terminal, else plain)")
	flags.StringVar(&a.dataDir, "data-dir", "", "data directory (else "+config.EnvDataDir+", else $XDG_STATE_HOME/cleveragents)")
	flags.BoolVarP(&a.quiet, "quiet", "q", false, "no notices on standard error")
	flags.BoolVar(&a.noColor, "no-color", false, "no colours")
	root.Flags().BoolVar(&version, "version", false, "show the version")
	flag(root, "format", fixed(formatNames()...))
	root.AddCommand(
		newRun(a), newResource(a), newProject(a), newAction(a), newPlan(a), newTool(a),
		newProfile(a), newConfig(a), newCleanup(a), newDoctor(a), newDB(a), newCompletion(a), newVersion(a), newMan(a),
	)
	root.SetHelpCommand(newHelp(root))
	root.SetUsageTemplate(usageTemplate)
	a.setHelp(root)
	return root
}

// newHelp is cobra's help command, with errors like everybody's.
func newHelp(root *cobra.Command) *cobra.Command {
	return exits(&cobra.Command{
		Use:     "help [COMMAND]",
		Short:   "Help about any command",
		Long:    "Help about any command. The same as COMMAND --help.",
		Example: "  agents help plan rollback",
		RunE: func(_ *cobra.Command, args []string) error {
			cmd, rest, err := root.Find(args)
			if err != nil || cmd == nil || len(rest) > 0 {
				return unknownCommand(root, args)
			}
			return cmd.Help()
		},
	}, 0, 2)
}

// setHelp makes --help keep to the one document of the structured formats.
func (a *app) setHelp(root *cobra.Command) {
	plain := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		if !a.view().Structured() {
			plain(cmd, args)
			return
		}
		var text bytes.Buffer
		cmd.SetOut(&text)
		plain(cmd, args)
		a.command = commandName(cmd)
		a.emit(cmd.Context(), view.Document{Keys: []view.Field{{Name: "help", Value: text.String()}}}, nil)
	})
}

// formatFlag is the value of --format; an unknown one is refused.
type formatFlag string

func (f *formatFlag) String() string { return string(*f) }
func (f *formatFlag) Type() string   { return "FORMAT" }

// Set checks and keeps the value.
func (f *formatFlag) Set(s string) error {
	v, err := view.ParseFormat(s)
	if err != nil {
		return err
	}
	*f = formatFlag(v)
	return nil
}

func formatNames() []string {
	var names []string
	for _, f := range view.Formats() {
		names = append(names, string(f))
	}
	return names
}

// usageTemplate is cobra's own with the exit codes behind the flags.
const usageTemplate = `Usage:{{if .Runnable}}
  {{.UseLine}}{{end}}{{if gt (len .Aliases) 0}}

Aliases:
  {{.NameAndAliases}}{{end}}{{if .HasAvailableSubCommands}}

Commands:{{range .Commands}}{{if .IsAvailableCommand}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}{{end}}{{if .HasAvailableLocalFlags}}

Flags:
{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}{{end}}{{if .HasAvailableInheritedFlags}}

Global flags:
{{.InheritedFlags.FlagUsages | trimTrailingWhitespaces}}{{end}}{{if .HasExample}}

Examples:
{{.Example}}{{end}}{{with index .Annotations "exits"}}

Exit codes:
{{.}}{{end}}
`
