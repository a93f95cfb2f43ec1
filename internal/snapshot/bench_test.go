//go:build linux

package snapshot_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cleveragents/agents/internal/snapshot"
)

// bigTree returns a git work tree for benchmarks: the one that
// SNAPSHOT_BENCH_TREE names (a clean checkout, which the benchmark changes and
// puts back), else a small one that is made for the occasion.
func bigTree(b *testing.B) string {
	if dir := os.Getenv("SNAPSHOT_BENCH_TREE"); dir != "" {
		return dir
	}
	dir := filepath.Join(b.TempDir(), "tree")
	for i := range 2000 {
		d := filepath.Join(dir, fmt.Sprint(i%20), fmt.Sprint(i%200))
		if err := os.MkdirAll(d, 0o755); err != nil {
			b.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(d, fmt.Sprint("f", i)), []byte(strings.Repeat(fmt.Sprintln("line", i), 100)), 0o644); err != nil {
			b.Fatal(err)
		}
	}
	for _, args := range [][]string{{"init", "-q"}, {"add", "-A"}, {"-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x"}} {
		if out, err := exec.Command("git", append([]string{"-C", dir}, args...)...).CombinedOutput(); err != nil {
			b.Fatalf("git %v: %v %s", args, err, out)
		}
	}
	return dir
}

// index yields what git's index and HEAD of dir know.
func index(b *testing.B, dir string) iter.Seq[snapshot.Seeded] {
	files, err := exec.Command("git", "-C", dir, "ls-files", "-s", "-z").Output()
	if err != nil {
		b.Fatal(err)
	}
	trees, err := exec.Command("git", "-C", dir, "ls-tree", "-r", "-t", "-d", "-z", "HEAD").Output()
	if err != nil {
		b.Fatal(err)
	}
	return func(yield func(snapshot.Seeded) bool) {
		for _, out := range []string{string(files), string(trees)} {
			for line := range strings.SplitSeq(strings.TrimSuffix(out, "\x00"), "\x00") {
				meta, path, _ := strings.Cut(line, "\t")
				f := strings.Fields(meta)
				s := snapshot.Seeded{Path: path, ID: f[1], Mode: mode(f[0])}
				if len(f[1]) < 40 {
					s.ID = f[2]
				}
				if !yield(s) {
					return
				}
			}
		}
	}
}

func mode(s string) uint32 {
	var m uint32
	fmt.Sscanf(s, "%o", &m)
	return m
}

type bench struct {
	b       *testing.B
	dir     string
	base    string
	store   *snapshot.Store
	tracker *snapshot.Tracker
}

func newBench(b *testing.B) *bench {
	x := &bench{b: b, dir: bigTree(b), base: b.TempDir()}
	x.open()
	x.seed()
	x.capture(nil)
	return x
}

func (x *bench) open() {
	store, err := snapshot.Open(context.Background(), filepath.Join(x.base, "store"),
		snapshot.Options{Alternates: []string{filepath.Join(x.dir, ".git", "objects")}})
	if err != nil {
		x.b.Fatal(err)
	}
	x.store = store
	x.tracker, err = snapshot.NewTracker(store, []snapshot.Root{{Name: "files", Dir: x.dir, Skip: []string{".git"}}}, filepath.Join(x.base, "cache"))
	if err != nil {
		x.b.Fatal(err)
	}
}

func (x *bench) seed() {
	if err := x.tracker.Seed(context.Background(), "files", index(x.b, x.dir)); err != nil {
		x.b.Fatal(err)
	}
}

func (x *bench) capture(paths []snapshot.Path) snapshot.Captured {
	c, err := x.tracker.Capture(context.Background(), snapshot.CaptureOptions{Paths: paths, Label: "bench"})
	if err != nil {
		x.b.Fatal(err)
	}
	return c
}

// cpu measures the processor time of what is between its calls.
type cpu struct{ start, sum time.Duration }

func now() time.Duration {
	var r syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &r)
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

func (c *cpu) begin() { c.start = now() }
func (c *cpu) end()   { c.sum += now() - c.start }
func (c *cpu) report(b *testing.B) {
	b.ReportMetric(float64(c.sum.Microseconds())/1000/float64(max(b.N, 1)), "cpu-ms/op")
}

// some returns n files of the tree, spread over it.
func (x *bench) some(n int) []string {
	out, err := exec.Command("git", "-C", x.dir, "ls-files").Output()
	if err != nil {
		x.b.Fatal(err)
	}
	all := strings.Split(strings.TrimSpace(string(out)), "\n")
	var some []string
	for i := range n {
		for k := i * len(all) / n; ; k++ {
			if fi, err := os.Lstat(filepath.Join(x.dir, all[k])); err == nil && fi.Mode().IsRegular() {
				some = append(some, all[k])
				break
			}
		}
	}
	return some
}

