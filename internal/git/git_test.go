package git_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/git"
	"github.com/cleveragents/agents/internal/oracle"
)

func open(t *testing.T, r *oracle.Repo) git.Repo {
	t.Helper()
	run := &git.Runner{}
	found, err := git.Discover(t.Context(), run, r.Dir)
	if err != nil {
		t.Fatal(err)
	}
	return found.Repo(run)
}

// fake is a git program that is a shell script; it answers the probe.
func fake(t *testing.T, script string) *git.Runner {
	t.Helper()
	path := filepath.Join(t.TempDir(), "git")
	text := "#!/bin/sh\ncase \"$*\" in *version*) echo git version 2.40.1; exit;; esac\n" + script
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return &git.Runner{Program: path}
}

func TestMissingAndOldGit(t *testing.T) {
	old := filepath.Join(t.TempDir(), "git")
	if err := os.WriteFile(old, []byte("#!/bin/sh\necho git version 2.30.2\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ program, says string }{
		"missing": {"no-such-git", "git is not installed"},
		"old":     {old, "git 2.30 is too old"},
	} {
		_, err := git.Repo{Git: &git.Runner{Program: c.program}, Dir: "/"}.Read(t.Context(), "status")
		if !errors.Is(err, agents.ErrUnsupported) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want unsupported and %q", name, err, c.says)
		}
	}
	major, minor, err := (&git.Runner{}).Version(t.Context())
	if err != nil || major < 2 || major == 2 && minor < 38 {
		t.Errorf("version %d.%d, %v", major, minor, err)
	}
}

func TestErrorsBeginWithGitsOwnWords(t *testing.T) {
	r := open(t, oracle.NewRepo(t))
	_, err := r.Read(t.Context(), "cat-file", "commit", "nope")
	var said *git.Error
	if !errors.As(err, &said) || said.ExitCode != 128 || !slices.Equal(said.Args, []string{"cat-file", "commit", "nope"}) {
		t.Fatalf("error %#v", err)
	}
	if !strings.HasPrefix(err.Error(), "fatal: Not a valid object name nope") {
		t.Errorf("message %q", err)
	}
}

func TestEnvironmentIsOurOwn(t *testing.T) {
	run := fake(t, "env; pwd; for a; do echo \"arg $a\"; done")
	run.Env = []string{"PATH=" + os.Getenv("PATH"), "GIT_DIR=/evil", "GIT_EXTERNAL_DIFF=evil", "GIT_CONFIG_COUNT=1", "LC_ALL=de_DE", "HOME=/h", "SSH_ASKPASS=evil"}
	dir := t.TempDir()
	out, err := git.Repo{Git: run, Dir: dir, IndexFile: "/i", ObjectDir: "/o", Alternates: []string{"/a:b", "/c"}, Config: []string{"x.y=z"}}.
		Read(t.Context(), "log", "--", "-x")
	if err != nil {
		t.Fatal(err)
	}
	text := "\n" + string(out)
	for _, want := range []string{"GIT_OPTIONAL_LOCKS=0", "GIT_TERMINAL_PROMPT=0", "LC_ALL=C", "GIT_PAGER=cat", "GIT_EDITOR=true", "GIT_INDEX_FILE=/i",
		"GIT_OBJECT_DIRECTORY=/o", `GIT_ALTERNATE_OBJECT_DIRECTORIES="/a:b":/c`, "HOME=/h", dir, "arg core.hooksPath=/dev/null", "arg core.fsmonitor=false",
		"arg submodule.recurse=false", "arg commit.gpgSign=false", "arg gc.auto=0", "arg x.y=z", "arg -x"} {
		if !strings.Contains(text, "\n"+want+"\n") {
			t.Errorf("no %q in what git saw", want)
		}
	}
	for _, bad := range []string{"evil", "GIT_CONFIG_COUNT", "de_DE"} {
		if strings.Contains(text, bad) {
			t.Errorf("git saw %q", bad)
		}
	}
}

