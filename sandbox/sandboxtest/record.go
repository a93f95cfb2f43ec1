package sandboxtest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/sandbox"
)

// "Restore puts the workspace into the state that ref names … It touches only
// what differs", whatever changed: each mutation is taken back and brought
// again, and compared with a plain directory that got the same operations.
func (s suite) restoreExactly(t *testing.T) {
	b := s.open(t)
	defer b.discard()
	seed := b.tree()
	start := b.capture()
	for _, m := range mutations() {
		t.Run(m.name, func(t *testing.T) {
			b := b.on(t)
			must(t, m.do(b.ws.Path))
			changed := b.tree()
			if diff := Explain(changed, b.oracle(m.do)); diff != "" && s.caps.FullModesHome {
				t.Fatalf("the workspace did not take the operations as a plain directory does:\n%s", diff)
			}
			after := b.capture()
			b.wantTree(changed, "after Capture")
			b.wantMoved(b.restore(start), seed, changed)
			b.wantTree(seed, "taken back")
			b.wantMoved(b.restore(after), seed, changed)
			b.wantTree(changed, "brought again")
			b.restore(start)
			b.wantTree(seed, "taken back again")
		})
		if t.Failed() {
			t.Fatal("the workspace is not in the state that the next change starts from")
		}
	}
	b.wantUntouched("through captures and restores")
}

// wantMoved fails when the paths that a restore says it changed are not those
// that differ. Directories may be listed or not.
func (b *box) wantMoved(changes []agents.RestoredPath, x, y Tree) {
	b.Helper()
	if !slices.IsSortedFunc(changes, func(a, c agents.RestoredPath) int { return bytes.Compare([]byte(a.Path), []byte(c.Path)) }) {
		b.Errorf("Restore: the changes are not sorted: %q", paths(changes))
	}
	isDir := func(p string) bool {
		return (x[p] == Entry{} || x[p].Mode.IsDir()) && (y[p] == Entry{} || y[p].Mode.IsDir())
	}
	got := slices.DeleteFunc(sortedSet(paths(changes)), isDir)
	want := slices.DeleteFunc(x.Changed(y), isDir)
	if !slices.Equal(got, want) {
		b.Errorf("Restore changed %q, want %q", got, want)
	}
}

// oracle is what a plain directory holds that got the seed and then ops.
func (b *box) oracle(ops ...op) Tree {
	b.Helper()
	dir := b.fresh("oracle")
	must(b, WriteSeed(dir))
	must(b, run(dir, ops...))
	t, err := ReadTree(dir)
	must(b, err)
	return t
}

// on is the same sandbox, reporting to t.
func (b *box) on(t testing.TB) *box {
	c := *b
	c.TB = t
	return &c
}

// An empty reference names the base.
func (s suite) restoreBase(t *testing.T) {
	b := s.open(t)
	defer b.discard()
	base := b.tree()
	b.do(write("src/main.go", "x"), remove("data.bin"), write(IgnoredPath, "log"), mkdir("hollow"))
	b.capture()
	b.restore(state{})
	b.wantTree(base, "restored to the base")
	b.wantUntouched("through a restore of the base")
}

// "DryRun: list, change nothing."
func (s suite) restoreDryRun(t *testing.T) {
	b := s.open(t)
	defer b.discard()
	seed, start := b.tree(), b.capture()
	b.do(write("src/main.go", "x"), remove("data.bin"), write("new.txt", "n"))
	changed := b.tree()
	req := sandbox.RestoreRequest{Objects: b.objects(), Dir: start.dir, Ref: start.ref, DryRun: true}
	r, err := b.strategy.Restore(b.ctx(), b.ws, req)
	if err != nil {
		t.Fatalf("Restore: %v", err)
	}
	b.wantTree(changed, "after a dry run")
	b.wantMoved(r.Changes, seed, changed)
}

// "On error the workspace is as before", whenever the call ends early.
func (s suite) restoreCancelled(t *testing.T) {
	b := s.open(t)
	defer b.discard()
	seed, start := b.tree(), b.capture()
	b.do(write("src/main.go", "x"), remove("data.bin"), rename("deep", "shallow"), oddNames("plan"), write("new", "n"), mode("README.md", 0o600))
	changed := b.tree()
	untilDone(t, func(ctx context.Context) bool {
		if _, err := b.tryRestore(ctx, start); err != nil {
			b.wantTree(changed, "after a cancelled Restore")
			return false
		}
		b.wantTree(seed, "restored")
		return true
	})
	b.wantUntouched("through cancelled restores")
}

