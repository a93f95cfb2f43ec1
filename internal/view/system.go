package view

import (
	"strconv"
	"strings"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/config"
)

func settingValue(v config.Value) object {
	return object{
		{"key", v.Key.Name},
		{"value", agents.EscapePath(v.Value)},
		{"source", v.Source},
		{"origin", optional(agents.EscapePath(v.Origin))},
		{"default", v.Key.Default},
		{"type", v.Key.Kind},
		{"valid", rows(v.Key.Values, func(s string) string { return s })},
		{"env", v.Key.Env()},
		{"description", v.Key.Help},
	}
}

// Settings is the document of config list.
func Settings(list []config.Value) Document {
	grid := Grid{Head: []string{"KEY", "VALUE", "SOURCE", "ORIGIN"}}
	for _, v := range list {
		grid.Rows = append(grid.Rows, []string{v.Key.Name, dash(Printable(v.Value)), string(v.Source), dash(Printable(v.Origin))})
	}
	return Document{Keys: []Field{{"config", rows(list, settingValue)}}, Blocks: []Block{grid}}
}

// Setting is the document of config get. People get the bare value.
func Setting(v config.Value) Document {
	return Document{Keys: []Field{{"config", settingValue(v)}}, Blocks: []Block{Note(Printable(v.Value))}}
}

// SettingWritten is the document of config set: the value now, and the file
// that was edited.
func SettingWritten(v config.Value, file string) Document {
	return Document{
		Keys:   []Field{{"config", settingValue(v)}, {"file", agents.EscapePath(file)}},
		Blocks: []Block{Footer{Text: "Set " + v.Key.Name + " in " + Printable(file)}},
	}
}

// Trusted is the document of config trust.
func Trusted(file string) Document {
	return Document{
		Keys:   []Field{{"trusted", agents.EscapePath(file)}},
		Blocks: []Block{Footer{Text: "Trusted " + Printable(file) + " until it changes"}},
	}
}

func archiveValue(a agents.Archive) object {
	return object{
		{"archive_id", a.ID},
		{"plan_id", a.PlanID},
		{"path", agents.EscapePath(a.Path)},
		{"size_bytes", a.SizeBytes},
		{"created_at", Stamp(a.CreatedAt)},
		{"expires_at", Stamp(a.ExpiresAt)},
		{"restore", a.Restore},
	}
}

// Cleanup is the document of cleanup and cleanup status.
func Cleanup(r agents.CleanupResult, done string) Document {
	d := Document{
		Keys: []Field{
			{"policy", object{{"value", r.Policy}, {"source", r.PolicySource}}},
			{"removed", escaped(r.Removed)},
			{"archived", rows(r.Archived, archiveValue)},
			{"kept", keptRows(r.Kept)},
			{"freed_bytes", r.FreedBytes},
			{"dry_run", r.DryRun},
		},
		Blocks: []Block{Panel{Title: "Cleanup", Rows: [][2]string{
			{"Policy", r.Policy + " (" + r.PolicySource + ")"},
			{"Removed", strconv.Itoa(len(r.Removed))},
			{"Archived", strconv.Itoa(len(r.Archived))},
			{"Kept", strconv.Itoa(len(r.Kept))},
			{"Freed", bytesText(r.FreedBytes)},
		}}},
	}
	removed := Grid{Title: "Removed", Head: []string{"WHAT"}}
	if r.DryRun {
		removed.Title = "Would Be Removed"
	}
	for _, w := range r.Removed {
		removed.Rows = append(removed.Rows, []string{Printable(w)})
	}
	if len(removed.Rows) > 0 {
		d.Blocks = append(d.Blocks, removed)
	}
	if len(r.Archived) > 0 {
		d.Blocks = append(d.Blocks, archiveGrid("Archived", r.Archived))
	}
	if len(r.Kept) > 0 {
		d.Blocks = append(d.Blocks, keptGrid("Kept", r.Kept))
	}
	return finished(d, done)
}

func keptRows(list []agents.KeptItem) []object {
	return rows(list, func(k agents.KeptItem) object {
		return object{{"what", agents.EscapePath(k.What)}, {"why", k.Why}}
	})
}

func keptGrid(title string, list []agents.KeptItem) Grid {
	grid := Grid{Title: title, Head: []string{"WHAT", "WHY"}, Empty: "Nothing."}
	for _, k := range list {
		grid.Rows = append(grid.Rows, []string{Printable(k.What), k.Why})
	}
	return grid
}

// Archives is the document of cleanup archive list.
func Archives(list []agents.Archive) Document {
	return Document{
		Keys:   []Field{{"archives", rows(list, archiveValue)}},
		Blocks: []Block{archiveGrid("", list)},
	}
}

