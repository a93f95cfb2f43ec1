package sandboxtest

import (
	"context"
	"sync/atomic"
	"testing"
)

// untilDone calls try with contexts that end a little later each time, until
// it says that it was done: so the call is cut off at its beginning, here and
// there in its middle, and close to its end.
func untilDone(t testing.TB, try func(ctx context.Context) bool) {
	t.Helper()
	for n := int64(0); n < 1<<20; n += 1 + n/2 {
		ctx, cancel := endAfter(t.Context(), n)
		done := try(ctx)
		cancel()
		if done {
			return
		}
	}
	t.Fatal("the call does not get done, however late it is cancelled")
}

// countdown is a context that ends when it has been asked about its end a
// number of times: a moment that does not depend on how fast the machine is.
type countdown struct {
	context.Context
	left atomic.Int64
	end  context.CancelFunc
}

func endAfter(parent context.Context, n int64) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(parent)
	c := &countdown{Context: ctx, end: cancel}
	c.left.Store(n)
	return c, cancel
}

func (c *countdown) Err() error {
	c.count()
	return c.Context.Err()
}

func (c *countdown) Done() <-chan struct{} {
	c.count()
	return c.Context.Done()
}

func (c *countdown) count() {
	if c.left.Add(-1) < 0 {
		c.end()
	}
}
