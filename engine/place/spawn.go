package place

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"time"

	"github.com/llmprof/llmprof/engine"
)

const (
	// contextGrace is how long a process may take to end by itself when its
	// context has.
	contextGrace = 5 * time.Second
	// leftGrace is how long what a process leaves behind may live on, before
	// it is asked to end and once more before it is killed.
	leftGrace = 2 * time.Second
	// killPatience is how long a killed process may take to be gone. One that
	// hangs in a driver call takes longer, and nothing can be done about it.
	killPatience = 10 * time.Second
	// drainPatience is how long a pipe may stay open after every process that
	// is known to hold it has ended.
	drainPatience = time.Second
)

// spawned is what to start on this machine: a place's process, or the client
// program that reaches another place.
type spawned struct {
	path      string // the executable
	argv, env []string
	dir       string
	place     string
	stderr    io.WriteCloser
	last      *tail
}

// process is a process of this machine with all that it starts.
type process struct {
	spawned
	cmd    *exec.Cmd
	stdin  *os.File
	stdout *os.File
	group  group

	ended chan struct{} // closed when err is set
	err   error
	term  sync.Once
}

// spawn starts a process and watches over it until it has ended.
func spawn(ctx context.Context, what spawned) (*process, error) {
	p := &process{spawned: what, ended: make(chan struct{})}
	var theirs [3]*os.File
	var stderr *os.File
	var err error
	pipe := func(parentReads bool, child, parent **os.File) {
		if err != nil {
			return
		}
		var r, w *os.File
		if r, w, err = os.Pipe(); err == nil {
			*child, *parent = r, w
			if parentReads {
				*child, *parent = w, r
			}
		}
	}
	pipe(false, &theirs[0], &p.stdin)
	pipe(true, &theirs[1], &p.stdout)
	pipe(true, &theirs[2], &stderr)
	closeAll := func(files ...*os.File) {
		for _, f := range files {
			if f != nil {
				_ = f.Close()
			}
		}
	}
	if err != nil {
		closeAll(theirs[0], theirs[1], theirs[2], p.stdin, p.stdout, stderr)
		return nil, fmt.Errorf("start %s on %s: %w", what.argv[0], what.place, err)
	}

	p.cmd = &exec.Cmd{Path: what.path, Args: what.argv, Env: what.env, Dir: what.dir, Stdin: theirs[0], Stdout: theirs[1], Stderr: theirs[2]}
	p.group.prepare(p.cmd)

	// The thread that forks must live as long as the child: Linux tells a
	// child of the death of the thread that made it, not of the process. So
	// one goroutine keeps one thread from the start to the end.
	started := make(chan error, 1)
	gone := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		if err == nil {
			p.group.started(p.cmd)
		}
		started <- err
		if err == nil {
			gone <- p.cmd.Wait()
		}
	}()
	err = <-started
	closeAll(theirs[:]...)
	if err != nil {
		closeAll(p.stdin, p.stdout, stderr)
		return nil, startError(what, err)
	}

	drained := make(chan struct{})
	go func() {
		defer close(drained)
		_, _ = io.Copy(what.stderr, stderr)
		_ = what.stderr.Close()
		_ = stderr.Close()
	}()
	stopAtEnd := context.AfterFunc(ctx, func() { _ = p.Stop(contextGrace) })
	go func() {
		err := <-gone
		stopAtEnd()
		p.group.endLeft()
		patience := time.Now().Add(drainPatience)
		_, _ = stderr.SetReadDeadline(patience), p.stdout.SetReadDeadline(patience)
		<-drained
		_ = p.stdin.Close()
		p.group.close()
		p.err = p.exitError(err)
		close(p.ended)
	}()
	return p, nil
}

// startError says why a process that was found could not be started.
func startError(what spawned, err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		err = path.Err
	}
	if errors.Is(err, fs.ErrNotExist) {
		// The file is there, so it is the interpreter in its first line that is not.
		return &engine.UnusableError{
			Problem: engine.ProgramMissing, What: "the interpreter of " + what.path + " on " + what.place,
			Remedy: "head -1 " + what.path + " names the interpreter to install", Err: err,
		}
	}
	if errors.Is(err, fs.ErrPermission) {
		return programError(what.place, what.path, err)
	}
	return fmt.Errorf("start %s on %s: %w", what.argv[0], what.place, err)
}

// exitError turns the end of a process into an error.
func (p *process) exitError(err error) error {
	if err == nil {
		return nil
	}
	e := &engine.ExitError{Program: p.argv[0], Place: p.place, Code: -1, Stderr: p.last.String()}
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		e.Stderr = err.Error()
		return e
	}
	e.Code = exit.ExitCode()
	if e.Code == -1 {
		e.Signal = endingSignal(exit.ProcessState)
	}
	return e
}

// Stdin feeds the process.
func (p *process) Stdin() io.WriteCloser { return feed{p.stdin} }

// Stdout is what the process prints.
func (p *process) Stdout() io.Reader { return &untilEnd{p.stdout} }

// Wait waits until the process and all that it started have ended.
func (p *process) Wait() error {
	<-p.ended
	return p.err
}

// Stop asks the process group to end, waits for it, and kills it after grace.
func (p *process) Stop(grace time.Duration) error {
	select {
	case <-p.ended:
		return nil
	default:
	}
	p.term.Do(func() { p.group.terminate() })
	if p.endsWithin(grace) {
		return nil
	}
	p.group.kill()
	if p.endsWithin(killPatience) {
		return nil
	}
	return fmt.Errorf("stop %s on %s: it lives on %v after SIGKILL, held in a call of the system or of a driver", p.argv[0], p.place, killPatience)
}

// endsWithin waits for the end.
func (p *process) endsWithin(patience time.Duration) bool {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-p.ended:
		return true
	case <-timer.C:
		return false
	}
}

// feed is a pipe that may be closed twice.
type feed struct{ *os.File }

// Close closes the pipe; that the process has ended before is no failure.
func (f feed) Close() error {
	if err := f.File.Close(); !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}

// untilEnd is a pipe that is closed at its end, and that ends when nobody is
// left who could be known to write to it.
type untilEnd struct{ file *os.File }

// Read reads what is there even past the deadline.
func (u *untilEnd) Read(b []byte) (int, error) {
	n, err := u.file.Read(b)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		_ = u.file.SetReadDeadline(time.Now().Add(drainPatience / 20))
		n, err = u.file.Read(b)
	}
	if err != nil {
		_ = u.file.Close()
		if errors.Is(err, os.ErrClosed) || errors.Is(err, os.ErrDeadlineExceeded) {
			err = io.EOF
		}
	}
	return n, err
}
