package fsx

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
)

// WriteFile makes a new file with this content and makes it durable. It does
// not replace one.
func WriteFile(path string, data []byte, perm fs.FileMode) error {
	f, err := Create(path, perm)
	if err != nil {
		return err
	}
	return finish(f, data)
}

// Publish puts a file with this content at path, replacing what is there, so
// that a reader or a crash finds either the old file or the whole new one:
// temporary name, write, sync, rename, sync the directory.
func Publish(path string, data []byte, perm fs.FileMode) error {
	tmp := fmt.Sprintf("%s.tmp-%x", path, rand.Uint64()) // two goroutines may publish at once
	if err := WriteFile(tmp, data, perm); err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	if err := Rename(tmp, path); err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	return SyncDir(filepath.Dir(path))
}

// Note is Publish of what can be found out again: nothing is synced, and after a
// crash of the machine the file may be empty.
func Note(path string, data []byte, perm fs.FileMode) error {
	tmp := fmt.Sprintf("%s.tmp-%x", path, rand.Uint64())
	f, err := Create(tmp, perm)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err == nil {
		err = Rename(tmp, path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	return nil
}

// PublishRename moves a finished file or directory to its final name and makes
// the name durable. What it holds must be synced already.
func PublishRename(tmp, path string) error {
	if err := Rename(tmp, path); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// finish writes data, syncs and closes f.
func finish(f *File, data []byte) error {
	if len(data) > 0 {
		if _, err := f.Write(data); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	if err := f.Sync(); err != nil {
		return errors.Join(err, f.Close())
	}
	return f.Close()
}
