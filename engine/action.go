package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"text/template"

	"go.yaml.in/yaml/v3"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/metastore"
	"github.com/cleveragents/agents/tool"
)

// CreateAction reads an action file (CLI.md, "An action file") and stores it.
// What is wrong with it is agents.ErrInvalid and names the line; a name that
// is taken is agents.ErrExists. Nothing is stored then.
func (e *Engine) CreateAction(ctx context.Context, source []byte) (agents.Action, error) {
	a, err := e.parseAction(source)
	if err != nil {
		return agents.Action{}, err
	}
	a.ID, a.CreatedAt = agents.NewID(e.now()), e.now()
	err = e.store.Write(ctx, func(tx *metastore.Tx) error { return tx.Actions().Insert(&a) })
	return a, err
}

// Actions lists the stored actions by name.
func (e *Engine) Actions(ctx context.Context) (out []agents.Action, err error) {
	err = e.store.Read(ctx, func(tx *metastore.Tx) error {
		out, err = tx.Actions().List()
		return err
	})
	return out, err
}

// Action returns the action with this name, or agents.ErrNotFound.
func (e *Engine) Action(ctx context.Context, name string) (a agents.Action, err error) {
	err = e.store.Read(ctx, func(tx *metastore.Tx) error {
		a, err = tx.Actions().ByName(name)
		return err
	})
	return a, err
}

// actionFile is the YAML of an action.
type actionFile struct {
	Name               string         `yaml:"name"`
	Description        string         `yaml:"description"`
	Arguments          []argumentFile `yaml:"arguments"`
	RequireCheckpoints bool           `yaml:"require_checkpoints"`
	ReadOnly           bool           `yaml:"read_only"`
	Steps              []stepFile     `yaml:"steps"`
}

type argumentFile struct {
	Name     string  `yaml:"name"`
	Required bool    `yaml:"required"`
	Default  *string `yaml:"default"`
}

type stepFile struct {
	ID        string         `yaml:"id"`
	Tool      string         `yaml:"tool"`
	Resource  string         `yaml:"resource"`
	With      map[string]any `yaml:"with"`
	OnFailure string         `yaml:"on_failure"`
	Continue  bool           `yaml:"continue"`
	line      int
}

// UnmarshalYAML keeps the line of a step for messages, and refuses unknown
// keys, which a decoder's own setting does not reach from here.
func (s *stepFile) UnmarshalYAML(node *yaml.Node) error {
	known := []string{"id", "tool", "resource", "with", "on_failure", "continue"}
	if node.Kind == yaml.MappingNode {
		for i := 0; i < len(node.Content); i += 2 {
			if key := node.Content[i]; !slices.Contains(known, key.Value) {
				return fmt.Errorf("line %d: unknown key %q in a step; want %s", key.Line, key.Value, strings.Join(known, ", "))
			}
		}
	}
	type plain stepFile
	if err := node.Decode((*plain)(s)); err != nil {
		return err
	}
	s.line = node.Line
	return nil
}

func (e *Engine) parseAction(source []byte) (agents.Action, error) {
	dec := yaml.NewDecoder(bytes.NewReader(source))
	dec.KnownFields(true)
	var f actionFile
	if err := dec.Decode(&f); err != nil {
		if errors.Is(err, io.EOF) {
			return agents.Action{}, fmt.Errorf("action file: it is empty: %w", agents.ErrInvalid)
		}
		return agents.Action{}, fmt.Errorf("action file: %s: %w", strings.TrimPrefix(err.Error(), "yaml: "), agents.ErrInvalid)
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return agents.Action{}, fmt.Errorf("action file: more than one document: %w", agents.ErrInvalid)
	}
	a := agents.Action{Name: f.Name, Description: f.Description, RequireCheckpoints: f.RequireCheckpoints, ReadOnly: f.ReadOnly}
	if err := agents.ValidateName("action name", f.Name); err != nil {
		return agents.Action{}, err
	}
	for _, arg := range f.Arguments {
		if err := agents.ValidateName("argument name", arg.Name); err != nil {
			return agents.Action{}, err
		}
		a.Arguments = append(a.Arguments, agents.Argument(arg))
	}
	for i, s := range f.Steps {
		step, err := e.parseStep(i, s, a.Steps)
		if err == nil {
			err = e.checkStep(step, a.Arguments)
		}
		if err != nil {
			return agents.Action{}, fmt.Errorf("action file: line %d: %w", s.line, err)
		}
		a.Steps = append(a.Steps, step)
	}
	return a, nil
}

