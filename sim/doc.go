// Package sim simulates how a language model is served: what vLLM's V1
// scheduler decides, pass by pass and block by block, as the release that is
// asked for decides it.
//
// A [Scheduler] is one replica. Requests arrive with [Scheduler.Add]. Then two
// calls alternate, as in the engine: [Scheduler.Schedule] makes a pass and says
// what the next step computes, [Scheduler.Apply] takes in the results of a
// step. How long a step takes is not known here: whoever drives the scheduler
// lets that time pass, and adds the requests that arrive meanwhile.
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
// # Releases
//
// vLLM's rules change. [RulesOf] knows them by release, [Rules] lists each as a
// switch. What an engine would refuse at its start, [NewScheduler] refuses, and
// also the pool in which a request of full length fits only with the null
// block, which old releases accept and then never run.
//
// # Cost
//
// Requests and blocks are arrays indexed by ids of 32 bits; what a pass looks at
// of a request lies together in 32 bytes. A pass allocates nothing once its
// lists have grown. A request takes some 50 bytes for as long as the scheduler
// lives, since its blocks may be cached after its end, and a block 28.
//
// Not modelled: connectors that move KV between engines, speculative decoding,
// LoRA and grammars, which let requests wait for something else than blocks.
//
// Package [github.com/llmprof/llmprof/sim/scenario] says the same in text:
// small loads with the schedule they must get.
package sim
