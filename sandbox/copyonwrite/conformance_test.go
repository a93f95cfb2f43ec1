package copyonwrite_test

import (
	"os"
	"path/filepath"
	"testing"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/sandbox"
	"github.com/cleveragents/agents/sandbox/copyonwrite"
	"github.com/cleveragents/agents/sandbox/sandboxtest"
)

func TestConformance(t *testing.T) { conformance(t) }

func conformance(t *testing.T) {
	t.Helper()
	sandboxtest.Run(t, sandboxtest.Config{
		New:      func(testing.TB) sandbox.Strategy { return copyonwrite.New() },
		Resource: seededDirectory,
	})
}

// seededDirectory is a directory of the seed.
func seededDirectory(t testing.TB, dir string) agents.Resource {
	t.Helper()
	at := filepath.Join(dir, "directory")
	if err := os.Mkdir(at, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := sandboxtest.WriteSeed(at); err != nil {
		t.Fatal(err)
	}
	return agents.Resource{ID: "01HZZZZZZZZZZZZZZZZZZZZZZZ", Name: "directory", Type: agents.TypeDirectory, Location: at}
}
