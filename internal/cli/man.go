package cli

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/cleveragents/agents/internal/fsx"
	"github.com/cleveragents/agents/internal/view"
)

func newMan(a *app) *cobra.Command {
	return exits(&cobra.Command{
		Use:     "man DIR",
		Short:   "Write a manual page for every command",
		Long:    "Write a manual page for every command into a directory.",
		Example: "  agents man share/man/man1",
		Hidden:  true,
		Args:    a.exactly("DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.do(cmd, func(context.Context) (view.Document, error) {
				files, err := writeManuals(cmd.Root(), args[0])
				if err != nil {
					return view.Document{}, err
				}
				return view.Document{Keys: []view.Field{{Name: "files", Value: files}}}, nil
			})
		},
	}, 0, 1, 2)
}

func writeManuals(cmd *cobra.Command, dir string) ([]string, error) {
	if err := fsx.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	cmd.DisableAutoGenTag = true
	var page bytes.Buffer
	if err := doc.GenMan(cmd, &doc.GenManHeader{Section: "1", Manual: "agents"}, &page); err != nil {
		return nil, err
	}
	file := filepath.Join(dir, strings.ReplaceAll(cmd.CommandPath(), " ", "-")+".1")
	if err := fsx.Publish(file, page.Bytes(), 0o644); err != nil {
		return nil, err
	}
	files := []string{file}
	for _, child := range cmd.Commands() {
		if !child.IsAvailableCommand() {
			continue
		}
		more, err := writeManuals(child, dir)
		if err != nil {
			return nil, err
		}
		files = append(files, more...)
	}
	return files, nil
}
