package builtin

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha1" // git's own name for content; nothing secret depends on it
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/bluekeyes/go-gitdiff/gitdiff"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/tool"
)

type filePatchInput struct {
	Patch string `json:"patch"`
}

// filePatchOutput is the answer of file-patch.
type filePatchOutput struct {
	Files []patchedFile `json:"files"`
}

// patchedFile is what a patch did to one file.
type patchedFile struct {
	Path    string `json:"path"`
	OldPath string `json:"old_path,omitempty"` // renamed and copied: where it was
	Change  string `json:"change"`             // added, modified, deleted, renamed, copied, mode
	Shifted bool   `json:"shifted"`            // a hunk fitted at another line than it says
}

func filePatch() tool.Tool {
	return define("file-patch",
		"Apply a patch as git diff or diff -u write it: changes, new and deleted files, renames, copies, modes, symbolic links and binary content. Hunks may have moved; their lines must fit exactly. All of it or nothing.",
		writesFiles(), `{"patch": {"type": "string", "minLength": 1}}`, []string{"patch"}, runFilePatch)
}

func runFilePatch(ctx context.Context, env tool.Env, in filePatchInput) (tool.Result, error) {
	p, err := enter(env)
	if err != nil {
		return tool.Result{}, err
	}
	defer p.leave()
	files, err := parsePatch(in.Patch)
	if err != nil {
		return tool.Result{}, err
	}
	x := &patching{p: p, disk: map[string]*content{}, plan: map[string]*content{}, freed: map[string]bool{}}
	if err := x.prepare(ctx, files); err != nil {
		return tool.Result{}, err
	}
	err = x.write()
	res := tool.Result{Paths: x.touched}
	if err != nil {
		return res, errors.Join(err, x.takeBack())
	}
	res.Output = filePatchOutput{Files: x.done}
	return res, nil
}

// parsePatch reads a patch. Names in the style of diff -u may have the
// prefixes a/ and b/, which only git's own style must have.
func parsePatch(patch string) ([]*gitdiff.File, error) {
	if !strings.HasSuffix(patch, "\n") {
		patch += "\n"
	}
	if strings.Contains(patch, "\nGIT binary patch\n") {
		patch += "\n" // binary content ends with an empty line, which is lost easily
	}
	files, _, err := gitdiff.Parse(strings.NewReader(patch))
	if err != nil {
		return nil, invalid("patch: %v", err)
	}
	if len(files) == 0 {
		return nil, agents.WithHint(invalid("patch has no changes"), "write it as git diff does")
	}
	if strings.HasPrefix(patch, "diff --git ") || strings.Contains(patch, "\ndiff --git ") {
		return files, nil
	}
	for _, f := range files {
		f.OldName, f.NewName = withoutPrefix(f.OldName), withoutPrefix(f.NewName)
	}
	return files, nil
}

func withoutPrefix(name string) string {
	if strings.HasPrefix(name, "a/") || strings.HasPrefix(name, "b/") {
		return name[2:]
	}
	return name
}

// content is a file or a symbolic link.
type content struct {
	data []byte // or the target of a link
	link bool
	perm fs.FileMode
}

// patching is one run of file-patch: everything is worked out in memory
// first, then written.
type patching struct {
	p       *place
	disk    map[string]*content // what was there; nil = nothing
	plan    map[string]*content // what will be there; nil = nothing
	freed   map[string]bool     // names that the patch deletes or renames away, wherever it says so
	done    []patchedFile
	touched []string
	undo    []func() error
}

// prepare works everything out and checks it.
func (x *patching) prepare(ctx context.Context, files []*gitdiff.File) error {
	for _, f := range files {
		if f.IsDelete || f.IsRename {
			x.freed[path.Clean(f.OldName)] = true
		}
	}
	for _, f := range files {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := x.file(f); err != nil {
			return err
		}
	}
	for _, rel := range sortedKeys(x.plan) {
		if err := x.fits(rel); err != nil {
			return err
		}
	}
	return nil
}

