package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/metastore"
)

// AddResource checks and stores a resource: its name must be free, its type
// and strategy known, and what its location names must exist. The location of
// a file or directory is stored absolute, as the user spelled it.
func (e *Engine) AddResource(ctx context.Context, r agents.Resource) (agents.Resource, error) {
	r, err := e.checkResource(r)
	if err != nil {
		return agents.Resource{}, err
	}
	if err := e.store.Write(ctx, func(tx *metastore.Tx) error { return tx.Resources().Insert(&r) }); err != nil {
		return r, err
	}
	// It may still share the sandbox of a resource around it, so it is no error yet (U017).
	name, _ := r.EffectiveStrategy(e.set.Strategy)
	if _, err := e.strategies.Lookup(name); err != nil {
		e.notify(fmt.Sprintf("resource %s cannot have a sandbox of its own: strategy %s is not in this build; %s", r.Name, name, agents.HintOf(e.orCopy(r, err))))
	}
	return r, nil
}

// checkResource completes r with an id and an absolute location.
func (e *Engine) checkResource(r agents.Resource) (agents.Resource, error) {
	if err := r.Validate(); err != nil {
		return r, err
	}
	info, err := agents.TypeInfoOf(r.Type)
	if err != nil {
		return r, err
	}
	if !info.LocationURL {
		if r.Location, err = existingPath(r.Location); err != nil {
			return r, fmt.Errorf("resource %s: %w", r.Name, err)
		}
	}
	r.ID, r.CreatedAt = agents.NewID(e.now()), e.now()
	return r, nil
}

func existingPath(path string) (string, error) {
	if strings.ContainsRune(path, 0) {
		return "", fmt.Errorf("path %q: %w", path, agents.ErrInvalid)
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(abs); err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return "", fmt.Errorf("path %s: %w", abs, agents.ErrNotFound)
		}
		return "", err
	}
	return abs, nil
}

// Resources lists the stored resources by name.
func (e *Engine) Resources(ctx context.Context) (out []agents.Resource, err error) {
	err = e.store.Read(ctx, func(tx *metastore.Tx) error {
		out, err = tx.Resources().List()
		return err
	})
	return out, err
}

// Resource returns the resource with this name or id, or agents.ErrNotFound.
func (e *Engine) Resource(ctx context.Context, ref string) (r agents.Resource, err error) {
	err = e.store.Read(ctx, func(tx *metastore.Tx) error {
		r, err = tx.Resources().Resolve(ref)
		return err
	})
	return r, err
}

// RemoveResource forgets a resource. The thing itself is not touched. It is
// agents.ErrBlocked while a project links it or an unfinished plan uses it.
func (e *Engine) RemoveResource(ctx context.Context, ref string) (r agents.Resource, err error) {
	err = e.store.Write(ctx, func(tx *metastore.Tx) error {
		if r, err = tx.Resources().Resolve(ref); err != nil {
			return err
		}
		return tx.Resources().Delete(r.ID)
	})
	return r, err
}

// CreateProject stores an empty project; a taken name is agents.ErrExists.
func (e *Engine) CreateProject(ctx context.Context, name string) (agents.Project, error) {
	if err := agents.ValidateName("project name", name); err != nil {
		return agents.Project{}, err
	}
	p := agents.Project{ID: agents.NewID(e.now()), Name: name, CreatedAt: e.now()}
	err := e.store.Write(ctx, func(tx *metastore.Tx) error { return tx.Projects().Insert(&p) })
	return p, err
}

// Projects lists the projects with their resources, by name.
func (e *Engine) Projects(ctx context.Context) (out []agents.Project, err error) {
	err = e.store.Read(ctx, func(tx *metastore.Tx) error {
		out, err = tx.Projects().List()
		return err
	})
	return out, err
}

// Project returns the project with this name or id, or agents.ErrNotFound.
func (e *Engine) Project(ctx context.Context, ref string) (p agents.Project, err error) {
	err = e.store.Read(ctx, func(tx *metastore.Tx) error {
		p, err = tx.Projects().Resolve(ref)
		return err
	})
	return p, err
}

// DeleteProject forgets a project and its links; the resources stay. It is
// agents.ErrBlocked while an unfinished plan uses the project.
func (e *Engine) DeleteProject(ctx context.Context, ref string) (p agents.Project, err error) {
	err = e.store.Write(ctx, func(tx *metastore.Tx) error {
		if p, err = tx.Projects().Resolve(ref); err != nil {
			return err
		}
		return tx.Projects().Delete(p.ID)
	})
	return p, err
}

// LinkResource links a resource to a project; linking twice is no error. One
// that can be in no plan together with another of the project, since nobody
// can say whose sandbox they share, is agents.ErrConflict.
func (e *Engine) LinkResource(ctx context.Context, project, resource string) (agents.Project, error) {
	return e.link(ctx, project, resource, metastore.Projects.Link, func(p agents.Project) error {
		_, err := e.setBoundaries(p.Resources)
		return err
	})
}

// UnlinkResource takes a link away; one that is not there is no error.
func (e *Engine) UnlinkResource(ctx context.Context, project, resource string) (agents.Project, error) {
	return e.link(ctx, project, resource, metastore.Projects.Unlink, func(agents.Project) error { return nil })
}

func (e *Engine) link(ctx context.Context, project, resource string, do func(metastore.Projects, string, string) error, check func(agents.Project) error) (p agents.Project, err error) {
	err = e.store.Write(ctx, func(tx *metastore.Tx) error {
		if p, err = tx.Projects().Resolve(project); err != nil {
			return err
		}
		r, err := tx.Resources().Resolve(resource)
		if err != nil {
			return err
		}
		if err := do(tx.Projects(), p.ID, r.ID); err != nil {
			return err
		}
		if p, err = tx.Projects().Resolve(p.ID); err != nil {
			return err
		}
		return check(p)
	})
	return p, err
}

// pickResource finds the resource that a call names among a plan's; an empty
// name is the only one there is.
func pickResource(resources []agents.Resource, name string) (agents.Resource, error) {
	var names []string
	for _, r := range resources {
		if name != "" && (r.Name == name || r.ID == name) {
			return r, nil
		}
		names = append(names, r.Name)
	}
	switch {
	case name == "" && len(resources) == 1:
		return resources[0], nil
	case len(resources) == 0:
		return agents.Resource{}, fmt.Errorf("the plan has no resource: %w", agents.ErrInvalid)
	case name == "":
		return agents.Resource{}, fmt.Errorf("the plan has several resources; name one of %s: %w", strings.Join(names, ", "), agents.ErrInvalid)
	}
	return agents.Resource{}, fmt.Errorf("resource %q is not in the plan; want one of %s: %w", name, strings.Join(names, ", "), agents.ErrInvalid)
}
