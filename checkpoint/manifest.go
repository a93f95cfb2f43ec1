package checkpoint

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	agents "github.com/cleveragents/agents"
)

// manifestName is the file that says what a checkpoint holds.
const manifestName = "manifest.json"

// manifestVersion is the format of manifests. A newer one is not read.
const manifestVersion = 1

// Manifest says what a published checkpoint holds.
type Manifest struct {
	CheckpointID string
	PlanID       string
	CreatedAt    time.Time
	Phase        string            // of a phase hook (sandbox.md); "" = none
	Metadata     map[string]string // of a phase hook; nil = none
	Parts        []Part            // one a sandbox
}

// added is how many bytes the captures added to the store.
func (m Manifest) added() (sum int64) {
	for _, p := range m.Parts {
		sum += p.SizeBytes
	}
	return sum
}

// Part is what a checkpoint has of one sandbox.
type Part struct {
	SandboxID  string
	ResourceID string
	Ref        string              // what the strategy's Capture returned
	SizeBytes  int64               // bytes that this capture added to the store
	LeftOut    []agents.PathReason // what is outside the guarantee
}

// part returns what the checkpoint has of a sandbox.
func (m Manifest) part(sandboxID string) (Part, bool) {
	for _, p := range m.Parts {
		if p.SandboxID == sandboxID {
			return p, true
		}
	}
	return Part{}, false
}

func (m Manifest) validate(planID string) error {
	if err := valid("checkpoint", m.CheckpointID); err != nil {
		return err
	}
	if m.PlanID != planID {
		return fmt.Errorf("manifest is of plan %q, its stage of plan %s: %w", clip(m.PlanID), planID, agents.ErrInvalid)
	}
	seen := map[string]bool{}
	for _, p := range m.Parts {
		if err := valid("sandbox", p.SandboxID); err != nil {
			return err
		}
		if seen[p.SandboxID] {
			return fmt.Errorf("two parts of sandbox %s: %w", p.SandboxID, agents.ErrInvalid)
		}
		seen[p.SandboxID] = true
	}
	return nil
}

// The file's form. Paths are bytes there, since JSON text cannot hold names
// that are no UTF-8.
type (
	manifestFile struct {
		Version int             `json:"version"`
		SHA256  string          `json:"sha256"` // of the bytes of Content
		Content json.RawMessage `json:"content"`
	}
	manifestContent struct {
		CheckpointID string            `json:"checkpoint_id"`
		PlanID       string            `json:"plan_id"`
		CreatedAt    time.Time         `json:"created_at"`
		Phase        string            `json:"phase,omitempty"`
		Metadata     map[string]string `json:"metadata,omitempty"`
		Parts        []partContent     `json:"parts"`
	}
	partContent struct {
		SandboxID  string           `json:"sandbox_id"`
		ResourceID string           `json:"resource_id"`
		Ref        string           `json:"ref"`
		SizeBytes  int64            `json:"size_bytes"`
		LeftOut    []leftOutContent `json:"left_out,omitempty"`
		Files      []fileSum        `json:"files,omitempty"`
	}
	leftOutContent struct {
		Resource string `json:"resource"`
		Path     []byte `json:"path_base64"`
		Reason   string `json:"reason"`
	}
	// fileSum is one entry of a part's folder.
	fileSum struct {
		Path   []byte `json:"path_base64"`
		Dir    bool   `json:"dir,omitempty"`
		Link   []byte `json:"link_base64,omitempty"`
		Size   int64  `json:"size,omitempty"`
		SHA256 string `json:"sha256,omitempty"`
	}
)

// encodeManifest returns the bytes of the manifest file, with the sums of what
// the parts' folders hold.
func encodeManifest(ctx context.Context, m Manifest, parts string) ([]byte, error) {
	c := manifestContent{
		CheckpointID: m.CheckpointID, PlanID: m.PlanID, CreatedAt: m.CreatedAt.UTC(),
		Phase: m.Phase, Metadata: m.Metadata, Parts: []partContent{},
	}
	for _, p := range m.Parts {
		files, err := sumFiles(ctx, filepath.Join(parts, p.SandboxID))
		if err != nil {
			return nil, err
		}
		pc := partContent{SandboxID: p.SandboxID, ResourceID: p.ResourceID, Ref: p.Ref, SizeBytes: p.SizeBytes, Files: files}
		for _, l := range p.LeftOut {
			pc.LeftOut = append(pc.LeftOut, leftOutContent{Resource: l.Resource, Path: []byte(l.Path), Reason: l.Reason})
		}
		c.Parts = append(c.Parts, pc)
	}
	content, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(content)
	return json.Marshal(manifestFile{Version: manifestVersion, SHA256: hex.EncodeToString(sum[:]), Content: content})
}

