package view_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/config"
	"github.com/cleveragents/agents/internal/view"
	"github.com/cleveragents/agents/tool"
)

var update = flag.Bool("update", false, "write the golden files")

const (
	planID = "01JQPLAN000000000000000001"
	cpID   = "01JQCHECKPT000000000000001"
)

var at = time.Date(2026, 3, 4, 5, 6, 7, 890_000_000, time.FixedZone("somewhere", 3600))

func strategy(r agents.Resource) agents.StrategyName {
	name, _ := r.EffectiveStrategy("")
	return name
}

func plan() agents.Plan {
	return agents.Plan{
		ID: planID, Name: "tidy", Action: "local/tidy", Phase: agents.PhaseExecute, State: agents.PlanComplete, Actor: "ann", Profile: "supervised",
		Projects:  []string{"shop"},
		Resources: []agents.Resource{{ID: "01JQRES0000000000000000001", Name: "app", Type: agents.TypeGitCheckout, Location: "/src/app"}},
		CreatedAt: at, UpdatedAt: at,
	}
}

func unnamed(actor string) agents.Plan {
	p := plan()
	p.Name, p.Actor = "", actor
	return p
}

func errored() agents.Plan {
	p := plan()
	p.State = agents.PlanErrored
	p.Error = &agents.PlanError{Message: "exit status 3", Tool: "builtin/shell", Step: "test", Checkpoint: cpID, Recoverable: true}
	p.Steps = []agents.Step{
		{ID: "edit", Tool: "builtin/file-edit", Status: agents.StepDone, BeforeCheckpointID: cpID, AfterCheckpointID: cpID},
		{ID: "test", Tool: "builtin/shell", Status: agents.StepFailed, Error: "exit status 3\nmore"},
		{ID: "docs", Tool: "builtin/shell"},
	}
	return p
}

func sandboxes() []agents.SandboxState {
	path := "/data/sandboxes/ca-sandbox-1"
	return []agents.SandboxState{{
		SandboxID: "01JQSANDBOX000000000000001", Resource: "app", Strategy: agents.GitWorktree, Status: agents.SandboxActive,
		Path: path, HostPath: &path, Branch: "cleveragents/plan-1", OriginalBranch: "main", Base: "abc123", SizeBytes: 4096, Enforced: "none",
	}}
}

func diff() agents.Diff {
	files := []agents.FileChange{
		{Resource: "app", Path: "a.txt", Change: agents.ChangeModified, Insertions: 3, Deletions: 1},
		{Resource: "app", Path: "bin\xff\\x", Change: agents.ChangeAdded, Binary: true},
		{Resource: "app", Path: "line\nend", Change: agents.ChangeDeleted, Deletions: 120},
		{Resource: "app", Path: "new.go", OldPath: "old.go", Change: agents.ChangeRenamed},
		{Resource: "app", Path: "run.sh", Change: agents.ChangeMode},
	}
	return agents.Diff{Summary: agents.Summarize(files), Files: files}
}

func checkpoint() agents.Checkpoint {
	return agents.Checkpoint{
		ID: cpID, PlanID: planID, SandboxRef: "abc123", Type: agents.CheckpointPreWrite, FilesystemPath: cpID, SizeBytes: 2048, CreatedAt: at,
		Metadata: agents.CheckpointMetadata{Reason: "before builtin/file-write", SourceTool: "builtin/file-write", Phase: "execute"},
		Refs:     []agents.CheckpointRef{{SandboxID: "01JQSANDBOX000000000000001", Resource: "app", Ref: "abc123", SizeBytes: 2048}},
		Active:   true,
	}
}

func invocation() agents.Invocation {
	return agents.Invocation{
		ID: "01JQCALL000000000000000001", PlanID: planID, Tool: "builtin/shell", Resource: "app", ExitCode: 0, Stdout: "ok\n",
		BeforeCheckpointID: cpID, Changed: []agents.FileChange{{Resource: "app", Path: "a.txt", Change: agents.ChangeModified}}, Enforced: "none",
		StartedAt: at, EndedAt: at,
	}
}

