package proc

import "os"

func (f *family) isolate(r *run) {}

// terminate ends the command at once: this system has no signal that asks.
func (f *family) terminate() { f.kill() }

func (f *family) kill() {
	if p, err := os.FindProcess(f.main); err == nil {
		_ = p.Kill()
		_ = p.Release()
	}
}

func (f *family) alive() bool { return false }
