package snapshot

import (
	"context"
	"io"
	"sync"

	"github.com/cleveragents/agents/internal/git"
)

// GitReader is an ObjectReader that asks git. Its process is started by the
// first question after it was made or closed.
type GitReader struct {
	repo git.Repo

	mu    sync.Mutex
	batch *git.Batch // nil = none runs
}

// NewGitReader returns a reader of a repository's objects.
func NewGitReader(repo git.Repo) *GitReader { return &GitReader{repo: repo} }

// StatObjects tells the kinds and sizes of objects.
func (r *GitReader) StatObjects(ctx context.Context, ids []string) ([]ObjectInfo, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	stats, err := r.running(ctx).StatObjects(ctx, ids)
	out := make([]ObjectInfo, len(stats))
	for i, s := range stats {
		out[i] = ObjectInfo{Kind: s.Type, Size: s.Size}
	}
	return out, err
}

// CopyObject writes the content of one object to w.
func (r *GitReader) CopyObject(ctx context.Context, id string, w io.Writer) (ObjectInfo, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, err := r.running(ctx).CopyObject(ctx, id, w)
	return ObjectInfo{Kind: s.Type, Size: s.Size}, err
}

func (r *GitReader) running(ctx context.Context) *git.Batch {
	if r.batch == nil {
		r.batch = r.repo.OpenBatch(context.WithoutCancel(ctx))
	}
	return r.batch
}

// Close ends the process.
func (r *GitReader) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.batch != nil {
		r.batch.Close()
		r.batch = nil
	}
}
