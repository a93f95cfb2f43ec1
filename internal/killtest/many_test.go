//go:build linux && failpoint

package killtest_test

import "testing"

// many is how many failpoints of each command are taken, at most.
const many = 6

// TestKillMany kills every command at many of its failpoints.
func TestKillMany(t *testing.T) { killAll(t, many) }

// TestFullDiskMany fills the disk at many failpoints of the commands.
func TestFullDiskMany(t *testing.T) { fullAll(t, many/2) }
