package gitworktree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/fsx"
	"github.com/cleveragents/agents/internal/git"
	"github.com/cleveragents/agents/sandbox"
	"github.com/cleveragents/agents/sandbox/internal/folder"
)

// transition moves a target from the commit it is at to another one: the work
// tree, the index and the ref, all or none. The order is
//
//	the user's index.lock; a check of every path; the new contents made aside;
//	the before-images and the intent in the journal; the files moved; the new
//	index written into the lock; the ref, by compare-and-swap; the lock renamed
//	to index.
//
// Once the ref has moved the transition is done in full, at the latest by
// Recover; before, everything is taken back. The user's git cannot write the
// index until then, since the lock is held, so no commit of theirs can come
// between half a tree and its ref. The ref moves before the lock becomes the
// index, as in git's own commit, so that a ref which somebody else moved
// leaves the index's bytes as they were.
type transition struct {
	t        target
	plan     string
	location string // of the resource
	to       string // the commit
	changes  []git.Change
	dir      string      // the journal folder
	entry    string      // name of the sandbox's worktree entry; it may be gone
	q        *quarantine // has the objects that are not home yet; nil = all are
	message  string      // of the reflog
	keep     string      // where uncommitted edits are merged; "" = they are in the way
	past     *past       // an undo in the same work tree: what was there; nil otherwise

	carry func(ctx context.Context) error // brings home what the objects do not hold; may be nil

	stage   string       // new contents, hold folder and copies of the index, on the work tree's file system
	pin     string       // second name of index.lock
	seen    bool         // the ref's reflog has the new commit from before
	index   fsx.Identity // the user's index when it was copied
	steps   []step
	intent  intent
	files   *fsx.Move
	notices []string // what was written late, or left as somebody made it
}

// errMoved says that the target's tip is not the one that was looked at.
var errMoved = agents.WithHint(fmt.Errorf("the branch moved meanwhile: %w", agents.ErrConflict), "apply again")

// refusedError lists the paths that stand in the way.
type refusedError struct{ paths []agents.PathReason }

func (e *refusedError) Error() string {
	first := fmt.Sprintf("%q: %s", e.paths[0].Path, e.paths[0].Reason)
	if len(e.paths) == 1 {
		return first
	}
	return fmt.Sprintf("%d paths are in the way, the first is %s", len(e.paths), first)
}

func (e *refusedError) Unwrap() error { return agents.ErrConflict }

// run makes the transition. On error everything is as before, or the error
// says that it is not (agents.ErrDamaged) and the journal stays for Recover.
func (m *transition) run(ctx context.Context) error {
	if err := m.begin(ctx); err != nil {
		return errors.Join(err, m.abandon(ctx))
	}
	prepare := m.moveTree
	if m.t.root == "" {
		prepare = m.moveNoTree
	}
	err := prepare(ctx)
	if err == nil {
		err = m.moveRef(ctx)
	}
	if err != nil {
		return errors.Join(err, m.abandon(ctx))
	}
	ctx, cancel := detached(ctx)
	defer cancel()
	if err := m.finish(ctx); err != nil {
		return fmt.Errorf("the ref has moved, the next call will finish the rest: %w", err)
	}
	return nil
}

// rehearse says whether run would refuse, and takes back what it made to look.
func (m *transition) rehearse(ctx context.Context) error {
	err := m.begin(ctx)
	if err == nil && m.t.root != "" {
		err = m.look(ctx)
	}
	return errors.Join(err, m.abandon(ctx))
}

// look locks the index and makes sure that nothing stands in the way.
func (m *transition) look(ctx context.Context) error {
	if err := m.lockIndex(ctx); err != nil {
		return err
	}
	if err := m.lookAgain(ctx); err != nil {
		return err
	}
	return m.check(ctx)
}

// detached returns a context for work that must be done although ctx has
// ended; it ends by itself.
func detached(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), 5*time.Minute)
}

