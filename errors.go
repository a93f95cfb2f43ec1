package agents

import (
	"errors"
	"fmt"
)

// The error classes. Every error that leaves this module's packages wraps one
// of them, unless it is plainly an I/O or internal failure; callers decide
// with errors.Is, never by text. The command line maps a class to its exit
// code.
var (
	ErrInvalid     = errors.New("invalid value")              // the caller's input is wrong: exit 2
	ErrNotFound    = errors.New("not found")                  // the named thing does not exist: exit 3
	ErrState       = errors.New("wrong state")                // a state table forbids it: exit 4
	ErrBlocked     = errors.New("blocked")                    // a guard or a rule forbids it: exit 4
	ErrConflict    = errors.New("conflict")                   // the real side has moved, or merges do not fit: exit 4
	ErrLocked      = errors.New("locked by another process")  // a lock is held elsewhere: exit 4
	ErrExists      = errors.New("already exists")             // a name is taken: exit 4
	ErrUnsupported = errors.New("not supported")              // this machine or strategy cannot: exit 1
	ErrDamaged     = errors.New("damaged")                    // stored data fails its verification: exit 1
	ErrNoSpace     = errors.New("not enough space")           // a quota or the file system is full: exit 1
	ErrPartial     = errors.New("applied in part")            // apply --partial left something: exit 5
	ErrToolFailed  = errors.New("tool failed")                // the tool ran and said no: exit 1
	ErrInterrupted = errors.New("interrupted")                // the user stopped it: exit 130
	ErrNewerData   = errors.New("written by a newer version") // the data dir is ahead of this program: exit 1
)

// Kind is one of the error names that the specification gives.
type Kind string

// The specification's names for errors (git-worktree-sandbox.md, "Error
// Types"; checkpointing.md, "Guards" and "Error Cases").
const (
	SandboxCreationError  Kind = "SandboxCreationError"
	SandboxCommitError    Kind = "SandboxCommitError"
	SandboxRollbackError  Kind = "SandboxRollbackError"
	SandboxStateError     Kind = "SandboxStateError"
	BusinessRuleViolation Kind = "BusinessRuleViolation"
	ValidationError       Kind = "ValidationError"
)

// Error carries one of the specification's error names, the operation's own
// message, a hint that says what to do next, and details for machines. It
// wraps the cause, whose class errors.Is finds.
type Error struct {
	Kind    Kind
	Message string         // what happened, complete in itself when set; else the cause speaks
	Hint    string         // what to type or do next; may be empty
	Details map[string]any // for the JSON document; may be nil
	Err     error          // the cause; never nil
}

func (e *Error) Error() string {
	switch {
	case e.Message == "":
		return e.Err.Error()
	case isClass(e.Err):
		return e.Message
	}
	return fmt.Sprintf("%s: %v", e.Message, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// isClass reports whether err is a bare class, which adds nothing to a message.
func isClass(err error) bool {
	for _, c := range []error{
		ErrInvalid, ErrNotFound, ErrState, ErrBlocked, ErrConflict, ErrLocked, ErrExists, ErrUnsupported,
		ErrDamaged, ErrNoSpace, ErrPartial, ErrToolFailed, ErrInterrupted, ErrNewerData,
	} {
		if err == c {
			return true
		}
	}
	return false
}

// KindOf returns the specification's name that err carries, or "".
func KindOf(err error) Kind {
	var e *Error
	for errors.As(err, &e) {
		if e.Kind != "" {
			return e.Kind
		}
		err = e.Err
	}
	var s *StateError
	if errors.As(err, &s) {
		return SandboxStateError
	}
	return ""
}

// HintOf returns the hint nearest to the outside of err's chain, or "".
func HintOf(err error) string {
	var e *Error
	for errors.As(err, &e) {
		if e.Hint != "" {
			return e.Hint
		}
		err = e.Err
	}
	return ""
}

// WithHint wraps err with a hint that says what to do next. A nil err stays nil.
func WithHint(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return &Error{Hint: fmt.Sprintf(format, args...), Err: err}
}

// StateError says that a state table forbids a move. It is ErrState.
type StateError struct {
	What string // "sandbox 01J…" or "plan 01J…"
	From string
	To   string // the state asked for, or the operation
}

func (e *StateError) Error() string {
	return fmt.Sprintf("%s is %s: cannot go to %s", e.What, e.From, e.To)
}

// Is makes errors.Is(err, ErrState) true.
func (e *StateError) Is(target error) bool { return target == ErrState }
