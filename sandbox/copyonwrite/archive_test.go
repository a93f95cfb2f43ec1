//go:build linux

package copyonwrite_test

import (
	"io/fs"
	"path/filepath"
	"testing"
)

// TestArchiveCostsTheChanges: of a big directory in which a plan changed a file,
// that file is archived, and the sandbox that comes back is the same; the one
// that was archived goes on too.
func TestArchiveCostsTheChanges(t *testing.T) {
	b := newBench(t, "for i in $(seq 40); do head -c 300000 /dev/urandom >f$i; done; mkdir -p d/e; ln f1 d/hard; ln -s ../f2 d/soft")
	b.req.Shared = filepath.Join(b.dir, "data", "shared")
	b.create()
	b.plan("head -c 1000 /dev/urandom >f1; rm f3; chmod 600 f4; echo new >d/new; mkfifo d/pipe; mkdir .git; echo x >.git/x; touch -r .git .")
	dir := filepath.Join(b.dir, "archive")
	must(t, b.strategy.Archive(t.Context(), b.ws, dir))
	var size int64
	must(t, filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if fi, err := d.Info(); err == nil {
			size += fi.Size()
		}
		return err
	}))
	if size > 2<<20 { // the patch has the old bytes of what was changed
		t.Errorf("an archive of a few changed bytes has %d bytes", size)
	}

	ref := b.capture().Ref
	b.plan("touch -r d t; rm d/pipe; touch -r t d; touch -r . t; rm t; touch -r .git .") // no state holds a FIFO
	want := state(t, b.ws.Path)
	b.plan("rm -r d f1; echo x >f2")
	b.restore(ref)
	same(t, "restore after an archive", want, state(t, b.ws.Path))

	b.remove()
	ws, err := b.strategy.Unarchive(t.Context(), b.req, dir)
	must(t, err)
	b.ws = ws
	same(t, "unarchive", want, state(t, b.ws.Path))
	b.plan("rm -r .git")
	b.mustApply(false)
}