// file works one file of the patch out.
func (x *patching) file(f *gitdiff.File) error {
	from, to, err := x.names(f)
	if err != nil {
		return err
	}
	old, err := x.preimage(f, from)
	if err != nil {
		return err
	}
	if from != to {
		if err := x.vacant(to); err != nil {
			return err
		}
	}
	now, shifted, err := change(f, old, shown(from, to))
	if err != nil {
		return err
	}
	if f.IsRename || f.IsDelete {
		x.vacate(f, from)
	}
	if now != nil {
		if now.link {
			if err := checkTarget(to, string(now.data)); err != nil {
				return err
			}
		}
		x.plan[to] = now
	}
	x.done = append(x.done, describePatched(f, from, to, shifted))
	return nil
}

// vacate plans that a name is free, unless another file has taken it already:
// renames speak of the names from before the patch.
func (x *patching) vacate(f *gitdiff.File, from string) {
	if f.IsDelete || x.plan[from] == nil {
		x.plan[from] = nil
	}
}

// names checks the two names of a file; one that is not there is "".
func (x *patching) names(f *gitdiff.File) (from, to string, err error) {
	if !f.IsNew {
		if from, err = x.name(f.OldName); err != nil {
			return "", "", err
		}
	}
	if !f.IsDelete {
		if to, err = x.name(f.NewName); err != nil {
			return "", "", err
		}
	}
	return from, to, nil
}

// name checks a name of the patch, which is raw and leads through no link.
func (x *patching) name(raw string) (string, error) {
	if strings.HasPrefix(raw, "/") {
		return "", invalid("patch: %q is not relative", agents.EscapePath(raw))
	}
	rel, err := x.p.root.Place(raw)
	if err != nil {
		return "", outside(err)
	}
	s := spot{given: agents.EscapePath(raw), rel: rel}
	if err := writable(s); err != nil {
		return "", err
	}
	if rel != path.Clean(raw) {
		return "", invalid("patch: %s lies beyond a symbolic link", s.given)
	}
	return rel, nil
}

// preimage is what a file of the patch starts from. A rename or copy speaks of
// what was there before the patch, all else of what the patch made of it.
func (x *patching) preimage(f *gitdiff.File, from string) (*content, error) {
	if f.IsNew {
		return nil, nil
	}
	old, planned := x.plan[from]
	if !planned || f.IsRename || f.IsCopy {
		var err error
		if old, err = x.onDisk(from); err != nil {
			return nil, err
		}
	}
	switch kind, err := kindOfMode(int64(f.OldMode)); {
	case err != nil:
		return nil, err
	case old == nil:
		return nil, failed("patch does not fit: %s does not exist", agents.EscapePath(from))
	case kind != kindUnsaid && (kind == kindLink) != old.link:
		return nil, failed("patch does not fit: %s is of another type", agents.EscapePath(from))
	}
	return old, nil
}

// vacant reports a name that a new, renamed or copied file cannot get.
func (x *patching) vacant(rel string) error {
	if rel == "" {
		return nil
	}
	planned, known := x.plan[rel]
	if !known {
		var err error
		if planned, err = x.onDisk(rel); err != nil {
			return err
		}
		if x.freed[rel] {
			return nil
		}
	}
	if planned != nil {
		return failed("patch does not fit: %s exists already", agents.EscapePath(rel))
	}
	return nil
}

// onDisk reads what is at a name; a directory counts as nothing here, and fits
// looks at it later.
func (x *patching) onDisk(rel string) (*content, error) {
	if c, known := x.disk[rel]; known {
		return c, nil
	}
	c, err := x.read(rel)
	if err == nil {
		x.disk[rel] = c
	}
	return c, err
}

func (x *patching) read(rel string) (*content, error) {
	s := spot{given: agents.EscapePath(rel), rel: rel}
	fi, err := x.p.root.Lstat(rel)
	switch {
	case absent(err):
		return nil, nil
	case err != nil && !underFile(x.p, rel):
		return nil, err
	case err != nil:
		return nil, nil
	case fi.IsDir():
		return nil, nil
	case fi.Mode()&fs.ModeSymlink != 0:
		target, err := x.p.root.Readlink(rel)
		return &content{data: []byte(target), link: true}, err
	}
	data, err := x.p.load(s)
	return &content{data: data, perm: fi.Mode().Perm()}, err
}

