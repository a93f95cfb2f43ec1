//go:build unix

package cli_test

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/creack/pty"
)

// DESIGN §10: Ctrl-C at the question after a run loses nothing and says how to
// go on.
func TestCtrlCAtTheMenuKeepsThePlan(t *testing.T) {
	home := t.TempDir()
	repo := filepath.Join(home, "r")
	env := append(os.Environ(), "HOME="+home, "CLEVERAGENTS_DATA_DIR="+filepath.Join(home, "data"), "GIT_CONFIG_NOSYSTEM=1", "TERM=dumb",
		"GIT_AUTHOR_NAME=Ann", "GIT_AUTHOR_EMAIL=ann@example.com", "GIT_COMMITTER_NAME=Ann", "GIT_COMMITTER_EMAIL=ann@example.com")
	for _, args := range [][]string{{"init", "-q", repo}, {"-C", repo, "commit", "-q", "--allow-empty", "-m", "start"}} {
		git := exec.Command("git", args...)
		git.Env = env
		if out, err := git.CombinedOutput(); err != nil {
			t.Fatalf("git %q: %v\n%s", args, err, out)
		}
	}
	cmd := exec.Command("agents", "run", "--", "sh", "-c", "echo v2 >a.txt")
	cmd.Env, cmd.Dir = env, repo
	console, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 40, Cols: 100})
	if err != nil {
		t.Fatal(err)
	}
	defer console.Close()
	screen := untilTheEnd(t, console, "default k")
	_ = cmd.Wait()
	if got := cmd.ProcessState.ExitCode(); got != 130 {
		t.Errorf("exit code %d, want 130", got)
	}
	for _, want := range []string{"is kept with the changes made so far", "agents plan diff 01", "agents plan apply 01"} {
		if !strings.Contains(screen, want) {
			t.Errorf("%q is missing in\n%s", want, screen)
		}
	}
}

// untilTheEnd reads what a program shows, and types Ctrl-C once it shows prompt.
func untilTheEnd(t *testing.T, console *os.File, prompt string) string {
	t.Helper()
	var screen bytes.Buffer
	asked := false
	in := bufio.NewReader(console)
	for {
		b, err := in.ReadByte()
		if err != nil { // the program is gone
			return screen.String()
		}
		screen.WriteByte(b)
		if !asked && bytes.HasSuffix(screen.Bytes(), []byte(prompt)) {
			asked = true
			if _, err := console.WriteString("\x03"); err != nil {
				t.Fatal(err)
			}
		}
	}
}
