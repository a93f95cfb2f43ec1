package builtin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/tool"
)

// listCap bounds the entries that one call gives back.
const listCap = 10000

type fileListInput struct {
	Path      string `json:"path"`
	Recursive bool   `json:"recursive"`
}

// fileListOutput is the answer of file-list.
type fileListOutput struct {
	Path      string      `json:"path"`
	Entries   []fileEntry `json:"entries"`
	Truncated bool        `json:"truncated"` // there are more than these
}

// fileEntry is one entry of a directory.
type fileEntry struct {
	Path   string `json:"path"`
	Type   string `json:"type"` // file, directory, symlink, other
	Size   int64  `json:"size"` // bytes of a file; 0 for others
	Mode   string `json:"mode"`
	Target string `json:"target,omitempty"` // of a symlink
}

func fileList() tool.Tool {
	return define("file-list",
		"List a directory, with recursive all that is below it (links are not followed, .git is not entered), at most 10000 entries.",
		reads(), `{
			"path": {"type": "string", "minLength": 1, "description": "relative to the resource; its top if not said"},
			"recursive": {"type": "boolean"}
		}`, nil, runFileList)
}

// errEnough ends a walk early.
var errEnough = errors.New("enough")

func runFileList(ctx context.Context, env tool.Env, in fileListInput) (tool.Result, error) {
	p, s, err := enterDir(env, in.Path)
	if err != nil {
		return tool.Result{}, err
	}
	defer p.leave()
	out := fileListOutput{Path: s.given, Entries: []fileEntry{}}
	err = p.walk(s.rel, func(rel string, d fs.DirEntry) (bool, error) {
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
		if len(out.Entries) == listCap {
			out.Truncated = true
			return false, errEnough
		}
		e, err := p.entry(s, rel)
		if err != nil {
			return false, err
		}
		if e != nil {
			out.Entries = append(out.Entries, *e)
		}
		return in.Recursive && !isGit(d.Name()), nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		return tool.Result{}, err
	}
	res := tool.Result{Output: out}
	if out.Truncated {
		res.Notices = []string{fmt.Sprintf("file-list: only the first %d entries of %s are listed", listCap, s.given)}
	}
	return res, nil
}

// enterDir opens the workspace and finds a directory in it; "" is its top.
func enterDir(env tool.Env, given string) (*place, spot, error) {
	if given == "" {
		given = "."
	}
	p, err := enter(env)
	if err != nil {
		return nil, spot{}, err
	}
	s, err := p.at(given)
	if err == nil {
		var fi fs.FileInfo
		if fi, err = p.existing(s); err == nil && !fi.IsDir() {
			err = failed("%s is a %s, not a directory", given, kindOf(fi.Mode()))
		}
	}
	if err != nil {
		p.leave()
		return nil, spot{}, err
	}
	return p, s, nil
}

// entry describes what lies at rel, below s; nil = it is gone.
func (p *place) entry(s spot, rel string) (*fileEntry, error) {
	fi, err := p.root.Lstat(rel)
	if absent(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	e := fileEntry{Path: s.show(below(s.rel, rel)), Type: kindOf(fi.Mode()), Mode: octal(fi.Mode())}
	switch e.Type {
	case "file":
		e.Size = fi.Size()
	case "symlink":
		target, err := p.root.Readlink(rel)
		if err != nil {
			return nil, err
		}
		e.Target = agents.EscapePath(target)
	}
	return &e, nil
}

// below returns rel relative to dir, which it lies in.
func below(dir, rel string) string {
	if dir == "." {
		return rel
	}
	return strings.TrimPrefix(strings.TrimPrefix(rel, dir), "/")
}

type fileInfoInput struct {
	Path string `json:"path"`
}

// fileInfoOutput is the answer of file-info.
type fileInfoOutput struct {
	fileEntry
	Modified time.Time `json:"modified"`           // UTC
	LeadsTo  string    `json:"leads_to,omitempty"` // of a symlink: where in the resource; "" = out of it or nowhere
}

func fileInfo() tool.Tool {
	return define("file-info",
		"Tell what lies at a path: its type, size, mode and time. A symbolic link is described itself, with where it leads to.",
		reads(), `{"path": {"type": "string", "minLength": 1, "description": "relative to the resource"}}`,
		[]string{"path"}, runFileInfo)
}

func runFileInfo(_ context.Context, env tool.Env, in fileInfoInput) (tool.Result, error) {
	p, err := enter(env)
	if err != nil {
		return tool.Result{}, err
	}
	defer p.leave()
	s, err := p.itself(in.Path)
	if err != nil {
		return tool.Result{}, err
	}
	fi, err := p.existing(s)
	if err != nil {
		return tool.Result{}, err
	}
	e, err := p.entry(s, s.rel)
	if err != nil {
		return tool.Result{}, err
	}
	if e == nil {
		return tool.Result{}, failed("%s does not exist", s.given)
	}
	out := fileInfoOutput{fileEntry: *e, Modified: fi.ModTime().UTC()}
	if e.Type == "symlink" {
		if to, err := p.root.Resolve(s.rel); err == nil {
			if _, err := p.root.Lstat(to); err == nil {
				out.LeadsTo = agents.EscapePath(to)
			}
		}
	}
	return tool.Result{Output: out}, nil
}
