//go:build linux

package fsx_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cleveragents/agents/internal/fsx"
)

// sqlite is a sqlite3 process that has a database open.
type sqlite struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func openSQLite(t *testing.T, path string) *sqlite {
	t.Helper()
	if _, err := exec.LookPath("sqlite3"); err != nil {
		t.Skip("no sqlite3")
	}
	s := &sqlite{t: t, cmd: exec.Command("sqlite3", path)}
	var err error
	s.in, err = s.cmd.StdinPipe()
	must(t, err)
	out, err := s.cmd.StdoutPipe()
	must(t, err)
	s.cmd.Stderr = s.cmd.Stdout
	s.out = bufio.NewReader(out)
	must(t, s.cmd.Start())
	t.Cleanup(func() { _ = s.cmd.Process.Kill(); _ = s.cmd.Wait() })
	return s
}

// do runs statements and waits for their end.
func (s *sqlite) do(text string) string {
	s.t.Helper()
	_, err := fmt.Fprintf(s.in, "%s;\n.print done\n", text)
	must(s.t, err)
	var got strings.Builder
	for {
		line, err := s.out.ReadString('\n')
		must(s.t, err)
		if line == "done\n" {
			return strings.TrimSpace(got.String())
		}
		got.WriteString(line)
	}
}

// end runs statements, closes the database and waits for that.
func (s *sqlite) end(text string) {
	s.t.Helper()
	s.do(text)
	must(s.t, s.in.Close())
	must(s.t, s.cmd.Wait())
}

// ask runs statements in a process of their own.
func ask(t *testing.T, path, text string) string {
	t.Helper()
	out, err := exec.Command("sqlite3", path, text).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", text, err, out)
	}
	return strings.TrimSpace(string(out))
}

func copyOf(t *testing.T, src string) (string, fsx.CopyReport) {
	t.Helper()
	s, err := fsx.SurveyTree(t.Context(), src, nil)
	must(t, err)
	dst := filepath.Join(filepath.Dir(src), "copy")
	report, err := s.Copy(t.Context(), dst, fsx.CopyOptions{})
	must(t, err)
	return dst, report
}

// contents are the bytes of all files of a database.
func contents(t *testing.T, path string) string {
	t.Helper()
	var all strings.Builder
	for _, end := range []string{"", "-wal", "-shm", "-journal"} {
		if text, err := os.ReadFile(path + end); err == nil {
			fmt.Fprintf(&all, "%s %d %s\n", end, len(text), text)
		}
	}
	return all.String()
}

// TestCopyOfAnOpenDatabase has what was committed in the log alone, and not
// what was not committed; the original does not change by a byte.
func TestCopyOfAnOpenDatabase(t *testing.T) {
	for _, mode := range []string{"wal", "delete", "truncate", "persist"} {
		t.Run(mode, func(t *testing.T) {
			src := filepath.Join(t.TempDir(), "src")
			must(t, os.Mkdir(src, 0o755))
			at := filepath.Join(src, "db")
			s := openSQLite(t, at)
			s.do("pragma journal_mode=" + mode + "; pragma wal_autocheckpoint=0; create table t(x); insert into t values(1),(2); begin; insert into t values(3)")
			before := contents(t, at)
			if !fsx.DatabaseInUse(at) {
				t.Error("an open database is in use")
			}
			dst, report := copyOf(t, src)
			if len(report.Unsteady) > 0 || len(report.Gone) > 0 {
				t.Errorf("report %+v", report)
			}
			if after := contents(t, at); after != before {
				t.Error("the original changed")
			}
			if got := ask(t, filepath.Join(dst, "db"), "pragma integrity_check; select group_concat(x) from t"); got != "ok\n1,2" {
				t.Errorf("the copy has %q", got)
			}
			s.do("insert into t values(4); commit")
			if got := s.do("select count(*) from t"); got != "4" {
				t.Errorf("the program has %s rows", got)
			}
		})
	}
}

