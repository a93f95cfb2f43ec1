package view

import (
	"fmt"
	"strconv"
	"strings"

	agents "github.com/cleveragents/agents"
)

// Strategist says which strategy a resource gets.
type Strategist func(agents.Resource) agents.StrategyName

type planRow struct {
	PlanID             string        `json:"plan_id"`
	Name               string        `json:"name"`
	Action             string        `json:"action"`
	Phase              agents.Phase  `json:"phase"`
	State              string        `json:"state"`
	Actor              string        `json:"actor"`
	Profile            string        `json:"profile"`
	RequireCheckpoints bool          `json:"require_checkpoints"`
	Projects           []string      `json:"projects"`
	Resources          []resourceRow `json:"resources"`
	CreatedAt          Stamp         `json:"created_at"`
	UpdatedAt          Stamp         `json:"updated_at"`
	AppliedAt          Stamp         `json:"applied_at"`
}

type resourceRow struct {
	ResourceID string              `json:"resource_id"`
	Name       string              `json:"name"`
	Type       agents.ResourceType `json:"type"`
	Location   string              `json:"location"`
	Strategy   agents.StrategyName `json:"strategy"`
}

// PlanValue is the value of the key "plan".
func PlanValue(p agents.Plan, strategy Strategist) any {
	return planRow{
		PlanID: p.ID, Name: p.Name, Action: p.Action, Phase: p.Phase, State: string(p.State),
		Actor: p.Actor, Profile: p.Profile, RequireCheckpoints: p.RequireCheckpoints,
		Projects: rows(p.Projects, func(s string) string { return s }),
		Resources: rows(p.Resources, func(r agents.Resource) resourceRow {
			return resourceRow{r.ID, r.Name, r.Type, agents.EscapePath(r.Location), strategy(p.Boundary(r))}
		}),
		CreatedAt: Stamp(p.CreatedAt), UpdatedAt: Stamp(p.UpdatedAt), AppliedAt: Stamp(p.AppliedAt),
	}
}

// Plan is the document of plan create and plan use.
func Plan(p agents.Plan, strategy Strategist) Document {
	return Document{
		Keys: []Field{{"plan", PlanValue(p, strategy)}},
		Blocks: []Block{
			planPanel("Plan", p, strategy),
			Footer{Text: "Plan created"},
		},
	}
}

func planPanel(title string, p agents.Plan, strategy Strategist) Panel {
	panel := Panel{Title: title, Rows: [][2]string{{"Plan ID", p.ID}}}
	add := func(label, value string) {
		if value != "" {
			panel.Rows = append(panel.Rows, [2]string{label, value})
		}
	}
	add("Name", p.Name)
	add("Action", p.Action)
	add("State", p.Position().String())
	add("Profile", p.Profile)
	add("Projects", strings.Join(p.Projects, ", "))
	for _, r := range p.Resources {
		how := string(strategy(r))
		if r.Boundary != "" {
			boundary := p.Boundary(r)
			how = "in the sandbox of " + boundary.Name
		}
		add("Resource", fmt.Sprintf("%s (%s, %s) %s", r.Name, r.Type, how, Printable(r.Location)))
	}
	add("Created", clock(p.CreatedAt))
	if !p.AppliedAt.IsZero() {
		add("Applied", clock(p.AppliedAt))
	}
	return panel
}

// Plans is the document of plan list. The plans come in the order in which it
// prints them. One without a name shows the command that drove it, if that is
// not user.
func Plans(plans []agents.Plan, strategy Strategist, user string) Document {
	grid := Grid{Head: []string{"PLAN", "NAME", "STATE", "RESOURCES", "CREATED"}, Empty: "No plans."}
	for _, p := range plans {
		var names []string
		for _, r := range p.Resources {
			names = append(names, r.Name)
		}
		grid.Rows = append(grid.Rows, []string{p.ID, dash(called(p, user)), p.Position().String(), dash(strings.Join(names, ",")), clock(p.CreatedAt)})
	}
	return Document{
		Keys:   []Field{{"plans", rows(plans, func(p agents.Plan) any { return PlanValue(p, strategy) })}},
		Blocks: []Block{grid},
	}
}

// called is a plan's name or, in brackets, the command that it is of.
func called(p agents.Plan, user string) string {
	if p.Name != "" || p.Actor == "" || p.Actor == user {
		return p.Name
	}
	return "(" + firstLine(p.Actor) + ")"
}

type sandboxRow struct {
	SandboxID      string               `json:"sandbox_id"`
	Resource       string               `json:"resource"`
	Strategy       agents.StrategyName  `json:"strategy"`
	Status         agents.SandboxStatus `json:"status"`
	Path           string               `json:"path"`
	HostPath       *string              `json:"host_path"`
	Branch         string               `json:"branch"`
	OriginalBranch string               `json:"original_branch"`
	Base           string               `json:"base"`
	SizeBytes      int64                `json:"size_bytes"`
	Enforced       string               `json:"enforced"`
}

