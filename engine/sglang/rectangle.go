package sglang

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/llmprof/llmprof/engine"
)

// rectangle is what one process measures: every batch size with every input
// length, at one output length.
type rectangle struct {
	batches, inputs      []int
	output, warmup, runs int
	tasks                map[shape][]engine.Task
	last                 float64 // the largest work in tokens, to run the dearest last
}

// shape is a batch size and an input length.
type shape struct{ batch, input int }

// rows is the number of rows of one shape.
func (r *rectangle) rows() int { return r.warmup + r.runs }

// shapes lists the shapes in the order in which their rows are printed.
func (r *rectangle) shapes() []shape {
	var out []shape
	for _, b := range r.batches {
		for _, i := range r.inputs {
			out = append(out, shape{b, i})
		}
	}
	return out
}

// rectangles covers the tasks: input lengths that want the same batch sizes
// share a process.
func rectangles(tasks []engine.Task) ([]*rectangle, error) {
	type column struct{ input, output, warmup, runs int }
	columns := map[column]map[int][]engine.Task{} // by batch size
	var order []column
	for _, t := range tasks {
		if t.Step == nil {
			return nil, errors.New("sglang times whole steps only")
		}
		c := column{t.Step.InputLen, t.Step.OutputLen, max(t.Warmup, 0), max(t.Runs, 1)}
		if columns[c] == nil {
			columns[c] = map[int][]engine.Task{}
			order = append(order, c)
		}
		columns[c][t.Step.BatchSize] = append(columns[c][t.Step.BatchSize], t)
	}
	byKey := map[string]*rectangle{}
	var all []*rectangle
	for _, c := range order {
		var batches []int
		for b := range columns[c] {
			batches = append(batches, b)
		}
		slices.Sort(batches)
		key := fmt.Sprint(batches, c.output, c.warmup, c.runs)
		r := byKey[key]
		if r == nil {
			r = &rectangle{batches: batches, output: c.output, warmup: c.warmup, runs: c.runs, tasks: map[shape][]engine.Task{}}
			byKey[key] = r
			all = append(all, r)
		}
		r.inputs = append(r.inputs, c.input)
		for b, same := range columns[c] {
			r.tasks[shape{b, c.input}] = same
		}
		r.last = max(r.last, float64(slices.Max(batches))*float64(c.input))
	}
	for _, r := range all {
		slices.Sort(r.inputs)
	}
	slices.SortStableFunc(all, func(a, b *rectangle) int { return cmp.Compare(a.last, b.last) })
	return all, nil
}
