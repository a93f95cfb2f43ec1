package sandbox

import (
	"context"
	"fmt"
	"io"
	"maps"
	"time"

	agents "github.com/cleveragents/agents"
)

// Update brings the real resource's newer state into the sandbox, three-way,
// and makes it ACTIVE. Conflicts are agents.ErrConflict, listed in the result,
// and change nothing. A strategy without the ability is agents.ErrUnsupported.
// A zero when is now.
func (s *Sandbox) Update(ctx context.Context, when time.Time) (agents.ResourceResult, error) {
	s.calls.Lock()
	defer s.calls.Unlock()
	u, ok := s.strategy.(Updater)
	if !ok {
		return s.notTried(), s.unsupported("be updated")
	}
	if err := s.usable(); err != nil {
		return s.notTried(), err
	}
	if when.IsZero() {
		when = s.now()
	}
	res, ws, err := u.Update(ctx, s.Workspace(), when)
	res.Resource = orElse(res.Resource, s.resource.Name)
	if err != nil {
		return res, fmt.Errorf("update sandbox of %s: %w", s.resource.Name, err)
	}
	return res, s.settle(ctx, func(r *agents.SandboxRecord) error {
		r.Path, r.Metadata, r.SealedRef = ws.Path, maps.Clone(ws.Metadata), ""
		r.BaseRef = ws.Metadata[MetaBaseRef]
		return r.Move(agents.SandboxActive)
	})
}

// ExportBranch writes the sealed result to a branch of the real repository,
// which must not exist yet (else agents.ErrExists). An empty ref is the
// recorded seal. A strategy without the ability is agents.ErrUnsupported.
func (s *Sandbox) ExportBranch(ctx context.Context, ref, branch string) error {
	return s.export(ref, func(e Exporter, ref string) error { return e.ExportBranch(ctx, s.Workspace(), ref, branch) })
}

// ExportPatch writes the sealed result to w in git's patch format. An empty
// ref is the recorded seal. A strategy without the ability is
// agents.ErrUnsupported.
func (s *Sandbox) ExportPatch(ctx context.Context, ref string, w io.Writer) error {
	return s.export(ref, func(e Exporter, ref string) error { return e.ExportPatch(ctx, s.Workspace(), ref, w) })
}

func (s *Sandbox) export(ref string, write func(Exporter, string) error) error {
	s.calls.Lock()
	defer s.calls.Unlock()
	e, ok := s.strategy.(Exporter)
	if !ok {
		return s.unsupported("export a result")
	}
	ref = orElse(ref, s.Record().SealedRef)
	if err := s.live("EXPORT"); err != nil {
		return err
	}
	if ref == "" {
		return agents.WithHint(s.stateError("EXPORT"), "seal the sandbox first")
	}
	if err := write(e, ref); err != nil {
		return fmt.Errorf("export sandbox of %s: %w", s.resource.Name, err)
	}
	return nil
}

// Unapplied reports whether the sandbox holds work that exists nowhere else. A
// sandbox that was never created holds none. A strategy without the ability is
// agents.ErrUnsupported.
func (s *Sandbox) Unapplied(ctx context.Context) (bool, error) {
	s.calls.Lock()
	defer s.calls.Unlock()
	if !s.Status().Live() {
		return false, nil
	}
	a, ok := s.strategy.(Archiver)
	if !ok {
		return false, s.unsupported("tell what is unapplied")
	}
	return a.Unapplied(ctx, s.Workspace())
}

// Archive writes everything unapplied into dir. A strategy without the ability
// is agents.ErrUnsupported.
func (s *Sandbox) Archive(ctx context.Context, dir string) error {
	s.calls.Lock()
	defer s.calls.Unlock()
	a, ok := s.strategy.(Archiver)
	if !ok {
		return s.unsupported("be archived")
	}
	if err := s.live("ARCHIVE"); err != nil {
		return err
	}
	if err := a.Archive(ctx, s.Workspace(), dir); err != nil {
		return fmt.Errorf("archive sandbox of %s: %w", s.resource.Name, err)
	}
	return nil
}

// Unarchive is Create with the content of an archive; the sandbox is CREATED
// afterwards. A strategy without the ability is agents.ErrUnsupported.
func (s *Sandbox) Unarchive(ctx context.Context, planID, dir string) (agents.SandboxContext, error) {
	a, ok := s.strategy.(Archiver)
	if !ok {
		return agents.SandboxContext{}, s.unsupported("be made from an archive")
	}
	return s.make(ctx, planID, "unarchive", func(ctx context.Context, req CreateRequest) (Workspace, error) {
		return a.Unarchive(ctx, req, dir)
	})
}

func (s *Sandbox) unsupported(what string) error {
	return fmt.Errorf("a sandbox of strategy %s cannot %s: %w", s.Capabilities().Name, what, agents.ErrUnsupported)
}
