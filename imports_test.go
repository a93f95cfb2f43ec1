package agents_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/cleveragents/agents"

// room is what the code of one folder, without its tests, may import.
type room struct {
	why     string
	rooms   string // folders of this module, "." for the root
	modules string // of others; a package counts to the module whose path it begins with
}

// house is the import table of DESIGN §3. Data flows one way: cli → engine →
// (sandbox | checkpoint | metastore); the three leaves never import each other.
// A folder that is not here fails the test, and so does a row without a folder.
var house = map[string]room{
	".": {"the vocabulary: no I/O, no clock, nothing that others cannot import too",
		"", "github.com/oklog/ulid/v2"},
	"cmd/agents": {"ten lines: the exit code of cli.Main",
		"internal/cli", ""},
	"engine": {"the only place where the leaves meet; it prints nothing, runs no git and knows no strategy by name",
		". sandbox checkpoint metastore tool internal/fsx internal/proc", "go.yaml.in/yaml/v3 github.com/google/jsonschema-go golang.org/x/sync golang.org/x/sys"},
	"sandbox": {"a leaf: the contract and its wrapper know no rows and no payload store",
		". internal/fsx", ""},
	"sandbox/gitworktree": {"git through internal/git, states through internal/snapshot, file changes through internal/fsx",
		". sandbox sandbox/internal/folder internal/fsx internal/git internal/snapshot internal/statediff", "golang.org/x/sys"},
	"sandbox/copyonwrite": {"as gitworktree, but that git only compares and merges texts",
		". sandbox sandbox/internal/folder internal/fsx internal/git internal/snapshot internal/statediff", ""},
	"sandbox/internal/folder": {"names and places of sandboxes, and their record, for the strategies of files",
		". internal/fsx", ""},
	"sandbox/none": {"it does nothing, so it needs nothing",
		". sandbox", ""},
	"sandbox/sandboxtest": {"a test kit for strategies: it must not know one of them",
		". sandbox internal/fsx internal/oracle", "pgregory.net/rapid"},
	"checkpoint": {"a leaf: it owns folders of payload, not what a strategy writes into them; states are verified with what lies in the user's repository",
		". internal/fsx internal/git internal/snapshot", "golang.org/x/sys"},
	"metastore": {"a leaf: rows only; the SQL libraries have no other room",
		". internal/fsx internal/failpoint", "modernc.org/sqlite github.com/pressly/goose/v3 golang.org/x/sys"},
	"tool": {"what a tool is; running one with checkpoints around it is the engine's",
		".", "github.com/google/jsonschema-go"},
	"tool/builtin": {"tools get a workspace's path and nothing of plans",
		". tool internal/fsx internal/git internal/proc", "github.com/bluekeyes/go-gitdiff github.com/google/jsonschema-go"},
	"internal/cli": {"the only wiring; everything that talks to a terminal is here and in internal/view",
		". engine sandbox sandbox/copyonwrite sandbox/gitworktree sandbox/none checkpoint metastore tool tool/builtin internal/config internal/view internal/fsx internal/git internal/proc",
		"github.com/spf13/cobra github.com/spf13/pflag github.com/charmbracelet/colorprofile charm.land/huh/v2 charm.land/lipgloss/v2 golang.org/x/term golang.org/x/sys"},
	"internal/view": {"a result becomes a panel or a document; nothing is asked and nothing decided",
		". tool internal/config", "charm.land/lipgloss/v2 github.com/charmbracelet/x/ansi github.com/charmbracelet/colorprofile github.com/dustin/go-humanize go.yaml.in/yaml/v3"},
	"internal/config": {"keys and precedence, ending in the engine's settings",
		". engine sandbox internal/fsx", "github.com/pelletier/go-toml/v2"},
	"internal/git": {"the only room that runs git; knows no plans",
		". internal/failpoint internal/fsx", "golang.org/x/sys"},
	"internal/snapshot": {"states of directories, in git's format; objects of other stores are read through git",
		". internal/fsx internal/git", "github.com/klauspost/compress golang.org/x/sys"},
	"internal/statediff": {"states of snapshot in the product's words, with git's counts",
		". internal/git internal/snapshot", ""},
	"internal/fsx": {"every change of a file system, each one a failpoint",
		". internal/failpoint", "github.com/gofrs/flock github.com/pkg/xattr golang.org/x/sys"},
	"internal/proc": {"other people's commands, to their very end",
		".", "golang.org/x/sys"},
	"internal/failpoint": {"at the bottom: everything may call it",
		"", ""},
	"internal/killtest": {"only tests of the built program, which see it from outside",
		"", ""},
	"internal/cases": {"tests of the built program only: it is judged from outside",
		"", ""},
	"internal/oracle": {"it judges the rest, so it uses nothing of it",
		"", ""},
}

