package snapshot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"sort"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/fsx"
)

// When packs are written anew.
const (
	smallPack    = 1 << 20 // bytes; packs up to this size are joined …
	manyPacks    = 16      // … once there are more than this many
	tooManyPacks = 64      // … or, by a capture, more than this many
	deadShare    = 5       // a pack is written anew when more than 1/deadShare of its bytes are dead
	copyBuffer   = 1 << 20
)

// Collect frees the bytes of what neither a commit of keep nor a held one
// reaches, and returns how many bytes the store shrank by. It also joins small
// packs. Killed at any moment it leaves a store that holds everything kept. A
// kept state that cannot be read whole is agents.ErrDamaged, and nothing is
// freed: what it reaches is not known.
func (s *Store) Collect(ctx context.Context, keep []string) (freed int64, err error) {
	lock, err := s.lock(ctx)
	if err != nil {
		return 0, fmt.Errorf("collect: %w", err)
	}
	defer lock.Release()
	freed, err = s.collect(ctx, keep)
	if err != nil {
		return freed, fmt.Errorf("collect: %w", err)
	}
	return freed, nil
}

func (s *Store) collect(ctx context.Context, keep []string) (int64, error) {
	if err := s.sweep(); err != nil {
		return 0, err
	}
	before, err := s.Size()
	if err != nil {
		return 0, err
	}
	live, err := s.mark(ctx, keep)
	if err != nil {
		return 0, err
	}
	isLive := func(id oid) bool { return live[id] }
	old, err := s.worthless(isLive)
	if err != nil {
		return 0, err
	}
	if err := s.rewrite(ctx, old, isLive); err != nil {
		return 0, err
	}
	after, err := s.Size()
	return before - after, err
}

// mark returns all objects of the own packs that kept states reach.
func (s *Store) mark(ctx context.Context, keep []string) (map[oid]bool, error) {
	held, err := s.Held()
	if err != nil {
		return nil, err
	}
	m := &marker{s: s, live: map[oid]bool{}}
	for _, ref := range held {
		keep = append(keep[:len(keep):len(keep)], ref)
	}
	for _, ref := range keep {
		id, err := s.f.parse(ref)
		if err != nil {
			return nil, err
		}
		if err := m.commit(ctx, id); err != nil {
			return nil, fmt.Errorf("kept state %s: %w", ref, err)
		}
	}
	return m.live, nil
}

// marker walks kept states. What is not in the own packs lies in an alternate
// with all that it reaches.
type marker struct {
	s    *Store
	live map[oid]bool
}

func (m *marker) commit(ctx context.Context, id oid) error {
	for queue := []oid{id}; len(queue) > 0; {
		id, queue = queue[0], queue[1:]
		if m.live[id] || !m.s.owns(id) {
			continue
		}
		m.live[id] = true
		c, err := m.s.readCommit(ctx, m.s.f.hex(id))
		if err != nil {
			return err
		}
		if err := m.tree(ctx, c.tree); err != nil {
			return err
		}
		queue = append(queue, c.parents...)
	}
	return nil
}

func (m *marker) tree(ctx context.Context, id oid) error {
	if m.live[id] || !m.s.owns(id) {
		return nil
	}
	m.live[id] = true
	entries, err := m.s.readTree(ctx, id)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.mode != modeTree {
			m.live[e.id] = true
			continue
		}
		if err := m.tree(ctx, e.id); err != nil {
			return err
		}
	}
	return nil
}

// extent is an object's entry in a pack.
type extent struct {
	i        int // in the index
	off, end int64
	live     bool
}

// extents returns a pack's entries in the order of the file, and how many
// bytes of it are live.
func (p *pack) extents(live func(oid) bool) ([]extent, int64, error) {
	all := make([]extent, p.n)
	for i := range all {
		off, err := p.offset(i)
		if err != nil {
			return nil, 0, err
		}
		var id oid
		copy(id[:], p.id(i))
		all[i] = extent{i: i, off: off, live: live(id)}
	}
	sort.Slice(all, func(i, j int) bool { return all[i].off < all[j].off })
	end, sum := p.size-int64(p.f.size), int64(0)
	for i := len(all) - 1; i >= 0; i-- {
		all[i].end = end
		end = all[i].off
		if all[i].live {
			sum += all[i].end - all[i].off
		}
	}
	return all, sum, nil
}

