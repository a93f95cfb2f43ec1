package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/cleveragents/agents/internal/view"
	"github.com/cleveragents/agents/metastore"
)

func newDB(a *app) *cobra.Command {
	return a.group("db", "Look after the metadata store", newDBUpgrade(a))
}

func newDBUpgrade(a *app) *cobra.Command {
	return exits(&cobra.Command{
		Use:   "upgrade",
		Short: "Bring the metadata store up to date",
		Long: `Bring the metadata store in the data directory to the version of this program.
Every command does that by itself; this one says what happened. A store of a
newer version is refused and not changed.`,
		Example: "  agents db upgrade",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.do(cmd, func(ctx context.Context) (view.Document, error) {
				conf, err := a.loadConfig()
				if err != nil {
					return view.Document{}, err
				}
				file := databaseFile(conf.DataDir)
				from, to, err := metastore.Migrate(ctx, file, metastore.Options{})
				if err != nil {
					return view.Document{}, err
				}
				return view.Upgraded(file, from, to), nil
			})
		},
	}, 0, 1, 2)
}