func rollback() agents.RollbackResult {
	return agents.RollbackResult{
		PlanID: planID, FromCheckpointID: cpID, RestoredFilesCount: 2, ChangedPaths: []string{"a.txt", "caf\xe9"},
		Changes: []agents.RestoredPath{
			{Resource: "app", Path: "a.txt", Action: "restored"}, {Resource: "app", Path: "caf\xe9", Action: "removed"},
			{Resource: "app", Path: "same", Action: "unchanged"},
		},
		SafetyCheckpointID: "01JQSAFETY0000000000000001", ActiveCheckpointID: cpID, CheckpointsRemaining: 3, ToolCallsAfter: 2,
		Phase: agents.PhaseExecute, State: agents.PlanQueued, Messages: []string{view.RollbackDone},
	}
}

func applied() agents.ApplyResult {
	return agents.ApplyResult{
		PlanID: planID, Artifacts: 3, Insertions: 12, Deletions: 4, Project: "shop", AppliedAt: at,
		Resources: []agents.ResourceResult{{
			Resource: "app", State: agents.ApplyApplied, CommitRef: "def456", Added: []string{"n"}, Changed: []string{"a.txt", "b.txt"}, Into: "main",
		}},
		Cleanup:   agents.SandboxCleanup{Sandboxes: 1, WorktreeRemoved: true, BranchMerged: true, Branch: "cleveragents/plan-1", CheckpointsRemoved: 4},
		NextSteps: []string{"git -C /src/app show def456"},
	}
}

func conflicted() agents.ApplyResult {
	return agents.ApplyResult{
		PlanID: planID,
		Resources: []agents.ResourceResult{
			{Resource: "app", State: agents.ApplyConflict, Conflicts: []agents.PathReason{{Path: "a.txt", Reason: "both sides changed it"}}},
			{Resource: "site", State: agents.ApplyNotTried},
		},
		LeftOut: []agents.PathReason{{Resource: "app", Path: "empty", Reason: "git does not know empty directories"}},
	}
}

func undone() agents.ApplyResult {
	return agents.ApplyResult{
		PlanID:    planID,
		Resources: []agents.ResourceResult{{Resource: "app", State: agents.ApplyReverted}, {Resource: "site", State: agents.ApplyReverted}},
		NextSteps: []string{"agents plan diff " + planID},
	}
}

func damaged() agents.Checkpoint {
	c := checkpoint()
	c.Damaged = true
	return c
}

// document is one that a command prints, under the name of its golden files.
type document struct {
	name string
	doc  view.Document
	keys []string // the command's own keys, as CLI.md's table has them
}

