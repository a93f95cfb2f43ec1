package copyonwrite

import (
	"bytes"
	"compress/zlib"
	"crypto/sha256"
	"encoding/gob"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/fsx"
)

// origin says what lay at each path of the resource when it was copied. It
// lies in the base store under the hash of its content, so that sandboxes of a
// directory that stayed the same share it.
type origin struct {
	entries []fsx.SurveyEntry // by path
}

// keepOrigin writes an origin into the base store and returns its name.
func keepOrigin(base string, entries []fsx.SurveyEntry) (string, error) {
	data, err := pack(entries)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(data)
	name := "origin-" + hex.EncodeToString(sum[:])
	path := filepath.Join(base, name)
	if exists(path) {
		return name, nil
	}
	if err := fsx.MkdirAll(base, 0o700); err != nil {
		return "", err
	}
	return name, fsx.Publish(path, data, 0o600)
}

// readOrigin reads one. None, or one that does not have the content that its
// name says, is agents.ErrDamaged.
func readOrigin(base, name string) (*origin, error) {
	data, err := os.ReadFile(filepath.Join(base, filepath.Base(name)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("what the resource was at the start (%s): %w", name, agents.ErrDamaged)
	}
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(data)
	o := &origin{}
	if name != "origin-"+hex.EncodeToString(sum[:]) || unpack(data, &o.entries) != nil {
		return nil, fmt.Errorf("what the resource was at the start (%s): %w", name, agents.ErrDamaged)
	}
	return o, nil
}

// pack encodes a value, compressed.
func pack(v any) ([]byte, error) {
	var data bytes.Buffer
	z := zlib.NewWriter(&data)
	if err := errors.Join(gob.NewEncoder(z).Encode(v), z.Close()); err != nil {
		return nil, err
	}
	return data.Bytes(), nil
}

// unpack decodes what pack encoded.
func unpack(data []byte, v any) error {
	z, err := zlib.NewReader(bytes.NewReader(data))
	if err != nil {
		return err
	}
	return gob.NewDecoder(z).Decode(v)
}

// at returns what lay at a path; Kind is KindNone where nothing did.
func (o *origin) at(path string) fsx.SurveyEntry {
	i, ok := slices.BinarySearchFunc(o.entries, path, func(e fsx.SurveyEntry, p string) int { return strings.Compare(e.Path, p) })
	if !ok {
		return fsx.SurveyEntry{Path: path}
	}
	return o.entries[i]
}

// names returns the paths that were one file, sorted.
func (o *origin) names(ino uint64) (paths []string) {
	for _, e := range o.entries {
		if e.Ino == ino && e.Kind == fsx.KindFile {
			paths = append(paths, e.Path)
		}
	}
	return paths
}
