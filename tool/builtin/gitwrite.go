package builtin

import (
	"context"
	"errors"
	"strings"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/internal/git"
	"github.com/cleveragents/agents/tool"
)

type gitCommitInput struct {
	Message string   `json:"message"`
	Paths   []string `json:"paths"`
}

// gitCommitOutput is the answer of git-commit.
type gitCommitOutput struct {
	describeHead
	Subject string     `json:"subject"`
	Files   []diffFile `json:"files"`
}

func gitCommit() tool.Tool {
	return define("git-commit",
		"Commit in the sandbox: all changes, new files that are not ignored among them, or those of some paths alone. Hooks and signing are off; without an identity of the user it is cleveragents'.",
		writesGit(), `{
			"message": {"type": "string", "pattern": "\\S"},
			"paths": {"type": "array", "minItems": 1, "items": {"type": "string", "minLength": 1}}
		}`, []string{"message"}, runGitCommit)
}

func runGitCommit(ctx context.Context, env tool.Env, in gitCommitInput) (tool.Result, error) {
	if strings.TrimSpace(in.Message) == "" {
		return tool.Result{}, invalid("message is empty")
	}
	g, err := enterGit(ctx, env)
	if err != nil {
		return tool.Result{}, err
	}
	defer g.leave()
	paths, err := g.paths(in.Paths)
	if err != nil {
		return tool.Result{}, err
	}
	before, err := g.head(ctx)
	if err != nil {
		return tool.Result{}, err
	}
	if err := write(ctx, g.repo, append([]string{"add", "--all", "--"}, paths...)...); err != nil {
		return tool.Result{}, err
	}
	if err := g.makeCommit(ctx, in.Message, paths); err != nil {
		return tool.Result{}, err
	}
	return g.committed(ctx, before)
}

// makeCommit commits the paths alone, or everything that is staged.
func (g *gitPlace) makeCommit(ctx context.Context, message string, paths []string) error {
	args := []string{"commit", "--quiet", "--no-verify", "--file=-"}
	if len(paths) > 0 {
		args = append(append(args, "--only", "--"), paths...)
	}
	_, err := g.withIdentity(ctx).Feed(ctx, strings.NewReader(message), args...)
	var ge *git.Error
	if errors.As(err, &ge) && ge.ExitCode == 1 {
		if clean, cerr := g.unchanged(ctx, paths); cerr == nil && clean {
			return agents.WithHint(failed("nothing to commit"), "git-status shows what differs")
		}
	}
	return gitFailed(err)
}

// unchanged reports whether nothing is staged.
func (g *gitPlace) unchanged(ctx context.Context, paths []string) (bool, error) {
	res, err := g.repo.Do(ctx, git.Call{Args: append([]string{"diff", "--cached", "--quiet", "--"}, paths...), OK: []int{1}})
	return err == nil && res.ExitCode == 0, err
}

// committed describes the newest commit.
func (g *gitPlace) committed(ctx context.Context, before string) (tool.Result, error) {
	var out gitCommitOutput
	var err error
	if out.describeHead, err = g.describe(ctx); err != nil {
		return tool.Result{}, err
	}
	subject, err := g.repo.ReadLine(ctx, "log", "-1", "--no-color", "--encoding=UTF-8", "--format=%s", out.Head, "--")
	if err != nil {
		return tool.Result{}, gitFailed(err)
	}
	out.Subject = strings.ToValidUTF8(subject, "�")
	args := []string{"diff-tree", "-r", "--root", "--no-commit-id", "-M", "--numstat", "-z"}
	if before != "" {
		args = append(args, before)
	}
	raw, err := g.repo.Read(ctx, append(args, out.Head, "--")...)
	if err != nil {
		return tool.Result{}, gitFailed(err)
	}
	out.Files = parseNumstat(git.Fields(raw))
	return tool.Result{Output: out}, nil
}

type gitBranchInput struct {
	Name   string `json:"name"`
	Start  string `json:"start"`
	Delete bool   `json:"delete"`
}

// gitBranchOutput is the answer of git-branch.
type gitBranchOutput struct {
	Branches []branchEntry `json:"branches"`
}

// branchEntry is one branch.
type branchEntry struct {
	Name    string `json:"name"`
	Commit  string `json:"commit"`
	Current bool   `json:"current"`
}

func gitBranch() tool.Tool {
	return define("git-branch",
		"List the sandbox's branches; with name make one at start (what is checked out, if not said); with delete remove one that is merged. Nothing is checked out.",
		writesGit(), `{
			"name": {"type": "string", "minLength": 1},
			"start": {"type": "string", "minLength": 1, "description": "a commit"},
			"delete": {"type": "boolean"}
		}`, nil, runGitBranch)
}

func runGitBranch(ctx context.Context, env tool.Env, in gitBranchInput) (tool.Result, error) {
	if in.Name == "" && (in.Start != "" || in.Delete) {
		return tool.Result{}, invalid("start and delete need a name")
	}
	if in.Start != "" && in.Delete {
		return tool.Result{}, invalid("want start or delete, not both")
	}
	g, err := enterGit(ctx, env)
	if err != nil {
		return tool.Result{}, err
	}
	defer g.leave()
	if err := g.changeBranch(ctx, in); err != nil {
		return tool.Result{}, err
	}
	raw, err := g.repo.Read(ctx, "for-each-ref", "--format=%(refname)%00%(objectname)%00%(HEAD)", "refs/heads/")
	if err != nil {
		return tool.Result{}, gitFailed(err)
	}
	out := gitBranchOutput{Branches: []branchEntry{}}
	for line := range strings.Lines(string(raw)) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\x00")
		if len(f) == 3 {
			name := strings.TrimPrefix(f[0], "refs/heads/")
			out.Branches = append(out.Branches, branchEntry{Name: agents.EscapePath(name), Commit: f[1], Current: f[2] == "*"})
		}
	}
	return tool.Result{Output: out}, nil
}

