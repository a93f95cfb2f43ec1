package metastore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	agents "github.com/cleveragents/agents"
)

// This file is the dialect: everything that only SQLite understands, or only
// its driver says, is here and in migrations/sqlite.

//go:embed migrations/sqlite/*.sql
var sqliteMigrations embed.FS

const migrationDir = "migrations/sqlite"

// applicationID marks a SQLite file as ours ("cagt").
const applicationID = 0x63616774

// busyTimeout is how long one statement waits for another process, in
// milliseconds. Only the begin of a unit of work that writes ever waits.
const busyTimeout = 30_000

const (
	beginRead  = "BEGIN"
	beginWrite = "BEGIN IMMEDIATE" // a later upgrade of the lock could fail at once
	commit     = "COMMIT"
	durable    = "PRAGMA synchronous=FULL"   // a commit waits for the disk
	lazy       = "PRAGMA synchronous=NORMAL" // it does not: in write-ahead mode the order stays
	rollback   = "ROLLBACK"
)

// access is how a database file is opened.
type access string

const (
	readWrite access = "mode=rw"
	readOnly  access = "mode=ro"
	// frozen reads the file alone and touches nothing beside it. It is right
	// only while nobody writes.
	frozen access = "mode=ro&immutable=1"
)

// openFile returns a pool over the database file at path. It opens nothing yet.
func openFile(path string, how access) (*sql.DB, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	slashed := filepath.ToSlash(abs)
	if !strings.HasPrefix(slashed, "/") {
		slashed = "/" + slashed // a Windows drive
	}
	dsn := fmt.Sprintf("file://%s?%s&_busy_timeout=%d&_foreign_keys=1&_synchronous=FULL&_dqs=0&_error_rc=1",
		(&url.URL{Path: slashed}).EscapedPath(), how, busyTimeout)
	connector, err := sqlite.NewConnector(dsn)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}

// probe returns the schema version of the database file at path; 0 = no
// database yet. It changes no byte of it, and makes no file beside it unless a
// process that died left its log behind.
func probe(ctx context.Context, path string) (int, error) {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if !hasLog(path) {
		v, err := probeAs(ctx, path, frozen)
		if !errors.Is(err, agents.ErrDamaged) {
			return v, err
		}
		// Somebody may have begun to write meanwhile: look again with locks.
	}
	return probeAs(ctx, path, readOnly)
}

func probeAs(ctx context.Context, path string, how access) (int, error) {
	db, err := openFile(path, how)
	if err != nil {
		return 0, err
	}
	defer db.Close()
	var version, app, page int
	var filled bool
	err = db.QueryRowContext(ctx, `SELECT user_version, application_id, page_size, EXISTS (SELECT 1 FROM sqlite_schema)
		FROM pragma_user_version, pragma_application_id, pragma_page_size`).Scan(&version, &app, &page, &filled)
	switch {
	case err != nil:
		return 0, explain(path, err)
	case app != applicationID && (app != 0 || version != 0 || filled):
		return 0, fmt.Errorf("%s is a database of another program: %w", path, agents.ErrInvalid)
	case hasTornPage(path, page):
		return 0, damaged(path, errors.New("it ends within a page"))
	}
	return version, nil
}

// hasTornPage reports whether the file ends within a page, which SQLite would
// fill up with zeros. A log beside it may still hold the page. SQLite itself
// takes a file of one byte for an empty one.
func hasTornPage(path string, page int) bool {
	fi, err := os.Stat(path)
	return err == nil && fi.Size() > 1 && fi.Size()%int64(page) != 0 && !hasLog(path)
}

// hasLog reports whether a write-ahead log beside path holds anything.
func hasLog(path string) bool {
	fi, err := os.Stat(path + "-wal")
	return err == nil && fi.Size() > 0
}

// readMode is how a database that may not be written is read. In a directory
// that may not be written either, SQLite can share a file with writers only if
// their log and its index are there; with neither there is nobody to share with.
func readMode(path string, dirWritable bool) access {
	_, err := os.Stat(path + "-shm")
	if dirWritable || err == nil || hasLog(path) {
		return readOnly
	}
	return frozen
}

