//go:build linux

package cases_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cleveragents/agents/internal/oracle"
)

// mkdir makes a directory that is no repository; a shell line fills it.
func (l *lab) mkdir(name, script string) string {
	l.t.Helper()
	must(l.t, os.MkdirAll(l.at(name), 0o755))
	l.host(l.at(name), script)
	return l.at(name)
}

// host runs a shell line outside of any plan.
func (l *lab) host(dir, script string) string {
	l.t.Helper()
	cmd := exec.Command("sh", "-ec", script)
	cmd.Dir, cmd.Env = dir, l.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		l.t.Fatalf("%s: %v\n%s", script, err, out)
	}
	return string(out)
}

// newDirPlan makes a plan on resources as -r takes them.
func (l *lab) newDirPlan(resources ...string) *plan {
	l.t.Helper()
	args := []string{"plan", "create"}
	for _, r := range resources {
		args = append(args, "-r", r)
	}
	return &plan{l, l.ok(args...).text("plan.plan_id")}
}

// ordinary makes everything in the lab another user's, who then runs the program.
func (l *lab) ordinary() {
	l.t.Helper()
	if os.Getuid() == 0 {
		must(l.t, exec.Command("chown", "-hR", "65534:65534", l.dir).Run())
		l.uid = 65534
	}
}

// usage is how many KiB directories use on the disk.
func (l *lab) usage(dirs ...string) (kb int) {
	l.t.Helper()
	for _, d := range dirs {
		out, err := exec.Command("du", "-sk", l.at(d)).Output()
		must(l.t, err)
		var n int
		_, err = fmt.Sscan(string(out), &n)
		must(l.t, err)
		kb += n
	}
	return kb
}

// without leaves the line of the directory itself out of a digest: a sandbox
// has its own.
func without(lines []string, names ...string) []string {
	return slices.DeleteFunc(slices.Clone(lines), func(line string) bool {
		return slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(line, fmt.Sprintf("%q ", n)) })
	})
}

func TestB066FIFOsSocketsAndDevicesInADirectory(t *testing.T) {
	l := newLab(t)
	d := l.mkdir("d", "mkfifo p; mkdir deep; mkfifo deep/p deep/q; echo f >deep/f")
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	must(t, err)
	defer syscall.Close(fd)
	must(t, syscall.Bind(fd, &syscall.SockaddrUnix{Name: filepath.Join(d, "s")}))
	device := syscall.Mknod(filepath.Join(d, "dev"), syscall.S_IFCHR|0o600, 1<<8|3) == nil
	real := l.watch(d)
	started := time.Now()
	p := l.newDirPlan(d)
	s1 := p.write("f", "1\n")
	s1.says(t, "p is a FIFO", "s is a socket", "deep/q is a FIFO")
	if device {
		s1.says(t, "dev is a device")
	}
	if got := s1.text("messages"); !strings.Contains(got, "s is a socket") {
		t.Errorf("the result says nothing of what is not in the sandbox: %s", got)
	}
	at2 := p.state()
	s2 := p.sh("echo 2 >f; mkfifo own; echo x >deep/f")
	s2.says(t, "own is in no checkpoint")
	must(t, os.Remove(filepath.Join(p.box(0), "own")))
	p.rollback(s2.before, at2)
	real.same("rollback")
	p.sh("mkfifo own")
	ap := l.ok(p.apply()...)
	equal(t, "left out", strings.Join(ap.list("left_out", "path"), " "), "own")
	if took := time.Since(started); took > 60*time.Second {
		t.Errorf("all of it took %v", took)
	}
	equal(t, "f", read(t, filepath.Join(d, "f")), "1\n")
	must(t, os.Remove(filepath.Join(d, "f")))
	real.same("an apply, but for the new file")

	// One that is named itself is refused, at once.
	for _, name := range []string{"p", "s", "deep/q"} {
		l.exits(2, "plan", "create", "-r", filepath.Join(d, name)).says(t, "neither a file nor a directory")
	}

	// A file of the plan's at the place of a FIFO, and a directory that holds
	// one: the user's stays.
	for _, script := range []string{"echo x >p", "mkdir p; echo x >p/x", "rm -r deep", "rm -r deep; echo x >deep"} {
		q := l.newDirPlan(d)
		q.sh(script)
		ap := l.run(q.apply()...)
		if ap.code != 4 && script != "rm -r deep" {
			t.Errorf("%s was applied: %v", script, ap)
		}
		for _, fifo := range []string{"p", "deep/p", "deep/q"} {
			if fi, err := os.Lstat(filepath.Join(d, fifo)); err != nil || fi.Mode().Type() != os.ModeNamedPipe {
				t.Errorf("after %s the FIFO %s is gone: %v", script, fifo, err)
			}
		}
	}
}

