package memory

import (
	"fmt"
	"math"

	"github.com/llmprof/llmprof/unit"
)

// Calculator says how much memory a run should take.
type Calculator interface {
	// Name is short and stands in tables.
	Name() string
	// Calculate predicts a run; of m it may look at everything but the
	// measured sizes, of which only [Rule] takes the total. An [*UnknownModelError] says that it has nothing to say.
	Calculate(m Measured) (Prediction, error)
}

// Prediction is what a calculator expects, summed over the GPUs. A size that
// it does not tell is nil.
type Prediction struct {
	// Total is what the run needs.
	Total *unit.Bytes
	// Weights, Activations and Overhead are parts of Total.
	Weights, Activations, Overhead *unit.Bytes
	// KVCache is the cache of the batch at its full length, a part of Total.
	KVCache *unit.Bytes
	// KVCapacity is the pool that an engine with this share of the device
	// would allocate.
	KVCapacity *unit.Bytes
	// Notes say what was assumed.
	Notes []string
}

// UnknownModelError says that a calculator knows too little of a model.
type UnknownModelError struct {
	// Calculator and Model name the two, Reason says what is missing.
	Calculator, Model, Reason string
}

// Error names model and calculator.
func (e *UnknownModelError) Error() string {
	return fmt.Sprintf("calculate %s with %s: %s", e.Model, e.Calculator, e.Reason)
}

// Hint says what to do next.
func (e *UnknownModelError) Hint() string {
	return "models are matched by id, never by size: give the id that the calculator knows, or add the model to the catalog"
}

// times multiplies a size of one GPU.
func times(b unit.Bytes, n int) (*unit.Bytes, error) {
	if v := float64(b) * float64(n); v < 0 || v > math.MaxInt64/4 {
		return nil, fmt.Errorf("%d times %v is no size of memory", n, b)
	}
	b *= unit.Bytes(n)
	return &b, nil
}

// bytesOf turns GB of 1e9 bytes into bytes.
func bytesOf(gb float64) (*unit.Bytes, error) {
	if !(gb >= 0 && gb <= maxBytes/1e9) {
		return nil, fmt.Errorf("%g GB is no size of memory", gb)
	}
	b := unit.Bytes(math.Round(gb * 1e9))
	return &b, nil
}
