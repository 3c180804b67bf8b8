package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// Place is where an engine's processes run: this machine, a container, a pod,
// another host.
type Place interface {
	// String names the place: "local", "docker:vllm", "ssh:gpu7".
	String() string
	// Available returns nil where processes can be started, and otherwise an
	// error that is mostly an [*UnusableError].
	Available(ctx context.Context) error
	// Start starts a process. It ends when ctx does, and with this program.
	Start(ctx context.Context, cmd Command) (Process, error)
	// CopyIn writes a file at the place, with the given mode bits.
	CopyIn(ctx context.Context, path string, content io.Reader, mode uint32) error
	// CopyOut reads a file of the place; fs.ErrNotExist where there is none.
	CopyOut(ctx context.Context, path string) (io.ReadCloser, error)
	// TempDir makes an empty folder for this program's files; remove deletes
	// it with all that is in it.
	TempDir(ctx context.Context) (dir string, remove func() error, err error)
	// Dial connects to a TCP port that a process listens on at the place's
	// loopback address. Where the way there has no deadlines, setting one
	// returns [os.ErrNoDeadline], and closing the connection ends what waits
	// on it.
	Dial(ctx context.Context, port int) (net.Conn, error)
}

// Secretive is a place that knows secrets which its processes may print: those
// of the environment that they inherit.
type Secretive interface {
	// Redactor takes these secrets out of texts.
	Redactor() *Redactor
}

// RedactorOf returns a redactor that knows the secrets of a place, where it is
// [Secretive], and of further variables, "NAME=value".
func RedactorOf(place Place, env ...string) *Redactor {
	if s, ok := place.(Secretive); ok {
		return s.Redactor().With(env...)
	}
	return NewRedactor(env...)
}

// Command is a process to start.
type Command struct {
	// Argv is the program and its arguments.
	Argv []string
	// Env are variables on top of the place's own, "NAME=value".
	Env []string
	// Dir is the working folder; empty for the place's own.
	Dir string
	// Stderr takes what the process says there, secrets removed; nil discards
	// it. The last part of it is kept for errors anyway.
	Stderr io.Writer
}

// Process is a started process.
type Process interface {
	// Stdin feeds the process; closing it tells a probe to end.
	Stdin() io.WriteCloser
	// Stdout is what it prints. It must be read to its end.
	Stdout() io.Reader
	// Wait waits for the end; a failure is an [*ExitError].
	Wait() error
	// Stop asks the process and its children to end and kills them after
	// grace. It is safe to call at any time.
	Stop(grace time.Duration) error
}

// ExitError says how a process ended.
type ExitError struct {
	// Program is argv[0], Place where it ran.
	Program, Place string
	// Code is the exit status, -1 where a signal ended it; Signal is its name
	// then.
	Code   int
	Signal string
	// Stderr is the last part of what the process said, secrets removed.
	Stderr string
}

// Error names program, place and status.
func (e *ExitError) Error() string {
	how := fmt.Sprintf("ended with status %d", e.Code)
	if e.Signal != "" {
		how = "was ended by signal " + e.Signal
	}
	text := fmt.Sprintf("%s on %s %s", e.Program, e.Place, how)
	if e.Stderr != "" {
		text += ": " + e.Stderr
	}
	return text
}

// DiedError says that an engine ended or fell silent before its work was done.
type DiedError struct {
	// Engine names it; Task is the task that ran, 0 before the first.
	Engine string
	Task   int
	// OutOfMemory says that it seems to have died of want of memory.
	OutOfMemory bool
	// Err is what is known of the end.
	Err error
}

// Error names engine and cause.
func (e *DiedError) Error() string { return fmt.Sprintf("%s died: %v", e.Engine, e.Err) }

// Unwrap returns the cause.
func (e *DiedError) Unwrap() error { return e.Err }

// Problem is why a place or an engine cannot be used.
type Problem string

// The problems that have a remedy of their own.
const (
	// PlaceMissing: no such container, pod or host.
	PlaceMissing Problem = "missing"
	// PlaceStopped: it exists and does not run.
	PlaceStopped Problem = "stopped"
	// PermissionDenied: the user may not use it.
	PermissionDenied Problem = "permission denied"
	// ServiceUnreachable: the daemon, cluster or host does not answer.
	ServiceUnreachable Problem = "unreachable"
	// ProgramMissing: a program is not installed there.
	ProgramMissing Problem = "not installed"
	// EngineMissing: the engine's library is not installed there.
	EngineMissing Problem = "engine not installed"
)

// UnusableError says why a place or an engine cannot be used, and the command
// that mends it.
type UnusableError struct {
	Problem Problem
	// What was tried, on what: "docker container vllm".
	What string
	// Remedy is a command or an advice; it becomes the error's hint.
	Remedy string
	// Err is what the outside said; nil where there was nothing.
	Err error
}

// Error names what was tried and why it failed.
func (e *UnusableError) Error() string {
	text := fmt.Sprintf("%s: %s", e.What, e.Problem)
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap returns what the outside said.
func (e *UnusableError) Unwrap() error { return e.Err }

// Hint is the remedy.
func (e *UnusableError) Hint() string { return e.Remedy }

// ExitCode is that of failures outside.
func (e *UnusableError) ExitCode() int { return 4 }

// Unusable finds the problem in an error's chain; empty where there is none.
func Unusable(err error) Problem {
	var e *UnusableError
	if errors.As(err, &e) {
		return e.Problem
	}
	return ""
}