// underFile reports whether something above rel is no directory, so that
// nothing can be at rel.
func underFile(p *place, rel string) bool {
	for dir := path.Dir(rel); dir != "."; dir = path.Dir(dir) {
		if fi, err := p.root.Lstat(dir); err == nil {
			return !fi.IsDir()
		}
	}
	return false
}

// fits checks that a planned file has its place: directories above it, and no
// directory where it goes that keeps something.
func (x *patching) fits(rel string) error {
	if x.plan[rel] == nil {
		return nil
	}
	for dir := path.Dir(rel); dir != "."; dir = path.Dir(dir) {
		planned, known := x.plan[dir]
		if !known {
			var err error
			if planned, err = x.onDisk(dir); err != nil {
				return err
			}
		}
		if planned != nil {
			return failed("patch does not fit: %s is not a directory", agents.EscapePath(dir))
		}
	}
	fi, err := x.p.root.Lstat(rel)
	if err != nil || !fi.IsDir() {
		return nil
	}
	return x.p.walk(rel, func(at string, d fs.DirEntry) (bool, error) {
		if c, known := x.plan[at]; !d.IsDir() && (!known || c != nil) {
			return false, failed("patch does not fit: %s is a directory", agents.EscapePath(rel))
		}
		return true, nil
	})
}

// write makes the plan true: first what goes, then what comes.
func (x *patching) write() error {
	names := sortedKeys(x.plan)
	for _, rel := range slices.Backward(names) {
		if x.plan[rel] == nil {
			if err := x.remove(rel); err != nil {
				return err
			}
		}
	}
	for _, rel := range names {
		if c := x.plan[rel]; c != nil {
			if err := x.put(rel, c); err != nil {
				return err
			}
		}
	}
	return nil
}

// remove removes a file, and as git does the directories that it leaves empty.
func (x *patching) remove(rel string) error {
	old, err := x.onDisk(rel)
	if err != nil || old == nil {
		return err
	}
	if err := x.drop(rel, old); err != nil {
		return err
	}
	for dir := path.Dir(rel); dir != "."; dir = path.Dir(dir) {
		fi, err := x.p.root.Lstat(dir)
		if err != nil {
			return err
		}
		entries, err := x.p.root.List(dir)
		if err != nil {
			return err
		}
		if len(entries) > 0 {
			return nil
		}
		if err := x.p.root.Remove(dir, false); err != nil {
			return err
		}
		x.touched = append(x.touched, dir)
		x.undo = append(x.undo, func() error {
			return errors.Join(x.p.root.MkdirAll(dir, 0o755), x.p.root.Chmod(dir, fi.Mode().Perm()))
		})
	}
	return nil
}

// drop removes one file or link.
func (x *patching) drop(rel string, old *content) error {
	x.touched = append(x.touched, rel)
	if err := x.p.root.Remove(rel, false); err != nil {
		return err
	}
	x.undo = append(x.undo, func() error { return x.p.make(rel, old) })
	return nil
}

// put writes one file or link.
func (x *patching) put(rel string, c *content) error {
	old, err := x.onDisk(rel)
	if err != nil {
		return err
	}
	if _, gone := x.p.root.Lstat(rel); absent(gone) {
		old = nil // renamed away or deleted before
	}
	if old != nil && (old.link || c.link) {
		if err := x.drop(rel, old); err != nil {
			return err
		}
		old = nil
	}
	if err := x.clear(rel); err != nil {
		return err
	}
	made, err := x.p.makeDir(path.Dir(rel))
	x.touched = append(x.touched, made...)
	for _, dir := range made {
		x.undo = append(x.undo, func() error { return x.p.root.Remove(dir, false) })
	}
	if err != nil {
		return err
	}
	x.touched = append(x.touched, rel)
	if old == nil {
		x.undo = append(x.undo, func() error { return gone(x.p.root.Remove(rel, false)) })
	} else {
		x.undo = append(x.undo, func() error { return x.p.make(rel, old) })
	}
	return x.p.make(rel, c)
}

