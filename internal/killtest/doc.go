// Package killtest has no code, only tests: the built program is killed, or
// its disk filled, at each of its outside effects, and what it leaves is
// judged from outside, by git and by the bytes on the disk.
//
// For every command that changes something, and every failpoint that it
// passes, the three promises are checked: the real resource is as it was, or
// (apply and undo only) wholly changed; a rollback gives what was recorded;
// repeating the command ends where it would have ended, and nothing is lost or
// left over.
//
// The tests need the tag failpoint. A few failpoints of each command are taken,
// evenly spread; with CLEVERAGENTS_KILLTEST=all it is every one.
// CLEVERAGENTS_KILLTEST_BINARY names a program built with that tag, which is
// used instead of building one.
package killtest
