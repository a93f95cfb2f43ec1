package cli

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	agents "github.com/cleveragents/agents"
)

// wrongCommand is the error of a command line whose command does not exist;
// nil if it does.
func wrongCommand(root *cobra.Command, args []string) error {
	cmd, rest, _ := root.Find(args)
	if cmd == nil || !cmd.HasSubCommands() || len(words(cmd, rest)) == 0 {
		return nil
	}
	return unknownCommand(cmd, rest)
}

// unknownCommand says that the first word behind cmd is no command of it. The
// hint is the line that was meant, ready to be typed.
func unknownCommand(cmd *cobra.Command, rest []string) error {
	u := &usageError{message: fmt.Sprintf("unknown command %q for %q", rest[words(cmd, rest)[0]], cmd.CommandPath())}
	if line := meant(cmd, rest); line != "" {
		return agents.WithHint(u, "did you mean %s?", line)
	}
	return agents.WithHint(u, "see %s --help", cmd.CommandPath())
}

// meant is the command line with the nearest commands in place of those that
// do not exist; "" where there is none near.
func meant(cmd *cobra.Command, rest []string) string {
	line, path := slices.Clone(rest), cmd.CommandPath()
	for n, i := range words(cmd, rest) {
		if !cmd.HasSubCommands() {
			break
		}
		var names []string
		children := map[string]*cobra.Command{}
		for _, c := range cmd.Commands() {
			if c.IsAvailableCommand() || c.Name() == "help" {
				names = append(names, c.Name())
				children[c.Name()] = c
			}
		}
		near := nearest(line[i], names)
		if near == "" {
			if n == 0 {
				return ""
			}
			line = line[:i]
			break
		}
		line[i], cmd = near, children[near]
	}
	for _, word := range line {
		path += " " + quoted(word)
	}
	return path
}

// words are the places of the arguments that are neither flags nor their
// values, up to "--".
func words(cmd *cobra.Command, args []string) (at []int) {
	for i := 0; i < len(args); i++ {
		name, flagged := strings.CutPrefix(args[i], "-")
		switch {
		case args[i] == "--":
			return at
		case !flagged || name == "":
			at = append(at, i)
		case takesValue(cmd, name):
			i++
		}
	}
	return at
}

// takesValue reports whether the flag's value is the next argument. name is
// spelt without its first dash.
func takesValue(cmd *cobra.Command, name string) bool {
	if long, ok := strings.CutPrefix(name, "-"); ok {
		f := cmd.Flag(long)
		return f != nil && f.NoOptDefVal == ""
	}
	if len(name) != 1 {
		return false
	}
	f := cmd.Flags().ShorthandLookup(name)
	return f != nil && f.NoOptDefVal == ""
}

// notDefined is what the error of an unknown flag can tell.
type notDefined interface {
	error
	GetSpecifiedName() string
	GetSpecifiedShortnames() string
}

// flagHint says what to do about an unknown flag.
func flagHint(root, cmd *cobra.Command, args []string, unknown notDefined) string {
	spelt := "--" + unknown.GetSpecifiedName()
	if short := unknown.GetSpecifiedShortnames(); short != "" {
		spelt = "-" + short
	}
	if cmd.CommandPath() == "agents plan exec" {
		_, rest, _ := root.Find(args)
		if line := dashed(cmd, rest, spelt); line != "" {
			return "put -- before the command: " + line
		}
	}
	if near := nearest(strings.TrimLeft(spelt, "-"), flagNames(cmd)); near != "" && strings.HasPrefix(spelt, "--") {
		return "did you mean --" + near + "?"
	}
	return ""
}

// dashed is the line of plan exec with -- before the command, where spelt is
// one of the command's own flags.
func dashed(cmd *cobra.Command, rest []string, spelt string) string {
	at := words(cmd, rest)
	own := slices.IndexFunc(rest, func(arg string) bool { return arg == spelt || strings.HasPrefix(arg, spelt+"=") })
	if len(at) < 2 || own < at[1] {
		return ""
	}
	line := cmd.CommandPath()
	for _, word := range slices.Insert(slices.Clone(rest), at[1], "--") {
		line += " " + quoted(word)
	}
	return line
}

// flagNames are the long names of the flags that cmd takes.
func flagNames(cmd *cobra.Command) (names []string) {
	for _, m := range regexp.MustCompile(`(?m)^ +(?:-\w, )?--([\w-]+)`).FindAllStringSubmatch(cmd.Flags().FlagUsages(), -1) {
		names = append(names, m[1])
	}
	return names
}

// nearest is the name that was most probably meant; "" where none is near.
func nearest(typed string, names []string) string {
	best, found := 2, ""
	if len(typed) < 4 {
		best = 1
	}
	for _, name := range names {
		if d := distance(typed, name); d <= best {
			if d < best || found == "" {
				best, found = d, name
			}
		}
	}
	if found != "" || len(typed) < 3 {
		return found
	}
	for _, name := range names {
		if strings.HasPrefix(name, typed) || strings.HasSuffix(name, "."+typed) {
			return name
		}
	}
	return ""
}

// distance is the number of letters to add, drop or change.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}

// quoted is a word as a shell takes it.
func quoted(word string) string {
	if word != "" && !regexp.MustCompile(`[^\w@%+=:,./-]`).MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
