//go:build unix

package builtin_test

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"testing"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/tool"
	"github.com/cleveragents/agents/tool/builtin"
)

func TestAllSpecs(t *testing.T) {
	want := []string{
		"builtin/dir-create", "builtin/file-copy", "builtin/file-delete", "builtin/file-edit", "builtin/file-info",
		"builtin/file-list", "builtin/file-move", "builtin/file-patch", "builtin/file-read", "builtin/file-search",
		"builtin/file-write", "builtin/git-branch", "builtin/git-checkout", "builtin/git-commit", "builtin/git-diff",
		"builtin/git-log", "builtin/git-reset", "builtin/git-status", "builtin/shell",
	}
	reg, err := tool.NewRegistry(builtin.All()...)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range reg.Specs() {
		got = append(got, s.Name)
		if !json.Valid(s.Input) || s.Description == "" {
			t.Errorf("%s: schema %q, description %q", s.Name, s.Input, s.Description)
		}
		err := tool.CheckInput(s, json.RawMessage(`{"sandbox_root": "/"}`))
		if !errors.Is(err, agents.ErrInvalid) {
			t.Errorf("%s: an unknown field: got %v, want ErrInvalid", s.Name, err)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestCapabilities(t *testing.T) {
	for _, tl := range builtin.All() {
		s := tl.Spec()
		want := agents.Capability{ReadOnly: true, Checkpointable: true, RollbackMechanism: agents.MechNone}
		switch s.Name[len(tool.BuiltinPrefix):] {
		case "file-write", "file-edit", "file-patch", "file-delete", "file-move", "file-copy", "dir-create":
			want = agents.Capability{Writes: true, Checkpointable: true, CheckpointScope: agents.ScopeFile, RollbackMechanism: agents.MechGitCommit}
		case "git-commit", "git-branch", "git-checkout", "git-reset":
			want = agents.Capability{Writes: true, Checkpointable: true, CheckpointScope: agents.ScopeCommit, RollbackMechanism: agents.MechGitReflog}
		case "shell":
			want = agents.Capability{Writes: true, Checkpointable: true, CheckpointScope: agents.ScopeSnapshot, RollbackMechanism: agents.MechSnapshot}
		}
		if s.Capability != want {
			t.Errorf("%s: got %+v, want %+v", s.Name, s.Capability, want)
		}
	}
}

func TestCallRefusesWhatTheSchemaWould(t *testing.T) {
	w := newWorld(t)
	tl, err := w.tools.Lookup("file-read")
	if err != nil {
		t.Fatal(err)
	}
	for _, in := range []string{`{"path": "a", "x": 1}`, `{"path": 1}`, `[]`, `{`} {
		if _, err := tl.Call(t.Context(), w.env, json.RawMessage(in)); !errors.Is(err, agents.ErrInvalid) {
			t.Errorf("%s: got %v, want ErrInvalid", in, err)
		}
	}
}

func TestNoDirectoryOfFiles(t *testing.T) {
	w := newWorld(t)
	w.env.Files = false
	if _, err := w.call("file-read", `{"path": "a"}`); !errors.Is(err, agents.ErrUnsupported) {
		t.Errorf("got %v, want ErrUnsupported", err)
	}
	w.env.Files = true
	w.env.Path = filepath.Join(w.sandbox, "none")
	if _, err := w.call("file-read", `{"path": "a"}`); !errors.Is(err, agents.ErrToolFailed) {
		t.Errorf("got %v, want ErrToolFailed", err)
	}
}