// clear removes an empty directory, and empty ones in it, that is in the way.
func (x *patching) clear(rel string) error {
	fi, err := x.p.root.Lstat(rel)
	if err != nil || !fi.IsDir() {
		return nil
	}
	dirs := []string{rel}
	err = x.p.walk(rel, func(at string, _ fs.DirEntry) (bool, error) {
		dirs = append(dirs, at)
		return true, nil
	})
	if err != nil {
		return err
	}
	for _, dir := range slices.Backward(dirs) {
		fi, err := x.p.root.Lstat(dir)
		if err != nil {
			return err
		}
		x.touched = append(x.touched, dir)
		if err := x.p.root.Remove(dir, false); err != nil {
			return err
		}
		x.undo = append(x.undo, func() error {
			return errors.Join(x.p.root.MkdirAll(dir, 0o755), x.p.root.Chmod(dir, fi.Mode().Perm()))
		})
	}
	return nil
}

// make puts content at a name where nothing or a regular file is.
func (p *place) make(rel string, c *content) error {
	if c.link {
		return p.root.Symlink(string(c.data), rel)
	}
	if err := p.root.WriteFile(rel, c.data, c.perm); err != nil {
		return err
	}
	return p.root.Chmod(rel, c.perm)
}

// takeBack undoes what a failed write has done.
func (x *patching) takeBack() error {
	var errs []error
	for _, back := range slices.Backward(x.undo) {
		errs = append(errs, back())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("take the patch back: %w", err)
	}
	return nil
}

// gone takes a thing that is not there for removed.
func gone(err error) error {
	if absent(err) {
		return nil
	}
	return err
}

// change is what a file of the patch makes of its old content; nil = it goes.
func change(f *gitdiff.File, old *content, name string) (now *content, shifted bool, err error) {
	base := content{perm: 0o644}
	if old != nil {
		base = *old
	}
	kind, err := kindOfMode(int64(f.NewMode))
	switch {
	case err != nil:
		return nil, false, err
	case f.IsBinary && f.BinaryFragment == nil:
		return nil, false, agents.WithHint(invalid("patch: %s is binary and its content is not in the patch", name), "make the patch with git diff --binary")
	case old != nil && kind != kindUnsaid && (kind == kindLink) != old.link:
		return nil, false, invalid("patch: %s changes its type; delete it and make it new", name)
	}
	data, shifted, err := changedData(f, base.data, name)
	if err != nil {
		return nil, false, err
	}
	if f.IsDelete {
		if len(data) > 0 {
			return nil, false, failed("patch does not fit: %s has more than the patch deletes", name)
		}
		return nil, shifted, nil
	}
	base.data = data
	switch kind {
	case kindLink:
		base.link = true
	case kindProgram:
		base.perm |= base.perm & 0o444 >> 2
	case kindPlain:
		base.perm &^= 0o111
	}
	return &base, shifted, nil
}

// changedData applies the text or binary part.
func changedData(f *gitdiff.File, data []byte, name string) ([]byte, bool, error) {
	if f.BinaryFragment == nil {
		return applyText(f.TextFragments, data, name)
	}
	if !named(data, f.OldOIDPrefix) && !f.IsNew {
		return nil, false, failed("patch does not fit: %s is not the file that the binary patch was made for", name)
	}
	var out bytes.Buffer
	if err := gitdiff.Apply(&out, bytes.NewReader(data), f, gitdiff.WithMaxBinaryFragmentBytes(loadCap)); err != nil {
		return nil, false, failed("patch does not fit: %s: %v", name, err)
	}
	if !f.IsDelete && !named(out.Bytes(), f.NewOIDPrefix) {
		return nil, false, failed("patch does not fit: %s does not become what the patch says", name)
	}
	return out.Bytes(), false, nil
}

// named reports whether git calls this content so. An empty name fits all.
func named(data []byte, prefix string) bool {
	header := fmt.Appendf(nil, "blob %d\x00", len(data))
	short := sha1.Sum(append(header, data...))
	long := sha256.Sum256(append(header, data...))
	return strings.HasPrefix(hex.EncodeToString(short[:]), prefix) || strings.HasPrefix(hex.EncodeToString(long[:]), prefix)
}

