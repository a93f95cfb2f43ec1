package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/config"
)

// places is a data directory, a project and an environment to load from.
type places struct {
	data, project string
	env           map[string]string
	flags         map[string]string
}

func newPlaces(t *testing.T) *places {
	t.Helper()
	return &places{data: t.TempDir(), project: t.TempDir(), env: map[string]string{}}
}

func (p *places) user(t *testing.T, text string) { write(t, config.UserFile(p.data), text) }

func (p *places) projectFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(p.project, ".cleveragents", "config.toml")
	write(t, file, text)
	return file
}

func (p *places) load() (*config.Config, error) {
	return config.Load(config.Options{
		DataDir: p.data, WorkDir: filepath.Join(p.project, "deep", "down"), Flags: p.flags,
		LookupEnv: func(k string) (string, bool) { v, ok := p.env[k]; return v, ok },
	})
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func mustLoad(t *testing.T, p *places) *config.Config {
	t.Helper()
	c, err := p.load()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func get(t *testing.T, c *config.Config, name string) config.Value {
	t.Helper()
	v, err := c.Get(name)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestEveryDefaultIsValid(t *testing.T) {
	for _, k := range config.Keys() {
		if got, err := k.Parse(k.Default); err != nil || got != k.Default {
			t.Errorf("%s: Parse(%q) = %q, %v", k.Name, k.Default, got, err)
		}
		if k.Help == "" {
			t.Errorf("%s has no help", k.Name)
		}
	}
}

func TestEnvironmentNamesAreDistinct(t *testing.T) {
	seen := map[string]string{}
	for _, k := range config.Keys() {
		if other, dup := seen[k.Env()]; dup {
			t.Errorf("%s and %s share %s", k.Name, other, k.Env())
		}
		seen[k.Env()] = k.Name
	}
	k, err := config.KeyByName("sandbox.checkpoint.max-per-plan")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := k.Env(), "CLEVERAGENTS_SANDBOX_CHECKPOINT_MAX_PER_PLAN"; got != want {
		t.Errorf("Env() = %s, want %s", got, want)
	}
}

func TestPrecedence(t *testing.T) {
	p := newPlaces(t)
	const key = config.KeyCleanup
	steps := []struct {
		name string
		do   func()
		want string
		from config.Source
	}{
		{"nothing", func() {}, "on_apply", config.FromDefault},
		{"user file", func() { p.user(t, "[sandbox]\ncleanup = \"manual\"\n") }, "manual", config.FromUser},
		{"project file", func() { p.projectFile(t, "sandbox.cleanup = \"on_terminal\"\n") }, "on_terminal", config.FromProject},
		{"environment", func() { p.env["CLEVERAGENTS_SANDBOX_CLEANUP"] = "manual" }, "manual", config.FromEnv},
		{"flag", func() { p.flags = map[string]string{key: "on_apply"} }, "on_apply", config.FromFlag},
	}
	for _, s := range steps {
		s.do()
		v := get(t, mustLoad(t, p), key)
		if v.Value != s.want || v.Source != s.from {
			t.Errorf("%s: got %s from %s, want %s from %s", s.name, v.Value, v.Source, s.want, s.from)
		}
	}
}

func TestFaultsNameThePlaceAndTheValidOnes(t *testing.T) {
	for _, c := range []struct {
		name, user string
		want       []string
	}{
		{"unknown key", "# hello\n[sandbox]\nstrategi = \"none\"\n", []string{"config.toml:3:", "sandbox.strategi", "sandbox.strategy", "core.automation-profile"}},
		{"unknown table", "[sandboxes]\nx = 1\n", []string{"config.toml:2:", "sandboxes.x"}},
		{"unknown value", "sandbox.strategy = \"snapshot\"\n", []string{"config.toml:1:", "git_worktree", "copy_on_write", "none"}},
		{"unknown trigger", "[checkpoints]\nauto_create_on = \"before_tool\"\n", []string{"config.toml:2:", "before_tool_execute", "on_error"}},
		{"unknown trigger in a list", "[checkpoints]\nauto_create_on = [\"on_error\", \"x\"]\n", []string{"on_subplan_spawn"}},
		{"unknown profile", "core.automation-profile = \"supervized\"\n", []string{"supervised", "full-auto"}},
		{"out of range", "[sandbox.checkpoint]\nmax-per-plan = 101\n", []string{"1 to 100"}},
		{"wrong type", "[sandbox.checkpoint]\nenabled = 3\n", []string{"true or false"}},
		{"a table for a value", "sandbox.dir = {a = 1}\n", []string{"sandbox.dir.a"}},
		{"a list for a value", "sandbox.dir = [\"a\"]\n", []string{"not a list"}},
		{"a date", "sandbox.dir = 2020-01-01\n", []string{"path"}},
		{"syntax", "[sandbox\nx=1\n", []string{"config.toml:1:"}},
		{"twice", "[sandbox]\ndir=\"a\"\ndir=\"b\"\n", []string{"config.toml"}},
		{"size", "sandbox.checkpoint.quota = \"ten\"\n", []string{"10GiB"}},
		{"duration", "sandbox.git_timeout = \"0s\"\n", []string{"above zero"}},
		{"protected path", "sandbox.protected = [\".git\", \"web/node_modules\"]\n", []string{"without \"/\""}},
		{"protected dots", "sandbox.protected = \"..\"\n", []string{"without \"/\""}},
		{"percent", "sandbox.min-free = \"120%\"\n", []string{"5%"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPlaces(t)
			p.user(t, c.user)
			_, err := p.load()
			if !errors.Is(err, agents.ErrInvalid) {
				t.Fatalf("err = %v, want ErrInvalid", err)
			}
			for _, w := range c.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("error lacks %q: %v", w, err)
				}
			}
		})
	}
}

func TestEnvironmentFaultNamesTheVariable(t *testing.T) {
	p := newPlaces(t)
	p.env["CLEVERAGENTS_SANDBOX_ENFORCE"] = "yes"
	_, err := p.load()
	if !errors.Is(err, agents.ErrInvalid) || !strings.Contains(err.Error(), "CLEVERAGENTS_SANDBOX_ENFORCE") {
		t.Errorf("err = %v", err)
	}
}

// U015: both names of the copy strategy are accepted, one is reported.
func TestU015FilesystemCopyIsCopyOnWrite(t *testing.T) {
	p := newPlaces(t)
	p.user(t, "sandbox.strategy = \"filesystem_copy\"\n")
	c := mustLoad(t, p)
	if got := get(t, c, config.KeyStrategy).Value; got != "copy_on_write" {
		t.Errorf("got %s", got)
	}
	s, err := c.Settings()
	if err != nil || s.Strategy != agents.CopyOnWrite {
		t.Errorf("Settings().Strategy = %s, %v", s.Strategy, err)
	}
}

func TestSettings(t *testing.T) {
	p := newPlaces(t)
	s, err := mustLoad(t, p).Settings()
	if err != nil {
		t.Fatal(err)
	}
	if s.Strategy != "" {
		t.Errorf("Strategy = %q: a default is nobody's wish", s.Strategy)
	}
	if s.SandboxDir != filepath.Join(p.data, "sandboxes") || s.PlanQuota != 10<<30 || s.TotalQuota != 50<<30 ||
		s.MinFreePercent != 5 || s.ArchiveKeep != 30*24*time.Hour || s.Sandbox.GitTimeout != 30*time.Second ||
		s.Retention != agents.DefaultRetention() || !s.Checkpoints || s.Profile != "supervised" || s.CleanupSource != "default" {
		t.Errorf("defaults: %+v", s)
	}
	if diff := cmp.Diff(agents.Triggers(), s.Triggers); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{".git", ".cleveragents", "node_modules"}, s.Sandbox.Protected); diff != "" {
		t.Error(diff)
	}

	p.env["CLEVERAGENTS_CHECKPOINTS_AUTO_CREATE_ON"] = ""
	p.env["CLEVERAGENTS_SANDBOX_PROTECTED"] = ""
	p.env["CLEVERAGENTS_SANDBOX_DIR"] = "" // set but empty: as if not set
	p.user(t, "[sandbox]\ngit.include = [\".env\", \"conf/*\"]\ndir = \"elsewhere\"\n")
	s, err = mustLoad(t, p).Settings()
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Triggers) != 0 {
		t.Errorf("Triggers = %v, want none", s.Triggers)
	}
	if s.Sandbox.Protected == nil || len(s.Sandbox.Protected) != 0 {
		t.Errorf("Protected = %#v, want an empty list, which is not the default", s.Sandbox.Protected)
	}
	if diff := cmp.Diff([]string{".env", "conf/*"}, s.Sandbox.GitInclude); diff != "" {
		t.Error(diff)
	}
	if want := filepath.Join(p.data, "elsewhere"); s.SandboxDir != want {
		t.Errorf("SandboxDir = %s, want %s", s.SandboxDir, want)
	}
}

