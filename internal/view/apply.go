package view

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	agents "github.com/cleveragents/agents"
)

func resultRows(list []agents.ResourceResult) []object {
	return rows(list, func(r agents.ResourceResult) object {
		o := object{
			{"resource", r.Resource},
			{"state", r.State},
			{"commit_ref", optional(r.CommitRef)},
			{"added_files", escaped(r.Added)},
			{"changed_files", escaped(r.Changed)},
			{"deleted_files", escaped(r.Deleted)},
			{"conflicts", rows(r.Conflicts, func(c agents.PathReason) object {
				return object{{"path", agents.EscapePath(c.Path)}, {"reason", c.Reason}}
			})},
		}
		if r.Error != "" {
			o = append(o, Field{"error", r.Error})
		}
		return o
	})
}

// resultGrid is a line a resource.
func resultGrid(title string, list []agents.ResourceResult) Grid {
	grid := Grid{Title: title, Head: []string{"RESOURCE", "STATE", "ADDED", "CHANGED", "DELETED", "CONFLICTS", "COMMIT"}, Empty: "No resources."}
	for _, r := range list {
		grid.Rows = append(grid.Rows, []string{
			r.Resource, string(r.State), strconv.Itoa(len(r.Added)), strconv.Itoa(len(r.Changed)), strconv.Itoa(len(r.Deleted)),
			strconv.Itoa(len(r.Conflicts)), dash(r.CommitRef),
		})
	}
	return grid
}

func conflictBlocks(list []agents.ResourceResult) []Block {
	grid := Grid{Title: "Conflicts", Head: []string{"RESOURCE", "PATH", "REASON"}}
	for _, r := range list {
		for _, c := range r.Conflicts {
			grid.Rows = append(grid.Rows, []string{r.Resource, Printable(c.Path), firstLine(c.Reason)})
		}
		if len(r.Conflicts) == 0 && r.Error != "" {
			grid.Rows = append(grid.Rows, []string{r.Resource, "-", firstLine(r.Error)})
		}
	}
	if len(grid.Rows) == 0 {
		return nil
	}
	return []Block{grid}
}

func leftOutRows(list []agents.PathReason) []object {
	return rows(list, func(p agents.PathReason) object {
		return object{{"resource", p.Resource}, {"path", agents.EscapePath(p.Path)}, {"reason", p.Reason}}
	})
}

func leftOutBlocks(list []agents.PathReason) []Block {
	if len(list) == 0 {
		return nil
	}
	grid := Grid{Title: "Left Out", Head: []string{"RESOURCE", "PATH", "REASON"}}
	for _, p := range list {
		grid.Rows = append(grid.Rows, []string{dash(p.Resource), Printable(p.Path), firstLine(p.Reason)})
	}
	return []Block{grid}
}

// Apply is the document of plan apply, with the panels of sandbox.md, "Apply
// Phase". done is the footer of a success. Where nothing was applied, people
// see what stands in the way and no summary.
func Apply(r agents.ApplyResult) Document {
	d := Document{
		Keys: []Field{
			{"left_out", leftOutRows(r.LeftOut)},
			{"apply_summary", object{
				{"plan_id", r.PlanID},
				{"artifacts", r.Artifacts},
				{"insertions", r.Insertions},
				{"deletions", r.Deletions},
				{"project", optional(r.Project)},
				{"applied_at", Stamp(r.AppliedAt)},
			}},
			{"resources", resultRows(r.Resources)},
			{"sandbox_cleanup", object{
				{"worktree_removed", r.Cleanup.WorktreeRemoved},
				{"branch_merged", r.Cleanup.BranchMerged},
				{"branch", optional(agents.EscapePath(r.Cleanup.Branch))},
				{"checkpoints_removed", r.Cleanup.CheckpointsRemoved},
			}},
			{"next_steps", rows(r.NextSteps, func(s string) string { return s })},
		},
		Messages: r.Messages,
		Warn:     len(r.LeftOut) > 0,
	}
	conflicts := conflictBlocks(r.Resources)
	if !r.AppliedAt.IsZero() || r.DryRun && (conflicts == nil || r.Artifacts > 0) {
		d.Blocks = append(d.Blocks, applySummary(r))
	}
	if len(r.Resources) > 1 || len(r.Resources) == 1 && !succeeded(r) && conflicts == nil {
		d.Blocks = append(d.Blocks, resultGrid("Resources", r.Resources))
	}
	d.Blocks = append(d.Blocks, conflicts...)
	d.Blocks = append(d.Blocks, leftOutBlocks(r.LeftOut)...)
	if r.DryRun {
		d = d.With("dry_run", true)
		d.Blocks = append(d.Blocks, Note("Dry run: nothing was changed"))
		return d
	}
	if !r.AppliedAt.IsZero() && succeeded(r) {
		d.Blocks = append(d.Blocks, cleanupPanel(r)...)
	}
	if len(r.NextSteps) > 0 {
		d.Blocks = append(d.Blocks, linesPanel("Next Steps", r.NextSteps))
	}
	d.Blocks = append(d.Blocks, messageLines(r.Messages)...)
	if !r.AppliedAt.IsZero() && succeeded(r) {
		d.Blocks = append(d.Blocks, Footer{Text: applyFooter(r)})
	}
	return d
}

