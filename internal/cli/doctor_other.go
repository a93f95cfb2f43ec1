//go:build !linux

package cli

import (
	"context"
	"runtime"

	"github.com/cleveragents/agents/internal/view"
)

// probeKernel: there is no jail on this system.
func probeKernel(context.Context) (namespaces bool, landlock int) { return false, 0 }

// probeDataDir names the system; its file systems are not looked at.
func probeDataDir(h *view.Health, _ string) { h.Filesystem = "unknown (" + runtime.GOOS + ")" }
