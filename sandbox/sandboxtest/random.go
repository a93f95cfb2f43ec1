package sandboxtest

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"pgregory.net/rapid"

	"github.com/cleveragents/agents/sandbox"
)

// randomOperations drives a workspace and a plain directory with the same
// random operations, captures and restores, and compares the two. A failure
// prints the seed and the shortest run that still fails.
func (s suite) randomOperations(t *testing.T) {
	b := s.open(t)
	defer b.discard()
	seed := recordedRun{tree: b.tree()}
	rapid.Check(t, func(rt *rapid.T) {
		r := &randomRun{box: b, rt: rt}
		r.restore(seed)
		for range rapid.IntRange(1, 10).Draw(rt, "steps") {
			r.step()
		}
		for _, rec := range r.recorded {
			r.restore(rec)
		}
	})
	b.wantUntouched("by random operations")
}

// randomRun is one run of random operations.
type randomRun struct {
	*box
	rt       *rapid.T
	plain    string // the oracle: a plain directory; "" = not made yet
	done     []op   // what made plain out of the seed
	recorded []recordedRun
}

// recordedRun is a captured state, what it holds, and what makes it out of the
// seed.
type recordedRun struct {
	state
	tree Tree
	done []op
}

func (r *randomRun) step() {
	switch kind := rapid.SampledFrom([]string{"change", "change", "change", "capture", "restore"}).Draw(r.rt, "step"); {
	case kind == "capture":
		r.record()
	case kind == "restore" && len(r.recorded) > 0:
		r.restore(rapid.SampledFrom(r.recorded).Draw(r.rt, "state"))
	default:
		r.change(drawOp(r.rt))
	}
}

// change does o on both sides; it may fail, on both alike.
func (r *randomRun) change(o op) {
	r.makePlain()
	got, want := o(r.ws.Path), o(r.plain)
	if (got == nil) != (want == nil) {
		r.rt.Fatalf("the workspace answers %v, a plain directory %v", got, want)
	}
	r.done = append(r.done, o)
}

func (r *randomRun) record() {
	req := sandbox.CaptureRequest{Objects: r.objects(), Dir: r.fresh("captures"), Label: "random"}
	c, err := r.strategy.Capture(r.ctx(), r.ws, req)
	if err != nil {
		r.rt.Fatalf("Capture: %v", err)
	}
	r.makePlain()
	plain := r.read(r.plain)
	r.recorded = append(r.recorded, recordedRun{state{c.Ref, req.Dir}, plain, append([]op(nil), r.done...)})
	r.want(plain, "after Capture")
}

// restore goes back to a state.
func (r *randomRun) restore(rec recordedRun) {
	if _, err := r.tryRestore(r.ctx(), rec.state); err != nil {
		r.rt.Fatalf("Restore: %v", err)
	}
	r.done, r.plain = append([]op(nil), rec.done...), ""
	r.want(rec.tree, "after Restore")
}

// makePlain makes the plain directory by doing again what was done.
func (r *randomRun) makePlain() {
	if r.plain != "" {
		return
	}
	r.plain = r.fresh("oracle")
	if err := WriteSeed(r.plain); err != nil {
		r.rt.Fatal(err)
	}
	for _, o := range r.done {
		_ = o(r.plain) // one that failed fails again
	}
}

func (r *randomRun) want(want Tree, when string) {
	if diff := Explain(r.read(r.ws.Path), want); diff != "" {
		r.rt.Fatalf("the workspace and a plain directory differ %s:\n%s", when, diff)
	}
}

func (r *randomRun) read(dir string) Tree {
	t, err := ReadTree(dir)
	if err != nil {
		r.rt.Fatal(err)
	}
	return t
}

// drawOp draws one change. Paths come from a small set, so that they meet.
func drawOp(rt *rapid.T) op {
	path := rapid.SampledFrom([]string{
		"README.md", "src", "src/main.go", "src/util", "src/util/new.go", "a", "a/b", "a/b/c", "x", "build/out.log",
		".gitignore", "link", "deep/a/b", "data.bin", "odd/new\tname", "a/.git", "a/.git/HEAD",
	})
	p := path.Draw(rt, "path")
	switch rapid.SampledFrom([]string{"write", "append", "remove", "mkdir", "rename", "mode", "link"}).Draw(rt, "op") {
	case "write":
		return plainly(p, write(p, rapid.StringN(0, 20, 200).Draw(rt, "content")))
	case "append":
		return plainly(p, appendTo(p, "more\n"))
	case "remove":
		return plainly(p, remove(p))
	case "mkdir":
		return plainly(p, mkdir(p))
	case "rename":
		to := path.Draw(rt, "to")
		return plainly(p, plainly(to, rename(p, to)))
	case "mode":
		perm := rapid.SampledFrom([]fs.FileMode{0o600, 0o644, 0o755, 0o444, 0o700, 0o751}).Draw(rt, "perm")
		return plainly(p, readably(p, perm))
	}
	return plainly(p, link(rapid.SampledFrom([]string{"README.md", "src", "nowhere", "../x"}).Draw(rt, "target"), p))
}

// plainly refuses a path with a link on its way: what a link leads to differs
// from place to place.
func plainly(path string, o op) op {
	return func(root string) error {
		for dir := filepath.Dir(at(root, path)); len(dir) > len(root); dir = filepath.Dir(dir) {
			if fi, err := os.Lstat(dir); err == nil && fi.Mode()&fs.ModeSymlink != 0 {
				return fs.ErrInvalid
			}
		}
		return o(root)
	}
}

// readably changes permission bits, but not those of a link, and never so that
// whoever runs the test may not look into a directory any more: a capture of
// one is refused, and rightly.
func readably(path string, perm fs.FileMode) op {
	return func(root string) error {
		fi, err := os.Lstat(at(root, path))
		if err == nil && fi.Mode()&fs.ModeSymlink != 0 {
			return fs.ErrInvalid
		}
		if err == nil && fi.IsDir() && os.Geteuid() != 0 {
			perm |= 0o700
		}
		return mode(path, perm)(root)
	}
}
