// Package load puts a live, OpenAI-compatible endpoint under load and measures
// what a user of it would feel. It is built so that its own faults show: every
// figure comes from raw records, every run ends with a verdict on itself.
//
// # A run
//
// A [Target] says where to send and how the engine there wants to be asked, a
// [workload.Schedule] says when and how long; [Run] does it:
//
//	result, err := load.Run(ctx, []load.Target{{URL: "http://127.0.0.1:8000", Model: "m", Engine: load.VLLM}},
//		load.Options{Schedule: schedule})
//	whole, steady := result.Summaries(slo)
//	gate := load.Judge(result, whole, steady, load.DefaultLimits())
//
// Requests that the schedule gives a time are sent at that time, whatever the
// server does. A request that waits for another one, a turn of a conversation
// or a slot of a closed loop, is due when that one has ended and its think time
// is over. A limit on concurrency holds requests back; their time in the
// schedule stays, so the wait is seen in the figures that start from there. No
// other limit exists. A cancelled context ends the run with a partial result
// that says so.
//
// # Times
//
// All times of a run are differences of one monotonic clock, counted from its
// start. A chunk's time is taken right after the read that completed its line;
// the bytes are kept and decoded only after their request has ended. Chunks
// that one read brought share its number and are counted as coalesced.
//
//	send lag     sent - scheduled            the client's own fault
//	TTFT         first chunk with text - sent
//	TTFT_sched   first chunk with text - scheduled
//	ICL          gap between chunks, pooled over requests
//	ITL          that gap over the later chunk's tokens, once for each of them
//	TPOT         (last - first chunk) / (tokens - 1), a value a request
//	NTPOT        (last chunk - sent) / tokens
//	E2EL, _sched last chunk - sent, - scheduled
//
// Tokens are counted from the answer's usage. How they lie in the chunks is
// said by running usage, token ids or log-probabilities where the engine sends
// them; otherwise each chunk is one token, and where that contradicts usage,
// the total is spread evenly. [Record] names the origin of every count.
//
// # How it stays out of the way
//
// On Linux one thread waits for due times with timers of nanosecond grain,
// wakes a little early and spins the rest; a loop over epoll reads all plain
// connections, one system call an arrival. The request's bytes are ready before
// its time, and so is its connection. Elsewhere, and for https, each connection
// has a goroutine, with the same records. The parser is our own HTTP/1.1: no
// proxies, no compression, redirects are refused, one request in flight per
// connection. Where an event begins like the one before it, up to the text and
// behind it, only the rest is scanned. While requests fly the garbage collector
// runs half as often as usual; [Run] sets it back.
//
// # What is refused
//
// A failed request is a [Record] with a [Failure] and in no latency figure. An
// answer that is not a stream has no TTFT. Figures that were not measured are
// nil, and a p99 needs 100 samples.
package load
