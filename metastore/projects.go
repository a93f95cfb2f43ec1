package metastore

import (
	"strings"

	agents "github.com/cleveragents/agents"
)

// Projects is the repository of projects and their links to resources.
type Projects struct{ tx *Tx }

const projectColumns = "project_id, name, created_at"

// Insert stores a new project and links its resources, which must be stored
// already.
func (r Projects) Insert(p *agents.Project) error {
	if err := r.tx.setID("project", &p.ID); err != nil {
		return err
	}
	r.tx.setTime(&p.CreatedAt)
	if err := r.tx.insert("project "+p.Name,
		"INSERT INTO projects ("+projectColumns+") VALUES (?, ?, ?)", p.ID, p.Name, stamp(p.CreatedAt)); err != nil {
		return err
	}
	for _, res := range p.Resources {
		if err := r.Link(p.ID, res.ID); err != nil {
			return err
		}
	}
	return nil
}

// Get returns the project with that whole id.
func (r Projects) Get(id string) (agents.Project, error) {
	return r.one("project "+id, "project_id = ?", id)
}

// ByName returns the project with that name.
func (r Projects) ByName(name string) (agents.Project, error) {
	return r.one("project "+name, "name = ?", name)
}

// Resolve returns the project that ref means.
func (r Projects) Resolve(ref string) (agents.Project, error) {
	id, err := r.tx.resolve(projectKind(), ref, r.tx.named(projectKind()))
	if err != nil {
		return agents.Project{}, err
	}
	return r.Get(id)
}

// List returns all projects by name, each with its resources.
func (r Projects) List() ([]agents.Project, error) {
	all, err := selectAll(r.tx, scanProject, "SELECT "+projectColumns+" FROM projects ORDER BY name")
	if err != nil {
		return nil, err
	}
	for i := range all {
		if err := r.fill(&all[i]); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// Link adds a resource at the end of the project's list. One that is linked
// already stays where it is.
func (r Projects) Link(projectID, resourceID string) error {
	return r.tx.insert("link of project "+projectID+" to resource "+resourceID,
		`INSERT INTO project_resources (project_id, resource_id, position)
		SELECT ?, ?, COALESCE(MAX(position), 0) + 1 FROM project_resources WHERE project_id = ?
		ON CONFLICT (project_id, resource_id) DO NOTHING`,
		projectID, resourceID, projectID)
}

// Unlink takes a resource out of the project. One that is not linked is no error.
func (r Projects) Unlink(projectID, resourceID string) error {
	_, err := r.tx.exec("DELETE FROM project_resources WHERE project_id = ? AND resource_id = ?", projectID, resourceID)
	return err
}

// Delete removes a project and its links; the resources stay. While a plan that
// is not terminal uses it, it is agents.ErrBlocked.
func (r Projects) Delete(id string) error {
	p, err := r.Get(id)
	if err != nil {
		return err
	}
	users, err := selectAll(r.tx, scanValue[string],
		"SELECT p.plan_id FROM plan_projects u JOIN v3_plans p ON p.plan_id = u.plan_id WHERE u.name = ? AND "+livePlan("p.")+" ORDER BY p.plan_id", p.Name)
	if err != nil {
		return err
	}
	if len(users) > 0 {
		return blocked("project "+p.Name, "used by plan "+strings.Join(users, ", "), endPlanHint(users[0]))
	}
	return r.tx.change("project "+id, "DELETE FROM projects WHERE project_id = ?", id)
}

func (r Projects) one(what, where string, arg string) (agents.Project, error) {
	p, err := selectOne(r.tx, what, scanProject, "SELECT "+projectColumns+" FROM projects WHERE "+where, arg)
	if err != nil {
		return agents.Project{}, err
	}
	return p, r.fill(&p)
}

// fill reads the project's resources.
func (r Projects) fill(p *agents.Project) error {
	var err error
	p.Resources, err = selectAll(r.tx, scanResource,
		"SELECT r."+strings.ReplaceAll(resourceColumns, ", ", ", r.")+
			" FROM project_resources l JOIN resources r ON r.resource_id = l.resource_id WHERE l.project_id = ? ORDER BY l.position", p.ID)
	return err
}

func scanProject(row scanner) (agents.Project, error) {
	var p agents.Project
	err := row.Scan(&p.ID, &p.Name, timeColumn(&p.CreatedAt))
	return p, err
}
