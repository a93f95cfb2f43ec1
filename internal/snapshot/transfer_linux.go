package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/cleveragents/agents/internal/fsx"
)

// Transferring is a Transfer that was prepared: everything is staged, and
// nothing is moved.
type Transferring struct {
	journal string
	move    *fsx.Move
	in      intent
}

func newTransferring(journal string, m *fsx.Move, in intent) *Transferring {
	m.Beside(in.apply, in.revert)
	return &Transferring{journal: journal, move: m, in: in}
}

// Prepare stages what a transfer brings, which finds what is damaged
// (agents.ErrDamaged) or does not fit, and writes the intent. A path that is
// not what its Before says is agents.ErrConflict, named by an *fsx.MoveError.
// The directory is not touched, and on error nothing is left.
func (s *Store) Prepare(ctx context.Context, t Transfer) (*Transferring, error) {
	p := &preparing{stager: newStager(ctx, s, t.Stage), t: t}
	tr, err := p.prepare()
	if err != nil {
		return nil, errors.Join(err, fsx.RemoveAll(t.Stage), fsx.RemoveAll(t.Journal))
	}
	return tr, nil
}

type preparing struct {
	stager
	t   Transfer
	ops []fsx.Op

	relinked [][2]fsx.Identity // files that got a staged name: before it and with it
}

func (p *preparing) prepare() (*Transferring, error) {
	if err := p.begin(); err != nil {
		return nil, err
	}
	files := 0
	for _, c := range p.t.Changes {
		if c.New.Mode.IsRegular() && c.New.Exists() {
			files++
		}
	}
	for _, c := range p.t.Changes {
		if err := p.ctx.Err(); err != nil {
			return nil, err
		}
		if err := p.operation(c, files <= syncEach); err != nil {
			return nil, fmt.Errorf("%q: %w", c.Path, err)
		}
	}
	p.refresh()
	if err := p.sync(files); err != nil {
		return nil, err
	}
	in := intent{Stage: []byte(p.t.Stage), Dirs: p.dirs}
	if err := in.write(p.t.Journal); err != nil {
		return nil, err
	}
	m, err := fsx.PrepareMove(moveDir(p.t.Journal), []string{p.t.Dir}, filepath.Join(p.t.Stage, "hold"), p.ops)
	if err != nil {
		return nil, err
	}
	return newTransferring(p.t.Journal, m, in), nil
}

func (p *preparing) operation(t Transferred, sync bool) error {
	c, err := p.store.changeOf(t)
	if err != nil {
		return err
	}
	op := fsx.Op{Path: t.Path, Before: t.Before, Perm: fileMode(0, c.new.perm)}
	if op.Path == "" {
		op.Path = "."
	}
	switch {
	case !c.new.exists():
	case c.new.isDir():
		err = p.directory(c, p.t.Dir, &op)
	case (t.Keep || c.keeps()) && t.Before.Kind == fsx.KindFile:
		op.Keep, op.Mtime = true, c.new.time()
	case t.LinkTo != "":
		op.Staged, err = p.name(t, c.new, sync)
	default:
		op.InPlace = t.InPlace
		op.Staged, err = p.make("", c.new, sync)
	}
	p.ops = append(p.ops, op)
	return err
}

// name stages a further name of a file that is there. The file's ctime, by
// which the ops know it, is another one then.
func (p *preparing) name(t Transferred, it item, sync bool) (string, error) {
	to := filepath.Join(p.t.Dir, filepath.FromSlash(t.LinkTo))
	before, err := fsx.Identify(to)
	if err != nil || before.Kind != fsx.KindFile {
		return p.make("", it, sync)
	}
	path := p.next()
	if fsx.Link(to, path) != nil {
		return p.make("", it, sync)
	}
	after, err := fsx.Identify(path)
	if err != nil {
		return "", err
	}
	p.relinked = append(p.relinked, [2]fsx.Identity{before, after})
	return path, nil
}

