// Command agents is the sandbox and checkpoint system for plans run by AI agents.
package main

func main() {}