// applyText applies hunks. Each fits at the place nearest to where it says
// that has exactly its lines; a hunk without old lines fits where it says.
func applyText(frags []*gitdiff.TextFragment, data []byte, name string) (out []byte, shifted bool, err error) {
	frags = slices.Clone(frags)
	slices.SortStableFunc(frags, func(a, b *gitdiff.TextFragment) int { return cmp.Compare(a.OldPosition, b.OldPosition) })
	lines := splitLines(data)
	used, shift := 0, 0
	for i, frag := range frags {
		old := oldLines(frag)
		want := int(frag.OldPosition) + shift
		if len(old) > 0 {
			want--
		}
		at, ok := nearest(lines, old, used, want)
		if !ok {
			return nil, false, agents.WithHint(failed("patch does not fit: %s: hunk %d (line %d) is not there", name, i+1, frag.OldPosition),
				"read the file again and make the patch from what is there")
		}
		shifted = shifted || at != want
		shift += at - want
		out = append(out, bytes.Join(lines[used:at], nil)...)
		for _, l := range frag.Lines {
			if l.Op != gitdiff.OpDelete {
				out = append(out, l.Line...)
			}
		}
		used = at + len(old)
	}
	return append(out, bytes.Join(lines[used:], nil)...), shifted, nil
}

// nearest finds where old is in lines, not before from, nearest to want.
func nearest(lines [][]byte, old []string, from, want int) (int, bool) {
	last := len(lines) - len(old)
	fits := func(at int) bool {
		if at < from || at > last {
			return false
		}
		for i, l := range old {
			if string(lines[at+i]) != l {
				return false
			}
		}
		return true
	}
	if fits(want) {
		return want, true
	}
	if len(old) == 0 || last < from {
		return 0, false
	}
	want = min(max(want, from), last) // a patch may name any line
	if fits(want) {
		return want, true
	}
	for d := 1; want-d >= from || want+d <= last; d++ {
		if fits(want - d) {
			return want - d, true
		}
		if fits(want + d) {
			return want + d, true
		}
	}
	return 0, false
}

func splitLines(data []byte) [][]byte {
	lines := bytes.SplitAfter(data, []byte("\n"))
	if n := len(lines); n > 0 && len(lines[n-1]) == 0 {
		lines = lines[:n-1]
	}
	return lines
}

func oldLines(frag *gitdiff.TextFragment) []string {
	var old []string
	for _, l := range frag.Lines {
		if l.Op != gitdiff.OpAdd {
			old = append(old, l.Line)
		}
	}
	return old
}

// checkTarget refuses a new link that leads out of the resource.
func checkTarget(rel, target string) error {
	bad := target == "" || strings.ContainsRune(target, 0) || strings.HasPrefix(target, "/")
	if to := path.Join(path.Dir(rel), target); to == ".." || strings.HasPrefix(to, "../") || inGit(to) {
		bad = true
	}
	if bad {
		return invalid("patch: link %s leads out of the resource or into .git: %q", agents.EscapePath(rel), agents.EscapePath(target))
	}
	return nil
}

// fileKind is what a git mode says.
type fileKind int

const (
	kindUnsaid fileKind = iota
	kindPlain
	kindProgram
	kindLink
)

// kindOfMode reads a mode as git writes it.
func kindOfMode(mode int64) (fileKind, error) {
	switch {
	case mode == 0:
		return kindUnsaid, nil
	case mode == 0o120000:
		return kindLink, nil
	case mode&0o170000 == 0o100000 && mode&0o111 != 0:
		return kindProgram, nil
	case mode&0o170000 == 0o100000:
		return kindPlain, nil
	case mode == 0o160000:
		return 0, invalid("patch: submodules are not changed by file tools")
	}
	return 0, invalid("patch: mode %o is not known", mode)
}

func describePatched(f *gitdiff.File, from, to string, shifted bool) patchedFile {
	d := patchedFile{Path: agents.EscapePath(to), Change: "modified", Shifted: shifted}
	switch {
	case f.IsNew:
		d.Change = "added"
	case f.IsDelete:
		d.Path, d.Change = agents.EscapePath(from), "deleted"
	case f.IsRename:
		d.OldPath, d.Change = agents.EscapePath(from), "renamed"
	case f.IsCopy:
		d.OldPath, d.Change = agents.EscapePath(from), "copied"
	case len(f.TextFragments) == 0 && f.BinaryFragment == nil:
		d.Change = "mode"
	}
	return d
}

// shown is the name that messages use.
func shown(from, to string) string {
	if to == "" {
		to = from
	}
	return agents.EscapePath(to)
}

func sortedKeys(m map[string]*content) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
