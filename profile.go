package agents

import "fmt"

// Profile is an automation profile: how much a plan may do without asking.
type Profile struct {
	Name               string `json:"name"`
	RequireSandbox     bool   `json:"require_sandbox"`
	RequireCheckpoints bool   `json:"require_checkpoints"`
	AllowUnsafeTools   bool   `json:"allow_unsafe_tools"`
}

// DefaultProfile is the profile of a plan when nobody names one.
const DefaultProfile = "supervised"

// Profiles returns the eight built-in profiles, from the strictest to the freest.
func Profiles() []Profile {
	return []Profile{
		{"manual", true, true, false},
		{"review", true, true, false},
		{"supervised", true, false, false},
		{"cautious", true, true, false},
		{"trusted", true, false, true},
		{"auto", true, false, true},
		{"ci", true, false, true},
		{"full-auto", false, false, true},
	}
}

// ProfileByName returns the built-in profile with that name; "" is the default
// one. An unknown name is ErrInvalid and the message lists the valid ones.
func ProfileByName(name string) (Profile, error) {
	if name == "" {
		name = DefaultProfile
	}
	var names []string
	for _, p := range Profiles() {
		if p.Name == name {
			return p, nil
		}
		names = append(names, p.Name)
	}
	return Profile{}, fmt.Errorf("automation profile %q: want one of %s: %w", clip(name), joinNames(names), ErrInvalid)
}
