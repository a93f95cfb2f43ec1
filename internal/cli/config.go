package cli

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/config"
	"github.com/cleveragents/agents/internal/view"
)

func newConfig(a *app) *cobra.Command {
	return a.group("config", "Look at settings and change them",
		newConfigGet(a), newConfigSet(a), newConfigList(a), newConfigTrust(a))
}

func newConfigGet(a *app) *cobra.Command {
	return exits(&cobra.Command{
		Use:               "get KEY",
		Short:             "Show a setting",
		Long:              "Show the value of a setting. The JSON form tells where it comes from.",
		Example:           "  agents config get sandbox.cleanup",
		Args:              a.exactly("KEY"),
		ValidArgsFunction: inOrder(fixed(keyNames()...)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.do(cmd, func(context.Context) (view.Document, error) {
				conf, err := a.loadConfig()
				if err != nil {
					return view.Document{}, err
				}
				v, err := conf.Get(args[0])
				if err != nil {
					return view.Document{}, nearKey(args[0], err)
				}
				return a.noticed(view.Setting(v), conf), nil
			})
		},
	}, 0, 1, 2)
}

func newConfigList(a *app) *cobra.Command {
	return exits(&cobra.Command{
		Use:   "list",
		Short: "List the settings",
		Long: `List every setting with its value and where it comes from: flag, environment,
project file, user file or default.`,
		Example: "  agents config list",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.do(cmd, func(context.Context) (view.Document, error) {
				conf, err := a.loadConfig()
				if err != nil {
					return view.Document{}, err
				}
				return a.noticed(view.Settings(conf.List()), conf), nil
			})
		},
	}, 0, 1, 2)
}

// noticed adds what the configuration has to say to a document, and says it.
func (a *app) noticed(doc view.Document, conf *config.Config) view.Document {
	for _, n := range conf.Notices {
		a.notify(n)
	}
	doc.Messages = append(doc.Messages, conf.Notices...)
	doc.Warn = len(conf.Notices) > 0
	return doc
}

func newConfigSet(a *app) *cobra.Command {
	var project bool
	cmd := &cobra.Command{
		Use:   "set KEY VALUE",
		Short: "Change a setting",
		Long: `Change a setting in the user's configuration file, or with --project in the
project's. Comments and layout stay. An unknown key or value is refused.`,
		Example: `  agents config set sandbox.cleanup on_terminal
  agents config set checkpoints.auto_create_on before_tool_execute,on_error`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 2 && args[0] != "" {
				return nil // the value may be empty: it is the empty list
			}
			return a.exactly("KEY", "VALUE")(cmd, args)
		},
		ValidArgsFunction: func(cmd *cobra.Command, before []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
			if len(before) == 1 {
				if k, err := config.KeyByName(before[0]); err == nil {
					return k.Values, cobra.ShellCompDirectiveNoFileComp
				}
			}
			return inOrder(fixed(keyNames()...))(cmd, before, typed)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.do(cmd, func(context.Context) (view.Document, error) {
				return a.setConfig(args[0], args[1], project)
			})
		},
	}
	cmd.Flags().BoolVar(&project, "project", false, "write .cleveragents/config.toml of the project")
	return exits(cmd, 0, 1, 2)
}

func (a *app) setConfig(name, value string, project bool) (view.Document, error) {
	dataDir, err := config.DataDir(a.dataDir, os.Getenv)
	if err != nil {
		return view.Document{}, err
	}
	file := config.UserFile(dataDir)
	if project {
		dir, err := os.Getwd()
		if err != nil {
			return view.Document{}, err
		}
		if file = config.FindProjectFile(dir); file == "" {
			file = filepath.Join(dir, ".cleveragents", "config.toml")
		}
	} else if _, err := config.KeyByName(name); err == nil {
		if err := config.MakeDataDir(dataDir); err != nil {
			return view.Document{}, err
		}
	}
	if err := config.Set(file, name, value); err != nil {
		return view.Document{}, nearKey(name, err)
	}
	conf, err := a.loadConfig()
	if err != nil {
		return view.Document{}, err
	}
	v, err := conf.Get(name)
	if err != nil {
		return view.Document{}, err
	}
	doc := a.noticed(view.SettingWritten(v, file), conf)
	if from := written(project); v.Source != from {
		doc.Warn = true
		doc.Messages = append(doc.Messages, fmt.Sprintf("%s is %q all the same: %s goes before %s", name, v.Value, v.Source, from))
		a.notify(doc.Messages[len(doc.Messages)-1])
	}
	return doc, nil
}

func written(project bool) config.Source {
	if project {
		return config.FromProject
	}
	return config.FromUser
}

func newConfigTrust(a *app) *cobra.Command {
	return exits(&cobra.Command{
		Use:   "trust [FILE]",
		Short: "Let a project's configuration loosen settings",
		Long: `Let a project's configuration file loosen settings as well as tighten them,
until it changes. Without FILE it is .cleveragents/config.toml in the working
directory or above it. Read it first.`,
		Example: "  agents config trust",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.do(cmd, func(context.Context) (view.Document, error) {
				file, err := trustTarget(args)
				if err != nil {
					return view.Document{}, err
				}
				dataDir, err := config.DataDir(a.dataDir, os.Getenv)
				if err != nil {
					return view.Document{}, err
				}
				if err := config.Trust(dataDir, file); err != nil {
					return view.Document{}, err
				}
				return view.Trusted(file), nil
			})
		},
	}, 0, 1, 2, 3)
}

func trustTarget(args []string) (string, error) {
	if len(args) == 1 {
		return filepath.Abs(args[0])
	}
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	if file := config.FindProjectFile(dir); file != "" {
		return file, nil
	}
	return "", fmt.Errorf(".cleveragents/config.toml in %s or above: %w", dir, agents.ErrNotFound)
}

// nearKey adds to the error of an unknown key which one was probably meant.
func nearKey(name string, err error) error {
	if _, unknown := config.KeyByName(name); unknown == nil || agents.HintOf(err) != "" {
		return err
	}
	if near := nearest(name, keyNames()); near != "" {
		return agents.WithHint(err, "did you mean %s?", near)
	}
	return agents.WithHint(err, "agents config list")
}

func keyNames() []string {
	var names []string
	for _, k := range config.Keys() {
		names = append(names, k.Name)
	}
	return names
}
