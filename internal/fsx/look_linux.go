package fsx

import (
	"errors"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// Look returns what lies at path, following no link at its end; nothing there,
// or no directory above it, is KindNone. Path is left empty.
func Look(path string) (SurveyEntry, error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		if absent(err) {
			return SurveyEntry{}, nil
		}
		return SurveyEntry{}, &os.PathError{Op: "lstat", Path: path, Err: err}
	}
	e := surveyEntry("", &st)
	if e.Kind == KindSymlink {
		buf := make([]byte, unix.PathMax)
		n, err := unix.Readlink(path, buf)
		if err != nil {
			return SurveyEntry{}, &os.PathError{Op: "readlink", Path: path, Err: err}
		}
		e.Target = slices.Clone(buf[:n])
	}
	return e, nil
}

// SameMount reports whether two paths are on one mount of one file system, so
// that files can be renamed between them.
func SameMount(a, b string) bool {
	ia, ea := mountOf(a)
	ib, eb := mountOf(b)
	return ea == nil && eb == nil && ia == ib
}

// mountOf returns the device and the mount of what lies at path.
func mountOf(path string) ([2]uint64, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return [2]uint64{}, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return [2]uint64{}, err
	}
	return [2]uint64{uint64(st.Dev), mountID(fd)}, nil
}

// Writable reports whether this user may make files in the directory path.
func Writable(path string) bool {
	return unix.Faccessat(unix.AT_FDCWD, path, unix.W_OK|unix.X_OK, unix.AT_EACCESS) == nil && !readOnly(path)
}

func readOnly(path string) bool {
	var st unix.Statfs_t
	return errors.Is(unix.Statfs(path, &st), nil) && st.Flags&unix.ST_RDONLY != 0
}
