package copyonwrite

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/fsx"
	"github.com/cleveragents/agents/sandbox/internal/folder"
)

// placeFor returns the folder for the sandbox of a directory: the usual one,
// unless the copy would share no bytes there and would on the directory's own
// file system, where there is a place for it.
func placeFor(dir, usual string) string {
	if fsx.CanClone(dir, folder.Existing(usual)) {
		return usual
	}
	if near := outsideOf(dir); near != "" && fsx.CanClone(dir, near) {
		return filepath.Join(near, ourFolder(), "sandboxes")
	}
	return usual
}

// ourFolder is the name of what we make on other file systems than the data
// directory's: each user has one of their own.
func ourFolder() string { return fmt.Sprintf("%s%d", ourPrefix, os.Geteuid()) }

const ourPrefix = ".cleveragents-"

// outsideOf returns the highest directory around dir, not dir itself, that is
// on the same mount, can be written and belongs to no repository; "" if there
// is none.
func outsideOf(dir string) string {
	best := ""
	for at := filepath.Dir(dir); at != dir && fsx.SameMount(at, dir); at = filepath.Dir(at) {
		if fsx.Writable(at) {
			best = at
		}
		if exists(filepath.Join(at, ".git")) {
			best = ""
		}
		if at == filepath.Dir(at) {
			break
		}
	}
	return best
}

// applyStage returns a folder on the mount of the resource for what an apply
// brings and for its before-images: beside the journal, else outside of the
// resource, else inside it under a name that never comes home.
func (b *box) applyStage(journal string) (string, error) {
	name := "apply-" + b.rec.SandboxID
	if fsx.SameMount(folder.Existing(journal), b.rec.Dir) {
		return filepath.Join(journal, "stage"), nil
	}
	if near := outsideOf(b.rec.Dir); near != "" {
		return filepath.Join(near, ourFolder(), name), nil
	}
	if b.rec.File == "" && fsx.Writable(b.rec.Dir) {
		return filepath.Join(b.rec.Dir, ".cleveragents", name), nil
	}
	return "", agents.WithHint(fmt.Errorf("no directory on the file system of %s can be written: %w", b.rec.Dir, fs.ErrPermission),
		"give yourself write permission there, or put the data directory on that file system")
}

// tidyStage removes the folders that applyStage made around a stage which is
// gone, if they are empty.
func tidyStage(stage string) {
	for dir := filepath.Dir(stage); strings.HasPrefix(filepath.Base(dir), ".cleveragents") || filepath.Base(dir) == "sandboxes"; dir = filepath.Dir(dir) {
		if fsx.Remove(dir) != nil {
			return // others use it
		}
	}
}
