//go:build linux && failpoint

package killtest_test

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestEveryChangeIsAFailpoint watches the system calls of every command: what
// changes a file must have passed a failpoint that names the file, or the
// kill tests do not see it. Calls of git and of the plan's commands are theirs.
func TestEveryChangeIsAFailpoint(t *testing.T) {
	if _, err := exec.LookPath("strace"); err != nil {
		t.Skip("there is no strace")
	}
	if out, err := exec.Command("strace", "-o", os.DevNull, "true").CombinedOutput(); err != nil {
		t.Skipf("strace may not trace here: %s", out)
	}
	for _, s := range scenarios() {
		if testing.Short() && !slices.Contains([]string{"tool", "apply"}, s.name) {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			l := newLab(t)
			l.env = append(l.env, s.env...)
			s.setup(l)
			calls, hits := l.traced(l.argv(s))
			if len(calls) == 0 || len(hits) == 0 {
				t.Fatalf("%d calls that change files and %d failpoints: nothing was traced", len(calls), len(hits))
			}
			for _, c := range calls {
				if !l.allowed(c) && !c.passed(hits) {
					t.Errorf("%s %q passed no failpoint", c.name, c.paths)
				}
			}
		})
	}
}

// allowed are the changes that need no failpoint, each for its reason.
func (l *lab) allowed(c call) bool {
	for _, p := range c.paths {
		if !filepath.IsAbs(p) {
			return false
		}
		rel, err := filepath.Rel(l.at("data"), p)
		must(l.t, err)
		switch {
		case strings.HasPrefix(rel, "agents.db"): // SQLite's own files: its commits are failpoints
		case strings.HasSuffix(rel, ".lock") && !strings.HasPrefix(rel, ".."): // held file locks hold nothing
		case p == filepath.Join(l.base, "hits"): // the log of the failpoints
		case strings.HasPrefix(p, "/dev/"), strings.HasPrefix(p, "pipe:"), strings.HasPrefix(p, "socket:"): // no files
		default:
			return false
		}
	}
	return true
}

// call is a system call that changes files.
type call struct {
	name  string
	paths []string
}

// passed reports whether a failpoint names one of the call's files.
func (c call) passed(hits []hit) bool {
	return slices.ContainsFunc(c.paths, func(p string) bool {
		return slices.ContainsFunc(hits, func(h hit) bool {
			if (h.op == "fsx.write") != (c.name == "write") {
				return false
			}
			return h.detail == p || !filepath.IsAbs(h.detail) && strings.HasSuffix(p, "/"+h.detail)
		})
	})
}

type hit struct{ op, detail string }

// traced runs the program under strace and returns what it did itself.
func (l *lab) traced(args []string) (calls []call, hits []hit) {
	l.t.Helper()
	log, trace := filepath.Join(l.base, "hits"), filepath.Join(l.base, "trace")
	cmd := exec.Command("strace", append([]string{"-f", "-qq", "-y", "-s", "4096", "-o", trace,
		"-e", "trace=%file,%process,write,pwrite64,writev,pwritev,pwritev2,sendfile,copy_file_range,splice,fallocate,ftruncate,fchmod,fchown,fsetxattr,fremovexattr,ioctl",
		"--", program}, args...)...)
	cmd.Dir, cmd.Env = l.at("home"), append(slices.Clone(l.env), "CLEVERAGENTS_FAILPOINT_LOG="+log)
	if res := l.finish(cmd, args); res.code != 0 {
		l.t.Fatalf("traced: %v", res)
	}
	text, err := os.ReadFile(trace)
	must(l.t, err)
	logged, err := os.ReadFile(log)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		l.t.Fatal(err)
	}
	for line := range strings.Lines(string(logged)) {
		_, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		op, detail, _ := strings.Cut(rest, " ")
		if detail, err = strconv.Unquote(detail); err != nil {
			l.t.Fatalf("failpoint log: %q: %v", line, err)
		}
		hits = append(hits, hit{op, detail})
	}
	return ownChanges(string(text)), hits
}

var (
	traceLine = regexp.MustCompile(`^(\d+) +([a-z0-9_]+)\((.*)$`)
	traceFD   = regexp.MustCompile(`^(?:AT_FDCWD|\d+)<((?:[^>\\]|\\.)*)>`)
	traceText = regexp.MustCompile(`"((?:[^"\\]|\\.)*)"`)
	newTask   = regexp.MustCompile(`= (\d+)`)
)

