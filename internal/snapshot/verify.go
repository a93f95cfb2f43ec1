package snapshot

import (
	"context"
	"fmt"
	"io"

	agents "github.com/cleveragents/agents"
)

// Verify checks that every object of the state ref exists and that those in
// the store's own packs hash right; what the store below has, it has whole. An error with agents.ErrDamaged names what
// does not. The commit's parent is another state and not looked at.
func (s *Store) Verify(ctx context.Context, ref string) error {
	if err := s.refresh(); err != nil {
		return fmt.Errorf("verify state %s: %w", clip(ref), err)
	}
	c, err := s.readCommit(ctx, ref)
	if err != nil {
		return fmt.Errorf("verify state: %w", err)
	}
	v := &verifier{s: s, seen: map[oid]bool{}}
	if err := v.object(ctx, c.tree, kindTree); err != nil {
		return fmt.Errorf("verify state %s: %w", ref, err)
	}
	if err := v.foreignOnes(ctx); err != nil {
		return fmt.Errorf("verify state %s: %w", ref, err)
	}
	return nil
}

// verifier walks a state's objects, each once.
type verifier struct {
	s       *Store
	seen    map[oid]bool
	foreign []foreignObject // not in the store's own packs
}

type foreignObject struct {
	id   oid
	kind kind
}

func (v *verifier) object(ctx context.Context, id oid, k kind) error {
	if v.seen[id] {
		return nil
	}
	v.seen[id] = true
	if !v.s.owns(id) && v.s.below != nil && v.s.below.sound(id) {
		return nil // with all that it reaches; what a restore takes from there is checked as it is read
	}
	if !v.s.owns(id) {
		v.foreign = append(v.foreign, foreignObject{id, k})
		return nil
	}
	if k == kindBlob {
		return v.s.copyObject(ctx, id, k, io.Discard)
	}
	entries, err := v.s.readTree(ctx, id)
	if err != nil {
		return err
	}
	for _, e := range entries {
		child := kindBlob
		if e.mode == modeTree {
			child = kindTree
		}
		if err := v.object(ctx, e.id, child); err != nil {
			return err
		}
	}
	return nil
}

// foreignOnes asks for all objects of alternates at once. What a tree there
// reaches is kept by the repository that it is in.
func (v *verifier) foreignOnes(ctx context.Context) error {
	if len(v.foreign) == 0 {
		return nil
	}
	ids := make([]string, len(v.foreign))
	for i, o := range v.foreign {
		ids[i] = v.s.f.hex(o.id)
	}
	if v.s.reader == nil {
		return fmt.Errorf("%s %s is missing: %w", v.foreign[0].kind, ids[0], agents.ErrDamaged)
	}
	if v.s.hasDamaged() { // the reader may know the objects of a damaged pack of our own
		for _, o := range v.foreign {
			if err := v.s.copyForeign(ctx, o.id, o.kind, io.Discard); err != nil {
				return err
			}
		}
		return nil
	}
	v.s.readerMu.Lock()
	defer v.s.readerMu.Unlock()
	infos, err := v.s.reader.StatObjects(ctx, ids)
	if err != nil {
		return err
	}
	for i, o := range v.foreign {
		switch {
		case i >= len(infos) || infos[i].Kind == "":
			return fmt.Errorf("%s %s is missing: %w", o.kind, ids[i], agents.ErrDamaged)
		case infos[i].Kind != o.kind.String():
			return fmt.Errorf("%s %s is a %s: %w", o.kind, ids[i], infos[i].Kind, agents.ErrDamaged)
		}
	}
	return nil
}
