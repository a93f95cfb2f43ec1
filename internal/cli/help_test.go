package cli_test

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/cleveragents/agents/internal/cli"
)

func everyCommand(cmd *cobra.Command, visit func(*cobra.Command)) {
	visit(cmd)
	for _, c := range cmd.Commands() {
		everyCommand(c, visit)
	}
}

func TestEveryCommandHasItsHelp(t *testing.T) {
	everyCommand(cli.NewRoot(cli.Commands()), func(cmd *cobra.Command) {
		name := cmd.CommandPath()
		if cmd.Short == "" || cmd.Long == "" || strings.HasSuffix(cmd.Short, ".") {
			t.Errorf("%s: short %q, long %q", name, cmd.Short, cmd.Long)
		}
		if cmd.Annotations["exits"] == "" {
			t.Errorf("%s: no exit codes", name)
		}
		if !cmd.HasSubCommands() && !strings.Contains(cmd.Example, name) {
			t.Errorf("%s: no example", name)
		}
		if bad := cmd.Annotations["bad-completion"]; bad != "" {
			t.Errorf("%s: %s", name, bad)
		}
		if cmd.Hidden && cmd.Name() != "man" {
			t.Errorf("%s is hidden", name)
		}
		if cmd.RunE == nil {
			t.Errorf("%s does nothing", name)
		}
	})
}

// The commands of CLI.md that this build has; one that is not built yet must
// not be there at all.
func TestCommandsOfTheCore(t *testing.T) {
	want := strings.Fields(`run
		resource/add resource/list resource/show resource/remove resource/type/list resource/type/show
		project/create project/list project/show project/delete project/link-resource project/unlink-resource
		action/create action/list action/show
		plan/create plan/use plan/execute plan/exec plan/shell plan/update plan/export plan/undo plan/list plan/status plan/diff plan/errors
		plan/artifacts plan/events plan/checkpoint/list plan/checkpoint/create plan/checkpoint/show plan/checkpoint/delete plan/rollback plan/apply plan/cancel
		tool/list tool/run config/get config/set config/list config/trust
		cleanup cleanup/status cleanup/archive/list cleanup/archive/restore
		doctor db/upgrade automation-profile/list automation-profile/show completion version man help`)
	got := map[string]bool{}
	root := cli.NewRoot(cli.Commands())
	root.InitDefaultHelpCmd()
	everyCommand(root, func(cmd *cobra.Command) {
		if !cmd.HasSubCommands() || cmd.Name() == "cleanup" {
			_, path, _ := strings.Cut(cmd.CommandPath(), " ")
			got[strings.ReplaceAll(path, " ", "/")] = true
		}
	})
	for _, c := range want {
		if !got[c] {
			t.Errorf("agents %s is missing", c)
		}
		delete(got, c)
	}
	for c := range got {
		t.Errorf("agents %s is not in CLI.md for this stage", c)
	}
}
