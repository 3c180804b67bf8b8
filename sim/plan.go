package sim

// Plan is what a pass decided for the next step. It is valid until the next
// pass.
type Plan struct {
	// Scheduled is the tokens of each request: those that ran before, in their
	// order, then those admitted.
	Scheduled []Share
	// Hits are the admissions, with what they found in the prefix cache.
	Hits []Hit
	// Preempted are the victims, in order.
	Preempted []int32
	// Evicted are the identities that the prefix cache forgot, in order.
	Evicted []Block
	// Tokens is the sum over Scheduled.
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

// Hit is an admission and the tokens that the prefix cache had for it.
type Hit struct {
	Request int32
	Tokens  int32
}

// Outcome is what the results of a step changed. It is valid until the next
// one.
type Outcome struct {
	// Tokens are the tokens put out, in the order of the plan.
	Tokens []Token
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
	*p = Plan{
		Scheduled: p.Scheduled[:0], Hits: p.Hits[:0],
		Preempted: p.Preempted[:0], Evicted: p.Evicted[:0],
	}
}