// edit appends to a file and undoes it when the benchmark ends.
func (x *bench) edit(path string, n int) {
	name := filepath.Join(x.dir, path)
	old, err := os.ReadFile(name)
	if err != nil {
		x.b.Fatal(err)
	}
	x.b.Cleanup(func() { os.WriteFile(name, old, 0o644) })
	if err := os.WriteFile(name, append(old, fmt.Sprintln("edit", n, time.Now())...), 0o644); err != nil {
		x.b.Fatal(err)
	}
}

func BenchmarkCaptureFirstSeeded(b *testing.B) {
	x := &bench{b: b, dir: bigTree(b), base: b.TempDir()}
	var used cpu
	for b.Loop() {
		b.StopTimer()
		os.RemoveAll(x.base)
		x.open()
		known := index(b, x.dir)
		b.StartTimer()
		used.begin()
		if err := x.tracker.Seed(context.Background(), "files", known); err != nil {
			b.Fatal(err)
		}
		x.capture(nil)
		used.end()
	}
	used.report(b)
	size, _ := x.store.Size()
	b.ReportMetric(float64(size), "store-B")
}

func BenchmarkCaptureNothingChanged(b *testing.B) {
	x := newBench(b)
	var used cpu
	for b.Loop() {
		used.begin()
		x.capture(nil)
		used.end()
	}
	used.report(b)
}

func BenchmarkCaptureScanOneFile(b *testing.B) {
	x := newBench(b)
	path := x.some(3)[1]
	n := 0
	var added, read int64
	var used cpu
	for b.Loop() {
		b.StopTimer()
		n++
		x.edit(path, n)
		b.StartTimer()
		used.begin()
		c := x.capture(nil)
		used.end()
		added, read = added+c.BytesAdded, read+c.BytesRead
	}
	used.report(b)
	b.ReportMetric(float64(added)/float64(n), "stored-B/op")
	b.ReportMetric(float64(read)/float64(n), "read-B/op")
}

func BenchmarkCaptureKnownPath(b *testing.B) {
	x := newBench(b)
	path := x.some(3)[1]
	n := 0
	var used cpu
	for b.Loop() {
		b.StopTimer()
		n++
		x.edit(path, n)
		b.StartTimer()
		used.begin()
		x.capture([]snapshot.Path{{Root: "files", Path: path}})
		used.end()
	}
	used.report(b)
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	b.ReportMetric(float64(m.Sys)/1e6, "sys-MB")
}

func BenchmarkRestoreTenFiles(b *testing.B) {
	x := newBench(b)
	paths := x.some(10)
	for i, p := range paths {
		x.edit(p, i)
	}
	first := x.capture(nil)
	for i, p := range paths {
		x.edit(p, i+100)
	}
	second := x.capture(nil)
	opts := snapshot.RestoreOptions{Stage: filepath.Join(x.dir, "..", "stage-"+filepath.Base(x.base)), Journal: filepath.Join(x.base, "journal")}
	var used cpu
	for n := 0; b.Loop(); n++ {
		ref := first.Ref
		if n%2 == 1 {
			ref = second.Ref
		}
		used.begin()
		if _, err := x.tracker.Restore(context.Background(), ref, opts); err != nil {
			b.Fatal(err)
		}
		used.end()
	}
	used.report(b)
}

// BenchmarkCaptureBigFile captures and restores a file of SNAPSHOT_BENCH_BYTES
// bytes (64 MiB without), half of it incompressible.
func BenchmarkCaptureBigFile(b *testing.B) {
	size := int64(64 << 20)
	if s := os.Getenv("SNAPSHOT_BENCH_BYTES"); s != "" {
		if _, err := fmt.Sscan(s, &size); err != nil {
			b.Fatal(err)
		}
	}
	x := &bench{b: b, base: b.TempDir()}
	x.dir = filepath.Join(x.base, "files")
	if err := os.Mkdir(x.dir, 0o755); err != nil {
		b.Fatal(err)
	}
	x.open()
	name := filepath.Join(x.dir, "big")
	chunk := []byte(randomText(9, 1<<20))
	b.SetBytes(size)
	for n := 0; b.Loop(); n++ {
		b.StopTimer()
		f, err := os.Create(name)
		if err != nil {
			b.Fatal(err)
		}
		for at := int64(0); at < size/2; at += int64(len(chunk)) {
			chunk[0], chunk[1] = byte(at>>20), byte(n)
			if _, err := f.Write(chunk); err != nil {
				b.Fatal(err)
			}
		}
		if err := errors.Join(f.Truncate(size), f.Close()); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		c := x.capture(nil)
		if err := os.Remove(name); err != nil {
			b.Fatal(err)
		}
		opts := snapshot.RestoreOptions{Stage: filepath.Join(x.base, "stage"), Journal: filepath.Join(x.base, "journal")}
		if _, err := x.tracker.Restore(context.Background(), c.Ref, opts); err != nil {
			b.Fatal(err)
		}
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	b.ReportMetric(float64(m.Sys)/1e6, "sys-MB")
}