// "Complete or refused": a capture that is cut off leaves no reference, and
// the next one is whole.
func (s suite) captureCancelled(t *testing.T) {
	b := s.open(t)
	defer b.discard()
	start := b.capture()
	b.do(write("src/main.go", "x"), remove("data.bin"), oddNames("plan"), write("big", string(noise(1<<20, 3))))
	changed := b.tree()
	var after state
	untilDone(t, func(ctx context.Context) bool {
		req := sandbox.CaptureRequest{Objects: b.objects(), Dir: b.fresh("captures"), Label: "conformance"}
		c, err := b.strategy.Capture(ctx, b.ws, req)
		b.wantTree(changed, "after Capture")
		if err != nil {
			if c.Ref != "" {
				t.Fatalf("Capture: reference %q beside the error %v", c.Ref, err)
			}
			return false
		}
		after = state{c.Ref, req.Dir}
		return true
	})
	b.restore(start)
	b.restore(after)
	b.wantTree(changed, "restored to what was captured after cancelled captures")
}

// "Ref: equal for equal states captured one after another."
func (s suite) equalStates(t *testing.T) {
	b := s.open(t)
	defer b.discard()
	first := b.capture()
	if again := b.capture(); again.ref != first.ref {
		t.Errorf("a state captured twice is %q and %q", first.ref, again.ref)
	}
	b.do(write("src/main.go", "x"))
	changed := b.capture()
	if changed.ref == first.ref {
		t.Errorf("two states have one reference %q", first.ref)
	}
	b.restore(first)
	if back := b.capture(); back.ref != first.ref {
		t.Errorf("a restored state is captured as %q, want %q", back.ref, first.ref)
	}
}

// "Paths: the only paths that can have changed": such a capture records what a
// look at everything records.
func (s suite) capturePaths(t *testing.T) {
	b := s.open(t)
	defer b.discard()
	seed, start := b.tree(), b.capture()
	for _, c := range []struct {
		name  string
		do    op
		paths []string
	}{
		{"modify", write("src/main.go", "x"), []string{"src/main.go"}},
		{"add nested", write("n/e/w.txt", "x"), []string{"n/e/w.txt"}},
		{"delete", remove("data.bin"), []string{"data.bin"}},
		{"delete last in dir", remove("deep/a/b/c/d.txt"), []string{"deep/a/b/c/d.txt"}},
		{"delete dir", remove("src"), []string{"src"}},
		{"rename", rename("data.bin", "moved.bin"), []string{"data.bin", "moved.bin"}},
		{"mode", mode("README.md", 0o600), []string{"README.md"}},
		{"ignored", write(IgnoredPath, "log"), []string{IgnoredPath}},
		{"dir to file", all(remove("src"), write("src", "x")), []string{"src"}},
		{"nothing", all(), []string{"README.md"}},
		{"never there", all(), []string{"no/such/file"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := b.on(t)
			must(t, c.do(b.ws.Path))
			changed := b.tree()
			named := b.capture(c.paths...)
			if scanned := b.capture(); scanned.ref != named.ref {
				t.Errorf("captured by paths %q, by a scan %q", named.ref, scanned.ref)
			}
			b.restore(start)
			b.wantTree(seed, "taken back")
			b.restore(named)
			b.wantTree(changed, "brought again")
			b.restore(start)
		})
	}
}

