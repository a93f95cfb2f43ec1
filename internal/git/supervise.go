package git

import (
	"context"
	"errors"
	"os/exec"
	"runtime"
	"time"
)

// supervise runs cmd in a session of its own, so that it has no terminal to
// ask on, until it ends, ctx ends, or its processes made no progress for idle.
// In the latter two cases the whole process group is told to end, which lets
// git remove its lock files, and killed if it does not.
//
// The thread that starts the process stays locked until the process is gone:
// where the kernel can, git dies with this program, and the kernel takes the
// end of that thread for the end of the program. Not bound, git outlives it.
func supervise(ctx context.Context, cmd *exec.Cmd, idle time.Duration, bound bool) error {
	isolate(cmd, bound)
	cmd.WaitDelay = time.Second
	started := make(chan error, 1)
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			done <- cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	return watch(ctx, cmd.Process.Pid, idle, done)
}

// watch waits for the process, and looks from time to time whether it works.
func watch(ctx context.Context, pid int, idle time.Duration, done <-chan error) error {
	tick := time.NewTicker(max(idle/8, time.Millisecond))
	defer tick.Stop()
	last, since := progress(pid), time.Now()
	for {
		select {
		case err := <-done:
			if errors.Is(err, exec.ErrWaitDelay) {
				return nil // git itself ended well; something it left behind held the pipe
			}
			return err
		case <-ctx.Done():
			end(pid, done)
			return ctx.Err()
		case now := <-tick.C:
			p := progress(pid)
			if p != last || p == unknown {
				last, since = p, now
				continue
			}
			if now.Sub(since) >= idle {
				end(pid, done)
				return ErrIdle
			}
		}
	}
}

// grace is how long a process may take to end after it was told to.
const grace = 2 * time.Second

// end ends the process group and waits for the process.
func end(pid int, done <-chan error) {
	termGroup(pid)
	late := time.NewTimer(grace)
	defer late.Stop()
	select {
	case <-done:
		killGroup(pid) // what it started and left behind
	case <-late.C:
		killGroup(pid)
		<-done
	}
}

// activity is a measure of the work that a process group has done: two equal
// measures mean that it did nothing in between.
type activity struct{ cpu, io uint64 }

// unknown is the activity where the system cannot tell.
var unknown = activity{^uint64(0), ^uint64(0)}
