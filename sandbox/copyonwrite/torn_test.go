//go:build linux

package copyonwrite_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/sandbox"
)

// TestMachineStopsBeforeTheCopyIsOnTheDisk: such a copy may be torn, and nothing is
// done with it.
func TestMachineStopsBeforeTheCopyIsOnTheDisk(t *testing.T) {
	b := created(t, "echo 1 >a; mkdir d; echo 2 >d/b", "echo changed >a")
	b.capture()
	record := filepath.Join(b.req.PrivateDir, "sandbox.json")
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	must(t, err)
	old := strings.TrimSpace(string(boot))
	text := strings.Replace(read(t, record), old, strings.Repeat("0", len(old)), 1)
	must(t, os.WriteFile(record, []byte(text), 0o600))
	b.plan(": >a; : >d/b") // as a power cut may leave them
	torn := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, agents.ErrBlocked) {
			t.Errorf("%s: %v, want ErrBlocked", what, err)
		}
	}
	torn("check", b.strategy.Check(t.Context(), b.ws))
	_, err = b.strategy.Prepare(t.Context(), b.ws)
	torn("prepare", err)
	_, err = b.strategy.Seal(t.Context(), b.ws, sandbox.SealRequest{})
	torn("seal", err)
	_, err = b.strategy.Capture(t.Context(), b.ws, sandbox.CaptureRequest{Objects: b.objects})
	torn("capture", err)
	b.remove()
	b.nothingLeft()
}
