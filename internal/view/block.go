package view

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"charm.land/lipgloss/v2"
	"charm.land/lipgloss/v2/table"
	"github.com/charmbracelet/x/ansi"
	"github.com/dustin/go-humanize"

	agents "github.com/cleveragents/agents"
)

// Block is a part of a document as people see it.
type Block interface {
	write(p *printer)
}

// Panel is a titled list of labels and values.
type Panel struct {
	Title string
	Rows  [][2]string // label and value; a row without a label is a line
}

// Grid is a table. Columns after the first that hold only numbers are set right.
type Grid struct {
	Title string
	Head  []string
	Rows  [][]string
	Empty string // what to say when there are no rows
}

// Text is printed as it is, with a line end.
type Text string

// Footer is the last line: "✓ OK" or "✗ FAILED" and what was done.
type Footer struct {
	Failed bool
	Text   string
}

// Note is a line on its own, for the next command or a remark.
type Note string

// WriteText writes the blocks of d for people. w strips or lowers colours
// itself where it must; width is the terminal's, 0 = unknown.
func (d Document) WriteText(w io.Writer, format Format, width int) error {
	p := &printer{w: w, format: format, width: width}
	for i, b := range d.Blocks {
		p.first = i == 0
		b.write(p)
	}
	return p.err
}

// printer writes blocks in one format and keeps the first error.
type printer struct {
	w      io.Writer
	format Format
	width  int
	first  bool
	err    error
}

func (p *printer) line(s string) {
	if p.err == nil {
		_, p.err = fmt.Fprintln(p.w, s)
	}
}

// gap separates a titled block from what stands before it.
func (p *printer) gap() {
	if !p.first && p.format != Rich {
		p.line("")
	}
}

var _ = []Block{Panel{}, Grid{}, Text(""), Footer{}, Note("")}

func (b Panel) write(p *printer) {
	p.gap()
	switch p.format {
	case Rich:
		p.line(b.box(p.width))
	case Table:
		p.line(b.Title)
		p.line(ruled(nil, b.cells(), p.width).String())
	default:
		p.line(b.Title)
		for _, line := range b.lines() {
			p.line("  " + line)
		}
	}
}

func (b Panel) cells() [][]string {
	var out [][]string
	for _, r := range b.Rows {
		out = append(out, []string{r[0], r[1]})
	}
	return out
}

// lines sets the values under each other.
func (b Panel) lines() []string {
	label := 0
	for _, r := range b.Rows {
		label = max(label, ansi.StringWidth(r[0]))
	}
	var out []string
	for _, r := range b.Rows {
		if r[0] == "" {
			out = append(out, r[1])
			continue
		}
		out = append(out, r[0]+":"+strings.Repeat(" ", label-ansi.StringWidth(r[0])+1)+r[1])
	}
	return out
}

// box draws the panel with its title in the upper edge.
func (b Panel) box(width int) string {
	body := b.styledLines()
	inner := ansi.StringWidth(b.Title) + 2
	for _, line := range body {
		inner = max(inner, ansi.StringWidth(line))
	}
	if width > 0 {
		inner = min(inner, max(width-4, 20))
	}
	edge := lipgloss.NewStyle().Foreground(lipgloss.BrightBlack)
	title := ansi.Truncate(b.Title, inner-2, "…")
	var out strings.Builder
	out.WriteString(edge.Render("╭─ ") + lipgloss.NewStyle().Bold(true).Render(title) +
		edge.Render(" "+strings.Repeat("─", inner-ansi.StringWidth(title)-1)+"╮") + "\n")
	for _, line := range body {
		for _, part := range strings.Split(ansi.Hardwrap(line, inner, true), "\n") {
			out.WriteString(edge.Render("│") + " " + part + strings.Repeat(" ", inner-ansi.StringWidth(part)) + " " + edge.Render("│") + "\n")
		}
	}
	out.WriteString(edge.Render("╰" + strings.Repeat("─", inner+2) + "╯"))
	return out.String()
}

func (b Panel) styledLines() []string {
	faint := lipgloss.NewStyle().Faint(true)
	lines := b.lines()
	for i, r := range b.Rows {
		if r[0] != "" {
			lines[i] = faint.Render(r[0]+":") + lines[i][len(r[0])+1:]
		}
	}
	return lines
}

