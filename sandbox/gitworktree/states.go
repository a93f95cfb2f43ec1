package gitworktree

import (
	"context"
	"os"
	"sync"

	"github.com/cleveragents/agents/internal/snapshot"
)

// stateStores keeps the object stores of states open between calls: opening
// one reads the index of every pack in it.
type stateStores struct {
	mu   sync.Mutex
	open map[storeKey]*stateStore
}

// storeKey is what a store is opened with.
type storeKey struct{ dir, format, alternate string }

// stateStore is an open store, and the reader of what only the user's
// repository has.
type stateStore struct {
	*snapshot.Store
	reader *snapshot.GitReader
	dir    os.FileInfo // of the folder, which somebody may replace
}

// get returns the open store of a key. Stores whose folders are gone are closed.
func (s *stateStores) get(ctx context.Context, key storeKey, reader func() *snapshot.GitReader) (*stateStore, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, st := range s.open {
		if dir, err := os.Stat(k.dir); err != nil || !os.SameFile(dir, st.dir) {
			_ = st.Close() // nothing was to be written
			delete(s.open, k)
		}
	}
	if st := s.open[key]; st != nil {
		return st, nil
	}
	st := &stateStore{reader: reader()}
	var err error
	st.Store, err = snapshot.Open(ctx, key.dir, snapshot.Options{Format: key.format, Alternates: []string{key.alternate}, Reader: st.reader})
	if err != nil {
		return nil, err
	}
	if st.dir, err = os.Stat(key.dir); err != nil {
		return nil, err
	}
	if s.open == nil {
		s.open = map[storeKey]*stateStore{}
	}
	s.open[key] = st
	return st, nil
}
