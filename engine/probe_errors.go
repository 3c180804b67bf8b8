package engine

import (
	"errors"
	"fmt"
)

// DeviceMissing says that the engine finds no device of the kind that was asked
// for.
const DeviceMissing Problem = "no such device"

// probeError is what a probe said when it gave up; its hint is the remedy.
type probeError struct {
	text, hint string
}

// Error is the probe's reason and message.
func (e *probeError) Error() string { return e.text }

// Hint is the remedy; empty where none is known.
func (e *probeError) Hint() string { return e.hint }

// fatalError maps a "fatal" event to an error that says what mends it. Before
// the engine is ready most reasons are the user's to mend; later, any
// of them is a death.
func fatalError(engine, place string, ready bool, task int, event *probeEvent) error {
	if event.Engine != "" {
		engine = event.Engine
	}
	what := engine + " on " + place
	text := event.Message
	if text == "" {
		text = "no message"
	}
	hint := func(standard string) string {
		if event.Hint != "" {
			return event.Hint
		}
		return standard
	}
	reason := event.Reason
	if reason == "" {
		reason = "no reason given"
	}
	plain := &probeError{text: fmt.Sprintf("%s gave up: %s: %s", what, reason, text), hint: event.Hint}
	oom := event.Reason == FailureOOM
	if ready || oom {
		return &DiedError{Engine: engine, Task: task, OutOfMemory: oom || SaysOutOfMemory(text), Err: plain}
	}
	unusable := func(p Problem, standard string) error {
		return &UnusableError{Problem: p, What: what, Remedy: hint(standard), Err: errors.New(text)}
	}
	switch event.Reason {
	case "engine-missing":
		return unusable(EngineMissing, "install "+engine+" there for the interpreter that is used, or name another interpreter: --program PATH")
	case "permission-denied":
		return unusable(PermissionDenied, "check the access rights of the model and of the device; HF_TOKEN opens gated models")
	case "no-device":
		return unusable(DeviceMissing, "check the driver, or choose another device")
	case "model-missing":
		plain.hint = hint("name a folder with a config.json, a .gguf file or a hub id as " + place + " sees it")
	case "model-unsupported":
		plain.hint = hint("a newer release of " + engine + " may know the model")
	}
	return plain
}

// notStarted maps the end of a process that never was ready: shells report a
// program that is missing, or may not run, by its exit status.
func notStarted(engine, place, program string, err error) error {
	var exit *ExitError
	if errors.As(err, &exit) {
		switch exit.Code {
		case 127:
			return &UnusableError{
				Problem: ProgramMissing, What: program + " on " + place, Err: err,
				Remedy: "install it there, or name another program: --program PATH",
			}
		case 126:
			return &UnusableError{
				Problem: PermissionDenied, What: program + " on " + place, Err: err,
				Remedy: "make it executable for this user, or name another program: --program PATH",
			}
		}
	}
	return &DiedError{Engine: engine, OutOfMemory: OutOfMemory(err), Err: fmt.Errorf("before it was ready: %w", err)}
}
