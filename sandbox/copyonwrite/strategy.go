// Package copyonwrite is the strategy for directories and single files: a plan
// works on a copy, which shares its bytes with the original where the file
// system can, and what it changed comes home path by path (ADR-015,
// "copy_on_write"; DESIGN §8).
//
// What the resource was when it was copied is kept twice, and never as a
// second copy beside the first: its content in the base store, once for all
// sandboxes of the resource and compressed; and an origin, a list of what lay
// at each path (inode, size, times), by which a later look finds what has
// changed on the real side without reading what has not.
//
// States are package snapshot's, of an exact root: bytes, bits, owners,
// attributes, times, hard links and holes. They lie in the folder that a
// caller names; the base store is below it.
//
// Layout of a sandbox's private folder:
//
//	sandbox.json   what Create made or was about to make; the truth about the sandbox
//	cache          what the last scan saw
//	states/        sealed results, where nobody captures states
//	base/          the base store, where nobody shares one
//	stage/, move/  new contents and the journal of a restore or update under way
//
// Where the sandbox lies on another file system than the private folder,
// stage/ is beside the sandbox, in a folder .ca-private-….
package copyonwrite

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/git"
	"github.com/cleveragents/agents/internal/snapshot"
	"github.com/cleveragents/agents/sandbox"
	"github.com/cleveragents/agents/sandbox/internal/folder"
)

// Strategy is sandbox.Strategy for directories and files. It may be used from
// several goroutines. The zero value is ready.
type Strategy struct {
	Git git.Runner // counts lines, finds renames and merges texts

	states snapshot.Stores
}

// New returns the strategy.
func New() *Strategy { return &Strategy{} }

// Capabilities says what a copy can do. It leaves nothing in the resource.
func (s *Strategy) Capabilities() sandbox.Capabilities {
	caps := sandbox.Capabilities{
		Name:     agents.CopyOnWrite,
		Isolates: true, Rollback: true, Files: true,
		EmptyDirsHome: true, FullModesHome: true, IgnoredHome: true,
		ProtectedNames: sandbox.Options{}.ProtectedNames(),
	}
	if runtime.GOOS != "linux" {
		caps.Available = fmt.Errorf("faithful copies need Linux: %w", agents.ErrUnsupported)
	}
	return caps
}

// box is an opened workspace.
type box struct {
	ws     sandbox.Workspace
	rec    record
	run    *git.Runner
	states *snapshot.Stores
}

var _ sandbox.Checker = (*Strategy)(nil)

// open reads the record of a workspace. One that was never made, or not to
// its end, is agents.ErrNotFound; one that has to be made again agents.ErrBlocked.
func (s *Strategy) open(ws sandbox.Workspace) (*box, error) {
	rec, err := loadRecord(ws.PrivateDir)
	if err != nil {
		return nil, err
	}
	if !rec.Ready {
		return nil, folder.HalfMade(ws.SandboxID)
	}
	if err := rec.whole(); err != nil {
		return nil, err
	}
	b := s.box(ws, rec)
	return b, folder.CheckOwn(rec.Path, rec.Dir)
}

// Check is agents.ErrBlocked for a copy that a stop of the machine has torn.
func (s *Strategy) Check(_ context.Context, ws sandbox.Workspace) error {
	rec, err := loadRecord(ws.PrivateDir)
	if err != nil || !rec.Ready {
		return nil // said by who needs it
	}
	return rec.whole()
}

func (s *Strategy) box(ws sandbox.Workspace, rec record) *box {
	return &box{ws: ws, rec: rec, run: s.Git.WithIdle(ws.Options.GitTimeout), states: &s.states}
}

// private returns a path in the sandbox's private folder.
func (b *box) private(elem ...string) string {
	return filepath.Join(append([]string{b.ws.PrivateDir}, elem...)...)
}

// stageDir is where new contents are made: on the sandbox's file system.
func (b *box) stageDir() string {
	if b.rec.Near != "" {
		return filepath.Join(b.rec.Near, "stage")
	}
	return b.private("stage")
}

// protects reports whether a path has a component that never comes home, and
// returns the path up to it.
func (b *box) protects(path string) (string, bool) {
	names := b.ws.Options.ProtectedNames()
	for at := 0; at <= len(path); {
		end := strings.IndexByte(path[at:], '/')
		if end < 0 {
			end = len(path) - at
		}
		if slices.Contains(names, path[at:at+end]) {
			return path[:at+end], true
		}
		at += end + 1
	}
	return "", false
}

// exists reports whether anything lies at path.
func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
