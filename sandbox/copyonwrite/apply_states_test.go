//go:build linux

package copyonwrite_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/oracle"
)

// base is a directory for one change on each side.
const base = `seq 10 >f; echo a >a; echo b >b; echo gone >del; mkdir -p dir/sub empty; echo x >dir/x; echo y >dir/y; echo s >dir/sub/s
ln -s a link; touch -d 2001-02-03 a b del dir/x dir/y dir/sub/s f dir/sub dir empty .`

// meeting is a change of the plan that meets one of the user.
type meeting struct {
	name   string
	plan   string
	user   string
	refuse []string // the conflicts; nil = it is applied, and then:
	want   string   // what the user's directory must become like; "" = as the plan's script makes it
	merge  bool
	old    string // another base
}

func meetings() []meeting {
	odd := "bad\xff\xfe"
	long := strings.Repeat("n", 255)
	return []meeting{
		{name: "nothing on the real side", plan: "echo p >a; rm del; echo n >new; mkdir -p more/deep; chmod 700 b"},
		{name: "changed and changed", plan: "echo p >a", user: "echo u >a", refuse: []string{"a"}},
		{name: "changed and deleted", plan: "echo p >a", user: "rm a", refuse: []string{"a"}},
		{name: "deleted and changed", plan: "rm a", user: "echo u >a", refuse: []string{"a"}},
		{name: "added and added", plan: "echo p >new", user: "echo u >new", refuse: []string{"new"}},
		{name: "added and a directory added", plan: "echo p >new", user: "mkdir new; echo u >new/u", refuse: []string{"new"}},
		{name: "a directory added and a file added", plan: "mkdir new; echo p >new/p", user: "echo u >new", refuse: []string{"new"}},
		{name: "changed and a link now", plan: "echo p >a", user: "ln -sf b a", refuse: []string{"a"}},
		{name: "changed and a directory now", plan: "echo p >a", user: "rm a; mkdir a", refuse: []string{"a"}},
		{name: "changed and a FIFO now", plan: "echo p >a", user: "rm a; mkfifo a", refuse: []string{"a"}},
		{name: "deleted and a FIFO now", plan: "rm a", user: "rm a; mkfifo a", refuse: []string{"a"}},
		{name: "a link now and changed", plan: "ln -sf b a", user: "echo u >a", refuse: []string{"a"}},
		{name: "a link changed and changed", plan: "ln -sfn b link", user: "ln -sfn f link", refuse: []string{"link"}},
		{name: "a link changed and made again", plan: "ln -sfn b link", user: "rm link; ln -s a link"},
		{name: "several at once", plan: "echo p >a; rm del; echo n >new", user: "echo u >a; echo u >del; echo u >new", refuse: []string{"a", "del", "new"}},

		{name: "the same change", plan: "echo p >a; echo p >b", user: "echo p >a", want: "echo p >b"},
		{name: "the same deletion", plan: "rm del; echo p >b", user: "rm del", want: "echo p >b"},
		{name: "the same addition", plan: "echo n >new; echo p >b", user: "echo n >new", want: "echo p >b"},
		{name: "the same link", plan: "ln -s a l2; echo p >b", user: "ln -s a l2", want: "echo p >b"},
		{name: "the same link changed", plan: "ln -sfn b link; echo p >b", user: "ln -sfn b link", want: "echo p >b"},
		{name: "the same directory", plan: "mkdir new; echo p >new/p", user: "mkdir new; echo u >new/u", want: "echo p >new/p"},
		{name: "the same mode", plan: "chmod 600 a; echo p >b", user: "chmod 600 a", want: "echo p >b"},
		{name: "the same everything", plan: "echo p >a; rm -r dir", user: "echo p >a; rm -r dir", want: "true"},

		{name: "only times on the real side", plan: "echo p >a; rm del; ln -sfn b link", user: "touch a del; touch -h link"},
		{name: "the same bytes written again", plan: "echo p >a", user: "echo a >a.new; mv a.new a"},
		{name: "an edit of the same size with its time put back", plan: "echo p >a", user: "echo u >a; touch -d 2001-02-03 a", refuse: []string{"a"}},
		{name: "other bits on the real side", plan: "echo p >a", user: "chmod 600 a", refuse: []string{"a"}},
		{name: "other bits on both", plan: "chmod 600 a", user: "chmod 640 a", refuse: []string{"a"}},
		{name: "bits of a directory on both", plan: "chmod 700 dir", user: "chmod 750 dir", refuse: []string{"dir"}},
		{name: "bits of a directory on the real side", plan: "echo p >dir/x", user: "chmod 750 dir"},
		{name: "an unrelated change", plan: "echo p >a", user: "echo u >b; rm del; echo u >dir/u"},

		{name: "a file came into a deleted directory", plan: "rm -r dir", user: "echo u >dir/u", refuse: []string{"dir/u"}},
		{name: "a file came deep into a deleted directory", plan: "rm -r dir", user: "echo u >dir/sub/u", refuse: []string{"dir/sub/u"}},
		{name: "a directory came into a deleted directory", plan: "rm -r dir", user: "mkdir dir/u", refuse: []string{"dir/u"}},
		{name: "a file came into a directory that is a file now", plan: "rm -r dir; echo p >dir", user: "echo u >dir/u", refuse: []string{"dir/u"}},
		{name: "a FIFO is in a deleted directory", old: "mkfifo dir/sub/fifo", plan: "rm -r dir; echo p >b", want: "rm -r dir/x dir/y dir/sub/s; echo p >b"},
		{name: "a FIFO is in a directory that is a file now", old: "mkfifo dir/fifo", plan: "rm -r dir; echo p >dir", refuse: []string{"dir/fifo"}},
		{name: "a FIFO came into a deleted directory", plan: "rm -r dir; echo p >b", user: "mkfifo dir/fifo", want: "rm -r dir/x dir/y dir/sub; echo p >b"},
		{name: "protected names are in deleted directories", old: "mkdir -p dir/.git dir/sub/node_modules; echo g >dir/.git/g; echo m >dir/sub/node_modules/m", plan: "rm -r dir; echo p >b",
			want: "rm -r dir/x dir/y dir/sub/s; echo p >b"},
		{name: "the directory is deleted on the real side", plan: "echo p >dir/new", user: "rm -r dir", refuse: []string{"dir/new"}},
		{name: "the directory above is deleted on the real side", plan: "echo p >dir/sub/new", user: "rm -r dir", refuse: []string{"dir/sub/new"}},
		{name: "the directory is a file on the real side", plan: "echo p >dir/new", user: "rm -r dir; echo u >dir", refuse: []string{"dir/new"}},
		{name: "the directory of a change is deleted", plan: "echo p >dir/x", user: "rm -r dir", refuse: []string{"dir/x"}},

		{name: "two names are swapped", plan: "mv a t; mv b a; mv t b"},
		{name: "two names are swapped and one is changed", plan: "mv a t; mv b a; mv t b", user: "echo u >b", refuse: []string{"b"}},
		{name: "another case", plan: "mv a A; mv dir Dir"},
		{name: "a rename onto what came", plan: "mv a new", user: "echo u >new", refuse: []string{"new"}},
		{name: "file to directory", plan: "rm a; mkdir a; echo p >a/p"},
		{name: "file to link", plan: "ln -sf b a"},
		{name: "directory to file", plan: "rm -r dir; echo p >dir"},
		{name: "directory to link", plan: "rm -r dir; ln -s a dir"},
		{name: "link to file", plan: "rm link; echo p >link"},
		{name: "link to directory", plan: "rm link; mkdir link; echo p >link/p"},
		{name: "everything to something else", plan: "rm -r dir link a b; ln -s f dir; mkdir -p link a/b; echo p >link/p; echo p >b"},
		{name: "empty directories", plan: "mkdir -p e1 e2/e3; rmdir empty; chmod 700 e1"},
		{name: "an empty directory that is no longer", plan: "rmdir empty; echo p >b", user: "echo u >empty/u", refuse: []string{"empty/u"}},
		{name: "long names", old: "echo l >" + long, plan: "echo p >" + long + "; mkdir " + long[1:] + "; echo p >" + long[1:] + "/" + long},
		{name: "deep paths", plan: "d=.; for i in $(seq 15); do d=$d/" + long[:200] + "; mkdir $d; echo p >$d/f; done"},
		{name: "names that are no text", old: "echo o >$'" + odd + "'", plan: "echo p >$'" + odd + "'; mkdir $'" + odd + "d'; echo p >$'" + odd + "d/\\n'"},
		{name: "a name that is no text, changed on both", old: "echo o >$'" + odd + "'", plan: "echo p >$'" + odd + "'", user: "echo u >$'" + odd + "'", refuse: []string{odd}},
		{name: "a name that begins like an option", plan: "echo p >./-rf; echo p >'*'"},

		{name: "texts merge", merge: true, plan: "sed -i s/^1$/one/ f", user: "sed -i s/^10$/ten/ f"},
		{name: "texts merge, with other bits there", merge: true, plan: "sed -i s/^1$/one/ f", user: "sed -i s/^10$/ten/ f; chmod 600 f"},
		{name: "texts merge, with other bits here", merge: true, plan: "sed -i s/^1$/one/ f; chmod 755 f", user: "sed -i s/^10$/ten/ f"},
		{name: "texts merge, with the same lines", merge: true, plan: "sed -i s/^1$/one/ f", user: "sed -i 's/^1$/one/; s/^10$/ten/' f", want: "true"},
		{name: "the same lines of texts", merge: true, plan: "sed -i s/^1$/one/ f", user: "sed -i s/^1$/uno/ f", refuse: []string{"f"}},
		{name: "texts that would merge, unasked", plan: "sed -i s/^1$/one/ f", user: "sed -i s/^10$/ten/ f", refuse: []string{"f"}},
		{name: "a text deleted there", merge: true, plan: "sed -i s/^1$/one/ f", user: "rm f", refuse: []string{"f"}},
		{name: "what is no text", merge: true, old: `printf 'a\0b\n1\n2\n3\n4\n5\n6\n' >bin`, plan: `printf 'A\0b\n1\n2\n3\n4\n5\n6\n' >bin`, user: `printf 'a\0b\n1\n2\n3\n4\n5\nsix\n' >bin`, refuse: []string{"bin"}},
		{name: "one merges and one does not", merge: true, plan: "sed -i s/^1$/one/ f; echo p >a", user: "sed -i s/^10$/ten/ f; echo u >a", refuse: []string{"a"}},
	}
}

