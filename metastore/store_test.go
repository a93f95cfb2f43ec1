package metastore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/metastore"
)

// fixture is an open store with a clock that stands still.
type fixture struct {
	t     *testing.T
	path  string
	store *metastore.Store
	clock time.Time
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{
		t:     t,
		path:  filepath.Join(t.TempDir(), "data", "agents.db"),
		clock: time.Date(2026, 11, 30, 12, 0, 0, 123456789, time.FixedZone("elsewhere", 3600)),
	}
	f.store = f.open()
	return f
}

// open opens the fixture's file once more.
func (f *fixture) open() *metastore.Store {
	f.t.Helper()
	s, err := metastore.Open(f.t.Context(), f.path, metastore.Options{Now: func() time.Time { return f.clock }})
	if err != nil {
		f.t.Fatalf("Open: %v", err)
	}
	f.t.Cleanup(func() {
		if err := s.Close(); err != nil {
			f.t.Errorf("Close: %v", err)
		}
	})
	return s
}

// write runs fn in a unit of work that must succeed.
func (f *fixture) write(fn func(tx *metastore.Tx) error) {
	f.t.Helper()
	if err := f.store.Write(f.t.Context(), fn); err != nil {
		f.t.Fatalf("Write: %v", err)
	}
}

// read runs fn in a reading unit of work that must succeed.
func (f *fixture) read(fn func(tx *metastore.Tx) error) {
	f.t.Helper()
	if err := f.store.Read(f.t.Context(), fn); err != nil {
		f.t.Fatalf("Read: %v", err)
	}
}

// refuse runs fn in a unit of work that must fail with the class want.
func (f *fixture) refuse(want error, fn func(tx *metastore.Tx) error) error {
	f.t.Helper()
	err := f.store.Write(f.t.Context(), fn)
	if !errors.Is(err, want) {
		f.t.Fatalf("error = %v, want %v", err, want)
	}
	return err
}

// id is a whole id that the test can write down.
func id(n int) string { return fmt.Sprintf("01TEST%020d", n) }

func TestOpenMakesPrivateFiles(t *testing.T) {
	f := newFixture(t)
	for path, want := range map[string]fs.FileMode{f.path: 0o600, filepath.Dir(f.path): 0o700 | fs.ModeDir} {
		fi, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if fi.Mode() != want {
			t.Errorf("mode of %s = %v, want %v", path, fi.Mode(), want)
		}
	}
	f.write(func(tx *metastore.Tx) error { return tx.Events().Append(&agents.Event{Kind: "test"}) })
	if fi, err := os.Stat(f.path + "-wal"); err != nil || fi.Mode() != 0o600 {
		t.Errorf("log beside the database: %v, %v; want mode 0600", fi, err)
	}
	if err := f.store.Check(t.Context()); err != nil {
		t.Errorf("Check: %v", err)
	}
}

func TestCloseMayBeRepeated(t *testing.T) {
	f := newFixture(t)
	for range 2 {
		if err := f.store.Close(); err != nil {
			t.Fatalf("Close: %v", err)
		}
	}
	if err := f.store.Read(t.Context(), func(*metastore.Tx) error { return nil }); err == nil {
		t.Error("Read after Close succeeded")
	}
}

