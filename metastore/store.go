// Package metastore keeps the rows: resources, projects, actions, plans,
// sandboxes, checkpoints, tool calls, decisions and events, in a SQLite file
// under the data directory.
//
// A caller opens a Store and does its work in units: Read for one consistent
// look at all tables, Write for changes that are kept together or not at all.
// What only SQLite understands is in one file, so that another database can
// take its place. Payloads of checkpoints and held locks are none of its
// business; it keeps only notes about locks.
package metastore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/failpoint"
)

// Options are the choices of Open. The zero value is the usual one.
type Options struct {
	ReadOnly bool             // never write rows, create or migrate
	Now      func() time.Time // nil = time.Now
	Log      *slog.Logger     // nil = silent
}

// Store is an open metadata store. Its methods may be called from several
// goroutines, and any number of processes may have the same file open: their
// writing units of work wait for each other.
type Store struct {
	path    string
	db      *sql.DB
	refused error // why Write is refused; nil = it is not
	now     func() time.Time
	log     *slog.Logger
	writer  chan struct{} // holds a token while a unit of work of this Store writes
	closing sync.Once
}

// Open opens the database at path. It makes the file (mode 0600, its directory
// 0700) where there is none, and brings an older schema up to date.
//
// Where the file or its directory cannot be written, or the disk is full, a
// database that is up to date is opened for reading: Write then says why it
// cannot.
//
// agents.ErrNewerData: a newer version of the program wrote it; not a byte was
// changed. agents.ErrDamaged: it is no whole database. agents.ErrInvalid: it is
// another program's database. agents.ErrNotFound: there is none and
// Options.ReadOnly forbids to make it.
func Open(ctx context.Context, path string, opts Options) (*Store, error) {
	s, err := open(ctx, path, opts)
	if err != nil {
		return nil, fmt.Errorf("open metadata store: %w", err)
	}
	return s, nil
}