func TestApplyMeetsTheUsersChanges(t *testing.T) {
	for _, c := range meetings() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := created(t, base+"\n"+c.old, c.plan)
			b.user(c.user)
			if c.refuse != nil {
				for _, p := range b.mustRefuse(c.merge, c.refuse...).Conflicts {
					if !strings.Contains(p.Reason, "the plan") || !strings.Contains(p.Reason, "real side") {
						t.Errorf("%q names not both sides: %q", p.Path, p.Reason)
					}
				}
				return
			}
			before := state(t, b.real)
			like := filepath.Join(b.dir, "like")
			sh(t, b.dir, "cp -a real like")
			sh(t, like, either(c.want, c.plan))
			want := oracle.Digest(t, like)
			res := b.mustApply(c.merge)
			if res.State != agents.ApplyApplied && c.want != "true" {
				t.Errorf("state %s", res.State)
			}
			same(t, "apply", want, oracle.Digest(t, b.real))
			if res.State == agents.ApplyApplied {
				b.mustUndo()
			}
			same(t, "undo", before, state(t, b.real))
		})
	}
}

func either(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// TestApplyFollowsNoLinkOut: where the user put a link in the place of a
// directory, nothing is written or deleted behind it, and the preview says so.
func TestApplyFollowsNoLinkOut(t *testing.T) {
	for name, plan := range map[string]string{
		"add": "echo p >dir/new", "change": "echo p >dir/x", "delete": "rm dir/x", "bits": "chmod 600 dir/x",
		"add deep": "echo p >dir/sub/new", "delete deep": "rm dir/sub/s", "make a directory": "mkdir dir/sub/d", "delete all": "rm -r dir",
	} {
		for where, script := range map[string]string{"same files": "mv dir ../outside; ln -s ../outside dir", "a copy": "cp -a dir ../outside; rm -r dir; ln -s $PWD/../outside dir"} {
			t.Run(name+", "+where, func(t *testing.T) {
				t.Parallel()
				b := created(t, base, plan)
				b.user(script)
				outside, before := state(t, filepath.Join(b.dir, "outside")), state(t, b.real)
				res, err := b.apply(false)
				if err == nil || res.State != agents.ApplyConflict || len(res.Conflicts) == 0 {
					t.Errorf("apply: %+v, %v, want a conflict", res, err)
				}
				same(t, "apply", before, state(t, b.real))
				same(t, "apply", outside, state(t, filepath.Join(b.dir, "outside")))
			})
		}
	}
}

// TestApplyTellsOfProtectedNames: they stay in the sandbox.
func TestApplyTellsOfProtectedNames(t *testing.T) {
	b := created(t, base+"\nmkdir -p dir/.git; echo g >dir/.git/g", "echo p >dir/.git/g; mkdir -p new/node_modules; echo m >new/node_modules/m; echo p >new/p")
	var left []string
	for _, p := range b.seal().LeftOut {
		left = append(left, p.Path)
	}
	if got := strings.Join(left, " "); got != "dir/.git new/node_modules" {
		t.Errorf("left out %q", got)
	}
	b.mustApply(false)
	if got := read(t, b.real+"/dir/.git/g"); got != "g\n" {
		t.Errorf(".git/g = %q", got)
	}
	if _, err := os.Lstat(b.real + "/new/node_modules"); err == nil {
		t.Error("node_modules came home")
	}
}

// TestUndoRefusesWhatChangedSince and then changes nothing.
func TestUndoRefusesWhatChangedSince(t *testing.T) {
	for name, script := range map[string]string{
		"changed": "echo u >a", "same size and time": "echo u >a; touch -d 2001-02-03 a", "deleted": "rm a", "came back": "echo gone >del", "in an added directory": "echo u >more/u",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := created(t, base, "echo p >a; touch -d 2001-02-03 a; rm del; mkdir more")
			b.mustApply(false)
			b.user(script)
			before := state(t, b.real)
			for what, err := range map[string]error{
				"can undo": b.strategy.CanUndo(t.Context(), b.ws, b.journal), "undo": b.strategy.Undo(t.Context(), b.ws, b.journal),
			} {
				if err == nil {
					t.Errorf("%s: no error", what)
				}
			}
			same(t, "a refused undo", before, state(t, b.real))
		})
	}
}
