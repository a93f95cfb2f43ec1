package cli

import (
	"io"
	"sync"

	"github.com/cleveragents/agents/engine"
)

// live is where a command's own input and output go: the user's terminal or
// pipes, and standard error alone where standard output is for one document.
// Until the command's first output, or stop, it is said now and then that the
// work goes on; on a terminal, which is the command's alone while it runs,
// once at the beginning.
func (a *app) live(what string) (stdio engine.Stdio, stop func()) {
	stdio = engine.Stdio{In: a.in, Out: a.out, Err: a.err}
	if a.view().Structured() {
		stdio.Out = a.err
	} else if isTerminal(a.in) && isTerminal(a.out) && isTerminal(a.err) {
		stdio.TTY = true
		a.notify(what + " …")
		return stdio, func() {}
	}
	stop = sync.OnceFunc(a.beat(what))
	stdio.Out, stdio.Err = noted{stdio.Out, stop}, noted{stdio.Err, stop}
	return stdio, stop
}

// noted is a writer that calls came before anything is written.
type noted struct {
	io.Writer
	came func()
}

func (n noted) Write(p []byte) (int, error) {
	n.came()
	return n.Writer.Write(p)
}
