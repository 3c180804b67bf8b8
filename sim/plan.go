package sim

import "github.com/llmprof/llmprof/forward"

// Plan is what a pass decided for the next step. It is valid until the next
// pass.
type Plan struct {
	// Scheduled is the tokens of each request: those that ran before, in their
	// order, then those admitted.
	Scheduled []Share
	// Hits are the admissions, with what they found in the prefix cache.
	Hits []Hit
	// Loads are the requests that got blocks for KV from another engine and wait
	// for it from now on.
	Loads []Load
	// Preempted are the victims, in order.
	Preempted []int32
	// Evicted are the identities that the prefix cache forgot, in order.
	Evicted []Block
	// Steady are the requests that decode one token each and are not listed in
	// Scheduled, where the scheduler keeps them together: see [Config.Aggregate].
	Steady forward.Sequences
	// Settled are the requests that were among the steady ones up to the step
	// before and are listed from now on.
	Settled []int32
	// Tokens is the sum over Scheduled, and Steady.
	Tokens int
	// Free is the length of the free list after the pass, in blocks.
	Free int
}

// Share is what one request gets of a step.
type Share struct {
	// Request is its id.
	Request int32
	// Tokens is how many of its tokens the step computes.
	Tokens int32
	// Context is how many tokens came before: computed or found in the cache.
	Context int32
	// Samples says that the step puts out a token, since all others of the
	// request are computed with it.
	Samples bool
}

// Load is KV that is to be fetched for a request.
type Load struct {
	Request int32
	// Tokens is how many tokens it is of; Context those before them, which the
	// prefix cache had.
	Tokens, Context int32
}

// Hit is an admission and the tokens that were computed before: those that the
// prefix cache had for it, or that were loaded.
type Hit struct {
	Request int32
	Tokens  int32
}

// Outcome is what the results of a step changed. It is valid until the next
// one.
type Outcome struct {
	// Tokens are the tokens put out, in the order of the plan.
	Tokens []Token
	// Steady is how many further tokens steady requests put out, one each. They
	// all put one out in the step before too.
	Steady int
	// Finished are the requests that ended.
	Finished []int32
	// Free is the length of the free list, in blocks.
	Free int
}

// Token is one token that a request puts out.
type Token struct {
	Request int32
	// Number counts a request's tokens from 1.
	Number int32
}

// reset empties the plan for the next pass.
func (p *Plan) reset() {
	p.Scheduled, p.Hits, p.Loads = p.Scheduled[:0], p.Hits[:0], p.Loads[:0]
	p.Preempted, p.Evicted, p.Settled = p.Preempted[:0], p.Evicted[:0], p.Settled[:0]
	p.Steady, p.Tokens, p.Free = forward.Sequences{}, 0, 0
}
