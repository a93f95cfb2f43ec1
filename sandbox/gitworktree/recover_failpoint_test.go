//go:build failpoint

package gitworktree_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/oracle"
	"github.com/cleveragents/agents/sandbox"
	"github.com/cleveragents/agents/sandbox/gitworktree"
)

// order is what the child process is to do.
type order struct {
	Do      string
	Work    sandbox.Workspace
	Request sandbox.ApplyRequest
}

// TestChildOfApply is the process that is killed. It is no test of its own.
func TestChildOfApply(t *testing.T) {
	text := os.Getenv("TEST_APPLY_ORDER")
	if text == "" {
		t.Skip("runs as a child only")
	}
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		t.Fatal(err)
	}
	s, ctx := gitworktree.New(), context.Background()
	var err error
	switch o.Do {
	case "apply":
		_, err = s.Apply(ctx, o.Work, o.Request)
	case "undo":
		err = s.Undo(ctx, o.Work, o.Request.JournalDir)
	case "recover":
		_, err = s.Recover(ctx, o.Work, o.Request.JournalDir)
	}
	if err != nil {
		fmt.Println("outcome:", err)
		os.Exit(3)
	}
	os.Exit(0)
}

// scene is a user's repository with a plan, to be copied for every kill.
type scene struct {
	dir  string
	t    *testing.T
	plan plan
}

// newScene has staged and unstaged edits elsewhere in the tree.
func newScene(t *testing.T, placeholder bool) *scene {
	dir := t.TempDir()
	r := oracle.EmptyRepo(t, filepath.Join(dir, "repo"))
	for _, n := range []string{"a.txt", "del/gone", "other.txt", "staged.txt", "tolink"} {
		r.Write(n, n+"\n")
	}
	r.Commit("base")
	p := newPlan(t, r, "main", func(w *oracle.Repo) {
		w.Write("a.txt", "plan\n")
		w.Write("new/n", "new\n")
		w.Sh("rm -r del; rm tolink; ln -s a.txt tolink")
	})
	r.Write("staged.txt", "staged\n")
	r.Git("add", "staged.txt")
	r.Write("staged.txt", "staged and edited\n")
	r.Write("other.txt", "edited\n")
	r.Write("untracked", "mine\n")
	if placeholder {
		p.placeholder()
	}
	s := &scene{dir: dir, t: t, plan: *p}
	s.plan.journal, s.plan.ws.PrivateDir = filepath.Join(dir, "journal"), filepath.Join(dir, "private")
	for _, d := range []string{s.plan.journal, s.plan.ws.PrivateDir} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// copy is the scene at another place.
func (s *scene) copy(t *testing.T) *plan {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "c")
	if out, err := exec.Command("cp", "-a", s.dir, dir).CombinedOutput(); err != nil {
		t.Fatalf("copy: %v %s", err, out)
	}
	for _, name := range []string{"begin.json", "intent.json"} { // these name places
		path := filepath.Join(dir, "journal", name)
		if b, err := os.ReadFile(path); err == nil {
			if err := os.WriteFile(path, bytes.ReplaceAll(b, []byte(s.dir), []byte(dir)), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	p := s.plan
	p.t, p.r = t, oracle.At(t, filepath.Join(dir, "repo"))
	p.journal, p.ws.PrivateDir, p.ws.Resource.Location = filepath.Join(dir, "journal"), filepath.Join(dir, "private"), p.r.Dir
	return &p
}

// run runs a child that fails at the n-th outside effect. It reports whether
// that was reached, and how the child ended.
func (p *plan) run(do, failpoint string) (reached bool, err error) {
	p.t.Helper()
	text, err := json.Marshal(order{do, p.ws, p.request()})
	if err != nil {
		p.t.Fatal(err)
	}
	trace := filepath.Join(filepath.Dir(p.journal), "trace")
	cmd := exec.Command(os.Args[0], "-test.run=^TestChildOfApply$")
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, "HOME=") }),
		"HOME="+filepath.Dir(p.journal), "TEST_APPLY_ORDER="+string(text), "CLEVERAGENTS_FAILPOINT="+failpoint, "CLEVERAGENTS_FAILPOINT_LOG="+trace)
	out, err := cmd.CombinedOutput()
	log, _ := os.ReadFile(trace)
	n, _, _ := strings.Cut(failpoint, ":")
	line := ""
	for l := range strings.Lines(string(log)) {
		if strings.HasPrefix(l, n+" ") {
			reached, line = true, strings.TrimSpace(l)
		}
	}
	_ = os.Remove(trace)
	var exit *exec.ExitError
	switch {
	case err == nil:
		return reached, nil
	case errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL:
		return reached, fmt.Errorf("killed at %s", line)
	case errors.As(err, &exit) && exit.ExitCode() == 3:
		return reached, fmt.Errorf("at %s: %s", line, out)
	}
	p.t.Fatalf("child: %v\n%s", err, out)
	return false, nil
}