func (g *gitPlace) changeBranch(ctx context.Context, in gitBranchInput) error {
	if in.Name == "" {
		return nil
	}
	if err := g.checkBranch(ctx, in.Name); err != nil {
		return err
	}
	if in.Delete {
		return write(ctx, g.repo, "branch", "--quiet", "--delete", "--", in.Name)
	}
	start := in.Start
	if start == "" {
		start = "HEAD"
	}
	id, err := g.commit(ctx, start)
	if err != nil {
		return err
	}
	return write(ctx, g.repo, "branch", "--no-track", "--", in.Name, id)
}

type gitCheckoutInput struct {
	Ref    string   `json:"ref"`
	Paths  []string `json:"paths"`
	Create string   `json:"create"`
}

func gitCheckout() tool.Tool {
	return define("git-checkout",
		"Check out a branch or commit (ref), a new branch (create, at ref), or the content of some paths, from ref or else from the index. Changes that are not committed are never overwritten, but for paths.",
		writesGit(), `{
			"ref": {"type": "string", "minLength": 1, "description": "a branch or commit"},
			"paths": {"type": "array", "minItems": 1, "items": {"type": "string", "minLength": 1}},
			"create": {"type": "string", "minLength": 1, "description": "name of the new branch"}
		}`, nil, runGitCheckout)
}

func runGitCheckout(ctx context.Context, env tool.Env, in gitCheckoutInput) (tool.Result, error) {
	switch {
	case in.Ref == "" && in.Create == "" && len(in.Paths) == 0:
		return tool.Result{}, invalid("want ref, create or paths")
	case in.Create != "" && len(in.Paths) > 0:
		return tool.Result{}, invalid("want create or paths, not both")
	}
	g, err := enterGit(ctx, env)
	if err != nil {
		return tool.Result{}, err
	}
	defer g.leave()
	args, err := g.checkoutArgs(ctx, in)
	if err != nil {
		return tool.Result{}, err
	}
	if err := write(ctx, g.repo, args...); err != nil {
		return tool.Result{}, err
	}
	out, err := g.describe(ctx)
	return tool.Result{Output: out}, err
}

func (g *gitPlace) checkoutArgs(ctx context.Context, in gitCheckoutInput) ([]string, error) {
	args := []string{"checkout", "--quiet", "--no-guess", "--no-overwrite-ignore"}
	id := ""
	if in.Ref != "" {
		var err error
		if id, err = g.commit(ctx, in.Ref); err != nil {
			return nil, err
		}
	}
	switch {
	case len(in.Paths) > 0:
		paths, err := g.paths(in.Paths)
		if id != "" {
			return append([]string{"checkout", "--quiet", id, "--"}, paths...), err
		}
		return append([]string{"checkout", "--quiet", "--"}, paths...), err
	case in.Create != "":
		if err := g.checkBranch(ctx, in.Create); err != nil {
			return nil, err
		}
		args = append(args, "--no-track", "-b", in.Create)
		if id != "" {
			args = append(args, id)
		}
		return append(args, "--"), nil
	}
	if g.checkBranch(ctx, in.Ref) == nil {
		if _, err := g.repo.Read(ctx, "rev-parse", "--verify", "--quiet", "--end-of-options", "refs/heads/"+in.Ref); err == nil {
			return append(args, in.Ref, "--"), nil // by its name, so that the branch is checked out
		}
	}
	return append(args, "--detach", id, "--"), nil
}

type gitResetInput struct {
	Ref   string   `json:"ref"`
	Mode  string   `json:"mode"`
	Paths []string `json:"paths"`
}

func gitReset() tool.Tool {
	return define("git-reset",
		"Move the branch to a commit (ref; what is checked out if not said): soft keeps index and files, mixed (if not said) keeps files, keep and hard change files too; hard drops changes that are not committed. With paths, only their entries in the index are reset.",
		writesGit(), `{
			"ref": {"type": "string", "minLength": 1, "description": "a commit"},
			"mode": {"enum": ["soft", "mixed", "hard", "keep"]},
			"paths": {"type": "array", "minItems": 1, "items": {"type": "string", "minLength": 1}}
		}`, nil, runGitReset)
}

func runGitReset(ctx context.Context, env tool.Env, in gitResetInput) (tool.Result, error) {
	switch in.Mode {
	case "", "soft", "mixed", "hard", "keep":
	default:
		return tool.Result{}, invalid("mode %q: want soft, mixed, hard or keep", in.Mode)
	}
	if len(in.Paths) > 0 && in.Mode != "" && in.Mode != "mixed" {
		return tool.Result{}, invalid("paths go with mode mixed only")
	}
	g, err := enterGit(ctx, env)
	if err != nil {
		return tool.Result{}, err
	}
	defer g.leave()
	ref := in.Ref
	if ref == "" {
		ref = "HEAD"
	}
	id, err := g.commit(ctx, ref)
	if err != nil {
		return tool.Result{}, err
	}
	args := []string{"reset", "--quiet"}
	if len(in.Paths) == 0 {
		mode := in.Mode
		if mode == "" {
			mode = "mixed"
		}
		args = append(args, "--"+mode)
	}
	paths, err := g.paths(in.Paths)
	if err != nil {
		return tool.Result{}, err
	}
	if err := write(ctx, g.repo, append(append(args, id, "--"), paths...)...); err != nil {
		return tool.Result{}, err
	}
	out, err := g.describe(ctx)
	return tool.Result{Output: out}, err
}
