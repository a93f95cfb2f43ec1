//go:build linux

package copyonwrite_test

import (
	"os"
	"path/filepath"
	"testing"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/oracle"
)

// TestSingleFile: the resource is one file, under its name or a link to it.
func TestSingleFile(t *testing.T) {
	for name, location := range map[string]string{"by its name": "f", "by a link": "link", "by a link elsewhere": "../elsewhere"} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, "seq 10 >f; echo o >other; ln -s f link; ln -s real/f ../elsewhere")
			b.req.Resource.Type, b.req.Resource.Location = agents.TypeFile, filepath.Join(b.real, location)
			b.create()
			if got := oracle.Digest(t, b.ws.Path); len(got) != 2 {
				t.Errorf("the sandbox has %q", got)
			}
			before := state(t, b.real)
			b.plan("echo 2 >f; echo stray >stray")
			if left := b.seal().LeftOut; len(left) != 1 || left[0].Path != "stray" {
				t.Errorf("left out %v", left)
			}
			b.mustApply(false)
			if got := read(t, b.real+"/f"); got != "2\n" {
				t.Errorf("f = %q", got)
			}
			if _, err := os.Lstat(b.real + "/stray"); err == nil {
				t.Error("what is beside the file came home")
			}
			b.mustUndo()
			same(t, "undo", before, state(t, b.real))
			b.user("echo u >f")
			must(t, os.RemoveAll(b.journal))
			b.mustRefuse(false, "f")
		})
	}
}
