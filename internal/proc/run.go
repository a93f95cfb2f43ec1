package proc

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	agents "github.com/cleveragents/agents"
)

// killWait bounds how long processes may take to go after SIGKILL.
const killWait = 10 * time.Second

// run is one call of Run.
type run struct {
	Command
	path     string
	cmd      *exec.Cmd
	fam      *family
	streams  streams
	ended    chan error // what waiting for the command itself returned
	timedOut bool
	notices  []string
}

// do runs the command from start to finish.
func (r *run) do(ctx context.Context) (Result, error) {
	if err := ctx.Err(); err != nil {
		return Result{ExitCode: exitCannotStart}, fmt.Errorf("run %s: %w", r.name(), agents.ErrInterrupted)
	}
	r.prepare()
	defer r.fam.leave()
	if err := r.streams.connect(r); err != nil {
		return Result{ExitCode: exitCannotStart}, fmt.Errorf("run %s: %w", r.name(), err)
	}
	if err := r.start(); err != nil {
		r.streams.abandon()
		return Result{ExitCode: exitCannotStart}, fmt.Errorf("run %s: %w: %w", r.name(), plain(err), agents.ErrToolFailed)
	}
	r.streams.started()

	waitErr := r.wait(ctx)
	endErr := r.settle(ctx)
	r.notices = append(r.notices, r.streams.finish()...)
	return r.outcome(ctx, waitErr, endErr)
}

// prepare makes the command ready, but for its streams.
func (r *run) prepare() {
	mark := strings.ToLower(rand.Text()[:16])
	if outer := Getenv(r.Env, MarkVariable); outer != "" {
		mark = outer + "/" + mark
	}
	r.cmd = &exec.Cmd{
		Path: r.path,
		Args: r.Argv,
		Dir:  r.Dir,
		Env:  lastWins(append(r.Env[:len(r.Env):len(r.Env)], MarkVariable+"="+mark)),
	}
	r.fam = join(mark)
	r.fam.isolate(r)
}

// start starts the command. The thread that does so stays locked until the
// command has ended: the command dies with this program where the kernel can
// arrange that, and the kernel takes the end of the thread for it.
func (r *run) start() error {
	started := make(chan error, 1)
	r.ended = make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		done, err := Start(r.cmd)
		if err == nil {
			r.fam.started(r.cmd.Process.Pid)
		}
		started <- err
		if err == nil {
			r.fam.attend()
			r.ended <- r.cmd.Wait()
			done()
		}
	}()
	return <-started
}

// wait returns when the command itself has ended, by itself or because the
// time is up or ctx ended.
func (r *run) wait(ctx context.Context) error {
	var up <-chan time.Time
	if r.Timeout > 0 {
		t := time.NewTimer(r.Timeout)
		defer t.Stop()
		up = t.C
	}
	select {
	case err := <-r.ended:
		return err
	case <-ctx.Done():
	case <-up:
		r.timedOut = true
	}
	return r.stop()
}

// stop ends the command with SIGTERM, and SIGKILL after the grace period.
func (r *run) stop() error {
	r.fam.terminate()
	t := time.NewTimer(orDefault(r.Grace, DefaultGrace))
	defer t.Stop()
	select {
	case err := <-r.ended:
		return err
	case <-t.C:
		r.fam.kill()
		return <-r.ended
	}
}

// settle waits for what the command left behind, and ends what goes on for
// longer than it may.
func (r *run) settle(ctx context.Context) error {
	linger := max(orDefault(r.Linger, DefaultLinger), 0)
	if r.timedOut || ctx.Err() != nil {
		linger = 0
	}
	began := time.Now()
	left, waited := r.await(ctx.Done(), linger)
	if len(left) == 0 {
		if len(waited) > 0 && time.Since(began) > 100*time.Millisecond {
			r.note("waited for %s", describe(waited))
		}
		return nil
	}
	r.note("%s ended: %s", count(left), describe(left))
	r.fam.terminate()
	if left, _ = r.await(nil, orDefault(r.Grace, DefaultGrace)); len(left) == 0 {
		return nil
	}
	for deadline := time.Now().Add(killWait); time.Now().Before(deadline); {
		r.fam.kill()
		if left, _ = r.await(nil, 50*time.Millisecond); len(left) == 0 {
			return nil
		}
	}
	return fmt.Errorf("run %s: could not end %s", r.name(), describe(left))
}

// await looks again and again, for at most the time given, until no process is
// left. It returns those that are, and the first ones it saw.
func (r *run) await(stop <-chan struct{}, atMost time.Duration) (left, first []process) {
	deadline := time.Now().Add(atMost)
	for pause := time.Millisecond; ; pause = min(2*pause, 20*time.Millisecond) {
		left = r.fam.members()
		if len(left) == 0 {
			// A process may have handed over to its child while we looked.
			left = r.fam.members()
		}
		if first == nil {
			first = left
		}
		if len(left) == 0 || !time.Now().Before(deadline) {
			return left, first
		}
		select {
		case <-stop:
			return left, first
		case <-time.After(pause):
		}
	}
}

func (r *run) note(format string, args ...any) {
	r.notices = append(r.notices, fmt.Sprintf(format, args...))
}

// outcome turns how everything ended into a result and an error.
func (r *run) outcome(ctx context.Context, waitErr, endErr error) (Result, error) {
	state := r.cmd.ProcessState
	code, signal := exitCode(state)
	res := Result{
		Stdout:   r.streams.out.String(),
		Stderr:   r.streams.err.String(),
		ExitCode: code,
		TimedOut: r.timedOut,
		Notices:  r.notices,
	}
	return res, errors.Join(r.verdict(ctx, waitErr, state, signal), endErr)
}

func (r *run) verdict(ctx context.Context, waitErr error, state *os.ProcessState, signal syscall.Signal) error {
	var exit *exec.ExitError
	switch {
	case r.timedOut || errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fmt.Errorf("%s: timed out%s: %w", r.name(), r.limit(), agents.ErrToolFailed)
	case ctx.Err() != nil:
		return fmt.Errorf("%s: stopped: %w", r.name(), agents.ErrInterrupted)
	case waitErr == nil:
		return nil
	case r.TTY && signal == syscall.SIGINT:
		return fmt.Errorf("%s: stopped: %w", r.name(), agents.ErrInterrupted)
	case errors.As(waitErr, &exit):
		return fmt.Errorf("%s: %s: %w", r.name(), state, agents.ErrToolFailed)
	}
	return fmt.Errorf("%s: %w: %w", r.name(), waitErr, agents.ErrToolFailed)
}

func (r *run) limit() string {
	if r.timedOut {
		return " after " + r.Timeout.String()
	}
	return ""
}

// process is one that a command left behind.
type process struct {
	pid   int
	name  string
	start uint64 // in the kernel's ticks; tells it from a later one of the same number
}

func count(ps []process) string {
	if len(ps) == 1 {
		return "1 background process was"
	}
	return fmt.Sprintf("%d background processes were", len(ps))
}

// describe names at most eight processes.
func describe(ps []process) string {
	const most = 8
	var names []string
	for i, p := range ps {
		if i == most {
			names = append(names, fmt.Sprintf("and %d more", len(ps)-most))
			break
		}
		names = append(names, fmt.Sprintf("%s (pid %d)", p.name, p.pid))
	}
	return strings.Join(names, ", ")
}

func orDefault(d, otherwise time.Duration) time.Duration {
	if d == 0 {
		return otherwise
	}
	return d
}

// plain takes the operation and the path away from a start error, which the
// message names already.
func plain(err error) error {
	var pe *os.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}
