package copyonwrite

import (
	"context"
	"fmt"
	"io/fs"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/snapshot"
	"github.com/cleveragents/agents/sandbox"
)

// sealedName holds the sealed state in its store.
const sealedName = "sealed"

// Seal records the workspace as the result. What is protected, and what no
// state holds, is listed as left out. Times alone are no result.
func (s *Strategy) Seal(ctx context.Context, ws sandbox.Workspace, _ sandbox.SealRequest) (sandbox.Sealed, error) {
	b, err := s.open(ws)
	if err != nil {
		return sandbox.Sealed{}, err
	}
	sealed, err := b.seal(ctx)
	if err != nil {
		return sandbox.Sealed{}, fmt.Errorf("seal sandbox %s: %w", ws.SandboxID, err)
	}
	return sealed, nil
}

func (b *box) seal(ctx context.Context) (sandbox.Sealed, error) {
	r, err := b.recorder(ctx, b.sealStore())
	if err != nil {
		return sandbox.Sealed{}, err
	}
	c, err := r.capture(ctx, sandbox.CaptureRequest{Label: "result of sandbox " + b.ws.SandboxID})
	if err != nil {
		return sandbox.Sealed{}, err
	}
	if err := r.store.Hold(sealedName, c.Ref); err != nil {
		return sandbox.Sealed{}, err
	}
	changes, left, err := b.result(ctx, r.store, c.Ref)
	if err != nil {
		return sandbox.Sealed{}, err
	}
	sealed := sandbox.Sealed{Ref: c.Ref, Unchanged: !counts(changes), LeftOut: left, Notices: c.Notices}
	for _, p := range b.named(c.LeftOut) {
		if !b.wasThere(p.Path) {
			sealed.LeftOut = append(sealed.LeftOut, p)
		}
	}
	return sealed, nil
}

// wasThere reports whether the resource has a special file at a path, which
// the sandbox never got and nobody misses in its result.
func (b *box) wasThere(path string) bool { return exists(b.home(path)) }

// result lists what the sealed state ref changed of the base, as far as it can
// come home, and what of it cannot.
func (b *box) result(ctx context.Context, store *snapshot.Store, ref string) (changes []snapshot.Change, left []agents.PathReason, err error) {
	all, err := store.Compare(ctx, b.rec.BaseState, ref)
	if err != nil {
		return nil, nil, err
	}
	seen := map[string]bool{}
	leave := func(path, why string) {
		if !seen[path] {
			seen[path] = true
			left = append(left, agents.PathReason{Resource: b.ws.Resource.Name, Path: path, Reason: why})
		}
	}
	for _, c := range all {
		switch top, protected := b.protects(c.Path); {
		case protected && !timesOnly(c):
			leave(top, "is a protected name (sandbox.protected) and stays in the sandbox")
		case protected:
		case b.rec.File != "" && c.Path == "":
		case b.rec.File != "" && c.Path != b.rec.File:
			leave(c.Path, "is beside the file that is the resource")
		default:
			changes = append(changes, c)
		}
	}
	return changes, left, nil
}

// counts reports whether changes are more than other times.
func counts(changes []snapshot.Change) bool {
	for _, c := range changes {
		if !timesOnly(c) {
			return true
		}
	}
	return false
}

// timesOnly reports whether only a modification time, or how a file is laid
// out on the disk, is another.
func timesOnly(c snapshot.Change) bool { return sameThing(c.Old, c.New) && c.Old.Link == c.New.Link }

// sameThing reports whether two entries are the same but for times, names of
// the file and holes. Directories are the same whatever is in them.
func sameThing(a, b snapshot.Entry) bool {
	return a.Exists() == b.Exists() && a.Mode == b.Mode && a.UID == b.UID && a.GID == b.GID &&
		(a.ID == b.ID || a.Mode&fs.ModeDir != 0) && sameXattrs(a.Xattr, b.Xattr)
}

func sameXattrs(a, b map[string]string) bool {
	if len(a) != len(b) {
		return false
	}
	for name, value := range a {
		if other, ok := b[name]; !ok || other != value {
			return false
		}
	}
	return true
}
