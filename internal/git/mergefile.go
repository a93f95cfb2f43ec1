package git

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/cleveragents/agents/internal/fsx"
)

// MergeFile merges by lines what two sides made of a text (git merge-file).
// clean is false where both changed the same lines, or a side is not a text;
// merged is nil then. The folder dir is made for the time and must not exist.
func (g *Runner) MergeFile(ctx context.Context, dir string, ours, base, theirs []byte) (merged []byte, clean bool, err error) {
	if err := fsx.MkdirAll(dir, 0o700); err != nil {
		return nil, false, err
	}
	defer func() { err = errors.Join(err, fsx.RemoveAll(dir)) }()
	for name, text := range map[string][]byte{"ours": ours, "base": base, "theirs": theirs} {
		if err := fsx.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			return nil, false, err
		}
	}
	var conflicts []int
	for n := 1; n <= 255; n++ {
		conflicts = append(conflicts, n)
	}
	r := Repo{Git: g, Dir: dir}
	res, err := r.Do(ctx, Call{Args: []string{"merge-file", "-p", "-q", "ours", "base", "theirs"}, OK: conflicts})
	if err != nil || res.ExitCode != 0 {
		return nil, false, err
	}
	return res.Stdout, true, nil
}