func TestCallsEnd(t *testing.T) {
	t.Run("no progress", func(t *testing.T) {
		run := fake(t, "sleep 1000 & sleep 1000")
		run.Idle = 80 * time.Millisecond
		_, err := git.Repo{Git: run, Dir: "/"}.Read(t.Context(), "log")
		if !errors.Is(err, git.ErrIdle) {
			t.Errorf("error %v, want no progress", err)
		}
	})
	t.Run("slow but working", func(t *testing.T) {
		run := fake(t, "i=0; while [ $i -lt 60 ]; do /bin/sleep 0.01; i=$((i+1)); done; echo done")
		run.Idle = 400 * time.Millisecond
		out, err := git.Repo{Git: run, Dir: "/"}.Read(t.Context(), "log")
		if err != nil || string(out) != "done\n" {
			t.Errorf("got %q, %v", out, err)
		}
	})
	t.Run("context", func(t *testing.T) {
		pids := filepath.Join(t.TempDir(), "pids")
		run := fake(t, "sleep 1000 & echo $! >"+pids+".new; mv "+pids+".new "+pids+"; wait")
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			for {
				if _, err := os.Stat(pids); err == nil {
					cancel()
					return
				}
			}
		}()
		_, err := git.Repo{Git: run, Dir: "/"}.Read(ctx, "log")
		if !errors.Is(err, context.Canceled) {
			t.Errorf("error %v, want canceled", err)
		}
		pid, _ := os.ReadFile(pids)
		for end := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
			stat, err := os.ReadFile("/proc/" + strings.TrimSpace(string(pid)) + "/stat")
			if err != nil || strings.Contains(string(stat), ") Z ") {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("a child of git lives on: %s", stat)
			}
		}
	})
}

func TestDiscover(t *testing.T) {
	r := oracle.NewRepo(t)
	r.Write("sub/f", "x")
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(r.Dir, link); err != nil {
		t.Fatal(err)
	}
	linked := filepath.Join(t.TempDir(), "linked")
	r.Git("worktree", "add", "-q", linked)
	for path, want := range map[string]struct {
		linked bool
		class  error
	}{
		r.Dir: {}, link: {}, linked: {linked: true},
		filepath.Join(r.Dir, "sub"): {class: agents.ErrInvalid}, filepath.Join(r.Dir, ".git"): {class: agents.ErrInvalid},
		filepath.Join(r.Dir, "a.txt"): {class: agents.ErrInvalid}, t.TempDir(): {class: agents.ErrInvalid}, "/nonexistent/x": {class: agents.ErrNotFound},
	} {
		f, err := git.Discover(t.Context(), &git.Runner{}, path)
		if want.class != nil {
			if !errors.Is(err, want.class) {
				t.Errorf("%s: %v, want %v", path, err, want.class)
			}
			continue
		}
		if err != nil || f.Linked != want.linked || f.CommonDir != filepath.Join(r.Dir, ".git") || f.ObjectFormat != "sha1" {
			t.Errorf("%s: %+v, %v", path, f, err)
		}
	}
}

func TestHeads(t *testing.T) {
	r := oracle.EmptyRepo(t, filepath.Join(t.TempDir(), "r"))
	at := open(t, r)
	check := func(what string, want git.Head) {
		t.Helper()
		if got, err := at.Head(t.Context()); err != nil || got != want {
			t.Errorf("%s: %+v, %v, want %+v", what, got, err, want)
		}
	}
	check("unborn", git.Head{Ref: "refs/heads/main"})
	id := r.Commit("first")
	check("branch", git.Head{Ref: "refs/heads/main", Commit: id})
	r.Git("checkout", "-q", "--detach")
	check("detached", git.Head{Commit: id})
	for _, name := range []string{"nope", "--output=/tmp/x", "HEAD --help", ""} {
		if _, err := at.Commit(t.Context(), name); !errors.Is(err, agents.ErrNotFound) {
			t.Errorf("commit %q: %v, want not found", name, err)
		}
	}
}