// rewrite publishes a pack with what is live of old ones, and then removes
// those.
func (s *Store) rewrite(ctx context.Context, old []*pack, live func(oid) bool) error {
	if len(old) == 0 {
		return nil
	}
	w := newPackWriter(s.packDir(), s.f, func(oid) bool { return false })
	for _, p := range old {
		if err := s.copyLive(ctx, w, p, live); err != nil {
			return errors.Join(fmt.Errorf("pack %s: %w", packID(p.name), err), w.discard())
		}
	}
	name, _, err := w.publish()
	if err != nil {
		return err
	}
	for _, p := range old {
		if p.name == name {
			continue
		}
		// Without its index a pack is rubbish that sweep removes.
		for _, ending := range []string{".idx", ".pack"} {
			if err := fsx.Remove(p.name + ending); err != nil {
				return err
			}
		}
		if err := removeIfThere(p.name + suspectEnding); err != nil {
			return err
		}
	}
	if err := fsx.SyncDir(s.packDir()); err != nil {
		return err
	}
	return s.refresh()
}

// join makes one pack of the small ones once captures have left very many of
// them: each costs every later process an open file.
func (s *Store) join(ctx context.Context) error {
	s.mu.Lock()
	var small []*pack
	for _, p := range s.order {
		if p.size <= smallPack && !p.suspect {
			small = append(small, p)
		}
	}
	s.mu.Unlock()
	if len(small) <= tooManyPacks {
		return nil
	}
	small = slices.DeleteFunc(small, (*pack).deltas)
	return s.rewrite(ctx, small, func(oid) bool { return true })
}

// worthless chooses the packs to write anew.
func (s *Store) worthless(live func(oid) bool) ([]*pack, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var old, small []*pack
	for _, p := range s.order {
		_, alive, err := p.extents(live)
		if err != nil {
			return nil, fmt.Errorf("pack %s: %w", packID(p.name), err)
		}
		frame := int64(12 + s.f.size) // head and checksum, of no object
		switch {
		case p.deltas(), p.suspect && alive > 0: // what is damaged cannot be copied
		case (p.size-frame-alive)*deadShare > p.size-frame:
			old = append(old, p)
		case p.size <= smallPack:
			small = append(small, p)
		}
	}
	if len(small) > manyPacks {
		old = append(old, small...)
	}
	return old, nil
}

// deltas reports whether the pack has entries that cannot be copied alone:
// then somebody repacked the store, and the pack stays as it is.
func (p *pack) deltas() bool {
	var b [32]byte
	for i := range p.n {
		off, err := p.offset(i)
		if err != nil {
			return true
		}
		n, _ := p.file.ReadAt(b[:], off)
		if _, _, err := readEntryHeader(bytes.NewReader(b[:n])); err != nil {
			return true
		}
	}
	return false
}

// copyLive copies the live entries of a pack as they are, and checks each.
func (s *Store) copyLive(ctx context.Context, w *packWriter, p *pack, live func(oid) bool) error {
	all, _, err := p.extents(live)
	if err != nil {
		return err
	}
	for _, e := range all {
		if !e.live {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		var id oid
		copy(id[:], p.id(e.i))
		if err := w.copyRaw(id, io.NewSectionReader(p.file, e.off, e.end-e.off), p.crc(e.i)); err != nil {
			return fmt.Errorf("object %s: %w", s.f.hex(id), err)
		}
	}
	return nil
}

// copyRaw adds an entry of another pack, unless the pack has the object.
func (w *packWriter) copyRaw(id oid, r *io.SectionReader, want uint32) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.hasLocked(id) {
		return nil
	}
	start, h := w.offset(), crc32.NewIEEE()
	buf := make([]byte, min(r.Size(), copyBuffer))
	for {
		n, err := r.Read(buf)
		h.Write(buf[:n])
		w.buf = append(w.buf, buf[:n]...)
		if serr := w.spill(spillAt); serr != nil {
			return serr
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
	}
	if h.Sum32() != want {
		return fmt.Errorf("checksum: %w", agents.ErrDamaged)
	}
	w.note(id, start, want)
	return nil
}