func open(ctx context.Context, path string, opts Options) (*Store, error) {
	s := &Store{path: path, now: opts.Now, log: opts.Log, writer: make(chan struct{}, 1)}
	if s.now == nil {
		s.now = time.Now
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	have, err := probe(ctx, path)
	if err != nil {
		return nil, err
	}
	if err := s.bringUpToDate(ctx, have, opts); err != nil {
		return nil, err
	}
	how := readWrite
	if s.refused != nil {
		how = readMode(path, mayWrite(filepath.Dir(path)) == nil)
	}
	s.db, err = openReached(ctx, path, how)
	if errors.Is(err, agents.ErrNoSpace) && !hasLog(path) {
		// Without room not even the index of a log can be made: nobody writes.
		s.refused = err
		s.db, err = openReached(ctx, path, frozen)
	}
	return s, err
}

// openReached opens the file and makes sure that it can be reached.
func openReached(ctx context.Context, path string, how access) (*sql.DB, error) {
	db, err := openFile(path, how)
	if err != nil {
		return nil, err
	}
	if err := db.PingContext(ctx); err != nil {
		return nil, errors.Join(explain(path, err), db.Close())
	}
	return db, nil
}

// bringUpToDate migrates a database that is behind, and finds out whether it
// may be written.
func (s *Store) bringUpToDate(ctx context.Context, have int, opts Options) error {
	if have > SchemaVersion() {
		return newer(s.path, have)
	}
	s.refused = refusal(s.path, opts)
	if have == SchemaVersion() {
		return nil
	}
	switch {
	case s.refused != nil && have == 0:
		return fmt.Errorf("no database at %s: %w: %w", s.path, agents.ErrNotFound, s.refused)
	case s.refused != nil:
		return fmt.Errorf("database %s has schema %d and must be brought to %d: %w", s.path, have, SchemaVersion(), s.refused)
	}
	from, err := migrate(ctx, s.path)
	if err == nil {
		s.log.InfoContext(ctx, "database migrated", "from", from, "to", SchemaVersion())
	}
	return err
}

// refusal returns why the database at path may not be written, or nil.
func refusal(path string, opts Options) error {
	if opts.ReadOnly {
		return fmt.Errorf("the store was opened for reading: %w", agents.ErrState)
	}
	for _, p := range []string{filepath.Dir(path), path} {
		if _, err := os.Lstat(p); errors.Is(err, fs.ErrNotExist) {
			continue // it is still to be made
		}
		if err := mayWrite(p); err != nil {
			return notWritable(path, err)
		}
	}
	return nil
}

// Close releases the file. It may be called more than once.
func (s *Store) Close() error {
	var err error
	s.closing.Do(func() { err = s.db.Close() })
	return err
}

// Writable returns the error that Write is refused with, or nil.
func (s *Store) Writable() error { return s.refused }

// Check reads the whole database and returns agents.ErrDamaged if anything in
// it does not fit together.
func (s *Store) Check(ctx context.Context) error {
	wrong, err := checkIntegrity(ctx, s.db)
	if err != nil {
		return fmt.Errorf("check database: %w", explain(s.path, err))
	}
	if len(wrong) > 0 {
		return fmt.Errorf("check database: %w", damaged(s.path, errors.New(strings.Join(wrong, "; "))))
	}
	return nil
}

// Read runs fn over one consistent state of all tables. Changes that other
// processes make meanwhile are not seen, and a change that fn tries is refused.
func (s *Store) Read(ctx context.Context, fn func(tx *Tx) error) error {
	conn, err := s.begin(ctx, beginRead)
	if err != nil {
		return fmt.Errorf("begin reading: %w", err)
	}
	defer end(ctx, conn)
	return s.run(ctx, conn, false, fn)
}

// Write runs fn as one unit of work: when it returns nil, all that it changed
// is durable; when it fails or ctx ends, nothing is. It waits for other
// writers. A Write inside a Write of the same Store waits for itself: do not
// nest.
func (s *Store) Write(ctx context.Context, fn func(tx *Tx) error) error {
	return s.write(ctx, durable, fn)
}

// WriteLazily is Write for what may be lost in a power cut, with nothing that
// was written before it and all that was written after: the next Write makes it
// durable. It waits for no disk. A process that is killed loses nothing.
func (s *Store) WriteLazily(ctx context.Context, fn func(tx *Tx) error) error {
	return s.write(ctx, lazy, fn)
}

func (s *Store) write(ctx context.Context, how string, fn func(tx *Tx) error) error {
	if s.refused != nil {
		return s.refused
	}
	select {
	case s.writer <- struct{}{}:
		defer func() { <-s.writer }()
	case <-ctx.Done():
		return ctx.Err()
	}
	conn, err := s.begin(ctx, how, beginWrite)
	if err != nil {
		return fmt.Errorf("begin writing: %w", err)
	}
	defer end(ctx, conn)
	if err := s.run(ctx, conn, true, fn); err != nil {
		return err
	}
	if err := commitUnit(ctx, conn, filepath.Base(s.path)); err != nil {
		return fmt.Errorf("commit: %w", explain(s.path, err))
	}
	return nil
}

func (s *Store) run(ctx context.Context, conn *sql.Conn, write bool, fn func(tx *Tx) error) error {
	tx := &Tx{ctx: ctx, conn: conn, path: s.path, write: write, now: s.now().Round(0).UTC()}
	defer func() { tx.conn = nil }()
	return fn(tx)
}

// begin takes a connection and starts a transaction on it.
func (s *Store) begin(ctx context.Context, statements ...string) (*sql.Conn, error) {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return nil, explain(s.path, err)
	}
	for _, statement := range statements {
		err = retryBusy(ctx, func() error {
			_, err := conn.ExecContext(ctx, statement)
			return err
		})
		if err != nil {
			return nil, errors.Join(explain(s.path, err), conn.Close())
		}
	}
	return conn, nil
}

// commitUnit commits what the transaction on conn did. Once it has begun, the
// end of ctx no longer matters: the caller learns what really happened.
func commitUnit(ctx context.Context, conn *sql.Conn, what string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := failpoint.Hit("sql.commit", what); err != nil {
		return err
	}
	return retryBusy(ctx, func() error {
		_, err := conn.ExecContext(context.WithoutCancel(ctx), commit)
		return err
	})
}

// end rolls back a transaction that is still open and gives conn back. A
// connection that cannot be brought out of its transaction is thrown away.
func end(ctx context.Context, conn *sql.Conn) {
	defer conn.Close()
	cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), busyTimeout*time.Millisecond)
	defer cancel()
	if _, err := conn.ExecContext(cleanup, rollback); err != nil && !isIdle(err) {
		discard(conn)
	}
}

// retryBusy calls fn again while other connections are in the way, for as long
// as one statement would wait for them.
func retryBusy(ctx context.Context, fn func() error) error {
	deadline := time.Now().Add(busyTimeout * time.Millisecond)
	for wait := time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		err := fn()
		if !isBusy(err) || time.Now().After(deadline) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}