// runners may import os/exec. git alone runs git; the others run what a user
// or a test names.
var runners = map[string]string{
	"internal/git":    "runs git",
	"internal/proc":   "runs the commands of plans",
	"internal/oracle": "runs git as a user would, for tests",
	"internal/cli":    "runs the user's pager and shell",
}

// writers may change files by package os. Everybody else goes through
// internal/fsx, so that a test can stop the product at each change.
var writers = map[string]string{
	"internal/fsx":        "is the room for it",
	"internal/failpoint":  "its own trace must not count",
	"internal/oracle":     "a test's fixtures are no part of the product",
	"sandbox/sandboxtest": "what a plan does in its sandbox is no part of the product",
}

// changing are the functions of package os that change a file system.
var changing = strings.Fields("Chmod Chown Chtimes CopyFS Create CreateTemp Lchown Link Mkdir MkdirAll MkdirTemp OpenFile Remove RemoveAll Rename Symlink Truncate WriteFile")

func TestImportTable(t *testing.T) {
	seen := map[string]bool{}
	for dir, files := range sources(t) {
		row, ok := house[dir]
		if !ok {
			t.Errorf("%s: no row in the import table", dir)
			continue
		}
		seen[dir] = true
		for name, file := range files {
			for _, path := range imports(t, file) {
				if why := row.refuses(path); why != "" {
					t.Errorf("%s imports %s: %s (%s: %s)", name, path, why, dir, row.why)
				}
			}
		}
	}
	for dir := range house {
		if !seen[dir] {
			t.Errorf("%s: a row in the import table without a folder", dir)
		}
	}
}

func TestOnlyTheirRoomsRunPrograms(t *testing.T) {
	for dir, files := range sources(t) {
		for name, file := range files {
			if _, ok := runners[dir]; !ok && slices.Contains(imports(t, file), "os/exec") {
				t.Errorf("%s imports os/exec: programs are run by %q", name, slices.Sorted(maps.Keys(runners)))
			}
		}
	}
}

func TestFileChangesGoThroughFsx(t *testing.T) {
	for dir, files := range sources(t) {
		if _, ok := writers[dir]; ok {
			continue
		}
		for name, file := range files {
			ast.Inspect(file, func(n ast.Node) bool {
				sel, ok := n.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				if pkg, ok := sel.X.(*ast.Ident); ok && pkg.Name == "os" && slices.Contains(changing, sel.Sel.Name) {
					t.Errorf("%s uses os.%s: changes of files go through internal/fsx", name, sel.Sel.Name)
				}
				return true
			})
		}
	}
}

// refuses says why a room may not import path, or "".
func (r room) refuses(path string) string {
	if path == module {
		path = module + "/."
	}
	if own, ok := strings.CutPrefix(path, module+"/"); ok {
		if !slices.Contains(strings.Fields(r.rooms), own) {
			return "not one of its rooms"
		}
		return ""
	}
	if !strings.Contains(strings.Split(path, "/")[0], ".") {
		return "" // the standard library
	}
	for _, m := range strings.Fields(r.modules) {
		if path == m || strings.HasPrefix(path, m+"/") {
			return ""
		}
	}
	return "not one of its libraries"
}

// sources parses every Go file of the module but the tests, whatever system it
// is for: folder → name → file.
func sources(t *testing.T) map[string]map[string]*ast.File {
	t.Helper()
	out := map[string]map[string]*ast.File{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return skipFolder(path, d)
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		dir := filepath.ToSlash(filepath.Dir(path))
		if out[dir] == nil {
			out[dir] = map[string]*ast.File{}
		}
		out[dir][path] = file
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// skipFolder leaves out what is no part of the product: hidden folders, test
// data, tools of other modules, and measuring.
func skipFolder(path string, d fs.DirEntry) error {
	name := d.Name()
	if path != "." && (strings.HasPrefix(name, ".") || name == "testdata" || path == "tools" || path == "bench") {
		return fs.SkipDir
	}
	return nil
}

func imports(t *testing.T, file *ast.File) []string {
	t.Helper()
	var out []string
	for _, spec := range file.Imports {
		path, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, path)
	}
	return out
}
