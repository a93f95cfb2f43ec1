package snapshot

import (
	"fmt"

	agents "github.com/cleveragents/agents"
)

// Contents calls fn for every file that the last Capture or Restore saw, with
// the object that holds its content. It reads the cache file and looks at
// nothing else.
func (t *Tracker) Contents(root string, fn func(path, id string)) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	c, _ := t.loadCache()
	defer c.unmap()
	top := c.top().entryNamed(root)
	if top == nil {
		return fmt.Errorf("root %s was not captured: %w", root, agents.ErrNotFound)
	}
	c.contents(c.dirs[top.child], "", func(path string, id oid) { fn(path, t.store.f.hex(id)) })
	return nil
}

func (c *cache) contents(d *dir, path string, fn func(string, oid)) {
	for i := range d.entries {
		e := &d.entries[i]
		at := join(path, string(d.name(i)))
		switch {
		case e.child != 0:
			c.contents(c.dirs[e.child], at, fn)
		case e.mode&typeMask == typeFile:
			fn(at, e.id)
		}
	}
}
