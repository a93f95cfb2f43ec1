package git

import (
	"bufio"
	"bytes"
	"context"
	"errors"
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

// answer reads the first line of one answer: "<id> <type> <size>", or
// "<name> missing".
func (b *Batch) answer() (stat ObjectStat, err error) {
	line, err := b.out.ReadString('\n')
	if err != nil {
		return stat, err
	}
	f := strings.Fields(line)
	if len(f) != 3 {
		return stat, nil
	}
	stat.Type = f[1]
	stat.Size, err = strconv.ParseInt(f[2], 10, 64)
	if err != nil {
		return stat, fmt.Errorf("cat-file says %q: %w", line, agents.ErrDamaged)
	}
	return stat, nil
}

// ObjectStat is an object's type and size in bytes; of a missing one the type is "".
type ObjectStat struct {
	Type string
	Size int64
}

// StatObjects returns what is known of each of ids. The questions go out while
// the answers come in.
func (b *Batch) StatObjects(ctx context.Context, ids []string) ([]ObjectStat, error) {
	if err := b.start(); err != nil {
		return nil, err
	}
	asked := make(chan error, 1)
	go func() {
		w := bufio.NewWriter(b.in)
		for _, id := range ids {
			_, _ = w.WriteString("info " + strings.Map(noSpace, id) + "\n") // Flush tells
		}
		asked <- w.Flush()
	}()
	stats := make([]ObjectStat, 0, len(ids))
	for range ids {
		stat, err := b.answer()
		if err != nil {
			b.stop() // the questions must end too
			return nil, errors.Join(ctx.Err(), err, <-asked)
		}
		stats = append(stats, stat)
	}
	return stats, errors.Join(<-asked, ctx.Err())
}

// noSpace keeps an id on its line.
func noSpace(c rune) rune {
	if c == '\n' || c == ' ' {
		return '?'
	}
	return c
}

// CopyObject writes an object's content to w. One that is missing is
// agents.ErrNotFound, and the batch goes on; after an error of w it cannot be
// used any more.
func (b *Batch) CopyObject(ctx context.Context, id string, w io.Writer) (ObjectStat, error) {
	if err := ctx.Err(); err != nil {
		return ObjectStat{}, err
	}
	if err := b.start(); err != nil {
		return ObjectStat{}, err
	}
	if _, err := io.WriteString(b.in, "contents "+strings.Map(noSpace, id)+"\n"); err != nil {
		return ObjectStat{}, fmt.Errorf("ask for object %s: %w", id, err)
	}
	stat, err := b.answer()
	switch {
	case err != nil:
		return ObjectStat{}, fmt.Errorf("read object %s: %w", id, err)
	case stat.Type == "":
		return ObjectStat{}, fmt.Errorf("object %s: %w", id, agents.ErrNotFound)
	}
	if _, err := io.CopyN(w, b.out, stat.Size); err != nil {
		return ObjectStat{}, fmt.Errorf("read object %s: %w", id, err)
	}
	if _, err := b.out.Discard(1); err != nil {
		return ObjectStat{}, fmt.Errorf("read object %s: %w", id, err)
	}
	return stat, nil
}

// Object reads one whole object into memory.
func (b *Batch) Object(ctx context.Context, id string) (Object, error) {
	var data bytes.Buffer
	stat, err := b.CopyObject(ctx, id, &data)
	return Object{ID: id, Type: stat.Type, Data: data.Bytes()}, err
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
