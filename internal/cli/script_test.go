package cli_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/creack/pty"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/cleveragents/agents/internal/cli"
	"github.com/cleveragents/agents/internal/oracle"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"agents": func() { os.Exit(cli.Main(os.Args[1:])) },
	})
}

// The scripts drive the program as a user does. Beside the commands of
// testscript they have:
//
//	rc N CMD…          the command exits N; with --format json its standard output is one document that says so
//	! rc0 CMD…         the command fails, whatever its code
//	term N TYPED CMD…  the same on a terminal 100 columns wide with TYPED as input; what it showed is in the file screen
//	jsonget VAR PATH   a value of the last document, as text
//	jsonis PATH VALUE  it is this; a VALUE that begins with a quote is a Go string
//	jsonhas KEY…       the last document has these keys
//	mkrepo DIR         a repository with a.txt = v1 on main
//	digest VAR DIR     what DIR holds, to the last byte, without what a sandbox may show there
//	same VAR DIR       it holds that still
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup:               setup,
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"rc": rc, "rc0": rc0, "jsonget": jsonGet, "jsonis": jsonIs, "jsonhas": jsonHas, "mkrepo": mkrepo, "term": terminal,
			"digest": func(ts *testscript.TestScript, neg bool, args []string) { digest(t, ts, neg, args) },
			"same":   func(ts *testscript.TestScript, neg bool, args []string) { same(t, ts, neg, args) },
		},
	})
}

func setup(env *testscript.Env) error {
	home := filepath.Join(env.WorkDir, "home")
	env.Setenv("HOME", home)
	env.Setenv("CLEVERAGENTS_DATA_DIR", filepath.Join(env.WorkDir, "data"))
	env.Setenv("GIT_CONFIG_NOSYSTEM", "1")
	env.Setenv("TERM", "xterm-256color")
	env.Setenv("SHELL", "/bin/sh")
	if err := os.MkdirAll(home, 0o700); err != nil {
		return err
	}
	config := "[user]\n\tname = Ann\n\temail = ann@example.com\n[init]\n\tdefaultBranch = main\n"
	return os.WriteFile(filepath.Join(home, ".gitconfig"), []byte(config), 0o600)
}

func refuseNeg(ts *testscript.TestScript, neg bool, args []string, atLeast int) {
	if neg || len(args) < atLeast {
		ts.Fatalf("usage: see TestScripts")
	}
}

func rc(ts *testscript.TestScript, neg bool, args []string) {
	refuseNeg(ts, neg, args, 2)
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
	if wantsJSON(args[2:]) {
		if doc := document(ts); fmt.Sprint(doc["exit_code"]) != args[0] {
			ts.Fatalf("exit_code %v in the document, want %d", doc["exit_code"], want)
		}
	}
}

// terminal runs a command with all three streams on a terminal.
func terminal(ts *testscript.TestScript, neg bool, args []string) {
	refuseNeg(ts, neg, args, 3)
	typed, err := strconv.Unquote(`"` + args[1] + `"`)
	ts.Check(err)
	ts.Check(ts.Exec("env", "-0"))
	cmd := exec.Command(args[2], args[3:]...)
	cmd.Env = strings.Split(strings.TrimSuffix(ts.ReadFile("stdout"), "\x00"), "\x00")
	cmd.Dir = ts.MkAbs(".")
	for _, dir := range filepath.SplitList(ts.Getenv("PATH")) {
		if p := filepath.Join(dir, args[2]); cmd.Err != nil || cmd.Path == args[2] {
			if _, err := os.Stat(p); err == nil {
				cmd.Path, cmd.Err = p, nil
				break
			}
		}
	}
	console, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 40, Cols: 100})
	ts.Check(err)
	defer console.Close()
	_, err = console.WriteString(typed)
	ts.Check(err)
	var screen bytes.Buffer
	_, _ = io.Copy(&screen, console) // ends with an error when the command is gone
	_ = cmd.Wait()
	ts.Logf("[screen]\n%s", screen.String())
	ts.Check(os.WriteFile(ts.MkAbs("screen"), bytes.ReplaceAll(screen.Bytes(), []byte("\r\n"), []byte("\n")), 0o600))
	if got := cmd.ProcessState.ExitCode(); strconv.Itoa(got) != args[0] {
		ts.Fatalf("exit code %d, want %s", got, args[0])
	}
}

