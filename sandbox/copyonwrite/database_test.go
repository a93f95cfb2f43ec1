//go:build linux

package copyonwrite_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// sqlite runs statements in a process of its own.
func sqlite(t *testing.T, path, text string) string {
	t.Helper()
	out, err := exec.Command("sqlite3", path, text).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", text, err, out)
	}
	return strings.TrimSpace(string(out))
}

func needSQLite(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("sqlite3"); err != nil {
		t.Skip("no sqlite3")
	}
}

// program is a sqlite3 that has a database open.
type program struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func open(t *testing.T, path string) *program {
	t.Helper()
	needSQLite(t)
	p := &program{t: t, cmd: exec.Command("sqlite3", "-cmd", ".timeout 20000", path)}
	var err error
	p.in, err = p.cmd.StdinPipe()
	must(t, err)
	out, err := p.cmd.StdoutPipe()
	must(t, err)
	p.cmd.Stderr, p.out = p.cmd.Stdout, bufio.NewReader(out)
	must(t, p.cmd.Start())
	t.Cleanup(p.kill)
	return p
}

func (p *program) kill() { _ = p.cmd.Process.Kill(); _ = p.cmd.Wait() }

// do runs statements and returns what they print.
func (p *program) do(text string) (string, error) {
	if _, err := fmt.Fprintf(p.in, "%s;\n.print done\n", text); err != nil {
		return "", err
	}
	var got strings.Builder
	for {
		line, err := p.out.ReadString('\n')
		if err != nil {
			return "", err
		}
		if line == "done\n" {
			return strings.TrimSpace(got.String()), nil
		}
		got.WriteString(line)
	}
}

func (p *program) must(text string) string {
	p.t.Helper()
	out, err := p.do(text)
	must(p.t, err)
	return out
}

// TestB097DatabaseIsCopiedWithItsLog while a program inserts one row after the
// other, each with the sum of those before it.
func TestB097DatabaseIsCopiedWithItsLog(t *testing.T) {
	for _, mode := range []string{"wal", "delete"} {
		t.Run(mode, func(t *testing.T) {
			needSQLite(t)
			b := newBench(t, "mkdir d; for i in $(seq 300); do echo $i >d/$i; done")
			at := filepath.Join(b.real, "db")
			p := open(t, at)
			p.must("pragma journal_mode=" + mode + "; pragma wal_autocheckpoint=5; create table t(i integer primary key, n int, pad); insert into t values(0,0,'')")
			stop, stopped := make(chan bool), make(chan error)
			began := make(chan bool)
			go func() {
				for n := 0; ; n++ {
					if _, err := p.do("insert into t select max(i)+1, count(*), randomblob(2000) from t"); err != nil {
						stopped <- err
						return
					}
					if n == 10 {
						close(began)
					}
					select {
					case <-stop:
						stopped <- nil
						return
					default:
					}
				}
			}()
			<-began
			b.create()
			stop <- true
			must(t, <-stopped)
			for _, line := range b.told {
				t.Logf("told: %s", line)
			}
			there := p.must("pragma integrity_check; select count(*) from t")
			here := sqlite(t, filepath.Join(b.ws.Path, "db"), "pragma integrity_check; select count(*) from t where n=i; select count(*) from t; select max(i)+1 from t")
			lines := strings.Split(here, "\n")
			if len(lines) != 4 || lines[0] != "ok" || lines[1] != lines[2] || lines[2] != lines[3] {
				t.Fatalf("the copy says %q", lines)
			}
			copied, err := strconv.Atoi(lines[2])
			must(t, err)
			total, err := strconv.Atoi(strings.TrimPrefix(there, "ok\n"))
			must(t, err)
			if copied < 10 || copied > total {
				t.Errorf("%d rows were copied, of %d", copied, total)
			}
		})
	}
}

// TestApplyRefusesDatabasesInUse, and those that were written since, in their
// file or in a log beside it.
func TestApplyRefusesDatabasesInUse(t *testing.T) {
	const make = "sqlite3 db 'pragma journal_mode=wal; create table t(x); insert into t values(1)' >/dev/null; echo a >a"
	const plan = "sqlite3 db 'insert into t values(2)'; echo b >a"
	for _, c := range []struct {
		name string
		user func(b *bench)
		rows string // that are in the real database afterwards
	}{
		{"open", func(b *bench) { open(b.t, b.real+"/db").must("select * from t") }, "1"},
		{"written", func(b *bench) { b.user("sqlite3 db 'insert into t values(3)'") }, "1,3"},
		{"written into the log alone", func(b *bench) {
			p := open(b.t, b.real+"/db")
			p.must("insert into t values(3)")
			p.kill()
		}, "1,3"},
	} {
		t.Run(c.name, func(t *testing.T) {
			needSQLite(t)
			b := created(t, make, plan)
			c.user(b)
			b.mustRefuse(false, "db")
			if got := sqlite(t, b.real+"/db", "select group_concat(x) from t"); got != c.rows {
				t.Errorf("rows %s, want %s", got, c.rows)
			}
		})
	}
	t.Run("neither", func(t *testing.T) {
		needSQLite(t)
		b := created(t, make, plan)
		before := state(t, b.real)
		b.mustApply(false)
		p := open(t, b.real+"/db")
		p.must("select * from t")
		if err := b.strategy.Undo(t.Context(), b.ws, b.journal); err == nil {
			t.Error("undo while a program has it open: no error")
		}
		must(t, p.in.Close())
		must(t, p.cmd.Wait())
		b.mustUndo()
		same(t, "undo", before, state(t, b.real))
	})
}

// TestB072FileThatKeepsChanging: it is copied as it comes, said, and left alone.
func TestB072FileThatKeepsChanging(t *testing.T) {
	b := newBench(t, "echo q >quiet; head -c 40000000 /dev/zero | tr '\\0' x >log; echo 0 >replaced")
	log, err := os.OpenFile(b.real+"/log", os.O_WRONLY|os.O_APPEND, 0)
	must(t, err)
	ends := []func(){
		repeat(t, func(int) error {
			_, err := log.WriteString("line\n")
			return err
		}),
		repeat(t, func(n int) error {
			defer time.Sleep(10 * time.Millisecond)
			if err := os.WriteFile(b.real+"/.new", []byte(strconv.Itoa(n)), 0o644); err != nil {
				return err
			}
			return os.Rename(b.real+"/.new", b.real+"/replaced")
		}),
	}
	b.create() // the test ends, since this does
	if told := strings.Join(b.told, "\n"); !strings.Contains(told, "log kept changing") {
		t.Errorf("told %q", told)
	}
	b.plan("echo p >log; echo p >quiet; echo p >replaced")
	for _, end := range ends {
		end()
	}
	must(t, log.Close())
	before := state(t, b.real)
	b.mustRefuse(false, "log", "replaced")
	same(t, "apply", before, state(t, b.real))
}

// repeat has do called over and over, at least once, until the function that
// it returns is called.
func repeat(t *testing.T, do func(n int) error) (end func()) {
	began, stop, stopped := make(chan bool), make(chan bool), make(chan error, 1)
	go func() {
		for n := 1; ; n++ {
			err := do(n)
			if n == 1 {
				close(began)
			}
			select {
			case <-stop:
				stopped <- err
				return
			default:
			}
			if err != nil {
				stopped <- err
				return
			}
		}
	}()
	<-began
	return func() {
		close(stop)
		must(t, <-stopped)
	}
}