func (c manifestContent) manifest() Manifest {
	m := Manifest{CheckpointID: c.CheckpointID, PlanID: c.PlanID, CreatedAt: c.CreatedAt, Phase: c.Phase, Metadata: c.Metadata}
	for _, p := range c.Parts {
		part := Part{SandboxID: p.SandboxID, ResourceID: p.ResourceID, Ref: p.Ref, SizeBytes: p.SizeBytes}
		for _, l := range p.LeftOut {
			part.LeftOut = append(part.LeftOut, agents.PathReason{Resource: l.Resource, Path: string(l.Path), Reason: l.Reason})
		}
		m.Parts = append(m.Parts, part)
	}
	return m
}

// Manifest returns what a published checkpoint holds. One that is not there is
// agents.ErrNotFound; one whose manifest cannot be read, or is not the one
// that was written, is agents.ErrDamaged.
func (s *Store) Manifest(planID, id string) (Manifest, error) {
	c, err := s.readManifest(planID, id)
	if err != nil {
		return Manifest{}, err
	}
	return c.manifest(), nil
}

func (s *Store) readManifest(planID, id string) (manifestContent, error) {
	if err := errors.Join(valid("plan", planID), valid("checkpoint", id)); err != nil {
		return manifestContent{}, err
	}
	dir := filepath.Join(s.dir, planID, id)
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return manifestContent{}, fmt.Errorf("payload of checkpoint %s: %w", id, agents.ErrNotFound)
	}
	data, err := os.ReadFile(filepath.Join(dir, manifestName))
	if err != nil {
		return manifestContent{}, damaged(id, err)
	}
	c, err := decodeManifest(data)
	if err == nil && (c.CheckpointID != id || c.PlanID != planID) {
		err = errors.New("the manifest is that of another checkpoint")
	}
	if err != nil {
		return manifestContent{}, damaged(id, err)
	}
	return c, nil
}

// damaged says that a checkpoint's payload cannot be used.
func damaged(id string, err error) error {
	if errors.Is(err, agents.ErrDamaged) || errors.Is(err, agents.ErrNewerData) {
		return fmt.Errorf("payload of checkpoint %s: %w", id, err)
	}
	return fmt.Errorf("payload of checkpoint %s: %w: %w", id, err, agents.ErrDamaged)
}

func decodeManifest(data []byte) (manifestContent, error) {
	var f manifestFile
	if err := json.Unmarshal(data, &f); err != nil {
		return manifestContent{}, fmt.Errorf("manifest: %w", err)
	}
	if f.Version > manifestVersion {
		return manifestContent{}, fmt.Errorf("manifest format %d: %w", f.Version, agents.ErrNewerData)
	}
	sum := sha256.Sum256(f.Content)
	if hex.EncodeToString(sum[:]) != f.SHA256 {
		return manifestContent{}, errors.New("manifest: checksum does not fit")
	}
	var c manifestContent
	if err := json.Unmarshal(f.Content, &c); err != nil {
		return manifestContent{}, fmt.Errorf("manifest: %w", err)
	}
	return c, nil
}

// sumFiles lists what is below dir, sorted; a dir that is not there is empty.
func sumFiles(ctx context.Context, dir string) ([]fileSum, error) {
	var out []fileSum
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && path == dir {
			return fs.SkipAll
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil || path == dir {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		sum, err := sumFile(path, d)
		if err != nil {
			return err
		}
		sum.Path = []byte(filepath.ToSlash(rel))
		out = append(out, sum)
		return nil
	})
	return out, err
}

func sumFile(path string, d fs.DirEntry) (fileSum, error) {
	switch {
	case d.IsDir():
		return fileSum{Dir: true}, nil
	case d.Type()&fs.ModeSymlink != 0:
		target, err := os.Readlink(path)
		return fileSum{Link: []byte(target)}, err
	case !d.Type().IsRegular():
		return fileSum{}, fmt.Errorf("%s is no file, link or directory: %w", path, agents.ErrInvalid)
	}
	f, err := os.Open(path)
	if err != nil {
		return fileSum{}, err
	}
	defer f.Close()
	h := sha256.New()
	n, err := io.Copy(h, f)
	if err != nil {
		return fileSum{}, err
	}
	return fileSum{Size: n, SHA256: hex.EncodeToString(h.Sum(nil))}, nil
}

// equal reports whether two entries are the same.
func (f fileSum) equal(g fileSum) bool {
	return bytes.Equal(f.Path, g.Path) && f.Dir == g.Dir && bytes.Equal(f.Link, g.Link) && f.Size == g.Size && f.SHA256 == g.SHA256
}