func TestProjectFileOnlyTightensUntilTrusted(t *testing.T) {
	for _, c := range []struct {
		key, user, project string
		ok                 bool
	}{
		{config.KeyEnforce, `"auto"`, `"required"`, true},
		{config.KeyEnforce, `"required"`, `"off"`, false},
		{config.KeyStrategy, `"copy_on_write"`, `"git_worktree"`, true},
		{config.KeyStrategy, `"git_worktree"`, `"none"`, false},
		{config.KeyProfile, `"auto"`, `"manual"`, true},
		{config.KeyProfile, `"manual"`, `"full-auto"`, false},
		{config.KeyProfile, `"supervised"`, `"trusted"`, false},
		{config.KeyCheckpoints, `true`, `false`, false},
		{config.KeyCheckpoints, `false`, `true`, true},
		{config.KeyProtected, `".git"`, `".git,vendor"`, true},
		{config.KeyProtected, `".git,vendor"`, `".git"`, false},
		{config.KeyMaxPerPlan, `50`, `10`, false},
		{config.KeyMaxPerPlan, `50`, `60`, true},
		{config.KeyQuota, `"1GiB"`, `"1MiB"`, false},
		{config.KeyQuota, `"1GiB"`, `0`, true},
		{config.KeyQuota, `0`, `"1GiB"`, false},
		{config.KeyAutoCreateOn, `"on_error"`, `""`, false},
		{config.KeyAutoCreateOn, `"on_error"`, `"on_error,before_tool_execute"`, true},
		{config.KeyProtected, `"a"`, `"b"`, false},
		{config.KeyProtected, `"a"`, `["a", "b"]`, true},
		{config.KeySandboxDir, `"/tmp/a"`, `"/tmp/b"`, false},
		{config.KeyCheckpDir, `"/tmp/a"`, `"/tmp/b"`, false},
		{config.KeyMinFree, `"5%"`, `"1%"`, false},
		{config.KeyIgnored, `"changed"`, `"none"`, false},
		{config.KeyAutoPrune, `false`, `true`, false},
	} {
		t.Run(c.key+" "+c.user+" "+c.project, func(t *testing.T) {
			p := newPlaces(t)
			p.user(t, c.key+" = "+c.user+"\n")
			file := p.projectFile(t, c.key+" = "+c.project+"\n")
			conf := mustLoad(t, p)
			from := get(t, conf, c.key).Source
			if want := map[bool]config.Source{true: config.FromProject, false: config.FromUser}[c.ok]; from != want {
				t.Errorf("untrusted: value is from %s, want %s", from, want)
			}
			if got, want := len(conf.Notices), map[bool]int{true: 0, false: 1}[c.ok]; got != want {
				t.Errorf("untrusted: notices %v", conf.Notices)
			}

			if err := config.Trust(p.data, file); err != nil {
				t.Fatal(err)
			}
			conf = mustLoad(t, p)
			if got := get(t, conf, c.key).Source; got != config.FromProject || !conf.Trusted {
				t.Errorf("trusted: value is from %s", got)
			}

			p.projectFile(t, "# changed\n"+c.key+" = "+c.project+"\n")
			if conf = mustLoad(t, p); conf.Trusted {
				t.Error("a changed file is still trusted")
			}
		})
	}
}