// begin writes begin.json and makes the stage.
func (m *transition) begin(ctx context.Context) (err error) {
	if m.seen, err = m.inReflog(ctx); err != nil {
		return err
	}
	b := beginning{
		Version: journalVersion, Plan: m.plan, Location: rawPath(m.location), GitDir: rawPath(m.t.found.GitDir),
		CommonDir: rawPath(m.t.found.CommonDir), Root: rawPath(m.t.root), Ref: m.t.ref, From: m.t.tip, To: m.to, Seen: m.seen,
	}
	if m.t.root != "" {
		if err := m.choosePlaces(); err != nil {
			return err
		}
		b.Stage, b.Pin = rawPath(m.stage), rawPath(m.pin)
	}
	if err := putJSON(m.dir, beginFile, b); err != nil {
		return err
	}
	if m.stage == "" {
		return nil
	}
	if err := fsx.RemoveAll(m.stage); err != nil {
		return err
	}
	for _, d := range []string{"", "new", "hold", "scratch"} {
		if err := fsx.Mkdir(filepath.Join(m.stage, d), 0o700); err != nil {
			return fmt.Errorf("make a place for the new contents: %w", err)
		}
	}
	return nil
}

// choosePlaces finds a stage on the work tree's file system: in the sandbox's
// own worktree entry where that is on it, else beside the work tree, else in it.
func (m *transition) choosePlaces() error {
	root, err := fsx.Identify(m.t.root)
	if err != nil {
		return err
	}
	own := m.t.found.GitDir
	if m.entry != "" {
		if dir := filepath.Join(m.t.found.CommonDir, "worktrees", m.entry); isDir(dir) {
			own = dir
		}
	}
	unique := strings.TrimPrefix(newEntry(m.plan), folder.EntryPrefix)
	m.pin = filepath.Join(own, "agents-index-"+unique)
	hidden := ".agents-stage-" + unique
	for _, dir := range []string{own, filepath.Dir(m.t.root), m.t.root} {
		if id, err := fsx.Identify(dir); err == nil && id.Dev == root.Dev && writable(dir) {
			m.stage = filepath.Join(dir, hidden)
			return nil
		}
	}
	return fmt.Errorf("no place for the new contents on the file system of %s can be written: %w", m.t.root, agents.ErrUnsupported)
}

func isDir(path string) bool {
	fi, err := os.Lstat(path)
	return err == nil && fi.IsDir()
}

// repo returns calls on the target that can read the new commit, too.
func (m *transition) repo() git.Repo {
	r := m.t.repo
	if m.q != nil {
		r.Alternates = append(r.Alternates[:len(r.Alternates):len(r.Alternates)], m.q.objects())
	}
	return r
}

// moveNoTree makes ready for a branch that is checked out nowhere.
func (m *transition) moveNoTree(ctx context.Context) error {
	if err := m.carryHome(ctx); err != nil {
		return err
	}
	return m.bringHome(ctx)
}

func (m *transition) carryHome(ctx context.Context) error {
	if m.carry == nil {
		return nil
	}
	return m.carry(ctx)
}

// bringHome copies new objects into the user's repository.
func (m *transition) bringHome(ctx context.Context) error {
	if m.q == nil {
		return nil
	}
	return m.q.bringHome(ctx, m.t.repo)
}

// moveTree does everything in the work tree, and leaves the new index in the lock.
func (m *transition) moveTree(ctx context.Context) error {
	if err := m.look(ctx); err != nil {
		return err
	}
	if err := m.carryHome(ctx); err != nil {
		return err
	}
	if err := m.stageContents(ctx); err != nil {
		return err
	}
	if err := m.saveBefore(); err != nil {
		return fmt.Errorf("save what is there: %w", err)
	}
	if err := m.bringHome(ctx); err != nil {
		return err
	}
	if err := m.prepareFiles(); err != nil {
		return err
	}
	if err := m.files.Run(ctx); err != nil {
		return fmt.Errorf("move files: %w", err)
	}
	return m.writeIndex(ctx)
}

// lookAgain makes sure, under the lock, that the target is what it was.
func (m *transition) lookAgain(ctx context.Context) error {
	if err := m.t.atRest(); err != nil {
		return err
	}
	head, err := m.t.repo.Head(ctx)
	if err != nil {
		return err
	}
	onRef := head.Ref == m.t.ref || head.Ref == "" && m.t.ref == "HEAD"
	if !onRef || head.Commit != m.t.tip {
		return errMoved
	}
	return nil
}

