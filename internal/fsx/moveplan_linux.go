package fsx

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	agents "github.com/cleveragents/agents"
)

// place is a path of one root; the root itself is "".
type place struct {
	root int
	path string
}

func (p place) parent() place {
	dir, _ := splitPath(p.path)
	return place{p.root, dir}
}

// above calls yield for every directory above p, nearest first, the root last.
func (p place) above(yield func(place) bool) {
	for p.path != "" {
		p = p.parent()
		if !yield(p) {
			return
		}
	}
}

// outcome is what an op leaves at its path.
func (op *Op) outcome() Kind {
	switch {
	case op.Dir:
		return KindDir
	case op.Staged != "":
		return KindSymlink // or a file: no directory in any case
	case op.Keep:
		return KindFile
	}
	return KindNone
}

// movePlan turns ops into steps in their order.
type movePlan struct {
	m       *Move
	ops     map[place]*Op
	order   []place // sorted: a directory before what is in it
	dirs    map[place]*moveDir
	written map[inodeKey]int      // file → its first step with verbWrite
	becomes map[inodeKey]Identity // files that stay where they are → what the ops make of them
	steps   []moveStep
	slots   int
}

func planMove(m *Move, ops []Op) (*movePlan, error) {
	p := &movePlan{m: m, ops: make(map[place]*Op, len(ops)), dirs: map[place]*moveDir{}, written: map[inodeKey]int{}}
	for i := range ops {
		if err := p.add(&ops[i]); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(p.order, func(a, b place) int {
		return cmp.Or(cmp.Compare(a.root, b.root), cmp.Compare(a.path, b.path))
	})
	for _, at := range p.order {
		if err := p.check(at); err != nil {
			return nil, p.fail(at, err)
		}
	}
	if err := p.planRemovals(); err != nil {
		return nil, err
	}
	return p, p.planArrivals()
}

func (p *movePlan) fail(at place, err error) error {
	return &MoveError{Root: at.root, Path: at.path, Do: "move", Err: err}
}

// add takes an op in, if it makes sense by itself.
func (p *movePlan) add(op *Op) error {
	at := place{op.Root, op.Path}
	if op.Path == "." && op.Dir {
		at.path = ""
	}
	var why string
	switch {
	case op.Root < 0 || op.Root >= len(p.m.roots):
		why = "no such root"
	case at.path == "" && op.Path != ".", op.Path == "." && !op.Dir, strings.ContainsRune(op.Path, 0), !filepath.IsLocal(op.Path), filepath.Clean(op.Path) != op.Path:
		why = "not a clean path below the root"
	case op.Keep && (op.Staged != "" || op.Dir), op.Keep && op.Before.Kind != KindFile:
		why = "Keep is for a file that is there, alone"
	case op.Mtime != nil && !op.Keep && !op.Dir:
		why = "Mtime is for Dir and Keep"
	case op.Dir && op.Staged != "" && op.Before.Kind == KindDir:
		why = "a staged directory cannot replace a directory"
	case op.Staged != "" && !filepath.IsAbs(op.Staged):
		why = "the staged path is not absolute"
	case op.InPlace && (op.Staged == "" || op.Dir || op.Before.Kind != KindFile):
		why = "InPlace is for a staged file and a file that is there"
	case p.ops[at] != nil:
		why = "two ops for one path"
	case at.path == "" && op.Before.Kind != KindDir:
		why = "the root is not a directory"
	}
	if why != "" {
		return &MoveError{Root: op.Root, Path: op.Path, Do: "move", Err: fmt.Errorf("%s: %w", why, agents.ErrInvalid)}
	}
	p.ops[at] = op
	p.order = append(p.order, at)
	return nil
}

// check compares one op with the others and with the disk.
func (p *movePlan) check(at place) error {
	op := p.ops[at]
	arrives := op.outcome() != KindNone
	for dir := range at.above {
		above := p.ops[dir]
		if above == nil {
			continue
		}
		if arrives && above.outcome() != KindDir {
			return fmt.Errorf("%s above it does not stay a directory: %w", showPath(dir.path), agents.ErrInvalid)
		}
		if above.Before.Kind != KindDir { // so nothing can be below it yet
			if arrives && p.ops[at.parent()] == nil {
				return fmt.Errorf("nothing makes the directory above it: %w", agents.ErrInvalid)
			}
			if op.Before.Kind != KindNone {
				return fmt.Errorf("is said to be below %s, which was no directory: %w", showPath(dir.path), agents.ErrInvalid)
			}
			return nil
		}
	}
	have, _, err := p.present(at)
	switch {
	case absent(err) && !arrives && op.Before.Kind == KindNone:
		return nil
	case absent(err):
		return fmt.Errorf("the directory above it is gone, or a link: %w", agents.ErrConflict)
	case err != nil:
		return err
	case !op.Before.same(have, true):
		return differs(op.Before, have)
	}
	return nil
}

func (p *movePlan) present(at place) (Identity, uint64, error) {
	t := p.m.roots[at.root]
	if at.path == "" {
		id, err := t.identifyDir("")
		return id, 1, err
	}
	return t.identify(at.path)
}

// differs says that a path is not what the caller saw.
func differs(want, have Identity) error {
	switch {
	case want.Kind == KindNone:
		return fmt.Errorf("%s is there that was not: %w", have.Kind, agents.ErrConflict)
	case have.Kind == KindNone:
		return fmt.Errorf("%s was there and is gone: %w", want.Kind, agents.ErrConflict)
	case want.Kind != have.Kind:
		return fmt.Errorf("it was %s and is %s: %w", want.Kind, have.Kind, agents.ErrConflict)
	}
	return fmt.Errorf("it was changed meanwhile: %w", agents.ErrConflict)
}

// planRemovals makes the steps that free names: files first, then directories,
// deepest first.
func (p *movePlan) planRemovals() error {
	for _, at := range p.order {
		op := p.ops[at]
		stays := op.outcome() != KindNone && op.outcome() != KindDir
		if op.Before.Kind == KindNone || op.Before.Kind == KindDir || stays {
			continue
		}
		if err := p.step(at, moveStep{Do: verbTake, Before: op.Before}); err != nil {
			return err
		}
	}
	for _, at := range slices.Backward(p.order) {
		op := p.ops[at]
		if op.Before.Kind != KindDir || op.outcome() == KindDir {
			continue
		}
		if err := p.rmdir(at, op); err != nil {
			return err
		}
	}
	return nil
}

// rmdir removes a directory that the other ops leave empty.
func (p *movePlan) rmdir(at place, op *Op) error {
	names, err := p.m.roots[at.root].names(at.path)
	if err != nil {
		return p.fail(at, err)
	}
	for _, name := range names {
		child := p.ops[place{at.root, at.path + "/" + name}]
		if child == nil || child.Before.Kind == KindNone {
			return p.fail(at, fmt.Errorf("directory is not empty: it holds %s: %w", showPath(name), agents.ErrConflict))
		}
	}
	dir, err := p.work(at)
	if err != nil {
		return err
	}
	dir.Gone = true
	return p.step(at, moveStep{Do: verbRmdir, Before: op.Before})
}

// planArrivals makes the steps that fill names: directories top down, then
// files, then those that stay and get other bits or bytes, since another name of
// such a file may have a step too, last the new names of files that stay; bits
// and times of directories are set after all steps.
func (p *movePlan) planArrivals() error {
	for _, at := range p.order {
		op := p.ops[at]
		if !op.Dir {
			continue
		}
		if err := p.mkdir(at, op); err != nil {
			return err
		}
	}
	if err := p.foresee(); err != nil {
		return err
	}
	var kept, names []place
	for _, at := range p.order {
		op := p.ops[at]
		switch {
		case op.Dir, op.outcome() == KindNone, op.InPlace:
			continue
		case op.Keep:
			kept = append(kept, at)
			continue
		case len(p.becomes) > 0:
			if id, err := Identify(op.Staged); err == nil && p.becomes[id.key()].Kind != KindNone {
				names = append(names, at)
				continue
			}
		}
		if err := p.arrive(at, op); err != nil {
			return err
		}
	}
	for _, at := range kept {
		if err := p.arrive(at, p.ops[at]); err != nil {
			return err
		}
	}
	for _, at := range p.order {
		if op := p.ops[at]; op.InPlace {
			if err := p.rewrite(at, op); err != nil {
				return err
			}
		}
	}
	for _, at := range names {
		if err := p.arrive(at, p.ops[at]); err != nil {
			return err
		}
	}
	return nil
}

// foresee finds out what files become that get bits, a time or bytes where
// they are: what is staged may be a further name of one.
func (p *movePlan) foresee() error {
	p.becomes = map[inodeKey]Identity{}
	for _, at := range p.order {
		op := p.ops[at]
		if !op.Keep && !op.InPlace {
			continue
		}
		after := op.Before
		after.Ctime = 0
		if op.InPlace {
			id, err := p.staged(at, op.Staged)
			if err != nil {
				return err
			}
			after.Size, after.Mode, after.Mtime = id.Size, id.Mode, id.Mtime
		} else {
			mtime, err := p.stored(at, op.Mtime)
			if err != nil {
				return err
			}
			if after.Mode = PermissionBits(op.Perm); mtime != nil {
				after.Mtime = *mtime
			}
		}
		p.becomes[after.key()] = after
	}
	return nil
}

// mkdir plans a new directory, made in the hold so that its inode is known
// beforehand, or new bits and a time for the one that is there.
func (p *movePlan) mkdir(at place, op *Op) error {
	final := PermissionBits(op.Perm)
	mtime, err := p.stored(at, op.Mtime)
	if err != nil {
		return err
	}
	if op.Before.Kind == KindDir {
		if op.Before.Mode == final && mtime == nil {
			return nil
		}
		dir, err := p.dirAt(at) // also for the time that it has: names in it may change
		if err != nil {
			return err
		}
		dir.Sets, dir.Final, dir.Time = op.Before.Mode != final, final, mtime
		return nil
	}
	from := op.Staged
	slot := p.slot()
	if from == "" {
		from = filepath.Join(p.m.hold.path, slot)
		if err := Mkdir(from, 0o700); err != nil {
			return p.fail(at, err)
		}
	}
	id, err := p.staged(at, from)
	if err != nil {
		return err
	}
	if id.Kind != KindDir {
		return p.fail(at, fmt.Errorf("staged as a directory is %s: %w", id.Kind, agents.ErrInvalid))
	}
	s := moveStep{Do: verbMkdir, After: id, From: []byte(from), Slot: slot}
	if err := p.step(at, s); err != nil {
		return err
	}
	p.dirs[at] = &moveDir{
		Root: at.root, Path: []byte(at.path), Ino: id.Ino, Mode: id.Mode, Mtime: id.Mtime,
		Made: true, Work: true, Sets: true, Final: final, Time: mtime,
	}
	return nil
}

// arrive plans a file or link.
func (p *movePlan) arrive(at place, op *Op) error {
	if op.Keep {
		after := op.Before
		after.Mode = PermissionBits(op.Perm)
		mtime, err := p.stored(at, op.Mtime)
		if err != nil {
			return err
		}
		if mtime != nil {
			after.Mtime = *mtime
		}
		if after.Mode == op.Before.Mode && after.Mtime == op.Before.Mtime {
			return nil
		}
		p.steps = append(p.steps, moveStep{Do: verbMode, Root: at.root, Path: []byte(at.path), Before: op.Before, After: after})
		return nil
	}
	id, err := p.staged(at, op.Staged)
	if err != nil {
		return err
	}
	if id.Kind == KindDir {
		return p.fail(at, fmt.Errorf("staged as a file is %s: %w", id.Kind, agents.ErrInvalid))
	}
	if after, ok := p.becomes[id.key()]; ok {
		id = after
	}
	s := moveStep{Do: verbSwap, Before: op.Before, After: id, From: []byte(op.Staged)}
	if op.Before.Kind == KindNone || op.Before.Kind == KindDir {
		s.Do, s.Before = verbNew, Identity{}
	}
	return p.step(at, s)
}

// stored returns what the file system keeps of a modification time, which may
// be coarser, by giving it to the hold: a step is known by the time that it set.
func (p *movePlan) stored(at place, mtime *int64) (*int64, error) {
	if mtime == nil {
		return nil, nil
	}
	if err := p.m.chtimesFD(p.m.hold.fd, *mtime, p.m.hold.path); err != nil {
		return nil, p.fail(at, err)
	}
	id, err := p.m.hold.identifyDir("")
	if err != nil {
		return nil, p.fail(at, err)
	}
	return &id.Mtime, nil
}

// staged returns the identity of a finished thing, if it can be moved.
func (p *movePlan) staged(at place, from string) (Identity, error) {
	id, err := Identify(from)
	if err == nil && id.Kind == KindNone {
		err = fmt.Errorf("nothing is staged at %s: %w", showPath(from), agents.ErrInvalid)
	}
	if err != nil {
		return Identity{}, p.fail(at, err)
	}
	held, err := p.m.hold.identifyDir("")
	if err != nil {
		return Identity{}, err
	}
	if id.Dev != held.Dev {
		return Identity{}, p.fail(at, fmt.Errorf("%s is staged on another file system: %w", showPath(from), agents.ErrUnsupported))
	}
	return id, nil
}

// step appends a step that changes a name, and has the directory of the name
// be writable for the time.
func (p *movePlan) step(at place, s moveStep) error {
	if _, err := p.work(at.parent()); err != nil {
		return err
	}
	s.Root, s.Path = at.root, []byte(at.path)
	if s.Slot == "" {
		s.Slot = p.slot()
	}
	p.steps = append(p.steps, s)
	return nil
}

func (p *movePlan) slot() string {
	p.slots++
	return strconv.Itoa(p.slots)
}

// work notes that names in a directory change.
func (p *movePlan) work(at place) (*moveDir, error) {
	dir, err := p.dirAt(at)
	if err != nil {
		return nil, err
	}
	dir.Work = true
	return dir, nil
}

// dirAt returns the record of a directory that is there or is made earlier.
func (p *movePlan) dirAt(at place) (*moveDir, error) {
	if dir := p.dirs[at]; dir != nil {
		return dir, nil
	}
	t := p.m.roots[at.root]
	id, err := t.identifyDir(at.path)
	if err == nil && mountID(t.fd) != mountID(t.here(at.path)) {
		err = fmt.Errorf("is a mount point or below one: %w", agents.ErrUnsupported)
	}
	if absent(err) {
		err = fmt.Errorf("the directory is gone, or a link: %w", agents.ErrConflict)
	}
	if err != nil {
		return nil, p.fail(at, err)
	}
	dir := &moveDir{Root: at.root, Path: []byte(at.path), Ino: id.Ino, Mode: id.Mode, Mtime: id.Mtime}
	p.dirs[at] = dir
	return dir, nil
}

// dirList returns the directories, parents before their children.
func (p *movePlan) dirList() []moveDir {
	list := make([]moveDir, 0, len(p.dirs))
	for _, d := range p.dirs {
		list = append(list, *d)
	}
	slices.SortFunc(list, func(a, b moveDir) int {
		return cmp.Or(cmp.Compare(a.Root, b.Root), cmp.Compare(string(a.Path), string(b.Path)))
	})
	return list
}
