package copyonwrite

import (
	"context"
	"os"
	"path/filepath"

	"github.com/cleveragents/agents/internal/fsx"
	"github.com/cleveragents/agents/internal/snapshot"
)

// known says which content the files of the resource had when the base was
// recorded last, by what identified them. A later copy of a file that is still
// the same need not be read for its base: the base store has its content.
type known map[knownFile]string

type knownFile struct {
	Ino          uint64
	Size         int64
	Mtime, Ctime int64
}

// knownName is the file in the base store. It saves time and nothing depends
// on it: one that is missing or damaged knows nothing.
const knownName = "known"

func readKnown(base string) known {
	data, err := os.ReadFile(filepath.Join(base, knownName))
	if err != nil {
		return nil
	}
	var k known
	if unpack(data, &k) != nil {
		return nil
	}
	return k
}

// seedKnown tells a tracker of the copy which contents the base store has.
func (b *box) seedKnown(ctx context.Context, store *snapshot.Store, tracker *snapshot.Tracker, o *origin) error {
	k := readKnown(b.rec.Base)
	if len(k) == 0 {
		return nil
	}
	return tracker.Seed(ctx, files, func(yield func(snapshot.Seeded) bool) {
		for _, e := range o.entries {
			id := k[knownFile{e.Ino, e.Size, e.Mtime, e.Ctime}]
			if e.Kind != fsx.KindFile || id == "" || !store.Has(id) {
				continue
			}
			mode := uint32(0o100644)
			if e.Mode&0o100 != 0 {
				mode = 0o100755
			}
			if !yield(snapshot.Seeded{Path: e.Path, Mode: mode, ID: id}) {
				return
			}
		}
	})
}

// keepKnown writes down what the base that was just recorded has.
func (b *box) keepKnown(tracker *snapshot.Tracker, o *origin) error {
	k := make(known, len(o.entries))
	err := tracker.Contents(files, func(path, id string) {
		if e := o.at(path); e.Kind == fsx.KindFile && b.rec.settled(e.Ctime) {
			k[knownFile{e.Ino, e.Size, e.Mtime, e.Ctime}] = id
		}
	})
	if err != nil {
		return err
	}
	data, err := pack(k)
	if err != nil {
		return err
	}
	return fsx.Publish(filepath.Join(b.rec.Base, knownName), data, 0o600)
}
