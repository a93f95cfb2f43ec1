//go:build !linux

package proc

import "os/exec"

// Start is cmd.Start for a child of this process that is no part of a run.
// done is called after the child has been waited for.
func Start(cmd *exec.Cmd) (done func(), err error) { return func() {}, cmd.Start() }

// family is the process group of a command: what this system lets us find.
type family struct {
	main int
	tty  bool
}

func join(mark string) *family { return &family{} }

func (f *family) leave() {}

func (f *family) started(pid int) { f.main = pid }

func (f *family) attend() {}

// members reports the group as one process while anything in it lives.
func (f *family) members() []process {
	if !f.alive() {
		return nil
	}
	return []process{{pid: f.main, name: "process group"}}
}
