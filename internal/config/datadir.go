package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/fsx"
)

// EnvDataDir is the environment variable that names the data directory.
const EnvDataDir = "CLEVERAGENTS_DATA_DIR"

// DataDir returns the absolute path of the data directory: flag if not empty,
// else CLEVERAGENTS_DATA_DIR, else $XDG_STATE_HOME/cleveragents, else
// ~/.local/state/cleveragents. It makes nothing.
func DataDir(flag string, getenv func(string) string) (string, error) {
	for _, dir := range []string{flag, getenv(EnvDataDir)} {
		if dir != "" {
			return filepath.Abs(dir)
		}
	}
	// The base directory specification says to ignore a relative path.
	if state := getenv("XDG_STATE_HOME"); filepath.IsAbs(state) {
		return filepath.Join(state, "cleveragents"), nil
	}
	if home := getenv("HOME"); filepath.IsAbs(home) {
		return filepath.Join(home, ".local", "state", "cleveragents"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil || home == "" {
		return "", agents.WithHint(fmt.Errorf("data directory: no home directory is known: %w", agents.ErrInvalid),
			"name one with --data-dir or %s", EnvDataDir)
	}
	return filepath.Join(home, ".local", "state", "cleveragents"), nil
}

// MakeDataDir makes the data directory, for its owner alone. An empty
// directory that was there is closed to others too.
func MakeDataDir(dir string) error {
	if err := fsx.MkdirAll(dir, 0o700); err != nil {
		return dataDirError(dir, err)
	}
	fi, err := os.Stat(dir)
	if err != nil {
		return dataDirError(dir, err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return dataDirError(dir, err)
	}
	if len(entries) == 0 && fi.Mode().Perm() != 0o700 {
		if err := fsx.Chmod(dir, 0o700); err != nil {
			return dataDirError(dir, err)
		}
	}
	return nil
}

func dataDirError(dir string, err error) error {
	err = fmt.Errorf("data directory %s: %w", dir, err)
	if errors.Is(err, fs.ErrPermission) {
		return agents.WithHint(err, "name one that you may write with --data-dir or %s", EnvDataDir)
	}
	return err
}