// "Damaged or missing payload is agents.ErrDamaged and is found before
// anything is moved." Each file of the payload is damaged in three ways; what
// can be made again from the rest need not fail.
func (s suite) damaged(t *testing.T) {
	b := s.open(t)
	defer b.discard()
	b.do(write("src/main.go", "recorded\n"), write("big.bin", string(noise(256<<10, 4))))
	recorded, start := b.tree(), b.capture()
	b.do(write("src/main.go", "x"), remove("big.bin"))
	changed := b.tree()
	found := 0
	for _, file := range filesBelow(t, b.objects(), start.dir) {
		for _, harm := range []func(string) error{flipByte, cutInHalf, os.Remove} {
			if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
				continue // the strategy has found it useless, or put its content elsewhere
			}
			mend := harmFile(t, file, harm)
			b.strategy = s.New(t)
			_, err := b.tryRestore(b.ctx(), start)
			switch {
			case errors.Is(err, agents.ErrDamaged):
				found++
				b.wantTree(changed, "after the refused restore of a damaged state")
			case err != nil:
				t.Errorf("Restore with %s damaged: got %v, want agents.ErrDamaged", file, err)
			default:
				b.wantTree(recorded, "restored although a file of the payload was damaged")
				b.do(write("src/main.go", "x"), remove("big.bin"))
			}
			mend()
		}
	}
	if found == 0 {
		t.Error("no damage of the payload was ever found")
	}
	b.wantUntouched("through restores of damaged states")
	t.Run("AllGone", func(t *testing.T) {
		must(t, removeAllChildren(b.objects()))
		must(t, removeAllChildren(start.dir))
		b := b.on(t)
		b.strategy = s.New(t)
		if _, err := b.tryRestore(b.ctx(), start); !errors.Is(err, agents.ErrDamaged) {
			t.Errorf("Restore without any payload: got %v, want agents.ErrDamaged", err)
		}
		b.wantTree(changed, "after a restore without payload")
	})
}

func filesBelow(t testing.TB, dirs ...string) []string {
	t.Helper()
	var files []string
	for _, dir := range dirs {
		must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				files = append(files, path)
			}
			return err
		}))
	}
	return files
}

// harmFile damages a file and returns what mends it.
func harmFile(t testing.TB, path string, harm func(string) error) func() {
	t.Helper()
	fi, err := os.Stat(path)
	must(t, err)
	data, err := os.ReadFile(path)
	must(t, err)
	must(t, os.Chmod(path, 0o600))
	must(t, harm(path))
	return func() {
		t.Helper()
		must(t, os.RemoveAll(path))
		must(t, os.MkdirAll(filepath.Dir(path), 0o700))
		must(t, os.WriteFile(path, data, 0o600))
		must(t, os.Chmod(path, fi.Mode().Perm()))
	}
}

func flipByte(path string) error {
	data, err := os.ReadFile(path)
	if err != nil || len(data) == 0 {
		return err
	}
	data[len(data)/2] ^= 0x40
	return os.WriteFile(path, data, 0o600)
}

func cutInHalf(path string) error {
	fi, err := os.Stat(path)
	if err != nil {
		return err
	}
	return os.Truncate(path, fi.Size()/2)
}

// A strategy "remembers nothing between calls but what lies in the Workspace's
// folders", and a workspace is plain data.
func (s suite) secondProcess(t *testing.T) {
	b := s.open(t)
	seed, start := b.tree(), b.capture()
	b.do(write("src/main.go", "x"), oddNames("plan"))
	changed := b.tree()
	b.anotherProcess()
	after := b.capture()
	b.anotherProcess()
	b.restore(start)
	b.wantTree(seed, "restored by another process")
	b.anotherProcess()
	b.restore(after)
	b.wantTree(changed, "brought again by another process")
	if s.caps.Isolates {
		b.anotherProcess()
		sealed := b.seal()
		b.anotherProcess()
		if res := b.apply(b.applyRequest(sealed.Ref)); res.State != agents.ApplyApplied {
			t.Errorf("Apply by another process: got %+v, want applied", res)
		}
	}
	b.anotherProcess()
	b.discard()
}

// anotherProcess goes on with a new strategy and a workspace read from its record.
func (b *box) anotherProcess() {
	b.Helper()
	data, err := json.Marshal(b.ws)
	must(b, err)
	b.ws = sandbox.Workspace{}
	must(b, json.Unmarshal(data, &b.ws))
	b.strategy = b.New(b)
}

// "GitState: a captured state holds HEAD, index, refs, stash and reflogs."
func (s suite) hidden(t *testing.T) {
	b := s.open(t)
	defer b.discard()
	if !s.caps.GitState {
		return
	}
	states := []state{b.capture()}
	trees := []Tree{b.tree()}
	digests := []string{s.Hidden.Digest(t, b.ws)}
	for n := range 4 {
		s.Hidden.Change(t, b.ws, n)
		states = append(states, b.capture())
		trees = append(trees, b.tree())
		digests = append(digests, s.Hidden.Digest(t, b.ws))
		if digests[n] == digests[n+1] {
			t.Fatalf("the hidden change %d changed nothing", n)
		}
	}
	for _, n := range []int{3, 0, 4, 1, 2} {
		b.restore(states[n])
		b.wantTree(trees[n], "restored with its hidden state")
		if got := s.Hidden.Digest(t, b.ws); got != digests[n] {
			t.Errorf("the hidden state %d is restored as\n%s\nwant\n%s", n, got, digests[n])
		}
	}
	b.wantUntouched("through changes of the hidden state")
}

