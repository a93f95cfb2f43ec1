package proc

import (
	"context"
	"fmt"
	"time"
)

// PlanVariable is the environment variable that tells a command, and EndLeft,
// which plan it runs for.
const PlanVariable = "AGENTS_PLAN"

// EndLeft ends the processes that a killed Run left behind: this user's whose
// environment has PlanVariable with this value, but for this process and those
// that it descends from. The caller holds the plan's lock, so that no Run of
// the plan goes on. It returns sentences for the user. Where processes cannot
// be listed it does nothing. An error says that one could not be ended.
func EndLeft(ctx context.Context, plan string) ([]string, error) {
	left := marked(plan)
	if len(left) == 0 {
		return nil, nil
	}
	notice := fmt.Sprintf("%s left by a killed call of plan %s and ended: %s", count(left), plan, describe(left))
	signalAll(left, false)
	for began := time.Now(); time.Since(began) < DefaultGrace+killWait; {
		if left = marked(plan); len(left) == 0 {
			return []string{notice}, nil
		}
		if time.Since(began) > DefaultGrace {
			signalAll(left, true)
		}
		select {
		case <-ctx.Done():
			return []string{notice}, ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
	return []string{notice}, fmt.Errorf("plan %s: could not end %s", plan, describe(left))
}
