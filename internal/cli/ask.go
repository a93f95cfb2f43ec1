package cli

import (
	"bufio"
	"context"
	"fmt"
	"strings"

	agents "github.com/cleveragents/agents"
)

// confirm asks before something is destroyed or changed for good. yes is the
// answer of --yes. Where nobody can answer, the error is agents.ErrInvalid and
// nothing has happened; a no is errDeclined.
func (a *app) confirm(ctx context.Context, question string, yes bool) error {
	if yes {
		return nil
	}
	if err := a.mayAsk(); err != nil {
		return err
	}
	answer, err := a.ask(ctx, question+" [y/N] ")
	if err != nil {
		return err
	}
	if answer != "y" && answer != "yes" {
		return errDeclined
	}
	return nil
}

// mayAsk refuses where nobody can answer.
func (a *app) mayAsk() error {
	if a.interactive() {
		return nil
	}
	return agents.WithHint(fmt.Errorf("%s needs a confirmation and there is no terminal to ask on: %w", a.command, agents.ErrInvalid),
		"add --yes to go ahead")
}

// ask prints a question to standard error and returns the answer in lower
// case; the end of the input is the empty answer.
func (a *app) ask(ctx context.Context, question string) (string, error) {
	fmt.Fprint(a.err, question)
	lines := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(a.in).ReadString('\n')
		lines <- line
	}()
	select {
	case line := <-lines:
		return strings.ToLower(strings.TrimSpace(line)), nil
	case <-ctx.Done():
		fmt.Fprintln(a.err)
		return "", fmt.Errorf("%s: %w", a.command, agents.ErrInterrupted)
	}
}
