package view

import (
	"encoding/json"
	"strconv"
	"strings"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/tool"
)

func resourceValue(r agents.Resource, strategy Strategist) object {
	return object{
		{"resource_id", r.ID},
		{"name", r.Name},
		{"type", r.Type},
		{"location", agents.EscapePath(r.Location)},
		{"branch", optional(agents.EscapePath(r.Branch))},
		{"strategy", strategy(r)},
		{"strategy_override", optional(r.Strategy)},
		{"read_only", r.ReadOnly},
		{"created_at", Stamp(r.CreatedAt)},
	}
}

// Resources is the document of resource list; it shows strategy and read-only
// (U109).
func Resources(list []agents.Resource, strategy Strategist) Document {
	return Document{
		Keys: []Field{{"resources", rows(list, func(r agents.Resource) object { return resourceValue(r, strategy) })}},
		Blocks: []Block{
			resourceGrid("", list, strategy),
		},
	}
}

func resourceGrid(title string, list []agents.Resource, strategy Strategist) Grid {
	grid := Grid{Title: title, Head: []string{"NAME", "TYPE", "STRATEGY", "READ-ONLY", "LOCATION"}, Empty: "No resources."}
	for _, r := range list {
		grid.Rows = append(grid.Rows, []string{r.Name, string(r.Type), string(strategy(r)), yesNo(r.ReadOnly), Printable(r.Location)})
	}
	return grid
}

// Resource is the document of resource add, show and remove; done is the
// footer, "" for none.
func Resource(r agents.Resource, strategy Strategist, done string) Document {
	panel := Panel{Title: "Resource", Rows: [][2]string{
		{"Resource ID", r.ID},
		{"Name", r.Name},
		{"Type", string(r.Type)},
		{"Location", Printable(r.Location)},
		{"Branch", dash(Printable(r.Branch))},
		{"Strategy", string(strategy(r))},
		{"Read-only", yesNo(r.ReadOnly)},
	}}
	return finished(Document{Keys: []Field{{"resource", resourceValue(r, strategy)}}, Blocks: []Block{panel}}, done)
}

func typeValue(t agents.TypeInfo) object {
	return object{
		{"name", t.Type},
		{"strategy", t.Strategy},
		{"allowed_strategies", t.Allowed},
		{"location_is_url", t.LocationURL},
		{"description", t.Description},
	}
}

// ResourceTypes is the document of resource type list.
func ResourceTypes(list []agents.TypeInfo) Document {
	grid := Grid{Head: []string{"TYPE", "STRATEGY", "DESCRIPTION"}}
	for _, t := range list {
		grid.Rows = append(grid.Rows, []string{string(t.Type), string(t.Strategy), t.Description})
	}
	return Document{Keys: []Field{{"types", rows(list, typeValue)}}, Blocks: []Block{grid}}
}

// ResourceType is the document of resource type show.
func ResourceType(t agents.TypeInfo) Document {
	var allowed []string
	for _, s := range t.Allowed {
		allowed = append(allowed, string(s))
	}
	location := "path"
	if t.LocationURL {
		location = "URL"
	}
	return Document{
		Keys: []Field{{"type", typeValue(t)}},
		Blocks: []Block{Panel{Title: "Resource Type", Rows: [][2]string{
			{"Type", string(t.Type)},
			{"Description", t.Description},
			{"Strategy", string(t.Strategy)},
			{"Allowed", strings.Join(allowed, ", ")},
			{"Location", location},
		}}},
	}
}

func projectValue(p agents.Project, strategy Strategist) object {
	return object{
		{"project_id", p.ID},
		{"name", p.Name},
		{"resources", rows(p.Resources, func(r agents.Resource) object { return resourceValue(r, strategy) })},
		{"created_at", Stamp(p.CreatedAt)},
	}
}

// Projects is the document of project list.
func Projects(list []agents.Project, strategy Strategist) Document {
	grid := Grid{Head: []string{"NAME", "RESOURCES", "CREATED"}, Empty: "No projects."}
	for _, p := range list {
		var names []string
		for _, r := range p.Resources {
			names = append(names, r.Name)
		}
		grid.Rows = append(grid.Rows, []string{p.Name, dash(strings.Join(names, ",")), clock(p.CreatedAt)})
	}
	return Document{
		Keys:   []Field{{"projects", rows(list, func(p agents.Project) object { return projectValue(p, strategy) })}},
		Blocks: []Block{grid},
	}
}

// Project is the document of one project; done is the footer, "" for none.
func Project(p agents.Project, strategy Strategist, done string) Document {
	return finished(Document{
		Keys: []Field{{"project", projectValue(p, strategy)}},
		Blocks: []Block{
			Panel{Title: "Project", Rows: [][2]string{{"Project ID", p.ID}, {"Name", p.Name}, {"Created", clock(p.CreatedAt)}}},
			resourceGrid("Resources", p.Resources, strategy),
		},
	}, done)
}

