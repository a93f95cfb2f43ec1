package fsx

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	agents "github.com/cleveragents/agents"
)

// Writing in place: the bytes of a staged file go into the file that is there.
// Unlike a rename, that can be half done. So a copy of the old bytes is durable
// in the hold before the first byte is written; that it has its name there says
// that the step was begun. How far it came is told by the content itself: the
// old, the new, or a mix that the writing can have made.

const (
	// writeChunk is how much is written at once.
	writeChunk = 128 << 10
	// tornBlock is what a kill or a power loss leaves old or new as a whole,
	// except where a write was cut.
	tornBlock = 4 << 10
)

// inodeKey tells the files of a Move apart, whatever their names.
type inodeKey struct{ dev, ino uint64 }

func (id Identity) key() inodeKey { return inodeKey{id.Dev, id.Ino} }

// rewrite plans the writing of a staged file into the one that is there. A
// further name of a file that is written already shares its before-image.
func (p *movePlan) rewrite(at place, op *Op) error {
	id, err := p.staged(at, op.Staged)
	if err != nil {
		return err
	}
	if id.Kind != KindFile {
		return p.fail(at, fmt.Errorf("staged to be written in place is %s: %w", id.Kind, agents.ErrInvalid))
	}
	s := moveStep{
		Do: verbWrite, Root: at.root, Path: []byte(at.path), Before: op.Before, After: op.Before,
		From: []byte(op.Staged), Staged: id.Ino,
	}
	s.After.Size, s.After.Mode, s.After.Mtime, s.After.Ctime = id.Size, id.Mode, id.Mtime, 0
	if s.New, err = hashAt(unix.AT_FDCWD, op.Staged, id); err != nil {
		return p.fail(at, err)
	}
	if i, ok := p.written[op.Before.key()]; ok {
		first := &p.steps[i]
		if !bytes.Equal(first.New, s.New) || !first.isAfter(s.After) {
			return p.fail(at, fmt.Errorf("is the same file as %s, which becomes another: %w", showPath(string(first.Path)), agents.ErrInvalid))
		}
		s.Old, s.Slot = first.Old, first.Slot
		p.steps = append(p.steps, s)
		return nil
	}
	fd, name, err := p.m.roots[at.root].parent(at.path)
	if err != nil {
		return p.fail(at, err)
	}
	if s.Old, err = hashOld(fd, name, op.Before); err != nil {
		return p.fail(at, err)
	}
	s.Slot = p.slot()
	p.written[op.Before.key()] = len(p.steps)
	p.steps = append(p.steps, s)
	return nil
}

