package view

import (
	"fmt"
	"slices"
	"strconv"

	agents "github.com/cleveragents/agents"
)

func checkpointValue(c agents.Checkpoint) object {
	extra := c.Metadata.Extra
	if extra == nil {
		extra = map[string]string{}
	}
	return object{
		{"checkpoint_id", c.ID},
		{"plan_id", c.PlanID},
		{"decision_id", optional(c.DecisionID)},
		{"checkpoint_type", c.Type},
		{"resource_id", optional(c.ResourceID)},
		{"sandbox_ref", c.SandboxRef},
		{"filesystem_path", agents.EscapePath(c.FilesystemPath)},
		{"size_bytes", c.SizeBytes},
		{"created_at", Stamp(c.CreatedAt)},
		{"metadata", object{
			{"reason", c.Metadata.Reason},
			{"source_tool", c.Metadata.SourceTool},
			{"phase", c.Metadata.Phase},
			{"extra", extra},
		}},
		{"active", c.Active},
		{"damaged", c.Damaged},
		{"refs", rows(c.Refs, func(r agents.CheckpointRef) object {
			return object{
				{"sandbox_id", r.SandboxID}, {"resource", r.Resource}, {"sandbox_ref", r.Ref}, {"size_bytes", r.SizeBytes},
			}
		})},
	}
}

// Checkpoints is the document of plan checkpoint list: oldest first (U127).
func Checkpoints(list []agents.Checkpoint) Document {
	grid := Grid{Head: []string{"", "CHECKPOINT", "CREATED", "TYPE", "REASON", "TOOL", "SIZE"}, Empty: "No checkpoints."}
	for _, c := range list {
		mark := ""
		switch {
		case c.Damaged:
			mark = "!"
		case c.Active:
			mark = "*"
		}
		grid.Rows = append(grid.Rows, []string{
			mark, c.ID, clock(c.CreatedAt), string(c.Type), dash(firstLine(c.Metadata.Reason)), dash(c.Metadata.SourceTool), bytesText(c.SizeBytes),
		})
	}
	d := Document{
		Keys:   []Field{{"checkpoints", rows(list, checkpointValue)}},
		Blocks: []Block{grid},
	}
	if slices.ContainsFunc(list, func(c agents.Checkpoint) bool { return c.Damaged }) {
		d.Blocks = append(d.Blocks, Note("! removed or damaged: it cannot be restored"))
	}
	return d
}

// Checkpoint is the document of plan checkpoint create and show. show is a
// command line that shows the content, or ""; a damaged one has none to show.
func Checkpoint(c agents.Checkpoint, show string) Document {
	panel := Panel{Title: "Checkpoint", Rows: [][2]string{
		{"Checkpoint ID", c.ID},
		{"Plan ID", c.PlanID},
		{"Type", string(c.Type)},
		{"Created", clock(c.CreatedAt)},
		{"Reason", dash(firstLine(c.Metadata.Reason))},
		{"Tool", dash(c.Metadata.SourceTool)},
		{"Phase", dash(c.Metadata.Phase)},
		{"Size", bytesText(c.SizeBytes)},
		{"Active", yesNo(c.Active)},
	}}
	if c.Damaged {
		panel.Rows = append(panel.Rows, [2]string{"Damaged", "yes: it cannot be restored"})
	}
	if c.DecisionID != "" {
		panel.Rows = append(panel.Rows, [2]string{"Decision", c.DecisionID})
	}
	for _, r := range c.Refs {
		panel.Rows = append(panel.Rows, [2]string{"Resource", r.Resource + " " + r.Ref})
	}
	d := Document{Keys: []Field{{"checkpoint", checkpointValue(c)}}, Blocks: []Block{panel}}
	if show != "" && !c.Damaged {
		d = d.With("show_command", show)
		d.Blocks = append(d.Blocks, Note("Show its content:"), Note("  "+show))
	}
	return d
}