func TestB067ReadOnlyDirectoriesAsAnOrdinaryUser(t *testing.T) {
	l := newLab(t)
	d := l.mkdir("d", `mkdir -p ro mod/a/b mod/c; echo f >ro/f; echo m >mod/a/b/m; echo n >mod/c/n; ln -s m mod/a/b/l
chmod 444 ro/f mod/a/b/m mod/c/n; chmod 555 ro mod/a/b mod/a mod/c mod`)
	l.ordinary()
	p := l.newDirPlan(d)
	real := l.watch(d)
	p.sh("true")
	at1 := p.state()
	s1 := p.sh("chmod u+w ro; rm ro/f; chmod -R u+w mod; rm -r mod; mkdir mod; echo new >mod/x; chmod 555 mod")
	p.rollback(s1.before, at1)
	real.same("rollback")
	l.ok("plan", "rollback", "--yes", p.id, s1.after)
	want := without(oracle.Digest(t, p.box(0)), ".")
	l.ok(p.apply("--keep-sandbox")...)
	if diff := oracle.Diff(want, without(oracle.Digest(t, d), ".")); diff != "" {
		t.Errorf("the directory is not what the sandbox was (- sandbox, + real):\n%s", diff)
	}
	l.ok("plan", "undo", "--yes", p.id)
	real.same("undo")
	l.ok("plan", "cancel", "--yes", "--discard", p.id)
	l.ok("cleanup")
	l.cleanData()
	real.same("discard")
	l.ok("cleanup", "archive", "restore", p.id)
	l.ok("plan", "cancel", "--yes", "--discard", p.id)
	l.cleanData()
}

func TestB069NamesThatAreNoTextInADirectory(t *testing.T) {
	l := newLab(t)
	d := l.mkdir("d", `printf 1 >"$(printf '\376')"; printf 2 >"$(printf '\377')"; printf 3 >'\xfe'; mkdir "$(printf 'd\200')"; printf 4 >"$(printf 'd\200/new\nline')"`)
	real := l.watch(d)
	p := l.newDirPlan(d)
	p.sh("true")
	at1 := p.state()
	s1 := p.sh(`printf 5 >"$(printf '\376')"; printf 6 >"$(printf '\377')"; printf 7 >'\xfe'; mv "$(printf 'd\200')" "$(printf 'e\200')"`)
	paths := s1.list("tool.changed_paths", "path")
	slices.Sort(paths)
	if n := len(slices.Compact(paths)); n != 5 {
		t.Errorf("changed paths %q, want five that differ", paths)
	}
	p.rollback(s1.before, at1)
	real.same("rollback")
	l.ok("plan", "rollback", "--yes", p.id, s1.after)
	ap := l.ok(p.apply()...)
	equal(t, "changed", strings.Join(ap.list("resources.0.changed_files", ""), " "), `\\xfe \xfe \xff`)
	equal(t, "0xfe", read(t, d+"/\xfe"), "5")
	equal(t, "0xff", read(t, d+"/\xff"), "6")
	equal(t, `\xfe`, read(t, d+`/\xfe`), "7")
	equal(t, "moved", read(t, d+"/e\x80/new\nline"), "4")
	if exists(d + "/d\x80") {
		t.Error("the directory is still at its old name")
	}
	l.ok("plan", "undo", "--yes", p.id)
	real.same("undo")
}