func TestUpdateRefsComparesAndSwaps(t *testing.T) {
	r := oracle.NewRepo(t)
	at := open(t, r)
	one := r.Git("rev-parse", "HEAD")
	two := r.Commit("two")
	must := func(class error, changes ...git.RefChange) {
		t.Helper()
		if err := at.UpdateRefs(t.Context(), "", changes...); !errors.Is(err, class) || (err == nil) != (class == nil) {
			t.Errorf("%+v: %v, want %v", changes, err, class)
		}
	}
	must(nil, git.RefChange{Ref: "refs/heads/x", New: one})
	must(agents.ErrConflict, git.RefChange{Ref: "refs/heads/x", New: two})
	must(agents.ErrConflict, git.RefChange{Ref: "refs/heads/x", Old: two, New: one})
	must(agents.ErrConflict, git.RefChange{Ref: "refs/heads/y", New: one}, git.RefChange{Ref: "refs/heads/x", Old: two, New: one})
	if _, err := at.Ref(t.Context(), "refs/heads/y"); !errors.Is(err, agents.ErrNotFound) {
		t.Errorf("half a transaction was done: %v", err)
	}
	must(nil, git.RefChange{Ref: "refs/heads/x", Old: one, New: two})
	must(nil, git.RefChange{Ref: "refs/heads/x", Old: two})
	refs, err := at.Refs(t.Context())
	if err != nil || len(refs) != 1 || refs[0] != (git.Ref{Name: "refs/heads/main", ID: two}) {
		t.Errorf("refs %+v, %v", refs, err)
	}
}

func TestDiffTrees(t *testing.T) {
	r := oracle.NewRepo(t)
	r.Write("moved", strings.Repeat("line\n", 30))
	r.Write("gone", "g\n")
	base := r.Commit("base")
	r.Sh("git mv moved 'new\nname'; rm gone; printf '\\0' >bin; chmod +x a.txt; echo 1 >>a.txt; ln -s x link")
	next := r.Commit("next")
	got, err := open(t, r).DiffTrees(t.Context(), base, next, git.DiffOptions{Renames: true, Counts: true})
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, c := range got {
		lines = append(lines, fmt.Sprintf("%c %s %q %q +%d -%d %v", c.Status, c.NewMode, c.OldPath, c.Path, c.Insertions, c.Deletions, c.Binary))
	}
	want := []string{
		`M 100755 "a.txt" "a.txt" +1 -0 false`, `A 100644 "bin" "bin" +0 -0 true`, `D 000000 "gone" "gone" +0 -1 false`,
		`A 120000 "link" "link" +1 -0 false`, `R 100644 "moved" "new\nname" +0 -0 false`,
	}
	if !slices.Equal(lines, want) {
		t.Errorf("got  %q\nwant %q", lines, want)
	}
}

func TestMergeTrees(t *testing.T) {
	r := oracle.NewRepo(t)
	r.Write("f", "1\n2\n3\n")
	r.Commit("base")
	r.Sh("git checkout -q -b ours; echo ours >a.txt; git commit -qam ours; git checkout -q -b theirs main; sed -i s/3/three/ f; git commit -qam theirs")
	at := open(t, r)
	m, err := at.MergeTrees(t.Context(), "ours", "theirs")
	if err != nil || len(m.Conflicts) != 0 {
		t.Fatalf("clean merge: %+v, %v", m, err)
	}
	if got := r.Git("show", m.Tree+":f") + r.Git("show", m.Tree+":a.txt"); got != "1\n2\nthreeours" {
		t.Errorf("merged %q", got)
	}
	r.Sh("echo theirs >a.txt; git commit -qam more")
	m, err = at.MergeTrees(t.Context(), "ours", "theirs")
	if err != nil || !slices.Equal(m.Conflicts, []string{"a.txt"}) || len(m.Messages) == 0 {
		t.Errorf("conflict: %+v, %v", m, err)
	}
}