// check looks at every path, and then has git look.
func (m *transition) check(ctx context.Context) error {
	repo := m.repo()
	repo.IndexFile = m.indexCopy()
	steps, refused, err := inspect(ctx, m.t, repo, m.t.tip, m.changes, m.past.written(), m.keep)
	if err != nil {
		return err
	}
	m.steps = steps
	if m.past != nil && len(refused) == 0 {
		refused = m.past.compare(steps)
	}
	if len(refused) > 0 {
		return &refusedError{refused}
	}
	if err := m.findOutside(ctx, repo); err != nil {
		return err
	}
	if err := m.refresh(ctx, repo); err != nil {
		return err
	}
	look := "-u"
	if m.keepsEdits() {
		look = "-i" // our own look has been; git's would find the edits in the way
	}
	_, err = repo.Do(ctx, git.Call{Args: []string{"read-tree", "-n", "-m", look, m.t.tip, m.to}})
	var said *git.Error
	if errors.As(err, &said) && said.Err == nil {
		return fmt.Errorf("git would not move the work tree: %w: %w", err, agents.ErrConflict)
	}
	return err
}

// moveRef is the moment at which the transition is done.
func (m *transition) moveRef(ctx context.Context) error {
	if m.t.root != "" && !m.lockIsOurs() {
		return fmt.Errorf("somebody removed our index.lock or changed the index: %w", agents.ErrConflict)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	// From here on nothing cuts the call off: it is short, and files must not
	// be taken back under a ref that has moved after all.
	ctx, cancel := detached(ctx)
	defer cancel()
	err := durable(m.t.repo).UpdateRefs(ctx, m.message, git.RefChange{Ref: m.t.ref, Old: m.t.tip, New: m.to})
	if err == nil {
		return nil
	}
	now, rerr := m.t.repo.Ref(ctx, m.t.ref)
	switch {
	case rerr != nil:
		return err
	case now == m.to:
		return nil
	case errors.Is(err, agents.ErrConflict) && now != m.t.tip:
		return errMoved
	}
	return err
}

// finish makes the new index the user's, ends the journal and takes our
// things away. It may be repeated.
func (m *transition) finish(ctx context.Context) error {
	if m.t.root != "" {
		if err := m.publishIndex(ctx); err != nil {
			return err
		}
	}
	if err := m.keepLate(); err != nil {
		return err
	}
	if err := putJSON(m.dir, doneFile, ending{State: agents.ApplyApplied, Commit: m.to}); err != nil {
		return err
	}
	return m.clean()
}

// lateDir is the folder for what programs wrote into files that they had open
// when those were replaced.
func (m *transition) lateDir() string {
	return sandbox.LateDir(strings.TrimSuffix(m.dir, string(filepath.Separator)+undoDir))
}

// keepLate lets go of the before-images but for those bytes.
func (m *transition) keepLate() error {
	if m.stage == "" {
		return nil
	}
	if m.files == nil { // another process moved them
		var err error
		m.files, err = fsx.LoadMove(filepath.Join(m.dir, moveDir))
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	if err := m.files.Commit(); err != nil {
		return err
	}
	late, err := m.files.ForgetButLate(m.lateDir())
	m.notices = append(m.notices, folder.LateNotices(late)...)
	return err
}

// clean removes the stage, the pin and the journal of the files.
func (m *transition) clean() error {
	if m.stage == "" {
		return nil
	}
	return errors.Join(fsx.RemoveAll(filepath.Join(m.dir, moveDir)), fsx.RemoveAll(m.stage), fsx.Remove(m.pin))
}

// abandon takes back what was done before the ref moved, and empties the
// journal folder.
func (m *transition) abandon(ctx context.Context) error {
	_, cancel := detached(ctx)
	defer cancel()
	if m.files == nil {
		return m.emptyJournal()
	}
	if err := m.files.Undo(); err != nil {
		return fmt.Errorf("the work tree could not be put back, the next call will try again: %w: %w", err, agents.ErrDamaged)
	}
	return m.emptyJournal()
}

// emptyJournal lets go of the lock and removes all that the transition made;
// begin.json, which names it, goes last.
func (m *transition) emptyJournal() error {
	if err := errors.Join(m.unlockIndex(), m.clean()); err != nil {
		return err
	}
	names, err := os.ReadDir(m.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, n := range names {
		if n.Name() != beginFile {
			if err := fsx.RemoveAll(filepath.Join(m.dir, n.Name())); err != nil {
				return err
			}
		}
	}
	return fsx.Remove(filepath.Join(m.dir, beginFile))
}
