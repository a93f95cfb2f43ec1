// Package agents is the vocabulary of the sandbox and checkpoint system for
// plans run by AI agents: resources, plans, sandboxes, checkpoints, tool
// capabilities, the two state tables, the retention rule, result types and
// error classes.
//
// It does no I/O and reads no clock. The services that act on these words are
// in package engine; the mechanisms of isolation are in package sandbox and
// below it; rows live in package metastore and checkpoint payloads in package
// checkpoint.
package agents
