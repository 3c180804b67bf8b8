package mock

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/llmprof/llmprof/forward"
	"github.com/llmprof/llmprof/sim"
)

// Simulation lets a server answer when a real one would: vLLM's scheduler
// decides what each step computes, and a timer how long it takes.
type Simulation struct {
	// Scheduler is the replica; its BlockSize, MaxModelLen and NoPrefixCache
	// are the server's too.
	Scheduler sim.Config
	// Timer times the steps.
	Timer sim.StepTimer
	// Between is the host's time from the end of a step to the begin of the
	// next one while there is work, Before what a request waits outside the
	// scheduler beside the server's own ways, before it enters the queue.
	Between, Before time.Duration
	// Speed is how many times faster than the replica's the server's time
	// passes: steps and gaps take that much less. Default 1.
	Speed float64
	// Release is the vLLM release that the server gives as its version,
	// default 0.32.0.
	Release string
	// IterationLog takes a line for each step, as vLLM logs them with
	// --enable-logging-iteration-details; nil for none.
	IterationLog io.Writer
}

// fastest bounds the speed of a simulation; no machine keeps up with more.
const fastest = 1e6

// validate reports what is wrong with a simulation.
func (c *Simulation) validate() error {
	faults := []error{c.Scheduler.Validate()}
	if c.Timer == nil {
		return errors.Join(append(faults, errors.New("simulation: a timer of steps is missing"))...)
	}
	if c.Between < 0 || c.Between > time.Hour || c.Before < 0 || c.Before > time.Hour {
		faults = append(faults, fmt.Errorf("%v between steps, %v before them: want 0 to 1 h", c.Between, c.Before))
	}
	if !(c.Speed >= 1/fastest && c.Speed <= fastest) {
		faults = append(faults, fmt.Errorf("speed: %g: want %g to %g", c.Speed, 1/fastest, fastest))
	}
	if errors.Join(faults...) == nil {
		faults = append(faults, c.timesAll())
	}
	return errors.Join(faults...)
}

// timesAll asks the timer for the kinds of steps that a server meets, so that
// one which knows fewer is refused at the start.
func (c *Simulation) timesAll() error {
	tokens := min(c.Scheduler.MaxBatchedTokens, c.Scheduler.MaxModelLen-1)
	piece := max(1, tokens/2)
	chunk := forward.Chunk{Count: 1, New: piece, Context: piece, Last: true}
	for _, kind := range []struct {
		name string
		pass forward.Pass
	}{
		{"of a prompt", forward.Prefill(1, tokens, 0)},
		{"of decoding sequences", forward.Decode(2, piece)},
		{"of a part of a prompt", forward.Pass{Prefill: []forward.Chunk{chunk}}},
		{"of both", forward.Pass{Prefill: []forward.Chunk{chunk}, Decode: forward.Sequences{Count: 1, SumContext: int64(piece)}}},
	} {
		if _, err := c.Timer.StepTime(kind.pass); err != nil {
			return fmt.Errorf("time a step %s: %w", kind.name, err)
		}
	}
	return nil
}

// simulated fills in what a simulation decides.
func (o Options) simulated() Options {
	c := *o.Simulation
	if c.Speed == 0 {
		c.Speed = 1
	}
	o.Simulation = &c
	o.BlockSize, o.MaxModelLen = c.Scheduler.BlockSize, c.Scheduler.MaxModelLen
	o.NoPrefixCache = c.Scheduler.NoPrefixCache
	return o
}

// checkSimulation reports what does not go with a simulation, or is wrong
// with it.
func (o Options) checkSimulation() error {
	var faults []error
	if o.MaxNumSeqs != Unlimited || o.KVBlocks != Unlimited {
		faults = append(faults, errors.New("a simulation has the limits of its scheduler: want none beside it"))
	}
	if o.TokensPerChunk != 1 {
		faults = append(faults, fmt.Errorf("tokens per chunk: %d: a simulated step puts out one", o.TokensPerChunk))
	}
	return errors.Join(append(faults, o.Simulation.validate())...)
}

// release is the version of the server.
func (o Options) release() string {
	if o.Simulation != nil && o.Simulation.Release != "" {
		return o.Simulation.Release
	}
	return "0.32.0"
}
