package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/cost"
	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/fit"
	"github.com/llmprof/llmprof/hub"
	"github.com/llmprof/llmprof/profile"
	"github.com/llmprof/llmprof/sim"
	"github.com/llmprof/llmprof/sim/sglang"
	"github.com/llmprof/llmprof/store"
)

// The exit codes.
const (
	codeNo          = 1
	codeUsage       = 2
	codeUnknown     = 3
	codeOutside     = 4
	codeIncomplete  = 5
	codeBug         = 70
	codeInterrupted = 130
	codeTerminated  = 143
)

// codedError carries an exit code and, apart from the message, advice.
type codedError struct {
	code int
	err  error
	hint string
}

func (e *codedError) Error() string { return e.err.Error() }
func (e *codedError) Unwrap() error { return e.err }
func (e *codedError) Hint() string  { return e.hint }
func (e *codedError) ExitCode() int { return e.code }

// usage is a mistake in the command line or a configuration.
func usage(hint, format string, args ...any) error {
	return &codedError{codeUsage, fmt.Errorf(format, args...), hint}
}

// verdictError ends a command that has done its work and whose answer is no.
type verdictError struct{ message string }

func (e *verdictError) Error() string { return e.message }
func (e *verdictError) ExitCode() int { return codeNo }

// bugError is a panic that reached the top.
type bugError struct {
	fault any
	stack []byte
}

func (e *bugError) Error() string {
	text := fmt.Sprintf("bug in llmprof: %v", e.fault)
	if os.Getenv("LLMPROF_TRACE") != "" {
		text += "\n" + string(e.stack)
	}
	return text
}
func (e *bugError) ExitCode() int { return codeBug }
func (e *bugError) Hint() string {
	return "please report it with the command line; run with LLMPROF_TRACE=1 to see the stack"
}

// interruption is a signal that asked the command to stop.
type interruption struct{ signal os.Signal }

func (e *interruption) Error() string {
	if e.signal == syscall.SIGTERM {
		return "terminated"
	}
	return "interrupted"
}

func (e *interruption) ExitCode() int {
	if e.signal == syscall.SIGTERM {
		return codeTerminated
	}
	return codeInterrupted
}

// outputError says that a result could not be written to stdout.
type outputError struct{ err error }

func (e *outputError) Error() string { return "write the result: " + e.err.Error() }
func (e *outputError) Unwrap() error { return e.err }
func (e *outputError) ExitCode() int { return codeOutside }

// exitCode maps an error on the process's exit code.
func exitCode(err error) int {
	var coded interface{ ExitCode() int }
	var unknown *catalog.UnknownError
	var layout *cost.LayoutError
	var newer *profile.VersionError
	var newerPredictor *fit.VersionError
	var unsupported *hub.UnsupportedError
	var config *fit.UnknownConfigError
	var stored *store.NotFoundError
	var release *sim.UnknownReleaseError
	var sglangRelease *sglang.UnknownReleaseError
	var access *hub.AccessError
	var died *engine.DiedError
	var exit *engine.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &coded):
		return coded.ExitCode()
	case errors.As(err, &unknown), errors.As(err, &newer), errors.As(err, &newerPredictor), errors.As(err, &unsupported), errors.As(err, &release), errors.As(err, &sglangRelease),
		errors.As(err, &config), errors.As(err, &stored):
		return codeUnknown
	case errors.As(err, &access):
		return accessCode(access.Reason)
	case errors.As(err, &died), errors.As(err, &exit):
		return codeOutside
	case errors.As(err, &layout):
		return codeUsage
	default:
		return codeUsage
	}
}

// accessCode tells what the hub does not have or give from what keeps it from
// answering.
func accessCode(reason hub.Reason) int {
	switch reason {
	case hub.Gated, hub.MissingRepo, hub.MissingRevision, hub.MissingFile:
		return codeUnknown
	default:
		return codeOutside
	}
}

// settle turns what a broken pipe or a signal left behind into what it means.
func settle(ctx context.Context, err error) error {
	if errors.Is(err, syscall.EPIPE) {
		return nil
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return context.Cause(ctx)
	}
	return err
}

// complain says err on stderr: one line, and advice on a line of its own; as
// a document in JSON mode.
func (a *app) complain(err error) {
	if err == nil {
		return
	}
	hint := hintOf(err)
	if a.format == formatJSON {
		document := struct {
			Error struct {
				Code    int    `json:"code"`
				Message string `json:"message"`
				Hint    string `json:"hint,omitempty"`
			} `json:"error"`
		}{}
		document.Error.Code, document.Error.Message, document.Error.Hint = exitCode(err), err.Error(), hint
		if text, fault := json.Marshal(document); fault == nil {
			_, _ = fmt.Fprintf(a.stderr, "%s\n", text)
		}
		return
	}
	var b strings.Builder
	b.WriteString("llmprof: " + err.Error() + "\n")
	if hint != "" {
		b.WriteString("hint: " + hint + "\n")
	}
	_, _ = io.WriteString(a.stderr, b.String())
}

// hintOf finds the advice of the first error in the chain that has some.
func hintOf(err error) string {
	var advised interface{ Hint() string }
	if errors.As(err, &advised) {
		return advised.Hint()
	}
	return ""
}
