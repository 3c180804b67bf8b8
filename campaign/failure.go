package campaign

import (
	"errors"
	"fmt"
	"slices"

	"github.com/llmprof/llmprof/store"
)

// CellError is an error of a [Runner] or an [Engine] that knows what it means
// for the campaign. Any other error counts as a CellError without marks: the
// cell failed, may be tried again, and the engine is not trusted any more.
type CellError struct {
	// State is what becomes of the cell: [store.Failed], [store.OOM],
	// [store.Refused] or [store.Timeout]. Empty means Failed. Only Failed is
	// tried again.
	State store.State
	// Outside says that the place is at fault and not the cell: no container,
	// no connection. The place's other cells are cancelled.
	Outside bool
	// Final says that another try would end alike.
	Final bool
	// Alive says that the engine still serves; otherwise it is closed.
	Alive bool
	// Err says what went wrong, Advice what helps; Advice may be empty.
	Err    error
	Advice string
}

// Error is the text of Err.
func (f *CellError) Error() string {
	if f.Err == nil {
		return fmt.Sprintf("the cell ended as %s", f.state())
	}
	return f.Err.Error()
}

// Unwrap returns Err.
func (f *CellError) Unwrap() error { return f.Err }

// Hint is Advice, or that of Err.
func (f *CellError) Hint() string {
	var advised interface{ Hint() string }
	if f.Advice == "" && errors.As(f.Err, &advised) {
		return advised.Hint()
	}
	return f.Advice
}

// state is State where it is an end that a failure can have.
func (f *CellError) state() store.State {
	if slices.Contains([]store.State{store.OOM, store.Refused, store.Timeout}, f.State) {
		return f.State
	}
	return store.Failed
}

// again reports whether another try is worth it.
func (f *CellError) again() bool { return f.state() == store.Failed && !f.Final }

// failureOf reads an error. One that ends a process with the code of wrong
// usage or of something unknown would come again.
func failureOf(err error) *CellError {
	f := &CellError{Err: err}
	if known, ok := errors.AsType[*CellError](err); ok {
		own := *known
		f = &own
	}
	var coded interface{ ExitCode() int }
	if errors.As(err, &coded) {
		const usage, unknown = 2, 3
		f.Final = f.Final || coded.ExitCode() == usage || coded.ExitCode() == unknown
	}
	return f
}
