package proc

import (
	"fmt"
	"strings"
)

// capture keeps the first and the last half of its room of what is written to
// it. It is used by one goroutine at a time.
type capture struct {
	room  int
	head  []byte
	tail  []byte // a ring once it is full
	next  int    // where the ring goes on
	total int64
}

func (c *capture) Write(p []byte) (int, error) {
	n := len(p)
	c.total += int64(n)
	if free := c.room/2 - len(c.head); free > 0 {
		k := min(free, len(p))
		c.head = append(c.head, p[:k]...)
		p = p[k:]
	}
	c.keepTail(p)
	return n, nil
}

func (c *capture) keepTail(p []byte) {
	size := c.room - c.room/2
	if len(p) > size {
		p = p[len(p)-size:]
	}
	if free := size - len(c.tail); free > 0 {
		k := min(free, len(p))
		c.tail = append(c.tail, p[:k]...)
		p = p[k:]
	}
	for len(p) > 0 {
		k := copy(c.tail[c.next:], p)
		c.next = (c.next + k) % size
		p = p[k:]
	}
}

// String returns what was kept. Where something was cut, the place and the end say so.
func (c *capture) String() string {
	var b strings.Builder
	b.Write(c.head)
	cut := c.total - int64(len(c.head)) - int64(len(c.tail))
	if cut > 0 {
		b.WriteString("\n[…]\n")
	}
	b.Write(c.tail[c.next:])
	b.Write(c.tail[:c.next])
	if cut > 0 {
		fmt.Fprintf(&b, "\n[cut: %d of %d bytes left out after the first %d]\n", cut, c.total, len(c.head))
	}
	return b.String()
}
