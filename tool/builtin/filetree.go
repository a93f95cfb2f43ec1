package builtin

import (
	"context"
	"errors"
	"io/fs"
	"strings"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/tool"
)

type fileDeleteInput struct {
	Path      string `json:"path"`
	Recursive bool   `json:"recursive"`
}

// fileDeleteOutput is the answer of file-delete.
type fileDeleteOutput struct {
	Path    string `json:"path"`
	Type    string `json:"type"`
	Deleted int    `json:"deleted"` // files, links and directories
}

func fileDelete() tool.Tool {
	return define("file-delete",
		"Delete a file, a symbolic link itself, or a directory; one that is not empty only with recursive.",
		writesFiles(), `{
			"path": {"type": "string", "minLength": 1, "description": "relative to the resource"},
			"recursive": {"type": "boolean"}
		}`, []string{"path"}, runFileDelete)
}

func runFileDelete(_ context.Context, env tool.Env, in fileDeleteInput) (tool.Result, error) {
	p, err := enter(env)
	if err != nil {
		return tool.Result{}, err
	}
	defer p.leave()
	s, err := p.targetItself(in.Path)
	if err != nil {
		return tool.Result{}, err
	}
	fi, err := p.existing(s)
	if err != nil {
		return tool.Result{}, err
	}
	all, err := p.everything(s, fi)
	if err != nil {
		return tool.Result{}, err
	}
	if len(all) > 1 && !in.Recursive {
		return tool.Result{}, agents.WithHint(failed("directory %s is not empty", in.Path), "set recursive to delete what is in it")
	}
	res := tool.Result{Paths: all}
	if err := p.root.Remove(s.rel, in.Recursive); err != nil {
		return res, err
	}
	res.Output = fileDeleteOutput{Path: s.given, Type: kindOf(fi.Mode()), Deleted: len(all)}
	return res, nil
}

type fileMoveInput struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// fileMoveOutput is the answer of file-move and file-copy.
type fileMoveOutput struct {
	From  string `json:"from"`
	To    string `json:"to"`
	Type  string `json:"type"`
	Count int    `json:"count"` // files, links and directories
}

const movePaths = `{
	"from": {"type": "string", "minLength": 1, "description": "relative to the resource"},
	"to": {"type": "string", "minLength": 1, "description": "the new path itself, not a directory to put it into"}
}`

func fileMove() tool.Tool {
	return define("file-move",
		"Move or rename a file, a symbolic link or a directory, and make the directories above its new place. What is there already is not replaced.",
		writesFiles(), movePaths, []string{"from", "to"}, runFileMove)
}

func fileCopy() tool.Tool {
	return define("file-copy",
		"Copy a file with its mode, a symbolic link as a link, or a directory with all that is in it, and make the directories above the copy. What is there already is not replaced.",
		writesFiles(), movePaths, []string{"from", "to"}, runFileCopy)
}

func runFileMove(_ context.Context, env tool.Env, in fileMoveInput) (tool.Result, error) {
	return relocate(env, in, true, func(p *place, from, to string) error { return p.root.Move(from, to, false) })
}

func runFileCopy(_ context.Context, env tool.Env, in fileMoveInput) (tool.Result, error) {
	return relocate(env, in, false, func(p *place, from, to string) error { return p.root.Copy(from, to, false) })
}

// relocate is what move and copy have in common.
func relocate(env tool.Env, in fileMoveInput, leaves bool, do func(p *place, from, to string) error) (tool.Result, error) {
	p, err := enter(env)
	if err != nil {
		return tool.Result{}, err
	}
	defer p.leave()
	from, err := p.targetItself(in.From)
	if err != nil {
		return tool.Result{}, err
	}
	to, err := p.targetItself(in.To)
	if err != nil {
		return tool.Result{}, err
	}
	fi, err := p.existing(from)
	if err != nil {
		return tool.Result{}, err
	}
	there, err := p.lstat(to)
	switch {
	case err != nil:
		return tool.Result{}, err
	case to.rel == from.rel || strings.HasPrefix(to.rel, from.rel+"/"):
		return tool.Result{}, invalid("%s lies in %s, or is it", in.To, in.From)
	case there != nil:
		return tool.Result{}, agents.WithHint(failed("%s is there already", in.To), "delete it first, or choose another name")
	}
	all, err := p.everything(from, fi)
	if err != nil {
		return tool.Result{}, err
	}
	made, err := p.parents(to)
	res := tool.Result{Paths: append(made, ends(all, from.rel, to.rel, leaves)...)}
	if err != nil {
		return res, err
	}
	if err := do(p, from.rel, to.rel); err != nil {
		return res, taken(err)
	}
	res.Output = fileMoveOutput{From: from.given, To: to.given, Type: kindOf(fi.Mode()), Count: len(all)}
	return res, nil
}

// ends lists the new end of every path, and the old one where it goes away.
func ends(all []string, from, to string, leaves bool) []string {
	var out []string
	if leaves {
		out = append(out, all...)
	}
	for _, rel := range all {
		out = append(out, to+strings.TrimPrefix(rel, from))
	}
	return out
}

// taken makes a tool's own no of a place that was taken meanwhile.
func taken(err error) error {
	if errors.Is(err, agents.ErrExists) || errors.Is(err, fs.ErrExist) {
		return failed("%v", err)
	}
	return err
}

type dirCreateInput struct {
	Path string `json:"path"`
}

// dirCreateOutput is the answer of dir-create.
type dirCreateOutput struct {
	Path    string `json:"path"`
	Created bool   `json:"created"`
}

func dirCreate() tool.Tool {
	return define("dir-create",
		"Make a directory and those above it. One that is there already is fine.",
		writesFiles(), `{"path": {"type": "string", "minLength": 1, "description": "relative to the resource"}}`,
		[]string{"path"}, runDirCreate)
}

func runDirCreate(_ context.Context, env tool.Env, in dirCreateInput) (tool.Result, error) {
	p, err := enter(env)
	if err != nil {
		return tool.Result{}, err
	}
	defer p.leave()
	s, err := p.target(in.Path)
	if err != nil {
		return tool.Result{}, err
	}
	made, err := p.makeDir(s.rel)
	res := tool.Result{Paths: made}
	if err != nil {
		return res, err
	}
	res.Output = dirCreateOutput{Path: s.given, Created: len(made) > 0}
	return res, nil
}