// prepareFile sets what belongs to the file and outlives the connection.
func prepareFile(ctx context.Context, conn *sql.Conn) error {
	_, err := conn.ExecContext(ctx, "PRAGMA journal_mode=WAL")
	return err
}

// setVersion is the statement that records the schema version.
func setVersion(v int) string {
	return fmt.Sprintf("PRAGMA application_id=%d; PRAGMA user_version=%d", applicationID, v)
}

// bind turns the "?" of a statement into what the database wants: here they
// are that already.
func bind(statement string) string { return statement }

// discard closes the connection under conn for good.
func discard(conn *sql.Conn) {
	_ = conn.Raw(func(any) error { return driver.ErrBadConn })
}

// isIdle reports whether err says that there is no transaction to end.
func isIdle(err error) bool {
	var e *sqlite.Error
	return errors.As(err, &e) && e.Code() == sqlite3.SQLITE_ERROR
}

// checkIntegrity returns the first things that are wrong with the whole file.
func checkIntegrity(ctx context.Context, db *sql.DB) ([]string, error) {
	rows, err := db.QueryContext(ctx, "PRAGMA integrity_check(10)")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []string
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			return nil, err
		}
		if line != "ok" {
			out = append(out, line)
		}
	}
	return out, rows.Err()
}

// isBusy reports whether another connection was in the way.
func isBusy(err error) bool {
	var e *sqlite.Error
	return errors.As(err, &e) && e.Code()&0xff == sqlite3.SQLITE_BUSY
}

// isTaken reports whether err says that a unique value exists already.
func isTaken(err error) bool {
	var e *sqlite.Error
	return errors.As(err, &e) &&
		(e.Code() == sqlite3.SQLITE_CONSTRAINT_UNIQUE || e.Code() == sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY)
}

// isDangling reports whether err says that a row refers to one that is not there.
func isDangling(err error) bool {
	var e *sqlite.Error
	return errors.As(err, &e) && e.Code() == sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY
}

// explain gives a driver's error its class and, where there is something to
// do, a hint. It leaves other errors alone.
func explain(path string, err error) error {
	if errors.Is(err, syscall.ENOSPC) {
		return noSpace(path, err)
	}
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return err
	}
	switch e.Code() & 0xff {
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		return damaged(path, err)
	case sqlite3.SQLITE_IOERR:
		switch e.Code() {
		case sqlite3.SQLITE_IOERR_SHORT_READ:
			return damaged(path, err)
		case sqlite3.SQLITE_IOERR_SHMSIZE: // no room for the index of the log
			return noSpace(path, err)
		}
	case sqlite3.SQLITE_FULL:
		return noSpace(path, err)
	case sqlite3.SQLITE_BUSY:
		return agents.WithHint(fmt.Errorf("database %s: %w: %w", path, agents.ErrLocked, err),
			"another process has been writing for more than %d seconds; try again when it has ended", busyTimeout/1000)
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM:
		return notWritable(path, err)
	}
	return err
}

func damaged(path string, cause error) error {
	return agents.WithHint(fmt.Errorf("database %s: %w: %w", path, agents.ErrDamaged, cause),
		"put %s and its -wal file aside and bring back a copy; sandboxes and checkpoints lie in the folders beside it and are not touched", path)
}

func noSpace(path string, cause error) error {
	return agents.WithHint(fmt.Errorf("database %s: %w: %w", path, agents.ErrNoSpace, cause),
		"make room on the file system of %s; nothing was stored by halves", filepath.Dir(path))
}

func notWritable(path string, cause error) error {
	if errors.Is(cause, syscall.ENOSPC) {
		return noSpace(path, cause)
	}
	return agents.WithHint(fmt.Errorf("database %s cannot be written: %w", path, cause),
		"make the directory %s and the files in it writable, or choose another one with --data-dir", filepath.Dir(path))
}
