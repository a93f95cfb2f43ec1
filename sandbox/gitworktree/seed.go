package gitworktree

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/git"
	"github.com/cleveragents/agents/internal/snapshot"
)

// seed tells the first capture which files still hold the bytes that the
// checkout wrote, so that they need not be read: those that git finds
// unchanged since, and whose bytes are their blob's, because no filter and no
// conversion applies to them.
func (b *box) seed(ctx context.Context, r *recorder) error {
	if b.rec.Partial || b.rec.RawOnly || b.rec.Start != b.rec.Base || exists(b.private("states", "cache")) {
		return nil
	}
	at := b.trusted()
	at.IndexFile = b.private("trusted", "index")
	out, err := at.Read(ctx, "ls-tree", "-r", "-t", "-z", "--full-tree", "--end-of-options", b.rec.Base)
	if err != nil {
		return err
	}
	known, err := parseSeeds(git.Fields(out))
	if err != nil {
		return err
	}
	except, err := b.unlike(ctx, at, known)
	if err != nil {
		return err
	}
	return r.tracker.Seed(ctx, "files", seeds(known, except))
}

func seeds(known []snapshot.Seeded, except map[string]bool) iter.Seq[snapshot.Seeded] {
	return func(yield func(snapshot.Seeded) bool) {
		for _, k := range known {
			if !except[k.Path] && !yield(k) {
				return
			}
		}
	}
}

// parseSeeds reads the lines of ls-tree. Submodules are no content of ours.
func parseSeeds(lines []string) ([]snapshot.Seeded, error) {
	known := make([]snapshot.Seeded, 0, len(lines))
	for _, line := range lines {
		head, path, _ := strings.Cut(line, "\t")
		f := strings.Fields(head)
		if len(f) != 3 {
			return nil, fmt.Errorf("ls-tree says %q: %w", line, agents.ErrDamaged)
		}
		mode, err := strconv.ParseUint(f[0], 8, 32)
		if err != nil {
			return nil, fmt.Errorf("ls-tree says %q: %w", line, agents.ErrDamaged)
		}
		if f[0] != git.ModeGitlink {
			known = append(known, snapshot.Seeded{Path: path, Mode: uint32(mode), ID: f[2]})
		}
	}
	return known, nil
}

// unlike returns the paths whose bytes may differ from their blob's.
func (b *box) unlike(ctx context.Context, at git.Repo, known []snapshot.Seeded) (map[string]bool, error) {
	except := map[string]bool{}
	out, err := at.Read(ctx, "ls-files", "-z", "--modified", "--deleted")
	if err != nil {
		return nil, err
	}
	for _, p := range git.Fields(out) {
		except[p] = true
	}
	converts, err := b.attributesConvert(ctx, at, known)
	if err != nil || !converts {
		return except, err
	}
	var paths []string
	for _, k := range known {
		paths = append(paths, k.Path)
	}
	attrs, err := at.Attrs(ctx, true, []string{"filter", "ident", "working-tree-encoding", "eol"}, paths)
	if err != nil {
		return nil, err
	}
	for _, a := range attrs {
		if a.Value != "unspecified" && a.Value != "unset" && !(a.Name == "eol" && a.Value == "lf") {
			except[a.Path] = true
		}
	}
	return except, nil
}

// attributesConvert reports whether any attributes file so much as mentions
// what makes a checkout write other bytes than the blob's.
func (b *box) attributesConvert(ctx context.Context, at git.Repo, known []snapshot.Seeded) (bool, error) {
	all, err := at.Settings(ctx)
	if err != nil {
		return false, err
	}
	for _, file := range attributeFiles(all, b.private("trusted")) {
		if text, err := os.ReadFile(file); err == nil && mentionsConversion(text) {
			return true, nil
		}
	}
	objects := at.OpenBatch(ctx)
	defer objects.Close()
	for _, k := range known {
		if path.Base(k.Path) != ".gitattributes" {
			continue
		}
		o, err := objects.Object(ctx, k.ID)
		if errors.Is(err, agents.ErrNotFound) {
			return true, nil
		}
		if err != nil || mentionsConversion(o.Data) {
			return true, err
		}
	}
	return false, nil
}

// attributeFiles lists the attributes files outside the tree.
func attributeFiles(all []git.Setting, gitDir string) []string {
	files := []string{filepath.Join(gitDir, "info", "attributes"), "/etc/gitattributes"}
	if f, ok := git.Value(all, "core.attributesfile"); ok {
		if rest, ok := strings.CutPrefix(f, "~/"); ok {
			f = filepath.Join(os.Getenv("HOME"), rest)
		}
		return append(files, f)
	}
	base := os.Getenv("XDG_CONFIG_HOME")
	if base == "" {
		base = filepath.Join(os.Getenv("HOME"), ".config")
	}
	return append(files, filepath.Join(base, "git", "attributes"))
}

func mentionsConversion(text []byte) bool {
	for _, word := range []string{"filter", "ident", "working-tree-encoding", "eol", "[attr]"} {
		if bytes.Contains(text, []byte(word)) {
			return true
		}
	}
	return false
}
