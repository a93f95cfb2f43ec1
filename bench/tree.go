//go:build unix

package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
)

// makeRepository makes a git repository of a tree. One that is there is taken.
func makeRepository(dir string, files int) error {
	return once(filepath.Join(dir, ".git", "bench-ready"), func() error {
		if err := writeTree(dir, files); err != nil {
			return err
		}
		for _, args := range [][]string{
			{"init", "-q", "-b", "main"}, {"config", "gc.auto", "0"}, {"config", "user.name", "bench"},
			{"config", "user.email", "bench@localhost"}, {"add", "-A"}, {"commit", "-q", "-m", "base"}, {"repack", "-a", "-d", "-q"},
		} {
			if err := command(dir, nil, "git", args...); err != nil {
				return err
			}
		}
		return nil
	})
}

// makeDirectory makes a plain directory of a tree. One that is there is taken.
func makeDirectory(dir string, files int) error {
	return once(dir+".ready", func() error { return writeTree(dir, files) })
}

// once makes what the file ready says is there.
func once(ready string, make func() error) error {
	if _, err := os.Stat(ready); err == nil {
		return nil
	}
	if err := make(); err != nil {
		return err
	}
	return os.WriteFile(ready, nil, 0o644)
}

// writeTree writes so many text files, about 13 KiB each and sixteen a
// directory, the same in every run.
func writeTree(dir string, files int) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	rng := rand.New(rand.NewPCG(uint64(files), 7))
	words := vocabulary(rng)
	for i := range files {
		path := filepath.Join(dir, filePath(i))
		if i%16 == 0 {
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				return err
			}
		}
		if err := os.WriteFile(path, text(rng, words), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// filePath spreads files over directories three levels deep.
func filePath(i int) string {
	d := i / 16
	return filepath.Join(fmt.Sprintf("d%02d", d/256%100), fmt.Sprintf("e%02d", d/16%16), fmt.Sprintf("f%02d", d%16), fmt.Sprintf("file%05d.txt", i))
}

func vocabulary(rng *rand.Rand) [][]byte {
	words := make([][]byte, 4096)
	for i := range words {
		w := make([]byte, 3+rng.IntN(9))
		for j := range w {
			w[j] = byte('a' + rng.IntN(26))
		}
		words[i] = w
	}
	return words
}

func text(rng *rand.Rand, words [][]byte) []byte {
	var b bytes.Buffer
	for size := 4096 + rng.IntN(18<<10); b.Len() < size; {
		b.Write(words[rng.IntN(len(words))])
		b.WriteByte(" \n"[rng.IntN(8)/7])
	}
	return b.Bytes()
}
