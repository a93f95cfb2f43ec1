package tool

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	agents "github.com/cleveragents/agents"
)

// CheckInput reports whether input is one JSON object that fits spec.Input. An
// error is agents.ErrInvalid and names the tool and the field; the hint lists
// the fields that there are. An empty input counts as {}. A tool without a
// schema takes any object. A schema that is none is agents.ErrInvalid too.
func CheckInput(spec Spec, input json.RawMessage) error {
	var fields map[string]any
	if len(bytes.TrimSpace(input)) == 0 {
		input = json.RawMessage("{}")
	}
	dec := json.NewDecoder(bytes.NewReader(input))
	if err := dec.Decode(&fields); err != nil {
		return refuse(spec, nil, "input is not a JSON object: %v", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return refuse(spec, nil, "input goes on after its JSON object")
	}
	if fields == nil {
		return refuse(spec, nil, "input is null, want a JSON object")
	}
	if len(spec.Input) == 0 {
		return nil
	}
	var schema jsonschema.Schema
	if err := json.Unmarshal(spec.Input, &schema); err != nil {
		return refuse(spec, nil, "input schema: %v", err)
	}
	return checkFields(spec, &schema, fields)
}

// checkFields finds unknown and missing fields itself, so that the message
// names them, and leaves everything else to the schema library.
func checkFields(spec Spec, schema *jsonschema.Schema, fields map[string]any) error {
	known := slices.Sorted(maps.Keys(schema.Properties))
	if closed(schema) {
		for _, name := range slices.Sorted(maps.Keys(fields)) {
			if !slices.Contains(known, name) {
				return refuse(spec, known, "field %q is unknown", clip(name))
			}
		}
	}
	for _, name := range schema.Required {
		if _, ok := fields[name]; !ok {
			return refuse(spec, known, "field %q is missing", name)
		}
	}
	resolved, err := schema.Resolve(nil)
	if err != nil {
		return refuse(spec, nil, "input schema: %v", err)
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		// One field at a time, so that the message can name it.
		if property := schema.Properties[name]; property != nil {
			if err := checkField(property, fields[name]); err != nil {
				return refuse(spec, known, "field %q: %v", name, err)
			}
		}
	}
	if err := resolved.Validate(fields); err != nil {
		return refuse(spec, known, "input: %v", err)
	}
	return nil
}

// checkField checks one field against its part of the schema. A part that
// refers to others is left to the check of the whole.
func checkField(property *jsonschema.Schema, value any) error {
	resolved, err := property.CloneSchemas().Resolve(nil)
	if err != nil {
		return nil
	}
	err = resolved.Validate(value)
	if err == nil {
		return nil
	}
	return errors.New(strings.TrimPrefix(err.Error(), "validating root: "))
}

// closed reports whether the schema allows no fields but its properties.
func closed(s *jsonschema.Schema) bool {
	if s.AdditionalProperties == nil || len(s.PatternProperties) > 0 {
		return false
	}
	b, err := json.Marshal(s.AdditionalProperties)
	return err == nil && (string(b) == "false" || string(b) == `{"not":{}}`)
}

func refuse(spec Spec, known []string, format string, args ...any) error {
	err := fmt.Errorf("tool %s: %s: %w", spec.Name, fmt.Sprintf(format, args...), agents.ErrInvalid)
	if len(known) == 0 {
		return err
	}
	return agents.WithHint(err, "%s takes %s", spec.Name, strings.Join(known, ", "))
}

// clip shortens text from outside for a message.
func clip(s string) string {
	if len(s) > 40 {
		return s[:40] + "…"
	}
	return s
}
