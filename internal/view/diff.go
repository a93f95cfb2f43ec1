package view

import (
	"encoding/base64"
	"fmt"
	"strings"
	"unicode/utf8"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"

	agents "github.com/cleveragents/agents"
)

func summaryValue(s agents.DiffSummary) object {
	return object{{"files_changed", s.FilesChanged}, {"insertions", s.Insertions}, {"deletions", s.Deletions}}
}

func fileRows(files []agents.FileChange) []object {
	return rows(files, func(f agents.FileChange) object {
		return object{
			{"resource", f.Resource},
			{"path", agents.EscapePath(f.Path)},
			{"old_path", optional(agents.EscapePath(f.OldPath))},
			{"change", f.Change},
			{"insertions", f.Insertions},
			{"deletions", f.Deletions},
			{"binary", f.Binary},
		}
	})
}

// Diff is the document of plan diff; people see a line a file.
func Diff(d agents.Diff) Document {
	doc := Document{Keys: []Field{
		{"diff_summary", summaryValue(d.Summary)},
		{"files", fileRows(d.Files)},
	}}
	if d.Patch != nil {
		doc = doc.With("patch", strings.ToValidUTF8(string(d.Patch), "\uFFFD"))
		if !utf8.Valid(d.Patch) {
			doc = doc.With("patch_base64", base64.StdEncoding.EncodeToString(d.Patch))
		}
	}
	if len(d.Files) > 0 {
		doc.Blocks = append(doc.Blocks, Text(Diffstat(d.Files)))
	}
	doc.Blocks = append(doc.Blocks, Note(SummaryLine(d.Summary)))
	return doc
}

// Artifacts is the document of plan artifacts: what the plan added or changed.
func Artifacts(d agents.Diff) Document {
	grid := Grid{Head: []string{"RESOURCE", "CHANGE", "PATH"}, Empty: "No artifacts."}
	for _, f := range d.Files {
		grid.Rows = append(grid.Rows, []string{f.Resource, string(f.Change), Printable(f.Path)})
	}
	return Document{Keys: []Field{{"artifacts", fileRows(d.Files)}}, Blocks: []Block{grid}}
}

// SummaryLine is git's last line of a diffstat.
func SummaryLine(s agents.DiffSummary) string {
	if s.FilesChanged == 0 {
		return "No changes"
	}
	line := " " + plural(s.FilesChanged, "file") + " changed"
	if s.Insertions > 0 {
		line += ", " + plural(s.Insertions, "insertion") + "(+)"
	}
	if s.Deletions > 0 {
		line += ", " + plural(s.Deletions, "deletion") + "(-)"
	}
	return line
}

// Diffstat is a line for each file, as git's --stat writes it, with the
// resource before the path where there are several.
func Diffstat(files []agents.FileChange) string {
	const bar = 40
	names := make([]string, len(files))
	width, most := 0, 0
	for i, f := range files {
		names[i] = changeName(f, severalResources(files))
		width = max(width, ansi.StringWidth(names[i]))
		most = max(most, f.Insertions+f.Deletions)
	}
	digits := len(fmt.Sprint(most))
	var out strings.Builder
	for i, f := range files {
		pad := strings.Repeat(" ", width-ansi.StringWidth(names[i]))
		fmt.Fprintf(&out, " %s%s | %s\n", names[i], pad, statCell(f, digits, most, bar))
	}
	return out.String()
}

func severalResources(files []agents.FileChange) bool {
	for _, f := range files {
		if f.Resource != files[0].Resource {
			return true
		}
	}
	return false
}

func changeName(f agents.FileChange, several bool) string {
	name := Printable(f.Path)
	if f.OldPath != "" {
		name = Printable(f.OldPath) + " => " + name
	}
	if several {
		name = f.Resource + ":" + name
	}
	switch f.Change {
	case agents.ChangeAdded:
		name += " (new)"
	case agents.ChangeDeleted:
		name += " (gone)"
	case agents.ChangeMode:
		name += " (mode)"
	}
	return name
}

func statCell(f agents.FileChange, digits, most, bar int) string {
	if f.Binary {
		return fmt.Sprintf("%*s", digits, "Bin")
	}
	n := f.Insertions + f.Deletions
	plus, minus := f.Insertions, f.Deletions
	if most > bar {
		plus, minus = scaledBar(plus, most, bar), scaledBar(minus, most, bar)
	}
	return strings.TrimRight(fmt.Sprintf("%*d %s%s", digits, n, strings.Repeat("+", plus), strings.Repeat("-", minus)), " ")
}

// scaledBar keeps something of everything that is not zero.
func scaledBar(n, most, bar int) int {
	if n == 0 {
		return 0
	}
	return max(1, n*bar/most)
}

// ColourPatch adds the usual colours to git's patch format.
func ColourPatch(patch string) string {
	var (
		bold  = lipgloss.NewStyle().Bold(true)
		cyan  = lipgloss.NewStyle().Foreground(lipgloss.Cyan)
		red   = lipgloss.NewStyle().Foreground(lipgloss.Red)
		green = lipgloss.NewStyle().Foreground(lipgloss.Green)
		out   strings.Builder
	)
	inHunk := false
	for line := range strings.SplitAfterSeq(patch, "\n") {
		text := strings.TrimSuffix(line, "\n")
		style := lipgloss.NewStyle()
		switch {
		case strings.HasPrefix(text, "diff "):
			inHunk = false
			style = bold
		case strings.HasPrefix(text, "@@"):
			inHunk = true
			style = cyan
		case !inHunk:
			style = bold
		case strings.HasPrefix(text, "+"):
			style = green
		case strings.HasPrefix(text, "-"):
			style = red
		}
		out.WriteString(paint(style, text) + line[len(text):])
	}
	return out.String()
}

// paint sets a style around text and leaves its tabs and spaces as they are.
func paint(style lipgloss.Style, text string) string {
	if text == "" {
		return ""
	}
	before, after, _ := strings.Cut(style.Render("\x00"), "\x00")
	return before + text + after
}