// TestU055SecondStoreFindsEverything also answers U085: nothing is kept in memory.
func TestU055SecondStoreFindsEverything(t *testing.T) {
	f := newFixture(t)
	p := f.plan("kept", 1)
	second := f.open()
	err := second.Read(t.Context(), func(tx *metastore.Tx) error {
		got, err := tx.Plans().Resolve("kept")
		if got.ID != p.ID {
			t.Errorf("plan = %q, want %q", got.ID, p.ID)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestWriteKeepsAllOrNothing(t *testing.T) {
	f := newFixture(t)
	boom := errors.New("boom")
	if err := f.store.Write(t.Context(), func(tx *metastore.Tx) error {
		if err := tx.Events().Append(&agents.Event{Kind: "one"}); err != nil {
			return err
		}
		return boom
	}); !errors.Is(err, boom) {
		t.Fatalf("error = %v, want boom", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if err := f.store.Write(ctx, func(tx *metastore.Tx) error {
		defer cancel()
		return tx.Events().Append(&agents.Event{Kind: "two"})
	}); !errors.Is(err, context.Canceled) {
		t.Fatalf("error = %v, want canceled", err)
	}
	func() {
		defer func() { _ = recover() }()
		_ = f.store.Write(t.Context(), func(tx *metastore.Tx) error {
			_ = tx.Events().Append(&agents.Event{Kind: "three"})
			panic("in the middle")
		})
	}()
	f.write(func(tx *metastore.Tx) error { return tx.Events().Append(&agents.Event{Kind: "four"}) })
	f.read(func(tx *metastore.Tx) error {
		all, err := tx.Events().List("")
		if len(all) != 1 || all[0].Kind != "four" {
			t.Errorf("events = %+v, want only four", all)
		}
		return err
	})
}

func TestWriteWaitingForAnotherEndsWithItsContext(t *testing.T) {
	f := newFixture(t)
	second := f.open()
	f.write(func(*metastore.Tx) error {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		for name, s := range map[string]*metastore.Store{"same store": f.store, "other store": second} {
			if err := s.Write(ctx, func(*metastore.Tx) error { return nil }); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: error = %v, want deadline exceeded", name, err)
			}
		}
		return nil
	})
}

func TestReadSeesOneMomentAndChangesNothing(t *testing.T) {
	f := newFixture(t)
	count := func(tx *metastore.Tx) int {
		all, err := tx.Events().List("")
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	f.read(func(tx *metastore.Tx) error {
		before := count(tx)
		f.write(func(tx *metastore.Tx) error { return tx.Events().Append(&agents.Event{Kind: "meanwhile"}) })
		if after := count(tx); after != before {
			t.Errorf("a reader saw %d events and then %d", before, after)
		}
		if err := tx.Events().Append(&agents.Event{Kind: "forbidden"}); !errors.Is(err, agents.ErrState) {
			t.Errorf("change while reading: %v, want ErrState", err)
		}
		return nil
	})
}

func TestTxEndsWithItsUnitOfWork(t *testing.T) {
	f := newFixture(t)
	var kept *metastore.Tx
	f.write(func(tx *metastore.Tx) error { kept = tx; return nil })
	if _, err := kept.Plans().List(); !errors.Is(err, agents.ErrState) {
		t.Errorf("List: %v, want ErrState", err)
	}
	if err := kept.Events().Append(&agents.Event{}); !errors.Is(err, agents.ErrState) {
		t.Errorf("Append: %v, want ErrState", err)
	}
	if _, err := kept.Plans().Get(id(1)); !errors.Is(err, agents.ErrState) {
		t.Errorf("Get: %v, want ErrState", err)
	}
}

func TestNowIsUTCAndOneMoment(t *testing.T) {
	f := newFixture(t)
	f.write(func(tx *metastore.Tx) error {
		if tx.Now().Location() != time.UTC || !tx.Now().Equal(f.clock) {
			t.Errorf("Now = %v, want %v in UTC", tx.Now(), f.clock)
		}
		first := tx.Now()
		f.clock = f.clock.Add(time.Hour)
		if !tx.Now().Equal(first) {
			t.Error("Now moved within a unit of work")
		}
		e := agents.Event{Kind: "timed"}
		if err := tx.Events().Append(&e); err != nil {
			return err
		}
		all, err := tx.Events().List("")
		if len(all) != 1 || !all[0].CreatedAt.Equal(first) || all[0].CreatedAt.Location() != time.UTC {
			t.Errorf("stored time = %+v, want %v", all, first)
		}
		return err
	})
}

func TestManyGoroutinesLoseNothing(t *testing.T) {
	f := newFixture(t)
	const goroutines, each = 8, 10
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			for range each {
				if err := f.store.Write(t.Context(), func(tx *metastore.Tx) error {
					return tx.Events().Append(&agents.Event{Kind: "tick"})
				}); err != nil {
					t.Errorf("Write: %v", err)
				}
				if err := f.store.Read(t.Context(), func(tx *metastore.Tx) error {
					_, err := tx.Events().List("")
					return err
				}); err != nil {
					t.Errorf("Read: %v", err)
				}
			}
		})
	}
	wg.Wait()
	f.read(func(tx *metastore.Tx) error {
		all, err := tx.Events().List("")
		if len(all) != goroutines*each {
			t.Errorf("events = %d, want %d", len(all), goroutines*each)
		}
		return err
	})
}

// snapshotDir returns every file under dir with its content.
func snapshotDir(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() {
			continue
		}
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		out[e.Name()] = b
	}
	return out
}

func sameFiles(t *testing.T, got, want map[string][]byte) {
	t.Helper()
	for name := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("a file %s appeared", name)
		}
	}
	for name, b := range want {
		if !bytes.Equal(got[name], b) {
			t.Errorf("file %s changed", name)
		}
	}
}
