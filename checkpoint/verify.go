package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	agents "github.com/cleveragents/agents"
)

// Verify reads everything that a checkpoint holds and compares it with what
// was written: the manifest, the files of its parts, and in the object stores
// all that its states need. What fails is agents.ErrDamaged; a checkpoint that
// is not there is agents.ErrNotFound.
func (s *Store) Verify(ctx context.Context, planID, id string) error {
	c, err := s.readManifest(planID, id)
	if err != nil {
		return err
	}
	for _, p := range c.Parts {
		err := s.verifyPart(ctx, planID, id, p)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return damaged(id, fmt.Errorf("sandbox %s: %w", p.SandboxID, err))
		}
	}
	return nil
}

func (s *Store) verifyPart(ctx context.Context, planID, id string, p partContent) error {
	have, err := sumFiles(ctx, s.PartDir(planID, id, p.SandboxID))
	if err != nil {
		return err
	}
	if err := sameFiles(p.Files, have); err != nil {
		return err
	}
	objects := s.Objects(planID, p.SandboxID)
	if _, err := os.Stat(objects); errors.Is(err, fs.ErrNotExist) {
		if len(p.Files) == 0 && p.Ref != "" {
			return fmt.Errorf("state %s: its object store is gone: %w", clip(p.Ref), agents.ErrDamaged)
		}
		return nil // the strategy keeps everything in the part
	}
	if !isObjectStore(objects) {
		return nil
	}
	return s.objects.Verify(ctx, objects, []string{p.Ref})
}

func sameFiles(want, have []fileSum) error {
	for i := 0; i < len(want) || i < len(have); i++ {
		switch {
		case i == len(want):
			return fmt.Errorf("file %q is too many: %w", have[i].Path, agents.ErrDamaged)
		case i == len(have) || string(want[i].Path) != string(have[i].Path):
			return fmt.Errorf("file %q is missing, or one is too many: %w", want[i].Path, agents.ErrDamaged)
		case !want[i].equal(have[i]):
			return fmt.Errorf("file %q is not what was written: %w", want[i].Path, agents.ErrDamaged)
		}
	}
	return nil
}

// isObjectStore reports whether a sandbox's folder is a git-format store; a
// strategy may keep something else there.
func isObjectStore(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "objects"))
	return err == nil
}
