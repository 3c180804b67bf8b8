// Package mock is the reference server: it speaks the OpenAI API, needs no
// device and streams tokens on an exact schedule, so that what a client reports
// can be held against what was sent.
//
//	server, err := mock.New(mock.Options{Timer: mock.Timing{First: 40 * time.Millisecond, Gap: 10 * time.Millisecond}})
//	defer server.Close()
//	err = server.Start(ctx)             // 127.0.0.1 on a free port
//	url := server.URL()                 // or httptest.NewServer(server)
//
// # The schedule
//
// A [Timer] says when the first chunk of tokens is due after a request was
// admitted, and each next one after the one before; [Timing] is fixed but for
// the length of the prompt and the number of running requests. Due times follow
// from due times, so lateness never adds up. One thread waits for all of them,
// on Linux to some ten microseconds, and writes to the sockets itself.
//
// Every chunk carries two extra fields: due_ns, when it should have been sent,
// and emit_ns, when it was, taken just before the write. Both are nanoseconds
// of the system's monotonic clock on Linux, as clock_gettime gives them to other
// processes, and since the start of the server elsewhere: [Server.Now]. The
// error of a client is its own read time less emit_ns, whatever the server's
// lateness. GET /truth lists the same for the last requests.
//
// TLS connections, and handlers run by another server, are written to by a
// goroutine each; emit_ns is then taken before it is woken.
//
// # The API
//
// /v1/completions and /v1/chat/completions answer whole and as a stream, prompts
// are text or token ids. Text counts as [TokenRule] says; each token put out is
// " tok" and counts as one under either rule. max_tokens, max_completion_tokens,
// min_tokens, ignore_eos, stream_options with include_usage and
// continuous_usage_stats are followed; temperature and what else only changes
// the text is accepted. What is ignored, such as stop, is named in the header
// X-Llmprof-Mock-Ignored. More than one prompt or answer per request is refused.
// Beside them: /v1/models, /tokenize, /health, /ping, /version, /metrics, /truth.
//
// # Capacity
//
// Without limits each request runs at once. With [Options.MaxNumSeqs] the rest
// waits, first come, first served; with [Options.KVBlocks] a request also needs
// blocks for its prompt, and one block more for each BlockSize tokens. When they
// run out the request admitted last gives up its blocks, waits at the head of
// the queue and computes its tokens again, which counts as a preemption. Full
// blocks of prompts stay as a prefix cache until their room is needed, the
// longest unused first; as in vLLM the last token of a prompt is always
// computed. Tokens put out are not cached.
//
// /metrics has the names of vLLM 0.32. Not there is what the mock does not have:
// steps of an engine (iteration_tokens_total) without a simulation, and the use
// of a cache without limit. Counters are up to date before a client sees the end
// of its answer.
//
// # Simulation
//
// With [Options.Simulation] the server is an engine in real time: package sim
// decides each step as a release of vLLM does, a timer says how long it takes,
// and the tokens of a step go out at its end, which is their due time. Steps
// follow from steps, never from when something was written, so that the same
// entries into the queue give the same due times to the nanosecond; /truth tells
// entered_ns of every request. Equal beginnings of prompts, and of answers, share
// blocks as vLLM's chained hashes do. The field priority of a request counts,
// a prompt that is too long is refused in vLLM's words, and a client that goes
// takes its request out of the scheduler. /metrics and the log of steps
// ([Simulation.IterationLog]) are those of the simulated engine; the log's
// times are what the timer said.
//
// Faults strike what is sent, and the engine goes on: a stall holds all further
// tokens of the stream back and lets them go together; server-stall also moves
// the ends of steps.
//
// A simulation keeps some 50 bytes of every request that it ever had.
//
// # Faults
//
// [ParseFaults] reads faults for all requests ([Options.Faults]) or for one (the
// header X-Llmprof-Mock-Fault, or fault= in the query), separated by semicolons:
//
//	stall:token=3,for=2s          nothing is sent for 2 s before the third token
//	server-stall:at=5s,for=2s     the whole server stands still, and again each period=10s
//	cut:at=headers                the connection is closed before the answer,
//	cut:at=chunk,token=3          in the middle of an event,
//	cut:at=done                   or before data: [DONE]
//	429:retry-after=2s            refused with this status; also 500 and 503
//	error-event:token=3           an error object in the stream ends it
//	slow-headers:for=1s           the answer begins late, and its schedule with it
//	garbage:token=3               a line that is none of an event stream
//	half-event:token=3,for=5ms    an event comes in two parts
//	wrong-usage:by=1              usage says more than was sent
//	duplicate:token=3             an event comes twice
//	no-done                       the stream ends well, but without [DONE]
//
// Each takes every=N, to strike each N-th request, or share=0.1 with a seed. An
// answer that is no stream knows cut, the status codes, stall, slow-headers,
// wrong-usage, error-event (as status 500) and garbage.
package mock
