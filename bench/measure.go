//go:build unix

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// bench measures one tree.
type bench struct {
	options
	files int
	tree  string // the repository
	data  string // the data directory
	env   []string
}

func newBench(o options, kind string, files int) (*bench, error) {
	b := &bench{options: o, files: files, tree: filepath.Join(o.dir, fmt.Sprintf("%s-%d", kind, files))}
	b.data = filepath.Join(o.dir, fmt.Sprintf("data-%s-%d-%d", kind, files, os.Getpid()))
	b.env = append(os.Environ(), "CLEVERAGENTS_DATA_DIR="+b.data, "NO_COLOR=1")
	if err := os.MkdirAll(o.dir, 0o755); err != nil {
		return nil, err
	}
	fmt.Fprintf(os.Stderr, "%s of %d files …\n", kind, files)
	if kind != "repository" {
		return b, makeDirectory(b.tree, files)
	}
	return b, makeRepository(b.tree, files)
}

// repository adds the rows of a git repository. What it makes is removed at the end, never in
// between: removing a big tree makes the next one slow to create on ext4.
func (b *bench) repository(t *table) error {
	var trash []string
	defer func() {
		for _, dir := range trash {
			_ = os.RemoveAll(dir)
		}
		_ = os.RemoveAll(b.data)
	}()
	shadow, wt, err := b.creation(t, &trash)
	if err != nil {
		return err
	}
	for _, f := range []func(*table, string, time.Duration) error{b.memory, b.knownPath, b.shell, b.store} {
		if err := f(t, wt, shadow); err != nil {
			return err
		}
	}
	if err := b.rollback(t, wt); err != nil {
		return err
	}
	return b.list(t)
}

// creation times the first access of a plan against git worktree add, in turn,
// and a shadow-git checkpoint (git add -A && git commit) in such a worktree.
func (b *bench) creation(t *table, trash *[]string) (shadow time.Duration, wt string, err error) {
	defer func() { _ = command(b.tree, nil, "git", "worktree", "prune") }()
	n := 0
	var peers []time.Duration
	ours, err := median(b.runs, func() (time.Duration, error) {
		n++
		wt = filepath.Join(b.dir, fmt.Sprintf("wt-%d-%d-%d", b.files, os.Getpid(), n))
		*trash = append(*trash, wt)
		settle()
		peer, err := b.time(b.tree, "git", "worktree", "add", "-q", "--detach", wt)
		if err != nil {
			return 0, err
		}
		peers = append(peers, peer)
		plan := fmt.Sprintf("create-%d", n)
		if err := b.agents("plan", "create", "--name", plan, "-r", b.tree); err != nil {
			return 0, err
		}
		settle()
		return b.time(b.tree, b.program, "tool", "run", plan, "file-info", "--input", `{"path":"."}`)
	})
	if err != nil {
		return 0, "", err
	}
	t.against(b.files, "sandbox creation, first access (git worktree add)", ours, middle(peers), 1)
	settle()
	shadow, err = median(b.runs, func() (time.Duration, error) {
		if err := b.touch(wt); err != nil {
			return 0, err
		}
		return b.shadowCommit(wt)
	})
	return shadow, wt, err
}

// settle waits until the disk has what was written so far, which would slow
// down whatever is timed next.
func settle() { _ = exec.Command("sync").Run() }

// memory takes the peak of a call with two checkpoints, both with a full scan.
func (b *bench) memory(t *table, _ string, _ time.Duration) error {
	plan := fmt.Sprintf("memory-%d", os.Getpid())
	if err := b.agents("plan", "create", "--name", plan, "-r", b.tree); err != nil {
		return err
	}
	if err := b.agents("plan", "exec", plan, "--", "true"); err != nil {
		return err
	}
	used, err := b.agentsMemory("plan", "exec", plan, "--", "sh", "-c", "echo x >> "+filePath(b.files/3))
	if err != nil {
		return err
	}
	settle()
	t.amount(b.files, "peak memory of checkpoints after a shell command", float64(used)/1024, 150, "MB")
	return nil
}

