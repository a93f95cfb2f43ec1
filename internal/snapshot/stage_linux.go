package snapshot

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/fsx"
)

// syncEach is up to how many new files are synced one by one.
const syncEach = 48

// stager makes what a state holds anew, aside from where it will be.
type stager struct {
	ctx    context.Context // of the one call that made it
	store  *Store
	folder string // where; new things are in "new" below it
	staged int
	linked map[place]string // where the file of a link is staged, by root and Entry.Link
	dirs   []dirChange      // of directories that stay
}

func newStager(ctx context.Context, store *Store, folder string) stager {
	return stager{ctx: ctx, store: store, folder: folder, linked: map[place]string{}}
}

// begin makes the folder, empty.
func (s *stager) begin() error {
	if err := fsx.RemoveAll(s.folder); err != nil {
		return err
	}
	return fsx.MkdirAll(filepath.Join(s.folder, "new"), 0o700)
}

// directory plans a directory below top. One that is there keeps what does not
// change; a new one is staged only if it is to have what making it does not
// give it.
func (s *stager) directory(c change, top string, op *fsx.Op) (err error) {
	op.Dir, op.Mtime = true, c.new.time()
	switch {
	case op.Before.Kind != fsx.KindDir:
		if c.new.owner != ourselves() || c.new.xattr != "" {
			op.Staged, err = s.make(c.root, c.new, false)
		}
	case c.old.owner != c.new.owner, c.old.xattr != c.new.xattr:
		s.dirs = append(s.dirs, dirChange{
			Path: []byte(filepath.Join(top, filepath.FromSlash(c.path))), Perm: c.new.perm, OldPerm: op.Before.Mode,
			Owner: [2]uint32{c.new.owner.uid, c.new.owner.gid}, OldOwner: [2]uint32{c.old.owner.uid, c.old.owner.gid},
			Xattr: c.new.xattr, OldXattr: c.old.xattr,
		})
	}
	return err
}

// sync makes the new things durable, of which so many are files: those were
// synced one by one if they are few.
func (s *stager) sync(files int) error {
	if s.staged == 0 {
		return nil
	}
	if files > syncEach {
		return fsx.SyncFS(s.folder)
	}
	return fsx.SyncDir(filepath.Join(s.folder, "new"))
}

func ourselves() owner { return owner{uint32(os.Geteuid()), uint32(os.Getegid())} }

// next returns a free path in the stage.
func (s *stager) next() string {
	s.staged++
	return filepath.Join(s.folder, "new", strconv.Itoa(s.staged))
}

// make makes a finished thing in the stage.
func (s *stager) make(root string, it item, sync bool) (string, error) {
	path := s.next()
	if it.link != "" {
		of := place{root, it.link}
		if first := s.linked[of]; first != "" {
			return path, fsx.Link(first, path)
		}
		s.linked[of] = path
	}
	switch {
	case it.isDir():
		if err := fsx.Mkdir(path, 0o700); err != nil {
			return "", err
		}
	case it.mode == modeLink:
		target, err := s.store.readObject(s.ctx, it.id, kindBlob)
		if err != nil {
			return "", err
		}
		if err := fsx.Symlink(string(target), path); err != nil {
			return "", err
		}
		if err := s.dress(path, it, item{mode: modeLink, owner: ourselves()}); err != nil || !it.times {
			return path, err
		}
		return path, fsx.Lchtimes(path, time.Unix(0, it.mtime))
	case it.isFile():
		return path, s.makeFile(path, it, sync)
	default:
		return "", fmt.Errorf("mode %o: %w", it.mode, agents.ErrDamaged)
	}
	return path, s.dress(path, it, item{mode: modeTree, perm: 0o700, owner: ourselves()})
}

func (s *stager) makeFile(path string, it item, sync bool) error {
	f, err := fsx.Create(path, 0o600)
	if err != nil {
		return err
	}
	var to io.Writer = f
	if it.sparse {
		to = &holeWriter{f: f}
	}
	w := bufio.NewWriterSize(to, 256<<10)
	err = s.store.copyObject(s.ctx, it.id, kindBlob, w)
	if err == nil {
		err = w.Flush()
	}
	if h, ok := to.(*holeWriter); ok && err == nil {
		err = f.Truncate(h.at)
	}
	if err == nil {
		err = s.dress(path, it, item{mode: modeFile, perm: 0o600, owner: ourselves()})
	}
	if err == nil && it.times {
		err = fsx.Chtimes(path, time.Unix(0, it.mtime))
	}
	if err == nil && sync {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// dress gives owner, attributes and bits, in the order in which the kernel
// keeps and allows them: a new owner takes setuid bits and capabilities away,
// and what may not be written gets no attributes.
func (s *stager) dress(path string, to, from item) error {
	if to.owner != from.owner {
		if err := fsx.Lchown(path, int(to.owner.uid), int(to.owner.gid)); err != nil {
			return err
		}
	}
	if err := setXattrs(path, from.xattr, to.xattr); err != nil {
		return err
	}
	if to.mode != modeLink && (to.perm != from.perm || to.owner != from.owner || to.xattr != from.xattr) {
		return fsx.Chmod(path, fileMode(0, to.perm))
	}
	return nil
}
