// Package sim simulates how a language model is served: what vLLM's V1
// scheduler decides, pass by pass and block by block, as the release that is
// asked for decides it.
//
// A [Scheduler] is one replica. Requests arrive with [Scheduler.Add]. Then two
// calls alternate, as in the engine: [Scheduler.Schedule] makes a pass and says
// what the next step computes, [Scheduler.Apply] takes in the results of a
// step. How long a step takes it does not know: whoever drives it lets that time
// pass, and adds the requests that arrive meanwhile.
//
// An [Engine] does so: a scheduler and a [StepTimer] in their own time, to which
// requests are delivered as they come and which says when its next event is. A
// simulated load (sim/fleet) jumps from event to event, the mock server waits for
// each. [Turns] is the order of passes and steps in time alone, for engines with
// another scheduler.
//
//	rules, err := sim.RulesOf("0.32.0")
//	s, err := sim.NewScheduler(sim.Config{
//		Rules: rules, Blocks: 27_000, BlockSize: 16,
//		MaxBatchedTokens: 8192, MaxSeqs: 256, MaxModelLen: 8192,
//	})
//	id, err := s.Add(sim.Request{Prompt: 512, Output: 128})
//	for !s.Idle() {
//		plan := s.Schedule()   // plan.Scheduled: tokens per request
//		outcome := s.Apply()   // outcome.Tokens, outcome.Finished
//	}
//
// # One pass
//
// There is no phase of prefill or decode: a request wants its tokens of prompt
// and output less those computed, which is 1 for a decode. A pass first walks
// the running requests in the order of their admission, each takes what it
// wants of the budget (MaxBatchedTokens). Then, while budget and seats (MaxSeqs)
// are left, waiting requests are admitted, the head of the queue first; one
// that does not fit holds up all behind it. A request that gets no block takes
// them from a victim: the last running one, or under the priority policy the
// least important. The victim keeps its outputs and computes everything else
// again later. A step with a victim admits nobody.
//
// # Blocks
//
// The cache is a pool of Blocks blocks, one of which, the null block, is never
// used. Freed blocks go to the end of a free list and new ones come from its
// front; until then, a full block is found again by requests that begin with
// the same tokens. Tokens are not compared: a [Span] says whose tokens a
// request begins with, and a [Block] is known by its owner and its number, such
// as the third block of a prefix. At least the last token of a request is
// computed, and a block counts as cached when it is given out, before the step
// runs.
//
// # Async
//
// With Async a pass is made while the step before it runs, so Apply takes in
// the results of the step before the one that was just planned. The scheduler
// foresees an end by the limit of tokens; a request that a stop token ends
// (Output below MaxTokens) has one slot too many, whose result is dropped. Seats
// and blocks come back one pass later.
//
// # KV of other engines
//
// A request with Remote finds KV in another engine: it gets blocks and no seat,
// waits until [Scheduler.Loaded], and is then admitted before those that came
// later. Its blocks are cached only then, at least its last token is computed
// here, and prefills that are under way keep the blocks that they still need. A
// request with Hold keeps its blocks after its end, for another engine that
// fetches them, until [Scheduler.Release]. These rules follow vLLM's sources and
// were not recorded from a running engine. A load that fails is not modelled.
//
// # Releases
//
// vLLM's rules change. [RulesOf] knows them by release, [Rules] lists each as a
// switch. What an engine would refuse at its start, [NewScheduler] refuses, and
// also the pool in which a request of full length fits only with the null
// block, which old releases accept and then never run.
//
// # Counted decodes
//
// With [Config.Aggregate] the running requests that decode a token in every step
// are kept as one population: how many they are, the sum of their contexts, when
// they need a new block, and when they end. A pass looks only at those to which
// something happens, and its cost does not grow with the batch. This holds while
// nobody can be preempted, which is seen from the free blocks; a pass in which
// somebody could be walks all requests, as without it. What is decided is the
// same: tests drive both side by side. [Plan.Steady] and [Outcome.Steady] hold the
// counts of those that are not listed.
//
// # Cost
//
// Requests and blocks are arrays indexed by ids of 32 bits; what a pass looks at
// of a request lies together in 32 bytes. A pass allocates nothing once its
// lists have grown. A request takes some 64 bytes for as long as the scheduler
// lives, since its blocks may be cached after its end. A block that others may
// find takes some 34. All others are counted and not kept: a request's own blocks
// are a number, and in the free list a run of them is one entry.
//
// Not modelled: speculative decoding, LoRA and grammars, which let requests wait
// for something else than blocks.
//
// Package [github.com/llmprof/llmprof/sim/scenario] says the same in text:
// small loads with the schedule they must get.
package sim
