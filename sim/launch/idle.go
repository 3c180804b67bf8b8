package launch

import (
	"slices"
	"strings"

	"github.com/llmprof/llmprof/cost"
	"github.com/llmprof/llmprof/deploy"
	"github.com/llmprof/llmprof/sim"
)

// Idle tells which settings of a replica of vLLM made no difference: one that
// bound nothing may still have made one by what else follows from it.
type Idle struct {
	// Device is the name of the device; Graphs says that steps are padded to
	// sizes that follow from the seats and the budget of a step.
	Device string
	Graphs bool

	engine deploy.VLLM
	config sim.Config
	// pool says that the size of the KV pool follows from seats and budget.
	pool bool
	// most is the longest request in tokens that the engine could be started for:
	// one fills the pool, or the model was made for no longer one.
	most int
	// budget, seats and threshold were given.
	budget, seats, threshold bool
}

// NewIdle is that of an engine whose settings are all known. most is the longest
// request in tokens that it could be started for.
func NewIdle(v deploy.VLLM, config sim.Config, most int) *Idle {
	given := func(name string) bool {
		return slices.ContainsFunc(v.Choices, func(c deploy.Choice) bool {
			return c.Name == name && strings.HasPrefix(c.Source, deploy.Given)
		})
	}
	return &Idle{
		engine: v, config: config, most: most,
		budget: given("max_num_batched_tokens"), seats: given("max_num_seqs"), threshold: given("long_prefill_token_threshold"),
	}
}

// Idle is that of a launched replica of a model that was made for sequences of
// so many tokens.
func (r *Replica) Idle(model int, device string) *Idle {
	d := NewIdle(r.Scheduler, r.Config, r.Pool.Layout.Longest(r.Pool.Blocks, r.Pool.Ahead, model))
	d.pool, d.Device = pooled(r.Pool), device
	return d
}

// Extent is how large a run became.
type Extent struct {
	// Step is the largest step and Request the longest request, both in tokens;
	// Running is how many requests ran at once at most.
	Step, Request, Running int
}

// pooled reports whether the size of a pool follows from seats and budget: by
// the dummy run that is taken off the memory, or where layers of several kinds
// share it.
func pooled(p cost.KVPool) bool {
	return len(p.Layout.Groups) > 1 || slices.ContainsFunc(p.Parts, func(part cost.PoolPart) bool { return part.Name == "peak activation" })
}

// Narrow keeps of the settings that bound nothing those that made no difference
// by what follows from them either, and says within which values.
func (d *Idle) Narrow(unbound []sim.Knob, run Extent) []sim.Knob {
	has := func(name string) bool {
		return slices.ContainsFunc(unbound, func(s sim.Knob) bool { return s.Name == name })
	}
	budgetIdle, poolIdle := has("max_num_batched_tokens"), has("num_gpu_blocks")
	var all []sim.Knob
	for _, s := range unbound {
		keep := true
		switch s.Name {
		case "max_num_batched_tokens":
			keep = d.within(&s, d.leastBudget(run), d.engine.MaxNumBatchedTokens, d.withBudget) && (poolIdle || !d.pool)
		case "max_num_seqs":
			keep = d.within(&s, d.leastSeats(run), d.engine.MaxNumSeqs, d.withSeats) && (poolIdle || !d.pool)
		case "max_num_scheduled_tokens":
			s.From = new(float64(run.Step))
		case "num_gpu_blocks":
			s.From = new(float64(d.config.Blocks))
		case "max_model_len":
			from, to := d.leastLength(run.Request), d.mostLength()
			s.From, s.To = new(float64(from)), new(float64(to))
			keep = from < to && (d.engine.ChunkedPrefill || d.budget) && (d.threshold || d.config.Threshold == 0) && (poolIdle || !d.pool)
		case "enable_chunked_prefill":
			keep = d.chunkingIdle(budgetIdle)
		case "long_prefill_token_threshold":
			s.From = new(float64(d.config.Threshold))
			s.To = new(float64(max(d.engine.MaxModelLen, d.config.Threshold)))
		case "watermark":
			s.To = new(d.config.Watermark)
		}
		if keep {
			all = append(all, s)
		}
	}
	return all
}

