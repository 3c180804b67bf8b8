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

	budget    int32 // left in this pass
	threshold int32 // of this pass
	hits      []int32
	aside     []int32

	plan    Plan
	outcome Outcome
	open    bool    // the plan is not applied
	flying  []Share // async: the step that runs while a pass is made
	totals  Totals
}

// Totals count since the scheduler was made.
type Totals struct {
	// Preemptions, Evictions and Finished count events; Unservable is the
	// requests that were refused.
	Preemptions, Evictions, Finished, Unservable int64
	// Queried are the tokens for which the prefix cache was asked at an
	// admission, Hit those found. Requests that resume count apart.
	Queried, Hit, ResumedQueried, ResumedHit int64
}

// NewScheduler makes the scheduler of one replica. A configuration that the
// engine would refuse is an error that names all faults.
func NewScheduler(c Config) (*Scheduler, error) {
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("scheduler: %w", err)
	}
	s := &Scheduler{
		rules: c.Rules, policy: c.Policy, whole: c.WholePrompts, gated: c.Rules.FullSequenceGate && !c.NoFullSequenceGate,
		seats: c.MaxSeqs, maxLen: int32(c.MaxModelLen), most: int32(c.budget()), cut: int32(c.Threshold),
		config: c, kv: newKV(c), waiting: queue{ranked: c.Policy == Priority},
	}
	if c.Async {
		s.ahead = 1
	}
	if c.Rules.Watermark {
		s.watermark = int32(c.Watermark * float64(c.Blocks))
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
	s.waiting.priority = s.requests.priority
	if q.Prompt >= int(s.maxLen) {
		s.requests.state[id] = Unservable
		s.totals.Unservable++
		return id, nil
	}
	s.waiting.reserve(s.waiting.n + len(s.running) + 1)
	s.waiting.pushBack(id)
	return id, nil
}

// Idle reports whether there is nothing to do before a request arrives.
func (s *Scheduler) Idle() bool {
	drained := !s.open && (s.ahead == 0 || len(s.plan.Scheduled) == 0)
	return len(s.running) == 0 && s.waiting.n == 0 && drained
}

// Running lists the requests with a seat, in the order in which they are
// served. It is valid until the next call.
func (s *Scheduler) Running() []int32 { return s.running }

// WaitingCount is how many requests wait.
func (s *Scheduler) WaitingCount() int { return s.waiting.n }

// AppendWaiting appends the waiting requests in order of admission.
func (s *Scheduler) AppendWaiting(to []int32) []int32 { return s.waiting.list(to) }

// FreeBlocks is the length of the free list, in blocks; cached blocks that
// nobody holds are free.
func (s *Scheduler) FreeBlocks() int { return int(s.kv.free) }

// UsableBlocks is the blocks of the pool but for the null block.
func (s *Scheduler) UsableBlocks() int { return len(s.kv.refs) - 1 }

// State is where a request stands.
func (s *Scheduler) State(id int32) State { return s.requests.state[id] }

// Computed is the tokens of a request whose KV exists, or is being computed by
// a step that was planned.
func (s *Scheduler) Computed(id int32) int { return int(s.requests.progress[id].computed) }

// Outputs is the tokens that a request has put out.
func (s *Scheduler) Outputs(id int32) int {
	p := &s.requests.progress[id]
	return int(p.total - p.prompt)
}

// Totals are the counts so far.
func (s *Scheduler) Totals() Totals { return s.totals }
