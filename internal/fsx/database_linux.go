package fsx

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	agents "github.com/cleveragents/agents"
)

// A SQLite database that a program has open is more than its file: what was
// committed last is in a log beside it, and the two change at different
// moments. A copy takes them together, under the locks by which SQLite keeps
// its own processes apart, and never opens the database, which would change it
// (https://www.sqlite.org/fileformat2.html, walformat.html).

const (
	databaseMagic = "SQLite format 3\x00"

	pendingByte = 0x40000000 // SQLite's lock bytes in the database file
	sharedFirst = pendingByte + 2
	sharedSize  = 510
	walWrite    = 120 // and in the -shm file
	walCkpt     = 121

	walHead = 32 // bytes of a log's header, which is another one when the log begins anew
)

// databaseWait is how long a copy waits for a writer of a database.
const databaseWait = 10 * time.Second

// DatabaseLogs are the endings of the names of a database's logs, which hold
// changes that are not in its file yet.
func DatabaseLogs() []string { return []string{"-wal", "-journal"} }

// databaseFiles are the endings of all files that belong to a database.
func databaseFiles() []string { return append(DatabaseLogs(), "-shm") }

// databaseOf returns the path of the database to which a file of this name
// would belong; "" if its name is not one of those.
func databaseOf(path string) string {
	for _, end := range databaseFiles() {
		if base, ok := strings.CutSuffix(path, end); ok {
			return base
		}
	}
	return ""
}

// isDatabase reports whether an open file is a SQLite database.
func isDatabase(fd int, size int64) bool {
	if size < 512 {
		return false
	}
	var head [len(databaseMagic)]byte
	n, err := unix.Pread(fd, head[:], 0)
	return err == nil && n == len(head) && string(head[:]) == databaseMagic
}

// deferred marks those entries of a directory that can be logs of another one:
// they come after it, if they did not come with it.
func deferred(all []SurveyEntry, entries []int) map[string]int {
	names := map[string]bool{}
	for _, i := range entries {
		if all[i].Kind == KindFile {
			names[all[i].Path] = true
		}
	}
	logs := map[string]int{}
	for _, i := range entries {
		for _, end := range databaseFiles() {
			if base, ok := strings.CutSuffix(all[i].Path, end); ok && names[base] && all[i].Kind == KindFile {
				logs[all[i].Path] = i
			}
		}
	}
	return logs
}

// database copies a database and its logs as of one moment.
func (w *copyWorker) database(i int, name string, in int) error {
	unlock, err := lockDatabase(w.in, name, in, time.Now().Add(databaseWait))
	if err != nil {
		return err
	}
	defer unlock()
	head := logHead(w.in, name)
	var st unix.Stat_t
	if err := unix.Fstat(in, &st); err != nil {
		return err
	}
	if err := w.plainFile(&w.s.Entries[i], name, in, st); err != nil {
		return err
	}
	for _, end := range databaseFiles() {
		if err := w.log(w.s.Entries[i].Path+end, name+end); err != nil {
			return err
		}
	}
	return sameHead(head, logHead(w.in, name))
}

// log copies a database's log, if there is one. What is appended meanwhile is
// no part of the moment, and SQLite does not take it for one.
func (w *copyWorker) log(path, name string) error {
	in, st, err := openFileAt(w.in, name)
	if errors.Is(err, errGone) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(in)
	if err := unix.Unlinkat(w.out, name, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	i, listed := w.logs[path]
	e := &w.s.Entries[i]
	if !listed {
		e = w.unlisted(path)
	}
	w.taken[path] = true
	if err := w.plainFile(e, name, in, st); err != nil && !errors.Is(err, errChanging) {
		return err
	}
	return nil
}

// unlisted returns the entry of a path that came after the survey.
func (c *surveyCopy) unlisted(path string) *SurveyEntry {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.came[path] == nil {
		c.came[path] = &SurveyEntry{Path: path}
	}
	return c.came[path]
}

func sameHead(a, b []byte) error {
	if bytes.Equal(a, b) {
		return nil
	}
	return errChanging
}

// logHead returns the header of a database's write-ahead log, nil if it has none.
func logHead(dir int, name string) []byte {
	fd, _, err := openFileAt(dir, name+"-wal")
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	head := make([]byte, walHead)
	n, err := unix.Pread(fd, head, 0)
	if err != nil {
		return nil
	}
	return head[:n]
}

// lockDatabase keeps writers away from a database and checkpoints away from
// its log until the returned function is called. A writer that does not come
// to its end is agents.ErrLocked. The locks are shared ones: nothing is
// written, and readers are not hindered.
func lockDatabase(dir int, name string, db int, until time.Time) (unlock func(), err error) {
	shm, _, err := openFileAt(dir, name+"-shm")
	if errors.Is(err, errGone) {
		shm, err = -1, nil
	}
	if err != nil {
		return nil, err
	}
	unlock = func() {
		if shm >= 0 {
			unix.Close(shm)
		}
		// Those of the database end when the caller closes it.
	}
	for {
		busy, err := tryLocks(db, shm, time.Now().After(until.Add(-databaseWait*9/10)))
		if err == nil && !busy {
			return unlock, nil
		}
		if err == nil && time.Now().After(until) {
			err = agents.WithHint(fmt.Errorf("the database is being written: %w", agents.ErrLocked), "end the transaction, or stop the program that writes it, and try again")
		}
		if err != nil {
			unlock()
			return nil, err
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// tryLocks takes the locks of a reader of the database, and on its log those
// that a checkpoint and (unless impatient) a writer would need. A file system
// without locks has none to wait for.
func tryLocks(db, shm int, impatient bool) (busy bool, err error) {
	pending := shareLock(db, pendingByte, 1)
	if pending == nil {
		pending = shareLock(db, sharedFirst, sharedSize)
		_ = unix.FcntlFlock(uintptr(db), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_UNLCK, Start: pendingByte, Len: 1})
	}
	err = pending
	if err == nil && shm >= 0 {
		err = shareLock(shm, walCkpt, 1)
	}
	if err == nil && shm >= 0 && !impatient {
		err = shareLock(shm, walWrite, 1)
	}
	switch {
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EACCES):
		return true, nil
	case errors.Is(err, unix.ENOLCK), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EINVAL):
		return false, nil
	}
	return false, err
}

func shareLock(fd int, start, n int64) error {
	return unix.FcntlFlock(uintptr(fd), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_RDLCK, Start: start, Len: n})
}

// IsDatabase reports whether path is a SQLite database.
func IsDatabase(path string) bool {
	fd, st, err := openFileAt(unix.AT_FDCWD, path)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	return isDatabase(fd, st.Size)
}

// DatabaseInUse reports whether path is a SQLite database that some program
// has open: to replace its file would tear it apart.
func DatabaseInUse(path string) bool {
	dir, name := splitPath(path)
	at, err := unix.Open(dir+"/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(at)
	fd, st, err := openFileAt(at, name)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	if !isDatabase(fd, st.Size) {
		return false
	}
	if locked(fd, pendingByte, 2+sharedSize) {
		return true
	}
	shm, _, err := openFileAt(at, name+"-shm")
	if err != nil {
		return false
	}
	defer unix.Close(shm)
	return locked(shm, walWrite, 9) // the last is held by whoever has the log open
}

// locked reports whether another open file holds any lock there.
func locked(fd int, start, n int64) bool {
	l := unix.Flock_t{Type: unix.F_WRLCK, Start: start, Len: n}
	return unix.FcntlFlock(uintptr(fd), unix.F_OFD_GETLK, &l) == nil && l.Type != unix.F_UNLCK
}
