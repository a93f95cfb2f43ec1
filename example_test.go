package agents_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/sandbox"
	"github.com/cleveragents/agents/sandbox/gitworktree"
)

// A plan works on a copy of a repository, goes a step back, and brings its
// result home as a merge, without the command line and without a database.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	repo := exampleRepository(filepath.Join(dir, "shop"))

	planID := agents.NewID(time.Now())
	box := sandbox.New(gitworktree.New(),
		agents.SandboxRecord{ID: agents.NewID(time.Now())},
		agents.Resource{ID: agents.NewID(time.Now()), Name: "shop", Type: agents.TypeGitCheckout, Location: repo},
		sandbox.Config{
			Dir:        filepath.Join(dir, "sandboxes"),
			PrivateDir: filepath.Join(dir, "private"),
			Objects:    filepath.Join(dir, "objects"),
			JournalDir: filepath.Join(dir, "journal"),
		})

	// Create: an isolated worktree on a branch of the plan's own.
	if _, err := box.Create(ctx, planID); err != nil {
		log.Fatal(err)
	}
	defer box.Cleanup(ctx)
	fmt.Println("created:", box.Status())

	// Write: a path within the sandbox; one that leads out is refused.
	config, err := box.Path(ctx, "config.yaml")
	if err != nil {
		log.Fatal(err)
	}
	write(config, "price: 12\n")
	_, err = box.Path(ctx, "../shop/config.yaml")
	fmt.Println("path outside refused:", err != nil)
	fmt.Print("in the repository: ", read(filepath.Join(repo, "config.yaml")))

	// Checkpoint: the whole state, to the last byte.
	payload := filepath.Join(dir, "checkpoint")
	if err := os.Mkdir(payload, 0o700); err != nil {
		log.Fatal(err)
	}
	checkpoint, err := box.Capture(ctx, sandbox.CaptureRequest{Dir: payload, Label: "the new price"})
	if err != nil {
		log.Fatal(err)
	}

	// Rollback: what came after it is undone.
	write(config, "oops\n")
	restored, err := box.Restore(ctx, sandbox.RestoreRequest{Dir: payload, Ref: checkpoint.Ref})
	if err != nil {
		log.Fatal(err)
	}
	for _, c := range restored.Changes {
		fmt.Println("rolled back:", c.Path)
	}
	fmt.Print("in the sandbox: ", read(config))

	// Commit: the result comes home as a merge.
	result, err := box.Commit(ctx, "raise the price")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("changed:", result.ChangedFiles, box.Status())
	fmt.Print("in the repository: ", read(filepath.Join(repo, "config.yaml")))

	// Output:
	// created: CREATED
	// path outside refused: true
	// in the repository: price: 10
	// rolled back: config.yaml
	// in the sandbox: price: 12
	// changed: [config.yaml] COMMITTED
	// in the repository: price: 12
}

// exampleRepository makes a repository with one commit.
func exampleRepository(dir string) string {
	if err := os.Mkdir(dir, 0o755); err != nil {
		log.Fatal(err)
	}
	write(filepath.Join(dir, "config.yaml"), "price: 10\n")
	for _, args := range [][]string{
		{"init", "-q", "-b", "main"},
		{"add", "."},
		{"-c", "user.name=Shop", "-c", "user.email=shop@example.com", "commit", "-q", "-m", "the shop"},
	} {
		if out, err := exec.Command("git", append([]string{"-C", dir}, args...)...).CombinedOutput(); err != nil {
			log.Fatalf("git %s: %v\n%s", args, err, out)
		}
	}
	return dir
}

func write(path, content string) {
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		log.Fatal(err)
	}
}

func read(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		log.Fatal(err)
	}
	return string(data)
}
