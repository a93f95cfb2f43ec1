//go:build unix

package main

import (
	"fmt"
	"slices"
	"time"
)

// row is one line of the table. A bound of zero is none.
type row struct {
	files int
	what  string
	ours  string
	peer  string
	ratio float64
	bound float64
}

// table prints its rows as they come: a long run that is stopped has shown
// what it found.
type table struct{ begun bool }

// against prints a row for a time against a peer's time.
func (t *table) against(files int, what string, ours, peer time.Duration, bound float64) {
	t.print(row{files, what, ms(ours), ms(peer), float64(ours) / float64(peer), bound})
}

// amount prints a row for a size against an allowance.
func (t *table) amount(files int, what string, got, allowed float64, unit string) {
	t.print(row{files, what, fmt.Sprintf("%.1f %s", got, unit), fmt.Sprintf("≤ %.1f %s", allowed, unit), got / allowed, 1})
}

func (t *table) print(r row) {
	if !t.begun {
		fmt.Printf("%-7s  %-62s  %12s  %12s  %6s  %6s\n", "FILES", "WHAT (peer)", "AGENTS", "PEER", "RATIO", "BOUND")
		t.begun = true
	}
	mark, bound := "", "-"
	if r.bound > 0 {
		bound = fmt.Sprintf("%.2f", r.bound)
		if r.ratio > r.bound {
			mark = "  over"
		}
	}
	fmt.Printf("%-7d  %-62s  %12s  %12s  %6.2f  %6s%s\n", r.files, r.what, r.ours, r.peer, r.ratio, bound, mark)
}

func ms(d time.Duration) string { return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000) }

// median returns the middle of several runs of f.
func median(runs int, f func() (time.Duration, error)) (time.Duration, error) {
	var all []time.Duration
	for range runs {
		d, err := f()
		if err != nil {
			return 0, err
		}
		all = append(all, d)
	}
	return middle(all), nil
}

// middle returns the median; it sorts.
func middle(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[len(all)/2]
}
