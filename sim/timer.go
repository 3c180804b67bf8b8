package sim

import (
	"time"

	"github.com/llmprof/llmprof/forward"
)

// StepTimer tells how long one step of an engine takes, and knows nothing of
// why its requests are together. cost.Estimator, fit.Predictor and
// fit/layers.Timer are some.
type StepTimer interface {
	// StepTime is the time of a pass. The pass is the caller's and may change
	// after the call. A pass that cannot be timed is an error.
	StepTime(pass forward.Pass) (time.Duration, error)
}

// StepTimerFunc is a function as a [StepTimer].
type StepTimerFunc func(forward.Pass) (time.Duration, error)

// StepTime calls the function.
func (f StepTimerFunc) StepTime(pass forward.Pass) (time.Duration, error) { return f(pass) }
