package cli

// What the tests of this package look at from outside.
var (
	ExitCode = exitCode
	Problem  = problem
	Classify = classify
	NameFor  = nameFor
	Commands = func() *app { return &app{} }
	NewRoot  = newRoot
)