func TestB072FilesThatChangeWhileTheyAreCopied(t *testing.T) {
	l := newLab(t)
	d := l.mkdir("d", "echo start >log; echo 0 >swapped; head -c 3M /dev/zero >big")
	stop, stopped, lines := make(chan struct{}), make(chan struct{}), 1
	go func() {
		defer close(stopped)
		log, err := os.OpenFile(filepath.Join(d, "log"), os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			return
		}
		defer log.Close()
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(2 * time.Millisecond):
			}
			if _, err := fmt.Fprintf(log, "line %d\n", i); err == nil {
				lines++
			}
			if i%5 == 0 {
				_ = os.WriteFile(l.at("next"), []byte(fmt.Sprint(i)), 0o644)
				_ = os.Rename(l.at("next"), filepath.Join(d, "swapped"))
			}
		}
	}()
	p := l.newDirPlan(d)
	p.write("other", "1\n")
	dry := l.ok("plan", "apply", "--dry-run", p.id)
	equal(t, "artifacts", dry.text("apply_summary.artifacts"), "1")
	l.ok(p.apply()...)
	q := l.newDirPlan(d)
	q.sh("echo mine >>log; rm swapped; echo x >other")
	ap := l.exits(4, q.apply()...)
	close(stop)
	<-stopped
	got := ap.list("resources.0.conflicts", "path")
	slices.Sort(got)
	equal(t, "conflicts", strings.Join(got, " "), "log swapped")
	equal(t, "other", read(t, filepath.Join(d, "other")), "1\n")
	if n := strings.Count(read(t, filepath.Join(d, "log")), "\n"); n != lines {
		t.Errorf("the log has %d lines, %d were written", n, lines)
	}
}

func TestB073LinksThatLeadBackIntoTheDirectory(t *testing.T) {
	l := newLab(t)
	d := l.mkdir("d", `mkdir sub; echo d >data; echo i >sub/in; ln -s "$PWD/data" data.abs; ln -s ../d/data data.up; ln -s "$PWD" self
ln -s "$PWD/sub" sub.abs; ln -s ../../d/data sub/deep.up; ln -s /etc/hostname out; ln -s "$PWD/nowhere" dangling; ln -s data plain; ln -s ../other beside; echo o >../other`)
	must(t, os.Symlink(d, l.at("alias")))
	must(t, os.Symlink(l.at("alias", "data"), filepath.Join(d, "by-alias")))
	real := l.watch(d)
	p := l.newDirPlan(d)
	p.sh("true")
	at1 := p.state()
	s1 := p.sh("for f in data.abs data.up sub.abs/in sub/deep.up self/data plain by-alias; do echo x >>$f; done; echo n >dangling")
	real.same("writes through links into the directory")
	p.rollback(s1.before, at1)
	l.ok("plan", "rollback", "--yes", p.id, s1.after)
	s2 := p.sh(`ln -s "$PWD/data" mine; ln -sfn sub data.up; rm self`)
	equal(t, "changed paths", s2.text("tool.rolled_back"), "false")
	l.ok(p.apply()...)
	for name, want := range map[string]string{
		"data.abs": d + "/data", "sub.abs": d + "/sub", "sub/deep.up": "../../d/data", "out": "/etc/hostname", "dangling": d + "/nowhere",
		"plain": "data", "beside": "../other", "by-alias": l.at("alias", "data"), // as they were
		"mine": d + "/data", "data.up": "sub", // the plan's
	} {
		got, err := os.Readlink(filepath.Join(d, name))
		if err != nil || got != want {
			t.Errorf("link %s leads to %q, want %q: %v", name, got, want, err)
		}
	}
	if exists(filepath.Join(d, "self")) {
		t.Error("the link that the plan removed is still there")
	}
	equal(t, "data", read(t, filepath.Join(d, "data")), "d\nx\nx\nx\nx\nx\nx\n")
	equal(t, "sub/in", read(t, filepath.Join(d, "sub", "in")), "i\nx\n")
	equal(t, "nowhere", read(t, filepath.Join(d, "nowhere")), "n\n")
	equal(t, "other", read(t, l.at("other")), "o\n")
}

