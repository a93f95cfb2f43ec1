package proc_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/cleveragents/agents/internal/proc"
)

// terminalHelper names the script that the test binary runs on its terminal
// in place of the tests.
const terminalHelper = "PROC_TEST_TERMINAL"

func TestMain(m *testing.M) {
	if script := os.Getenv(terminalHelper); script != "" {
		os.Exit(onTerminal(script))
	}
	os.Exit(m.Run())
}

// onTerminal runs a script with the terminal and then tells what became of it.
func onTerminal(script string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	got, err := proc.Run(ctx, proc.Command{
		Argv: []string{"/bin/bash", "--norc", "-c", script}, Dir: "/", Env: os.Environ(),
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, TTY: true, Linger: -1,
		Grace: 5 * time.Second,
	})
	front, _ := unix.IoctlGetInt(0, unix.TIOCGPGRP)
	t, _ := unix.IoctlGetTermios(0, unix.TCGETS)
	fmt.Printf("result code=%d err=%v front=%t echo=%t notices=%q\n",
		got.ExitCode, err, front == unix.Getpgrp(), t != nil && t.Lflag&unix.ECHO != 0, got.Notices)
	return 0
}

// dialogue is the other end of the helper's terminal.
type dialogue struct {
	t    *testing.T
	tty  *os.File
	in   *bufio.Reader
	cmd  *exec.Cmd
	seen strings.Builder
}

func talk(t *testing.T, script string) *dialogue {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), terminalHelper+"="+script)
	tty, err := pty.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		tty.Close()
		cmd.Process.Kill()
		cmd.Wait()
	})
	if err := tty.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Logf("no deadline on this terminal: %v", err)
	}
	return &dialogue{t: t, tty: tty, in: bufio.NewReader(tty), cmd: cmd}
}

// expect reads up to a line that holds want and returns it.
func (d *dialogue) expect(want string) string {
	d.t.Helper()
	for {
		line, err := d.in.ReadString('\n')
		d.seen.WriteString(line)
		if strings.Contains(line, want) {
			return line
		}
		if err != nil {
			d.t.Fatalf("terminal: %v before %q; got %q", err, want, d.seen.String())
		}
	}
}

func (d *dialogue) send(s string) {
	d.t.Helper()
	if _, err := io.WriteString(d.tty, s); err != nil {
		d.t.Fatal(err)
	}
}

func TestTerminalIsPassedThrough(t *testing.T) {
	d := talk(t, `test -t 0 && test -t 1 && test -t 2 && echo is-a-terminal; read -r line; echo "got <$line>"; stty -echo; exit 4`)
	d.expect("is-a-terminal")
	d.send("hello\n")
	d.expect("got <hello>")
	line := d.expect("result ")
	for _, want := range []string{"code=4", "front=true", "echo=true", "exit status 4"} {
		if !strings.Contains(line, want) {
			t.Errorf("got %q, want %q in it", line, want)
		}
	}
}

func TestTerminalCtrlCReachesTheCommandAlone(t *testing.T) {
	d := talk(t, `trap 'echo caught; exit 9' INT; echo ready; while :; do sleep 0.01; done`)
	d.expect("ready")
	d.send("\x03")
	d.expect("caught")
	if line := d.expect("result "); !strings.Contains(line, "code=9") {
		t.Errorf("got %q, want the command's own exit code 9", line)
	}
}

func TestTerminalCtrlCEndsTheCommand(t *testing.T) {
	d := talk(t, `echo ready; exec sleep 1000`)
	d.expect("ready")
	d.send("\x03")
	if line := d.expect("result "); !strings.Contains(line, "code=130") || !strings.Contains(line, "interrupted") {
		t.Errorf("got %q, want exit code 130 and interrupted", line)
	}
}

func TestTerminalShellWithJobControl(t *testing.T) {
	d := talk(t, `set -m; sleep 1000 & echo "job $!"; (echo fore; read -r x; echo "read <$x>"); exit 0`)
	d.expect("job ")
	d.expect("fore")
	d.send("typed\n")
	d.expect("read <typed>")
	line := d.expect("result ")
	for _, want := range []string{"code=0", "front=true", "1 background process was ended: sleep"} {
		if !strings.Contains(line, want) {
			t.Errorf("got %q, want %q in it", line, want)
		}
	}
}

func TestTerminalStopAndContinue(t *testing.T) {
	// Between the test and the helper sits a shell with job control, as a user has.
	shell := exec.Command("/bin/bash", "--norc", "-i")
	shell.Env = append(os.Environ(), "PS1=prompt>\n", terminalHelper+"=echo ready; read -r x; echo \"got <$x>\"", "HELPER="+os.Args[0], "HISTFILE=")
	tty, err := pty.Start(shell)
	if err != nil {
		t.Fatal(err)
	}
	d := &dialogue{t: t, tty: tty, in: bufio.NewReader(tty), cmd: shell}
	t.Cleanup(func() {
		tty.Close()
		shell.Process.Signal(syscall.SIGKILL)
		shell.Wait()
	})
	d.send("\"$HELPER\"\n")
	d.expect("ready")
	d.send("\x1a")
	d.expect("Stopped")
	d.send("echo in-the-shell-$((1+1))\n")
	d.expect("in-the-shell-2")
	d.send("fg\n")
	d.send("again\n")
	d.expect("got <again>")
	if line := d.expect("result "); !strings.Contains(line, "code=0") || !strings.Contains(line, "front=true") {
		t.Errorf("got %q, want success with the terminal given back", line)
	}
	d.send("exit\n")
}

func TestTerminalTermEndsAnInteractiveShell(t *testing.T) {
	d := talk(t, `trap '' TERM; trap 'echo hup; exit 1' HUP; echo ready; while :; do sleep 0.01; done`)
	d.expect("ready")
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	d.expect("hup")
	if line := d.expect("result "); !strings.Contains(line, "code=1 ") || !strings.Contains(line, "interrupted") {
		t.Errorf("got %q, want exit code 1 and interrupted", line)
	}
}
