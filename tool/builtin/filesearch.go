package builtin

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/cleveragents/agents/tool"
)

// The bounds of a search.
const (
	matchCap   = 1000     // lines given back
	lineCap    = 500      // bytes of each
	searchCap  = 64 << 20 // bytes of a file that is looked at
	binaryLook = 8000     // bytes in which a NUL makes a file binary, as in git
)

type fileSearchInput struct {
	Pattern string `json:"pattern"`
	Path    string `json:"path"`
	Glob    string `json:"glob"`
}

// fileSearchOutput is the answer of file-search.
type fileSearchOutput struct {
	Matches       []fileMatch `json:"matches"`
	Files         int         `json:"files_searched"`
	SkippedBinary int         `json:"skipped_binary"`
	SkippedLarge  int         `json:"skipped_large"`
	Truncated     bool        `json:"truncated"` // there are more matches than these
}

// fileMatch is one line that matches.
type fileMatch struct {
	Path string `json:"path"`
	Line int    `json:"line"` // from 1
	Text string `json:"text"` // at most 500 bytes; what is not UTF-8 is replaced
}

func fileSearch() tool.Tool {
	return define("file-search",
		"Search the lines of text files for a regular expression (RE2). Binary files, files over 64 MiB, .git and what links lead to are left out; at most 1000 lines are given back.",
		reads(), `{
			"pattern": {"type": "string", "minLength": 1, "description": "RE2 regular expression"},
			"path": {"type": "string", "minLength": 1, "description": "a file or directory; the resource's top if not said"},
			"glob": {"type": "string", "minLength": 1, "description": "only files whose name, or path where the glob has a slash, fits: *, ?, [a-z], {a,b}, **"}
		}`, []string{"pattern"}, runFileSearch)
}

// search is one run of file-search.
type search struct {
	p    *place
	s    spot
	re   *regexp.Regexp
	glob *regexp.Regexp // nil = every file
	name bool           // glob is for names, not paths
	out  fileSearchOutput
}

func runFileSearch(ctx context.Context, env tool.Env, in fileSearchInput) (tool.Result, error) {
	q := search{name: !strings.Contains(in.Glob, "/")}
	q.out.Matches = []fileMatch{}
	var err error
	if q.re, err = regexp.Compile(in.Pattern); err != nil {
		return tool.Result{}, invalid("pattern: %v", err)
	}
	if in.Glob != "" {
		if q.glob, err = compileGlob(in.Glob); err != nil {
			return tool.Result{}, err
		}
	}
	if q.p, err = enter(env); err != nil {
		return tool.Result{}, err
	}
	defer q.p.leave()
	if in.Path == "" {
		in.Path = "."
	}
	if q.s, err = q.p.at(in.Path); err != nil {
		return tool.Result{}, err
	}
	if err := q.all(ctx); err != nil && !errors.Is(err, errEnough) {
		return tool.Result{}, err
	}
	res := tool.Result{Output: q.out}
	if q.out.Truncated {
		res.Notices = []string{fmt.Sprintf("file-search: only the first %d matching lines are listed", matchCap)}
	}
	return res, nil
}

func (q *search) all(ctx context.Context) error {
	fi, err := q.p.existing(q.s)
	switch {
	case err != nil:
		return err
	case fi.Mode().IsRegular():
		return q.file(q.s.rel)
	case !fi.IsDir():
		return failed("%s is a %s, not a file or directory", q.s.given, kindOf(fi.Mode()))
	}
	return q.p.walk(q.s.rel, func(rel string, d fs.DirEntry) (bool, error) {
		switch {
		case ctx.Err() != nil:
			return false, ctx.Err()
		case isGit(d.Name()):
			return false, nil
		case d.IsDir():
			return true, nil
		case !d.Type().IsRegular() || !q.wants(rel):
			return false, nil
		}
		return false, q.file(rel)
	})
}

func (q *search) wants(rel string) bool {
	switch {
	case q.glob == nil:
		return true
	case q.name:
		return q.glob.MatchString(path.Base(rel))
	}
	return q.glob.MatchString(below(q.s.rel, rel))
}

