package sim

import (
	"errors"
	"slices"
	"time"

	"github.com/llmprof/llmprof/forward"
)

// Padded is the timer of an engine that runs its steps as captured device
// graphs: a step of at most the largest size in tokens is padded to the next
// size with rows that attend to nothing, a larger one runs as it is.
type Padded struct {
	// Timer times what is run.
	Timer StepTimer
	// Sizes are the captured numbers of tokens, rising.
	Sizes []int
}

// NewPadded checks the sizes: at least one, rising from 1.
func NewPadded(timer StepTimer, sizes []int) (*Padded, error) {
	if timer == nil || len(sizes) == 0 {
		return nil, errors.New("device graphs: want a timer and at least one size")
	}
	for i, n := range sizes {
		if n < 1 || n > MaxCount || i > 0 && n <= sizes[i-1] {
			return nil, errors.New("device graphs: want rising sizes of at least 1 token")
		}
	}
	return &Padded{timer, sizes}, nil
}

// StepTime is the time of the padded pass.
func (p *Padded) StepTime(pass forward.Pass) (time.Duration, error) {
	tokens := pass.Tokens()
	if i, exact := slices.BinarySearch(p.Sizes, tokens); !exact && i < len(p.Sizes) {
		pass.Decode.Count += p.Sizes[i] - tokens
		pass.Decode.Shortest, pass.Decode.Longest, pass.DecodeContexts = 0, 0, nil // not those of all rows
	}
	return p.Timer.StepTime(pass)
}