func TestTrustRefusesAMissingOrFaultyFile(t *testing.T) {
	p := newPlaces(t)
	if err := config.Trust(p.data, filepath.Join(p.project, "none")); !errors.Is(err, agents.ErrNotFound) {
		t.Errorf("missing: %v", err)
	}
	file := p.projectFile(t, "x = 1\n")
	if err := config.Trust(p.data, file); !errors.Is(err, agents.ErrInvalid) {
		t.Errorf("faulty: %v", err)
	}
}

func TestSetKeepsCommentsAndLayout(t *testing.T) {
	for _, c := range []struct{ name, before, key, value, after string }{
		{"new file", "", "sandbox.cleanup", "manual", "[sandbox]\ncleanup = \"manual\"\n"},
		{
			"replace", "# top\n[sandbox] # s\n  cleanup   =  \"on_apply\"   # why\n\n# end\n", "sandbox.cleanup", "manual",
			"# top\n[sandbox] # s\n  cleanup   =  \"manual\"   # why\n\n# end\n",
		},
		{
			"add to a table", "[sandbox]\ndir = \"x\" # d\n\n# about checkpoints\n[sandbox.checkpoint]\nenabled = true\n", "sandbox.enforce", "off",
			"[sandbox]\ndir = \"x\" # d\nenforce = \"off\"\n\n# about checkpoints\n[sandbox.checkpoint]\nenabled = true\n",
		},
		{
			"add a table", "[sandbox]\ndir = \"x\"", "sandbox.checkpoint.max-per-plan", "7",
			"[sandbox]\ndir = \"x\"\n\n[sandbox.checkpoint]\nmax-per-plan = 7\n",
		},
		{
			"dotted keys", "sandbox.dir = \"x\"\n", "sandbox.enforce", "off",
			"sandbox.enforce = \"off\"\nsandbox.dir = \"x\"\n",
		},
		{
			"an array over lines", "[checkpoints]\nauto_create_on = [ # the [list]\n  \"on_error\", # ]\n]\n# after\n", "checkpoints.auto_create_on", "before_tool_execute,on_error",
			"[checkpoints]\nauto_create_on = [\"before_tool_execute\", \"on_error\"]\n# after\n",
		},
		{
			"the empty list", "checkpoints.auto_create_on = \"on_error\"\n", "checkpoints.auto_create_on", "",
			"checkpoints.auto_create_on = []\n",
		},
		{
			"line ends", "[sandbox]\r\ndir = 'x'\r\n", "sandbox.enforce", "off",
			"[sandbox]\r\ndir = 'x'\r\nenforce = \"off\"\r\n",
		},
		{
			"a path with signs", "", "sandbox.dir", "/a \"b\"\\c",
			"[sandbox]\ndir = \"/a \\\"b\\\"\\\\c\"\n",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "sub", "config.toml")
			if c.before != "" {
				write(t, file, c.before)
			}
			if err := config.Set(file, c.key, c.value); err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.after, string(got)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestSetChecksFirst(t *testing.T) {
	for _, c := range []struct{ name, before, key, value string }{
		{"unknown key", "# keep\n", "sandbox.nope", "1"},
		{"bad value", "# keep\n", "sandbox.cleanup", "never"},
		{"bad file", "[sandbox]\nnope = 1\n", "sandbox.cleanup", "manual"},
		{"inside an inline table", "sandbox = {dir = \"x\"}\n", "sandbox.enforce", "off"},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "config.toml")
			write(t, file, c.before)
			if err := config.Set(file, c.key, c.value); !errors.Is(err, agents.ErrInvalid) {
				t.Errorf("err = %v, want ErrInvalid", err)
			}
			if got, _ := os.ReadFile(file); string(got) != c.before {
				t.Errorf("file changed: %q", got)
			}
		})
	}
}

