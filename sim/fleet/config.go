package fleet

import (
	"errors"
	"fmt"
	"time"

	"github.com/llmprof/llmprof/sim"
)

// Config is what serves a load.
type Config struct {
	// Replicas serve the requests, at least one.
	Replicas []Replica
	// Router finds the replica of each request. Where replicas have roles it
	// chooses among those for prompts, and Decode among those that decode.
	Router, Decode Routing
	// Transfer is how KV gets from the one to the other.
	Transfer Transfer
	// Threads is how many goroutines may serve the load at once; 0 is 1. Only
	// replicas that have nothing to do with each other run at once: those of an
	// open load whose router looks at no replica ([RoundRobin], [Random],
	// [Sticky], [PrefixAffinity] without a bound), without Abort. What comes out
	// does not depend on it, but for where an interruption finds it: several
	// threads leave each replica at a time of its own. With more than 1 the step timers are asked by several
	// goroutines at once, where replicas share them.
	Threads int
	// Progress is called every few thousand events, in the order of the time of
	// the simulation and never twice at once; an error ends the run and is wrapped
	// by that of [Run]; nil for nobody.
	Progress func(Progress) error
	// Abort ends the run early where its verdict is fixed; nil for never. Then
	// [Result].Aborted says so.
	Abort *Abort
	// Step is called after each step of a replica that computed something, in
	// the order of their begins; nil for nobody. The step is valid during the
	// call.
	Step func(*Step)
}

// MaxReplicas bounds the replicas of a run.
const MaxReplicas = 1 << 12

// Replica is one engine.
type Replica struct {
	// VLLM or SGLang is its scheduler; one of them. SGLang makes a loop without
	// requests, such as that of sglang.NewLoop, once for every run.
	VLLM   *sim.Config
	SGLang func() (Loop, error)
	// Timer tells how long its steps take.
	Timer sim.StepTimer
	// Between is the host's time from the end of a step to the begin of the
	// next one while there is work; Before what a request waits outside the
	// scheduler, on its way in and out together.
	Between, Before time.Duration
	// Role is its part of the work; by default it serves requests as a whole.
	Role Role
	// Devices is the number of devices of the replica; 0 where neither power nor
	// price is given.
	Devices int
	// Power is what each device draws, Price what it costs an hour, in any
	// currency; nil where it is not known.
	Power *Power
	Price *float64
	// Listed lets the scheduler walk every running request in every step. The
	// result is the same; it is there to be compared.
	Listed bool
}

// Validate reports all faults of the configuration.
func (c Config) Validate() error {
	var faults []error
	if n := len(c.Replicas); n < 1 || n > MaxReplicas {
		faults = append(faults, fmt.Errorf("%d replicas: want 1 to %d", n, MaxReplicas))
	}
	if err := c.Router.Validate(); err != nil {
		faults = append(faults, fmt.Errorf("router: %w", err))
	}
	if c.Threads < 0 || c.Threads > MaxReplicas {
		faults = append(faults, fmt.Errorf("%d threads: want 0 to %d", c.Threads, MaxReplicas))
	}
	if err := c.roles(); err != nil {
		faults = append(faults, err)
	}
	if c.Abort != nil {
		if err := c.Abort.validate(); err != nil {
			faults = append(faults, fmt.Errorf("early end: %w", err))
		}
	}
	for i, r := range c.Replicas {
		if err := r.validate(); err != nil {
			faults = append(faults, fmt.Errorf("replica %d: %w", i, err))
		}
	}
	return errors.Join(faults...)
}

func (r Replica) validate() error {
	var faults []error
	switch {
	case r.VLLM != nil && r.SGLang != nil:
		faults = append(faults, errors.New("two schedulers: want one"))
	case r.VLLM != nil:
		faults = append(faults, r.VLLM.Validate())
	case r.SGLang == nil:
		faults = append(faults, errors.New("want a scheduler"))
	}
	if r.Timer == nil {
		faults = append(faults, errors.New("want a step timer"))
	}
	if r.Between < 0 || r.Between > time.Hour || r.Before < 0 || r.Before > time.Hour {
		faults = append(faults, fmt.Errorf("%v between steps, %v before them: want 0 to 1 h", r.Between, r.Before))
	}
	if r.SGLang != nil && r.Role != Whole {
		faults = append(faults, fmt.Errorf("%s with SGLang: want vLLM", r.Role))
	}
	if r.Devices < 0 || r.Devices == 0 && (r.Power != nil || r.Price != nil) {
		faults = append(faults, fmt.Errorf("%d devices: want 1 or more where they draw power or cost something", r.Devices))
	}
	if p := r.Power; p != nil && !(0 <= p.Idle && p.Idle <= p.Busy && p.Busy <= 1e6) {
		faults = append(faults, fmt.Errorf("power of a device of %g W idle and %g W busy: want 0 W or more, and idle no more than busy", p.Idle, p.Busy))
	}
	if r.Price != nil && !(*r.Price >= 0 && *r.Price <= 1e9) {
		faults = append(faults, fmt.Errorf("price of %g for an hour of a device: want 0 or more", *r.Price))
	}
	return errors.Join(faults...)
}

// Step is one step of a replica, in sums.
type Step struct {
	// Replica is the index of the replica. Begin and End are the time of the
	// step, from the start of the run.
	Replica    int
	Begin, End time.Duration
	// Tokens is what it computes; of these PrefillTokens belong to Prefills
	// prompts, and Decodes requests decode a token each on Context tokens in
	// sum.
	Tokens, PrefillTokens, Prefills, Decodes int
	Context                                  int64
	// Waiting and Running are requests after the pass that planned it,
	// Preempted those that it put back.
	Waiting, Running, Preempted int
	// FreeBlocks of UsableBlocks are free after the pass, which took Evicted
	// blocks out of the prefix cache.
	FreeBlocks, UsableBlocks, Evicted int
	// Queried and Hit are the tokens that were looked up in the prefix cache and
	// found there, since the start of the run.
	Queried, Hit int64
}