// raw is everything in the user's repository but objects, and reflogs, which
// tell of moves there and back.
func raw(t *testing.T, r *oracle.Repo) []string {
	return oracle.Digest(t, r.Dir, ".git/objects", ".git/logs")
}

// everyFault calls try with 1, 2, 3 … until there are no more outside effects
// at which kind could happen; below from, where nothing of the user's is
// touched yet, with every fifth only. Errors, which meet the same code again
// and again, come at every third.
func everyFault(t *testing.T, kind string, from int, try func(t *testing.T, n int, failpoint string) (reached bool)) {
	t.Helper()
	const atATime = 8
	for n := 1; ; {
		var hits []int
		for len(hits) < atATime {
			hits = append(hits, n)
			switch n++; {
			case n < from:
				n += 4
			case kind != "kill":
				n += 2
			}
		}
		ended := make([]bool, len(hits))
		t.Run("", func(t *testing.T) {
			for i, hit := range hits {
				t.Run(fmt.Sprintf("%d-%s", hit, kind), func(t *testing.T) {
					t.Parallel()
					ended[i] = !try(t, hit, fmt.Sprintf("%d:%s", hit, kind))
				})
			}
		})
		if t.Failed() {
			t.FailNow()
		}
		if i := slices.Index(ended, true); i >= 0 {
			if hits[i] == 1 {
				t.Fatal("no outside effect was reached at all")
			}
			t.Logf("the outside effects ended before %d", hits[i])
			return
		}
		if n > 1000 {
			t.Fatal("no end of outside effects")
		}
	}
}

// outcomes are what the repository may be after recovery.
type outcomes struct {
	beforeState []string
	afterState  []string
}

// recovered recovers twice and checks that the result is one of the two.
func (p *plan) recovered(how error, o outcomes) agents.ApplyState {
	p.t.Helper()
	first, err := p.s.Recover(context.Background(), p.ws, p.journal)
	if err != nil {
		p.t.Fatalf("%v: recover: %v", how, err)
	}
	want := o.beforeState
	if first.State == agents.ApplyApplied {
		want = o.afterState
		if p.r.Git("rev-parse", "HEAD") != first.Commit {
			p.t.Errorf("%v: recover names commit %q", how, first.Commit)
		}
	}
	same(p.t, fmt.Sprintf("%v: recovered to %s", how, first.State), want, state(p.t, p.r))
	p.noLeftovers(how)
	second, err := p.s.Recover(context.Background(), p.ws, p.journal)
	if err != nil || second.State != first.State {
		p.t.Errorf("%v: recovering again gives %s, %v; before it was %s", how, second.State, err, first.State)
	}
	return first.State
}

