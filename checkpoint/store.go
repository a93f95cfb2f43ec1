// Package checkpoint keeps the payloads of checkpoints: stage, publish, open,
// verify, delete, sweep, and the byte quota.
package checkpoint

// Store is the payload store of all plans.
type Store struct{}
