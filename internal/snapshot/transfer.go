package snapshot

import "github.com/cleveragents/agents/internal/fsx"

// Transfer brings paths of a state into a directory that no Tracker watches,
// such as the resource that the state's directory is a copy of.
type Transfer struct {
	Dir     string        // the directory
	Stage   string        // a folder on its file system for new contents and before-images; it is made
	Journal string        // the folder of the intent, for LoadTransfer
	Changes []Transferred // each path once
}

// Transferred is the change of one path. Directories are changes of their own.
type Transferred struct {
	Path    string       // "/" between components; "" is the directory itself
	Before  fsx.Identity // what the caller saw there; zero = nothing
	Old     Entry        // what the state says that is there; zero where that is something else
	New     Entry        // what is to be there; zero = nothing
	InPlace bool         // write the file's bytes into the file that is there
	Keep    bool         // the file that is there has the bytes already: bits and time alone change
	LinkTo  string       // become a name of the file at this path, which is there and stays; where that is not to be had, a file of its own
}
