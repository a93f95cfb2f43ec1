//go:build unix

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// directory adds the rows of a plain directory. Where its file system clones
// files, cp does so too.
func (b *bench) directory(t *table) error {
	var trash []string
	defer func() {
		for _, dir := range trash {
			_ = os.RemoveAll(dir)
		}
		_ = os.RemoveAll(b.data)
	}()
	copied, err := b.copies(t, &trash)
	if err != nil {
		return err
	}
	if err := b.oneChange(t, copied, &trash); err != nil {
		return err
	}
	if err := b.sharedStore(t); err != nil {
		return err
	}
	return b.homeAndBack(t)
}

// copies times the first access of the first plan, which records the base that
// all plans share, and of later ones, against cp.
func (b *bench) copies(t *table, trash *[]string) (copied string, err error) {
	cp, bound := []string{"-a"}, 1.0
	if b.clones() {
		cp, bound = append(cp, "--reflink=always"), 0.7
	}
	n := 0
	copying := func() (time.Duration, error) {
		n++
		copied = filepath.Join(b.dir, fmt.Sprintf("copy-%d-%d-%d", b.files, os.Getpid(), n))
		*trash = append(*trash, copied)
		settle()
		return b.time(b.dir, "cp", append(cp, b.tree, copied)...)
	}
	access := func() (time.Duration, error) {
		plan := fmt.Sprintf("copy-%d-%d", os.Getpid(), n)
		if err := b.agents("plan", "create", "--name", plan, "-r", b.tree); err != nil {
			return 0, err
		}
		settle()
		return b.time(b.tree, b.program, "tool", "run", plan, "file-info", "--input", `{"path":"."}`)
	}
	if _, err := copying(); err != nil { // the first one warms the cache
		return "", err
	}
	peer, err := copying()
	if err != nil {
		return "", err
	}
	first, err := access()
	if err != nil {
		return "", err
	}
	what := "cp " + strings.Join(cp, " ")
	t.against(b.files, "directory: first access, first plan ("+what+")", first, peer, bound)
	var peers []time.Duration
	later, err := median(b.runs, func() (time.Duration, error) {
		peer, err := copying()
		if err != nil {
			return 0, err
		}
		peers = append(peers, peer)
		return access()
	})
	if err != nil {
		return "", err
	}
	t.against(b.files, "directory: first access, later plans ("+what+")", later, middle(peers), bound)
	return copied, nil
}

// clones reports whether the file system shares bytes between files.
func (b *bench) clones() bool {
	from, to := filepath.Join(b.tree, filePath(0)), filepath.Join(b.dir, "clone")
	defer os.Remove(to)
	return exec.Command("cp", "--reflink=always", from, to).Run() == nil
}

// oneChange times a checkpoint after a shell command that changed one file
// against a backup of a tree in which one file changed.
func (b *bench) oneChange(t *table, copied string, trash *[]string) error {
	per, err := b.perStep("builtin/shell", func(i int) string {
		return fmt.Sprintf(`{command: "echo %d >> %s"}`, i, filePath(i*37))
	})
	if err != nil {
		return err
	}
	last, n := copied, 0
	rsync, err := median(b.runs, func() (time.Duration, error) {
		if err := b.touch(copied); err != nil {
			return 0, err
		}
		n++
		next := filepath.Join(b.dir, fmt.Sprintf("rsync-%d-%d-%d", b.files, os.Getpid(), n))
		*trash = append(*trash, next)
		settle()
		d, err := b.time(b.dir, "rsync", "-a", "--delete", "--link-dest="+last, copied+"/", next+"/")
		last = next
		return d, err
	})
	if err != nil {
		return err
	}
	t.against(b.files, "directory: checkpoint of one changed file (rsync --link-dest)", per, rsync, 0.5)
	if _, err := exec.LookPath("restic"); err != nil {
		return nil
	}
	repo := filepath.Join(b.dir, fmt.Sprintf("restic-%d-%d", b.files, os.Getpid()))
	*trash = append(*trash, repo)
	b.env = append(b.env, "RESTIC_PASSWORD=bench", "RESTIC_REPOSITORY="+repo)
	for _, args := range [][]string{{"init", "-q"}, {"backup", "-q", copied}} {
		if err := command(b.dir, b.env, "restic", args...); err != nil {
			return err
		}
	}
	restic, err := median(b.runs, func() (time.Duration, error) {
		if err := b.touch(copied); err != nil {
			return 0, err
		}
		settle()
		return b.time(b.dir, "restic", "backup", "-q", copied)
	})
	if err != nil {
		return err
	}
	t.against(b.files, "directory: checkpoint of one changed file (restic backup)", per, restic, 0.25)
	return nil
}

