package proc

import "strings"

// Environ returns the environment for a command that runs in dir: base without
// its GIT_* variables, then PWD, then extra ("NAME=value"). Of several values
// for one name the last counts. base is not changed.
func Environ(base []string, dir string, extra ...string) []string {
	var kept []string
	for _, kv := range base {
		if !strings.HasPrefix(kv, "GIT_") {
			kept = append(kept, kv)
		}
	}
	return lastWins(append(append(kept, "PWD="+dir), extra...))
}

// Getenv returns the value of a variable of an environment list, or "".
func Getenv(env []string, name string) string {
	value := ""
	for _, kv := range env {
		if n, v, ok := strings.Cut(kv, "="); ok && n == name {
			value = v
		}
	}
	return value
}

// lastWins keeps the last value of each name, at the place of the first.
func lastWins(env []string) []string {
	at := make(map[string]int, len(env))
	var out []string
	for _, kv := range env {
		name, _, ok := strings.Cut(kv, "=")
		if !ok || name == "" {
			continue
		}
		if i, seen := at[name]; seen {
			out[i] = kv
			continue
		}
		at[name] = len(out)
		out = append(out, kv)
	}
	return out
}