func documents(t *testing.T) []document {
	t.Helper()
	res := plan().Resources[0]
	act := agents.Action{ID: "01JQACT0000000000000000001", Name: "local/tidy", Arguments: []agents.Argument{{Name: "word", Required: true}},
		Steps: []agents.Step{{ID: "edit", Tool: "builtin/file-edit", With: map[string]any{"path": "a"}, OnFailure: agents.FailRollback}}, CreatedAt: at}
	key, err := config.KeyByName(config.KeyCleanup)
	if err != nil {
		t.Fatal(err)
	}
	setting := config.Value{Key: key, Value: "manual", Source: config.FromUser, Origin: "/data/config.toml:2"}
	archive := agents.Archive{ID: planID, PlanID: planID, Path: "/data/archive/1", SizeBytes: 10, CreatedAt: at, ExpiresAt: at.AddDate(0, 0, 30),
		Restore: "agents cleanup archive restore " + planID}
	cleanup := agents.CleanupResult{Policy: "on_apply", PolicySource: "default", Removed: []string{"sandbox 1"}, Archived: []agents.Archive{archive},
		Kept: []agents.KeptItem{{What: "sandbox 2", Why: "its plan is not over"}}, FreedBytes: 1 << 20}
	patched := diff()
	patched.Patch = []byte("diff --git a/a.txt b/a.txt\n--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-v1\n+v2 \xff\n")
	run := agents.RunResult{Plan: plan(), Invocation: invocation(), Sandboxes: sandboxes(), Diff: diff()}
	two := plan()
	two.Resources = append(two.Resources, agents.Resource{
		ID: "01JQRES0000000000000000002", Name: "docs", Type: agents.TypeDirectory, Location: "/src/app/docs",
		Boundary: two.Resources[0].ID, SubPath: "docs",
	})
	status := agents.PlanStatus{Plan: two, Sandboxes: sandboxes(), Checkpoints: 2, Resources: []agents.ResourceState{{
		Resource: "app", ApplyState: agents.ApplyNotTried, Strategy: agents.GitWorktree, Path: sandboxes()[0].Path,
	}, {Resource: "docs", ApplyState: agents.ApplyNotTried, Boundary: "app", Strategy: agents.GitWorktree, Path: sandboxes()[0].Path + "/docs"}}}
	bad := status
	bad.Plan = errored()
	badDoc := view.Status(bad, strategy)
	badDoc.ExitCode = 1
	badDoc.Problem = &view.Problem{Code: "plan_errored", Message: "exit status 3", Plan: bad.Plan.Error}
	conflict := view.Apply(conflicted())
	conflict.ExitCode, conflict.Problem = 4, &view.Problem{Code: "SandboxCommitError", Message: "conflicts in app", Hint: "agents plan update " + planID}
	return []document{
		{"run", view.Run(run, strategy), []string{"plan", "tool", "sandboxes", "diff_summary", "files"}},
		{"plan_create", view.Plan(plan(), strategy), []string{"plan"}},
		{"plan_list", view.Plans([]agents.Plan{plan(), unnamed("make"), unnamed("ann")}, strategy, "ann"), []string{"plans"}},
		{"plan_list_empty", view.Plans(nil, strategy, "ann"), []string{"plans"}},
		{"plan_exec", view.Call(invocation(), true), []string{"tool"}},
		{"tool_run", view.Call(invocation(), false), []string{"tool"}},
		{"plan_execute", view.Execute(agents.ExecuteResult{Plan: errored(), Sandboxes: sandboxes(), Resume: "test", Diff: diff()}, strategy, false), []string{"plan", "steps", "sandboxes"}},
		{"plan_status", view.Status(status, strategy), []string{"plan", "sandboxes", "checkpoints", "resources"}},
		{"plan_status_errored", badDoc, []string{"plan", "sandboxes", "checkpoints", "resources", "error"}},
		{"plan_diff", view.Diff(diff()), []string{"diff_summary", "files"}},
		{"plan_diff_patch", view.Diff(patched), []string{"diff_summary", "files", "patch"}},
		{"plan_artifacts", view.Artifacts(diff()), []string{"artifacts"}},
		{"plan_events", view.Events([]agents.Event{{ID: "e", PlanID: planID, Kind: "plan.created", Message: "plan created", CreatedAt: at}}), []string{"events"}},
		{"plan_errors", view.PlanErrors(errored(), []agents.Invocation{{ID: "i", Tool: "builtin/shell", ExitCode: 3, Error: "exit status 3", EndedAt: at}}), []string{"errors"}},
		{"plan_checkpoint_list", view.Checkpoints([]agents.Checkpoint{checkpoint()}), []string{"checkpoints"}},
		{"plan_checkpoint_show", view.Checkpoint(checkpoint(), "git --git-dir=/data/x show abc123"), []string{"checkpoint"}},
		{"plan_checkpoint_list_damaged", view.Checkpoints([]agents.Checkpoint{checkpoint(), damaged()}), []string{"checkpoints"}},
		{"plan_checkpoint_show_damaged", view.Checkpoint(damaged(), "git show abc123"), []string{"checkpoint"}},
		{"plan_checkpoint_delete", view.CheckpointsDeleted([]string{cpID}, 2048), []string{"deleted", "freed_bytes"}},
		{"plan_rollback", view.Rollback(rollback()), []string{"rollback_summary", "changes_reverted", "impact", "post_rollback_state", "changes", "safety_checkpoint_id"}},
		{"plan_apply", view.Apply(applied()), []string{"left_out", "apply_summary", "resources", "sandbox_cleanup", "next_steps"}},
		{"plan_apply_conflict", conflict, []string{"left_out", "apply_summary", "resources", "sandbox_cleanup", "next_steps", "error"}},
		{"plan_undo", view.Undo(undone(), false), []string{"plan_id", "resources", "next_steps"}},
		{"plan_undo_refused", view.Undo(agents.ApplyResult{PlanID: planID}, true), []string{"plan_id", "resources", "next_steps"}},
		{"plan_cancel", view.Cancel(agents.CancelResult{Plan: plan(), Reason: "no need", Sandboxes: []agents.CancelledSandbox{{Resource: "app", Status: agents.SandboxCleanedUp}}, Recovery: []string{"agents cleanup archive restore " + planID}}, strategy), []string{"plan", "reason", "sandboxes", "recovery"}},
		{"plan_update", view.Update(agents.UpdateResult{Plan: plan(), Resources: applied().Resources}, strategy), []string{"plan", "resources"}},
		{"plan_export", view.Export(planID, "review/x", "", "review/x"), []string{"export"}},
		{"resource_list", view.Resources([]agents.Resource{res}, strategy), []string{"resources"}},
		{"resource_add", view.Resource(res, strategy, "Resource added"), []string{"resource"}},
		{"resource_type_list", view.ResourceTypes(agents.ResourceTypes()), []string{"types"}},
		{"resource_type_show", view.ResourceType(agents.ResourceTypes()[0]), []string{"type"}},
		{"project_list", view.Projects([]agents.Project{{ID: "p", Name: "shop", Resources: []agents.Resource{res}, CreatedAt: at}}, strategy), []string{"projects"}},
		{"project_create", view.Project(agents.Project{ID: "p", Name: "shop", CreatedAt: at}, strategy, "Project created"), []string{"project"}},
		{"action_list", view.Actions([]agents.Action{act}), []string{"actions"}},
		{"action_create", view.Action(act, "Action created"), []string{"action"}},
		{"tool_list", view.Tools([]tool.Spec{{Name: "builtin/file-write", Description: "write a file", Input: json.RawMessage(`{"type":"object"}`),
			Capability: agents.Capability{Writes: true, Checkpointable: true, CheckpointScope: agents.ScopeFile, RollbackMechanism: agents.MechSnapshot}}}), []string{"tools"}},
		{"automation_profile_list", view.Profiles(agents.Profiles()), []string{"automation_profiles"}},
		{"automation_profile_show", view.Profile(agents.Profiles()[2]), []string{"automation_profile"}},
		{"config_list", view.Settings([]config.Value{setting}), []string{"config"}},
		{"config_get", view.Setting(setting), []string{"config"}},
		{"config_set", view.SettingWritten(setting, "/data/config.toml"), []string{"config"}},
		{"config_trust", view.Trusted("/src/app/.cleveragents/config.toml"), []string{"trusted"}},
		{"cleanup", view.Cleanup(cleanup, "Cleaned up"), []string{"policy", "removed", "archived", "kept"}},
		{"cleanup_archive_list", view.Archives([]agents.Archive{archive}), []string{"archives"}},
		{"cleanup_archive_restore", view.Restored(plan(), strategy), []string{"plan"}},
		{"doctor", view.Doctor(view.Health{
			Strategies: []view.StrategyRow{{Strategy: agents.GitWorktree, Available: true, Mechanism: "git worktree"}, {Strategy: agents.Overlay, Reason: "not in this build"}},
			Mode:       "none", GitVersion: "2.39", DataDir: "/data", Filesystem: "ext4", FreeBytes: 1 << 30,
			Leftovers: []agents.KeptItem{{What: "/data/sandboxes/x", Why: "busy"}},
		}), []string{"strategies", "enforcement", "git", "data_dir", "leftovers"}},
		{"version", view.Version(view.BuildInfo{Version: "v1.2.3", Commit: "abc", Go: "go1.26", OS: "linux", Arch: "amd64"}), []string{"version"}},
		{"db_upgrade", view.Upgraded("/data/agents.db", 1, 2), []string{"db"}},
	}
}

