package metastore

import (
	"fmt"
	"strings"

	agents "github.com/cleveragents/agents"
)

// Invocations is the repository of tool calls and of what each changed.
type Invocations struct{ tx *Tx }

const invocationColumns = "invocation_id, plan_id, tool, resource, step_id, input, output, exit_code, stdout, stderr, " +
	"before_checkpoint_id, after_checkpoint_id, rolled_back, enforced, error, started_at, ended_at"

// Insert stores a tool call at its start. A call that ends is stored by
// Update; one without EndedAt never did.
func (r Invocations) Insert(inv *agents.Invocation) error {
	if err := r.tx.setID("invocation", &inv.ID); err != nil {
		return err
	}
	r.tx.setTime(&inv.StartedAt)
	seq, err := r.place(inv)
	if err != nil {
		return err
	}
	if err := r.tx.insert("tool call "+inv.ID,
		"INSERT INTO tool_invocations ("+invocationColumns+", after_seq) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
		inv.ID, inv.PlanID, inv.Tool, inv.Resource, inv.StepID, bytesOrNull(inv.Input), bytesOrNull(inv.Output), inv.ExitCode,
		[]byte(inv.Stdout), []byte(inv.Stderr), inv.BeforeCheckpointID, inv.AfterCheckpointID, inv.RolledBack, inv.Enforced, inv.Error,
		stamp(inv.StartedAt), stampOrNull(inv.EndedAt), seq); err != nil {
		return err
	}
	return r.insertChanges(inv)
}

// Update stores the outcome of a tool call: all but its id, plan, tool,
// resource, step, input and start. Its changes replace those stored before.
func (r Invocations) Update(inv *agents.Invocation) error {
	seq, err := r.place(inv)
	if err != nil {
		return err
	}
	if err := r.tx.change("tool call "+clip(inv.ID),
		`UPDATE tool_invocations SET output = ?, exit_code = ?, stdout = ?, stderr = ?, before_checkpoint_id = ?, after_checkpoint_id = ?,
		rolled_back = ?, enforced = ?, error = ?, ended_at = ?, after_seq = CASE WHEN ? <> '' THEN ? ELSE after_seq END WHERE invocation_id = ?`,
		bytesOrNull(inv.Output), inv.ExitCode, []byte(inv.Stdout), []byte(inv.Stderr), inv.BeforeCheckpointID, inv.AfterCheckpointID,
		inv.RolledBack, inv.Enforced, inv.Error, stampOrNull(inv.EndedAt), inv.BeforeCheckpointID, seq, inv.ID); err != nil {
		return err
	}
	if _, err := r.tx.exec("DELETE FROM changeset_entries WHERE invocation_id = ?", inv.ID); err != nil {
		return err
	}
	return r.insertChanges(inv)
}

// Get returns the tool call with that whole id.
func (r Invocations) Get(id string) (agents.Invocation, error) {
	all, err := r.where("invocation_id = ?", id)
	if err != nil {
		return agents.Invocation{}, err
	}
	if len(all) == 0 {
		return agents.Invocation{}, notFound("tool call " + clip(id))
	}
	return all[0], nil
}

// List returns the plan's tool calls in the order in which they began, each
// with its changes.
func (r Invocations) List(planID string) ([]agents.Invocation, error) {
	return r.where("plan_id = ?", planID)
}

// Changes returns what the plan's tool calls changed, in the order in which
// they did, also what was rolled back.
func (r Invocations) Changes(planID string) ([]agents.FileChange, error) {
	all, err := r.List(planID)
	if err != nil {
		return nil, err
	}
	var out []agents.FileChange
	for _, inv := range all {
		out = append(out, inv.Changed...)
	}
	return out, nil
}

// CountAfter returns how many of the plan's tool calls began after its
// checkpoint with that seq, the one made for the call itself included.
func (r Invocations) CountAfter(planID string, seq int64) (int, error) {
	return selectOne(r.tx, "plan "+clip(planID), scanValue[int],
		"SELECT COUNT(*) FROM tool_invocations WHERE plan_id = ? AND after_seq >= ?", planID, seq)
}

// place returns the seq of the checkpoint that a call came after: the one made
// for it, else the last one.
func (r Invocations) place(inv *agents.Invocation) (int64, error) {
	return selectOne(r.tx, "plan "+clip(inv.PlanID), scanValue[int64],
		`SELECT COALESCE((SELECT c.seq FROM checkpoint_metadata c WHERE c.checkpoint_id = ? AND c.plan_id = p.plan_id), p.checkpoint_seq)
		FROM v3_plans p WHERE p.plan_id = ?`, inv.BeforeCheckpointID, inv.PlanID)
}

const changeColumns = "invocation_id, position, resource, path, old_path, change_kind, insertions, deletions, is_binary"

// changesAtOnce is how many changes one statement stores.
const changesAtOnce = 200

func (r Invocations) insertChanges(inv *agents.Invocation) error {
	for start := 0; start < len(inv.Changed); start += changesAtOnce {
		batch := inv.Changed[start:min(start+changesAtOnce, len(inv.Changed))]
		var args []any
		for i, c := range batch {
			args = append(args, inv.ID, start+i, c.Resource, []byte(c.Path), []byte(c.OldPath), string(c.Change), c.Insertions, c.Deletions, c.Binary)
		}
		rows := strings.TrimSuffix(strings.Repeat("(?, ?, ?, ?, ?, ?, ?, ?, ?), ", len(batch)), ", ")
		if err := r.tx.insert(fmt.Sprintf("changes of tool call %s", inv.ID), "INSERT INTO changeset_entries ("+changeColumns+") VALUES "+rows, args...); err != nil {
			return err
		}
	}
	return nil
}

func (r Invocations) where(condition string, args ...any) ([]agents.Invocation, error) {
	all, err := selectAll(r.tx, scanInvocation, "SELECT "+invocationColumns+" FROM tool_invocations WHERE "+condition+" ORDER BY ord", args...)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	byID := make(map[string]*agents.Invocation, len(all))
	for i := range all {
		byID[all[i].ID] = &all[i]
	}
	_, err = selectAll(r.tx, func(row scanner) (struct{}, error) {
		var id string
		var position int
		var c agents.FileChange
		err := row.Scan(&id, &position, &c.Resource, textColumn(&c.Path), textColumn(&c.OldPath), &c.Change, &c.Insertions, &c.Deletions, &c.Binary)
		if inv := byID[id]; inv != nil {
			inv.Changed = append(inv.Changed, c)
		}
		return struct{}{}, err
	}, "SELECT "+changeColumns+" FROM changeset_entries WHERE invocation_id IN (SELECT invocation_id FROM tool_invocations WHERE "+condition+")"+
		" ORDER BY invocation_id, position", args...)
	return all, err
}

func scanInvocation(row scanner) (agents.Invocation, error) {
	var inv agents.Invocation
	err := row.Scan(&inv.ID, &inv.PlanID, &inv.Tool, &inv.Resource, &inv.StepID, &inv.Input, &inv.Output, &inv.ExitCode,
		textColumn(&inv.Stdout), textColumn(&inv.Stderr), &inv.BeforeCheckpointID, &inv.AfterCheckpointID, &inv.RolledBack,
		&inv.Enforced, &inv.Error, timeColumn(&inv.StartedAt), timeColumn(&inv.EndedAt))
	return inv, err
}