// within writes the values of a number for which nothing differs, and reports
// whether there are others than the present one. With makes the engine of
// another value, least is the lowest one that binds nothing.
func (d *Idle) within(s *sim.Knob, least, present int, with func(int) deploy.VLLM) bool {
	const graphsEnd = 2048 // tokens; no default graph is as large, and none follows from more seats or a larger budget
	from, open := min(least, present), !d.pool
	if d.Graphs {
		now := deploy.VLLMGraphSizes(d.engine, d.Device)
		same := func(n int) bool { return slices.Equal(deploy.VLLMGraphSizes(with(n), d.Device), now) }
		open = open && same(max(present, graphsEnd))
		lowest := present
		if end := max(graphsEnd, from); lowest > end && same(end) {
			lowest = end
		}
		for lowest > from && same(lowest-1) {
			lowest--
		}
		from = lowest
	}
	s.From = new(float64(from))
	if !open {
		s.To = new(float64(present))
	}
	return open || from < present
}

func (d *Idle) withBudget(n int) deploy.VLLM {
	v := d.engine
	v.MaxNumBatchedTokens = n
	if !d.seats {
		v.MaxNumSeqs = min(v.MaxNumSeqs, n)
	}
	return v
}

func (d *Idle) withSeats(n int) deploy.VLLM {
	v := d.engine
	v.MaxNumSeqs = n
	return v
}

// leastBudget is the lowest budget of a step that the engine takes and that
// would have held every step.
func (d *Idle) leastBudget(run Extent) int {
	least := max(run.Step, run.Running, d.config.MaxScheduledTokens)
	if d.seats {
		least = max(least, d.engine.MaxNumSeqs)
	}
	if !d.engine.ChunkedPrefill {
		least = max(least, d.engine.MaxModelLen)
	}
	return least
}

// leastSeats is the lowest number of seats that would have held every request,
// and that does not cut the budget of a step.
func (d *Idle) leastSeats(run Extent) int {
	least := max(run.Running, 1)
	if !d.budget {
		least = max(least, ceilOf(d.engine.MaxNumBatchedTokens, d.engine.MaxModelLen))
	}
	return least
}

// leastLength is the same of the longest sequence, which some releases want to
// be no shorter than the threshold.
func (d *Idle) leastLength(longest int) int {
	longest = max(longest, d.config.Threshold)
	if !d.budget {
		longest = max(longest, ceilOf(d.engine.MaxNumBatchedTokens, d.engine.MaxNumSeqs))
	}
	return min(longest, d.engine.MaxModelLen)
}

// mostLength is the longest sequence that the engine takes and that changes
// leaves the budget of a step as it is.
func (d *Idle) mostLength() int {
	v, most := &d.engine, d.most
	switch {
	case !v.ChunkedPrefill: // the budget has to hold it
		most = min(most, v.MaxNumBatchedTokens)
		if d.config.MaxScheduledTokens > 0 {
			most = min(most, d.config.MaxScheduledTokens)
		}
	case !d.budget && v.MaxNumBatchedTokens >= v.MaxNumSeqs*v.MaxModelLen: // it cuts the budget
		most = v.MaxModelLen
	}
	return max(most, v.MaxModelLen)
}

// chunkingIdle reports whether the other value of chunked prefill would have
// given the same: without it the budget of a step is raised to the longest
// sequence where it was not given.
func (d *Idle) chunkingIdle(budgetIdle bool) bool {
	v := &d.engine
	switch {
	case d.budget:
		return v.MaxNumBatchedTokens >= v.MaxModelLen
	case !v.ChunkedPrefill:
		return false
	case v.MaxNumBatchedTokens >= v.MaxModelLen:
		return true
	}
	raised := deploy.VLLMGraphSizes(d.withBudget(v.MaxModelLen), d.Device)
	return budgetIdle && !d.pool && (!d.Graphs || slices.Equal(raised, deploy.VLLMGraphSizes(*v, d.Device)))
}

func ceilOf(a, b int) int { return (a + b - 1) / max(b, 1) }
