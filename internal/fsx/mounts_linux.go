package fsx

import (
	"bufio"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// MountsBelow lists what is mounted in the directory dir, at dir itself too,
// as far as this process sees it.
func MountsBelow(dir string) ([]string, error) {
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil, err
	}
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, nil // without it, each directory is looked at when it comes
	}
	defer f.Close()
	var found []string
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 5 {
			continue
		}
		if at := unescapeMount(fields[4]); at == real || strings.HasPrefix(at, real+"/") {
			found = append(found, at)
		}
	}
	return found, lines.Err()
}

// unescapeMount undoes the kernel's octal escapes.
func unescapeMount(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+4 <= len(s) {
			if c, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(c))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// mountIn identifies the mount that an entry of a directory is on; 0 where the
// kernel does not say.
func mountIn(dir *os.File, name string) uint64 {
	var st unix.Statx_t
	if unix.Statx(int(dir.Fd()), name, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT, unix.STATX_MNT_ID, &st) != nil {
		return 0
	}
	return st.Mnt_id
}
