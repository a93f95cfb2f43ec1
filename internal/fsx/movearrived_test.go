//go:build linux

package fsx_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/fsx"
)

// TestUndoSeesEditsWhoseTimeWasPutBack: the ctime alone tells of them.
func TestUndoSeesEditsWhoseTimeWasPutBack(t *testing.T) {
	for _, path := range []string{"swapped", "new"} {
		t.Run(path, func(t *testing.T) {
			b := newBench(t, plain{"swapped": file("1")})
			m := b.prepare(t, plain{"swapped": file("1")}, plain{"swapped": file("2"), "new": file("3")})
			must(t, m.Run(t.Context()))
			must(t, m.Commit())
			m, err := fsx.LoadMove(b.journal)
			must(t, err)
			must(t, m.CanUndo())
			at := filepath.Join(b.root, path)
			fi, err := os.Stat(at)
			must(t, err)
			must(t, os.WriteFile(at, []byte("u"), 0o644))
			must(t, os.Chtimes(at, fi.ModTime(), fi.ModTime()))
			_, before := read(t, b.root)
			for _, err := range []error{m.CanUndo(), m.Undo()} {
				var where *fsx.MoveError
				if !errors.Is(err, agents.ErrConflict) || !errors.As(err, &where) || where.Path != path {
					t.Errorf("undo: %v, want a conflict in %s", err, path)
				}
			}
			if _, after := read(t, b.root); after != before {
				t.Errorf("a refused undo changed something:\n%s\nwas\n%s", after, before)
			}
			must(t, m.Forget())
			b.empty(t)
		})
	}
}

// TestUndoLeavesDatabasesInUseAlone: what a program commits goes into a log
// first, and the database's own file stays as it is.
func TestUndoLeavesDatabasesInUseAlone(t *testing.T) {
	b := newBench(t, plain{})
	at, made := filepath.Join(b.root, "db"), filepath.Join(b.stage, "made")
	for path, x := range map[string]string{at: "0", made: "1"} {
		openSQLite(t, path).end("pragma journal_mode=wal; create table t(x); insert into t values(" + x + ")")
	}
	old, err := os.ReadFile(at)
	must(t, err)
	next, err := os.ReadFile(made)
	must(t, errors.Join(err, os.Remove(made)))
	must(t, os.Chmod(at, 0o644))
	m := b.prepare(t, plain{"db": file(string(old))}, plain{"db": file(string(next))})
	must(t, m.Run(t.Context()))
	must(t, m.Commit())
	must(t, m.CanUndo())
	open := openSQLite(t, at)
	open.do("select * from t")
	if err := m.CanUndo(); !errors.Is(err, agents.ErrConflict) {
		t.Errorf("undo while it is open: %v, want ErrConflict", err)
	}
	open.end("")
	must(t, m.CanUndo())
	// Killed, so that the log stays.
	_ = exec.Command("sqlite3", at, "insert into t values(2)", ".shell kill -9 $PPID").Run()
	if fi, err := os.Stat(at + "-wal"); err != nil || fi.Size() == 0 {
		t.Fatalf("no log: %v", err)
	}
	if err := m.Undo(); !errors.Is(err, agents.ErrConflict) {
		t.Errorf("undo beside a newer log: %v, want ErrConflict", err)
	}
	if out, err := exec.Command("sqlite3", at, "select group_concat(x) from t").Output(); err != nil || string(out) != "1,2\n" {
		t.Errorf("rows %q, %v", out, err)
	}
}