// touch changes one file of a tree.
func (b *bench) touch(dir string) error {
	f, err := os.OpenFile(filepath.Join(dir, filePath(b.files/2)), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, time.Now().UnixNano())
	return errors.Join(err, f.Close())
}

func (b *bench) shadowCommit(wt string) (time.Duration, error) {
	return b.time(wt, "sh", "-c", "git add -A && git commit -q --no-verify -m checkpoint")
}

// knownPath times a file tool's call with its checkpoints, where the runner
// was the only possible writer: the difference between plans of many and few
// such steps, in one process each.
func (b *bench) knownPath(t *table, _ string, shadow time.Duration) error {
	per, err := b.perStep("builtin/file-write", func(i int) string {
		return fmt.Sprintf(`{path: %q, content: "step %d\n"}`, filePath(i*37), i)
	})
	if err != nil {
		return err
	}
	t.against(b.files, "checkpoint after a file tool, known path (shadow git commit)", per, shadow, 0.1)
	return nil
}

func (b *bench) shell(t *table, _ string, shadow time.Duration) error {
	per, err := b.perStep("builtin/shell", func(i int) string {
		return fmt.Sprintf(`{command: "echo %d >> %s"}`, i, filePath(i*37))
	})
	if err != nil {
		return err
	}
	t.against(b.files, "checkpoint after a shell command, full scan (shadow git commit)", per, shadow, 0.4)
	return nil
}

// perStep returns the time that one more step of a plan costs: the moments at
// which the steps of one long execution were done, ten apart, divided by ten.
func (b *bench) perStep(tool string, with func(i int) string) (time.Duration, error) {
	const first, apart = 2, 10
	name := strings.TrimPrefix(tool, "builtin/") + fmt.Sprintf("-%d", os.Getpid())
	var y strings.Builder
	fmt.Fprintf(&y, "name: bench/%s\nsteps:\n", name)
	for i := range first + apart*b.runs {
		fmt.Fprintf(&y, "  - {tool: %s, with: %s}\n", tool, with(i))
	}
	file := filepath.Join(b.data, "action.yaml")
	if err := os.WriteFile(file, []byte(y.String()), 0o600); err != nil {
		return 0, err
	}
	for _, args := range [][]string{
		{"action", "create", "--config", file}, {"project", "create", "p-" + name},
		{"project", "link-resource", "p-" + name, filepath.Base(b.tree)},
		{"plan", "use", "bench/" + name, "p-" + name, "--name", name}, {"plan", "exec", name, "--", "true"},
	} {
		if err := b.agents(args...); err != nil {
			return 0, err
		}
	}
	settle()
	if err := b.agents("plan", "execute", name); err != nil {
		return 0, err
	}
	var doc struct {
		Events []struct {
			Kind      string
			CreatedAt time.Time `json:"created_at"`
		}
	}
	if err := b.query(&doc, "plan", "events", name); err != nil {
		return 0, err
	}
	var done []time.Time
	for _, e := range doc.Events {
		if e.Kind == "tool.done" {
			done = append(done, e.CreatedAt)
		}
	}
	if len(done) != 1+first+apart*b.runs {
		return 0, fmt.Errorf("%d calls are done, want %d", len(done), 1+first+apart*b.runs)
	}
	done = done[1:] // the call that made the sandbox
	at := first - 1
	return median(b.runs, func() (time.Duration, error) {
		at += apart
		return done[at].Sub(done[at-apart]) / apart, nil
	})
}

// store sizes the payloads of fifty one-file checkpoints.
func (b *bench) store(t *table, _ string, _ time.Duration) error {
	plan := fmt.Sprintf("store-%d", os.Getpid())
	if err := b.agents("plan", "create", "--name", plan, "-r", b.tree); err != nil {
		return err
	}
	var changed int64
	for i := range 50 {
		path := filePath(i * 11)
		if err := b.agents("plan", "exec", plan, "--", "sh", "-c", fmt.Sprintf("echo %d >> %s", i, path)); err != nil {
			return err
		}
		fi, err := os.Stat(filepath.Join(b.tree, path))
		if err != nil {
			return err
		}
		changed += fi.Size()
	}
	id, err := b.planID(plan)
	if err != nil {
		return err
	}
	bytes := float64(treeSize(filepath.Join(b.data, "checkpoints", id)))
	t.amount(b.files, "store after 50 one-file checkpoints", bytes/1e6, (2*float64(changed)+5e6)/1e6, "MB")
	return nil
}

