package builtin

import (
	"bytes"
	"context"
	"encoding/base64"
	"io/fs"
	"strconv"
	"strings"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/tool"
)

type fileWriteInput struct {
	Path     string `json:"path"`
	Content  string `json:"content"`
	Mode     string `json:"mode"`
	Encoding string `json:"encoding"`
}

// fileWriteOutput is the answer of file-write.
type fileWriteOutput struct {
	Path    string `json:"path"`
	Size    int    `json:"size"`
	Mode    string `json:"mode"`
	Created bool   `json:"created"`
}

func fileWrite() tool.Tool {
	return define("file-write",
		"Write a whole file, new or not, and the directories above it. A file that is there keeps its mode unless mode says otherwise; a new one gets 0644.",
		writesFiles(), `{
			"path": {"type": "string", "minLength": 1, "description": "relative to the resource"},
			"content": {"type": "string"},
			"mode": {"type": "string", "pattern": "^0?[0-7]{3}$", "description": "permission bits in octal, such as 0755"},
			"encoding": {"enum": ["utf-8", "base64"], "description": "how content is written; utf-8 if not said"}
		}`, []string{"path", "content"}, runFileWrite)
}

func runFileWrite(_ context.Context, env tool.Env, in fileWriteInput) (tool.Result, error) {
	p, err := enter(env)
	if err != nil {
		return tool.Result{}, err
	}
	defer p.leave()
	data, perm, err := in.decode()
	if err != nil {
		return tool.Result{}, err
	}
	s, err := p.target(in.Path)
	if err != nil {
		return tool.Result{}, err
	}
	fi, err := p.lstat(s)
	if err != nil {
		return tool.Result{}, err
	}
	if fi != nil && !fi.Mode().IsRegular() {
		return tool.Result{}, failed("%s is a %s, not a file", in.Path, kindOf(fi.Mode()))
	}
	made, err := p.parents(s)
	res := tool.Result{Paths: append(made, s.rel)}
	if err != nil {
		return res, err
	}
	if err := p.root.WriteFile(s.rel, data, 0o644); err != nil {
		return res, err
	}
	if in.Mode != "" {
		if err := p.root.Chmod(s.rel, perm); err != nil {
			return res, err
		}
	}
	now, err := p.root.Lstat(s.rel)
	if err != nil {
		return res, err
	}
	res.Output = fileWriteOutput{Path: s.given, Size: len(data), Mode: octal(now.Mode()), Created: fi == nil}
	return res, nil
}

// decode reads the content and the mode of an input.
func (in fileWriteInput) decode() ([]byte, fs.FileMode, error) {
	data := []byte(in.Content)
	if in.Encoding == "base64" {
		var err error
		if data, err = base64.StdEncoding.DecodeString(in.Content); err != nil {
			return nil, 0, invalid("content is not base64: %v", err)
		}
	}
	if in.Mode == "" {
		return data, 0, nil
	}
	n, err := strconv.ParseUint(in.Mode, 8, 32)
	if err != nil || n > 0o777 {
		return nil, 0, invalid("mode %q: want permission bits in octal, such as 0644", in.Mode)
	}
	return data, fs.FileMode(n), nil
}

type fileEditInput struct {
	Path string `json:"path"`
	Old  string `json:"old"`
	New  string `json:"new"`
	All  bool   `json:"all"`
}

// fileEditOutput is the answer of file-edit.
type fileEditOutput struct {
	Path         string `json:"path"`
	Replacements int    `json:"replacements"`
	Size         int    `json:"size"`
}

func fileEdit() tool.Tool {
	return define("file-edit",
		"Replace text in a file. old must be there exactly once, byte for byte; with all, every place is replaced.",
		writesFiles(), `{
			"path": {"type": "string", "minLength": 1, "description": "relative to the resource"},
			"old": {"type": "string", "minLength": 1},
			"new": {"type": "string"},
			"all": {"type": "boolean"}
		}`, []string{"path", "old", "new"}, runFileEdit)
}

func runFileEdit(_ context.Context, env tool.Env, in fileEditInput) (tool.Result, error) {
	if in.Old == "" {
		return tool.Result{}, invalid("old is empty")
	}
	if in.Old == in.New {
		return tool.Result{}, invalid("old and new are the same")
	}
	p, err := enter(env)
	if err != nil {
		return tool.Result{}, err
	}
	defer p.leave()
	s, err := p.target(in.Path)
	if err != nil {
		return tool.Result{}, err
	}
	data, err := p.load(s)
	if err != nil {
		return tool.Result{}, err
	}
	edited, n, err := in.edit(data)
	if err != nil {
		return tool.Result{}, err
	}
	res := tool.Result{Paths: []string{s.rel}}
	if err := p.root.WriteFile(s.rel, edited, 0o644); err != nil {
		return res, err
	}
	res.Output = fileEditOutput{Path: s.given, Replacements: n, Size: len(edited)}
	return res, nil
}

// edit replaces and counts.
func (in fileEditInput) edit(data []byte) ([]byte, int, error) {
	old := []byte(in.Old)
	n := places(data, old, in.All)
	switch {
	case n == 0:
		err := failed("old is not in %s", in.Path)
		if crlf := strings.ReplaceAll(in.Old, "\n", "\r\n"); crlf != in.Old && bytes.Contains(data, []byte(crlf)) {
			return nil, 0, agents.WithHint(err, `its lines end in \r\n`)
		}
		return nil, 0, agents.WithHint(err, "file-read shows what is; blanks count")
	case n > 1 && !in.All:
		err := failed("old is in %s %d times", in.Path, n)
		return nil, 0, agents.WithHint(err, "give more of what is around it, or set all")
	}
	return bytes.ReplaceAll(data, old, []byte(in.New)), n, nil
}

// places counts where old is; overlapping ones too unless all are replaced,
// since each is a place that could be meant.
func places(data, old []byte, all bool) int {
	if all {
		return bytes.Count(data, old)
	}
	n := 0
	for {
		i := bytes.Index(data, old)
		if i < 0 {
			return n
		}
		n++
		data = data[i+1:]
	}
}

// loadCap bounds the size of a file that is changed in memory.
const loadCap = 256 << 20

// load reads a whole file that is to be changed.
func (p *place) load(s spot) ([]byte, error) {
	fi, err := p.existing(s)
	switch {
	case err != nil:
		return nil, err
	case !fi.Mode().IsRegular():
		return nil, failed("%s is a %s, not a file", s.given, kindOf(fi.Mode()))
	case fi.Size() > loadCap:
		return nil, failed("%s has %d bytes; at most %d can be edited", s.given, fi.Size(), loadCap)
	}
	return p.root.ReadFile(s.rel)
}
