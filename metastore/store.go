// Package metastore keeps the rows: resources, projects, actions, plans,
// sandboxes, checkpoints, tool calls, decisions and events, in a SQLite file
// under the data directory.
package metastore

// Store is an open metadata store.
type Store struct{}