func TestSizes(t *testing.T) {
	for in, want := range map[string]int64{
		"0": 0, "1024": 1024, "10GiB": 10 << 30, "1.5 MiB": 3 << 19, "2k": 2048, "1MB": 1e6, "3T": 3 << 40, "7b": 7,
	} {
		if got, err := config.ParseSize(in); err != nil || got != want {
			t.Errorf("ParseSize(%q) = %d, %v, want %d", in, got, err, want)
		}
	}
	for _, in := range []string{"", "-1", "x", "1XB", "GiB", "NaN", "9999999T", "1e400"} {
		if got, err := config.ParseSize(in); err == nil {
			t.Errorf("ParseSize(%q) = %d, want an error", in, got)
		}
	}
}

func TestDataDir(t *testing.T) {
	env := map[string]string{"HOME": "/h"}
	getenv := func(k string) string { return env[k] }
	for _, c := range []struct {
		set  map[string]string
		flag string
		want string
	}{
		{nil, "", "/h/.local/state/cleveragents"},
		{map[string]string{"XDG_STATE_HOME": "relative"}, "", "/h/.local/state/cleveragents"},
		{map[string]string{"XDG_STATE_HOME": "/x"}, "", "/x/cleveragents"},
		{map[string]string{"CLEVERAGENTS_DATA_DIR": "/d"}, "", "/d"},
		{nil, "/f", "/f"},
	} {
		for k, v := range c.set {
			env[k] = v
		}
		if got, err := config.DataDir(c.flag, getenv); err != nil || got != c.want {
			t.Errorf("got %s, %v, want %s", got, err, c.want)
		}
	}
}

func TestMakeDataDirIsForTheOwnerAlone(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{dir, filepath.Join(dir, "new")} {
		if err := config.MakeDataDir(d); err != nil {
			t.Fatal(err)
		}
		if fi, err := os.Stat(d); err != nil || fi.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v, %v", d, fi.Mode(), err)
		}
	}
}
