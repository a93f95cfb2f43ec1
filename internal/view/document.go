// Package view turns results into what a command prints: panels and tables
// for people, and one JSON or YAML document for programs.
//
// It decides nothing: what happened, and whether that is an error, its callers
// say.
package view

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	agents "github.com/cleveragents/agents"
)

// Format is a way to print a document.
type Format string

// The formats of --format.
const (
	Rich  Format = "rich"
	Plain Format = "plain"
	Table Format = "table"
	JSON  Format = "json"
	YAML  Format = "yaml"
)

// Formats lists every format in the order in which messages print them.
func Formats() []Format { return []Format{Rich, Plain, Table, JSON, YAML} }

// ParseFormat returns the format with this name. An unknown one is
// agents.ErrInvalid and the message lists the valid ones.
func ParseFormat(s string) (Format, error) {
	var valid []string
	for _, f := range Formats() {
		if string(f) == s {
			return f, nil
		}
		valid = append(valid, string(f))
	}
	return "", fmt.Errorf("format %q: want one of %s: %w", s, strings.Join(valid, ", "), agents.ErrInvalid)
}

// Structured reports whether f is for programs: one document and nothing else.
func (f Format) Structured() bool { return f == JSON || f == YAML }

// Document is what one command has to say, for people and for programs.
type Document struct {
	Command  string // without the program's name: "plan rollback"
	ExitCode int
	Started  time.Time
	Elapsed  time.Duration
	Keys     []Field  // the command's own keys, in order
	Messages []string // sentences about what happened
	Warn     bool     // done, but something deserves a look
	Problem  *Problem // nil = no error
	Blocks   []Block  // the same for people
}

// Field is one key of a document.
type Field struct {
	Name  string
	Value any
}

// Problem is an error as documents and people see it.
type Problem struct {
	Code    string // the specification's name for the error, or its class
	Message string
	Hint    string
	Details map[string]any
	Plan    *agents.PlanError // plan status of an errored plan adds its fields
}

// With returns d with another key at the end.
func (d Document) With(name string, value any) Document {
	d.Keys = append(d.Keys[:len(d.Keys):len(d.Keys)], Field{name, value})
	return d
}

// Merge returns d with the keys, messages and blocks of other behind its own.
// A key that both have keeps d's value.
func (d Document) Merge(other Document) Document {
	for _, f := range other.Keys {
		if !d.Has(f.Name) {
			d = d.With(f.Name, f.Value)
		}
	}
	d.Messages = append(d.Messages[:len(d.Messages):len(d.Messages)], other.Messages...)
	d.Blocks = append(d.Blocks[:len(d.Blocks):len(d.Blocks)], other.Blocks...)
	d.Warn = d.Warn || other.Warn
	return d
}

// Has reports whether d has a key of this name.
func (d Document) Has(name string) bool {
	for _, f := range d.Keys {
		if f.Name == name {
			return true
		}
	}
	return false
}

// Status returns ok, warn or error.
func (d Document) Status() string {
	switch {
	case d.Problem != nil || d.ExitCode != 0:
		return "error"
	case d.Warn:
		return "warn"
	}
	return "ok"
}

// WriteJSON writes d as one JSON document with a line end.
func (d Document) WriteJSON(w io.Writer) error {
	b, err := d.encode()
	if err != nil {
		return err
	}
	_, err = w.Write(b)
	return err
}

// WriteYAML writes d as one YAML document with the same keys as the JSON one.
func (d Document) WriteYAML(w io.Writer) error {
	b, err := d.encode()
	if err != nil {
		return err
	}
	// JSON is YAML: reading it keeps the order of the keys.
	var node yaml.Node
	if err := yaml.Unmarshal(b, &node); err != nil {
		return err
	}
	blockStyle(&node)
	enc := yaml.NewEncoder(w)
	enc.SetIndent(2)
	if err := enc.Encode(&node); err != nil {
		return err
	}
	return enc.Close()
}

func (d Document) encode() ([]byte, error) {
	messages := make([]string, 0, len(d.Messages))
	for _, m := range d.Messages {
		messages = append(messages, strings.ToValidUTF8(m, "\uFFFD"))
	}
	fields := []Field{
		{"command", d.Command},
		{"status", d.Status()},
		{"exit_code", d.ExitCode},
		{"timing", timing{Stamp(d.Started), d.Elapsed.Milliseconds(), math.Round(d.Elapsed.Seconds()*1e6) / 1e6}},
	}
	fields = append(fields, d.Keys...)
	fields = append(fields, Field{"messages", messages})
	if d.Problem != nil {
		fields = append(fields, Field{"error", d.Problem.fields()})
	}
	var compact bytes.Buffer
	if err := encodeObject(&compact, fields); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := json.Indent(&out, compact.Bytes(), "", "  "); err != nil {
		return nil, err
	}
	out.WriteByte('\n')
	return out.Bytes(), nil
}

// timing is the common key of that name.
type timing struct {
	Started        Stamp   `json:"started"`
	DurationMS     int64   `json:"duration_ms"`
	ElapsedSeconds float64 `json:"elapsed_seconds"`
}

// object is a JSON object whose keys keep their order.
type object []Field

// MarshalJSON writes the keys in order.
func (o object) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	err := encodeObject(&b, o)
	return b.Bytes(), err
}

func (p *Problem) fields() object {
	details := p.Details
	if details == nil {
		details = map[string]any{}
	}
	o := object{{"code", p.Code}, {"message", p.Message}, {"hint", p.Hint}, {"details", details}}
	if e := p.Plan; e != nil {
		o = append(o, Field{"tool", e.Tool}, Field{"step", e.Step}, Field{"checkpoint", e.Checkpoint}, Field{"recoverable", e.Recoverable})
	}
	return o
}

func encodeObject(b *bytes.Buffer, fields []Field) error {
	enc := json.NewEncoder(b)
	enc.SetEscapeHTML(false)
	b.WriteByte('{')
	for i, f := range fields {
		if i > 0 {
			b.WriteByte(',')
		}
		if err := enc.Encode(f.Name); err != nil {
			return err
		}
		b.WriteByte(':')
		if err := enc.Encode(f.Value); err != nil {
			return fmt.Errorf("key %s: %w", f.Name, err)
		}
	}
	b.WriteByte('}')
	return nil
}

// blockStyle drops the flow style and quotes that JSON needs; the encoder
// quotes again what YAML would misread.
func blockStyle(n *yaml.Node) {
	empty := len(n.Content) == 0 && (n.Kind == yaml.MappingNode || n.Kind == yaml.SequenceNode)
	if !empty {
		n.Style = 0
	}
	for _, c := range n.Content {
		blockStyle(c)
	}
}

// Stamp is a moment in a document: RFC 3339 in UTC with milliseconds, or null
// if it is zero.
type Stamp time.Time

// MarshalJSON writes the moment.
func (s Stamp) MarshalJSON() ([]byte, error) {
	if time.Time(s).IsZero() {
		return []byte("null"), nil
	}
	return []byte(time.Time(s).UTC().Format(`"2006-01-02T15:04:05.000Z"`)), nil
}

// optional is null where a name is not there.
type optional string

// MarshalJSON writes the text or null.
func (o optional) MarshalJSON() ([]byte, error) {
	if o == "" {
		return []byte("null"), nil
	}
	return json.Marshal(string(o))
}

// rows is never null, however empty.
func rows[S, D any](in []S, turn func(S) D) []D {
	out := make([]D, 0, len(in))
	for _, v := range in {
		out = append(out, turn(v))
	}
	return out
}

func escaped(paths []string) []string { return rows(paths, agents.EscapePath) }
