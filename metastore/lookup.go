package metastore

import (
	"fmt"
	"strings"

	agents "github.com/cleveragents/agents"
)

// maxCandidates is how many candidates the message about an ambiguous
// reference lists.
const maxCandidates = 10

// kind is a sort of thing that users name by id, prefix or name.
type kind struct {
	what     string // as messages call it
	table    string
	idColumn string
	list     string // the command that lists them
}

func resourceKind() kind { return kind{"resource", "resources", "resource_id", "agents resource list"} }
func projectKind() kind  { return kind{"project", "projects", "project_id", "agents project list"} }
func actionKind() kind   { return kind{"action", "actions", "action_id", "agents action list"} }
func planKind() kind     { return kind{"plan", "v3_plans", "plan_id", "agents plan list"} }

// candidate is a thing that a reference may mean.
type candidate struct{ id, label string }

// resolve returns the id of the one thing of the kind that ref means. named
// lists the ids of those with exactly that name.
func (tx *Tx) resolve(k kind, ref string, named func(ref string) ([]candidate, error)) (string, error) {
	if ref == "" {
		return "", fmt.Errorf("no %s named: %w", k.what, agents.ErrInvalid)
	}
	byID, err := tx.byPrefix(k, ref)
	if err != nil {
		return "", err
	}
	if len(byID) == 1 && strings.EqualFold(byID[0].id, ref) {
		return byID[0].id, nil
	}
	byName, err := named(ref)
	if err != nil {
		return "", err
	}
	return pick(k.what, ref, k.list, merge(byID, byName))
}

// named lists the things of the kind that have exactly this name.
func (tx *Tx) named(k kind) func(string) ([]candidate, error) {
	return func(name string) ([]candidate, error) {
		return selectAll(tx, scanCandidate, "SELECT "+k.idColumn+", name FROM "+k.table+" WHERE name = ?", name)
	}
}

// byPrefix lists the things of the kind whose id begins with ref, if it can be
// the beginning of one at all.
func (tx *Tx) byPrefix(k kind, ref string) ([]candidate, error) {
	from, to, ok := idRange(ref)
	if !ok {
		return nil, nil
	}
	return selectAll(tx, scanCandidate,
		"SELECT "+k.idColumn+", name FROM "+k.table+" WHERE "+k.idColumn+" >= ? AND "+k.idColumn+" <= ? ORDER BY "+k.idColumn+" LIMIT ?",
		from, to, maxCandidates+1)
}

// idRange returns the first and last id that begin with ref.
func idRange(ref string) (from, to string, ok bool) {
	prefix, err := agents.ParseIDPrefix(ref)
	if err != nil {
		return "", "", false
	}
	return prefix, prefix + strings.Repeat("Z", 26-len(prefix)), true
}

func scanCandidate(row scanner) (candidate, error) {
	var id, name string
	err := row.Scan(&id, &name)
	label := id
	if name != "" {
		label += " (" + name + ")"
	}
	return candidate{id, label}, err
}

func merge(a, b []candidate) []candidate {
	out := a
	for _, c := range b {
		known := false
		for _, have := range a {
			known = known || have.id == c.id
		}
		if !known {
			out = append(out, c)
		}
	}
	return out
}

// pick returns the id of the only candidate.
func pick(what, ref, list string, found []candidate) (string, error) {
	switch len(found) {
	case 1:
		return found[0].id, nil
	case 0:
		return "", agents.WithHint(notFound(what+" "+clip(ref)), "see what there is with: %s", list)
	}
	return "", ambiguous(what, ref, found)
}

func ambiguous(what, ref string, found []candidate) error {
	var labels []string
	for _, c := range found {
		labels = append(labels, c.label)
	}
	if len(labels) > maxCandidates {
		labels = append(labels[:maxCandidates], "and more")
	}
	return &agents.Error{
		Message: fmt.Sprintf("%s %s is ambiguous: it may mean %s", what, clip(ref), strings.Join(labels, ", ")),
		Hint:    "give more characters of the id",
		Details: map[string]any{"candidates": labels},
		Err:     agents.ErrInvalid,
	}
}