func sandboxRows(list []agents.SandboxState) []sandboxRow {
	return rows(list, func(s agents.SandboxState) sandboxRow {
		row := sandboxRow(s)
		row.Path = agents.EscapePath(s.Path)
		if s.HostPath != nil {
			host := agents.EscapePath(*s.HostPath)
			row.HostPath = &host
		}
		row.Branch, row.OriginalBranch = agents.EscapePath(s.Branch), agents.EscapePath(s.OriginalBranch)
		return row
	})
}

func sandboxGrid(list []agents.SandboxState) Grid {
	grid := Grid{Title: "Sandboxes", Head: []string{"RESOURCE", "STRATEGY", "STATUS", "SIZE", "BRANCH", "PATH"}, Empty: "None yet: a sandbox is made when a tool first needs it."}
	for _, s := range list {
		grid.Rows = append(grid.Rows, []string{
			s.Resource, string(s.Strategy), string(s.Status), bytesText(s.SizeBytes), dash(Printable(s.Branch)), Printable(s.Path),
		})
	}
	return grid
}

// Status is the document of plan status. An errored plan is a problem with
// the plan's error beside it (U121).
func Status(st agents.PlanStatus, strategy Strategist) Document {
	panel := planPanel("Plan", st.Plan, strategy)
	panel.Rows = append(panel.Rows, [2]string{"Checkpoints", strconv.Itoa(st.Checkpoints)})
	if st.Running {
		panel.Rows = append(panel.Rows, [2]string{"Running", "in another process"})
	}
	for _, r := range st.Resources {
		if r.ApplyState != "" {
			panel.Rows = append(panel.Rows, [2]string{"Apply", r.Resource + ": " + string(r.ApplyState)})
		}
	}
	d := Document{
		Keys: []Field{
			{"plan", PlanValue(st.Plan, strategy)},
			{"sandboxes", sandboxRows(st.Sandboxes)},
			{"checkpoints", st.Checkpoints},
			{"resources", rows(st.Resources, func(r agents.ResourceState) object {
				return object{
					{"resource", r.Resource}, {"apply_state", optional(r.ApplyState)}, {"boundary", optional(r.Boundary)},
					{"strategy", optional(r.Strategy)}, {"path", optional(agents.EscapePath(r.Path))},
				}
			})},
			{"running", st.Running},
		},
		Blocks: []Block{panel, sandboxGrid(st.Sandboxes)},
	}
	if len(st.Plan.Steps) > 0 {
		d = d.With("steps", stepRows(st.Plan.Steps))
		d.Blocks = append(d.Blocks, stepGrid(st.Plan.Steps))
	}
	if e := st.Plan.Error; e != nil {
		d.Blocks = append(d.Blocks, errorPanel(*e))
	}
	return d
}

func errorPanel(e agents.PlanError) Panel {
	return Panel{Title: "Error", Rows: [][2]string{
		{"Message", firstLine(e.Message)},
		{"Tool", dash(e.Tool)},
		{"Step", dash(e.Step)},
		{"Checkpoint", dash(e.Checkpoint)},
		{"Recoverable", yesNo(e.Recoverable)},
	}}
}

func stepRows(steps []agents.Step) []object {
	return rows(steps, func(s agents.Step) object {
		status := s.Status
		if status == "" {
			status = agents.StepPending
		}
		return object{
			{"step_id", s.ID},
			{"tool", s.Tool},
			{"status", status},
			{"before_checkpoint_id", optional(s.BeforeCheckpointID)},
			{"after_checkpoint_id", optional(s.AfterCheckpointID)},
			{"error", optional(s.Error)},
		}
	})
}

func stepGrid(steps []agents.Step) Grid {
	grid := Grid{Title: "Steps", Head: []string{"STEP", "TOOL", "STATUS", "BEFORE", "AFTER", "ERROR"}, Empty: "No steps."}
	for _, s := range steps {
		status := string(s.Status)
		if status == "" {
			status = string(agents.StepPending)
		}
		grid.Rows = append(grid.Rows, []string{s.ID, s.Tool, status, dash(s.BeforeCheckpointID), dash(s.AfterCheckpointID), dash(firstLine(s.Error))})
	}
	return grid
}

// Execute is the document of plan execute.
func Execute(r agents.ExecuteResult, strategy Strategist, dryRun bool) Document {
	d := Document{
		Keys: []Field{
			{"plan", PlanValue(r.Plan, strategy)},
			{"steps", stepRows(r.Plan.Steps)},
			{"sandboxes", sandboxRows(r.Sandboxes)},
			{"resume", optional(r.Resume)},
		},
		Messages: r.Messages,
		Blocks:   []Block{planPanel("Plan", r.Plan, strategy), stepGrid(r.Plan.Steps)},
	}
	if dryRun {
		text := "Nothing to do"
		if r.Resume != "" {
			text = "Would start at step " + r.Resume
		}
		d = d.With("dry_run", true)
		d.Blocks = append(d.Blocks, Note(text))
		return d
	}
	d = d.Merge(Diff(r.Diff))
	d.Blocks = append(d.Blocks, messageLines(r.Messages)...)
	return d
}