// sqlite runs statements on a database and returns what they print.
func sqlite(t *testing.T, file, statements string) string {
	t.Helper()
	out, err := exec.Command("sqlite3", "-cmd", ".timeout 5000", file, statements).CombinedOutput()
	if err != nil {
		t.Fatalf("sqlite3 %s: %v\n%s", statements, err, out)
	}
	return strings.TrimSpace(string(out))
}

func TestB097SQLiteWithALiveWriter(t *testing.T) {
	if _, err := exec.LookPath("sqlite3"); err != nil {
		t.Skip("needs sqlite3")
	}
	l := newLab(t)
	d := l.mkdir("d", "echo f >f")
	db := filepath.Join(d, "app.db")
	sqlite(t, db, "PRAGMA journal_mode=WAL; CREATE TABLE t(a); INSERT INTO t VALUES('first')")
	writer := exec.Command("sqlite3", "-cmd", ".timeout 5000", db)
	in, err := writer.StdinPipe()
	must(t, err)
	must(t, writer.Start())
	stop, stopped, rows := make(chan struct{}), make(chan struct{}), 1
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				in.Close()
				return
			case <-time.After(10 * time.Millisecond):
				if _, err := fmt.Fprintln(in, "INSERT INTO t VALUES(1);"); err == nil {
					rows++
				}
			}
		}
	}()
	until(t, "a log", func() bool { fi, err := os.Stat(db + "-wal"); return err == nil && fi.Size() > 0 })
	const check = `test "$(sqlite3 app.db 'PRAGMA integrity_check')" = ok; sqlite3 app.db "SELECT 1/count(*) FROM t WHERE a='first'" | grep -q 1; `
	p := l.newDirPlan(d)
	p.sh(check + "sqlite3 app.db 'SELECT count(*) FROM t' >count")
	at2 := p.state()
	s2 := p.sh(check + `sqlite3 app.db "INSERT INTO t VALUES('plan')"`)
	p.rollback(s2.before, at2)
	p.sh(check + `test "$(sqlite3 app.db 'SELECT count(*) FROM t')" = "$(cat count)"`)
	p.sh(`sqlite3 app.db "INSERT INTO t VALUES('plan')"`)
	l.exits(4, p.apply()...).says(t, "app.db")
	close(stop)
	<-stopped
	must(t, writer.Wait())
	equal(t, "check", sqlite(t, db, "PRAGMA integrity_check"), "ok")
	equal(t, "rows of the host's", sqlite(t, db, "SELECT count(*) FROM t"), fmt.Sprint(rows))
	// Nobody has it open any more, but it is not what was copied.
	l.exits(4, p.apply()...).says(t, "app.db")
	equal(t, "rows of the host's", sqlite(t, db, "SELECT count(*) FROM t"), fmt.Sprint(rows))

	q := l.newDirPlan(d)
	q.sh(`sqlite3 app.db "INSERT INTO t VALUES('plan')"`)
	l.ok(q.apply()...)
	equal(t, "check", sqlite(t, db, "PRAGMA integrity_check"), "ok")
	equal(t, "rows", sqlite(t, db, "SELECT count(*) FROM t"), fmt.Sprint(rows+1))
	l.ok("plan", "undo", "--yes", q.id)
	equal(t, "rows after the undo", sqlite(t, db, "SELECT count(*) FROM t"), fmt.Sprint(rows))
}

