package sandboxtest_test

import (
	"testing"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/sandbox"
	"github.com/cleveragents/agents/sandbox/sandboxtest"
)

func TestPlainConformance(t *testing.T) { sandboxtest.Run(t, plain(sandboxtest.NewPlain())) }

// plain is the suite's configuration for a strategy of directories.
func plain(s sandbox.Strategy) sandboxtest.Config {
	return sandboxtest.Config{
		New: func(testing.TB) sandbox.Strategy { return s },
		Resource: func(t testing.TB, dir string) agents.Resource {
			t.Helper()
			if err := sandboxtest.WriteSeed(dir); err != nil {
				t.Fatal(err)
			}
			return agents.Resource{ID: "01HZZZZZZZZZZZZZZZZZZZZZZZ", Name: "dir", Type: agents.TypeDirectory, Location: dir}
		},
	}
}