func rc0(ts *testscript.TestScript, neg bool, args []string) {
	err := ts.Exec(args[0], args[1:]...)
	if !neg || err == nil {
		ts.Fatalf("%v, want a failure", err)
	}
}

func wantsJSON(args []string) bool {
	if i := slices.Index(args, "--"); i >= 0 {
		args = args[:i]
	}
	i := slices.Index(args, "--format")
	return i >= 0 && i+1 < len(args) && args[i+1] == "json" || slices.Contains(args, "--format=json")
}

// document reads the last standard output, which must be one JSON object with
// the keys that every document has (U117, B118).
func document(ts *testscript.TestScript) map[string]any {
	dec := json.NewDecoder(bytes.NewReader([]byte(ts.ReadFile("stdout"))))
	dec.UseNumber()
	var doc map[string]any
	if err := dec.Decode(&doc); err != nil {
		ts.Fatalf("standard output is no JSON: %v", err)
	}
	if err := dec.Decode(new(any)); !errors.Is(err, io.EOF) {
		ts.Fatalf("more than one document on standard output")
	}
	for _, key := range []string{"command", "status", "exit_code", "timing", "messages"} {
		if _, ok := doc[key]; !ok {
			ts.Fatalf("the document has no %s", key)
		}
	}
	return doc
}

// value finds a.b.0.c in the last document; len is a length.
func value(ts *testscript.TestScript, path string) string {
	var v any = document(ts)
	for _, part := range strings.Split(path, ".") {
		switch at := v.(type) {
		case map[string]any:
			inner, ok := at[part]
			if !ok && part != "len" {
				ts.Fatalf("%s: no key %s", path, part)
			}
			if v = inner; part == "len" {
				v = len(at)
			}
		case []any:
			if part == "len" {
				v = len(at)
				continue
			}
			i, err := strconv.Atoi(part)
			if err != nil || i >= len(at) {
				ts.Fatalf("%s: no element %s of %d", path, part, len(at))
			}
			v = at[i]
		default:
			ts.Fatalf("%s: %v has no %s", path, at, part)
		}
	}
	if s, ok := v.(string); ok {
		return s
	}
	b, err := json.Marshal(v)
	ts.Check(err)
	return string(b)
}

func jsonGet(ts *testscript.TestScript, neg bool, args []string) {
	refuseNeg(ts, neg, args, 2)
	ts.Setenv(args[0], value(ts, args[1]))
}

func jsonIs(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: jsonis PATH VALUE")
	}
	want := args[1]
	if strings.HasPrefix(want, `"`) {
		var err error
		want, err = strconv.Unquote(want)
		ts.Check(err)
	}
	if got := value(ts, args[0]); (got == want) == neg {
		ts.Fatalf("%s is %q, want %q", args[0], got, want)
	}
}

func jsonHas(ts *testscript.TestScript, neg bool, args []string) {
	doc := document(ts)
	for _, key := range args {
		if _, ok := doc[key]; ok == neg {
			ts.Fatalf("key %s: present is %v", key, ok)
		}
	}
}

func mkrepo(ts *testscript.TestScript, neg bool, args []string) {
	refuseNeg(ts, neg, args, 1)
	dir := ts.MkAbs(args[0])
	ts.Check(os.MkdirAll(dir, 0o755))
	ts.Check(os.WriteFile(filepath.Join(dir, "a.txt"), []byte("v1\n"), 0o644))
	for _, git := range [][]string{{"init", "-q", "-b", "main"}, {"add", "-A"}, {"commit", "-q", "-m", "init"}} {
		ts.Check(ts.Exec("git", append([]string{"-C", dir}, git...)...))
	}
}

func digest(t *testing.T, ts *testscript.TestScript, neg bool, args []string) {
	refuseNeg(ts, neg, args, 2)
	ts.Setenv(args[0], strings.Join(oracle.Digest(t, ts.MkAbs(args[1]), placeholder()...), "\n"))
}

func same(t *testing.T, ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: same VAR DIR")
	}
	want := strings.Split(ts.Getenv(args[0]), "\n")
	got := oracle.Digest(t, ts.MkAbs(args[1]), placeholder()...)
	if d := oracle.Diff(want, got); (d == "") == neg {
		ts.Fatalf("%s (- before, + now):\n%s", args[1], d)
	}
}

// placeholder is what a plan may leave in a repository until cleanup and gc.
func placeholder() []string {
	return append(oracle.Placeholder(), ".git/worktrees", ".git/objects/??")
}
