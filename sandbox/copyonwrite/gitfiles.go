package copyonwrite

import (
	"bytes"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/fsx"
)

// ownGit makes sure that git commands in what was copied reach no git directory
// outside of it. The file .git of a linked worktree or a submodule names one,
// by an absolute path as a rule: one inside the resource is named anew, as its
// copy; any other .git is left out of the copy, and said. A repository's notes
// of where its worktrees are lead to their copies too, or "git worktree
// remove" would remove the original, and so does core.worktree.
func (b *box) ownGit(copied string, survey *fsx.Survey, top os.FileInfo, notify func(string)) error {
	if b.rec.File != "" {
		return nil
	}
	for _, e := range survey.Entries {
		var err error
		switch name := path.Base(e.Path); {
		case name == ".git" && e.Kind == fsx.KindFile, name == ".git" && e.Kind == fsx.KindSymlink:
			err = b.ownGitFile(copied, survey.Dir, top, e, notify)
		case name == "gitdir" && e.Kind == fsx.KindFile && path.Base(path.Dir(path.Dir(e.Path))) == "worktrees":
			err = b.ownWorktree(copied, survey.Dir, top, e.Path)
		case name == "config" && e.Kind == fsx.KindFile && strings.Contains("/"+e.Path, "/.git/"):
			err = ownConfig(copied, survey.Dir, top, e.Path)
		}
		if err != nil {
			return fmt.Errorf("%q: %w", e.Path, err)
		}
	}
	return nil
}

func (b *box) ownGitFile(copied, dir string, top os.FileInfo, e fsx.SurveyEntry, notify func(string)) error {
	at := filepath.Join(copied, e.Path)
	var target string
	if e.Kind == fsx.KindSymlink { // leads into the copy already, if it led into the resource
		link, err := os.Readlink(at)
		if err != nil {
			return missingIsFine(err)
		}
		target = link
	} else {
		text, err := os.ReadFile(at)
		if err != nil {
			return missingIsFine(err)
		}
		named, ok := bytes.CutPrefix(text, []byte("gitdir: "))
		if !ok {
			return nil
		}
		target = strings.TrimRight(string(named), "\r\n")
	}
	if !strings.HasPrefix(target, "/") && !leaves(path.Dir(e.Path), target) {
		return nil
	}
	if _, leads := leadsBack(dir, top, e.Path, target); leads && e.Kind == fsx.KindFile {
		return fsx.Publish(at, []byte("gitdir: "+reroot(dir, top, e.Path, target)+"\n"), 0o644)
	}
	notify(fmt.Sprintf("resource %s: %s leads to the git directory %s outside of it, and is not in the sandbox: git commands there find no repository",
		b.ws.Resource.Name, agents.EscapePath(e.Path), agents.EscapePath(target)))
	return fsx.Remove(at)
}

// ownWorktree names the copy of a linked worktree where the original was.
func (b *box) ownWorktree(copied, dir string, top os.FileInfo, name string) error {
	at := filepath.Join(copied, name)
	text, err := os.ReadFile(at)
	if err != nil {
		return missingIsFine(err)
	}
	target := strings.TrimRight(string(text), "\r\n")
	if !strings.HasPrefix(target, "/") {
		return nil
	}
	// The path ends in .git, which need not exist: the directory tells.
	below, leads := leadsBack(dir, top, name, target)
	if !leads {
		return nil
	}
	return fsx.Publish(at, []byte(filepath.Join(b.rec.Path, below)+"\n"), 0o644)
}

// worktreeSetting is core.worktree where it is an absolute path.
var worktreeSetting = regexp.MustCompile(`(?m)^([ \t]*worktree[ \t]*=[ \t]*)(/\S*)[ \t]*$`)

// ownConfig lets a repository that names its working tree by an absolute path
// name the copy of it: git takes a path relative to the git directory, where
// the file lies.
func ownConfig(copied, dir string, top os.FileInfo, name string) error {
	at := filepath.Join(copied, name)
	text, err := os.ReadFile(at)
	if err != nil {
		return missingIsFine(err)
	}
	own := worktreeSetting.ReplaceAllStringFunc(string(text), func(line string) string {
		m := worktreeSetting.FindStringSubmatch(line)
		return m[1] + reroot(dir, top, name, m[2])
	})
	if own == string(text) {
		return nil
	}
	return fsx.Publish(at, []byte(own), 0o644)
}

// missingIsFine: what went away while it was copied is told elsewhere.
func missingIsFine(err error) error {
	if os.IsNotExist(err) {
		return nil
	}
	return err
}
