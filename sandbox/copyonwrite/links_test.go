//go:build linux

package copyonwrite_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/pkg/xattr"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/oracle"
	"github.com/cleveragents/agents/sandbox"
)

// inode is a file's number, by which names of one file are told.
func inode(t *testing.T, path string) uint64 {
	t.Helper()
	fi, err := os.Lstat(path)
	must(t, err)
	return fi.Sys().(*syscall.Stat_t).Ino
}

// TestApplyKeepsHardLinks: what was one file at home and in the sandbox stays
// one, with its names outside of the resource too.
func TestApplyKeepsHardLinks(t *testing.T) {
	const inside, outside = "echo 1 >a; ln a b; echo x >x", "echo 1 >a; ln a b; ln a ../outside; echo x >x"
	for _, c := range []struct {
		name, base, plan string
		one              string // names that are one file afterwards
		apart            string // and names that are not
		keeps            bool   // that one is the file that was there
	}{
		{"written, all names inside", inside, "echo 2 >a", "a b", "", false},
		{"written, a name outside", outside, "echo 2 >a", "a b ../outside", "", true},
		{"written, one name in and one out", "echo 1 >a; ln a ../outside", "echo 2 >a", "a ../outside", "", true},
		{"bits, a name outside", outside, "chmod 600 a", "a b ../outside", "", true},
		{"replaced, one name in and one out", "echo 1 >a; ln a ../outside", "echo 2 >n; mv n a", "a ../outside", "", true},
		{"link broken, all inside", inside, "echo 2 >n; mv n a", "b", "a", true},
		{"link broken, a name outside", outside, "echo 2 >n; mv n a", "b ../outside", "a", true},
		{"link broken, the same bytes", inside, "cp a n; mv n a", "b", "a", false},
		{"a name removed", inside, "rm a", "b", "", true},
		{"a name removed, one outside", outside, "rm a", "b ../outside", "", true},
		{"a name added", inside, "ln a c", "a b c", "", false},
		{"a name added, one outside", outside, "ln a c", "a b c ../outside", "", true},
		{"a name added and written", outside, "ln a c; echo 2 >c", "a b c ../outside", "", true},
		{"a name moved", outside, "mkdir d; mv a d/a", "d/a b ../outside", "", true},
		{"a link made", "echo 1 >a; echo x >x", "ln a c", "a c", "", false},
		{"a link made of a new file", "echo 1 >a", "echo n >n; ln n m", "n m", "a", false},
		{"two files become one", "echo 1 >a; echo 2 >b", "ln -f a b", "a b", "", false},
		{"both written apart", outside, "echo 2 >n; mv n a; echo 3 >n; mv n b", "a", "b ../outside", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := created(t, c.base, c.plan)
			before, was := state(t, b.real), inode(t, b.real+"/a")
			out := filepath.Join(b.dir, "outside")
			b.mustApply(false)
			if got, want := oracle.Digest(t, b.real), oracle.Digest(t, b.ws.Path); oracle.Diff(want[1:], got[1:]) != "" {
				t.Errorf("apply:\n%s", oracle.Diff(want[1:], got[1:]))
			}
			names := strings.Fields(c.one)
			is := inode(t, filepath.Join(b.real, names[0]))
			for _, name := range names[1:] {
				if got := inode(t, filepath.Join(b.real, name)); got != is {
					t.Errorf("%s and %s are two files", names[0], name)
				}
			}
			for _, name := range strings.Fields(c.apart) {
				if inode(t, filepath.Join(b.real, name)) == is {
					t.Errorf("%s and %s are one file", names[0], name)
				}
			}
			if c.keeps && is != was {
				t.Errorf("%s is another file than before", names[0])
			}
			b.mustUndo()
			same(t, "undo", before, state(t, b.real))
			if _, err := os.Lstat(out); err == nil && (read(t, out) != "1\n" || inode(t, out) != inode(t, b.real+"/a")) {
				t.Errorf("outside = %q after undo", read(t, out))
			}
		})
	}
}

