package snapshot

import (
	"context"
	"io"

	"github.com/cleveragents/agents/internal/git"
)

// GitReader reads objects of a repository through git.
type GitReader struct{ Batch *git.Batch }

// StatObjects tells the kinds and sizes of objects.
func (r GitReader) StatObjects(ctx context.Context, ids []string) ([]ObjectInfo, error) {
	stats, err := r.Batch.StatObjects(ctx, ids)
	out := make([]ObjectInfo, len(stats))
	for i, s := range stats {
		out[i] = ObjectInfo{Kind: s.Type, Size: s.Size}
	}
	return out, err
}

// CopyObject writes the content of one object to w.
func (r GitReader) CopyObject(ctx context.Context, id string, w io.Writer) (ObjectInfo, error) {
	s, err := r.Batch.CopyObject(ctx, id, w)
	return ObjectInfo{Kind: s.Type, Size: s.Size}, err
}
