package snapshot

import (
	"context"
	"os"
	"sync"
)

// Stores keeps stores open between calls: opening one reads the index of every
// pack in it. The zero value is ready; it may be used from several goroutines.
type Stores struct {
	mu   sync.Mutex
	open map[string]*openStore
}

// openStore is a store, and what its folder was when it was opened.
type openStore struct {
	*Store
	dir os.FileInfo // somebody may replace it
}

// Get returns the open store of a folder, which it opens as options say when
// it is not open yet. Stores whose folders are gone are closed.
func (s *Stores) Get(ctx context.Context, objects string, options func() Options) (*Store, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for at, st := range s.open {
		if dir, err := os.Stat(at); err != nil || !os.SameFile(dir, st.dir) {
			_ = st.Close() // nothing was to be written
			delete(s.open, at)
		}
	}
	if st := s.open[objects]; st != nil {
		return st.Store, nil
	}
	store, err := Open(ctx, objects, options())
	if err != nil {
		return nil, err
	}
	dir, err := os.Stat(objects)
	if err != nil {
		return nil, err
	}
	if s.open == nil {
		s.open = map[string]*openStore{}
	}
	s.open[objects] = &openStore{store, dir}
	return store, nil
}

// Rest ends what the store's ObjectReader keeps running between questions.
func (s *Store) Rest() {
	if r, ok := s.reader.(interface{ Close() }); ok {
		r.Close()
	}
}