func actionValue(a agents.Action) object {
	return object{
		{"action_id", a.ID},
		{"name", a.Name},
		{"description", a.Description},
		{"arguments", rows(a.Arguments, func(x agents.Argument) agents.Argument { return x })},
		{"require_checkpoints", a.RequireCheckpoints},
		{"read_only", a.ReadOnly},
		{"steps", rows(a.Steps, func(s agents.Step) object {
			with := s.With
			if with == nil {
				with = map[string]any{}
			}
			return object{
				{"step_id", s.ID}, {"tool", s.Tool}, {"resource", optional(s.Resource)}, {"with", with},
				{"on_failure", s.OnFailure}, {"continue", s.Continue},
			}
		})},
		{"created_at", Stamp(a.CreatedAt)},
	}
}

// Actions is the document of action list.
func Actions(list []agents.Action) Document {
	grid := Grid{Head: []string{"NAME", "STEPS", "ARGUMENTS", "DESCRIPTION"}, Empty: "No actions."}
	for _, a := range list {
		grid.Rows = append(grid.Rows, []string{a.Name, strconv.Itoa(len(a.Steps)), dash(argumentNames(a)), dash(firstLine(a.Description))})
	}
	return Document{Keys: []Field{{"actions", rows(list, actionValue)}}, Blocks: []Block{grid}}
}

// Action is the document of action create and show; done is the footer, "" for none.
func Action(a agents.Action, done string) Document {
	steps := Grid{Title: "Steps", Head: []string{"STEP", "TOOL", "RESOURCE", "ON FAILURE"}, Empty: "No steps."}
	for _, s := range a.Steps {
		steps.Rows = append(steps.Rows, []string{s.ID, s.Tool, dash(s.Resource), string(s.OnFailure)})
	}
	return finished(Document{
		Keys: []Field{{"action", actionValue(a)}},
		Blocks: []Block{
			Panel{Title: "Action", Rows: [][2]string{
				{"Name", a.Name},
				{"Description", dash(firstLine(a.Description))},
				{"Arguments", dash(argumentNames(a))},
				{"Require checkpoints", yesNo(a.RequireCheckpoints)},
			}},
			steps,
		},
	}, done)
}

func argumentNames(a agents.Action) string {
	var names []string
	for _, x := range a.Arguments {
		name := x.Name
		if !x.Required {
			name = "[" + name + "]"
		}
		names = append(names, name)
	}
	return strings.Join(names, " ")
}

// Tools is the document of tool list.
func Tools(list []tool.Spec) Document {
	grid := Grid{Head: []string{"TOOL", "WRITES", "SCOPE", "ROLLBACK", "DESCRIPTION"}, Empty: "No tools."}
	for _, s := range list {
		grid.Rows = append(grid.Rows, []string{
			s.Name, yesNo(s.Capability.Writes), dash(string(s.Capability.EffectiveScope())), string(s.Capability.RollbackMechanism), firstLine(s.Description),
		})
	}
	return Document{
		Keys: []Field{{"tools", rows(list, func(s tool.Spec) object {
			o := object{{"name", s.Name}, {"description", s.Description}, {"capability", s.Capability}}
			if json.Valid(s.Input) {
				o = append(o, Field{"input_schema", s.Input})
			}
			return o
		})}},
		Blocks: []Block{grid},
	}
}

// Profiles is the document of automation-profile list.
func Profiles(list []agents.Profile) Document {
	grid := Grid{Head: []string{"PROFILE", "REQUIRE SANDBOX", "REQUIRE CHECKPOINTS", "ALLOW UNSAFE TOOLS"}}
	for _, p := range list {
		grid.Rows = append(grid.Rows, []string{p.Name, yesNo(p.RequireSandbox), yesNo(p.RequireCheckpoints), yesNo(p.AllowUnsafeTools)})
	}
	return Document{Keys: []Field{{"automation_profiles", list}}, Blocks: []Block{grid}}
}

// Profile is the document of automation-profile show.
func Profile(p agents.Profile) Document {
	return Document{
		Keys: []Field{{"automation_profile", p}},
		Blocks: []Block{Panel{Title: "Automation Profile", Rows: [][2]string{
			{"Name", p.Name},
			{"Require sandbox", yesNo(p.RequireSandbox)},
			{"Require checkpoints", yesNo(p.RequireCheckpoints)},
			{"Allow unsafe tools", yesNo(p.AllowUnsafeTools)},
		}}},
	}
}

// finished adds a footer to a document.
func finished(d Document, done string) Document {
	if done != "" {
		d.Blocks = append(d.Blocks, Footer{Text: done})
	}
	return d
}