func TestB007NoLimitMakesAFileOfADirectoryVanish(t *testing.T) {
	for _, c := range []struct{ name, key, value string }{
		{name: "defaults"},
		{"ignored files are not recorded", "sandbox.checkpoint.ignored", "none"},
		{"smallest quota", "sandbox.checkpoint.quota", "1MiB"},
		{"more protected names", "sandbox.protected", "app.log,x.ign"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t)
			d := l.mkdir("d", "head -c 8M /dev/urandom >app.log; echo '*.ign' >.gitignore; echo keep >x.ign")
			if c.key != "" {
				l.ok("config", "set", c.key, c.value)
			}
			real := l.watch(d)
			p := l.newDirPlan(d)
			type step struct {
				call
				was state
			}
			var steps []step
			for _, script := range []string{"true", "echo x >>app.log; head -c 2M /dev/urandom >n.log; echo y >x.ign", "echo 1 >b"} {
				var was state
				if len(p.status().list("sandboxes", "path")) > 0 && p.status().text("sandboxes.0.path") != "" {
					was = p.state()
				}
				s := l.run("plan", "exec", p.id, "--", "sh", "-c", script).call()
				if s.code != 0 && s.text("error.message") == "" {
					t.Errorf("a refusal without a word: %v", s)
				}
				steps = append(steps, step{s, was})
			}
			for _, s := range slices.Backward(steps) {
				if s.code != 0 || s.was == nil || s.before == "" {
					continue
				}
				if back := l.run("plan", "rollback", "--yes", p.id, s.before); back.code == 0 {
					p.holds("after the rollback", s.was)
				} else if back.code != 3 || slices.Contains(p.checkpoints(), s.before) {
					t.Errorf("a listed checkpoint cannot be gone back to: %v", back)
				}
			}
			if box := p.box(0); !exists(box+"/x.ign") || !exists(box+"/app.log") {
				t.Error("a file is gone")
			}
			real.same("all of it")
		})
	}
}

func TestB008DamagedStoreLeavesTheCopy(t *testing.T) {
	for _, what := range []string{"own", "base"} {
		t.Run(what, func(t *testing.T) {
			l := newLab(t)
			d := l.mkdir("d", "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do echo base $i >f$i; done")
			real := l.watch(d)
			p := l.newDirPlan(d)
			s1 := p.sh("for f in f*; do echo $f one >$f; done")
			files := p.objectFiles()
			target := s1.after
			if what == "base" {
				files, target = glob(t, l.dir, "data/checkpoints/shared/*/objects/pack/*.pack"), s1.before
			}
			if len(files) == 0 {
				t.Fatal("no store to damage")
			}
			p.sh("for f in f*; do echo $f two >$f; done")
			for _, f := range files {
				must(t, os.Truncate(l.at(f), 0))
			}
			was := oracle.Digest(t, p.box(0))
			if back := l.run("plan", "rollback", "--yes", p.id, target); back.code == 0 {
				t.Errorf("a rollback to a damaged state succeeded: %v", back)
			}
			oracle.Same(t, "the sandbox after a rollback that failed", p.box(0), was)
			if !slices.Contains(p.checkpoints(), target) {
				t.Error("the checkpoint is not listed any more")
			}
			real.same("the rollback that failed")
			if ap := l.run(p.apply()...); ap.code != 0 {
				real.same("the apply that failed")
			}
		})
	}
}

func TestU011B123RollbackOfACopyThatCannotWrite(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can own a directory that the program, as another user, cannot write to")
	}
	l := newLab(t)
	d := l.mkdir("d", "mkdir d; echo a >a; echo e >d/e")
	l.ordinary()
	real := l.watch(d)
	p := l.newDirPlan(d)
	p.sh("true")
	at1 := p.state()
	s1 := p.sh("echo 2 >a; echo new >new; echo 2 >d/e; echo added >d/added; mkdir -p d/deep; echo x >d/deep/x")
	l.host(p.box(0), "chown -R 0:0 d; chmod 755 d")
	was := p.state()
	back := l.exits(1, "plan", "rollback", "--yes", p.id, s1.before)
	back.says(t, "directory d")
	if n := back.text("rollback_summary.restored_files_count"); n != "" && n != "0" {
		t.Errorf("%s files restored by a rollback that failed", n)
	}
	p.holds("after the rollback that failed", was)
	if !slices.Contains(p.checkpoints(), s1.before) {
		t.Error("the checkpoint is gone")
	}
	l.host(p.box(0), "chown -R 65534:65534 d")
	p.rollback(s1.before, at1)
	real.same("rollbacks")
}

