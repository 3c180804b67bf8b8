package measure

import (
	"cmp"
	"slices"

	"github.com/llmprof/llmprof/engine"
)

// Grid is every combination of batch size and input length.
type Grid struct {
	// BatchSizes are sequences of a step, InputLens prompt tokens of each.
	BatchSizes, InputLens []int
	// OutputLen is the number of tokens to generate; 1 measures no decode.
	OutputLen int
}

// Tasks lists the grid, the cheapest first.
func (g Grid) Tasks(warmup, runs int) []engine.Task {
	var tasks []engine.Task
	for _, b := range g.BatchSizes {
		for _, i := range g.InputLens {
			tasks = append(tasks, engine.Task{Step: &engine.StepTask{BatchSize: b, InputLen: i, OutputLen: g.OutputLen}, Warmup: warmup, Runs: runs})
		}
	}
	return order(tasks)
}

// Bounds are the largest batch size and lengths of the tasks.
func Bounds(tasks []engine.Task) (batch, input, output int) {
	for _, t := range tasks {
		if s := t.Step; s != nil {
			batch, input, output = max(batch, s.BatchSize), max(input, s.InputLen), max(output, s.OutputLen)
		}
		if l := t.Layers; l != nil {
			batch, input, output = max(batch, l.Sequences), max(input, l.Tokens+l.Context), max(output, 1)
		}
	}
	return batch, input, output
}

// PowersOfTwo lists the powers of two from least to most, both of which are
// in the list whatever they are.
func PowersOfTwo(least, most int) []int {
	values := []int{least}
	for v := 1; v < most; v *= 2 {
		if v > least {
			values = append(values, v)
		}
	}
	if most > least {
		values = append(values, most)
	}
	return values
}

// order sorts tasks by their work, the cheapest first, and numbers them.
func order(tasks []engine.Task) []engine.Task {
	slices.SortStableFunc(tasks, func(a, b engine.Task) int { return cmp.Compare(work(a), work(b)) })
	for i := range tasks {
		tasks[i].ID = i + 1
	}
	return tasks
}

// work is a measure of a task's cost that needs no knowledge of the machine: the
// features of its time with rough weights. A token counts 1, a launch as much
// as 32 tokens, a pair of tokens in attention as much as 1/4096.
func work(t engine.Task) float64 {
	weights := [...]float64{32, 32, 1, 1.0 / 4096, 1, 1.0 / 4096}
	sum := 0.0
	for i, v := range features(t) {
		sum += weights[i] * v
	}
	return sum
}