// hashOld is hashAt for a file that is to be written.
func hashOld(fd int, name string, want Identity) ([]byte, error) {
	f, err := openInode(fd, name, want, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if _, err := unix.Fgetxattr(int(f.Fd()), "security.capability", nil); err == nil {
		return nil, fmt.Errorf("has capabilities, which a write takes away: %w", agents.ErrUnsupported)
	}
	return hashSeen(f, want)
}

// hashAt returns the hash of the file at name, which must be what want says
// before and after it is read.
func hashAt(fd int, name string, want Identity) ([]byte, error) {
	f, err := openInode(fd, name, want, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return hashSeen(f, want)
}

func hashSeen(f *os.File, want Identity) ([]byte, error) {
	sum, err := hashFile(f)
	if err != nil {
		return nil, err
	}
	return sum, unchanged(f, want)
}

func hashFile(f *os.File) ([]byte, error) {
	h := sha256.New()
	_, err := io.CopyBuffer(struct{ io.Writer }{h}, fromStart(f), make([]byte, writeChunk))
	return h.Sum(nil), err
}

// fromStart reads a file from its start, wherever it was read to.
func fromStart(f *os.File) io.Reader { return io.NewSectionReader(f, 0, 1<<63-1) }

// openInode opens a regular file, if name still stands for the inode of want.
func openInode(fd int, name string, want Identity, flags int) (*os.File, error) {
	have, _, err := identifyAt(fd, name)
	if err != nil {
		return nil, err
	}
	if have.Kind != KindFile || have.Ino != want.Ino { // only what is a file is opened
		return nil, differs(want, have)
	}
	file, err := unix.Openat(fd, name, flags|openCarefully|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(file), name)
	if have, _, err = identifyOpen(f); err == nil && have.Ino != want.Ino {
		err = differs(want, have)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func identifyOpen(f *os.File) (id Identity, links uint64, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return Identity{}, 0, err
	}
	return identityOfStat(&st), uint64(st.Nlink), nil
}

// unchanged compares an open file with what was seen of it; as in expect, a
// change of ctime alone counts unless other names explain it.
func unchanged(f *os.File, seen Identity) error {
	have, links, err := identifyOpen(f)
	if err == nil && !seen.same(have, links == 1) {
		err = differs(seen, have)
	}
	return err
}

// sameBytes reports whether nothing tells that one inode was written between
// two looks at it.
func sameBytes(a, b Identity) bool { return a.Size == b.Size && a.Mtime == b.Mtime }

// write makes the step: the before-image first, then the bytes, the bits and
// the time, and all of it durable.
func (m *Move) write(s *moveStep, fd int, name string) error {
	if m.held(s) { // by another name of the file, which was first
		if done, err := m.written(s, fd, name); err != nil || done {
			return err
		}
		return fmt.Errorf("it was changed meanwhile: %w", agents.ErrConflict)
	}
	old, err := openInode(fd, name, s.Before, unix.O_RDONLY)
	if err != nil {
		return err
	}
	if err := errors.Join(m.keepImage(s, old), old.Close()); err != nil {
		return err
	}
	f, err := m.openGranted(s, fd, name, unix.O_RDWR)
	if err != nil {
		return err
	}
	defer f.Close()
	r, err := m.openRewriting(s, f)
	if err != nil {
		return err
	}
	defer r.close()
	have, _, err := identifyOpen(f)
	if err != nil {
		return err
	}
	if !sameBytes(have, s.Before) { // written while all was made ready: not begun
		bits := m.dress(int(f.Fd()), have, s.Before.Mode, have.Mtime, string(s.Path))
		return errors.Join(differs(s.Before, have), bits, m.dropHeld(s.Slot))
	}
	if err := r.pour(m, r.staged, string(s.Path)); err != nil {
		return err
	}
	return m.dressOpen(f, s.After.Mode, s.After.Mtime, string(s.Path))
}

// keepImage copies the old bytes into the hold, durably, and makes sure that
// nobody wrote to the file until that was done.
func (m *Move) keepImage(s *moveStep, old *os.File) error {
	if err := unchanged(old, m.before(s)); err != nil {
		return err
	}
	// Who may not set the time could not take the writing back either: that must
	// be known before. The new ctime is what the file is compared with from here.
	if err := m.chtimesFD(int(old.Fd()), s.Before.Mtime, string(s.Path)); err != nil {
		return err
	}
	seen, _, err := identifyOpen(old)
	if err != nil {
		return err
	}
	part := s.Slot + "-part"
	if err := m.hit("fsx.open", part); err != nil {
		return err
	}
	file, err := unix.Openat(m.hold.fd, part, unix.O_RDWR|unix.O_CREAT|unix.O_TRUNC|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	image := os.NewFile(uintptr(file), part)
	defer image.Close()
	sum, err := m.pour(image, nil, old, part)
	if err == nil && !bytes.Equal(sum, s.Old) {
		err = fmt.Errorf("it was changed meanwhile: %w", agents.ErrConflict)
	}
	if err == nil {
		err = m.sync(image, part)
	}
	if err != nil {
		return errors.Join(err, m.dropHeld(part)) // Undo may need its space
	}
	if err := m.moveInto(m.hold.fd, part, m.hold.fd, s.Slot, string(s.Path)); err != nil {
		return err
	}
	if err := m.hold.sync(m); err != nil {
		return err
	}
	if err := unchanged(old, seen); err != nil {
		return errors.Join(err, m.dropHeld(s.Slot)) // not begun: the file is left to who wrote it
	}
	return nil
}

// dropHeld deletes a copy from the hold. Without it the step was never begun.
func (m *Move) dropHeld(name string) error {
	if err := m.hit("fsx.remove", name); err != nil {
		return err
	}
	return unix.Unlinkat(m.hold.fd, name, 0)
}

// openStaged opens the file with the new bytes.
func (s *moveStep) openStaged() (*os.File, error) {
	want := s.After
	want.Ino = s.Staged
	f, err := openInode(unix.AT_FDCWD, string(s.From), want, unix.O_RDONLY)
	if err != nil {
		return nil, fmt.Errorf("staged at %s: %w", showPath(string(s.From)), err)
	}
	have, _, err := identifyOpen(f)
	if err == nil && !s.isStaged(have) {
		err = fmt.Errorf("what was staged was changed meanwhile: %w", agents.ErrConflict)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// isStaged reports whether id is what waits at From.
func (s *moveStep) isStaged(id Identity) bool {
	if s.Do != verbWrite {
		return s.isAfter(id)
	}
	return id.Kind == KindFile && id.Ino == s.Staged && id.Size == s.After.Size && id.Mtime == s.After.Mtime
}

// openGranted opens the file of the step. Its owner gets the rights that are
// missing for the time, unless somebody else has set the bits since.
func (m *Move) openGranted(s *moveStep, fd int, name string, flags int) (*os.File, error) {
	f, err := openInode(fd, name, s.Before, flags)
	if !errors.Is(err, unix.EACCES) {
		return f, err
	}
	have, _, serr := identifyAt(fd, name)
	if serr != nil || have.Mode&0o600 == 0o600 || !s.setBits(have.Mode) {
		return nil, errors.Join(err, serr)
	}
	if err := m.dressPath(s, fd, name, have.Mode|0o600, have.Mtime); err != nil {
		return nil, err
	}
	return openInode(fd, name, s.Before, flags)
}

// setBits reports whether bits are the old or the new ones, or what the step
// makes of them meanwhile: openGranted adds rights of the owner, and a write
// clears setuid and setgid.
func (s *moveStep) setBits(mode uint32) bool {
	const passing = 0o6600
	return mode&^passing == s.Before.Mode&^passing || mode&^passing == s.After.Mode&^passing
}

// rewriting is the file at a path, open to be written, and the two contents of
// which it may have parts.
type rewriting struct {
	f             *os.File
	image, staged *os.File // the old one and the new one
}

// openRewriting opens the two contents.
func (m *Move) openRewriting(s *moveStep, f *os.File) (r *rewriting, err error) {
	r = &rewriting{f: f}
	if r.image, err = m.openImage(s); err != nil {
		return nil, err
	}
	if r.staged, err = s.openStaged(); err != nil {
		return nil, errors.Join(err, r.image.Close())
	}
	return r, nil
}

func (r *rewriting) close() { _ = errors.Join(r.image.Close(), r.staged.Close()) }

// pour makes the file have one of the two contents. Nobody can open it meanwhile
// where the system gives a lease on it. What somebody who has it open already
// writes is agents.ErrConflict and stays: each part is looked at before it is
// written, and all of it at the end.
func (r *rewriting) pour(m *Move, src *os.File, what string) error {
	if _, err := unix.FcntlInt(r.f.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err == nil {
		defer unix.FcntlInt(r.f.Fd(), unix.F_SETLEASE, unix.F_UNLCK)
	}
	sum, err := m.pour(r.f, r, src, what)
	if err != nil {
		return err
	}
	now, err := hashFile(r.f)
	if err == nil && !bytes.Equal(now, sum) {
		err = fmt.Errorf("it was changed meanwhile: %w", agents.ErrConflict)
	}
	return err
}

// isOurs is agents.ErrConflict where the file has bytes, so many from at, that
// are of neither content. Beyond its end a content has zeros.
func (r *rewriting) isOurs(at int64, n int) error {
	now, was, will := make([]byte, n), make([]byte, n), make([]byte, n)
	have, err := readBlock(r.f, now, at)
	if err == nil {
		_, err = readBlock(r.image, was, at)
	}
	if err == nil {
		_, err = readBlock(r.staged, will, at)
	}
	if err != nil {
		return err
	}
	for i := range now[:have] {
		if now[i] != was[i] && now[i] != will[i] {
			return fmt.Errorf("it was changed meanwhile: %w", agents.ErrConflict)
		}
	}
	return nil
}

// pour makes dst hold what src does, and returns its hash. Zeros beyond the end
// of dst stay a hole. into is dst where others may write to it too, else nil.
func (m *Move) pour(dst *os.File, into *rewriting, src *os.File, what string) (sum []byte, err error) {
	have, _, err := identifyOpen(dst)
	if err != nil {
		return nil, err
	}
	h, from, size := sha256.New(), fromStart(src), int64(0)
	for buf := make([]byte, writeChunk); ; {
		n, err := io.ReadFull(from, buf)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, err
		}
		h.Write(buf[:n])
		if size < have.Size || len(bytes.Trim(buf[:n], "\x00")) > 0 {
			if err := m.pourChunk(dst, into, buf[:n], size, what); err != nil {
				return nil, err
			}
		}
		size += int64(n)
	}
	if now, _, err := identifyOpen(dst); err != nil || now.Size == size {
		return h.Sum(nil), err
	}
	if err := m.hit("fsx.truncate", what); err != nil {
		return nil, err
	}
	for at := size; into != nil && at < have.Size; at += writeChunk {
		if err := into.isOurs(at, writeChunk); err != nil {
			return nil, err
		}
	}
	return h.Sum(nil), dst.Truncate(size)
}

func (m *Move) pourChunk(dst *os.File, into *rewriting, chunk []byte, at int64, what string) error {
	if err := m.hit("fsx.write", what); err != nil {
		return err
	}
	if into != nil {
		if err := into.isOurs(at, len(chunk)); err != nil {
			return err
		}
	}
	_, err := dst.WriteAt(chunk, at)
	return err
}

// dressOpen gives an open file bits and a time, and makes it durable.
func (m *Move) dressOpen(f *os.File, mode uint32, mtime int64, what string) error {
	have, _, err := identifyOpen(f)
	if err != nil {
		return err
	}
	if err := m.dress(int(f.Fd()), have, mode, mtime, what); err != nil {
		return err
	}
	return m.sync(f, what)
}

func (m *Move) sync(f *os.File, what string) error {
	if err := m.hit("fsx.sync", what); err != nil {
		return err
	}
	return f.Sync()
}

// writeAgain makes the step again as far as an Undo took it back, unless
// somebody made another thing of the file.
func (m *Move) writeAgain(s *moveStep, fd int, name string, have Identity) error {
	if !m.held(s) {
		if !s.isBefore(have) {
			return differs(s.Before, have)
		}
		return m.write(s, fd, name)
	}
	f, err := m.openGranted(s, fd, name, unix.O_RDWR)
	if errors.Is(err, agents.ErrConflict) || errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	sum, err := hashFile(f)
	if err != nil {
		return err
	}
	if !bytes.Equal(sum, s.New) {
		if ours, err := m.pourAgain(s, f); err != nil || !ours {
			return err
		}
	}
	return m.dressOpen(f, s.After.Mode, s.After.Mtime, string(s.Path))
}

// pourAgain writes the new bytes into a file that has the old ones or a mix.
func (m *Move) pourAgain(s *moveStep, f *os.File) (ours bool, err error) {
	r, err := m.openRewriting(s, f)
	if err != nil {
		return false, err
	}
	defer r.close()
	if ours, err := s.isMix(r); err != nil || !ours {
		return false, err
	}
	return true, r.pour(m, r.staged, string(s.Path))
}

// openImage opens the copy of the old bytes, if it is whole.
func (m *Move) openImage(s *moveStep) (*os.File, error) {
	slot, err := unix.Openat(m.hold.fd, s.Slot, unix.O_RDONLY|openCarefully|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	image := os.NewFile(uintptr(slot), s.Slot)
	sum, err := hashFile(image)
	if err == nil && !bytes.Equal(sum, s.Old) {
		err = fmt.Errorf("the before-image is not what was kept: %w", agents.ErrDamaged)
	}
	if err != nil {
		return nil, errors.Join(err, image.Close())
	}
	return image, nil
}

// written reports whether the file has all that the step gives it.
func (m *Move) written(s *moveStep, fd int, name string) (bool, error) {
	have, _, err := identifyAt(fd, name)
	if err != nil || !s.isAfter(have) {
		return false, err
	}
	return s.hasNew(fd, name)
}

// hasNew reports whether the file has the new content.
func (s *moveStep) hasNew(fd int, name string) (bool, error) {
	f, err := openInode(fd, name, s.After, unix.O_RDONLY)
	if err != nil {
		return false, err
	}
	defer f.Close()
	sum, err := hashFile(f)
	return bytes.Equal(sum, s.New), err
}

// checkWritten is checkStep for a file that was written in place. A time that
// was only touched since is no work that could be lost.
func (m *Move) checkWritten(s *moveStep, fd int, name string, have Identity) error {
	if have.Kind != KindFile || have.Ino != s.After.Ino || have.Size != s.After.Size || have.Mode != s.After.Mode {
		return differs(s.After, have)
	}
	same, err := s.hasNew(fd, name)
	if err == nil && !same {
		err = differs(s.After, have)
	}
	return err
}

// writeBack gives the file its old bytes, bits and time again, if the step was
// begun and what is there now can come from it alone.
func (m *Move) writeBack(s *moveStep, fd int, name string) error {
	if !m.held(s) {
		return nil // never begun, or taken back before
	}
	f, err := m.openGranted(s, fd, name, unix.O_RDWR)
	if errors.Is(err, unix.ENOENT) {
		err = differs(s.After, Identity{})
	}
	if err != nil {
		return err
	}
	defer f.Close()
	sum, err := hashFile(f)
	if err != nil {
		return err
	}
	if !bytes.Equal(sum, s.Old) {
		if err := m.pourBack(s, f, bytes.Equal(sum, s.New)); err != nil {
			return err
		}
	}
	have, _, err := identifyOpen(f)
	if err != nil {
		return err
	}
	mode := have.Mode
	if s.setBits(mode) {
		mode = s.Before.Mode
	}
	if err := m.dressOpen(f, mode, s.Before.Mtime, string(s.Path)); err != nil {
		return err
	}
	return m.dropHeld(s.Slot)
}

// pourBack writes the before-image into the file.
func (m *Move) pourBack(s *moveStep, f *os.File, whole bool) error {
	r, err := m.openRewriting(s, f)
	if err != nil {
		return err
	}
	defer r.close()
	if !whole {
		if ours, err := s.isMix(r); err != nil || !ours {
			return errors.Join(err, fmt.Errorf("it was changed meanwhile: %w", agents.ErrConflict))
		}
	}
	return r.pour(m, r.image, string(s.Path))
}

// isMix reports whether what a file has can come from a write that did not end,
// forwards or back: a size between the two, and each block old, new, or new up
// to some byte and old from there. Beyond its end a content counts as zeros,
// which a power loss can leave.
func (s *moveStep) isMix(r *rewriting) (bool, error) {
	have, _, err := identifyOpen(r.f)
	if err != nil || have.Size < min(s.Before.Size, s.After.Size) || have.Size > max(s.Before.Size, s.After.Size) {
		return false, err
	}
	now, was, will := make([]byte, tornBlock), make([]byte, tornBlock), make([]byte, tornBlock)
	for at, n := int64(0), 0; at < have.Size; at += int64(n) {
		size := tornBlock - at%tornBlock
		for _, end := range []int64{s.Before.Size, s.After.Size} { // where a write is through that is not cut to size yet
			if at < end {
				size = min(size, end-at)
			}
		}
		if n, err = readBlock(r.f, now[:size], at); err != nil || n == 0 {
			return false, err // it shrank just now
		}
		_, err = readBlock(r.image, was[:size], at)
		if _, nerr := readBlock(r.staged, will[:size], at); err != nil || nerr != nil {
			return false, errors.Join(err, nerr)
		}
		cut := 0
		for cut < n && now[cut] == will[cut] {
			cut++
		}
		if !bytes.Equal(now[cut:n], was[cut:n]) {
			return false, nil
		}
	}
	return true, nil
}

// readBlock fills a block from a file, with zeros beyond its end.
func readBlock(f *os.File, block []byte, at int64) (int, error) {
	n, err := f.ReadAt(block, at)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	clear(block[n:])
	return n, err
}
