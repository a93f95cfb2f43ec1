package config

import (
	"fmt"
	"os"
	"path/filepath"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/engine"
	"github.com/cleveragents/agents/sandbox"
)

// Source is the place that a value comes from.
type Source string

// The sources, from the weakest to the strongest.
const (
	FromDefault Source = "default"
	FromUser    Source = "user"
	FromProject Source = "project"
	FromEnv     Source = "env"
	FromFlag    Source = "flag"
)

// Value is the value of one key and where it came from.
type Value struct {
	Key    Key
	Value  string // canonical; paths are absolute
	Source Source
	Origin string // the file and line, or the variable; "" = none
}

// Options say where to look. WorkDir and DataDir are absolute.
type Options struct {
	DataDir   string
	WorkDir   string
	LookupEnv func(string) (string, bool)
	Flags     map[string]string // key → value given on the command line
}

// Config is the merged configuration. It does not change after Load.
type Config struct {
	DataDir     string
	ProjectFile string   // the project file found upward from WorkDir, or ""
	Trusted     bool     // ProjectFile may loosen
	Notices     []string // sentences for the user
	values      map[string]Value
}

// UserFile returns the path of the user's configuration file.
func UserFile(dataDir string) string { return filepath.Join(dataDir, "config.toml") }

// Load reads all places and merges them: flag, environment, project, user,
// default. A fault in any of them is agents.ErrInvalid that names the place. A
// project file that was not trusted may only tighten; what it tried to loosen
// is left out and said in Notices.
func Load(opts Options) (*Config, error) {
	c := &Config{DataDir: opts.DataDir, values: map[string]Value{}}
	for _, k := range Keys() {
		c.put(k, k.Default, FromDefault, "", opts.DataDir, opts)
	}
	if err := c.loadUser(opts); err != nil {
		return nil, err
	}
	if err := c.loadProject(opts); err != nil {
		return nil, err
	}
	for _, k := range Keys() {
		if err := c.loadEnv(k, opts); err != nil {
			return nil, err
		}
	}
	for name, text := range opts.Flags {
		k, err := KeyByName(name)
		if err != nil {
			return nil, err
		}
		v, err := k.Parse(text)
		if err != nil {
			return nil, err
		}
		c.put(k, v, FromFlag, "", opts.WorkDir, opts)
	}
	return c, nil
}

// Get returns the value of the key with this name. An unknown name is
// agents.ErrInvalid and the message lists the valid ones.
func (c *Config) Get(name string) (Value, error) {
	k, err := KeyByName(name)
	if err != nil {
		return Value{}, err
	}
	return c.values[k.Name], nil
}

// List returns every value, sorted by key.
func (c *Config) List() []Value {
	var out []Value
	for _, k := range Keys() {
		out = append(out, c.values[k.Name])
	}
	return out
}

// CheckpointDir returns where checkpoint payloads lie.
func (c *Config) CheckpointDir() string { return c.values[KeyCheckpDir].Value }

// Settings returns the values as the services read them.
func (c *Config) Settings() (engine.Settings, error) {
	r := reader{c: c}
	s := engine.Settings{
		DataDir:       c.DataDir,
		SandboxDir:    r.text(KeySandboxDir),
		Cleanup:       engine.CleanupPolicy(r.text(KeyCleanup)),
		CleanupSource: string(c.values[KeyCleanup].Source),
		Checkpoints:   r.text(KeyCheckpoints) == "true",
		Retention: agents.RetentionPolicy{
			MaxCheckpoints: int(number(&r, KeyMaxPerPlan, intNumber)),
			AutoPrune:      r.text(KeyAutoPrune) == "true",
		},
		PlanQuota:      number(&r, KeyQuota, ParseSize),
		TotalQuota:     number(&r, KeyTotalQuota, ParseSize),
		MinFreePercent: number(&r, KeyMinFree, ParsePercent),
		Enforce:        r.text(KeyEnforce),
		Profile:        r.text(KeyProfile),
		ArchiveKeep:    number(&r, KeyArchiveKeep, ParseDuration),
		Sandbox: sandbox.Options{
			GitTimeout:   number(&r, KeyGitTimeout, ParseDuration),
			GitInclude:   splitList(r.text(KeyGitInclude)),
			IgnoredScope: r.text(KeyIgnored),
			Protected:    append([]string{}, splitList(r.text(KeyProtected))...), // never nil, which would be the default
		},
	}
	if v := c.values[KeyStrategy]; v.Source != FromDefault {
		s.Strategy = agents.StrategyName(v.Value)
	}
	triggers, err := agents.ParseTriggers(r.text(KeyAutoCreateOn))
	if err != nil {
		return engine.Settings{}, err
	}
	s.Triggers = triggers
	return s, r.err
}

