package gitworktree

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/fsx"
	"github.com/cleveragents/agents/internal/git"
)

// lfsPointer is what git-lfs commits in place of a big file.
var lfsPointer = regexp.MustCompile(`^version https://git-lfs\.github\.com/spec/v1\n(?:.*\n)*oid sha256:([0-9a-f]{64})\n`)

const lfsPointerMax = 1024 // bytes; git-lfs looks at no longer ones

// carryLFS copies the big files that the plan's commits name and that only the
// sandbox has to where the user's git-lfs looks for them: git's own objects are
// but their pointers. A plan could write the sandbox's store, so a file goes
// only if its bytes are those that the pointer names. One that is nowhere is
// left to git-lfs, which may get it from its server.
func (a *applying) carryLFS(ctx context.Context, t target, sealed string) error {
	var stores []string
	for _, dir := range []string{"trusted", "git"} {
		if store := filepath.Join(a.ws.PrivateDir, dir, "lfs", "objects"); isDir(store) {
			stores = append(stores, store)
		}
	}
	if len(stores) == 0 {
		return nil
	}
	oids, err := pointers(ctx, t, sealed)
	if err != nil {
		return fmt.Errorf("find files of git-lfs: %w", err)
	}
	for _, oid := range oids {
		if err := carryOne(stores, lfsHome(t), oid); err != nil {
			return fmt.Errorf("bring file %s of git-lfs home: %w", oid, err)
		}
	}
	return nil
}

// lfsHome is the user's store.
func lfsHome(t target) string {
	dir, set := git.Value(t.settings, "lfs.storage")
	switch {
	case !set || dir == "":
		dir = filepath.Join(t.found.CommonDir, "lfs")
	case !filepath.IsAbs(dir):
		dir = filepath.Join(t.found.CommonDir, dir)
	}
	return dir
}

// pointers lists the big files that the commits between the tip and sealed name.
func pointers(ctx context.Context, t target, sealed string) ([]string, error) {
	out, err := t.repo.Read(ctx, "rev-list", "--objects", "--no-object-names", "--end-of-options", sealed, "^"+t.tip)
	if err != nil {
		return nil, err
	}
	ids := strings.Fields(string(out))
	batch := t.repo.OpenBatch(ctx)
	defer batch.Close()
	stats, err := batch.StatObjects(ctx, ids)
	if err != nil {
		return nil, err
	}
	var oids []string
	for i, id := range ids {
		if stats[i].Type != "blob" || stats[i].Size > lfsPointerMax {
			continue
		}
		o, err := batch.Object(ctx, id)
		if err != nil {
			return nil, err
		}
		if m := lfsPointer.FindSubmatch(o.Data); m != nil {
			oids = append(oids, string(m[1]))
		}
	}
	return oids, nil
}

// carryOne copies one file from the first store that has it whole.
func carryOne(stores []string, home, oid string) error {
	name := filepath.Join(oid[0:2], oid[2:4], oid)
	to := filepath.Join(home, "objects", name)
	if isRegular(to) {
		return nil
	}
	tmp := filepath.Join(home, "tmp", "agents-"+oid)
	for _, dir := range []string{filepath.Dir(to), filepath.Dir(tmp)} {
		if err := fsx.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	for _, store := range stores {
		if !isRegular(filepath.Join(store, name)) {
			continue
		}
		err := errors.Join(fsx.Remove(tmp), copyFile(filepath.Join(store, name), tmp, 0o644))
		if err == nil {
			err = hasSum(tmp, oid)
		}
		switch {
		case err == nil:
			return fsx.Rename(tmp, to)
		case !errors.Is(err, agents.ErrDamaged):
			return errors.Join(err, fsx.Remove(tmp))
		}
	}
	return fsx.Remove(tmp)
}

func isRegular(path string) bool {
	fi, err := os.Lstat(path)
	return err == nil && fi.Mode().IsRegular()
}

// hasSum makes sure of a file's SHA-256; another one is agents.ErrDamaged.
func hasSum(path, want string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return err
	}
	if hex.EncodeToString(h.Sum(nil)) != want {
		return agents.ErrDamaged
	}
	return nil
}
