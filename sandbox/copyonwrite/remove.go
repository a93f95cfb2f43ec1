package copyonwrite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/fsx"
	"github.com/cleveragents/agents/sandbox"
)

// Remove removes the copy and what lies in the private folder. The base store,
// where it is shared, stays for others; the caller removes it.
func (s *Strategy) Remove(ctx context.Context, ws sandbox.Workspace) error {
	if ws.PrivateDir == "" {
		return nil
	}
	rec, err := loadRecord(ws.PrivateDir)
	switch {
	case errors.Is(err, agents.ErrNotFound):
		return fsx.ClearDir(ws.PrivateDir, "")
	case err != nil:
		return err
	}
	b := s.box(ws, rec)
	if err := b.removeTree(); err != nil {
		return err
	}
	if rec.Near != "" && filepath.Base(rec.Near) == nearName(rec.Entry) {
		if err := fsx.RemoveAll(rec.Near); err != nil {
			return err
		}
	}
	tidyStage(rec.Path)
	return errors.Join(fsx.ClearDir(ws.PrivateDir, "sandbox.json"), ctx.Err())
}

// removeTree removes the sandbox's directory, after making sure that it is
// one: of the recorded name, and not the resource by another spelling.
func (b *box) removeTree() error {
	fi, err := os.Lstat(b.rec.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if filepath.Base(b.rec.Path) != b.rec.Entry || !strings.HasPrefix(b.rec.Entry, entryPrefix) {
		return fmt.Errorf("%s is not a sandbox's directory: %w", b.rec.Path, agents.ErrDamaged)
	}
	if !fi.IsDir() {
		return fsx.Remove(b.rec.Path) // a plan put a link or a file in its place: that alone goes
	}
	for _, other := range []string{b.rec.Dir, b.ws.Resource.Location} {
		if real, err := os.Stat(other); err == nil && os.SameFile(real, fi) {
			return fmt.Errorf("%s is the resource itself: %w", b.rec.Path, agents.ErrDamaged)
		}
	}
	return fsx.RemoveAll(b.rec.Path)
}
