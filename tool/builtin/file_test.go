//go:build unix

package builtin_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"

	agents "github.com/cleveragents/agents"
)

func TestFileRead(t *testing.T) {
	w := newWorld(t)
	long := strings.Repeat("é", 1<<19) + "é" // more than 1 MiB in one line
	w.put("text", "one\ntwo\nthree\nfour")
	w.put("empty", "")
	w.put("bytes", "a\xff\x00b")
	w.put("long", "x\n"+long+"\nlast\n")
	w.put("big", strings.Repeat(strings.Repeat("y", 99)+"\n", 20000))
	w.put("bigbytes", strings.Repeat("\xff", 1<<20+1))
	for _, tt := range []struct {
		input, content, encoding string
		lines, next              float64
		truncated                bool
	}{
		{`{"path": "text"}`, "one\ntwo\nthree\nfour", "utf-8", 4, 0, false},
		{`{"path": "text", "offset": 2, "limit": 2}`, "two\nthree\n", "utf-8", 2, 4, true},
		{`{"path": "text", "offset": 4}`, "four", "utf-8", 1, 0, false},
		{`{"path": "text", "offset": 3, "limit": 2}`, "three\nfour", "utf-8", 2, 0, false},
		{`{"path": "text", "offset": 9}`, "", "utf-8", 0, 0, false},
		{`{"path": "empty"}`, "", "utf-8", 0, 0, false},
		{`{"path": "bytes"}`, "Yf8AYg==", "base64", 0, 0, false},
		{`{"path": "long", "offset": 2}`, long[:1<<20], "utf-8", 1, 3, true},
		{`{"path": "long", "offset": 3}`, "last\n", "utf-8", 1, 0, false},
		{`{"path": "big", "offset": 19999}`, strings.Repeat(strings.Repeat("y", 99)+"\n", 2), "utf-8", 2, 0, false},
	} {
		out, res := w.must("file-read", tt.input)
		if out["content"] != tt.content || out["encoding"] != tt.encoding || out["lines"] != tt.lines || out["next_offset"] != tt.next || out["truncated"] != tt.truncated {
			t.Errorf("%s: got %.100v, want %.100v", tt.input, out, tt)
		}
		wantPaths(t, res)
	}
	out, _ := w.must("file-read", `{"path": "big"}`)
	if out["truncated"] != true || out["lines"] != float64(10485) || out["next_offset"] != float64(10486) {
		t.Errorf("big: got lines %v, next %v, want what 1 MiB holds", out["lines"], out["next_offset"])
	}
	w.refused("file-read", `{"path": "none"}`, agents.ErrToolFailed, "none does not exist")
	w.refused("file-read", `{"path": "."}`, agents.ErrToolFailed, "file-list")
	w.refused("file-read", `{"path": "text/x"}`, agents.ErrToolFailed, "")
	w.refused("file-read", `{"path": "bigbytes"}`, agents.ErrToolFailed, "1048577 bytes")
	w.refused("file-read", `{"path": "bytes", "limit": 1}`, agents.ErrToolFailed, "not text")
	w.refused("file-read", `{"path": "text", "offset": 0}`, agents.ErrInvalid, `"offset"`)
	if err := syscall.Mkfifo(filepath.Join(w.sandbox, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"file-read", "file-search"} {
		w.call(name, `{"path": "fifo", "pattern": "x"}`)
		if _, err := w.call(name, map[string]string{"file-read": `{"path": "fifo"}`, "file-search": `{"path": "fifo", "pattern": "x"}`}[name]); !errors.Is(err, agents.ErrToolFailed) {
			t.Errorf("%s of a FIFO: got %v, want ErrToolFailed", name, err)
		}
	}
}

func TestFileWrite(t *testing.T) {
	w := newWorld(t)
	out, res := w.must("file-write", `{"path": "a/b/c.txt", "content": "x\n"}`)
	if want := map[string]any{"path": "a/b/c.txt", "size": float64(2), "mode": "0644", "created": true}; !reflect.DeepEqual(out, want) {
		t.Errorf("got %v, want %v", out, want)
	}
	wantPaths(t, res, "a", "a/b", "a/b/c.txt")
	if err := os.Chmod(filepath.Join(w.sandbox, "a/b/c.txt"), 0o750); err != nil {
		t.Fatal(err)
	}
	out, res = w.must("file-write", `{"path": "a/b/c.txt", "content": ""}`)
	if out["created"] != false || w.mode("a/b/c.txt").Perm() != 0o750 || w.content("a/b/c.txt") != "" {
		t.Errorf("got %v, mode %v, want the mode kept", out, w.mode("a/b/c.txt"))
	}
	wantPaths(t, res, "a/b/c.txt")
	for _, mode := range []string{"0755", "600", "0444"} {
		w.must("file-write", fmt.Sprintf(`{"path": "m", "content": "x", "mode": %q}`, mode))
		if got := fmt.Sprintf("%o", w.mode("m").Perm()); got != strings.TrimPrefix(mode, "0") {
			t.Errorf("got mode %s, want %s", got, mode)
		}
	}
	w.must("file-write", `{"path": "b", "content": "/wBh", "encoding": "base64"}`)
	if got := w.content("b"); got != "\xff\x00a" {
		t.Errorf("base64: got %q", got)
	}
	for _, tt := range []struct {
		input string
		class error
		says  string
	}{
		{`{"path": "x", "content": "a", "mode": "rwx"}`, agents.ErrInvalid, `"mode"`},
		{`{"path": "x", "content": "a", "mode": "4755"}`, agents.ErrInvalid, `"mode"`},
		{`{"path": "x", "content": "a", "mode": 420}`, agents.ErrInvalid, `"mode"`},
		{`{"path": "x", "content": "%", "encoding": "base64"}`, agents.ErrInvalid, "base64"},
		{`{"path": "x"}`, agents.ErrInvalid, `"content" is missing`},
		{`{"path": "m/x", "content": "a"}`, agents.ErrToolFailed, "not a directory"},
		{`{"path": "m/x/y", "content": "a"}`, agents.ErrToolFailed, "not a directory"},
		{`{"path": "a", "content": "a"}`, agents.ErrToolFailed, "is a directory"},
		{`{"path": "x", "content": "a", "sandbox_root": "/"}`, agents.ErrInvalid, "unknown"},
	} {
		w.refused("file-write", tt.input, tt.class, tt.says)
	}
	for _, line := range w.everything() {
		if strings.Contains(line, ".agents-") {
			t.Errorf("left behind: %s", line)
		}
	}
}

func TestFileEdit(t *testing.T) {
	w := newWorld(t)
	w.put("f", "one two two three\n")
	w.put("aaa", "aaa")
	w.put("crlf", "one\r\ntwo\r\n")
	w.put("raw", "x\xffy\x00z")
	out, res := w.must("file-edit", `{"path": "f", "old": "one", "new": "1"}`)
	if want := map[string]any{"path": "f", "replacements": float64(1), "size": float64(16)}; !reflect.DeepEqual(out, want) {
		t.Errorf("got %v, want %v", out, want)
	}
	wantPaths(t, res, "f")
	out, _ = w.must("file-edit", `{"path": "f", "old": "two", "new": "$1 2", "all": true}`)
	if got, want := w.content("f"), "1 $1 2 $1 2 three\n"; got != want || out["replacements"] != float64(2) {
		t.Errorf("got %q, %v, want %q", got, out, want)
	}
	w.must("file-edit", `{"path": "raw", "old": "x", "new": ""}`)
	if got := w.content("raw"); got != "\xffy\x00z" {
		t.Errorf("other bytes: got %q", got)
	}
	for _, tt := range []struct {
		input string
		class error
		says  string
	}{
		{`{"path": "f", "old": "$1", "new": "x"}`, agents.ErrToolFailed, "2 times"},
		{`{"path": "aaa", "old": "aa", "new": "x"}`, agents.ErrToolFailed, "2 times"},
		{`{"path": "f", "old": "none", "new": "x"}`, agents.ErrToolFailed, "not in f"},
		{`{"path": "crlf", "old": "one\ntwo", "new": "x"}`, agents.ErrToolFailed, `\r\n`},
		{`{"path": "f", "old": "", "new": "x"}`, agents.ErrInvalid, `"old"`},
		{`{"path": "f", "old": "x", "new": "x"}`, agents.ErrInvalid, "the same"},
		{`{"path": "none", "old": "x", "new": "y"}`, agents.ErrToolFailed, "does not exist"},
	} {
		w.refused("file-edit", tt.input, tt.class, tt.says)
	}
}

func TestFileDelete(t *testing.T) {
	w := newWorld(t)
	w.put("f", "x")
	w.put("dir/a", "x")
	w.put("dir/sub/b", "x")
	w.link("dir", "link")
	if err := os.Mkdir(filepath.Join(w.sandbox, "bare"), 0o755); err != nil {
		t.Fatal(err)
	}
	w.refused("file-delete", `{"path": "dir"}`, agents.ErrToolFailed, "recursive")
	w.refused("file-delete", `{"path": "none"}`, agents.ErrToolFailed, "does not exist")
	_, res := w.must("file-delete", `{"path": "link"}`)
	wantPaths(t, res, "link")
	_, res = w.must("file-delete", `{"path": "bare"}`)
	wantPaths(t, res, "bare")
	if err := os.Chmod(filepath.Join(w.sandbox, "dir/sub"), 0o555); err != nil {
		t.Fatal(err)
	}
	out, res := w.must("file-delete", `{"path": "dir", "recursive": true}`)
	wantPaths(t, res, "dir", "dir/a", "dir/sub", "dir/sub/b")
	if out["deleted"] != float64(4) || out["type"] != "directory" || w.exists("dir") || !w.exists("f") {
		t.Errorf("got %v, want the directory gone and nothing else", out)
	}
}

func TestFileMoveAndCopy(t *testing.T) {
	w := newWorld(t)
	w.put("f", "x")
	w.put("other", "y")
	w.put("dir/a", "a")
	w.put("dir/sub/b", "b")
	if err := os.Chmod(filepath.Join(w.sandbox, "f"), 0o711); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"file-move", "file-copy"} {
		w.refused(name, `{"from": "f", "to": "other"}`, agents.ErrToolFailed, "there already")
		w.refused(name, `{"from": "f", "to": "dir"}`, agents.ErrToolFailed, "there already")
		w.refused(name, `{"from": "none", "to": "x"}`, agents.ErrToolFailed, "does not exist")
		w.refused(name, `{"from": "dir", "to": "dir/sub/x"}`, agents.ErrInvalid, "lies in")
		w.refused(name, `{"from": "f", "to": "f"}`, agents.ErrInvalid, "or is it")
		w.refused(name, `{"from": "f", "to": "other/x"}`, agents.ErrToolFailed, "")
	}
	_, res := w.must("file-copy", `{"from": "f", "to": "new/deep/copy"}`)
	wantPaths(t, res, "new", "new/deep", "new/deep/copy")
	if w.mode("new/deep/copy").Perm() != 0o711 || w.content("f") != "x" {
		t.Errorf("copy: got mode %v, want 0711 and the original kept", w.mode("new/deep/copy"))
	}
	_, res = w.must("file-move", `{"from": "dir", "to": "moved/here"}`)
	wantPaths(t, res, "dir", "dir/a", "dir/sub", "dir/sub/b", "moved", "moved/here", "moved/here/a", "moved/here/sub", "moved/here/sub/b")
	if w.exists("dir") || w.content("moved/here/sub/b") != "b" {
		t.Error("move of a directory: want it at its new place alone")
	}
	out, res := w.must("file-copy", `{"from": "moved", "to": "again"}`)
	wantPaths(t, res, "again", "again/here", "again/here/a", "again/here/sub", "again/here/sub/b")
	if out["count"] != float64(5) || w.content("again/here/a") != "a" {
		t.Errorf("copy of a directory: got %v", out)
	}
}