func (e *Engine) parseStep(i int, s stepFile, before []agents.Step) (agents.Step, error) {
	step := agents.Step{
		ID: s.ID, Tool: s.Tool, Resource: s.Resource, With: s.With,
		OnFailure: agents.OnFailure(s.OnFailure), Continue: s.Continue, Status: agents.StepPending,
	}
	if step.ID == "" {
		step.ID = fmt.Sprintf("step-%d", i+1)
	}
	if err := agents.ValidateName("step id", step.ID); err != nil {
		return step, err
	}
	if slices.ContainsFunc(before, func(b agents.Step) bool { return b.ID == step.ID }) {
		return step, fmt.Errorf("step id %q is given twice: %w", step.ID, agents.ErrInvalid)
	}
	if step.Tool == "" {
		return step, fmt.Errorf("step %s: no tool: %w", step.ID, agents.ErrInvalid)
	}
	t, err := e.tools.Lookup(step.Tool)
	if err != nil {
		return step, fmt.Errorf("step %s: %w: %w", step.ID, err, agents.ErrInvalid)
	}
	step.Tool = t.Spec().Name
	switch step.OnFailure {
	case "":
		step.OnFailure = agents.FailRollback
	case agents.FailRollback, agents.FailKeep:
	default:
		return step, fmt.Errorf("step %s: on_failure %q: want rollback or keep: %w", step.ID, s.OnFailure, agents.ErrInvalid)
	}
	return step, nil
}

// checkStep refuses a step that could not be bound to any arguments: a template
// that is none or uses one that is not declared, or an input without templates that does
// not fit its tool.
func (e *Engine) checkStep(step agents.Step, args []agents.Argument) error {
	some := map[string]string{}
	for _, arg := range args {
		some[arg.Name] = "x"
	}
	if _, err := fill(step.With, some); err != nil {
		return fmt.Errorf("step %s: %w: %w", step.ID, err, agents.ErrInvalid)
	}
	templates := false
	_ = eachString(step.With, func(text string) error { templates = templates || strings.Contains(text, "{{"); return nil })
	if templates {
		return nil
	}
	return e.checkInput(step)
}

// bind fills an action's templates with arguments and returns its steps.
// Missing and unknown arguments are agents.ErrInvalid and named.
func bind(a agents.Action, given map[string]string) ([]agents.Step, map[string]string, error) {
	values := map[string]string{}
	var known []string
	for _, arg := range a.Arguments {
		known = append(known, arg.Name)
		v, ok := given[arg.Name]
		switch {
		case ok:
			values[arg.Name] = v
		case arg.Default != nil:
			values[arg.Name] = *arg.Default
		case arg.Required:
			return nil, nil, fmt.Errorf("action %s: argument %s is required: %w", a.Name, arg.Name, agents.ErrInvalid)
		default:
			values[arg.Name] = ""
		}
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if !slices.Contains(known, name) {
			return nil, nil, fmt.Errorf("action %s: unknown argument %q; want %s: %w", a.Name, name, strings.Join(known, ", "), agents.ErrInvalid)
		}
	}
	steps := slices.Clone(a.Steps)
	for i := range steps {
		with, err := fill(steps[i].With, values)
		if err != nil {
			return nil, nil, fmt.Errorf("step %s: %w: %w", steps[i].ID, err, agents.ErrInvalid)
		}
		steps[i].With, _ = with.(map[string]any)
	}
	return steps, values, nil
}

// fill returns v with every string in it run as a template over values.
func fill(v any, values map[string]string) (any, error) {
	switch v := v.(type) {
	case string:
		t, err := parseTemplate(v)
		if err != nil {
			return nil, err
		}
		var b strings.Builder
		if err := t.Execute(&b, values); err != nil {
			if m := noEntry.FindStringSubmatch(err.Error()); m != nil {
				err = fmt.Errorf("template %q uses the argument %s, which the action does not declare", v, m[1])
			}
			return nil, err
		}
		return b.String(), nil
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, item := range v {
			filled, err := fill(item, values)
			if err != nil {
				return nil, err
			}
			out[k] = filled
		}
		return out, nil
	case []any:
		out := make([]any, len(v))
		for i, item := range v {
			filled, err := fill(item, values)
			if err != nil {
				return nil, err
			}
			out[i] = filled
		}
		return out, nil
	}
	return v, nil
}

// noEntry is how text/template tells of a value that is not there.
var noEntry = regexp.MustCompile(`map has no entry for key "([^"]*)"`)

func parseTemplate(text string) (*template.Template, error) {
	return template.New("with").Option("missingkey=error").Parse(text)
}

// eachString calls f for every string in v until one is refused.
func eachString(v any, f func(string) error) error {
	switch v := v.(type) {
	case string:
		return f(v)
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			if err := eachString(v[k], f); err != nil {
				return err
			}
		}
	case []any:
		for _, item := range v {
			if err := eachString(item, f); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkInput checks a step's input against its tool.
func (e *Engine) checkInput(s agents.Step) error {
	t, err := e.tools.Lookup(s.Tool)
	if err != nil {
		return fmt.Errorf("step %s: %w", s.ID, err)
	}
	input, err := stepInput(s)
	if err == nil {
		err = tool.CheckInput(t.Spec(), input)
	}
	if err != nil {
		return fmt.Errorf("step %s: %w", s.ID, err)
	}
	return nil
}

// checkSteps checks every step's input against its tool before a plan is
// stored, so that a bad one is refused before anything runs.
func (e *Engine) checkSteps(steps []agents.Step, resources []agents.Resource) error {
	for _, s := range steps {
		if err := e.checkInput(s); err != nil {
			return err
		}
		if _, err := pickResource(resources, s.Resource); err != nil {
			return fmt.Errorf("step %s: %w", s.ID, err)
		}
	}
	return nil
}
