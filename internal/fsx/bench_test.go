//go:build linux

package fsx_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/cleveragents/agents/internal/fsx"
)

// BenchmarkMove replaces, adds and removes files, a third each, in a tree of
// directories with ten files.
func BenchmarkMove(b *testing.B) {
	for _, files := range []int{10, 300, 3000, 30000} {
		b.Run(fmt.Sprint(files), func(b *testing.B) {
			from, to := plain{}, plain{}
			for i := range files {
				d := fmt.Sprintf("d%04d", i/10)
				from[d], to[d] = dir(0o755), dir(0o755)
				f := fmt.Sprintf("%s/f%d", d, i%10)
				if i%3 != 0 {
					from[f] = file("old")
				}
				if i%3 != 1 {
					to[f] = file("new")
				}
			}
			for b.Loop() {
				b.StopTimer()
				base, err := os.MkdirTemp("", "fsx-bench-")
				must(b, err)
				at := newBenchIn(b, base, from)
				list := ops(b, at.root, at.stage, from, to)
				b.StartTimer()
				m, err := fsx.PrepareMove(at.journal, []string{at.root}, at.hold, list)
				must(b, err)
				must(b, m.Run(b.Context()))
				must(b, m.Commit())
				must(b, m.Forget())
				b.StopTimer()
				must(b, fsx.RemoveAll(base))
				b.StartTimer()
			}
		})
	}
}
