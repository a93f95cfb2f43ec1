package metastore

import (
	"fmt"
	"strings"

	agents "github.com/cleveragents/agents"
)

// Resources is the repository of resources.
type Resources struct{ tx *Tx }

const resourceColumns = "resource_id, name, type, location, branch, strategy, read_only, created_at"

// Insert stores a new resource.
func (r Resources) Insert(res *agents.Resource) error {
	if err := r.tx.setID("resource", &res.ID); err != nil {
		return err
	}
	r.tx.setTime(&res.CreatedAt)
	return r.tx.insert("resource "+res.Name,
		"INSERT INTO resources ("+resourceColumns+") VALUES (?, ?, ?, ?, ?, ?, ?, ?)", resourceValues(*res)...)
}

// Get returns the resource with that whole id.
func (r Resources) Get(id string) (agents.Resource, error) {
	return selectOne(r.tx, "resource "+id, scanResource, "SELECT "+resourceColumns+" FROM resources WHERE resource_id = ?", id)
}

// ByName returns the resource with that name.
func (r Resources) ByName(name string) (agents.Resource, error) {
	return selectOne(r.tx, "resource "+name, scanResource, "SELECT "+resourceColumns+" FROM resources WHERE name = ?", name)
}

// ByLocation returns the oldest resource of that type and location.
func (r Resources) ByLocation(t agents.ResourceType, location string) (agents.Resource, error) {
	return selectOne(r.tx, fmt.Sprintf("resource of type %s at %s", t, location), scanResource,
		"SELECT "+resourceColumns+" FROM resources WHERE type = ? AND location = ? ORDER BY created_at, resource_id LIMIT 1",
		string(t), []byte(location))
}

// Resolve returns the resource that ref means.
func (r Resources) Resolve(ref string) (agents.Resource, error) {
	id, err := r.tx.resolve(resourceKind(), ref, r.tx.named(resourceKind()))
	if err != nil {
		return agents.Resource{}, err
	}
	return r.Get(id)
}

// List returns all resources by name.
func (r Resources) List() ([]agents.Resource, error) {
	return selectAll(r.tx, scanResource, "SELECT "+resourceColumns+" FROM resources ORDER BY name")
}

// Delete removes a resource that nothing needs. While a project links it or a
// plan that is not terminal uses it, it is agents.ErrBlocked, with a hint that
// names them. Plans that have ended keep their own copy.
func (r Resources) Delete(id string) error {
	links, err := selectAll(r.tx, scanValue[string],
		"SELECT p.name FROM project_resources l JOIN projects p ON p.project_id = l.project_id WHERE l.resource_id = ? ORDER BY p.name", id)
	if err != nil {
		return err
	}
	if len(links) > 0 {
		return blocked(r.what(id), "linked by project "+strings.Join(links, ", "),
			fmt.Sprintf("unlink it first: agents project unlink-resource %s %s", links[0], id))
	}
	return r.delete(id)
}

// DeleteWithLinks removes a resource and its links to projects. Only a plan
// that is not terminal refuses it, with agents.ErrBlocked.
func (r Resources) DeleteWithLinks(id string) error {
	if _, err := r.tx.exec("DELETE FROM project_resources WHERE resource_id = ?", id); err != nil {
		return err
	}
	return r.delete(id)
}

func (r Resources) delete(id string) error {
	users, err := selectAll(r.tx, scanValue[string],
		"SELECT p.plan_id FROM plan_resources u JOIN v3_plans p ON p.plan_id = u.plan_id WHERE u.resource_id = ? AND "+livePlan("p.")+" ORDER BY p.plan_id", id)
	if err != nil {
		return err
	}
	if len(users) > 0 {
		return blocked(r.what(id), "used by plan "+strings.Join(users, ", "), endPlanHint(users[0]))
	}
	return r.tx.change("resource "+id, "DELETE FROM resources WHERE resource_id = ?", id)
}

// what names the resource for a message, by its name where it has a row.
func (r Resources) what(id string) string {
	if res, err := r.Get(id); err == nil {
		return "resource " + res.Name
	}
	return "resource " + id
}

func blocked(what, why, hint string) error {
	return &agents.Error{Message: what + " is " + why, Hint: hint, Err: agents.ErrBlocked}
}

func endPlanHint(planID string) string {
	return fmt.Sprintf("apply or cancel the plan first: agents plan apply %[1]s, or agents plan cancel %[1]s", planID)
}

func resourceValues(res agents.Resource) []any {
	return []any{res.ID, res.Name, string(res.Type), []byte(res.Location), res.Branch, string(res.Strategy), res.ReadOnly, stamp(res.CreatedAt)}
}

func scanResource(row scanner) (agents.Resource, error) {
	var res agents.Resource
	err := row.Scan(resourceFields(&res)...)
	return res, err
}

func resourceFields(res *agents.Resource) []any {
	return []any{&res.ID, &res.Name, &res.Type, textColumn(&res.Location), &res.Branch, &res.Strategy, &res.ReadOnly, timeColumn(&res.CreatedAt)}
}