func (p *plan) noLeftovers(how error) {
	p.t.Helper()
	for _, line := range oracle.Digest(p.t, p.r.Dir) {
		if strings.Contains(line, "agents-") || strings.Contains(line, ".lock\"") {
			p.t.Errorf("%v: left behind: %s", how, line)
		}
	}
	left, _ := filepath.Glob(filepath.Join(filepath.Dir(p.r.Dir), ".agents-*"))
	if len(left) > 0 {
		p.t.Errorf("%v: left behind: %s", how, left)
	}
}

// ends are the states before and after an apply of the scene.
func (s *scene) ends(t *testing.T) outcomes {
	t.Helper()
	p := s.copy(t)
	o := outcomes{beforeState: state(t, p.r)}
	p.mustApply()
	o.afterState = state(t, p.r)
	return o
}

func TestKillApplyAnywhere(t *testing.T) {
	s := newScene(t, true)
	o := s.ends(t)
	everyFault(t, "kill", 25, func(t *testing.T, n int, failpoint string) bool {
		return killApply(t, s, o, n, failpoint)
	})
}

// Without a worktree entry the stage lies elsewhere.
func TestKillApplyWithoutEntry(t *testing.T) {
	s := newScene(t, false)
	o := s.ends(t)
	everyFault(t, "kill", 1000, func(t *testing.T, n int, failpoint string) bool {
		return killApply(t, s, o, n, failpoint)
	})
}

func killApply(t *testing.T, s *scene, o outcomes, n int, failpoint string) bool {
	p := s.copy(t)
	before := raw(t, p.r)
	reached, err := p.run("apply", failpoint)
	if !reached {
		if err != nil {
			t.Errorf("without a kill: %v", err)
		}
		return false
	}
	if err == nil {
		t.Error("the failpoint did not fire")
	}
	got := p.recovered(err, o)
	if got == agents.ApplyReverted {
		same(t, "every byte but objects", before, raw(t, p.r))
		if left, _ := os.ReadDir(p.journal); len(left) > 0 {
			t.Errorf("%v: the journal is not empty: %v", err, left)
		}
	}
	switch {
	case n%4 != 0:
	case got == agents.ApplyApplied:
		p.mustUndo()
		same(t, "undo after recovery", o.beforeState, state(t, p.r))
	default:
		if res, err := p.apply(); err != nil || res.State != agents.ApplyApplied {
			t.Errorf("applying again: %+v, %v", res, err)
		}
		same(t, "apply after recovery", o.afterState, state(t, p.r))
	}
	return true
}

func TestKillUndoAnywhere(t *testing.T) {
	s := newScene(t, true)
	o := outcomes{beforeState: state(t, s.plan.r)}
	if _, err := s.plan.apply(); err != nil {
		t.Fatal(err)
	}
	o.afterState = state(t, s.plan.r)
	everyFault(t, "kill", 15, func(t *testing.T, n int, failpoint string) bool {
		p := s.copy(t)
		reached, err := p.run("undo", failpoint)
		if !reached {
			if err != nil {
				t.Errorf("without a kill: %v", err)
			}
			return false
		}
		if p.recovered(err, o) == agents.ApplyApplied && n%4 == 0 {
			p.mustUndo()
			same(t, "undo after recovery", o.beforeState, state(t, p.r))
		}
		return true
	})
}

// Recover can be killed, too.
func TestKillRecoverAnywhere(t *testing.T) {
	for where, name := range map[string]string{
		"among the files": "fsx.exchange", "after the ref": "git.write update-ref", "with the lock": "fsx.link", "at the end": "done.json",
	} {
		t.Run(where, func(t *testing.T) {
			s := newScene(t, true)
			o := s.ends(t)
			at := hitOf(t, s.copy(t), name)
			everyFault(t, "kill", 40, func(t *testing.T, _ int, failpoint string) bool {
				p := s.copy(t)
				_, first := p.run("apply", fmt.Sprintf("%d:kill", at))
				if first == nil {
					t.Fatal("the first kill did not fire")
				}
				reached, err := p.run("recover", failpoint)
				if reached {
					p.recovered(errors.Join(first, err), o)
				}
				return reached
			})
		})
	}
}

