package proc

import (
	"errors"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// drainWait bounds how long output is read when nothing of ours can write it.
const drainWait = time.Second

// streams connects a command's three streams.
type streams struct {
	out, err capture
	live     sync.Mutex // held while writing to either live writer
	theirs   []*os.File // ends that only the command needs
	readers  []*os.File
	input    *os.File // our end of its input
	copying  sync.WaitGroup
	begin    []func()
	held     atomic.Bool
	finished atomic.Pointer[time.Time]
}

// connect sets the command's streams.
func (s *streams) connect(r *run) error {
	room := r.Capture
	if room == 0 {
		room = DefaultCapture
	}
	s.out.room, s.err.room = room, room
	if r.TTY {
		r.cmd.Stdin, r.cmd.Stdout, r.cmd.Stderr = r.Stdin, r.Stdout, r.Stderr
		return nil
	}
	stdout, errOut := s.output(&s.out, r.Stdout)
	stderr, errErr := s.output(&s.err, r.Stderr)
	errIn := s.stdin(r)
	if err := errors.Join(errOut, errErr, errIn); err != nil {
		s.abandon()
		return err
	}
	r.cmd.Stdout, r.cmd.Stderr = stdout, stderr
	return nil
}

// output makes a pipe for the command to write to. Its other end is copied
// to the capture and the live writer.
func (s *streams) output(c *capture, live io.Writer) (*os.File, error) {
	ours, theirs, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	s.theirs = append(s.theirs, theirs)
	s.readers = append(s.readers, ours)
	s.begin = append(s.begin, func() { s.copy(ours, c, live) })
	return theirs, nil
}

func (s *streams) copy(from *os.File, c *capture, live io.Writer) {
	buf := make([]byte, 32<<10)
	for late := false; ; {
		n, err := from.Read(buf)
		c.Write(buf[:n])
		if live != nil && n > 0 && !s.show(live, buf[:n]) {
			live = nil // nobody watches any more; the command goes on
		}
		switch {
		case err == nil && !s.overdue():
			late = false
		case errors.Is(err, os.ErrDeadlineExceeded) && !late && !s.overdue():
			// The live writer may have been slow, with more output to come.
			late = true
			_ = from.SetReadDeadline(time.Now().Add(drainWait))
		default:
			if !errors.Is(err, io.EOF) {
				s.held.Store(true)
			}
			return
		}
	}
}

// show writes to a live writer and reports whether it took it.
func (s *streams) show(live io.Writer, p []byte) bool {
	s.live.Lock()
	defer s.live.Unlock()
	_, err := live.Write(p)
	return err == nil
}

// overdue reports whether the command ended so long ago that what still
// comes cannot be its own.
func (s *streams) overdue() bool {
	at := s.finished.Load()
	return at != nil && time.Since(*at) > 30*drainWait
}

// stdin hands a file over as it is, and copies anything else.
func (s *streams) stdin(r *run) error {
	if r.Stdin == nil {
		return nil
	}
	if f, ok := r.Stdin.(*os.File); ok {
		r.cmd.Stdin = f
		return nil
	}
	theirs, ours, err := os.Pipe()
	if err != nil {
		return err
	}
	s.theirs = append(s.theirs, theirs)
	s.input = ours
	r.cmd.Stdin = theirs
	s.begin = append(s.begin, func() { go feed(ours, r.Stdin) })
	return nil
}

// feed ends when either side ends.
func feed(w *os.File, from io.Reader) {
	_, _ = io.Copy(w, from) // the command need not read all of it
	_ = w.Close()
}

// started lets go of the command's ends and begins to copy.
func (s *streams) started() {
	for _, f := range s.theirs {
		_ = f.Close()
	}
	for _, b := range s.begin {
		s.copying.Go(b)
	}
}

// finish reads what is left of the output.
func (s *streams) finish() []string {
	now := time.Now()
	s.finished.Store(&now)
	for _, f := range s.readers {
		_ = f.SetReadDeadline(time.Now().Add(drainWait))
	}
	s.copying.Wait()
	for _, f := range s.readers {
		_ = f.Close()
	}
	if s.input != nil {
		_ = s.input.Close()
	}
	if s.held.Load() {
		return []string{"a process outside the call holds its output open; what it writes later is not recorded"}
	}
	return nil
}

// abandon closes everything after a command could not be started.
func (s *streams) abandon() {
	for _, f := range append(s.theirs, s.readers...) {
		_ = f.Close()
	}
	if s.input != nil {
		_ = s.input.Close()
	}
}
