// Command agents is the sandbox and checkpoint system for plans run by AI agents.
package main

import (
	"os"

	"github.com/cleveragents/agents/internal/cli"
)

func main() { os.Exit(cli.Main(os.Args[1:])) }
