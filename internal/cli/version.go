package cli

import (
	"context"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/cleveragents/agents/internal/view"
)

func newVersion(a *app) *cobra.Command {
	return exits(&cobra.Command{
		Use:     "version",
		Short:   "Show the version",
		Long:    "Show the version of this program and how it was built.",
		Example: "  agents version --format json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.do(cmd, func(context.Context) (view.Document, error) { return view.Version(buildInfo()), nil })
		},
	}, 0, 2)
}

func buildInfo() view.BuildInfo {
	b := view.BuildInfo{Version: "devel", Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		b.Version = v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			b.Commit = s.Value[:min(len(s.Value), 12)]
		}
	}
	return b
}