// CheckpointsDeleted is the document of plan checkpoint delete.
func CheckpointsDeleted(ids []string, freed int64) Document {
	return Document{
		Keys: []Field{
			{"deleted", rows(ids, func(s string) string { return s })},
			{"freed_bytes", freed},
		},
		Blocks: []Block{Footer{Text: fmt.Sprintf("Deleted %s, freed %s", plural(len(ids), "checkpoint"), bytesText(freed))}},
	}
}

// RollbackDone is the first message of a rollback that was carried out
// (checkpointing.md, "Rollback to a checkpoint").
const RollbackDone = "Rollback completed successfully."

// Rollback is the document of plan rollback, with the specification's keys.
func Rollback(r agents.RollbackResult) Document {
	messages := r.Messages
	if !r.DryRun && (len(messages) == 0 || messages[0] != RollbackDone) {
		messages = append([]string{RollbackDone}, messages...)
	}
	d := Document{
		Keys:     rollbackKeys(r),
		Messages: messages,
		Blocks: []Block{
			Panel{Title: "Rollback Summary", Rows: [][2]string{
				{"Plan ID", r.PlanID},
				{"Checkpoint", r.FromCheckpointID},
				{"Files restored", strconv.Itoa(r.RestoredFilesCount)},
				{"Safety checkpoint", dash(r.SafetyCheckpointID)},
			}},
			changesReverted(r),
			Panel{Title: "Impact", Rows: [][2]string{
				{"Decisions superseded", strconv.Itoa(r.DecisionsSuperseded)},
				{"Child plans cancelled", strconv.Itoa(r.ChildPlansCancelled)},
				{"Tool calls after", strconv.Itoa(r.ToolCallsAfter)},
			}},
			Panel{Title: "Post-Rollback State", Rows: [][2]string{
				{"Active checkpoint", dash(r.ActiveCheckpointID)},
				{"State", string(r.Phase) + "/" + string(r.State)},
				{"Checkpoints", strconv.Itoa(r.CheckpointsRemaining)},
			}},
		},
	}
	if r.DryRun {
		d = d.With("dry_run", true)
		d.Blocks = append(d.Blocks, Note("Dry run: nothing was changed"))
		return d
	}
	d.Blocks = append(d.Blocks, messageLines(messages[1:])...)
	d.Blocks = append(d.Blocks, Footer{Text: "Rollback completed"})
	return d
}

func rollbackKeys(r agents.RollbackResult) []Field {
	return []Field{
		{"rollback_summary", object{
			{"plan_id", r.PlanID},
			{"from_checkpoint_id", r.FromCheckpointID},
			{"restored_files_count", r.RestoredFilesCount},
		}},
		{"changes_reverted", escaped(r.ChangedPaths)},
		{"impact", object{
			{"files_affected", len(r.ChangedPaths)},
			{"decisions_superseded", r.DecisionsSuperseded},
			{"child_plans_cancelled", r.ChildPlansCancelled},
			{"tool_calls_after", r.ToolCallsAfter},
		}},
		{"post_rollback_state", object{
			{"active_checkpoint", optional(r.ActiveCheckpointID)},
			{"plan_id", r.PlanID},
			{"phase", r.Phase},
			{"state", r.State},
			{"checkpoints_remaining", r.CheckpointsRemaining},
		}},
		{"changes", rows(r.Changes, func(c agents.RestoredPath) object {
			return object{{"resource", c.Resource}, {"path", agents.EscapePath(c.Path)}, {"action", c.Action}}
		})},
		{"safety_checkpoint_id", optional(r.SafetyCheckpointID)},
	}
}

func changesReverted(r agents.RollbackResult) Block {
	const most = 20
	var lines []string
	for _, c := range r.Changes {
		if c.Action == "unchanged" {
			continue
		}
		lines = append(lines, fmt.Sprintf("%-8s  %s", c.Action, Printable(c.Path)))
	}
	if n := len(lines); n > most {
		lines = append(lines[:most], fmt.Sprintf("… and %d more", n-most))
	}
	if len(lines) == 0 {
		lines = []string{"nothing differed"}
	}
	return linesPanel("Changes Reverted", lines)
}
