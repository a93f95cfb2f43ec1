package agents_test

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// docs/SPEC.md has a row for every sentence of the specification and
// docs/CASES.md one for every case. These tests make sure that what a row
// names is there: a document that promises a test which nobody wrote, or which
// was renamed since, fails.

const (
	scriptDir = "internal/cli/testdata/script"
	suiteDir  = "sandbox/sandboxtest" // its subtests belong to every strategy's tests
)

func TestSpecIsAnswered(t *testing.T) {
	proofs := newProofs(t)
	for _, r := range readTable(t, "docs/SPEC.md", `^(ADR|CP|GW|SB)-\d+$`, []string{"id", "sentence", "status", "answered in", "proof", "reason"}) {
		r.want("sentence", r.get("sentence") != "")
		switch r.get("status") {
		case "answered":
			r.want("answered in", r.get("answered in") != "")
			r.want("proof", r.get("proof") != "")
		case "deviation":
			r.want("answered in", r.get("answered in") != "")
			r.want("reason", r.get("reason") != "")
		case "later":
			r.want("reason", r.get("reason") != "")
		default:
			r.fail("status %q: want answered, deviation or later", r.get("status"))
		}
		for _, path := range r.list("answered in", ", ") {
			if _, err := os.Stat(filepath.FromSlash(path)); err != nil {
				r.fail("answered in %s: %v", path, err)
			}
		}
		proofs.check(r)
	}
}

func TestCasesAreIndexed(t *testing.T) {
	proofs := newProofs(t)
	known := map[string]bool{}
	for _, r := range readTable(t, "docs/CASES.md", `^[BU]\d{3}$`, []string{"id", "case", "status", "proof", "reason"}) {
		known[r.get("id")] = true
		r.want("case", r.get("case") != "")
		switch r.get("status") {
		case "answered":
			r.want("proof", r.get("proof") != "")
		case "open", "later", "not built":
			r.want("reason", r.get("reason") != "")
		default:
			r.fail("status %q: want answered, open, later or not built", r.get("status"))
		}
		proofs.check(r)
	}
	for id, where := range proofs.cases() {
		if !known[id] {
			t.Errorf("%s names the case %s, which docs/CASES.md does not have", where, id)
		}
	}
}

// tableRow is one row of a document's tables.
type tableRow struct {
	t     *testing.T
	where string // file:line
	cells map[string]string
}

func (r tableRow) get(column string) string { return r.cells[column] }

// list splits a cell; backquotes around an item are for readers only.
func (r tableRow) list(column, separator string) (out []string) {
	for _, item := range strings.Split(r.get(column), separator) {
		if item = strings.Trim(strings.TrimSpace(item), "`"); item != "" {
			out = append(out, item)
		}
	}
	return out
}

func (r tableRow) want(column string, ok bool) {
	r.t.Helper()
	if !ok {
		r.fail("no %s, which a row with status %q needs", column, r.get("status"))
	}
}

func (r tableRow) fail(format string, args ...any) {
	r.t.Helper()
	r.t.Errorf("%s: %s: %s", r.where, r.get("id"), fmt.Sprintf(format, args...))
}

// readTable reads the rows of all tables of a document that have exactly these
// columns. Ids have the form of pattern, and none is there twice.
func readTable(t *testing.T, file, pattern string, columns []string) (rows []tableRow) {
	t.Helper()
	data, err := os.ReadFile(filepath.FromSlash(file))
	if err != nil {
		t.Fatal(err)
	}
	id, seen, inside := regexp.MustCompile(pattern), map[string]bool{}, false
	for i, line := range strings.Split(string(data), "\n") {
		where := fmt.Sprintf("%s:%d", file, i+1)
		cells, ok := splitRow(line)
		switch {
		case !ok:
			inside = false
			continue
		case slices.Equal(cells, columns):
			inside = true
			continue
		case !inside || strings.Trim(line, "|- ") == "":
			continue
		case len(cells) != len(columns):
			t.Errorf("%s: %d cells, want %d: %s", where, len(cells), len(columns), line)
			continue
		}
		r := tableRow{t: t, where: where, cells: map[string]string{}}
		for n, name := range columns {
			r.cells[name] = cells[n]
		}
		if !id.MatchString(r.get("id")) {
			r.fail("this is no id")
		}
		if seen[r.get("id")] {
			r.fail("the id is there twice")
		}
		seen[r.get("id")] = true
		rows = append(rows, r)
	}
	if len(rows) == 0 {
		t.Fatalf("%s has no table with the columns %q", file, columns)
	}
	return rows
}