func TestB023B027TheStoreGrowsWithChangesOnly(t *testing.T) {
	l := newLab(t)
	d := l.mkdir("d", "i=0; while [ $i -lt 200 ]; do head -c 100K /dev/urandom >f$i; i=$((i+1)); done")
	p := l.newDirPlan(d)
	p.sh("true")
	tree, base := l.usage("d"), l.usage("data/checkpoints")
	for i := range 6 {
		p.sh(fmt.Sprintf("echo line >>f%d", i))
	}
	after := l.usage("data/checkpoints")
	if after > tree*12/10 {
		t.Errorf("the store uses %d KiB for a tree of %d KiB (%d before the steps)", after, tree, base)
	}
	for range 3 { // more plans on the same directory
		q := l.newDirPlan(d)
		q.sh("echo other >>f100")
	}
	if more := l.usage("data/checkpoints") - after; more > tree/10 {
		t.Errorf("three more plans add %d KiB to a store of %d KiB", more, after)
	}

	// Pruning gives the room back.
	l.ok("config", "set", "sandbox.checkpoint.max-per-plan", "4")
	q := l.newDirPlan(l.mkdir("e", "echo e >e"))
	first := q.sh("head -c 1M /dev/urandom >big")
	for range 8 {
		q.sh("head -c 1M /dev/urandom >big")
	}
	list := q.checkpoints()
	if len(list) != 4 || list[0] != first.before {
		t.Errorf("listed %v, want 4 with the first, %s", list, first.before)
	}
	if kb := l.usage("data/checkpoints/" + q.id); kb > 6<<10 {
		t.Errorf("the store uses %d KiB for 4 checkpoints of 1 MiB", kb)
	}

	// And nothing is left of any of it once the archives are gone, which need it.
	for _, id := range l.ok("plan", "list").list("plans", "plan_id") {
		l.ok("plan", "cancel", "--yes", "--discard", id)
	}
	must(t, os.RemoveAll(l.at("data/archive")))
	l.ok("cleanup")
	l.cleanData()
	if left := glob(t, l.dir, "data/checkpoints/shared/*/objects/pack/*"); len(left) > 0 {
		t.Errorf("left of the shared base: %v", left)
	}
}

func TestB031FullCheckpointStoreOfADirectory(t *testing.T) {
	l := newLab(t)
	small := l.at("small")
	must(t, os.Mkdir(small, 0o700))
	if err := syscall.Mount("tmpfs", small, "tmpfs", 0, "size=6m"); err != nil {
		t.Skipf("no small disk can be mounted: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(small, syscall.MNT_DETACH) })
	l.ok("config", "set", "sandbox.checkpoint.dir", filepath.Join(small, "checkpoints"))
	d := l.mkdir("d", "echo a >a")
	real := l.watch(d)
	p := l.newDirPlan(d)
	p.sh("true")
	var failed bool
	for i := range 3 {
		was := p.state()
		s := l.run("plan", "exec", p.id, "--", "sh", "-ec", fmt.Sprintf("head -c 3M /dev/urandom >f%d", i))
		if s.code == 0 {
			continue
		}
		failed = true
		s.says(t, small)
		p.holds("after the step that failed", was)
		for _, cp := range p.checkpoints() {
			l.ok("plan", "rollback", "--yes", "--dry-run", p.id, cp)
		}
		break
	}
	if !failed {
		t.Error("9 MiB fit into 6 MiB")
	}
	must(t, syscall.Mount("tmpfs", small, "tmpfs", syscall.MS_REMOUNT, "size=64m"))
	p.sh("head -c 3M /dev/urandom >again")
	real.same("steps on a full disk")
	l.ok(p.apply()...)
}
