package sim

// Knob is a setting of an engine that made no difference in a run: another
// value that lies further from what happened, such as a larger budget, would
// have given the same.
type Knob struct {
	// Name is the setting as the engine spells it, with num_gpu_blocks for the
	// size of vLLM's KV pool; Why says what did not happen.
	Name, Why string
	// From and To bound the values of a number that would have given the same,
	// in its own unit; nil where the scheduler does not know.
	From, To *float64 // unit of the setting
}
