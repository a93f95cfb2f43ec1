package cli

import (
	"bytes"
	"context"
	"fmt"

	"github.com/spf13/cobra"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/view"
)

func newCompletion(a *app) *cobra.Command {
	return exits(&cobra.Command{
		Use:   "completion SHELL",
		Short: "Print a completion script for bash, zsh, fish or powershell",
		Long: `Print a completion script. It completes commands and flags, and the ids of
plans and checkpoints, resources and tools. The manual pages are written by
agents man DIR.`,
		Example: `  agents completion bash >~/.local/share/bash-completion/completions/agents
  agents completion zsh >"${fpath[1]}/_agents"
  agents completion fish >~/.config/fish/completions/agents.fish`,
		Args:              a.exactly("SHELL"),
		ValidArgsFunction: inOrder(fixed("bash", "zsh", "fish", "powershell")),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.do(cmd, func(context.Context) (view.Document, error) { return completionScript(cmd.Root(), args[0]) })
		},
	}, 0, 2)
}

func completionScript(root *cobra.Command, shell string) (view.Document, error) {
	var (
		script bytes.Buffer
		err    error
	)
	switch shell {
	case "bash":
		err = root.GenBashCompletionV2(&script, true)
	case "zsh":
		err = root.GenZshCompletion(&script)
	case "fish":
		err = root.GenFishCompletion(&script, true)
	case "powershell":
		err = root.GenPowerShellCompletionWithDesc(&script)
	default:
		err = fmt.Errorf("shell %q: want one of bash, zsh, fish, powershell: %w", shell, agents.ErrInvalid)
	}
	if err != nil {
		return view.Document{}, err
	}
	return view.Document{
		Keys:   []view.Field{{Name: "completion", Value: map[string]string{"shell": shell, "script": script.String()}}},
		Blocks: []view.Block{view.Text(script.String())},
	}, nil
}
