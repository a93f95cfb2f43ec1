package cli

import (
	"os/user"

	"github.com/spf13/cobra"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/engine"
)

// planFlags are the flags of every command that makes a plan.
type planFlags struct {
	resources          []string
	projects           []string
	name               string
	profile            string
	requireCheckpoints bool
	includeUncommitted bool
}

func (f *planFlags) register(a *app, cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringArrayVarP(&f.resources, "resource", "r", nil, "resource: [NAME=]PATH|DSN, NAME=TYPE:PATH or a stored name (repeatable)")
	flags.StringVar(&f.name, "name", "", "name of the plan")
	flags.StringVar(&f.profile, "profile", "", "automation profile (else core.automation-profile)")
	flags.BoolVar(&f.requireCheckpoints, "require-checkpoints", false, "refuse tools whose effects cannot be taken back")
	flags.BoolVar(&f.includeUncommitted, "include-uncommitted", false, "bring uncommitted changes into the sandbox; the plan may change other lines than those")
	flag(cmd, "profile", fixed(profileNames()...))
	flag(cmd, "resource", a.resources())
}

func (f *planFlags) request(resources []agents.Resource) engine.PlanRequest {
	return engine.PlanRequest{
		Name: f.name, Resources: resources, Projects: f.projects, Profile: f.profile, Actor: userName(),
		RequireCheckpoints: f.requireCheckpoints, IncludeUncommitted: f.includeUncommitted,
	}
}

// userName is who drives a plan from outside.
func userName() string {
	u, err := user.Current()
	if err != nil {
		return ""
	}
	return u.Username
}
