package fleet

import (
	"context"
	"errors"
	"fmt"
)

// Runner runs simulations one after the other in the same memory, for a search
// that makes many. The zero value is ready. It is not safe for use by several
// goroutines.
type Runner struct {
	records []Record
	lists   []int32
	ids     []int32
	sources []int32
	vllm    []*vllmServer // by replica
}

// Run serves a load and says what became of it. A context that ends stops the
// run with an error that wraps its cause; beside it stands what became of the
// load until then. The same holds of a run in which a replica stood still, with
// a [*StallError], when all others have served what they got.
func Run(ctx context.Context, load *Load, c Config) (*Result, error) {
	return new(Runner).Run(ctx, load, c)
}

// Run does as the function [Run] does. The result is valid until the next run.
func (m *Runner) Run(ctx context.Context, load *Load, c Config) (*Result, error) {
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("simulation: %w", err)
	}
	r := m.newRun(load, &c)
	if c.apart(load) {
		return r.runApart(ctx)
	}
	for i := range c.Replicas {
		if err := r.serve(i); err != nil {
			return nil, fmt.Errorf("simulation: %w", err)
		}
	}
	r.route()
	err := r.loop(ctx)
	if err == nil {
		return r.result(), nil
	}
	err = fmt.Errorf("simulation: %w", err)
	switch _, stalled := errors.AsType[*StallError](err); {
	case stalled:
	case ctx.Err() == nil || r.sent == 0:
		return nil, err
	default:
		r.over = r.now
	}
	return r.result(), err
}

// newRun makes room for a run.
func (m *Runner) newRun(load *Load, c *Config) *run {
	n := load.Requests()
	if n > cap(m.records) {
		m.records, m.lists, m.ids, m.sources = make([]Record, n), make([]int32, n), make([]int32, n), nil
	}
	m.records, m.lists, m.ids = m.records[:n], m.lists[:n], m.ids[:n]
	for i := range m.records {
		m.records[i], m.ids[i] = unsent(), none
	}
	clear(m.lists)
	var sources []int32
	if c.Replicas[0].Role != Whole { // then all have a part
		if m.sources == nil {
			m.sources = make([]int32, cap(m.ids))
		}
		sources = m.sources[:n]
		copy(sources, m.ids)
	}
	for len(m.vllm) < len(c.Replicas) {
		m.vllm = append(m.vllm, new(vllmServer))
	}
	return &run{
		memory: m, load: load, config: c, window: newWindow(load), verdict: newVerdict(c.Abort, load),
		records: m.records, lists: m.lists, ids: m.ids, sources: sources,
	}
}
