package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/git"
	"github.com/cleveragents/agents/internal/view"
	"github.com/cleveragents/agents/sandbox"
)

func newDoctor(a *app) *cobra.Command {
	return exits(&cobra.Command{
		Use:     "doctor",
		Aliases: []string{"diagnostics"},
		Short:   "Show what this machine can do and what is left over",
		Long: `Show which strategies this machine can run and why not, what the kernel could
enforce, git's version, the data directory, and what cleaning could not remove.`,
		Example: "  agents doctor --format json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.do(cmd, func(ctx context.Context) (view.Document, error) { return runDoctor(ctx, a) })
		},
	}, 0, 1, 2)
}

// runDoctor tells what it can even where the store cannot be opened; that is
// then the error.
func runDoctor(ctx context.Context, a *app) (view.Document, error) {
	conf, err := a.loadConfig()
	if err != nil {
		return view.Document{}, err
	}
	registry, err := strategies()
	if err != nil {
		return view.Document{}, err
	}
	h := view.Health{Mode: "none", DataDir: conf.DataDir}
	major, minor, noGit := new(git.Runner).Version(ctx)
	if noGit == nil {
		h.GitVersion = fmt.Sprintf("%d.%d", major, minor)
	}
	h.Namespaces, h.LandlockABI = probeKernel(ctx)
	s, err := a.open(ctx, reading)
	probeDataDir(&h, conf.DataDir)
	h.Strategies = strategyRows(registry, noGit, h.Reflink)
	if err != nil {
		return view.Doctor(h), err
	}
	if h.Leftovers, err = s.engine.Leftovers(ctx); err != nil {
		return view.Doctor(h), err
	}
	return view.Doctor(h), nil
}

// strategyRows asks every strategy. noGit is why git cannot be used, or nil;
// reflink says that files in the data directory can share their blocks.
func strategyRows(registry *sandbox.Registry, noGit error, reflink bool) []view.StrategyRow {
	var rows []view.StrategyRow
	for _, name := range agents.Strategies() {
		row := view.StrategyRow{Strategy: name}
		s, err := registry.Lookup(name)
		if err == nil {
			row.Mechanism = mechanism(name, reflink)
			err = s.Capabilities().Available
		}
		if err == nil && name == agents.GitWorktree {
			err = noGit
		}
		if err != nil {
			row.Reason = err.Error()
		}
		row.Available = err == nil
		rows = append(rows, row)
	}
	return rows
}

// mechanism says how a strategy isolates.
func mechanism(name agents.StrategyName, reflink bool) string {
	switch name {
	case agents.CopyOnWrite:
		if reflink {
			return "reflink: copies that share their blocks with the original"
		}
		return "copy"
	case agents.GitWorktree:
		return "git worktree with a private git directory"
	case agents.NoIsolation:
		return "writes go through"
	}
	return ""
}
