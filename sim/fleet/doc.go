// Package fleet simulates how a load is served: requests arrive, replicas of an
// engine decide as their schedulers do, steps take the time that a step timer
// tells, and every token has a time in the end.
//
// # Many replicas
//
// Replicas need not be alike. A [Routing] finds the replica of each request when
// it comes: in turn, by what the engines count (requests, prompt tokens that
// wait, KV blocks), by the prompt's first tokens, by what the prefix caches hold,
// by session, or by a weighted mix of these. What a router knows of an engine may
// be late: every change of an engine's counts and of its cache is written down
// once and read when it is old enough; no state is copied. What the router has
// sent itself it knows at once.
//
// Of the events of one time requests come first, then KV, then steps end in the
// order of the replicas, then clients give up. Replicas of an open load whose
// router looks at no replica have nothing to do with each other: they are
// simulated one by one, on several threads if [Config].Threads allows it, and put
// together in the order of the replicas. All sums are exact or made in that order,
// so that the result has the same bytes whatever the number of threads.
//
// # Prefill and decode apart
//
// With the roles [Prefill] and [Decode] a request first goes to a replica for
// prompts, as one with a single output token. That token is dropped, as the
// proxies of vLLM's NIXL connector do: a client gets all its tokens from the
// replica that decodes, so TTFT ends with the first token there. The answer of
// the first replica sends the request on. When a pass of the second one has
// blocks for the prompt beyond its own prefix cache, the KV moves from the begin
// of the step of that pass, for the latency of the link and the bytes over its
// bandwidth; the request holds blocks and no seat meanwhile. The end of the
// transfer frees the blocks on the first replica, and from the next pass on the
// request waits for a seat and computes its last prompt token again. Transfers do
// not share bandwidth, each replica adds its Before, and a transfer never fails.
//
// # Searching
//
// A [Runner] serves load after load in the same memory, [Load.Stretch] is the
// same load at another rate, and [Abort] ends a run whose verdict is fixed; such a
// run has counts and no figures. ReplicaResult.Unbound names the settings of vLLM
// that made no difference. [Result.Usage] is energy and cost, where power and
// prices are given.
//
// # vLLM
//
// A [Replica] with VLLM plans a pass when the step before ends, or with async
// scheduling when the step before begins, and takes its results in at its end.
//
// # SGLang
//
// A [Replica] with SGLang goes through the iterations of SGLang's loop. Without
// overlap an iteration takes in who came, plans a batch, lets it run and reads
// its result at its end. With overlap batch i is planned when batch i-1 begins,
// with those who came until then, and begins when batch i-1 ends, which is also
// when the result of batch i-1 is read: a request that comes while a batch runs
// waits for it and for the next one. An iteration without a batch takes no time.
//
// A batch of prompts is timed as chunks on top of what was cached or computed in
// earlier pieces; so is a retracted request, with its outputs. Rows that decode
// are timed as one token each on top of what they have in the cache. Requests
// end by their length. A client that gives up is known to the engine with its
// next iteration: a request that waits leaves, one that runs computes its next
// token, or the rest of its prompt, and that token is nobody's. A prompt that
// the context or the pool cannot hold is [Unservable], a request that outgrows
// the pool alone is [Aborted]. Where the engine would stop, and where requests
// wait that can never be admitted and no client gives up any longer, the run
// ends with an error. Preemptions are retractions and preemptions by priority;
// blocks are pages, and those that only the cache has count as free.
//
// Not modelled are speculative decoding, prefill and decode on different
// replicas, data parallel attention, the hierarchical cache, sessions kept open
// by SGLang's own API, and time of the host beyond [Replica].Between, such as
// that of sorting a long queue. Clients that leave are treated as 0.5 does in
// all releases.
package fleet
