package metastore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/fsx"
)

// SchemaVersion is the version of the schema that this program reads and
// writes: the number of its newest migration.
func SchemaVersion() int { return len(migrations()) }

// Version returns the schema version of the database at path without changing
// it; 0 means that there is none yet. The version may be newer than
// SchemaVersion. The errors are those of Open.
func Version(ctx context.Context, path string) (int, error) {
	v, err := probe(ctx, path)
	if err != nil {
		return 0, fmt.Errorf("read schema version: %w", err)
	}
	return v, nil
}

// Migrate brings the database at path up to date, all steps together or none,
// and returns the versions before and after. Open does the same by itself. The
// errors are those of Open.
func Migrate(ctx context.Context, path string, opts Options) (from, to int, err error) {
	if from, err = Version(ctx, path); err != nil {
		return 0, 0, err
	}
	s, err := Open(ctx, path, opts)
	if err != nil {
		return from, from, err
	}
	return from, SchemaVersion(), s.Close()
}

// migration is one numbered file that leads from the version before it to its own.
type migration struct {
	version int
	name    string
}

// migrations lists the files in order. Their numbers run from 1 without a gap;
// a test holds that.
func migrations() []migration {
	entries, err := fs.ReadDir(sqliteMigrations, migrationDir)
	if err != nil {
		return nil // an embedded directory is always there
	}
	out := make([]migration, len(entries))
	for i, e := range entries {
		out[i] = migration{version: i + 1, name: e.Name()}
	}
	return out
}

// migrate brings the database at path to SchemaVersion and returns the version
// that it found. One process at a time does so; the others find it done.
func migrate(ctx context.Context, path string) (from int, err error) {
	dir := filepath.Dir(path)
	if err := fsx.MkdirAll(dir, 0o700); err != nil {
		return 0, notWritable(path, err)
	}
	lock, err := fsx.WaitLock(ctx, filepath.Join(dir, "locks", "db.lock"), "upgrading the database")
	if err != nil {
		return 0, unlockable(path, err)
	}
	defer lock.Release()
	if from, err = probe(ctx, path); err != nil || from == SchemaVersion() {
		return from, err
	}
	if from > SchemaVersion() {
		return from, newer(path, from)
	}
	if err := createFile(path); err != nil {
		return from, err
	}
	return from, explain(path, migrateFile(ctx, path, from))
}

func newer(path string, have int) error {
	return agents.WithHint(
		fmt.Errorf("database %s has schema %d, this program knows %d: %w", path, have, SchemaVersion(), agents.ErrNewerData),
		"use the newer version of agents that wrote it, or another directory with --data-dir")
}

// unlockable says why the lock of migrations was not taken.
func unlockable(path string, err error) error {
	if errors.Is(err, agents.ErrLocked) {
		return err
	}
	return notWritable(path, err)
}

// createFile makes the empty database file, so that its mode is ours from the
// first moment; SQLite gives its companions the same.
func createFile(path string) error {
	f, err := fsx.Create(path, 0o600)
	switch {
	case errors.Is(err, fs.ErrExist):
		return nil
	case err != nil:
		return notWritable(path, err)
	}
	return explain(path, errors.Join(f.Close(), fsx.SyncDir(filepath.Dir(path))))
}

// migrateFile runs every migration after from in one transaction.
func migrateFile(ctx context.Context, path string, from int) error {
	db, err := openFile(path, readWrite)
	if err != nil {
		return err
	}
	defer db.Close()
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	if err := prepareFile(ctx, conn); err != nil {
		return errors.Join(err, conn.Close())
	}
	if _, err := conn.ExecContext(ctx, beginWrite); err != nil {
		return errors.Join(err, conn.Close())
	}
	defer end(ctx, conn)
	for _, m := range migrations()[from:] {
		script, err := fs.ReadFile(sqliteMigrations, migrationDir+"/"+m.name)
		if err != nil {
			return err
		}
		if _, err := conn.ExecContext(ctx, string(script)); err != nil {
			return fmt.Errorf("migration %s: %w", m.name, err)
		}
	}
	if _, err := conn.ExecContext(ctx, setVersion(SchemaVersion())); err != nil {
		return err
	}
	return commitUnit(ctx, conn, "migration")
}
