package gitworktree

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cleveragents/agents/internal/git"
)

// flatten returns the user's settings that a git directory elsewhere needs to
// behave like the user's own: those of the repository and its worktree with
// all includes resolved, after those of conditional includes in the user's
// global files, which would not match elsewhere.
//
// Left out is what belongs to the place (core.worktree, core.bare), what
// starts programs in the background (fsmonitor, maintenance), and hooks.
func flatten(user, elsewhere []git.Setting, root string) []git.Setting {
	out := conditional(user, elsewhere)
	for _, s := range user {
		if (s.Scope == "local" || s.Scope == "worktree") && !ofPlace(s.Key) {
			out = append(out, rooted(s, root))
		}
	}
	return out
}

// conditional returns the global settings that are in force for the user's
// repository and not elsewhere.
func conditional(user, elsewhere []git.Setting) []git.Setting {
	seen := map[git.Setting]int{}
	for _, s := range elsewhere {
		seen[s]++
	}
	var out []git.Setting
	for _, s := range user {
		if s.Scope != "global" && s.Scope != "system" {
			continue
		}
		if seen[s] > 0 {
			seen[s]--
			continue
		}
		if !ofPlace(s.Key) {
			out = append(out, s)
		}
	}
	return out
}

// ofPlace reports whether a setting means something only where it stands.
func ofPlace(key string) bool {
	switch key {
	case "core.bare", "core.worktree", "core.repositoryformatversion", "core.hookspath", "core.fsmonitor",
		"core.splitindex", "core.untrackedcache", "core.logallrefupdates", "include.path",
		"extensions.worktreeconfig", "extensions.refstorage", "extensions.relativeworktrees", "extensions.preciousobjects",
		"extensions.objectformat":
		return true
	}
	for _, section := range []string{"includeif.", "maintenance.", "gc.", "receive.", "uploadpack.", "transfer.hiderefs"} {
		if strings.HasPrefix(key, section) {
			return true
		}
	}
	return false
}

// rooted makes the address of a remote that is a relative path absolute.
func rooted(s git.Setting, root string) git.Setting {
	isAddress := strings.HasPrefix(s.Key, "remote.") && (strings.HasSuffix(s.Key, ".url") || strings.HasSuffix(s.Key, ".pushurl"))
	if isAddress && (strings.HasPrefix(s.Value, "./") || strings.HasPrefix(s.Value, "../") || s.Value == "." || s.Value == "..") {
		s.Value = filepath.Join(root, s.Value)
	}
	return s
}

// ours are settings of a private git directory that override the user's: no
// signing, no work in the background, and of hooks only those that the plan
// makes in the directory itself.
func ours(objectFormat, hooks string) (first, last []git.Setting) {
	version := "0"
	if objectFormat == "sha256" {
		version = "1"
		first = append(first, setting("extensions.objectformat", objectFormat))
	}
	first = append(first,
		setting("core.bare", "false"),
		setting("core.logallrefupdates", "true"))
	if hooks != "" {
		last = append(last, setting("core.hookspath", hooks))
	}
	last = append(last,
		setting("core.fsmonitor", "false"),
		setting("commit.gpgsign", "false"),
		setting("tag.gpgsign", "false"),
		setting("gc.auto", "0"),
		setting("maintenance.auto", "false"),
	)
	return append([]git.Setting{setting("core.repositoryformatversion", version)}, first...), last
}

// hooksElsewhere reports whether the user's global files name a place for hooks.
func hooksElsewhere(all []git.Setting) bool {
	return slices.ContainsFunc(all, func(s git.Setting) bool {
		return s.Key == "core.hookspath" && (s.Scope == "global" || s.Scope == "system")
	})
}

func setting(key, value string) git.Setting { return git.Setting{Key: key, Value: value} }

// formatVersion raises the repository format where extensions need it.
func formatVersion(all []git.Setting) []git.Setting {
	if !slices.ContainsFunc(all, func(s git.Setting) bool { return strings.HasPrefix(s.Key, "extensions.") }) {
		return all
	}
	for i := range all {
		if all[i].Key == "core.repositoryformatversion" {
			all[i].Value = "1"
		}
	}
	return all
}

// renderConfig writes settings as a git configuration file, in their order.
func renderConfig(all []git.Setting) []byte {
	var b strings.Builder
	open := ""
	for _, s := range all {
		section, sub, name, ok := splitKey(s.Key)
		if !ok {
			continue
		}
		head := "[" + section + "]\n"
		if sub != "" || strings.Count(s.Key, ".") > 1 {
			head = "[" + section + " \"" + quoteSubsection(sub) + "\"]\n"
		}
		if head != open {
			b.WriteString(head)
			open = head
		}
		if s.Bare {
			fmt.Fprintf(&b, "\t%s\n", name)
			continue
		}
		fmt.Fprintf(&b, "\t%s = \"%s\"\n", name, quoteValue(s.Value))
	}
	return []byte(b.String())
}

// splitKey takes "section.sub.name" or "section.name" apart.
func splitKey(key string) (section, sub, name string, ok bool) {
	first, last := strings.Index(key, "."), strings.LastIndex(key, ".")
	if first <= 0 || last == len(key)-1 {
		return "", "", "", false
	}
	if first < last {
		sub = key[first+1 : last]
	}
	return key[:first], sub, key[last+1:], !strings.Contains(sub, "\n")
}

func quoteSubsection(s string) string {
	return strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s)
}

func quoteValue(s string) string {
	return strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\t", `\t`, "\b", `\b`).Replace(s)
}

// settingsElsewhere lists the settings in force for a fresh git directory at
// gitDir, which has none of its own yet.
func settingsElsewhere(ctx context.Context, run *git.Runner, gitDir string) ([]git.Setting, error) {
	all, err := git.Repo{Git: run, GitDir: gitDir}.Settings(ctx)
	if err != nil {
		return nil, fmt.Errorf("read git's settings: %w", err)
	}
	return all, nil
}