// "Diff lists what changed between two states, sorted by path. An empty From
// is the base, an empty To is the present state."
func (s suite) diff(t *testing.T) {
	b := s.open(t)
	defer b.discard()
	if got := b.diffOf(sandbox.DiffRequest{Counts: true}); len(got) > 0 {
		t.Errorf("a new workspace differs from its base: %+v", got)
	}
	b.do(
		write("README.md", "# seed\n\none\n2\nthree\nfour\n"),
		write("added.txt", "1\n2\n3\n"),
		remove("src/util/keep.go"),
		rename("data.bin", "moved.bin"),
		mode("script.sh", 0o644),
		write("blob.bin", "\x00\x01\x02"),
		all(remove("link"), link("empty.txt", "link")),
	)
	want := []agents.FileChange{
		{Path: "README.md", Change: agents.ChangeModified, Insertions: 2, Deletions: 1},
		{Path: "added.txt", Change: agents.ChangeAdded, Insertions: 3},
		{Path: "blob.bin", Change: agents.ChangeAdded, Binary: true},
		{Path: "link", Change: agents.ChangeModified, Insertions: 1, Deletions: 1},
		{Path: "moved.bin", OldPath: "data.bin", Change: agents.ChangeRenamed, Binary: true},
		{Path: "script.sh", Change: agents.ChangeMode},
		{Path: "src/util/keep.go", Change: agents.ChangeDeleted, Deletions: 1},
	}
	var patch bytes.Buffer
	got := b.diffOf(sandbox.DiffRequest{Counts: true, Patch: &patch})
	if !slices.EqualFunc(got, want, sameChange) {
		t.Errorf("Diff:\ngot  %+v\nwant %+v", got, want)
	}
	for _, line := range []string{"+2\n", "-two\n", "+++ b/added.txt"} {
		if !bytes.Contains(patch.Bytes(), []byte(line)) {
			t.Errorf("the patch has no %q:\n%s", line, patch.Bytes())
		}
	}
	b.wantUntouched("through Diff")
}

// sameChange leaves out whose change it is, and whether a renamed file is
// called binary: nothing of it changed.
func sameChange(got, want agents.FileChange) bool {
	got.Resource = ""
	if got.Change == agents.ChangeRenamed {
		got.Binary = want.Binary
	}
	return got == want
}

func (s suite) diffStates(t *testing.T) {
	b := s.open(t)
	defer b.discard()
	first := b.capture()
	b.do(write("new.txt", "1\n"))
	second := b.capture()
	b.do(write("new.txt", "1\n2\n"), write(IgnoredPath, "log\n"))
	third := b.capture()
	for _, c := range []struct {
		name     string
		from, to string
		want     []agents.FileChange
	}{
		{"base to first", "", first.ref, nil},
		{"alike", second.ref, second.ref, nil},
		{"forth", first.ref, second.ref, []agents.FileChange{{Path: "new.txt", Change: agents.ChangeAdded, Insertions: 1}}},
		{"back", second.ref, first.ref, []agents.FileChange{{Path: "new.txt", Change: agents.ChangeDeleted, Deletions: 1}}},
		{"to the present", third.ref, "", nil},
		{"with ignored", second.ref, third.ref, []agents.FileChange{
			{Path: IgnoredPath, Change: agents.ChangeAdded, Insertions: 1},
			{Path: "new.txt", Change: agents.ChangeModified, Insertions: 1},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := b.on(t)
			got := b.diffOf(sandbox.DiffRequest{From: c.from, To: c.to, Counts: true})
			if !slices.EqualFunc(got, c.want, sameChange) {
				t.Errorf("Diff:\ngot  %+v\nwant %+v", got, c.want)
			}
		})
	}
}

func (b *box) diffOf(req sandbox.DiffRequest) []agents.FileChange {
	b.Helper()
	req.Objects = b.objects()
	changes, err := b.strategy.Diff(b.ctx(), b.ws, req)
	if err != nil {
		b.Fatalf("Diff: %v", err)
	}
	return changes
}
