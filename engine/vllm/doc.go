// Package vllm drives vLLM in three ways, each an [engine.Driver]: "vllm",
// "vllm-bench" and "vllm-probe" on llmprof's command line.
//
// [Server] is the one to prefer: it starts "vllm serve", or attaches to a
// server that runs, sends batches of random token ids and reads the exact
// composition and duration of every engine step from the server's log
// (--enable-logging-iteration-details, vLLM 0.14 and later):
//
//	driver := &vllm.Server{}
//	session, err := driver.Start(ctx, place, engine.Setup{Model: "/models/m", Device: "cpu", MaxBatch: 8, MaxInput: 512, MaxOutput: 32})
//	…
//	defer session.Close()
//	err = session.Run(ctx, tasks, emit)
//
// [BenchLatency] takes differences of "vllm bench latency" where only that
// works: minutes a task, and its prefill holds the host's work. [Probe] runs
// vLLM inside a process of its own through its public Python interface and
// times its single steps; it needs no server and can time CPU time.
//
// # One step for the whole batch
//
// An engine takes the first prompt that arrives into a step of its own while
// the others are still on their way. A server that Server started is therefore
// paused (POST /pause?mode=keep of its development interface, on loopback
// only), given the batch, and resumed: all prompts are in one step then. A
// server that it attached to is never paused, since others may use it; there a
// single long prompt that wants one token goes ahead, and the batch arrives
// during its step. The log tells whether it worked; a run where it did not is
// repeated with a longer wait. Where it cannot work, as the prompts exceed the
// token budget of a step, every step is still a point: Server knows all
// requests, replays first come, first served, and where the replay agrees with
// the log a step's exact pass is known. Where it does not agree, as with
// requests of others, a point holds the totals only.
//
// # What a decode point stands for
//
// A run's output−1 decode steps of the whole batch give one sample, their
// median, at the mean context input + output/2, as in format/stepbench. The
// points of single steps carry the tokens that were in the cache before the
// step.
//
// # What is recorded of the deployment
//
// Of a server that was started: its command line, and over it what its log and
// its metrics say. Of one that was attached to: what it says of itself, and
// nothing else; to ask for anything that it has decided (dtype, parallel
// sizes, blocks, weights, …) is an error. Of a probe: vLLM's own configuration.
// What none of the three would apply is refused before anything starts.
//
// # Clocks
//
// Server's times are the engine core's own wall clock around the execution of
// a step, without scheduling, in steps of 10 µs. On a GPU asynchronous
// scheduling is switched off, since with it the log tells how long the core
// waited rather than how long the step took.
//
// # Tested and untested
//
// Everything is tested against vLLM 0.32.0 on a CPU. Written after the
// documented behaviour and not tested: GPUs, CUDA graphs, tensor, pipeline and
// expert parallelism, quantised models, containers, pods and ssh, and releases
// other than 0.32.
package vllm
