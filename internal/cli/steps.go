package cli

import (
	"regexp"
	"slices"

	"github.com/cleveragents/agents/internal/view"
)

// asks matches the commands that ask before they do something, as next steps
// and hints spell them.
var asks = regexp.MustCompile(`agents plan (?:(?:apply|undo|rollback|checkpoint delete) \w[\w.-]*|cancel \w[\w.-]* --discard)`)

// literally returns a text whose commands work as they stand: where nobody can
// answer, those that ask get --yes.
func (a *app) literally(text string) string {
	if a.interactive() || yesAlready.MatchString(text) {
		return text
	}
	return asks.ReplaceAllString(text, "${0} --yes")
}

var yesAlready = regexp.MustCompile(`(?:^|\s)(?:--yes|-y|--dry-run)\b`)

// typed does the same for next steps.
func (a *app) typed(steps []string) []string {
	out := slices.Clone(steps)
	for i, step := range out {
		out[i] = a.literally(step)
	}
	return out
}

// planSteps are the ways to go on with a plan that holds changes.
func planSteps(plan string) []string {
	return []string{
		"agents plan diff " + plan + " --patch",
		"agents plan apply " + plan,
		"agents plan checkpoint list " + plan,
		"agents plan cancel " + plan + " --discard",
	}
}

// endStep ends a plan that has nothing to apply.
func endStep(plan string) string { return "agents plan cancel " + plan + " --discard --yes" }

// withSteps gives a document its next steps, if it has none: an empty list.
func withSteps(doc view.Document, err error) (view.Document, error) {
	return doc.Merge(view.NextSteps(nil)), err
}

// keep leaves the sandbox as it is and says what to type next.
func (s *session) keep(plan string, changed bool) view.Document {
	if changed {
		return s.goOn(planSteps(plan))
	}
	return s.goOn([]string{endStep(plan)}, "There is nothing to apply.")
}

// kept is keep after something came in between.
func (s *session) kept(plan string, changed bool) view.Document {
	if changed {
		return s.goOn(planSteps(plan), "Plan "+plan+" is kept with the changes made so far; nothing was applied.")
	}
	return s.goOn([]string{"agents plan status " + plan, endStep(plan)}, "Plan "+plan+" is kept; there is nothing to apply.")
}

func (s *session) goOn(steps []string, messages ...string) view.Document {
	steps = s.app.typed(steps)
	rows := view.Panel{Title: "Next Steps"}
	for _, step := range steps {
		rows.Rows = append(rows.Rows, [2]string{"", step})
	}
	var blocks []view.Block
	for _, m := range messages {
		blocks = append(blocks, view.Note(m))
	}
	s.app.tell(append(blocks, rows))
	return view.Document{Keys: []view.Field{{Name: "next_steps", Value: steps}}, Messages: messages}
}