func splitRow(line string) (cells []string, ok bool) {
	line = strings.TrimSpace(line)
	if len(line) < 2 || line[0] != '|' || line[len(line)-1] != '|' {
		return nil, false
	}
	for _, cell := range strings.Split(line[1:len(line)-1], "|") {
		cells = append(cells, strings.TrimSpace(cell))
	}
	return cells, true
}

// proofs knows the tests of the module: "FOLDER: TestName", where the folder
// of the root is ".", "FOLDER: TestName/subtest", and "script: NAME".
type proofs struct {
	t     *testing.T
	rooms map[string]testRoom
}

// testRoom is what the test files of one folder have.
type testRoom struct {
	tests map[string]bool
	texts map[string]bool // string literals: the names of subtests are among them
}

func newProofs(t *testing.T) *proofs {
	t.Helper()
	p := &proofs{t: t, rooms: map[string]testRoom{}}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return skipFolder(path, d)
		}
		dir := filepath.ToSlash(filepath.Dir(path))
		if strings.HasSuffix(path, "_test.go") || dir == suiteDir && strings.HasSuffix(path, ".go") {
			return p.read(dir, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *proofs) read(dir, path string) error {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	room, ok := p.rooms[dir]
	if !ok {
		room = testRoom{tests: map[string]bool{}, texts: map[string]bool{}}
		p.rooms[dir] = room
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if n.Recv == nil && isTestName(n.Name.Name) {
				room.tests[n.Name.Name] = true
			}
		case *ast.BasicLit:
			if text, err := strconv.Unquote(n.Value); n.Kind == token.STRING && err == nil {
				room.texts[text] = true
			}
		}
		return true
	})
	return nil
}

func isTestName(name string) bool {
	for _, prefix := range []string{"Test", "Fuzz", "Example", "Benchmark"} {
		if strings.HasPrefix(name, prefix) && name != "TestMain" {
			return true
		}
	}
	return false
}

// check fails where a test that a row names is not there.
func (p *proofs) check(r tableRow) {
	r.t.Helper()
	for _, proof := range r.list("proof", ";") {
		dir, name, ok := strings.Cut(proof, ": ")
		if !ok {
			r.fail("proof %q: want FOLDER: TestName or script: NAME", proof)
			continue
		}
		if dir == "script" {
			if _, err := os.Stat(filepath.Join(filepath.FromSlash(scriptDir), name+".txtar")); err != nil {
				r.fail("proof %q: %v", proof, err)
			}
			continue
		}
		if why := p.lacks(dir, name); why != "" {
			r.fail("proof %q: %s", proof, why)
		}
	}
}

func (p *proofs) lacks(dir, name string) string {
	room, ok := p.rooms[dir]
	if !ok {
		return "no test files in " + dir
	}
	parts := strings.Split(name, "/")
	if !room.tests[parts[0]] {
		return "no such test in " + dir
	}
	for _, sub := range parts[1:] {
		if !room.texts[sub] && !p.rooms[suiteDir].texts[sub] {
			return fmt.Sprintf("no subtest %q", sub)
		}
	}
	return ""
}

// cases maps each case that the name of a test, a subtest or a script's
// comment names to one place that does.
func (p *proofs) cases() map[string]string {
	p.t.Helper()
	id, out := regexp.MustCompile(`[BU]\d{3}`), map[string]string{}
	note := func(text, where string) {
		for _, found := range id.FindAllString(text, -1) {
			out[found] = where
		}
	}
	for dir, room := range p.rooms {
		for name := range room.tests {
			note(name, dir+": "+name)
		}
		for text := range room.texts {
			if len(id.FindString(text)) > 0 && strings.HasPrefix(text, id.FindString(text)) {
				note(text, dir)
			}
		}
	}
	scripts, err := filepath.Glob(filepath.FromSlash(scriptDir + "/*.txtar"))
	if err != nil {
		p.t.Fatal(err)
	}
	for _, script := range scripts {
		data, err := os.ReadFile(script)
		if err != nil {
			p.t.Fatal(err)
		}
		for _, line := range strings.Split(string(data), "\n") {
			if strings.HasPrefix(line, "#") {
				note(line, filepath.ToSlash(script))
			}
		}
	}
	return out
}