// applyFooter says whether there was anything to apply.
func applyFooter(r agents.ApplyResult) string {
	if slices.ContainsFunc(r.Resources, func(res agents.ResourceResult) bool { return res.State == agents.ApplyApplied }) {
		return "Changes applied"
	}
	return "Nothing to apply: the plan changed nothing"
}

// Undo is the document of plan undo. failed says that it ended in an error:
// people see what was reverted all the same, if anything was.
func Undo(r agents.ApplyResult, failed bool) Document {
	d := Document{
		Keys: []Field{
			{"plan_id", r.PlanID},
			{"resources", resultRows(r.Resources)},
			{"next_steps", rows(r.NextSteps, func(s string) string { return s })},
		},
		Messages: r.Messages,
	}
	if len(r.Resources) > 0 || !failed {
		panel := Panel{Title: "Undo Summary", Rows: [][2]string{{"Plan ID", r.PlanID}}}
		for _, res := range r.Resources {
			panel.Rows = append(panel.Rows, [2]string{"Resource", res.Resource + " " + string(res.State)})
		}
		d.Blocks = append(d.Blocks, panel)
	}
	if len(r.NextSteps) > 0 {
		d.Blocks = append(d.Blocks, linesPanel("Next Steps", r.NextSteps))
	}
	d.Blocks = append(d.Blocks, messageLines(r.Messages)...)
	if !failed {
		d.Blocks = append(d.Blocks, Footer{Text: "Apply taken back"})
	}
	return d
}

func succeeded(r agents.ApplyResult) bool {
	for _, res := range r.Resources {
		if res.State != agents.ApplyApplied && res.State != agents.ApplyUnchanged && !r.DryRun {
			return false
		}
	}
	return true
}

func applySummary(r agents.ApplyResult) Panel {
	return Panel{Title: "Apply Summary", Rows: [][2]string{
		{"Plan ID", r.PlanID},
		{"Artifacts", strconv.Itoa(r.Artifacts)},
		{"Insertions", strconv.Itoa(r.Insertions)},
		{"Deletions", strconv.Itoa(r.Deletions)},
		{"Project", dash(r.Project)},
		{"Applied at", clock(r.AppliedAt)},
	}}
}

// cleanupPanel says what became of the sandboxes, if there were any. Only a
// repository's has a worktree and a branch.
func cleanupPanel(r agents.ApplyResult) []Block {
	if r.Cleanup.Sandboxes == 0 {
		return nil
	}
	p := Panel{Title: "Sandbox Cleanup"}
	what, state := "Sandbox", "kept"
	if r.Cleanup.Branch != "" {
		what = "Worktree"
	}
	if r.Cleanup.WorktreeRemoved {
		state = "removed"
	}
	p.Rows = append(p.Rows, [2]string{what, state})
	if r.Cleanup.BranchMerged {
		p.Rows = append(p.Rows, [2]string{"Branch", strings.TrimSpace("merged " + mergedInto(r))})
	}
	p.Rows = append(p.Rows, [2]string{"Checkpoints", plural(r.Cleanup.CheckpointsRemoved, "payload") + " removed"})
	return []Block{p}
}

// mergedInto names the branches that took the result.
func mergedInto(r agents.ApplyResult) string {
	var into []string
	for _, res := range r.Resources {
		if res.State == agents.ApplyApplied && res.Into != "" {
			into = append(into, "to "+Printable(res.Into))
		}
	}
	return strings.Join(into, ", ")
}

// ApplyPreview is one line that says what applying would do, for a question.
func ApplyPreview(r agents.ApplyResult) string {
	added, changed, deleted := 0, 0, 0
	for _, res := range r.Resources {
		added, changed, deleted = added+len(res.Added), changed+len(res.Changed), deleted+len(res.Deleted)
	}
	line := fmt.Sprintf("%d added, %d changed, %d deleted", added, changed, deleted)
	if into := previewInto(r); into != "" {
		line += " " + into
	}
	return line
}

func previewInto(r agents.ApplyResult) string {
	var parts []string
	for _, res := range r.Resources {
		part := res.Resource
		if res.Into != "" {
			part += " (" + Printable(res.Into) + ")"
		}
		parts = append(parts, part)
	}
	if len(parts) == 0 {
		return ""
	}
	return "in " + strings.Join(parts, ", ")
}
