// Package proc runs a command of a plan to its very end: in a session or
// process group of its own, with a time limit, with its output streamed and a
// capped copy kept. When Run returns, nothing that the command started is
// alive any more, so that a state captured afterwards is complete.
//
// On Linux that includes processes that left their session or were started
// twice over to get away from their parent: while a command runs, this process
// is the reaper of orphans among its descendants. Elsewhere it is the process
// group alone.
package proc

import (
	"context"
	"io"
	"time"
)

// MarkVariable is the environment variable by which Run knows its command's
// processes again. Runs that are nested add to it.
const MarkVariable = "AGENTS_CALL"

// Defaults of Command.
const (
	DefaultGrace   = 5 * time.Second
	DefaultLinger  = 2 * time.Second
	DefaultCapture = 1 << 20
)

// Command is one run of a program.
type Command struct {
	Argv []string // the program, looked up in the PATH of Env, and its arguments
	Dir  string   // working directory; a program name with a slash is relative to it
	Env  []string // complete: nothing is inherited; see Environ

	// Stdin is the input; nil = none. An *os.File is handed over as it is.
	// Anything else is copied by a goroutine, which ends when a Read of it
	// returns after the command ended.
	Stdin  io.Reader
	Stdout io.Writer // live output; nil = none. Stdout and Stderr are never written at the same time
	Stderr io.Writer

	// TTY says that all three are *os.File and the user's terminal: the
	// command gets them as they are, and the terminal's foreground with them;
	// nothing is captured. Ctrl-C and Ctrl-Z reach the command, and a command
	// that stops takes this program's process group along.
	TTY bool

	Timeout time.Duration // 0 = none
	Grace   time.Duration // from SIGTERM to SIGKILL; 0 = DefaultGrace
	Linger  time.Duration // how long background processes may go on after the command ended; 0 = DefaultLinger, negative = not at all
	Capture int           // bytes kept of each stream; 0 = DefaultCapture
}

// Result is how a command ended.
type Result struct {
	Stdout   string // raw bytes, capped: the middle is cut, and what was cut is said
	Stderr   string
	ExitCode int      // 128 + the signal's number after a signal; 127 = not found, 126 = could not be started
	TimedOut bool     // Timeout ended it
	Notices  []string // such as: background processes were ended
}

// Run runs c and returns when the command and everything that it started has
// ended. It may be called from several goroutines.
//
// When ctx ends or the time is up, all processes get SIGTERM, and SIGKILL after
// Grace. Errors: agents.ErrInvalid for a Command that makes no sense;
// agents.ErrInterrupted when ctx was cancelled, or the command died of Ctrl-C;
// agents.ErrToolFailed for an exit code other than 0, a time limit, and a
// program that could not be started. The Result is filled in with each of them.
// Any other error says that a process could not be ended.
func Run(ctx context.Context, c Command) (Result, error) {
	if err := c.check(); err != nil {
		return Result{ExitCode: exitCannotStart}, err
	}
	path, code, err := lookup(c)
	if err != nil {
		return Result{ExitCode: code}, err
	}
	r := &run{Command: c, path: path}
	return r.do(ctx)
}
