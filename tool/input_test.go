package tool_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/tool"
)

const schema = `{
	"$schema": "https://json-schema.org/draft/2020-12/schema",
	"type": "object", "additionalProperties": false, "required": ["path"],
	"properties": {
		"path": {"type": "string", "minLength": 1},
		"limit": {"type": "integer", "minimum": 1},
		"argv": {"type": "array", "items": {"type": "string"}},
		"mode": {"enum": ["soft", "hard"]},
		"ref": {"$ref": "#/$defs/ref"}
	},
	"$defs": {"ref": {"type": "string", "pattern": "^[a-z]+$"}}
}`

func TestCheckInput(t *testing.T) {
	spec := tool.Spec{Name: "builtin/x", Input: json.RawMessage(schema)}
	for _, tt := range []struct{ name, input, want string }{
		{"good", `{"path": "a", "limit": 3, "argv": ["b"], "mode": "soft", "ref": "main"}`, ""},
		{"whole number as float", `{"path": "a", "limit": 3.0}`, ""},
		{"unknown", `{"path": "a", "sandbox_root": "/"}`, `field "sandbox_root" is unknown`},
		{"other case", `{"path": "a", "Path": "b"}`, `field "Path" is unknown`},
		{"missing", `{}`, `field "path" is missing`},
		{"empty input", ``, `field "path" is missing`},
		{"wrong type", `{"path": 3}`, `field "path": type`},
		{"too short", `{"path": ""}`, `field "path": minLength`},
		{"fraction", `{"path": "a", "limit": 1.5}`, `field "limit": type`},
		{"too small", `{"path": "a", "limit": 0}`, `field "limit": minimum`},
		{"in a list", `{"path": "a", "argv": ["b", 1]}`, `field "argv": `},
		{"not one of", `{"path": "a", "mode": "mixed"}`, `field "mode": enum`},
		{"by reference", `{"path": "a", "ref": "-x"}`, `input: `},
		{"null field", `{"path": null}`, `field "path": type`},
		{"array", `[]`, "not a JSON object"},
		{"null", `null`, "want a JSON object"},
		{"no JSON", `{"path"`, "not a JSON object"},
		{"two values", `{"path": "a"} {}`, "goes on after"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := tool.CheckInput(spec, json.RawMessage(tt.input))
			if tt.want == "" {
				if err != nil {
					t.Errorf("got %v, want no error", err)
				}
				return
			}
			if !errors.Is(err, agents.ErrInvalid) || !strings.Contains(err.Error(), tt.want) || !strings.HasPrefix(err.Error(), "tool builtin/x: ") {
				t.Errorf("got %v, want ErrInvalid that names the tool and holds %q", err, tt.want)
			}
		})
	}
}

func TestCheckInputHint(t *testing.T) {
	err := tool.CheckInput(tool.Spec{Name: "builtin/x", Input: json.RawMessage(schema)}, json.RawMessage(`{"file": 1}`))
	if got, want := agents.HintOf(err), "builtin/x takes argv, limit, mode, path, ref"; got != want {
		t.Errorf("got hint %q, want %q", got, want)
	}
}

func TestCheckInputOpenSchema(t *testing.T) {
	for _, s := range []string{``, `{"type": "object"}`, `{"type": "object", "properties": {"a": {"type": "string"}}}`} {
		if err := tool.CheckInput(tool.Spec{Name: "x", Input: json.RawMessage(s)}, json.RawMessage(`{"b": 1}`)); err != nil {
			t.Errorf("schema %s: got %v, want any field", s, err)
		}
	}
	if err := tool.CheckInput(tool.Spec{Name: "x", Input: json.RawMessage(`{"type": 3}`)}, nil); !errors.Is(err, agents.ErrInvalid) {
		t.Errorf("schema that is none: got %v, want ErrInvalid", err)
	}
}
