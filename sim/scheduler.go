package sim

import "fmt"

// Scheduler decides as vLLM's does, one pass after the other. It is not safe
// for use by several goroutines.
type Scheduler struct {
	rules     Rules
	policy    Policy
	ahead     int32 // passes made before a result is known: 1 if async
	whole     bool  // prompts are not cut
	gated     bool  // the full-sequence gate is on
	watermark int32 // blocks
	seats     int
	maxLen    int32
	most      int32 // budget of a step
	cut       int32 // threshold of long prompts, 0 for none

	config   Config
	requests requests
	kv       kv
	waiting  queue
	running  []int32 // in order of admission
	steady   steady  // those of running that are counted and not listed

	budget    int32 // left in this pass
	threshold int32 // of this pass
	hits      []int32
	aside     []int32

	plan    Plan
	outcome Outcome
	open    bool    // the plan is not applied
	flying  []Share // async: the step that runs while a pass is made
	totals  Totals
	remote  transfers
}

// Totals count since the scheduler was made.
type Totals struct {
	// Preemptions, Evictions and Finished count events; Unservable is the
	// requests that were refused.
	Preemptions, Evictions, Finished, Unservable int64
	// Queried are the tokens for which the prefix cache was asked at an
	// admission, Hit those found. Requests that resume count apart.
	Queried, Hit, ResumedQueried, ResumedHit int64
	// Budget are the passes that gave out their whole budget, Seats those that
	// left requests waiting with all seats taken. Blocks are those that
	// refused the head of the queue for want of blocks; of these, Watermark
	// would have admitted it without the watermark, and FullSequence without
	// the gate for all its tokens.
	Budget, Seats, Blocks, Watermark, FullSequence int64
	// Cut are the shares of a step that left a prompt unfinished; of these,
	// Threshold were as long as the threshold for long prompts. Whole are the
	// times that a prompt waited since it may not be cut.
	Cut, Threshold, Whole int64
	// Shortened are the requests that max_model_len refuses or ends before
	// their limit of tokens.
	Shortened int64
	// Ranked says that requests of different priorities came.
	Ranked bool
}

// NewScheduler makes the scheduler of one replica. A configuration that the
// engine would refuse is an error that names all faults.
func NewScheduler(c Config) (*Scheduler, error) {
	s := new(Scheduler)
	if err := s.Reset(c); err != nil {
		return nil, err
	}
	return s, nil
}

// Add lets a request arrive before the next pass and returns its id; ids count
// from 0 in order of arrival. A request that the engine refuses gets an id too:
// its state is [Unservable].
func (s *Scheduler) Add(q Request) (id int32, err error) {
	if err := q.check(); err != nil {
		return 0, fmt.Errorf("add request: %w", err)
	}
	id = s.requests.add(&q, &s.config)
	s.waiting.priority, s.waiting.state = s.requests.priority, s.requests.state
	s.requests.flags[id] = s.remote.register(id, &q)
	s.countRequest(id, &q)
	if q.Prompt >= int(s.maxLen) {
		s.requests.state[id] = Unservable
		s.totals.Unservable++
		return id, nil
	}
	s.waiting.reserve(s.WaitingCount() + len(s.running) + 1) // all of them may be put back
	s.waiting.pushBack(id)
	return id, nil
}

// Idle reports whether there is nothing to do before a request arrives.
func (s *Scheduler) Idle() bool {
	drained := !s.open && (s.ahead == 0 || s.plan.Tokens == 0)
	return len(s.running) == 0 && s.WaitingCount() == 0 && drained
}

// Running lists the requests with a seat, in the order in which they are
// served. It is valid until the next call.
func (s *Scheduler) Running() []int32 { return s.running }

// WaitingCount is how many requests wait, those that wait for KV from another
// engine included.
func (s *Scheduler) WaitingCount() int { return s.waiting.n + len(s.remote.waiting) }

// AppendWaiting appends the waiting requests in order of admission, but for those
// that wait for KV from another engine.
func (s *Scheduler) AppendWaiting(to []int32) []int32 { return s.waiting.list(to) }

// First is the request that is admitted next; ok is false where none waits but for
// KV from another engine.
func (s *Scheduler) First() (id int32, ok bool) { return s.candidate() }

// FreeBlocks is the length of the free list, in blocks; cached blocks that
// nobody holds are free.
func (s *Scheduler) FreeBlocks() int { return int(s.kv.free) }

// UsableBlocks is the blocks of the pool but for the null block.
func (s *Scheduler) UsableBlocks() int { return int(s.kv.total) }

// State is where a request stands.
func (s *Scheduler) State(id int32) State { return s.requests.state[id] }

// Computed is the tokens of a request whose KV exists, or is being computed by
// a step that was planned.
func (s *Scheduler) Computed(id int32) int {
	if s.steady.has(id) {
		return int(s.steady.computed(id))
	}
	return int(s.requests.progress[id].computed)
}

// Outputs is the tokens that a request has put out.
func (s *Scheduler) Outputs(id int32) int {
	p := &s.requests.progress[id]
	total := p.total
	if s.steady.has(id) {
		if total = s.steady.computed(id) + 1 - s.ahead; s.open {
			total--
		}
	}
	return int(total - p.prompt)
}

// Totals are the counts so far.
func (s *Scheduler) Totals() Totals { return s.totals }

// LookedUp is the tokens for which the prefix cache was asked so far, requests
// that resumed included, and those of them that it had.
func (s *Scheduler) LookedUp() (queried, hit int64) {
	t := &s.totals
	return t.Queried + t.ResumedQueried, t.Hit + t.ResumedHit
}