// file searches one file.
func (q *search) file(rel string) error {
	f, err := q.p.root.Open(rel)
	if absent(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return err
	}
	if fi.Size() > searchCap {
		q.out.SkippedLarge++
		return nil
	}
	r := bufio.NewReaderSize(f, 64<<10)
	start, err := r.Peek(binaryLook)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if bytes.IndexByte(start, 0) >= 0 {
		q.out.SkippedBinary++
		return nil
	}
	q.out.Files++
	return q.lines(rel, r)
}

func (q *search) lines(rel string, r *bufio.Reader) error {
	for n := 1; ; n++ {
		line, err := r.ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		text := bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
		if len(line) > 0 && q.re.Match(text) {
			if len(q.out.Matches) == matchCap {
				q.out.Truncated = true
				return errEnough
			}
			q.out.Matches = append(q.out.Matches, fileMatch{Path: q.s.show(below(q.s.rel, rel)), Line: n, Text: clipLine(text)})
		}
		if err != nil {
			return nil
		}
	}
}

// clipLine shortens a line at a whole sign and makes it UTF-8.
func clipLine(text []byte) string {
	if len(text) <= lineCap {
		return strings.ToValidUTF8(string(text), string(utf8.RuneError))
	}
	return strings.ToValidUTF8(string(cutSign(text[:lineCap])), string(utf8.RuneError)) + "…"
}

// compileGlob makes a regular expression of a glob: * and ? stay within a
// name, ** crosses names, {a,b} is either, [a-z] and [!a-z] are sets, a
// backslash takes the next sign as it is.
func compileGlob(glob string) (*regexp.Regexp, error) {
	var b strings.Builder
	b.WriteString(`(?s)\A`)
	depth := 0
	for i := 0; i < len(glob); i++ {
		rest := glob[i:]
		switch c := glob[i]; {
		case strings.HasPrefix(rest, "**/"):
			b.WriteString(`(?:.*/)?`)
			i += 2
		case strings.HasPrefix(rest, "**"):
			b.WriteString(`.*`)
			i++
		case c == '*':
			b.WriteString(`[^/]*`)
		case c == '?':
			b.WriteString(`[^/]`)
		case c == '[':
			set, n, ok := globSet(rest)
			if !ok {
				return nil, invalid("glob %q: a [ without its ]", glob)
			}
			b.WriteString(set)
			i += n - 1
		case c == '{':
			b.WriteString(`(?:`)
			depth++
		case c == '}' && depth > 0:
			b.WriteString(`)`)
			depth--
		case c == ',' && depth > 0:
			b.WriteString(`|`)
		case c == '\\' && len(rest) > 1:
			_, n := utf8.DecodeRuneInString(rest[1:])
			b.WriteString(regexp.QuoteMeta(rest[1 : 1+n]))
			i += n
		default:
			_, n := utf8.DecodeRuneInString(rest)
			b.WriteString(regexp.QuoteMeta(rest[:n]))
			i += n - 1
		}
	}
	if depth > 0 {
		return nil, invalid("glob %q: a { without its }", glob)
	}
	re, err := regexp.Compile(b.String() + `\z`)
	if err != nil {
		return nil, invalid("glob %q: %v", glob, err)
	}
	return re, nil
}

// globSet turns a [set] at the beginning of s into that of a regular
// expression and returns its length in s.
func globSet(s string) (set string, n int, ok bool) {
	end := strings.IndexByte(s[1:], ']')
	if end == 0 || end == 1 && (s[1] == '!' || s[1] == '^') { // the first ] of a set is one of its signs
		if next := strings.IndexByte(s[end+2:], ']'); next >= 0 {
			end += 1 + next
		} else {
			end = -1
		}
	}
	if end < 0 {
		return "", 0, false
	}
	inner := s[1 : 1+end]
	not := ""
	if inner[0] == '!' || inner[0] == '^' {
		not, inner = "^", inner[1:]
	}
	inner = strings.NewReplacer(`\`, `\\`, `[`, `\[`, `]`, `\]`, `^`, `\^`, `&`, `\&`).Replace(inner)
	return "[" + not + inner + "]", end + 2, true
}
