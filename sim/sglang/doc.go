// Package sglang is SGLang's scheduler and its radix cache, decision by
// decision: which requests are in which batch, with how many tokens, who is put
// back, what stays cached. It knows no time; a caller gives every batch one.
//
// A [Scheduler] is one replica. [New] makes it from a [Config], whose [Rules]
// are those of a release ([RulesOf]); [Scheduler.Add] puts requests into its
// queue, and [Scheduler.Step] is one iteration of its loop:
//
//	rules, err := sglang.RulesOf("0.5.23")
//	s, err := sglang.New(sglang.Config{
//		Rules: rules, Pool: 60_000, Page: 1, Chunk: 8192, MaxPrefill: 16384,
//		Seats: 256, Conservativeness: 1, Overlap: true,
//	})
//	id, err := s.Add(sglang.Request{Prompt: 512, MaxNew: 128})
//	for s.Busy() {
//		batch, err := s.Step()
//		...
//	}
//
// [DefaultsOf] fills in what the engine's flags default to on a device.
//
// # An iteration
//
// One iteration makes one batch. It first tries a prefill batch: the next piece
// of the request that is prefilled in pieces, then the waiting requests in the
// order of the policy until one is refused. Only if there is none do the running
// requests decode, so a prefill stalls them; with [Config.Mixed] they decode
// behind the prefill in the same batch. With [Config.Overlap] the result of a
// batch is read one iteration late.
//
// A request is admitted if its prompt and outputs fit in what is free or can be
// evicted, less a share of the outputs that the running requests may still make
// ([Batch.Ratio]). The share falls with every decode. When memory runs out all
// the same, running requests are retracted: they keep their outputs, go to the
// end of the queue and are prefilled again, and the share is set anew.
//
// Tokens are known by whose they are, not by value: a request begins with the
// tokens of shared nodes, each on top of the one before ([Request.Prefix]), and
// its other tokens are its own.
//
// # Counted decodes
//
// With [Config.Aggregate] the running requests are counted instead of walked: how
// many there are, what they hold, when they need a page, and when they end. A
// decode batch then has [Batch.Steady] rows and no list of them, and costs as much
// whatever their number. Evictions, prefill batches and ends go on beside it;
// only a batch that might lack room for a decode, and one that mixes both, walks
// all requests, as without it. What is decided is the same: tests drive both side
// by side.
//
// [Scheduler.Cancel] ends a request whose client has gone, as the engine does:
// one that waits leaves the queue, one that runs ends with its next token.
//
// # Scenario texts
//
// [Run] decides a text of requests and returns the schedule. # starts a
// comment; fields are name=value:
//
//	config sglang=0.5.23 pool=64 page=1 chunk=16 max_prefill=64 seats=8 policy=fcfs
//	req A arrival=1 prompt=10 max_new=4
//	req B arrival=2 prompt=25 max_new=3 group=g shared=8
//	expect
//	step 1 kind=prefill sched=A:10 cached=A:0 ...
//	end steps=6
//
// Of config: sglang is the release, pool and page are tokens, chunk is
// chunked_prefill_size (-1 is off), max_prefill is max_prefill_tokens, seats is
// max_running_requests, policy is schedule_policy; conservativeness (1), cache
// (1), overlap (1), mixed (0), priority (0) with threshold (10), clip (4096),
// prefill_decode_interval (0), retraction (length or priority), context (0, no
// checks at arrival) and seed (0) have the defaults in brackets. Of req:
// arrival is the first iteration that sees it; group and shared name the tokens
// it shares, where requests of the very same prompt are answered the same up to an
// EOS; eos_at the output that is EOS, unless ignore_eos=1; and priority and routing
// are the rest of [Request]. Names break the ties of the policy hrrn.
//
// A step line has the batch (sched, cached), who was put back (retract), the
// lists after planning (run, wait, chunked, full, ratio, free, evictable), and
// what was read (out, finish, end_free). An iteration with nothing to run, to
// read and to wait for has no line, even if it gave a request up.
package sglang
