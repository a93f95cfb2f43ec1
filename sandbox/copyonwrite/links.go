package copyonwrite

import (
	"os"
	"path/filepath"
	"strings"
)

// A link that leads into the resource by way of its outside, as an absolute
// one does, would lead from the copy to the original. In the copy it is a
// relative one to the same place, and the resource keeps its own: what the
// plan does not change does not come home.

// reroot returns what the copy of a link leads to: path is where it is below
// dir, which is the resource.
func reroot(dir string, top os.FileInfo, path, target string) string {
	below, leads := leadsBack(dir, top, path, target)
	if !leads {
		return target
	}
	up := strings.Repeat("../", strings.Count(path, "/"))
	if below == "" {
		if up == "" {
			return "."
		}
		return strings.TrimSuffix(up, "/")
	}
	return up + below
}

// leadsBack finds the place below the resource that a link leads to, if it
// leaves the resource on the way. Directories are told by their identity, so
// that other names of the resource count too.
func leadsBack(dir string, top os.FileInfo, path, target string) (below string, leads bool) {
	full := target
	if !strings.HasPrefix(target, "/") {
		if !leaves(filepath.Dir(path), target) {
			return "", false
		}
		full = dir + "/" + filepath.ToSlash(filepath.Dir(path)) + "/" + target
	}
	for end := len(full); end > 0; end = strings.LastIndexByte(full[:end], '/') {
		fi, err := os.Stat(full[:end])
		if err != nil || !os.SameFile(fi, top) {
			continue
		}
		rest := strings.Trim(full[end:], "/")
		if leaves(".", rest) {
			return "", false
		}
		return rest, true
	}
	return "", false
}

// leaves reports whether a relative target goes above the top on its way from
// the directory at.
func leaves(at, target string) bool {
	depth := 0
	if at != "." {
		depth = strings.Count(filepath.ToSlash(at), "/") + 1
	}
	for _, name := range strings.Split(target, "/") {
		switch name {
		case "", ".":
		case "..":
			if depth--; depth < 0 {
				return true
			}
		default:
			depth++
		}
	}
	return false
}

// homeTarget returns what a link that the plan made leads to at home: one into
// the sandbox itself leads into the resource.
func (b *box) homeTarget(target string) string {
	rest, ok := strings.CutPrefix(target, b.rec.Path)
	if !ok || rest != "" && rest[0] != '/' {
		return target
	}
	return b.rec.Dir + rest
}