func complete(d document) view.Document {
	d.doc.Command = strings.ReplaceAll(d.name, "_", " ")
	d.doc.Started, d.doc.Elapsed = at, 42*time.Millisecond
	return d.doc
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s (-want +got):\n%s", file, d)
	}
}

func TestGoldenJSON(t *testing.T) {
	for _, d := range documents(t) {
		t.Run(d.name, func(t *testing.T) {
			var b bytes.Buffer
			if err := complete(d).WriteJSON(&b); err != nil {
				t.Fatal(err)
			}
			golden(t, d.name+".json", b.String())
		})
	}
}

func TestGoldenText(t *testing.T) {
	for _, f := range []view.Format{view.Rich, view.Plain, view.Table} {
		for _, d := range documents(t) {
			t.Run(string(f)+"/"+d.name, func(t *testing.T) {
				var b bytes.Buffer
				if err := complete(d).WriteText(&b, f, 100); err != nil {
					t.Fatal(err)
				}
				golden(t, d.name+"."+string(f), b.String())
			})
		}
	}
}

// U117: every document has the same common keys beside its own.
func TestU117EveryDocumentHasTheCommonKeys(t *testing.T) {
	for _, d := range documents(t) {
		t.Run(d.name, func(t *testing.T) {
			var b bytes.Buffer
			if err := complete(d).WriteJSON(&b); err != nil {
				t.Fatal(err)
			}
			var got map[string]json.RawMessage
			dec := json.NewDecoder(&b)
			if err := dec.Decode(&got); err != nil {
				t.Fatal(err)
			}
			if dec.More() {
				t.Error("more than one document")
			}
			for _, key := range append([]string{"command", "status", "exit_code", "timing", "messages"}, d.keys...) {
				if raw, ok := got[key]; !ok || string(raw) == "null" {
					t.Errorf("key %s is missing or null", key)
				}
			}
			var timing map[string]any
			if err := json.Unmarshal(got["timing"], &timing); err != nil {
				t.Fatal(err)
			}
			if timing["started"] != "2026-03-04T04:06:07.890Z" || timing["duration_ms"] != 42.0 || timing["elapsed_seconds"] != 0.042 {
				t.Errorf("timing = %v", timing)
			}
		})
	}
}

