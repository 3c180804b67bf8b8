// Package serving measures a live server at (C, M, B, block size): B requests at
// once, each of C new tokens behind M blocks of prompt that are in the KV cache
// already.
//
//	e, err := serving.Open(ctx, serving.Options{Target: target, Metrics: &server, Log: session})
//	r, err := e.Measure(ctx, serving.Cell{Type: profile.Mixed, NewTokens: 512, CachedBlocks: 32, Requests: 8, BlockSize: 16})
//	e.Close()
//
// # What a cell is
//
// Each of the B requests has a prefix of its own, M × block size tokens long. A
// priming request puts it into the cache; every run then sends the same prefix
// with C fresh tokens behind it. That the prefix was found there is not assumed:
// the server's own counter of prefix hits has to rise by B × M × block size
// tokens in every counted run, or the answers have to say so. A run that found
// less is primed and made again; a cell that never finds them fails with the
// figures of both.
//
//	prefill   B requests of C new tokens and one token out: their TTFT
//	decode    B requests that decode together at that context: from the moment at
//	          which the last one has its first token until the first one ends
//	mixed     both at once: while B requests decode, B others of C new tokens
//	          arrive. Each side is measured alone before. The slowdown of the
//	          prefills is their mean TTFT over that alone, that of the decodes the
//	          mean time of a token over that of the same requests just before
//
// # What is counted
//
// Latencies come from the records of package load, and from runs that are
// counted: warm-up runs are in no numerator and no denominator. Steps, with what
// each of them computed, come from the log of an engine that tells it
// ([engine.Serving]); hits, preemptions and the use of the KV cache from its
// metrics; memory and utilisation from the devices where a sampler reads them.
// What nobody tells is absent, and Result.Missing names it with the reason.
package serving
