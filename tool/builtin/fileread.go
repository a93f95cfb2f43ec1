package builtin

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"unicode/utf8"

	agents "github.com/cleveragents/agents"
	"github.com/cleveragents/agents/tool"
)

// readCap bounds the bytes of content that one call gives back.
const readCap = 1 << 20

type fileReadInput struct {
	Path   string `json:"path"`
	Offset int    `json:"offset"`
	Limit  int    `json:"limit"`
}

// fileReadOutput is the answer of file-read.
type fileReadOutput struct {
	Path       string `json:"path"`
	Content    string `json:"content"`
	Encoding   string `json:"encoding"` // utf-8 or base64
	Size       int64  `json:"size"`     // of the whole file, in bytes
	Mode       string `json:"mode"`
	Lines      int    `json:"lines"`       // in content; 0 for base64
	Truncated  bool   `json:"truncated"`   // there is more after content
	NextOffset int    `json:"next_offset"` // the line to go on at; 0 = none
}

func fileRead() tool.Tool {
	return define("file-read",
		"Read a file. Text comes as it is, at most 1 MiB at a time; offset (the first line, from 1) and limit (how many lines) choose a part. Other bytes come in base64.",
		reads(), `{
			"path": {"type": "string", "minLength": 1, "description": "relative to the resource"},
			"offset": {"type": "integer", "minimum": 1, "description": "first line, counted from 1"},
			"limit": {"type": "integer", "minimum": 1, "description": "how many lines"}
		}`, []string{"path"}, runFileRead)
}

func runFileRead(ctx context.Context, env tool.Env, in fileReadInput) (tool.Result, error) {
	p, err := enter(env)
	if err != nil {
		return tool.Result{}, err
	}
	defer p.leave()
	s, err := p.at(in.Path)
	if err != nil {
		return tool.Result{}, err
	}
	fi, err := p.existing(s)
	if err != nil {
		return tool.Result{}, err
	}
	if !fi.Mode().IsRegular() {
		return tool.Result{}, agents.WithHint(failed("%s is a %s, not a file", in.Path, kindOf(fi.Mode())), "file-list lists a directory")
	}
	f, err := p.root.Open(s.rel)
	if err != nil {
		return tool.Result{}, err
	}
	defer f.Close()
	out := fileReadOutput{Path: s.given, Size: fi.Size(), Mode: octal(fi.Mode()), Encoding: "utf-8"}
	part, err := readLines(ctx, f, max(in.Offset, 1), in.Limit)
	if err != nil {
		return tool.Result{}, err
	}
	if isText(part.content) {
		out.Content, out.Lines, out.Truncated, out.NextOffset = string(part.content), part.lines, part.more, part.next
		return tool.Result{Output: out}, nil
	}
	return readBinary(p, s, in, out)
}

// readBinary gives a whole small file in base64.
func readBinary(p *place, s spot, in fileReadInput, out fileReadOutput) (tool.Result, error) {
	switch {
	case out.Size > readCap:
		return tool.Result{}, failed("%s is not text and has %d bytes; at most %d are given back", s.given, out.Size, readCap)
	case in.Offset > 1 || in.Limit > 0:
		return tool.Result{}, agents.WithHint(failed("%s is not text and has no lines", s.given), "leave offset and limit out")
	}
	data, err := p.root.ReadFile(s.rel)
	if err != nil {
		return tool.Result{}, err
	}
	out.Encoding, out.Content = "base64", base64.StdEncoding.EncodeToString(data)
	return tool.Result{Output: out}, nil
}

// isText reports whether b can be given back as it is.
func isText(b []byte) bool { return utf8.Valid(b) && !bytes.ContainsRune(b, 0) }

// part is some lines of a file.
type part struct {
	content []byte
	lines   int
	next    int  // the line after them; 0 = there is none
	more    bool // not everything from the first line on is in content
}

// readLines reads up to limit lines (0 = all) from line first on, and stops
// before readCap bytes. A line longer than that is cut to it, at a whole sign.
func readLines(ctx context.Context, from io.Reader, first, limit int) (part, error) {
	r := bufio.NewReaderSize(from, 64<<10)
	var got part
	for n := 1; ; n++ {
		if n%1024 == 0 && ctx.Err() != nil {
			return part{}, ctx.Err()
		}
		if _, err := r.Peek(1); errors.Is(err, io.EOF) {
			return got, nil
		}
		if limit > 0 && got.lines == limit || len(got.content) >= readCap {
			got.next, got.more = n, true
			return got, nil
		}
		line, whole, err := readLine(r, n >= first)
		if err != nil && !errors.Is(err, io.EOF) {
			return part{}, err
		}
		if n < first {
			continue
		}
		if got.lines > 0 && len(got.content)+len(line) > readCap {
			got.next, got.more = n, true
			return got, nil
		}
		got.content = append(got.content, line...)
		got.lines++
		got.more = got.more || !whole
	}
}

// readLine reads a line with its end and keeps at most readCap bytes of it;
// whole says that this was all.
func readLine(r *bufio.Reader, keep bool) (line []byte, whole bool, err error) {
	whole = true
	for {
		chunk, err := r.ReadSlice('\n')
		if keep {
			if room := readCap - len(line); len(chunk) > room {
				line, whole = append(line, chunk[:room]...), false
			} else {
				line = append(line, chunk...)
			}
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if !whole {
			line = cutSign(line)
		}
		return line, whole, err
	}
}

// cutSign takes an incomplete UTF-8 sign away from the end.
func cutSign(b []byte) []byte {
	for i := 1; i <= min(utf8.UTFMax, len(b)); i++ {
		if c := b[len(b)-i]; utf8.RuneStart(c) {
			if !utf8.FullRune(b[len(b)-i:]) {
				return b[:len(b)-i]
			}
			return b
		}
	}
	return b
}
