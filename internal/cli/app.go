// Package cli is the command line: one file a command, which turns flags into
// an options struct and runs it. Results go to package view, errors to exit
// codes; what a command does, package engine does.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/charmbracelet/colorprofile"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/cleveragents/agents/internal/view"
)

// sameSignal is how long another signal counts as the first one.
const sameSignal = 300 * time.Millisecond

// Main runs the program with these arguments, without its name, and returns
// its exit code.
func Main(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	// A second signal ends the program at once; one that comes with the first,
	// as from timeout, which signals the process and its group, is the same one.
	context.AfterFunc(ctx, func() { time.AfterFunc(sameSignal, stop) })

	a := &app{in: os.Stdin, out: os.Stdout, err: os.Stderr, started: time.Now()}
	return a.main(ctx, args)
}

// app is one run of the program.
type app struct {
	in       *os.File
	out, err *os.File
	started  time.Time
	command  string // without the program's name
	code     int
	session  *session // nil until a command opens it

	// The flags of every command.
	format  string // "" = rich on a terminal, else plain
	dataDir string
	quiet   bool
	noColor bool

	informing sync.Mutex
	informed  []string // what the engine has said
}

func (a *app) main(ctx context.Context, args []string) int {
	root := newRoot(a)
	root.SetArgs(args)
	root.SetOut(a.out)
	root.SetErr(a.err)
	cmd, err := root.ExecuteContextC(ctx)
	if err != nil {
		// Commands print their own outcome; what comes back is a usage error.
		a.adoptFormat(args)
		a.command = commandName(cmd)
		a.emit(ctx, view.Document{}, usage(root, cmd, args, err))
	}
	if a.session != nil {
		a.session.close()
	}
	return a.code
}

// do runs a command's work and prints its outcome.
func (a *app) do(cmd *cobra.Command, work func(ctx context.Context) (view.Document, error)) error {
	a.command = commandName(cmd)
	ctx := cmd.Context()
	doc, err := work(ctx)
	a.emit(ctx, doc, err)
	return nil
}

// with is do for work that needs the session and nothing before it.
func (a *app) with(cmd *cobra.Command, m mode, work func(ctx context.Context, s *session) (view.Document, error)) error {
	return a.do(cmd, func(ctx context.Context) (view.Document, error) {
		s, err := a.open(ctx, m)
		if err != nil {
			return view.Document{}, err
		}
		return work(ctx, s)
	})
}

// emit prints the outcome and sets the exit code.
func (a *app) emit(ctx context.Context, doc view.Document, err error) {
	if err != nil {
		doc.Problem = problem(err)
		if !strings.HasPrefix(doc.Problem.Hint, "usage: ") {
			doc.Problem.Hint = a.literally(doc.Problem.Hint)
		}
		doc.ExitCode = exitCode(ctx, err)
	}
	for _, sentence := range a.informed {
		if !slices.Contains(doc.Messages, sentence) {
			doc.Messages = append(doc.Messages, sentence)
		}
	}
	doc.Command, doc.Started, doc.Elapsed = a.command, a.started, time.Since(a.started)
	a.code = doc.ExitCode
	if werr := a.print(doc); werr != nil {
		fmt.Fprintln(a.err, "Error: write the result:", werr)
		a.code = max(a.code, 1)
	}
	if err != nil && !a.view().Structured() {
		a.complain(doc.Problem)
	}
}

func (a *app) print(doc view.Document) error {
	switch f := a.view(); f {
	case view.JSON:
		return doc.WriteJSON(a.out)
	case view.YAML:
		return doc.WriteYAML(a.out)
	default:
		return doc.WriteText(a.plainWriter(a.out), f, a.width(a.out))
	}
}

func (a *app) complain(p *view.Problem) {
	w := a.plainWriter(a.err)
	fmt.Fprintln(w, "Error: "+view.Clean(p.Message))
	if p.Hint != "" {
		fmt.Fprintln(w, "Hint: "+view.Clean(p.Hint))
	}
}

// tell prints blocks for people to standard error, beside the result.
func (a *app) tell(blocks []view.Block) {
	if a.quiet || a.view().Structured() {
		return
	}
	// What cannot be told is no reason to fail.
	_ = view.Document{Blocks: blocks}.WriteText(a.plainWriter(a.err), a.viewOn(a.err), a.width(a.err))
}

// notify prints a sentence to standard error.
func (a *app) notify(sentence string) {
	if !a.quiet {
		fmt.Fprintln(a.err, view.Clean(sentence))
	}
}

// inform is notify for what the engine says of the work: the result has it too.
func (a *app) inform(sentence string) {
	a.notify(sentence)
	a.informing.Lock()
	defer a.informing.Unlock()
	a.informed = append(a.informed, sentence)
}

// unsaid are the messages that nobody has seen on standard error.
func (a *app) unsaid(messages []string) []string {
	return slices.DeleteFunc(slices.Clone(messages), func(m string) bool { return slices.Contains(a.informed, m) })
}

// view is the format of the result.
func (a *app) view() view.Format { return a.viewOn(a.out) }

// viewOn is the format of what goes to f.
func (a *app) viewOn(f *os.File) view.Format {
	switch {
	case a.format != "":
		return view.Format(a.format)
	case isTerminal(f):
		return view.Rich
	}
	return view.Plain
}

// adoptFormat takes --format from the arguments where they could not be parsed.
func (a *app) adoptFormat(args []string) {
	if a.format != "" {
		return
	}
	for i, arg := range args {
		value, ok := strings.CutPrefix(arg, "--format=")
		if arg == "--format" && i+1 < len(args) {
			value, ok = args[i+1], true
		}
		if arg == "--" {
			return
		}
		if f, err := view.ParseFormat(value); ok && err == nil {
			a.format = string(f)
		}
	}
}

// plainWriter writes text to f and takes away the colours that f cannot show.
func (a *app) plainWriter(f *os.File) io.Writer {
	w := colorprofile.NewWriter(f, os.Environ())
	if a.noColor {
		w.Profile = colorprofile.NoTTY
	}
	return w
}

// width is the width of a terminal; 0 = f is none.
func (a *app) width(f *os.File) int {
	w, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return w
}

func isTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// interactive reports whether somebody is there to answer.
func (a *app) interactive() bool { return isTerminal(a.in) && isTerminal(a.err) }

// beat says that the work goes on where nothing else does: first after less
// than two seconds, so that nobody wonders (B122), then now and then.
func (a *app) beat(what string) (stop func()) {
	done := make(chan struct{})
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		wait := 1500 * time.Millisecond
		for {
			timer := time.NewTimer(wait)
			select {
			case <-done:
				timer.Stop()
				return
			case <-timer.C:
				a.notify(fmt.Sprintf("%s … %d s", what, int(time.Since(a.started).Seconds())))
				wait = 10 * time.Second
			}
		}
	}()
	return func() { close(done); <-finished }
}

// errDeclined says that the user answered no.
var errDeclined = errors.New("not confirmed; nothing was changed")

func commandName(cmd *cobra.Command) string {
	if cmd == nil {
		return ""
	}
	_, name, _ := strings.Cut(cmd.CommandPath(), " ")
	return name
}
