package sglang

import (
	"fmt"

	"github.com/llmprof/llmprof/sim"
)

// limits counts where settings made a difference, or may have.
type limits struct {
	// seats refused somebody, memory refused somebody, cut a piece or a request,
	// or was short for a decode; chunk and input are the budgets of a prefill batch
	// that were reached.
	seats, memory, chunk, input int64
	// retracted and preempted are requests, shortened those that the context cut or
	// refused.
	retracted, preempted, shortened int64
	// ordered are prefill passes with a queue of two and more, beside those while
	// requests ran. held are iterations in which a prefill waited for decodes.
	ordered, beside, held int64
	// hit are tokens that were found in the cache.
	hit int64
	// ranked says that two priorities came, shares that a prompt has tokens that
	// others may have, ignores that a request ignores EOS.
	ranked, shares, ignores bool
}

// arrived notes what a request shows about the limits, which was to have so
// many new tokens.
func (l *limits) arrived(s *Scheduler, id int32, r *Request, asked int) {
	if r.MaxNew < asked {
		l.cutShort(s)
	}
	l.ranked = l.ranked || s.q.priority[id] != s.q.priority[0]
	l.shares = l.shares || len(r.Prefix) > 0
	l.ignores = l.ignores || r.IgnoreEOS
}

// cutShort notes that the context, or the pool, is too short for a request.
func (l *limits) cutShort(s *Scheduler) {
	if s.config.Context <= s.size {
		l.shortened++
	} else {
		l.memory++
	}
}

// verdict notes why no further request is tried.
func (l *limits) verdict(v verdict, a *adder) {
	if v == noMemory {
		l.memory++
	}
	if v == spent && a.chunked && a.chunk <= 0 {
		l.chunk++
	}
	if v == spent && a.input <= 0 {
		l.input++
	}
}

// Unbound are the settings that made no difference so far, in a fixed order: see
// [sim.Knob].
func (s *Scheduler) Unbound() []sim.Knob {
	var all []sim.Knob
	c, l := &s.config, &s.limits
	add := func(idle bool, name, why string, args ...any) {
		if idle {
			from, to := c.idle(name)
			all = append(all, sim.Knob{Name: name, Why: fmt.Sprintf(why, args...), From: from, To: to})
		}
	}
	short := l.memory + l.retracted
	shares := l.shares || l.preempted > 0 // who comes back may find its own tokens
	roomy := short == 0 && (!shares || s.tree.evicted == 0)
	add(l.seats == 0, "max_running_requests", "no request waited while %d ran", c.Seats)
	add(c.Chunk > 0 && l.chunk == 0, "chunked_prefill_size", "no prefill batch reached %d tokens", c.Chunk)
	add(l.input == 0, "max_prefill_tokens", "no prefill batch reached %d tokens", c.MaxPrefill)
	const never = "nobody waited for memory or was retracted, and "
	switch {
	case roomy && shares:
		add(true, "max_total_num_tokens", never+"none were evicted")
	case roomy:
		add(true, "max_total_num_tokens", never+"no prompts share any")
	}
	add(roomy && l.seats == 0, "mem_fraction_static", "neither max_total_num_tokens nor max_running_requests, which follow from it, made a difference")
	add(short == 0 && !(c.NoPrefixCache && l.ignores), "schedule_conservativeness", "nobody waited for memory or was retracted")
	add(l.ordered == 0, "schedule_policy", "no two requests waited at once")
	add(c.Context > 0 && l.shortened == 0, "context_length", "no request reached %d tokens", c.Context)
	add(s.page > 1 && roomy && l.chunk+l.input == 0 && !shares, "page_size", "no limit was reached and no prompts share any tokens")
	add(!c.NoPrefixCache && l.hit == 0 && !l.ignores && (!s.policy.cacheAware() || l.ordered == 0 && s.policy != ShortestPrefill), "disable_radix_cache", "nothing was found in the cache")
	add(c.Chunk > 0 && l.beside == 0, "enable_mixed_chunk", "no prompt was computed while others ran")
	add(c.Mixed && c.Chunk <= 0, "enable_mixed_chunk", "chunked prefill is off")
	add(c.Priority && !l.ranked && l.seats == 0 && short == 0, "enable_priority_scheduling", "all requests have one priority and nobody waited for a seat or memory")
	add(c.Priority && l.preempted == 0, "priority_scheduling_preemption_threshold", "nobody was preempted")
	add(c.RetractByPriority && l.retracted == 0, "retraction_policy", "nobody was retracted")
	add(c.DecodeInterval > 0 && l.held == 0, "prefill_decode_interval", "no prompt came within %d decodes of another", c.DecodeInterval)
	return all
}

// idle bounds a number that made no difference by its present value, on the side
// that lies further from what happened; the share of the memory is not known
// here.
func (c *Config) idle(name string) (from, to *float64) {
	switch name {
	case "max_running_requests":
		return new(float64(c.Seats)), nil
	case "chunked_prefill_size":
		return new(float64(c.Chunk)), nil
	case "max_prefill_tokens":
		return new(float64(c.MaxPrefill)), nil
	case "max_total_num_tokens":
		return new(float64(c.Pool)), nil
	case "context_length":
		return new(float64(c.Context)), nil
	case "priority_scheduling_preemption_threshold":
		return new(float64(c.PreemptThreshold)), nil
	case "schedule_conservativeness":
		return nil, new(c.Conservativeness)
	case "page_size":
		return nil, new(float64(c.Page))
	case "prefill_decode_interval":
		return nil, new(float64(c.DecodeInterval))
	}
	return nil, nil
}
