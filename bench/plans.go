//go:build unix

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// manyPlans is how many plans have a sandbox of one directory at a time.
const manyPlans = 200

// plans adds the rows of many plans on one directory: what the last ones cost
// against the second to the sixth, which share what the first one made.
func (b *bench) plans(t *table) error {
	defer os.RemoveAll(b.data)
	var runs, applies []time.Duration
	var small int64
	for n := range manyPlans {
		plan := fmt.Sprintf("many-%d-%d", os.Getpid(), n)
		run, err := b.time(b.tree, b.program, "run", "-q", "--name", plan, "-r", b.tree, "--", "sh", "-c", fmt.Sprintf("echo %d >> %s", n, filePath(n)))
		if err != nil {
			return err
		}
		apply, err := b.time(b.tree, b.program, "plan", "apply", "--dry-run", plan)
		if err != nil {
			return err
		}
		runs, applies = append(runs, run), append(applies, apply)
		if n == 5 {
			small = treeSize(filepath.Join(b.data, "checkpoints", "shared"))
		}
	}
	last := func(all []time.Duration) time.Duration { return middle(all[len(all)-5:]) }
	early := func(all []time.Duration) time.Duration { return middle(all[1:6]) }
	t.against(b.files, fmt.Sprintf("%d plans: a run in a new sandbox (plans 2 to 6)", manyPlans), last(runs), early(runs), 1.25)
	t.against(b.files, fmt.Sprintf("%d plans: preview of an apply (plans 2 to 6)", manyPlans), last(applies), early(applies), 1.25)
	large := treeSize(filepath.Join(b.data, "checkpoints", "shared"))
	t.amount(b.files, fmt.Sprintf("%d plans: base store (with 6 plans)", manyPlans), float64(large)/1e6, 1.05*float64(small)/1e6, "MB")
	return nil
}