func TestDirCreate(t *testing.T) {
	w := newWorld(t)
	w.put("f", "x")
	out, res := w.must("dir-create", `{"path": "a/b"}`)
	wantPaths(t, res, "a", "a/b")
	if out["created"] != true || !w.mode("a/b").IsDir() {
		t.Errorf("got %v", out)
	}
	out, res = w.must("dir-create", `{"path": "a/b/"}`)
	wantPaths(t, res)
	if out["created"] != false {
		t.Errorf("again: got %v, want nothing created", out)
	}
	w.refused("dir-create", `{"path": "f"}`, agents.ErrToolFailed, "not a directory")
	w.refused("dir-create", `{"path": "f/x"}`, agents.ErrToolFailed, "not a directory")
}

func TestFileListAndInfo(t *testing.T) {
	w := newWorld(t)
	w.put("b/f", "12345")
	w.put("a", "1")
	w.put(".git/HEAD", "x")
	w.link("../sb-10", "link")
	paths := func(out map[string]any) string {
		var s []string
		for _, e := range out["entries"].([]any) {
			s = append(s, e.(map[string]any)["path"].(string))
		}
		return strings.Join(s, " ")
	}
	for input, want := range map[string]string{
		`{}`:                               ".git a b link",
		`{"recursive": true}`:              ".git a b b/f link",
		`{"path": "b"}`:                    "b/f",
		`{"path": "./b/"}`:                 "./b/f",
		`{"path": "b", "recursive": true}`: "b/f",
	} {
		out, res := w.must("file-list", input)
		if got := paths(out); got != want || out["truncated"] != false {
			t.Errorf("%s: got %s, want %s", input, got, want)
		}
		wantPaths(t, res)
	}
	out, _ := w.must("file-list", `{"path": "b"}`)
	if got, want := out["entries"].([]any)[0], (map[string]any{"path": "b/f", "type": "file", "size": float64(5), "mode": "0644"}); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	w.refused("file-list", `{"path": "a"}`, agents.ErrToolFailed, "not a directory")
	w.refused("file-list", `{"path": "none"}`, agents.ErrToolFailed, "does not exist")

	out, _ = w.must("file-info", `{"path": "b/f"}`)
	if out["type"] != "file" || out["size"] != float64(5) || out["mode"] != "0644" || out["modified"] == "" {
		t.Errorf("info: got %v", out)
	}
	out, _ = w.must("file-info", `{"path": "link"}`)
	if out["type"] != "symlink" || out["target"] != "../sb-10" || out["leads_to"] != nil {
		t.Errorf("info of a link that leads out: got %v, want it described and not followed", out)
	}
	if out, _ = w.must("file-info", `{"path": "."}`); out["type"] != "directory" {
		t.Errorf("info of the top: got %v", out)
	}
	w.refused("file-info", `{"path": "none"}`, agents.ErrToolFailed, "does not exist")
}

