// Package cases has no code, only tests: the faults that users of such systems
// have met, each as a user meets it, through the built program on real
// repositories. The names of the tests carry the ids of docs/CASES.md.
//
// Every case begins with the input that was reported and goes on with others
// of its kind. Beside its own outcome each is held to three things: the real
// repository is untouched by everything but a successful apply, a sandbox is
// after a rollback what it was at the checkpoint, and the exit code is 0 only
// where both hold.
//
// CLEVERAGENTS_CASES_BINARY names a program to test instead of building one.
package cases