// keysOf lists the keys of the object at a path, sorted; a number is an index.
func keysOf(t *testing.T, doc view.Document, path ...any) []string {
	t.Helper()
	var b bytes.Buffer
	if err := doc.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	var v any
	if err := json.Unmarshal(b.Bytes(), &v); err != nil {
		t.Fatal(err)
	}
	for _, p := range path {
		switch p := p.(type) {
		case string:
			v = v.(map[string]any)[p]
		case int:
			v = v.([]any)[p]
		}
	}
	var keys []string
	for k := range v.(map[string]any) {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// U117: the keys of CLI.md's table, retyped.
func TestU117KeysOfEachRow(t *testing.T) {
	docs := map[string]view.Document{}
	for _, d := range documents(t) {
		docs[d.name] = complete(d)
	}
	at := func(path ...any) []any { return path }
	for _, c := range []struct {
		doc   string
		path  []any
		keys  string
		exact bool
	}{
		{"plan_create", at("plan"), "plan_id phase state actor profile require_checkpoints created_at resources", false},
		{"plan_create", at("plan", "resources", 0), "resource_id name type location strategy", true},
		{"plan_exec", at("tool"), "invocation_id plan_id tool resource exit_code stdout stderr before_checkpoint_id after_checkpoint_id changed_paths rolled_back enforced", true},
		{"plan_exec", at("tool", "changed_paths", 0), "resource path change", true},
		{"plan_execute", at("steps", 0), "step_id tool status before_checkpoint_id after_checkpoint_id error", true},
		{"plan_status", at("sandboxes", 0), "sandbox_id resource strategy status path host_path branch original_branch base size_bytes enforced", true},
		{"plan_status", at("resources", 0), "resource apply_state boundary strategy path", true},
		{"plan_status_errored", at("error"), "message tool step checkpoint recoverable code hint details", true},
		{"plan_diff", at("diff_summary"), "files_changed insertions deletions", true},
		{"plan_diff", at("files", 0), "resource path old_path change insertions deletions binary", true},
		{"plan_checkpoint_list", at("checkpoints", 0), "checkpoint_id plan_id decision_id checkpoint_type resource_id sandbox_ref filesystem_path size_bytes created_at metadata active refs damaged", true},
		{"plan_checkpoint_list", at("checkpoints", 0, "metadata"), "reason source_tool phase extra", true},
		{"plan_checkpoint_list", at("checkpoints", 0, "refs", 0), "sandbox_id resource sandbox_ref size_bytes", true},
		{"plan_rollback", at(), "command status exit_code timing messages rollback_summary changes_reverted impact post_rollback_state changes safety_checkpoint_id", true},
		{"plan_rollback", at("rollback_summary"), "plan_id from_checkpoint_id restored_files_count", true},
		{"plan_rollback", at("impact"), "files_affected decisions_superseded child_plans_cancelled tool_calls_after", true},
		{"plan_rollback", at("post_rollback_state"), "active_checkpoint plan_id phase state checkpoints_remaining", true},
		{"plan_rollback", at("changes", 0), "resource path action", true},
		{"plan_apply", at("apply_summary"), "plan_id artifacts insertions deletions project applied_at", true},
		{"plan_apply", at("resources", 0), "resource state commit_ref added_files changed_files deleted_files conflicts", true},
		{"plan_apply_conflict", at("resources", 0, "conflicts", 0), "path reason", true},
		{"plan_apply_conflict", at("left_out", 0), "resource path reason", true},
		{"plan_apply_conflict", at("error"), "code message hint details", true},
		{"plan_apply", at("sandbox_cleanup"), "worktree_removed branch_merged branch checkpoints_removed", true},
		{"plan_cancel", at("sandboxes", 0), "resource status kept", true},
		{"doctor", at("strategies", 0), "strategy available mechanism reason", true},
		{"doctor", at("enforcement"), "namespaces landlock_abi mode", true},
		{"doctor", at("git"), "version", true},
		{"doctor", at("data_dir"), "path filesystem reflink free_bytes", true},
		{"cleanup", at("policy"), "value source", true},
		{"cleanup", at("kept", 0), "what why", true},
	} {
		got := keysOf(t, docs[c.doc], c.path...)
		want := strings.Fields(c.keys)
		slices.Sort(want)
		if c.exact && !slices.Equal(got, want) {
			t.Errorf("%s %v: got %v, want %v", c.doc, c.path, got, want)
		}
		for _, k := range want {
			if !slices.Contains(got, k) {
				t.Errorf("%s %v: key %s is missing", c.doc, c.path, k)
			}
		}
	}
}

// The specification's own words for a rollback (checkpointing.md).
func TestRollbackSaysTheSpecificationsWords(t *testing.T) {
	r := rollback()
	r.Messages = []string{"something else"}
	if got := view.Rollback(r).Messages; len(got) != 2 || got[0] != "Rollback completed successfully." {
		t.Errorf("messages = %q", got)
	}
	r.DryRun = true
	if got := view.Rollback(r).Messages; slices.Contains(got, view.RollbackDone) {
		t.Errorf("a dry run says %q", got)
	}
}

// B069: names that are not UTF-8 stay apart, and the JSON is valid.
func TestB069NamesThatAreNotUTF8(t *testing.T) {
	files := []agents.FileChange{
		{Path: "\xfe", Change: agents.ChangeModified}, {Path: "\xff", Change: agents.ChangeModified}, {Path: `\xff`, Change: agents.ChangeModified},
	}
	var b bytes.Buffer
	if err := view.Diff(agents.Diff{Files: files}).WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Files []struct{ Path string }
	}
	if err := json.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	for i, f := range got.Files {
		raw, err := agents.UnescapePath(f.Path)
		if err != nil || raw != files[i].Path {
			t.Errorf("path %d: got %q → %q, %v; want %q", i, f.Path, raw, err, files[i].Path)
		}
	}
}

func TestYAMLSaysTheSameAsJSON(t *testing.T) {
	for _, d := range documents(t) {
		t.Run(d.name, func(t *testing.T) {
			doc := complete(d)
			doc.Messages = append(doc.Messages, "yes", "1e3", "null", "a: b", "x # y", "- z", "tab\there", "line\nend")
			var j, y bytes.Buffer
			if err := doc.WriteJSON(&j); err != nil {
				t.Fatal(err)
			}
			if err := doc.WriteYAML(&y); err != nil {
				t.Fatal(err)
			}
			var fromYAML any
			if err := yaml.Unmarshal(y.Bytes(), &fromYAML); err != nil {
				t.Fatalf("%v\n%s", err, y.String())
			}
			again, err := json.Marshal(fromYAML)
			if err != nil {
				t.Fatal(err)
			}
			var a, b any
			if err := errors.Join(json.Unmarshal(j.Bytes(), &a), json.Unmarshal(again, &b)); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(a, b); diff != "" {
				t.Errorf("(-json +yaml):\n%s", diff)
			}
		})
	}
}

func TestTextHasNoControlCharactersOfNames(t *testing.T) {
	files := []agents.FileChange{{Path: "a\x1b[31mred\x07\n", Change: agents.ChangeAdded}}
	for _, f := range []view.Format{view.Plain, view.Table} {
		var b bytes.Buffer
		if err := view.Artifacts(agents.Diff{Files: files}).WriteText(&b, f, 0); err != nil {
			t.Fatal(err)
		}
		if strings.ContainsAny(strings.ReplaceAll(b.String(), "\x1b[1m", ""), "\x07") || strings.Contains(b.String(), "\x1b[31m") {
			t.Errorf("%s: %q", f, b.String())
		}
	}
}

func TestParseFormatNamesTheValidOnes(t *testing.T) {
	_, err := view.ParseFormat("xml")
	if !errors.Is(err, agents.ErrInvalid) || !strings.Contains(err.Error(), "rich, plain, table, json, yaml") {
		t.Errorf("err = %v", err)
	}
}