// Events is the document of plan events.
func Events(events []agents.Event) Document {
	grid := Grid{Head: []string{"TIME", "KIND", "MESSAGE"}, Empty: "No events."}
	for _, e := range events {
		grid.Rows = append(grid.Rows, []string{clock(e.CreatedAt), e.Kind, firstLine(e.Message)})
	}
	return Document{
		Keys: []Field{{"events", rows(events, func(e agents.Event) object {
			data := e.Data
			if data == nil {
				data = map[string]string{}
			}
			return object{
				{"event_id", e.ID}, {"plan_id", e.PlanID}, {"kind", e.Kind}, {"message", e.Message},
				{"data", data}, {"created_at", Stamp(e.CreatedAt)},
			}
		})}},
		Blocks: []Block{grid},
	}
}

// PlanErrors is the document of plan errors: why the plan is errored, and
// every tool call that failed, oldest first.
func PlanErrors(p agents.Plan, calls []agents.Invocation) Document {
	grid := Grid{Head: []string{"TIME", "TOOL", "STEP", "EXIT", "ROLLED BACK", "MESSAGE"}, Empty: "No errors."}
	list := []object{}
	for _, c := range calls {
		if c.Error == "" && c.ExitCode == 0 {
			continue
		}
		grid.Rows = append(grid.Rows, []string{
			clock(c.EndedAt), c.Tool, dash(c.StepID), strconv.Itoa(c.ExitCode), yesNo(c.RolledBack), dash(firstLine(c.Error)),
		})
		list = append(list, object{
			{"message", c.Error}, {"tool", c.Tool}, {"step", c.StepID}, {"checkpoint", c.BeforeCheckpointID},
			{"invocation_id", c.ID}, {"exit_code", c.ExitCode}, {"rolled_back", c.RolledBack}, {"created_at", Stamp(c.EndedAt)},
		})
	}
	d := Document{Keys: []Field{{"errors", list}, {"plan_error", p.Error}}, Blocks: []Block{grid}}
	if p.Error != nil {
		d.Blocks = append(d.Blocks, errorPanel(*p.Error))
	}
	return d
}

// Cancel is the document of plan cancel.
func Cancel(r agents.CancelResult, strategy Strategist) Document {
	panel := Panel{Title: "Plan Cancelled", Rows: [][2]string{{"Plan ID", r.Plan.ID}, {"State", r.Plan.Position().String()}}}
	if r.Reason != "" {
		panel.Rows = append(panel.Rows, [2]string{"Reason", r.Reason})
	}
	for _, s := range r.Sandboxes {
		kept := "removed"
		if s.Kept {
			kept = "kept"
		}
		panel.Rows = append(panel.Rows, [2]string{"Sandbox", fmt.Sprintf("%s %s, %s", s.Resource, kept, s.Status)})
	}
	d := Document{
		Keys: []Field{
			{"plan", PlanValue(r.Plan, strategy)},
			{"reason", r.Reason},
			{"sandboxes", rows(r.Sandboxes, func(s agents.CancelledSandbox) agents.CancelledSandbox { return s })},
			{"recovery", rows(r.Recovery, func(s string) string { return s })},
		},
		Blocks: []Block{panel},
	}
	if len(r.Recovery) > 0 {
		d.Blocks = append(d.Blocks, linesPanel("Recovery", r.Recovery))
	}
	d.Blocks = append(d.Blocks, Footer{Text: "Plan cancelled"})
	return d
}

// Update is the document of plan update.
func Update(r agents.UpdateResult, strategy Strategist) Document {
	d := Document{
		Keys: []Field{
			{"plan", PlanValue(r.Plan, strategy)},
			{"resources", resultRows(r.Resources)},
		},
		Messages: r.Messages,
		Blocks:   []Block{resultGrid("Updated", r.Resources)},
	}
	d.Blocks = append(d.Blocks, conflictBlocks(r.Resources)...)
	d.Blocks = append(d.Blocks, messageLines(r.Messages)...)
	return d
}

// Export is the document of plan export; one of branch and patch is set.
func Export(planID, branch, patch, made string) Document {
	return Document{
		Keys: []Field{{"export", object{
			{"plan_id", planID},
			{"branch", optional(agents.EscapePath(branch))},
			{"patch", optional(agents.EscapePath(patch))},
			{"result", agents.EscapePath(made)},
		}}},
		Blocks: []Block{Footer{Text: "Exported to " + Printable(made)}},
	}
}

// NextSteps is the part of a document that says what to type next.
func NextSteps(steps []string) Document {
	d := Document{Keys: []Field{{"next_steps", rows(steps, func(s string) string { return s })}}}
	if len(steps) > 0 {
		d.Blocks = []Block{linesPanel("Next Steps", steps)}
	}
	return d
}

func linesPanel(title string, lines []string) Panel {
	p := Panel{Title: title}
	for _, l := range lines {
		p.Rows = append(p.Rows, [2]string{"", l})
	}
	return p
}

func messageLines(messages []string) []Block {
	var out []Block
	for _, m := range messages {
		out = append(out, Note(Clean(m)))
	}
	return out
}

func firstLine(s string) string {
	first, _, more := strings.Cut(s, "\n")
	if more {
		first += " …"
	}
	return Printable(first)
}