func TestFileListIsCapped(t *testing.T) {
	if fi, err := os.Stat("/dev/shm"); err == nil && fi.IsDir() {
		t.Setenv("TMPDIR", "/dev/shm") // so many directories take long on a disk
	}
	w := newWorld(t)
	if err := os.Mkdir(filepath.Join(w.sandbox, "many"), 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range 10001 {
		if err := os.Mkdir(filepath.Join(w.sandbox, "many", fmt.Sprint(i)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	out, res := w.must("file-list", `{"path": "many"}`)
	if n := len(out["entries"].([]any)); n != 10000 || out["truncated"] != true || len(res.Notices) != 1 {
		t.Errorf("got %d entries, truncated %v, notices %q, want 10000 and that said", n, out["truncated"], res.Notices)
	}
}

func TestFileSearch(t *testing.T) {
	w := newWorld(t)
	w.put("a.go", "func main() {\r\n\tprintln(1)\n}\nfunc x")
	w.put("sub/b.go", "no\nfunc b()\n")
	w.put("sub/c.txt", "func c\n")
	w.put("bin", "func\x00")
	w.put("latin", "func caf\xe9\n")
	w.put("long", "func "+strings.Repeat("é", 400)+"\n")
	w.put(".git/x", "func")
	w.link("../sb-10", "out")
	search := func(input string) string {
		out, _ := w.must("file-search", input)
		var s []string
		for _, m := range out["matches"].([]any) {
			e := m.(map[string]any)
			s = append(s, fmt.Sprintf("%s:%v", e["path"], e["line"]))
		}
		return strings.Join(s, " ")
	}
	for input, want := range map[string]string{
		`{"pattern": "func"}`:                                   "a.go:1 a.go:4 latin:1 long:1 sub/b.go:2 sub/c.txt:1",
		`{"pattern": "^func .*\\{$"}`:                           "a.go:1",
		`{"pattern": "func", "path": "sub"}`:                    "sub/b.go:2 sub/c.txt:1",
		`{"pattern": "func", "path": "sub/c.txt"}`:              "sub/c.txt:1",
		`{"pattern": "func", "glob": "*.go"}`:                   "a.go:1 a.go:4 sub/b.go:2",
		`{"pattern": "func", "glob": "sub/*.go"}`:               "sub/b.go:2",
		`{"pattern": "func", "glob": "**/*.{go,txt}"}`:          "a.go:1 a.go:4 sub/b.go:2 sub/c.txt:1",
		`{"pattern": "func", "glob": "[!a-b].*"}`:               "sub/c.txt:1",
		`{"pattern": "func", "path": "sub", "glob": "./x"}`:     "",
		`{"pattern": "func", "path": "sub", "glob": "**"}`:      "sub/b.go:2 sub/c.txt:1",
		`{"pattern": "(?i)FUNC MAIN"}`:                          "a.go:1",
		`{"pattern": "secret"}`:                                 "",
		`{"pattern": "func", "glob": "\\*.go"}`:                 "",
		`{"pattern": "func", "glob": "[]a]*"}`:                  "a.go:1 a.go:4",
		`{"pattern": "func", "glob": "?.go", "path": "sub"}`:    "sub/b.go:2",
		`{"pattern": "func", "glob": "{a,b}.go", "path": "./"}`: "./a.go:1 ./a.go:4 ./sub/b.go:2",
	} {
		if got := search(input); got != want {
			t.Errorf("%s: got %s, want %s", input, got, want)
		}
	}
	out, _ := w.must("file-search", `{"pattern": "func"}`)
	if out["skipped_binary"] != float64(1) || out["files_searched"] != float64(5) {
		t.Errorf("got %v, want one binary file left out", out)
	}
	out, _ = w.must("file-search", `{"pattern": "func", "path": "latin"}`)
	if got := out["matches"].([]any)[0].(map[string]any)["text"]; got != "func caf�" {
		t.Errorf("got %q, want the byte replaced", got)
	}
	for _, tt := range []struct{ input, says string }{
		{`{"pattern": "("}`, "pattern"},
		{`{"pattern": ""}`, "pattern"},
		{`{"pattern": "x", "glob": "[a"}`, "glob"},
		{`{"pattern": "x", "glob": "{a"}`, "glob"},
		{`{"pattern": "x", "glob": "[z-a]"}`, "glob"},
	} {
		w.refused("file-search", tt.input, agents.ErrInvalid, tt.says)
	}
	w.put("many", strings.Repeat("hit\n", 1001))
	out, res := w.must("file-search", `{"pattern": "hit"}`)
	if n := len(out["matches"].([]any)); n != 1000 || out["truncated"] != true || len(res.Notices) != 1 {
		t.Errorf("got %d matches, truncated %v, want 1000 and that said", n, out["truncated"])
	}
}
