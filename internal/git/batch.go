package git

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"sync"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/failpoint"
)

// Batch reads objects through one git process, which is started by the first
// question. It serves one goroutine at a time.
type Batch struct {
	repo Repo
	ctx  context.Context // of the process, not of a question
	stop context.CancelFunc

	cmd     *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
	unwatch func() bool
	killed  chan struct{} // closed when the context's end has killed the process
	close   sync.Once
}

// Object is one object's content.
type Object struct {
	ID   string
	Type string // blob, tree, commit, tag
	Data []byte
}

// OpenBatch returns a reader of objects, whose process ends with Close or ctx.
func (r Repo) OpenBatch(ctx context.Context) *Batch {
	b := &Batch{repo: r}
	b.ctx, b.stop = context.WithCancel(ctx)
	return b
}

// start runs the process.
func (b *Batch) start() error {
	if b.cmd != nil {
		return b.ctx.Err()
	}
	if err := b.repo.runner().check(b.ctx); err != nil {
		return err
	}
	call := Call{Args: []string{"cat-file", "--batch-command"}}
	if err := failpoint.Hit(call.op(), strings.Join(call.Args, " ")); err != nil {
		return err
	}
	cmd := b.repo.command(call)
	isolate(cmd, false) // it ends when its input does
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return &Error{Args: call.Args, ExitCode: -1, Err: err}
	}
	b.cmd, b.in, b.out = cmd, in, bufio.NewReaderSize(out, 64<<10)
	b.killed = make(chan struct{})
	b.unwatch = context.AfterFunc(b.ctx, func() {
		killGroup(cmd.Process.Pid)
		close(b.killed)
	})
	return nil
}

// ask sends one command and reads the first line of the answer.
func (b *Batch) ask(command, id string) (Object, int64, error) {
	if strings.ContainsAny(id, "\n ") || id == "" {
		return Object{}, 0, fmt.Errorf("object %q: %w", id, agents.ErrInvalid)
	}
	if err := b.start(); err != nil {
		return Object{}, 0, err
	}
	if _, err := io.WriteString(b.in, command+" "+id+"\n"); err != nil {
		return Object{}, 0, fmt.Errorf("ask for object %s: %w", id, err)
	}
	line, err := b.out.ReadString('\n')
	if err != nil {
		return Object{}, 0, fmt.Errorf("read object %s: %w", id, err)
	}
	f := strings.Fields(line)
	if len(f) != 3 {
		return Object{}, 0, fmt.Errorf("object %s: %w", id, agents.ErrNotFound)
	}
	size, err := strconv.ParseInt(f[2], 10, 64)
	if err != nil {
		return Object{}, 0, fmt.Errorf("object %s has size %q: %w", id, f[2], agents.ErrDamaged)
	}
	return Object{ID: f[0], Type: f[1]}, size, nil
}

// StatObject returns an object's type and size in bytes. One that is missing
// is agents.ErrNotFound, and the batch goes on.
func (b *Batch) StatObject(ctx context.Context, id string) (kind string, size int64, err error) {
	if err := ctx.Err(); err != nil {
		return "", 0, err
	}
	o, size, err := b.ask("info", id)
	return o.Type, size, err
}

// CopyObject writes an object's content to w, and returns what StatObject
// does. After an error of w the batch cannot be used any more.
func (b *Batch) CopyObject(ctx context.Context, id string, w io.Writer) (kind string, size int64, err error) {
	if err := ctx.Err(); err != nil {
		return "", 0, err
	}
	o, size, err := b.ask("contents", id)
	if err != nil {
		return "", 0, err
	}
	if _, err := io.CopyN(w, b.out, size); err != nil {
		return "", 0, fmt.Errorf("read object %s: %w", id, err)
	}
	if _, err := b.out.Discard(1); err != nil {
		return "", 0, fmt.Errorf("read object %s: %w", id, err)
	}
	return o.Type, size, nil
}

// Object reads one whole object into memory.
func (b *Batch) Object(ctx context.Context, id string) (Object, error) {
	var data bytes.Buffer
	kind, _, err := b.CopyObject(ctx, id, &data)
	return Object{ID: id, Type: kind, Data: data.Bytes()}, err
}

// Close ends the process. It may be called more than once, and without any
// question before.
func (b *Batch) Close() {
	b.close.Do(func() {
		defer b.stop()
		if b.cmd == nil {
			return
		}
		_ = b.in.Close()
		if b.unwatch() {
			killGroup(b.cmd.Process.Pid)
		} else {
			<-b.killed
		}
		_ = b.cmd.Wait()
	})
}
