package config

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/fsx"
)

// Trust lets the project file, as it stands now, loosen settings as well. A
// later change to the file ends the trust. It is recorded in the data
// directory, never beside the file. A missing file is agents.ErrNotFound, a
// faulty one agents.ErrInvalid.
func Trust(dataDir, file string) error {
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("project configuration %s: %w", file, agents.ErrNotFound)
	}
	if err != nil {
		return err
	}
	if _, err := parseFile(file, data); err != nil {
		return err
	}
	sum, real, err := fingerprint(file, data)
	if err != nil {
		return err
	}
	old, err := os.ReadFile(trustFile(dataDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var keep bytes.Buffer
	for lines := bufio.NewScanner(bytes.NewReader(old)); lines.Scan(); {
		if _, path, ok := strings.Cut(lines.Text(), " "); ok && path != real {
			keep.WriteString(lines.Text() + "\n")
		}
	}
	keep.WriteString(sum + " " + real + "\n")
	if err := MakeDataDir(dataDir); err != nil {
		return err
	}
	return fsx.Publish(trustFile(dataDir), keep.Bytes(), 0o600)
}

func isTrusted(dataDir, file string, data []byte) (bool, error) {
	old, err := os.ReadFile(trustFile(dataDir))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	sum, real, err := fingerprint(file, data)
	if err != nil {
		return false, err
	}
	for lines := bufio.NewScanner(bytes.NewReader(old)); lines.Scan(); {
		if lines.Text() == sum+" "+real {
			return true, nil
		}
	}
	return false, nil
}

// fingerprint names a file's content and its real path, quoted so that it is
// one line.
func fingerprint(file string, data []byte) (sum, real string, err error) {
	real, err = filepath.EvalSymlinks(file)
	if err != nil {
		return "", "", err
	}
	h := sha256.Sum256(data)
	return hex.EncodeToString(h[:]), fmt.Sprintf("%q", real), nil
}

func trustFile(dataDir string) string { return filepath.Join(dataDir, "trusted-projects") }
