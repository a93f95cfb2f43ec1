package snapshot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"golang.org/x/sys/unix"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/fsx"
)

// Look returns what a state would say of the path, which need not be in a
// tracked directory, and what was there by stat: a file's content is read,
// hashed and not stored. Nothing there is the zero Entry; of a directory the
// ID stands for none of its content. A file that changes while it is read is
// agents.ErrConflict.
func (s *Store) Look(ctx context.Context, path string) (Entry, fsx.SurveyEntry, error) {
	at, err := fsx.Look(path)
	if err != nil || at.Kind == fsx.KindNone || at.Kind == fsx.KindOther {
		return Entry{}, at, err
	}
	e := Entry{UID: at.UID, GID: at.GID, Mtime: at.Mtime}
	e.Mode = fsx.PermissionMode(at.Mode)
	switch at.Kind {
	case fsx.KindDir:
		e.Mode |= fs.ModeDir
		e.ID = s.f.hex(s.f.idOf(kindTree, nil))
	case fsx.KindSymlink:
		e.Mode |= fs.ModeSymlink
		e.ID = s.f.hex(s.f.idOf(kindBlob, at.Target))
		return e, at, nil
	default:
		if e.ID, err = s.hashFile(ctx, path, at); err != nil {
			return Entry{}, at, fmt.Errorf("look at %s: %w", path, err)
		}
	}
	xattrs, err := pathXattrs(path)
	if err == nil {
		e.Xattr, err = decodeXattrs(xattrs)
	}
	return e, at, err
}

// hashFile returns the id of a file's content, if it is what was seen.
func (s *Store) hashFile(ctx context.Context, path string, seen fsx.SurveyEntry) (string, error) {
	dir, err := unix.Open(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(dir)
	f, err := openFile(dir, []byte(filepath.Base(path)))
	if err != nil {
		return "", err
	}
	defer f.Close()
	fd := int(f.Fd())
	_ = unix.SyncFileRange(fd, 0, 0, unix.SYNC_FILE_RANGE_WRITE) // as readOnce does
	id, err := s.f.idOfStream(kindBlob, seen.Size, contextReader{ctx, f})
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, errLonger) {
		return "", fmt.Errorf("it changes while it is read: %w", agents.ErrConflict)
	}
	if err != nil {
		return "", err
	}
	now, err := fsx.Look(path)
	if err != nil {
		return "", err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return "", err
	}
	if st.Ino != seen.Ino || now.Ino != seen.Ino || now.Mtime != seen.Mtime || now.Ctime != seen.Ctime || now.Size != seen.Size {
		return "", fmt.Errorf("it changes while it is read: %w", agents.ErrConflict)
	}
	return s.f.hex(id), nil
}

// contextReader ends with its context.
type contextReader struct {
	ctx context.Context // of the one file it serves
	r   io.Reader
}

func (c contextReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}

// Add stores a content and returns the id of its blob. Nothing refers to it:
// the next Collect may free it.
func (s *Store) Add(ctx context.Context, content []byte) (string, error) {
	lock, err := s.lock(ctx)
	if err != nil {
		return "", err
	}
	defer lock.Release()
	w := newPackWriter(s.packDir(), s.f, s.sound)
	var z deflater
	id, err := w.add(kindBlob, bytes.Clone(content), &z)
	if err == nil {
		_, _, err = w.publish()
	}
	if err != nil {
		return "", errors.Join(err, w.discard())
	}
	return s.f.hex(id), s.refresh()
}
