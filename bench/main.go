//go:build unix

// Command bench prints one table: what agents costs against plain git, cp,
// rsync and restic doing the same in the same tree and the same run. Every figure is the median of
// several runs; a ratio above its bound is marked, and fails nothing, since
// timings depend on the machine.
//
//	go run ./bench [-runs 5] [-kinds repository,directory] [-files 80000,15000] [-dir DIR] [-program bin/agents]
//	go run ./bench -kinds plans -files 1000
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

func main() {
	var o options
	var sizes, kinds string
	flag.IntVar(&o.runs, "runs", 5, "runs a figure")
	flag.StringVar(&sizes, "files", "80000,15000", "sizes of the trees, in files")
	flag.StringVar(&kinds, "kinds", "repository,directory", "what is measured")
	flag.StringVar(&o.dir, "dir", filepath.Join(os.TempDir(), "agents-bench"), "where the trees are made; kept for the next run")
	flag.StringVar(&o.program, "program", "bin/agents", "the program to measure")
	flag.Parse()
	if err := run(o, kinds, sizes); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

type options struct {
	runs    int
	dir     string
	program string
}

func run(o options, kinds, sizes string) error {
	program, err := filepath.Abs(o.program)
	if err != nil {
		return err
	}
	o.program = program
	var t table
	for _, s := range strings.Split(sizes, ",") {
		files, err := strconv.Atoi(strings.TrimSpace(s))
		if err != nil {
			return fmt.Errorf("size %q: %w", s, err)
		}
		for _, kind := range strings.Split(kinds, ",") {
			b, err := newBench(o, kind, files)
			if err != nil {
				return err
			}
			measure, ok := map[string]func(*table) error{"repository": b.repository, "directory": b.directory, "plans": b.plans}[kind]
			if !ok {
				return fmt.Errorf("kind %q: want repository, directory or plans", kind)
			}
			if err := measure(&t); err != nil {
				return fmt.Errorf("%s of %d files: %w", kind, files, err)
			}
		}
	}
	return nil
}