// TestApplyToAMountedFile writes in place, since it cannot be replaced.
func TestApplyToAMountedFile(t *testing.T) {
	if !asRoot() {
		t.Skip("only root can mount")
	}
	b := newBench(t, "echo old >../source; touch mounted; echo a >a")
	at := filepath.Join(b.real, "mounted")
	if err := syscall.Mount(filepath.Join(b.dir, "source"), at, "", syscall.MS_BIND, ""); errors.Is(err, syscall.EPERM) {
		t.Skip("this root may not mount")
	} else {
		must(t, err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(at, syscall.MNT_DETACH) })
	b.create()
	b.plan("echo new >mounted; echo b >a")
	if xattr.LSet(b.ws.Path+"/mounted", "user.note", []byte("plan")) == nil {
		b.mustRefuse(false, "mounted")
		must(t, xattr.LRemove(b.ws.Path+"/mounted", "user.note"))
	}
	before := state(t, b.real)
	b.mustApply(false)
	if got := read(t, filepath.Join(b.dir, "source")); got != "new\n" {
		t.Errorf("source = %q", got)
	}
	b.mustUndo()
	same(t, "undo", before, state(t, b.real))
}

// TestApplyToAnothersFile as an ordinary user: what belongs to somebody else is
// neither given a new owner nor changed in a way that could not be taken back.
func TestApplyToAnothersFile(t *testing.T) {
	if !asRoot() {
		t.Skip("only root can give files away and become another user")
	}
	dir := t.TempDir()
	for at := dir; at != "/" && at != os.TempDir(); at = filepath.Dir(at) {
		must(t, os.Chmod(at, 0o777))
	}
	test := filepath.Join(dir, "test")
	sh(t, dir, "cp "+os.Args[0]+" test; chmod 755 test")
	b := newBenchIn(t, filepath.Join(dir, "bench"), "echo 1 >a; echo 1 >mine; echo 1 >gone; mkdir open; chmod 777 open; chmod 666 a; chown 65534:65534 mine . ..; chown -R 65534:65534 ../data")
	cmd := exec.Command(test, "-test.run=^TestChildOfAnother$", "-test.v")
	cmd.Env = append(os.Environ(), "TEST_ANOTHER="+b.dir, "TMPDIR="+dir, "HOME="+dir)
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "PASS: TestChildOfAnother") {
		t.Fatalf("%v\n%s", err, out)
	}
}

// TestChildOfAnother is TestApplyToAnothersFile as the other user.
func TestChildOfAnother(t *testing.T) {
	dir := os.Getenv("TEST_ANOTHER")
	if dir == "" {
		t.Skip("runs as a child only")
	}
	b := newBenchIn(t, dir, "")
	b.create()
	b.plan("echo 2 >a; echo 2 >mine; touch open/more")
	b.mustRefuse(false, "a")
	b.plan("echo 1 >a; rm gone; echo 2 >open/in")
	// The time of another user's directory cannot be put back.
	settled := func() []string {
		return slices.DeleteFunc(state(t, b.real), func(line string) bool { return strings.HasPrefix(line, `"open" `) })
	}
	before := settled()
	b.mustApply(false)
	if read(t, b.real+"/mine") != "2\n" || read(t, b.real+"/open/in") != "2\n" {
		t.Error("not applied")
	}
	b.mustUndo()
	same(t, "undo", before, settled())
}

// TestMergeKeepsTheUsersAttributes, as it keeps the user's bits.
func TestMergeKeepsTheUsersAttributes(t *testing.T) {
	b := created(t, "seq 10 >f", "sed -i s/^1$/one/ f")
	b.user("sed -i s/^10$/ten/ f")
	if err := xattr.LSet(b.real+"/f", "user.note", []byte("mine")); err != nil {
		t.Skipf("no extended attributes: %v", err)
	}
	before := state(t, b.real)
	b.mustApply(true)
	if got, err := xattr.LGet(b.real+"/f", "user.note"); err != nil || string(got) != "mine" {
		t.Errorf("the attribute is %q, %v", got, err)
	}
	if got := read(t, b.real+"/f"); got != "one\n2\n3\n4\n5\n6\n7\n8\n9\nten\n" {
		t.Errorf("f = %q", got)
	}
	b.mustUndo()
	same(t, "undo", before, state(t, b.real))
}

// between is a context that runs something whenever it is asked whether it is
// over, as an apply does between its steps.
type between struct {
	context.Context
	do func()
}

func (b between) Err() error {
	b.do()
	return b.Context.Err()
}