func (b Grid) write(p *printer) {
	if b.Title != "" {
		p.gap()
		p.line(b.title(p.format))
	}
	switch {
	case len(b.Rows) == 0:
		p.line(b.Empty)
	case p.format == Plain:
		for _, line := range b.columns() {
			p.line(line)
		}
	default:
		p.line(ruled(b.Head, b.Rows, p.width).String())
	}
}

func (b Grid) title(f Format) string {
	if f == Rich {
		return lipgloss.NewStyle().Bold(true).Render(b.Title)
	}
	return b.Title
}

// columns sets the cells under each other, two spaces apart, without trailing space.
func (b Grid) columns() []string {
	all := append([][]string{b.Head}, b.Rows...)
	width := make([]int, len(b.Head))
	for _, row := range all {
		for i, cell := range row {
			width[i] = max(width[i], ansi.StringWidth(cell))
		}
	}
	right := b.numeric()
	var out []string
	for _, row := range all {
		var line strings.Builder
		for i, cell := range row {
			pad := strings.Repeat(" ", width[i]-ansi.StringWidth(cell))
			if right[i] {
				cell = pad + cell
			} else {
				cell += pad
			}
			line.WriteString(cell + "  ")
		}
		out = append(out, strings.TrimRight(line.String(), " "))
	}
	return out
}

// numeric says which columns hold numbers alone.
func (b Grid) numeric() []bool {
	out := make([]bool, len(b.Head))
	for i := range out {
		out[i] = i > 0 && len(b.Rows) > 0 && !slices.ContainsFunc(b.Rows, func(row []string) bool {
			return row[i] == "" || strings.Trim(row[i], "0123456789") != ""
		})
	}
	return out
}

// ruled draws a table with lines.
func ruled(head []string, cells [][]string, width int) *table.Table {
	t := table.New().Border(lipgloss.RoundedBorder()).
		BorderStyle(lipgloss.NewStyle().Foreground(lipgloss.BrightBlack)).
		StyleFunc(func(row, _ int) lipgloss.Style {
			return lipgloss.NewStyle().Padding(0, 1).Bold(row == table.HeaderRow)
		}).
		Rows(cells...)
	if head != nil {
		t.Headers(head...)
	}
	if width > 0 && tableWidth(head, cells) > width {
		t.Width(width)
	}
	return t
}

func tableWidth(head []string, cells [][]string) int {
	total := 1
	for i := range max(len(head), len(cells[0])) {
		w := 0
		if i < len(head) {
			w = ansi.StringWidth(head[i])
		}
		for _, row := range cells {
			w = max(w, ansi.StringWidth(row[i]))
		}
		total += w + 3
	}
	return total
}

func (b Text) write(p *printer) {
	if b != "" {
		p.line(strings.TrimSuffix(string(b), "\n"))
	}
}

func (b Note) write(p *printer) { p.line(string(b)) }

func (b Footer) write(p *printer) {
	p.gap()
	mark, colour := "✓ OK", lipgloss.Green
	if b.Failed {
		mark, colour = "✗ FAILED", lipgloss.Red
	}
	if p.format == Rich {
		mark = lipgloss.NewStyle().Foreground(colour).Bold(true).Render(mark)
	}
	p.line(mark + " " + b.Text)
}

// Printable returns a name as it may stand on a terminal: spelt by
// agents.EscapePath, with control characters as \xHH too.
func Printable(name string) string {
	return strings.ReplaceAll(Clean(agents.EscapePath(name)), "\n", `\x0a`)
}

// Clean returns a sentence as it may stand on a terminal: control characters
// and bytes that are not UTF-8 as \xHH, line ends as they are.
func Clean(s string) string {
	if utf8.ValidString(s) && strings.IndexFunc(s, unicode.IsControl) < 0 {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		if r == utf8.RuneError && n == 1 || unicode.IsControl(r) && r != '\n' {
			for _, c := range []byte(s[:n]) {
				fmt.Fprintf(&b, `\x%02x`, c)
			}
		} else {
			b.WriteString(s[:n])
		}
		s = s[n:]
	}
	return b.String()
}

// clock is a moment as people read it.
func clock(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("2006-01-02 15:04:05 UTC")
}

// bytesText is a number of bytes as people read it.
func bytesText(n int64) string { return humanize.IBytes(uint64(max(n, 0))) }

// plural is "1 file" or "3 files".
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
