package sandboxtest

import (
	"bytes"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// IgnoredPath is a path which the seed's .gitignore names. The strategies that
// know such rules may leave it out of a result, never out of a state.
const IgnoredPath = "build/out.log"

// ConflictPath is the file of the seed that the suite changes on both sides.
const ConflictPath = "README.md"

// WriteSeed fills the empty directory dir with the files that every resource
// of the suite holds: only such as any strategy can carry.
func WriteSeed(dir string) error {
	return run(dir,
		write("README.md", "# seed\n\none\ntwo\nthree\n"),
		write("src/main.go", "package main\n\nfunc main() {}\n"),
		write("src/util/util.go", strings.Repeat("// a line\n", 40)),
		write("src/util/keep.go", "package util\n"),
		write("deep/a/b/c/d.txt", "d\n"),
		write("with space/ü.txt", "ü\n"),
		write("empty.txt", ""),
		write("data.bin", string(noise(64<<10, 1))),
		write(".gitignore", "*.log\nbuild/\n"),
		write("-dash.txt", "-\n"),
		write("script.sh", "#!/bin/sh\n"), mode("script.sh", 0o755),
		link("README.md", "link"),
		link("src", "dirlink"),
		oddNames("seed"),
	)
}

// An op does one thing in a directory.
type op func(root string) error

// A mutation is a named change of the seed.
type mutation struct {
	name string
	do   op
}

// mutations returns the changes that every strategy which can take things back
// has to take back exactly. Each one starts from the seed.
func mutations() []mutation {
	return []mutation{
		{"nothing", all()},
		{"modify", write("src/main.go", "package main // changed\n")},
		{"same size", write("src/main.go", "package nain\n\nfunc main() {}\n")},
		{"same size and times", quietly("src/main.go", "package main\n\nfunc niam() {}\n")},
		{"append", appendTo("src/util/util.go", "// more\n")},
		{"truncate", write("src/main.go", "")},
		{"fill empty", write("empty.txt", "x")},
		{"rewrite alike", all(remove("src/main.go"), write("src/main.go", "package main\n\nfunc main() {}\n"))},
		{"add", write("added.txt", "new\n")},
		{"add nested", write("n/e/s/t/e/d.txt", "new\n")},
		{"add big", write("big.bin", string(noise(3<<20, 2)))},
		{"delete", remove("src/main.go")},
		{"delete dir", remove("src")},
		{"delete everything", removeChildren()},
		{"rename", rename("data.bin", "moved.bin")},
		{"rename dir", rename("src", "source")},
		{"swap", all(rename("README.md", "tmp"), rename("empty.txt", "README.md"), rename("tmp", "empty.txt"))},
		{"mode 0600", mode("README.md", 0o600)},
		{"mode 0444", mode("README.md", 0o444)},
		{"mode 0640", mode("README.md", 0o640)},
		{"mode 0755", mode("README.md", 0o755)},
		{"mode off", mode("script.sh", 0o644)},
		{"mode and content", all(write("README.md", "x"), mode("README.md", 0o400))},
		{"new 0600", all(write("secret", "s"), mode("secret", 0o600))},
		{"new 0444", all(write("frozen", "f"), mode("frozen", 0o444))},
		{"dir mode 0700", mode("src", 0o700)},
		{"dir mode 0555", all(write("ro/f", "x"), mode("ro", 0o555))},
		{"link", link("src/main.go", "new-link")},
		{"link dangling", link("no/where", "dangling")},
		{"link absolute", link("/etc/passwd", "abs")},
		{"link outside", link("../../outside", "out")},
		{"link retarget", all(remove("link"), link("empty.txt", "link"))},
		{"file to dir", all(remove("README.md"), write("README.md/in/side", "x"))},
		{"dir to file", all(remove("src"), write("src", "x"))},
		{"file to link", all(remove("README.md"), link("empty.txt", "README.md"))},
		{"link to file", all(remove("link"), write("link", "x"))},
		{"link to dir", all(remove("dirlink"), write("dirlink/f", "x"))},
		{"dir to link", all(remove("src"), link("deep", "src"))},
		{"empty dir", mkdir("hollow")},
		{"empty dirs", all(mkdir("hollow/a/b"), mkdir("hollow/c"))},
		{"emptied dir", remove("deep/a/b/c/d.txt")},
		{"odd names", oddNames("plan")},
		{"case", all(write("Case", "1"), write("case ", "2"))},
		{"ignored", write(IgnoredPath, "log\n")},
		{"ignored dir", all(write("build/a/b", "x"), mkdir("build/empty"))},
		{"gitignore gone", all(write(IgnoredPath, "log\n"), remove(".gitignore"))},
		{"nested repository", nestedRepository("vendor/dep")},
		{"git-like names", all(write("src/.gitignore", "*\n"), write("src/.gitattributes", "* -text\n"), write("src/hidden.txt", "x"))},
		{"crlf", write("crlf.txt", "a\r\nb\r\n")},
	}
}

func run(root string, ops ...op) error {
	for _, o := range ops {
		if err := o(root); err != nil {
			return err
		}
	}
	return nil
}

func all(ops ...op) op {
	return func(root string) error { return run(root, ops...) }
}

// write replaces or makes a file, with 0644 when it is new.
func write(path, content string) op {
	return func(root string) error {
		abs := at(root, path)
		if err := os.MkdirAll(filepath.Dir(abs), 0o755); err != nil {
			return err
		}
		_, err := os.Lstat(abs)
		if werr := os.WriteFile(abs, []byte(content), 0o644); werr != nil {
			return werr
		}
		if errors.Is(err, fs.ErrNotExist) {
			return os.Chmod(abs, 0o644)
		}
		return nil
	}
}

// quietly changes a file's bytes in place and puts its times back.
func quietly(path, content string) op {
	return func(root string) error {
		fi, err := os.Stat(at(root, path))
		if err != nil {
			return err
		}
		if err := write(path, content)(root); err != nil {
			return err
		}
		return os.Chtimes(at(root, path), time.Time{}, fi.ModTime())
	}
}

func appendTo(path, content string) op {
	return func(root string) error {
		f, err := os.OpenFile(at(root, path), os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		_, err = f.WriteString(content)
		return errors.Join(err, f.Close())
	}
}

func remove(path string) op {
	return func(root string) error { return os.RemoveAll(at(root, path)) }
}

// removeChildren removes everything but the root's own .git.
func removeChildren() op {
	return func(root string) error {
		entries, err := os.ReadDir(root)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if e.Name() == ".git" {
				continue
			}
			if err := os.RemoveAll(filepath.Join(root, e.Name())); err != nil {
				return err
			}
		}
		return nil
	}
}

func rename(from, to string) op {
	return func(root string) error { return os.Rename(at(root, from), at(root, to)) }
}

func mode(path string, perm fs.FileMode) op {
	return func(root string) error { return os.Chmod(at(root, path), perm) }
}

func mkdir(path string) op {
	return func(root string) error { return os.MkdirAll(at(root, path), 0o755) }
}

func link(target, path string) op {
	return func(root string) error { return os.Symlink(target, at(root, path)) }
}

// oddNames writes files whose names are hard on quoting, with content.
func oddNames(content string) op {
	names := []string{
		"odd/quote\"'`.txt", "odd/back\\slash", "odd/*?[x]", "odd/ lead", "odd/trail ", "odd/#hash", "odd/~", "odd/$HOME",
		"odd/-rf", "odd/\u00e9", "odd/e\u0301", "odd/日本", "odd/" + strings.Repeat("l", 200),
	}
	if runtime.GOOS == "linux" {
		names = append(names, "odd/new\nline", "odd/tab\t", "odd/bad-\xff\xfe", "odd/\x01")
	}
	return func(root string) error {
		for _, n := range names {
			if err := write(n, content)(root); err != nil {
				return err
			}
		}
		return nil
	}
}

// nestedRepository writes what a clone inside the sandbox leaves.
func nestedRepository(path string) op {
	return all(
		write(path+"/.git/HEAD", "ref: refs/heads/main\n"),
		write(path+"/.git/config", "[core]\n\trepositoryformatversion = 0\n"),
		mkdir(path+"/.git/refs/heads"),
		write(path+"/.git/objects/ab/cdef", "object"), mode(path+"/.git/objects/ab/cdef", 0o444),
		write(path+"/file.txt", "in a nested repository\n"),
	)
}

// noise returns n bytes that no compression shortens, always the same.
func noise(n int, seed uint64) []byte {
	var b bytes.Buffer
	r := rand.New(rand.NewPCG(seed, seed))
	for b.Len() < n {
		b.WriteByte(byte(r.Uint32()))
	}
	return b.Bytes()
}

func at(root, path string) string { return filepath.Join(root, filepath.FromSlash(path)) }