// sharedStore sizes what plans share, against the tree, and what ten one-line
// checkpoints add, against twice the files that changed.
func (b *bench) sharedStore(t *table) error {
	tree := float64(treeSize(b.tree))
	shared := float64(treeSize(filepath.Join(b.data, "checkpoints", "shared")))
	t.amount(b.files, "directory: base store, shared by plans", shared/1e6, tree/1e6, "MB")
	plan := fmt.Sprintf("ten-%d", os.Getpid())
	if err := b.agents("plan", "create", "--name", plan, "-r", b.tree); err != nil {
		return err
	}
	var changed int64
	for i := range 10 {
		path := filePath(i * 11)
		if err := b.agents("plan", "exec", plan, "--", "sh", "-c", fmt.Sprintf("echo %d >> %s", i, path)); err != nil {
			return err
		}
		fi, err := os.Stat(filepath.Join(b.tree, path))
		if err != nil {
			return err
		}
		changed += fi.Size()
	}
	id, err := b.planID(plan)
	if err != nil {
		return err
	}
	bytes := float64(treeSize(filepath.Join(b.data, "checkpoints", id)))
	t.amount(b.files, "directory: ten one-line checkpoints", bytes/1e6, 2*float64(changed)/1e6, "MB")
	return nil
}

// homeAndBack times going back over ten changed files, and bringing ten home,
// against two looks at every file of the tree.
func (b *bench) homeAndBack(t *table) error {
	scans, err := median(b.runs, func() (time.Duration, error) {
		return b.time(b.tree, "sh", "-c", "find . -printf '%s%T@' >/dev/null; find . -printf '%s%T@' >/dev/null")
	})
	if err != nil {
		return err
	}
	var files []string
	for i := range 10 {
		files = append(files, filePath(i*101))
	}
	change := "for f in " + strings.Join(files, " ") + "; do echo x >> $f; done"
	n := 0
	prepare := func() (string, error) {
		n++
		plan := fmt.Sprintf("home-%d-%d", os.Getpid(), n)
		if err := b.agents("plan", "create", "--name", plan, "-r", b.tree); err != nil {
			return "", err
		}
		return plan, b.agents("plan", "exec", plan, "--", "sh", "-c", change)
	}
	back, err := median(b.runs, func() (time.Duration, error) {
		plan, err := prepare()
		if err != nil {
			return 0, err
		}
		first, err := b.firstCheckpoint(plan)
		if err != nil {
			return 0, err
		}
		settle()
		return b.time(b.tree, b.program, "plan", "rollback", "-y", plan, first)
	})
	if err != nil {
		return err
	}
	t.against(b.files, "directory: rollback of ten files (two scans with find)", back, scans, 0)
	home, err := median(b.runs, func() (time.Duration, error) {
		plan, err := prepare()
		if err != nil {
			return 0, err
		}
		settle()
		return b.time(b.tree, b.program, "plan", "apply", "-y", "--keep-sandbox", plan)
	})
	if err != nil {
		return err
	}
	t.against(b.files, "directory: apply of ten files (two scans with find)", home, scans, 0)
	return nil
}
