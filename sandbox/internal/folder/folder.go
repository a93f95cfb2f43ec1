// Package folder has what all strategies of files do with the folders of a
// sandbox: names, places, the record of what was made, and removing no more
// than that.
package folder

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/fsx"
)

// EntryPrefix begins the names of all sandboxes' directories.
const EntryPrefix = "ca-sandbox-"

// NewEntry returns the name of a new sandbox's directory; plan is the plan's id
// as it can stand in a file name.
func NewEntry(plan string) string {
	var random [4]byte
	_, _ = rand.Read(random[:]) // never fails
	return EntryPrefix + plan[:min(len(plan), 100)] + "-" + hex.EncodeToString(random[:])
}

// Outside refuses a sandbox directory inside the tree that it isolates.
func Outside(dir, tree string) error {
	if !filepath.IsAbs(dir) {
		return fmt.Errorf("sandbox directory %q is not absolute: %w", dir, agents.ErrInvalid)
	}
	top, err := os.Stat(tree)
	if err != nil {
		return err
	}
	for at := filepath.Clean(dir); ; at = filepath.Dir(at) {
		if fi, err := os.Stat(at); err == nil && os.SameFile(fi, top) {
			return agents.WithHint(fmt.Errorf("sandbox directory %s lies inside the resource %s: %w", dir, tree, agents.ErrInvalid),
				"set sandbox.dir, or the data directory, to a place outside of it")
		}
		if at == filepath.Dir(at) {
			return nil
		}
	}
}

// Existing returns the nearest directory of a path that is there.
func Existing(dir string) string {
	for dir != filepath.Dir(dir) {
		if _, err := os.Lstat(dir); err == nil {
			break
		}
		dir = filepath.Dir(dir)
	}
	return dir
}

// Beside returns the folder for what must be on the mount of a sandbox in dir,
// or "" where the private folder is.
func Beside(dir, private, entry string) (string, error) {
	at := Existing(filepath.Clean(dir))
	fi, err := os.Stat(at)
	if err == nil && !fi.IsDir() {
		err = fmt.Errorf("%s is not a directory: %w", at, agents.ErrInvalid)
	}
	if err == nil {
		at, err = filepath.EvalSymlinks(at)
	}
	if err != nil {
		return "", fmt.Errorf("sandbox directory: %w", err)
	}
	if fsx.SameMount(at, private) {
		return "", nil
	}
	return filepath.Join(dir, nearName(entry)), nil
}

func nearName(entry string) string { return ".ca-private-" + strings.TrimPrefix(entry, EntryPrefix) }

// RemoveNear removes what Beside returned for this sandbox.
func RemoveNear(near, entry string) error {
	if near == "" || filepath.Base(near) != nearName(entry) {
		return nil
	}
	return fsx.RemoveAll(near)
}

// HalfMade is the refusal to open a sandbox whose creation was stopped; it is
// agents.ErrNotFound.
func HalfMade(sandboxID string) error {
	return agents.WithHint(fmt.Errorf("sandbox %s was not made to its end: %w", sandboxID, agents.ErrNotFound), "remove it and create it again")
}

// CheckOwn makes sure that what lies at a sandbox's path, if anything, is a
// directory of its own: a plan can put a link to the resource there, and
// nothing of ours may follow it. The resource is what real names.
func CheckOwn(path string, real ...string) error {
	fi, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if isOneOf(fi, real) {
		return fmt.Errorf("the sandbox's directory %s is the resource itself: %w", path, agents.ErrBlocked)
	}
	if !fi.IsDir() {
		return agents.WithHint(fmt.Errorf("the sandbox's directory %s was replaced by something else: %w", path, agents.ErrBlocked),
			"remove what lies there; the plan's next call makes the sandbox again from its newest checkpoint")
	}
	return nil
}

// RemoveTree removes a sandbox's directory, after making sure that it is one:
// of the name entry, not the resource by another spelling, and with nothing
// mounted in it.
func RemoveTree(path, entry string, real ...string) error {
	fi, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if filepath.Base(path) != entry || !strings.HasPrefix(entry, EntryPrefix) {
		return fmt.Errorf("%s is not a sandbox's directory: %w", path, agents.ErrDamaged)
	}
	if !fi.IsDir() {
		return fsx.Remove(path) // a plan put a link or a file in its place: that alone goes
	}
	if isOneOf(fi, real) {
		return fmt.Errorf("%s is the resource itself: %w", path, agents.ErrDamaged)
	}
	mounts, err := fsx.MountsBelow(path)
	if err == nil && len(mounts) > 0 {
		err = agents.WithHint(fmt.Errorf("%s is mounted inside the sandbox: %w", mounts[0], agents.ErrBlocked), "unmount it: umount %s", mounts[0])
	}
	if err != nil {
		return err
	}
	return fsx.RemoveAll(path)
}

func isOneOf(fi os.FileInfo, paths []string) bool {
	for _, p := range paths {
		if other, err := os.Stat(p); err == nil && os.SameFile(other, fi) {
			return true
		}
	}
	return false
}

// RecordName is the file in a private folder that says what was made.
const RecordName = "sandbox.json"

// Load reads the record of a private folder into rec. None is
// agents.ErrNotFound; one that cannot be understood is agents.ErrDamaged, one
// of a version above this agents.ErrNewerData.
func Load(private string, version int, rec any) error {
	data, err := os.ReadFile(filepath.Join(private, RecordName))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("sandbox record in %s: %w", private, agents.ErrNotFound)
	case err != nil:
		return err
	}
	var head struct{ Version int }
	if err := errors.Join(json.Unmarshal(data, &head), json.Unmarshal(data, rec)); err != nil {
		return fmt.Errorf("sandbox record in %s: %v: %w", private, err, agents.ErrDamaged)
	}
	if head.Version > version {
		return fmt.Errorf("sandbox record in %s: %w", private, agents.ErrNewerData)
	}
	return nil
}

// Save publishes a record.
func Save(private string, rec any) error {
	data, err := json.MarshalIndent(rec, "", "  ")
	if err != nil {
		return err
	}
	return fsx.Publish(filepath.Join(private, RecordName), append(data, '\n'), 0o600)
}
