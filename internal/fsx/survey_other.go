//go:build !linux

package fsx

import (
	"context"
	"fmt"

	agents "github.com/cleveragents/agents"
)

// SurveyTree is agents.ErrUnsupported: copies for sandboxes need Linux.
func SurveyTree(context.Context, string, func(SurveyEntry) string) (*Survey, error) {
	return nil, fmt.Errorf("survey a directory: needs Linux: %w", agents.ErrUnsupported)
}

// SurveyFile is agents.ErrUnsupported, as SurveyTree is.
func SurveyFile(string) (*Survey, error) {
	return nil, fmt.Errorf("survey a file: needs Linux: %w", agents.ErrUnsupported)
}

// Copy is agents.ErrUnsupported, as SurveyTree is.
func (s *Survey) Copy(context.Context, string, CopyOptions) (CopyReport, error) {
	return CopyReport{}, fmt.Errorf("copy a directory: needs Linux: %w", agents.ErrUnsupported)
}