// ownChanges finds the calls of the first process that changed files. Other
// processes begin with a clone that makes no thread.
func ownChanges(trace string) (out []call) {
	own := map[string]bool{}
	unfinished := map[string]string{}
	for line := range strings.Lines(trace) {
		line = strings.TrimSuffix(line, "\n")
		pid, rest, _ := strings.Cut(line, " ")
		if len(own) == 0 {
			own[pid] = true
		}
		rest = strings.TrimLeft(rest, " ")
		if cut, ok := strings.CutSuffix(rest, " <unfinished ...>"); ok {
			unfinished[pid] = cut
			continue
		}
		if _, after, ok := strings.Cut(rest, " resumed>"); ok && strings.HasPrefix(rest, "<...") {
			rest = unfinished[pid] + after
		}
		m := traceLine.FindStringSubmatch(pid + " " + rest)
		if m == nil || !own[pid] {
			continue
		}
		name, args := m[2], m[3]
		if strings.HasPrefix(name, "clone") {
			if id := newTask.FindStringSubmatch(args[strings.LastIndex(args, ")"):]); id != nil && strings.Contains(args, "CLONE_THREAD") {
				own[id[1]] = true
			}
			continue
		}
		if strings.Contains(args[max(0, strings.LastIndex(args, ")")):], "= -1 ") {
			continue
		}
		if c, ok := change(name, args); ok {
			out = append(out, c)
		}
	}
	return out
}

// change is a call that changes files, with the files that it names.
func change(name, args string) (call, bool) {
	switch {
	case name == "open", name == "openat", name == "openat2", name == "creat":
		_, flags, _ := strings.Cut(args, `", `)
		if name != "creat" && !strings.Contains(flags, "O_WRONLY") && !strings.Contains(flags, "O_RDWR") && !strings.Contains(flags, "O_CREAT") && !strings.Contains(flags, "O_TRUNC") {
			return call{}, false
		}
		return call{"open", names(args)}, true
	case name == "write", name == "pwrite64", name == "writev", name == "pwritev", name == "pwritev2", name == "sendfile":
		fd := traceFD.FindStringSubmatch(args)
		if fd == nil || !strings.HasPrefix(fd[1], "/") {
			return call{}, false
		}
		return call{"write", []string{strings.TrimSuffix(fd[1], " (deleted)")}}, true
	case name == "copy_file_range":
		var to []string
		for _, part := range strings.Split(args, ", ") {
			if fd := traceFD.FindStringSubmatch(part); fd != nil {
				to = []string{fd[1]}
			}
		}
		return call{"write", to}, true
	case name == "ioctl":
		return call{"write", names(args)}, strings.Contains(args, "FICLONE") || strings.Contains(args, "FS_IOC_SETFLAGS")
	}
	for _, part := range []string{"rename", "unlink", "rmdir", "mkdir", "symlink", "link", "mknod", "chmod", "chown", "truncate", "utime", "futimesat", "setxattr", "removexattr", "fallocate"} {
		if strings.Contains(name, part) && name != "readlink" && name != "readlinkat" {
			return call{name, names(args)}, true
		}
	}
	return call{}, false
}

// names are the files of a call's arguments: descriptors, and names below the
// directories that descriptors stand for.
func names(args string) (out []string) {
	dir := ""
	for args != "" {
		if fd := traceFD.FindStringSubmatch(args); fd != nil {
			dir = fd[1]
			args = args[len(fd[0]):]
			if rest := strings.TrimPrefix(args, ", "); !strings.HasPrefix(rest, `"`) {
				out = append(out, dir)
			}
			continue
		}
		if at := traceText.FindStringSubmatchIndex(args); at != nil && at[0] == 0 {
			name := args[at[2]:at[3]]
			if !filepath.IsAbs(name) {
				name = filepath.Join(dir, name)
			}
			out = append(out, filepath.Clean(name))
			args = args[at[1]:]
			continue
		}
		if strings.HasPrefix(args, ")") {
			break
		}
		args = args[1:]
	}
	return out
}