func TestBatch(t *testing.T) {
	r := oracle.NewRepo(t)
	id := r.Git("rev-parse", "HEAD:a.txt")
	b := open(t, r).OpenBatch(t.Context())
	defer b.Close()
	missing := strings.Repeat("0", 39) + "1"
	stats, err := b.StatObjects(t.Context(), []string{id, missing, "HEAD"})
	if err != nil || stats[0] != (git.ObjectStat{Type: "blob", Size: 3}) || stats[1].Type != "" || stats[2].Type != "commit" {
		t.Errorf("stats %+v, %v", stats, err)
	}
	if _, err := b.Object(t.Context(), missing); !errors.Is(err, agents.ErrNotFound) {
		t.Errorf("missing: %v", err)
	}
	for range 2 {
		var out bytes.Buffer
		if _, err := b.CopyObject(t.Context(), id, &out); err != nil || out.String() != "v1\n" {
			t.Errorf("object %q, %v", out.String(), err)
		}
	}
	many := slices.Repeat([]string{id}, 20000)
	if stats, err := b.StatObjects(t.Context(), many); err != nil || len(stats) != len(many) {
		t.Errorf("%d stats, %v", len(stats), err)
	}
	b.Close()
	b.Close()
}

func TestIndexFlags(t *testing.T) {
	r := oracle.NewRepo(t)
	r.Write("s", "s")
	r.Write("plain", "p")
	r.Commit("more")
	r.Sh("git update-index --assume-unchanged a.txt; git update-index --skip-worktree s")
	entries, err := open(t, r).Index(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.AssumeValid != (e.Path == "a.txt") || e.SkipWorktree != (e.Path == "s") || e.Mode != git.ModeFile {
			t.Errorf("entry %+v", e)
		}
	}
}

func TestCancelledCallLeavesNoLock(t *testing.T) {
	r := oracle.NewRepo(t)
	at := open(t, r)
	ctx, cancel := context.WithCancel(t.Context())
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	defer out.Close()
	fmt.Fprintf(out, "start\ncreate refs/heads/x %s\nprepare\n", r.Git("rev-parse", "HEAD"))
	lock := filepath.Join(r.Dir, ".git/refs/heads/x.lock")
	go func() {
		for !present(lock) {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(200 * time.Millisecond) // git notes the lock a moment after it made it
		cancel()
	}()
	if _, err := at.Feed(ctx, in, "update-ref", "--stdin"); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want canceled", err)
	}
	if present(lock) {
		t.Error("the lock was left behind")
	}
}

// A change of references that has begun is not stopped: git, killed between
// making a lock file and noting it, would leave the lock in the user's
// repository.
func TestCancelledRefChangeRunsToItsEnd(t *testing.T) {
	r := oracle.NewRepo(t)
	head := r.Git("rev-parse", "HEAD")
	slow := filepath.Join(t.TempDir(), "git")
	ctx, cancel := context.WithCancel(t.Context())
	begun := slow + ".begun"
	script := "#!/bin/sh\ncase \" $* \" in *' update-ref '*) : >'" + begun + "'; sleep 0.3;; esac\nexec git \"$@\"\n"
	if err := os.WriteFile(slow, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	go func() {
		for !present(begun) {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	at := open(t, r)
	at.Git = &git.Runner{Program: slow}
	if err := at.UpdateRefs(ctx, "", git.RefChange{Ref: "refs/heads/x", New: head}); err != nil {
		t.Fatal(err)
	}
	if ctx.Err() == nil {
		t.Fatal("the call ended before it was cancelled")
	}
	if got := r.Git("rev-parse", "refs/heads/x"); got != head {
		t.Errorf("x is at %s, want %s", got, head)
	}
	if err := at.UpdateRefs(ctx, "", git.RefChange{Ref: "refs/heads/y", New: head}); !errors.Is(err, context.Canceled) {
		t.Errorf("a call that was cancelled before it began: %v", err)
	}
}

func present(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