// rollback times going back over ten changed files against git reset and clean.
func (b *bench) rollback(t *table, wt string) error {
	var files []string
	for i := range 10 {
		files = append(files, filePath(i*101))
	}
	change := "for f in " + strings.Join(files, " ") + "; do echo x >> $f; done"
	peer, err := median(b.runs, func() (time.Duration, error) {
		if err := command(wt, b.env, "sh", "-c", change); err != nil {
			return 0, err
		}
		return b.time(wt, "sh", "-c", "git reset -q --hard && git clean -q -fdx")
	})
	if err != nil {
		return err
	}
	plan := fmt.Sprintf("rollback-%d", os.Getpid())
	if err := b.agents("plan", "create", "--name", plan, "-r", b.tree); err != nil {
		return err
	}
	ours, err := median(b.runs, func() (time.Duration, error) {
		if err := b.agents("plan", "exec", plan, "--", "sh", "-c", change); err != nil {
			return 0, err
		}
		first, err := b.firstCheckpoint(plan)
		if err != nil {
			return 0, err
		}
		return b.time(b.tree, b.program, "plan", "rollback", "-y", plan, first)
	})
	if err != nil {
		return err
	}
	t.against(b.files, "rollback of ten files (git reset --hard && git clean -fdx)", ours, peer, 1.5)
	return nil
}

// list times a cold start.
func (b *bench) list(t *table) error {
	peer, err := median(b.runs*4, func() (time.Duration, error) { return b.time(b.tree, "git", "--version") })
	if err != nil {
		return err
	}
	ours, err := median(b.runs*4, func() (time.Duration, error) { return b.time(b.tree, b.program, "plan", "list") })
	if err != nil {
		return err
	}
	t.against(b.files, "agents plan list, cold start (git --version)", ours, peer, 10)
	return nil
}

func (b *bench) planID(name string) (string, error) {
	var doc struct {
		Plan struct {
			PlanID string `json:"plan_id"`
		}
	}
	err := b.query(&doc, "plan", "status", name)
	return doc.Plan.PlanID, err
}

func (b *bench) firstCheckpoint(plan string) (string, error) {
	var doc struct {
		Checkpoints []struct {
			CheckpointID string `json:"checkpoint_id"`
		}
	}
	if err := b.query(&doc, "plan", "checkpoint", "list", plan); err != nil {
		return "", err
	}
	if len(doc.Checkpoints) == 0 {
		return "", errors.New("no checkpoint")
	}
	return doc.Checkpoints[0].CheckpointID, nil
}

// query reads the program's JSON answer into doc.
func (b *bench) query(doc any, args ...string) error {
	cmd := exec.Command(b.program, append(args, "--format", "json")...)
	cmd.Dir, cmd.Env = b.tree, b.env
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("%s: %w", strings.Join(args, " "), err)
	}
	return json.Unmarshal(out, doc)
}

// time runs a command and returns how long it took.
func (b *bench) time(dir, name string, args ...string) (time.Duration, error) {
	started := time.Now()
	err := command(dir, b.env, name, args...)
	return time.Since(started), err
}

func (b *bench) agents(args ...string) error { return command(b.tree, b.env, b.program, args...) }

// agentsMemory runs the program and returns its peak resident set in KiB.
func (b *bench) agentsMemory(args ...string) (int64, error) {
	cmd := exec.Command(b.program, args...)
	cmd.Dir, cmd.Env = b.tree, b.env
	if out, err := cmd.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, out)
	}
	usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	if !ok {
		return 0, errors.New("no resource usage on this system")
	}
	return usage.Maxrss, nil
}

func command(dir string, env []string, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = dir, env
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, out)
	}
	return nil
}

func treeSize(dir string) (bytes int64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if fi, err := d.Info(); err == nil {
				bytes += fi.Size()
			}
		}
		return nil
	})
	return bytes
}
