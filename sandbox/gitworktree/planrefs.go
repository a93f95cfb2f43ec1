package gitworktree

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	agents "github.com/cleveragents/agents"
)

// planRefs is what the plan's own refs say. They are read without git, since
// git would act on a configuration that the plan may have written.
type planRefs struct {
	head   string            // the commit that HEAD leads to; "" = unborn or unreadable
	branch string            // the branch that HEAD names; "" = detached
	refs   map[string]string // all others by full name, symbolic ones left out
}

// planRefs reads HEAD, loose and packed refs of the private directory.
func (b *box) planRefs() (planRefs, error) {
	p := planRefs{refs: map[string]string{}}
	packed, err := readRegular(filepath.Join(b.planDir(), "packed-refs"))
	if err != nil {
		return p, err
	}
	for line := range bytes.Lines(packed) {
		if id, name, ok := strings.Cut(strings.TrimSpace(string(line)), " "); ok && isID(id) {
			p.refs[name] = id
		}
	}
	if err := b.looseRefs(p.refs); err != nil {
		return p, err
	}
	head, err := readRegular(filepath.Join(b.planGitDir(), "HEAD"))
	if err != nil {
		return p, err
	}
	text := strings.TrimSpace(string(head))
	if name, ok := strings.CutPrefix(text, "ref:"); ok {
		p.branch = strings.TrimSpace(name)
		p.head = p.refs[p.branch]
	} else if isID(text) {
		p.head = text
	}
	return p, nil
}

func (b *box) looseRefs(into map[string]string) error {
	return filepath.WalkDir(filepath.Join(b.planDir(), "refs"), func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || !d.Type().IsRegular() || strings.HasSuffix(path, ".lock") {
			return err
		}
		text, err := readRegular(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(b.planDir(), path)
		if id := strings.TrimSpace(string(text)); err == nil && isID(id) {
			into[filepath.ToSlash(name)] = id
		}
		return err
	})
}

// readRegular reads a file that a plan may have made: nothing but a regular
// file is opened, and a missing one reads as empty.
func readRegular(path string) ([]byte, error) {
	fi, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if !fi.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no regular file: %w", path, agents.ErrDamaged)
	}
	return os.ReadFile(path)
}

func isID(s string) bool {
	return (len(s) == 40 || len(s) == 64) && strings.Trim(s, "0123456789abcdef") == ""
}
