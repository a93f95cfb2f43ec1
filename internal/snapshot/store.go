package snapshot

import (
	"context"
	"io"

	agents "github.com/cleveragents/agents"
)

// Store keeps states in a bare git layout (HEAD, config, objects, refs), so
// that `git --git-dir=<store> show <ref>` works. Its packs are written by this
// package alone. It may be used from several goroutines and processes at once.
type Store struct{ dir string }

// Open opens the store in the folder objects, which it makes when missing. A
// store of another hash format is agents.ErrInvalid.
func Open(ctx context.Context, objects string, opts Options) (*Store, error) {
	return nil, agents.ErrUnsupported
}

// Verify checks that every object reachable from the commit ref exists, and
// that those in the store's own packs hash right. An error with
// agents.ErrDamaged names what does not.
func (s *Store) Verify(ctx context.Context, ref string) error { return agents.ErrUnsupported }

// Collect frees the bytes of what neither a commit of keep nor a held one
// reaches, and returns how many bytes the store shrank by. Killed at any
// moment it leaves a store that holds everything kept.
func (s *Store) Collect(ctx context.Context, keep []string) (freed int64, err error) {
	return 0, agents.ErrUnsupported
}

// Hold writes refs/checkpoints/<name>, which keeps the commit ref from
// Collect. A name that holds another commit is moved.
func (s *Store) Hold(name, ref string) error { return agents.ErrUnsupported }

// Release removes refs/checkpoints/<name>; one that is not there is no error.
func (s *Store) Release(name string) error { return agents.ErrUnsupported }

// Held returns the held commits by name.
func (s *Store) Held() (map[string]string, error) { return nil, agents.ErrUnsupported }

// Size returns the bytes of the store's own objects.
func (s *Store) Size() (int64, error) { return 0, agents.ErrUnsupported }

// Compare lists the paths that differ between two states, sorted by root and
// path. The empty ref is the state without anything.
func (s *Store) Compare(ctx context.Context, from, to string) ([]Change, error) {
	return nil, agents.ErrUnsupported
}

// Stat returns what the state ref says about a path; agents.ErrNotFound when
// it does not hold it.
func (s *Store) Stat(ctx context.Context, ref string, p Path) (Entry, error) {
	return Entry{}, agents.ErrUnsupported
}

// ReadFile writes the content of a file, or the target of a link, to w. A
// path that is neither is agents.ErrNotFound.
func (s *Store) ReadFile(ctx context.Context, ref string, p Path, w io.Writer) (Entry, error) {
	return Entry{}, agents.ErrUnsupported
}

// ReadObject writes the content of the blob id, as in Entry.ID, to w.
func (s *Store) ReadObject(ctx context.Context, id string, w io.Writer) error {
	return agents.ErrUnsupported
}

// Walk calls fn for every path of a root in the state ref, a directory before
// what is below it, siblings sorted; the root's directory is the path "".
func (s *Store) Walk(ctx context.Context, ref, root string, fn func(path string, e Entry) error) error {
	return agents.ErrUnsupported
}
