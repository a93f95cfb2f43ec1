package none_test

import (
	"testing"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/sandbox"
	"github.com/cleveragents/agents/sandbox/none"
	"github.com/cleveragents/agents/sandbox/sandboxtest"
)

func TestConformance(t *testing.T) {
	sandboxtest.Run(t, sandboxtest.Config{
		New: func(testing.TB) sandbox.Strategy { return none.New() },
		Resource: func(t testing.TB, dir string) agents.Resource {
			t.Helper()
			if err := sandboxtest.WriteSeed(dir); err != nil {
				t.Fatal(err)
			}
			return agents.Resource{ID: "01HZZZZZZZZZZZZZZZZZZZZZZZ", Name: "dir", Type: agents.TypeDirectory, Location: dir}
		},
	})
}