// hitOf returns the number of the hit after the last one whose line has this text.
func hitOf(t *testing.T, p *plan, text string) int {
	t.Helper()
	trace := filepath.Join(t.TempDir(), "trace")
	order, _ := json.Marshal(order{"apply", p.ws, p.request()})
	cmd := exec.Command(os.Args[0], "-test.run=^TestChildOfApply$")
	cmd.Env = append(os.Environ(), "TEST_APPLY_ORDER="+string(order), "CLEVERAGENTS_FAILPOINT_LOG="+trace)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("child: %v\n%s", err, out)
	}
	log, err := os.ReadFile(trace)
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.Split(log, []byte("\n"))
	for i := len(lines) - 1; i >= 0; i-- {
		if bytes.Contains(bytes.ReplaceAll(lines[i], []byte(`"`), nil), []byte(text)) {
			return i + 2
		}
	}
	t.Fatalf("no hit of %s in\n%s", text, log)
	return 0
}

// What the user did between the kill and the recovery stays.
func TestKillApplyThenUserGoesOn(t *testing.T) {
	s := newScene(t, true)
	everyFault(t, "kill", 40, func(t *testing.T, _ int, failpoint string) bool {
		p := s.copy(t)
		reached, err := p.run("apply", failpoint)
		if !reached {
			return false
		}
		p.r.Write("a.txt", "edited after the kill\n")
		p.r.Write("other.txt", "edited again\n")
		p.r.Write("fresh", "fresh\n")
		p.r.Sh("rm -f .git/index.lock; echo theirs >.git/index.lock")
		if _, rerr := p.s.Recover(context.Background(), p.ws, p.journal); rerr != nil && !errors.Is(rerr, agents.ErrLocked) {
			t.Errorf("%v: recover: %v", err, rerr)
		}
		if p.r.Read(".git/index.lock") != "theirs\n" {
			t.Errorf("%v: the user's lock is gone", err)
		}
		p.r.Sh("rm .git/index.lock")
		got, rerr := p.s.Recover(context.Background(), p.ws, p.journal)
		if rerr != nil {
			t.Errorf("%v: recover without the lock: %v", err, rerr)
		}
		if s := p.r.Read("a.txt") + p.r.Read("other.txt") + p.r.Read("fresh"); s != "edited after the kill\nedited again\nfresh\n" {
			t.Errorf("%v: the user's edits are lost: %q", err, s)
		}
		if s := p.r.Git("diff", "--cached", "--name-only"); s != "staged.txt" {
			t.Errorf("%v: recovered to %s, but staged is %q", err, got.State, s)
		}
		p.noLeftovers(err)
		return true
	})
}

func TestFullDiskAnywhereInApply(t *testing.T) {
	s := newScene(t, true)
	o := s.ends(t)
	everyFault(t, "enospc", 1, func(t *testing.T, _ int, failpoint string) bool {
		p := s.copy(t)
		reached, err := p.run("apply", failpoint)
		if !reached {
			return false
		}
		p.recovered(err, o)
		return true
	})
}

func TestDiskErrorAnywhereInApply(t *testing.T) {
	s := newScene(t, true)
	o := s.ends(t)
	everyFault(t, "eio", 1, func(t *testing.T, _ int, failpoint string) bool {
		p := s.copy(t)
		before := raw(t, p.r)
		reached, err := p.run("apply", failpoint)
		if !reached {
			return false
		}
		if err != nil && p.r.Git("rev-parse", "HEAD") == p.r.Git("rev-parse", "main@{0}") && !strings.Contains(err.Error(), "the next call will") {
			if left, _ := os.ReadDir(p.journal); len(left) == 0 {
				same(t, fmt.Sprintf("%v: taken back at once", err), before, raw(t, p.r))
			}
		}
		p.recovered(err, o)
		return true
	})
}