// TestApplyTellsOfLateWrites: a program that has a file open while it is
// replaced goes on writing, and believes that it is saved.
func TestApplyTellsOfLateWrites(t *testing.T) {
	for name, plan := range map[string]string{"replaced": "echo p >a", "deleted": "rm a"} {
		t.Run(name, func(t *testing.T) {
			b := created(t, "echo 1 >a; echo 1 >b", plan+"; echo 2 >b")
			f, err := os.OpenFile(b.real+"/a", os.O_WRONLY|os.O_APPEND, 0)
			must(t, err)
			defer f.Close()
			was, wrote := inode(t, b.real+"/a"), false
			ctx := between{t.Context(), func() {
				fi, err := os.Lstat(b.real + "/a")
				if wrote || err == nil && fi.Sys().(*syscall.Stat_t).Ino == was {
					return
				}
				_, err = f.WriteString("late\n")
				must(t, err)
				wrote = true
			}}
			must(t, os.Mkdir(b.journal, 0o700))
			res, err := b.strategy.Apply(ctx, b.ws, sandbox.ApplyRequest{Ref: b.seal().Ref, JournalDir: b.journal})
			if err != nil || !wrote {
				t.Fatalf("apply: %v; wrote: %v", err, wrote)
			}
			if len(res.Notices) != 1 || !strings.HasPrefix(res.Notices[0], "a: ") {
				t.Fatalf("notices %q, want one of a", res.Notices)
			}
			_, held, _ := strings.Cut(res.Notices[0], "those bytes are in ")
			if got := read(t, held); got != "1\nlate\n" {
				t.Errorf("%s = %q", held, got)
			}
			_, err = f.WriteString("later\n")
			must(t, err)
			if got, err := b.strategy.Recover(t.Context(), b.ws, b.journal); err != nil || got.State != agents.ApplyApplied {
				t.Errorf("recover: %s, %v", got.State, err)
			}
			b.mustUndo()
			_, err = f.WriteString("last\n")
			must(t, err)
			if got := read(t, b.real+"/a"); got != "1\nlate\nlater\nlast\n" {
				t.Errorf("a = %q", got)
			}
		})
	}
}

// TestUndoMeetsAWriter: somebody edits a file while an undo is taking others
// back. The apply stays, whole, and so does the edit.
func TestUndoMeetsAWriter(t *testing.T) {
	for range 20 {
		b := created(t, "for i in $(seq 100 199); do echo old $i >f$i; done", "for i in $(seq 100 199); do echo new $i >f$i; done")
		b.mustApply(false)
		wrote := make(chan error)
		go func() {
			for first := filepath.Join(b.real, "f199"); ; { // which is taken back first
				if text, err := os.ReadFile(first); err != nil || !strings.HasPrefix(string(text), "new") {
					break
				}
			}
			wrote <- os.WriteFile(filepath.Join(b.real, "f100"), []byte("mine\n"), 0o644)
		}()
		err := b.strategy.Undo(t.Context(), b.ws, b.journal)
		must(t, <-wrote)
		if err == nil {
			if got := read(t, b.real+"/f100"); got != "mine\n" {
				t.Fatalf("f100 = %q after the undo", got)
			}
			continue // the writer was too late
		}
		if !errors.Is(err, agents.ErrConflict) || !strings.Contains(err.Error(), "f100") {
			t.Fatalf("undo: %v, want a conflict in f100", err)
		}
		if got := sh(t, b.real, "cat f100; cat f* | grep -c new"); got != "mine\n99\n" {
			t.Errorf("after a refused undo: %q", got)
		}
		if got, err := b.strategy.Recover(t.Context(), b.ws, b.journal); err != nil || got.State != agents.ApplyApplied {
			t.Errorf("recover: %s, %v", got.State, err)
		}
		return
	}
	t.Fatal("nobody wrote while an undo was under way")
}

// TestUndoHoldsWhatPrograms have open of what it takes away.
func TestUndoHoldsWhatPrograms(t *testing.T) {
	b := created(t, "echo old >a", "echo new >a; echo more >b")
	before := state(t, b.real)
	b.mustApply(false)
	var open []*os.File
	for _, name := range []string{"a", "b"} {
		f, err := os.OpenFile(filepath.Join(b.real, name), os.O_WRONLY|os.O_APPEND, 0)
		must(t, err)
		defer f.Close()
		open = append(open, f)
	}
	b.mustUndo()
	same(t, "undo", before, state(t, b.real))
	for _, f := range open {
		_, err := f.WriteString("late\n")
		must(t, err)
	}
	got, err := b.strategy.Recover(t.Context(), b.ws, b.journal)
	must(t, err)
	late := sandbox.LateDir(b.journal)
	if text := read(t, late+"/a") + read(t, late+"/b"); text != "new\nlate\nmore\nlate\n" {
		t.Errorf("kept is %q", text)
	}
	if len(got.Notices) != 2 || !strings.Contains(got.Notices[0], late) {
		t.Errorf("notices: %q", got.Notices)
	}
}
