//go:build linux && failpoint && powerloss

package fsx_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// lossy is an ext4 file system of the test's own that can lose what is not
// synced. It needs root, and a minute and a half for all effects of a move:
//
//	go test -tags 'failpoint powerloss' -run PowerLoss ./internal/fsx
type lossy struct{ image, at string }

func newLossy(t *testing.T) lossy {
	t.Helper()
	base := t.TempDir()
	l := lossy{filepath.Join(base, "image"), filepath.Join(base, "mount")}
	must(t, os.Mkdir(l.at, 0o755))
	sh(t, "truncate", "-s", "32M", l.image)
	sh(t, "mkfs.ext4", "-q", "-F", l.image)
	sh(t, "mount", "-o", "loop", l.image, l.at)
	t.Cleanup(func() { sh(t, "umount", l.at) })
	return l
}

// lose ends the file system without writing anything out, and mounts it again.
func (l lossy) lose(t *testing.T) {
	t.Helper()
	const shutdown, noFlush = 0x8004587d, 2
	f, err := os.Open(l.at)
	must(t, err)
	must(t, errors.Join(unix.IoctlSetPointerInt(int(f.Fd()), shutdown, noFlush), f.Close()))
	sh(t, "umount", l.at)
	sh(t, "mount", "-o", "loop", l.image, l.at)
}

func sh(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %v: %s", args, err, out)
	}
}

// TestMovePowerLoss kills a move at each of its effects and then loses what is
// not synced.
func TestMovePowerLoss(t *testing.T) {
	for _, what := range []string{"move", "undo"} {
		t.Run(what, func(t *testing.T) {
			for n, over := 1, false; !over; n++ {
				t.Run(fmt.Sprint(n), func(t *testing.T) {
					disk := newLossy(t)
					a := newAttempt(t, disk.at, nil)
					unix.Sync()
					code, _ := a.run(t, what, fmt.Sprintf("%d:kill", n))
					over = code != -1
					disk.lose(t)
					a.run(t, "recover", "")
					a.beforeOrAfter(t)
				})
			}
		})
	}
}