func archiveGrid(title string, list []agents.Archive) Grid {
	grid := Grid{Title: title, Head: []string{"ARCHIVE", "CREATED", "EXPIRES", "SIZE", "RESTORE"}, Empty: "No archives."}
	for _, a := range list {
		grid.Rows = append(grid.Rows, []string{a.ID, clock(a.CreatedAt), clock(a.ExpiresAt), bytesText(a.SizeBytes), a.Restore})
	}
	return grid
}

// Restored is the document of cleanup archive restore.
func Restored(p agents.Plan, strategy Strategist) Document {
	return Document{
		Keys:   []Field{{"plan", PlanValue(p, strategy)}},
		Blocks: []Block{planPanel("Plan", p, strategy), Footer{Text: "Archive restored"}},
	}
}

// StrategyRow is a line of doctor: what this machine can do.
type StrategyRow struct {
	Strategy  agents.StrategyName `json:"strategy"`
	Available bool                `json:"available"`
	Mechanism string              `json:"mechanism"`
	Reason    string              `json:"reason"`
}

// Health is what doctor finds.
type Health struct {
	Strategies  []StrategyRow
	Namespaces  bool
	LandlockABI int
	Mode        string // what the kernel enforces: "none" until a jail is in force
	GitVersion  string
	DataDir     string
	Filesystem  string
	Reflink     bool
	FreeBytes   int64
	Unwritable  string // why the data directory cannot be written; "" = it can
	Leftovers   []agents.KeptItem
}

// Doctor is the document of doctor.
func Doctor(h Health) Document {
	grid := Grid{Title: "Strategies", Head: []string{"STRATEGY", "AVAILABLE", "MECHANISM", "REASON"}}
	for _, s := range h.Strategies {
		grid.Rows = append(grid.Rows, []string{string(s.Strategy), yesNo(s.Available), dash(s.Mechanism), dash(firstLine(s.Reason))})
	}
	d := Document{
		Keys: []Field{
			{"strategies", rows(h.Strategies, func(s StrategyRow) StrategyRow { return s })},
			{"enforcement", object{{"namespaces", h.Namespaces}, {"landlock_abi", h.LandlockABI}, {"mode", h.Mode}}},
			{"git", object{{"version", optional(h.GitVersion)}}},
			{"data_dir", object{
				{"path", agents.EscapePath(h.DataDir)}, {"filesystem", h.Filesystem}, {"reflink", h.Reflink}, {"free_bytes", h.FreeBytes},
			}},
			{"leftovers", keptRows(h.Leftovers)},
		},
		Blocks: []Block{
			grid,
			Panel{Title: "Enforcement", Rows: [][2]string{
				{"Namespaces", yesNo(h.Namespaces)},
				{"Landlock ABI", strconv.Itoa(h.LandlockABI)},
				{"Mode", h.Mode},
			}},
			Panel{Title: "Environment", Rows: [][2]string{
				{"git", dash(h.GitVersion)},
				{"Data directory", Printable(h.DataDir)},
				{"File system", h.Filesystem},
				{"Reflink", yesNo(h.Reflink)},
				{"Free", bytesText(h.FreeBytes)},
			}},
		},
	}
	if h.Unwritable != "" {
		d.Warn = true
		d.Messages = []string{"the data directory cannot be written, so plans can only be looked at: " + Printable(h.Unwritable)}
		d.Blocks = append(d.Blocks, Note(d.Messages[0]))
	}
	if len(h.Leftovers) > 0 {
		d.Warn = true
		d.Blocks = append(d.Blocks, keptGrid("Leftovers", h.Leftovers))
	}
	return d
}

// BuildInfo says which program this is.
type BuildInfo struct {
	Version string `json:"version"`
	Commit  string `json:"commit"`
	Go      string `json:"go"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
}

// Version is the document of version.
func Version(b BuildInfo) Document {
	line := "agents " + b.Version
	if b.Commit != "" {
		line += " (" + b.Commit + ")"
	}
	return Document{
		Keys:   []Field{{"version", b}},
		Blocks: []Block{Note(strings.Join([]string{line, b.Go, b.OS + "/" + b.Arch}, " "))},
	}
}

// Upgraded is the document of db upgrade.
func Upgraded(path string, from, to int) Document {
	text := "Already at version " + strconv.Itoa(to)
	if from != to {
		text = "Upgraded from version " + strconv.Itoa(from) + " to " + strconv.Itoa(to)
	}
	return Document{
		Keys:   []Field{{"db", object{{"path", agents.EscapePath(path)}, {"from_version", from}, {"to_version", to}}}},
		Blocks: []Block{Footer{Text: text}},
	}
}