// refresh gives the ops the ctimes that staged names made.
func (p *preparing) refresh() {
	for _, r := range p.relinked {
		for i := range p.ops {
			if b := &p.ops[i].Before; b.Kind == fsx.KindFile && b.Dev == r[0].Dev && b.Ino == r[0].Ino && b.Ctime == r[0].Ctime {
				b.Ctime = r[1].Ctime
			}
		}
	}
}

// changeOf spells a change in the package's own words.
func (s *Store) changeOf(t Transferred) (change, error) {
	c := change{path: t.Path}
	var err error
	if c.old, err = s.itemOf(t.Old); err == nil {
		c.new, err = s.itemOf(t.New)
	}
	return c, err
}

func (s *Store) itemOf(e Entry) (item, error) {
	if !e.Exists() {
		return item{}, nil
	}
	id, err := s.f.parse(e.ID)
	if err != nil {
		return item{}, err
	}
	it := item{id: id, perm: fsx.PermissionBits(e.Mode), owner: owner{e.UID, e.GID}, xattr: encodeXattrs(e.Xattr),
		exact: exact{times: true, mtime: e.Mtime, link: e.Link, sparse: e.Sparse}}
	switch {
	case e.Mode.IsDir():
		it.mode = modeTree
	case e.Mode&fs.ModeSymlink != 0:
		it.mode = modeLink
	case it.perm&0o100 != 0:
		it.mode = modeExec
	default:
		it.mode = modeFile
	}
	return it, nil
}

// Run moves everything, all or nothing, as fsx.Move.Run does.
func (t *Transferring) Run(ctx context.Context) error {
	err := t.move.Run(ctx)
	if err == nil {
		err = t.move.Commit()
	}
	if err != nil && t.move.State() != fsx.MoveUndone {
		if uerr := t.move.Undo(); uerr != nil {
			return errors.Join(err, fmt.Errorf("take back: %w", uerr))
		}
	}
	return err
}

// State says how far the transfer is.
func (t *Transferring) State() fsx.MoveState { return t.move.State() }

// CanUndo returns the error that Undo of a committed transfer would refuse with.
func (t *Transferring) CanUndo() error { return t.move.CanUndo() }

// Undo puts everything back as it was, as fsx.Move.Undo does.
func (t *Transferring) Undo() error { return t.move.Undo() }

// UndoLeaving is Undo that comes to an end, as fsx.Move.UndoLeaving does.
func (t *Transferring) UndoLeaving(dir string) ([]fsx.Left, error) { return t.move.UndoLeaving(dir) }

// Stage returns the folder in which everything was staged, which is gone after
// Forget.
func (t *Transferring) Stage() string { return string(t.in.Stage) }

// Late lists what programs wrote into files that they had open before they
// were replaced.
func (t *Transferring) Late() ([]fsx.Late, error) { return t.move.LateWrites() }

// Forget removes the intent, the before-images and what else was staged, but
// what Late tells of: that it moves into the folder late, and returns. The
// folder of the journal stays, with what else is in it.
func (t *Transferring) Forget(late string) ([]fsx.Late, error) {
	kept, err := t.move.ForgetButLate(late)
	if err != nil {
		return kept, err
	}
	return kept, clearIntent(t.journal, t.in)
}

// clearIntent removes what is left of a transfer whose move is forgotten.
func clearIntent(journal string, in intent) error {
	return errors.Join(in.clear(), fsx.RemoveAll(moveDir(journal)), removeIfThere(intentFile(journal)))
}

// LoadTransfer returns the transfer whose intent is in the folder journal, or
// fs.ErrNotExist where there is none, or one that never got to its first step,
// which it clears away.
func LoadTransfer(journal string) (*Transferring, error) {
	in, err := readIntent(journal)
	if err != nil {
		return nil, err
	}
	m, err := fsx.LoadMove(moveDir(journal))
	if errors.Is(err, fs.ErrNotExist) {
		if cerr := clearIntent(journal, in); cerr != nil {
			return nil, cerr
		}
		return nil, fmt.Errorf("no transfer in %s: %w", journal, fs.ErrNotExist)
	}
	if err != nil {
		return nil, err
	}
	return newTransferring(journal, m, in), nil
}