// reader takes values out of a Config and keeps the first error.
type reader struct {
	c   *Config
	err error
}

func (r *reader) text(name string) string { return r.c.values[name].Value }

func number[T any](r *reader, name string, parse func(string) (T, error)) T {
	v, err := parse(r.text(name))
	if err != nil && r.err == nil {
		r.err = fmt.Errorf("%s: %w", name, err)
	}
	return v
}

func (c *Config) put(k Key, value string, from Source, origin, base string, opts Options) {
	if k.Kind == Path {
		home, _ := opts.LookupEnv("HOME")
		value = resolve(base, home, value)
	}
	c.values[k.Name] = Value{Key: k, Value: value, Source: from, Origin: origin}
}

func (c *Config) loadUser(opts Options) error {
	file := UserFile(opts.DataDir)
	entries, _, err := readFile(file)
	if err != nil {
		return err
	}
	for _, e := range entries {
		c.put(e.key, e.value, FromUser, fmt.Sprintf("%s:%d", file, e.line), opts.DataDir, opts)
	}
	return nil
}

func (c *Config) loadProject(opts Options) error {
	file := FindProjectFile(opts.WorkDir)
	if file == "" || samePath(file, UserFile(opts.DataDir)) {
		return nil
	}
	entries, data, err := readFile(file)
	if err != nil {
		return err
	}
	c.ProjectFile = file
	c.Trusted, err = isTrusted(opts.DataDir, file, data)
	if err != nil {
		return err
	}
	// The directory that holds .cleveragents is the project's root.
	base := filepath.Dir(filepath.Dir(file))
	for _, e := range entries {
		now := c.values[e.key.Name]
		if !c.Trusted && !e.key.mayTighten(now.Value, e.value) {
			c.Notices = append(c.Notices, fmt.Sprintf(
				"%s:%d: %s = %q is left out: it would loosen %q, and this file is not trusted (agents config trust)",
				file, e.line, e.key.Name, e.value, now.Value))
			continue
		}
		c.put(e.key, e.value, FromProject, fmt.Sprintf("%s:%d", file, e.line), base, opts)
	}
	return nil
}

// loadEnv takes the key's variable. One that is set but empty counts only for
// a list, where it means the empty list.
func (c *Config) loadEnv(k Key, opts Options) error {
	text, ok := opts.LookupEnv(k.Env())
	if !ok || text == "" && k.Kind != List {
		return nil
	}
	v, err := k.Parse(text)
	if err != nil {
		return fmt.Errorf("environment variable %s: %w", k.Env(), err)
	}
	c.put(k, v, FromEnv, k.Env(), opts.WorkDir, opts)
	return nil
}

// FindProjectFile returns .cleveragents/config.toml in dir or the nearest
// directory above it, or "".
func FindProjectFile(dir string) string {
	for {
		file := filepath.Join(dir, ".cleveragents", "config.toml")
		if fi, err := os.Stat(file); err == nil && fi.Mode().IsRegular() {
			return file
		}
		up := filepath.Dir(dir)
		if up == dir {
			return ""
		}
		dir = up
	}
}

func samePath(a, b string) bool {
	fa, errA := os.Stat(a)
	fb, errB := os.Stat(b)
	return errA == nil && errB == nil && os.SameFile(fa, fb)
}