// TestCopyOfAHotJournal: a program that was killed in a transaction left the
// old pages in its journal.
func TestCopyOfAHotJournal(t *testing.T) {
	src := filepath.Join(t.TempDir(), "src")
	must(t, os.Mkdir(src, 0o755))
	at := filepath.Join(src, "db")
	s := openSQLite(t, at)
	s.do("pragma cache_size=1; create table t(x); insert into t with recursive n(i) as (select 1 union all select i+1 from n where i<500) select randomblob(1000) from n; begin; update t set x=zeroblob(1000)")
	must(t, s.cmd.Process.Kill())
	_ = s.cmd.Wait()
	if fi, err := os.Stat(at + "-journal"); err != nil || fi.Size() == 0 {
		t.Fatalf("no journal: %v", err)
	}
	dst, _ := copyOf(t, src)
	if got := ask(t, filepath.Join(dst, "db"), "pragma integrity_check; select count(*) from t where x=zeroblob(1000)"); got != "ok\n0" {
		t.Errorf("the copy has %q", got)
	}
}

// TestCopyTakesADatabaseAndItsLogTogether wherever the batches of a big
// directory end.
func TestCopyTakesADatabaseAndItsLogTogether(t *testing.T) {
	for _, before := range []int{254, 255, 256} {
		t.Run(fmt.Sprint(before), func(t *testing.T) {
			src := filepath.Join(t.TempDir(), "src")
			must(t, os.Mkdir(src, 0o755))
			for i := range before {
				must(t, os.WriteFile(fmt.Sprintf("%s/a%03d", src, i), nil, 0o644))
			}
			must(t, os.WriteFile(src+"/db-between", nil, 0o644))
			s := openSQLite(t, src+"/db")
			s.do("pragma journal_mode=wal; create table t(x); insert into t values(1)")
			dst, report := copyOf(t, src)
			if report.Files != before+2 { // the logs count to their database
				t.Errorf("%d files", report.Files)
			}
			if got := ask(t, dst+"/db", "select x from t"); got != "1" {
				t.Errorf("the copy has %q", got)
			}
		})
	}
}

// TestNotADatabase: names alone make no log.
func TestNotADatabase(t *testing.T) {
	src := filepath.Join(t.TempDir(), "src")
	must(t, os.Mkdir(src, 0o755))
	plain{"notes": file("n"), "notes-journal": file("j"), "x-wal": file("w"), "short": file("SQLite format 3\x00")}.write(t, src)
	dst, report := copyOf(t, src)
	if report.Files != 4 || len(report.Gone) > 0 {
		t.Errorf("report %+v", report)
	}
	for _, name := range []string{"notes", "notes-journal", "x-wal", "short"} {
		if fsx.DatabaseInUse(filepath.Join(src, name)) || fsx.IsDatabase(filepath.Join(src, name)) {
			t.Errorf("%s is no database", name)
		}
		want, _ := os.ReadFile(filepath.Join(src, name))
		if got, err := os.ReadFile(filepath.Join(dst, name)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s = %q, %v", name, got, err)
		}
	}
}

// TestCopyDoesNotTrustThePresentTick: a file that is written again within it
// has the same times.
func TestCopyDoesNotTrustThePresentTick(t *testing.T) {
	known, unknown := 0, 0
	base := t.TempDir()
	for i := range 200 {
		src := fmt.Sprintf("%s/%d", base, i)
		must(t, os.Mkdir(src, 0o755))
		must(t, os.WriteFile(src+"/f", []byte("1"), 0o644))
		s, err := fsx.SurveyTree(t.Context(), src, nil)
		must(t, err)
		_, err = s.Copy(t.Context(), src+"-copy", fsx.CopyOptions{})
		must(t, err)
		must(t, os.WriteFile(src+"/f", []byte("2"), 0o644))
		now, err := fsx.Look(src + "/f")
		must(t, err)
		switch e := s.Entries[1]; {
		case e.Ctime == now.Ctime:
			t.Fatal("a file that was changed has the identity that was copied")
		case e.Ctime < 0:
			unknown++
		default:
			known++
		}
	}
	t.Logf("%d in the present tick, %d before it", unknown, known)
	if unknown == 0 {
		t.Error("no file was copied in the tick in which it was written")
	}
}

// TestCanCloneLeavesNothing, neither when it can nor when it cannot.
func TestCanCloneLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	fi, err := os.Stat(dir)
	must(t, err)
	fsx.CanClone(dir, dir)
	after, err := os.Stat(dir)
	must(t, err)
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 || !after.ModTime().Equal(fi.ModTime()) {
		t.Errorf("%v, %v", entries, err)
	}
}
