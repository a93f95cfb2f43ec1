package metastore_test

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	_ "modernc.org/sqlite"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/metastore"
)

func openErr(t *testing.T, path string, opts metastore.Options) error {
	t.Helper()
	s, err := metastore.Open(t.Context(), path, opts)
	if err == nil {
		s.Close()
	}
	return err
}

// rawExec changes the database beside the store and closes it again.
func rawExec(t *testing.T, path string, statements ...string) {
	t.Helper()
	db, err := sql.Open("sqlite", "file://"+path+"?mode=rwc")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	for _, s := range statements {
		if _, err := db.Exec(s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

func TestNewerDatabaseIsRefusedUntouched(t *testing.T) {
	f := newFixture(t)
	f.plan("p", 1)
	f.store.Close()
	rawExec(t, f.path, fmt.Sprintf("PRAGMA user_version=%d", metastore.SchemaVersion()+1))
	dir := filepath.Dir(f.path)
	want := snapshotDir(t, dir)
	for _, opts := range []metastore.Options{{}, {ReadOnly: true}} {
		err := openErr(t, f.path, opts)
		if !errors.Is(err, agents.ErrNewerData) || agents.HintOf(err) == "" {
			t.Errorf("Open(%+v) = %v with hint %q, want ErrNewerData with one", opts, err, agents.HintOf(err))
		}
	}
	if _, _, err := metastore.Migrate(t.Context(), f.path, metastore.Options{}); !errors.Is(err, agents.ErrNewerData) {
		t.Errorf("Migrate: %v, want ErrNewerData", err)
	}
	if v, err := metastore.Version(t.Context(), f.path); v != metastore.SchemaVersion()+1 || err != nil {
		t.Errorf("Version = %d, %v; want %d", v, err, metastore.SchemaVersion()+1)
	}
	sameFiles(t, snapshotDir(t, dir), want)
}

// TestNewerVersionInTheLogIsRefused: the newer program was killed, and what it
// wrote last lies in the log beside a database file that looks old.
func TestNewerVersionInTheLogIsRefused(t *testing.T) {
	f := newFixture(t)
	f.plan("p", 1)
	f.store.Close()
	db := rawDB(t, f.path)
	if _, err := db.Exec("PRAGMA user_version=99"); err != nil {
		t.Fatal(err)
	}
	left := snapshotDir(t, filepath.Dir(f.path))
	if len(left["agents.db-wal"]) == 0 {
		t.Fatal("the test made no log")
	}
	dir := t.TempDir()
	for _, name := range []string{"agents.db", "agents.db-wal"} {
		if err := os.WriteFile(filepath.Join(dir, name), left[name], 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := openErr(t, filepath.Join(dir, "agents.db"), metastore.Options{}); !errors.Is(err, agents.ErrNewerData) {
		t.Fatalf("Open = %v, want ErrNewerData", err)
	}
	after := snapshotDir(t, dir)
	delete(after, "agents.db-shm") // an index of the log, made again by every reader
	sameFiles(t, after, map[string][]byte{"agents.db": left["agents.db"], "agents.db-wal": left["agents.db-wal"]})
}

func TestForeignDatabaseIsRefusedUntouched(t *testing.T) {
	for name, statements := range map[string][]string{
		"versioned":  {"CREATE TABLE t (a)", "PRAGMA user_version=1"},
		"marked":     {"CREATE TABLE t (a)", "PRAGMA application_id=7"},
		"both":       {"PRAGMA user_version=99", "PRAGMA application_id=7"},
		"unlabelled": {"CREATE TABLE resources (a)"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "agents.db")
			rawExec(t, path, statements...)
			want := snapshotDir(t, filepath.Dir(path))
			if err := openErr(t, path, metastore.Options{}); !errors.Is(err, agents.ErrInvalid) {
				t.Errorf("Open = %v, want ErrInvalid", err)
			}
			sameFiles(t, snapshotDir(t, filepath.Dir(path)), want)
		})
	}
}

func TestOptionsReadOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data", "agents.db")
	if err := openErr(t, path, metastore.Options{ReadOnly: true}); !errors.Is(err, agents.ErrNotFound) {
		t.Errorf("Open of nothing = %v, want ErrNotFound", err)
	}
	if _, err := os.Stat(filepath.Dir(path)); !os.IsNotExist(err) {
		t.Errorf("a read-only Open made the directory: %v", err)
	}
	f := newFixture(t)
	p := f.plan("p", 1)
	s, err := metastore.Open(t.Context(), f.path, metastore.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if s.Writable() == nil || f.store.Writable() != nil {
		t.Errorf("Writable = %v and %v, want an error and none", s.Writable(), f.store.Writable())
	}
	err = s.Read(t.Context(), func(tx *metastore.Tx) error { _, err := tx.Plans().Get(p.ID); return err })
	if err != nil {
		t.Errorf("Read: %v", err)
	}
	if err := s.Write(t.Context(), func(*metastore.Tx) error { return nil }); !errors.Is(err, agents.ErrState) {
		t.Errorf("Write = %v, want ErrState", err)
	}
	// It sees what others write meanwhile.
	q := f.plan("q", 0)
	err = s.Read(t.Context(), func(tx *metastore.Tx) error { _, err := tx.Plans().Get(q.ID); return err })
	if err != nil {
		t.Errorf("Read of a later plan: %v", err)
	}
}

// filled returns the bytes of a closed database that holds some rows.
func filled(t *testing.T) []byte {
	t.Helper()
	f := newFixture(t)
	for i := range 5 {
		p := f.plan(fmt.Sprintf("p%d", i), 1)
		f.checkpoint(p, f.sandbox(p, 0))
	}
	f.store.Close()
	b, err := os.ReadFile(f.path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// readAll opens the database and reads what there is.
func readAll(t *testing.T, path string) error {
	s, err := metastore.Open(t.Context(), path, metastore.Options{})
	if err != nil {
		return err
	}
	defer s.Close()
	err = s.Read(t.Context(), func(tx *metastore.Tx) error {
		plans, err := tx.Plans().List()
		if err != nil {
			return err
		}
		for _, p := range plans {
			if _, err := tx.Checkpoints().List(p.ID); err != nil {
				return err
			}
			if _, err := tx.Sandboxes().ByPlan(p.ID); err != nil {
				return err
			}
		}
		_, err = tx.Resources().List()
		return err
	})
	return errors.Join(err, s.Check(t.Context()))
}

func TestCutOffDatabaseIsDamaged(t *testing.T) {
	whole := filled(t)
	const page = 4096
	for _, keep := range []int{len(whole) - page, len(whole) - 1, len(whole) / 2, page, page - 1, 100, 99, 16, 2} {
		t.Run(fmt.Sprint(keep), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "agents.db")
			if err := os.WriteFile(path, whole[:keep], 0o600); err != nil {
				t.Fatal(err)
			}
			err := readAll(t, path)
			if !errors.Is(err, agents.ErrDamaged) || !strings.Contains(agents.HintOf(err), path) {
				t.Errorf("error = %v with hint %q, want ErrDamaged with one", err, agents.HintOf(err))
			}
		})
	}
}

func TestGarbageIsDamagedAndNeverPanics(t *testing.T) {
	whole := filled(t)
	const page = 4096
	dir := t.TempDir()
	for at := 0; at < len(whole); at += page {
		path := filepath.Join(dir, fmt.Sprintf("%d.db", at))
		b := append([]byte{}, whole...)
		for i := at; i < at+page; i += 3 {
			b[i] ^= 0xA5
		}
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := readAll(t, path); !errors.Is(err, agents.ErrDamaged) {
			t.Errorf("garbage in page %d: %v, want ErrDamaged", at/page+1, err)
		}
	}
	text := filepath.Join(dir, "text.db")
	if err := os.WriteFile(text, []byte(strings.Repeat("not a database\n", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := openErr(t, text, metastore.Options{}); !errors.Is(err, agents.ErrDamaged) {
		t.Errorf("a text file: %v, want ErrDamaged", err)
	}
	if err := openErr(t, dir, metastore.Options{}); err == nil {
		t.Error("a directory was opened as a database")
	}
}

func TestEmptyFileIsANewDatabase(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agents.db")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := readAll(t, path); err != nil {
		t.Error(err)
	}
}

func TestPathsWithOddNames(t *testing.T) {
	for _, name := range []string{"a b", "50%41", "what?mode=memory", "hash#tag", "new\nline", "quote'\"", "Größe", "\xff\xfe"} {
		t.Run(fmt.Sprintf("%q", name), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), name, "agents.db")
			for range 2 {
				if err := readAll(t, path); err != nil {
					t.Fatal(err)
				}
			}
			if fi, err := os.Stat(path); err != nil || fi.Size() == 0 {
				t.Errorf("no database at the path: %v", err)
			}
		})
	}
}

func TestRelativePath(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := readAll(t, "agents.db"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat("agents.db"); err != nil {
		t.Error(err)
	}
}

// migrationFiles returns the scripts in order and holds their names to it.
func migrationFiles(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir("migrations/sqlite")
	if err != nil {
		t.Fatal(err)
	}
	var scripts []string
	for i, e := range entries {
		if want := fmt.Sprintf("%04d_", i+1); !strings.HasPrefix(e.Name(), want) {
			t.Fatalf("migration %s: want a name that begins with %s", e.Name(), want)
		}
		b, err := os.ReadFile(filepath.Join("migrations/sqlite", e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		scripts = append(scripts, string(b))
	}
	if len(scripts) != metastore.SchemaVersion() {
		t.Fatalf("%d migrations, but SchemaVersion is %d", len(scripts), metastore.SchemaVersion())
	}
	return scripts
}

// rowsOf are rows that a program of that schema version could have stored.
func rowsOf(version int) []string {
	at := "'2026-01-02T03:04:05.000000006Z'"
	rows := []string{
		"INSERT INTO resources VALUES ('" + id(1) + "', 'app', 'fs-directory', CAST('/app' AS BLOB), '', '', 0, " + at + ")",
		"INSERT INTO v3_plans VALUES ('" + id(2) + "', 'old', '', 'null', 'execute', 'queued', 'me', 'ci', 0, 0, 0, NULL, NULL, 0, 1, NULL, " + at + ", " + at + ", NULL)",
		"INSERT INTO plan_resources (plan_id, position, resource_id, name, type, location, branch, strategy, read_only, created_at) VALUES ('" + id(2) + "', 0, '" + id(1) + "', 'app', 'fs-directory', CAST('/app' AS BLOB), '', '', 0, " + at + ")",
		"INSERT INTO sandboxes VALUES ('" + id(3) + "', '" + id(2) + "', '" + id(1) + "', 'overlay', 'ACTIVE', CAST('/s' AS BLOB), CAST('' AS BLOB), '{}', 'b', '', '', " + at + ", " + at + ")",
	}
	if version >= 2 {
		rows = append(rows, "INSERT INTO checkpoint_metadata VALUES ('"+id(4)+"', '"+id(2)+"', NULL, 'manual', NULL, 'r', '', 5, "+at+", '{\"reason\":\"why\"}', 1, 0)")
	}
	return rows
}

func TestMigrateFromEachVersion(t *testing.T) {
	scripts := migrationFiles(t)
	for v := 1; v <= len(scripts); v++ {
		t.Run(fmt.Sprint(v), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "agents.db")
			statements := append([]string{"PRAGMA journal_mode=WAL"}, scripts[:v]...)
			statements = append(statements, rowsOf(v)...)
			statements = append(statements, fmt.Sprintf("PRAGMA application_id=%d", 0x63616774), fmt.Sprintf("PRAGMA user_version=%d", v))
			rawExec(t, path, statements...)
			if err := openErr(t, path, metastore.Options{ReadOnly: true}); (err != nil) != (v < len(scripts)) {
				t.Errorf("Open for reading: %v", err)
			}
			from, to, err := metastore.Migrate(t.Context(), path, metastore.Options{})
			if from != v || to != metastore.SchemaVersion() || err != nil {
				t.Fatalf("Migrate = %d, %d, %v; want %d, %d", from, to, err, v, metastore.SchemaVersion())
			}
			checkOldRows(t, path, v)
			if err := readAll(t, path); err != nil {
				t.Errorf("after the migration: %v", err)
			}
		})
	}
}

func checkOldRows(t *testing.T, path string, version int) {
	t.Helper()
	s, err := metastore.Open(t.Context(), path, metastore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	err = s.Write(t.Context(), func(tx *metastore.Tx) error {
		p, err := tx.Plans().Resolve("old")
		if err != nil {
			return err
		}
		if len(p.Resources) != 1 || p.Resources[0].Location != "/app" || p.CreatedAt.Nanosecond() != 6 {
			t.Errorf("plan = %+v", p)
		}
		if all, err := tx.Sandboxes().ByPlan(p.ID); len(all) != 1 || err != nil {
			t.Errorf("sandboxes = %+v, %v", all, err)
		}
		if all, err := tx.Checkpoints().List(p.ID); version >= 2 && (len(all) != 1 || all[0].Metadata.Reason != "why") || err != nil {
			t.Errorf("checkpoints = %+v, %v", all, err)
		}
		return tx.Events().Append(&agents.Event{PlanID: p.ID, Kind: "later"})
	})
	if err != nil {
		t.Error(err)
	}
}

func TestMigrateTwiceChangesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agents.db")
	if v, err := metastore.Version(t.Context(), path); v != 0 || err != nil {
		t.Errorf("Version of nothing = %d, %v", v, err)
	}
	for i, want := range []int{0, metastore.SchemaVersion()} {
		from, to, err := metastore.Migrate(t.Context(), path, metastore.Options{})
		if from != want || to != metastore.SchemaVersion() || err != nil {
			t.Errorf("Migrate %d = %d, %d, %v; want %d, %d", i, from, to, err, want, metastore.SchemaVersion())
		}
	}
}

func TestFailedMigrationLeavesTheOldVersion(t *testing.T) {
	scripts := migrationFiles(t)
	path := filepath.Join(t.TempDir(), "agents.db")
	rawExec(t, path, "PRAGMA journal_mode=WAL", scripts[0], "CREATE TABLE events (mine)",
		fmt.Sprintf("PRAGMA application_id=%d", 0x63616774), "PRAGMA user_version=1")
	if err := openErr(t, path, metastore.Options{}); err == nil || !strings.Contains(err.Error(), "0003_log.sql") {
		t.Fatalf("Open = %v, want an error that names the migration", err)
	}
	if v, err := metastore.Version(t.Context(), path); v != 1 || err != nil {
		t.Errorf("Version = %d, %v; want 1", v, err)
	}
	if got := names(t, rawDB(t, path), "SELECT name FROM sqlite_schema WHERE name = 'checkpoint_metadata'"); len(got) != 0 {
		t.Error("half of the migrations stayed")
	}
}

// TestOneDialectFile: what only SQLite understands stays in sqlite.go.
func TestOneDialectFile(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if name == "sqlite.go" || strings.HasSuffix(name, "_test.go") {
			continue
		}
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, word := range []string{"modernc.org", "PRAGMA", "pragma_", "sqlite_schema", "sqlite_master", "INSERT OR ", "IFNULL", "rowid", "GLOB", "strftime"} {
			if strings.Contains(string(b), word) {
				t.Errorf("%s holds %q", name, word)
			}
		}
	}
}
