package agents

import "fmt"

// RetentionPolicy governs how many checkpoints a plan keeps
// (checkpointing.md, "Retention Policy").
type RetentionPolicy struct {
	MaxCheckpoints int // 1 to 100
	AutoPrune      bool
}

// DefaultRetention is the policy when nobody sets one.
func DefaultRetention() RetentionPolicy {
	return RetentionPolicy{MaxCheckpoints: 50, AutoPrune: true}
}

// Validate reports a limit outside 1 to 100 as ErrInvalid.
func (p RetentionPolicy) Validate() error {
	if p.MaxCheckpoints < 1 || p.MaxCheckpoints > 100 {
		return fmt.Errorf("max checkpoints per plan %d: want 1 to 100: %w", p.MaxCheckpoints, ErrInvalid)
	}
	return nil
}

// Prune returns the ids to remove from all, which is in the order of
// Checkpoint.Seq, so that at most MaxCheckpoints stay: the oldest interior
// ones first. The first, the newest and every pinned one always stay, even if
// that is more than the limit; over then says by how many. It looks at no
// clock and changes nothing.
func (p RetentionPolicy) Prune(all []Checkpoint) (remove []string, over int) {
	if !p.AutoPrune {
		return nil, max(0, len(all)-p.MaxCheckpoints)
	}
	excess := len(all) - p.MaxCheckpoints
	for i := 1; i < len(all)-1 && excess > 0; i++ {
		if all[i].Pinned {
			continue
		}
		remove = append(remove, all[i].ID)
		excess--
	}
	return remove, max(0, excess)
}
