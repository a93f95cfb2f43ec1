package proc

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	agents "github.com/cleveragents/agents"
)

// The exit codes of shells for a program that never ran.
const (
	exitCannotStart = 126
	exitNotFound    = 127
)

// check refuses what no system would run.
func (c Command) check() error {
	if len(c.Argv) == 0 || c.Argv[0] == "" {
		return fmt.Errorf("run: no command given: %w", agents.ErrInvalid)
	}
	for _, list := range [][]string{c.Argv, c.Env, {c.Dir}} {
		for _, s := range list {
			if strings.ContainsRune(s, 0) {
				return fmt.Errorf("run %s: a NUL byte in an argument: %w", c.name(), agents.ErrInvalid)
			}
		}
	}
	if !c.TTY {
		return nil
	}
	for _, s := range []any{c.Stdin, c.Stdout, c.Stderr} {
		if _, ok := s.(*os.File); !ok {
			return fmt.Errorf("run %s: on a terminal all three streams must be files: %w", c.name(), agents.ErrInvalid)
		}
	}
	return nil
}

// name is what messages call the command.
func (c Command) name() string {
	if len(c.Argv) == 0 {
		return ""
	}
	return filepath.Base(c.Argv[0])
}

// lookup finds the program, as a shell in Dir with the command's own PATH
// would, but never by an empty or relative entry of PATH.
func lookup(c Command) (path string, code int, err error) {
	name := c.Argv[0]
	if strings.ContainsRune(name, '/') || strings.ContainsRune(name, filepath.Separator) {
		return usable(c, name)
	}
	for _, dir := range filepath.SplitList(Getenv(c.Env, "PATH")) {
		if !filepath.IsAbs(dir) {
			continue
		}
		for _, ext := range extensions(c.Env) {
			if p, _, err := usable(c, filepath.Join(dir, name+ext)); err == nil {
				return p, 0, nil
			}
		}
	}
	return "", exitNotFound, fmt.Errorf("run %s: command not found: %w", name, agents.ErrToolFailed)
}

func usable(c Command, path string) (string, int, error) {
	abs := path
	if !filepath.IsAbs(abs) {
		abs = filepath.Join(c.Dir, path)
	}
	fi, err := os.Stat(abs)
	switch {
	case err != nil:
		return "", exitNotFound, fmt.Errorf("run %s: command not found: %w", path, agents.ErrToolFailed)
	case fi.IsDir() || runtime.GOOS != "windows" && fi.Mode().Perm()&0o111 == 0:
		return "", exitCannotStart, fmt.Errorf("run %s: permission denied: %w", path, agents.ErrToolFailed)
	}
	return abs, 0, nil
}

// extensions are what a program's name may go without.
func extensions(env []string) []string {
	if runtime.GOOS != "windows" {
		return []string{""}
	}
	return append([]string{""}, strings.Split(strings.ToLower(Getenv(env, "PATHEXT")), ";")...)
}
