package view

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	agents "github.com/cleveragents/agents"
)

func invocationValue(v agents.Invocation) object {
	o := object{
		{"invocation_id", v.ID},
		{"plan_id", v.PlanID},
		{"tool", v.Tool},
		{"resource", v.Resource},
		{"exit_code", v.ExitCode},
		{"stdout", strings.ToValidUTF8(v.Stdout, "\uFFFD")},
		{"stderr", strings.ToValidUTF8(v.Stderr, "\uFFFD")},
		{"before_checkpoint_id", optional(v.BeforeCheckpointID)},
		{"after_checkpoint_id", optional(v.AfterCheckpointID)},
		{"changed_paths", rows(v.Changed, func(f agents.FileChange) object {
			return object{{"resource", f.Resource}, {"path", agents.EscapePath(f.Path)}, {"change", f.Change}}
		})},
		{"rolled_back", v.RolledBack},
		{"enforced", v.Enforced},
	}
	if json.Valid(v.Output) {
		o = append(o, Field{"output", json.RawMessage(v.Output)})
	}
	return o
}

// Call is the document of plan exec, plan shell and tool run. live says that
// the output has been seen already.
func Call(v agents.Invocation, live bool) Document {
	d := Document{Keys: []Field{{"tool", invocationValue(v)}}}
	if !live {
		d.Blocks = append(d.Blocks, output(v)...)
	}
	return d
}

// CallSummary is what people should know of a call beside its output.
func CallSummary(v agents.Invocation) []Block {
	line := plural(len(v.Changed), "path") + " changed"
	switch {
	case v.RolledBack:
		line = "Rolled back: the call's changes were undone"
	case len(v.Changed) == 0:
		line = "Nothing changed"
	}
	if v.AfterCheckpointID != "" && !v.RolledBack {
		line += ", checkpoint " + v.AfterCheckpointID
	}
	return []Block{Note(line)}
}

func output(v agents.Invocation) []Block {
	var out []Block
	if v.Stdout != "" {
		out = append(out, Text(v.Stdout))
	}
	if v.Stdout == "" && json.Valid(v.Output) && string(v.Output) != "null" {
		out = append(out, Text(readable(v.Output)))
	}
	return out
}

// readable is a JSON value as people read it: a string is its text.
func readable(raw []byte) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	var fields map[string]any
	if json.Unmarshal(raw, &fields) == nil && len(fields) == 1 {
		for _, v := range fields {
			if s, ok := v.(string); ok {
				return s
			}
		}
	}
	var indented strings.Builder
	enc := json.NewEncoder(&indented)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if enc.Encode(json.RawMessage(raw)) != nil {
		return string(raw)
	}
	return indented.String()
}

// Run is the document of run.
func Run(r agents.RunResult, strategy Strategist) Document {
	return Document{
		Keys: []Field{
			{"plan", PlanValue(r.Plan, strategy)},
			{"tool", invocationValue(r.Invocation)},
			{"sandboxes", sandboxRows(r.Sandboxes)},
			{"diff_summary", summaryValue(r.Diff.Summary)},
			{"files", fileRows(r.Diff.Files)},
		},
		Messages: r.Messages,
		Blocks:   RunSummary(r, r.Messages),
	}
}

// exitCodeText is a command's exit code; one that never ran, or was
// interrupted, has none.
func exitCodeText(code int) string {
	if code < 0 {
		return "none"
	}
	return strconv.Itoa(code)
}

// RunSummary is what people see at the end of a run, on standard error.
// messages are those that do not stand there yet.
func RunSummary(r agents.RunResult, messages []string) []Block {
	const most = 30
	panel := Panel{Title: "Run Summary", Rows: [][2]string{{"Plan ID", r.Plan.ID}}}
	if r.Plan.Name != "" {
		panel.Rows = append(panel.Rows, [2]string{"Name", r.Plan.Name})
	}
	panel.Rows = append(panel.Rows, [2]string{"Exit code", exitCodeText(r.Invocation.ExitCode)})
	for _, s := range r.Sandboxes {
		panel.Rows = append(panel.Rows, [2]string{"Sandbox", fmt.Sprintf("%s (%s) %s", s.Resource, s.Strategy, Printable(s.Path))})
	}
	blocks := []Block{panel}
	files := r.Diff.Files
	if len(files) > most {
		files = files[:most]
	}
	if len(files) > 0 {
		blocks = append(blocks, Text(Diffstat(files)))
	}
	if more := len(r.Diff.Files) - len(files); more > 0 {
		blocks = append(blocks, Note(fmt.Sprintf(" … and %s more", plural(more, "file"))))
	}
	if r.Unknown {
		blocks = append(blocks, Note("What changed is not known"))
	} else {
		blocks = append(blocks, Note(SummaryLine(r.Diff.Summary)))
	}
	return append(blocks, messageLines(messages)...)
}
