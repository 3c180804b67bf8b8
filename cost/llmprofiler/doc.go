// Package llmprofiler reproduces the figures that the tool
// harleyszhang/llm_profiler prints for a model on a GPU, mistakes included,
// so that a user who knows that tool can compare. It was written from its
// formulas, not from its code; for a prediction use package cost instead.
//
//	model, err := llmprofiler.LookupModel("llama2-70B")
//	gpu, err := llmprofiler.LookupGPU("a100-sxm-40gb")
//	result, err := llmprofiler.Analyze(llmprofiler.Input{
//		Model: model, GPU: gpu, TP: 8, PP: 1, Batch: 32, InputLen: 1024, OutputLen: 128,
//	})
//	err = llmprofiler.Report(os.Stdout, result) // the text the tool prints
//
// [Analyze] answers with a [Result]: parameters, FLOPs, bytes and seconds as
// plain numbers. Marshalled as JSON it has the tool's own key names and
// nesting. Where the tool stops with an assertion, the figures are computed
// all the same, [Result.Fits] is false and [Result.Reasons] says why.
// [Graph] gives the numbers of the tool's structure graph.
//
// # Versions
//
// Two states of the tool differ. [Seed] (commit 4185809), the default, made
// the widely copied example of its README; its time per output token holds
// the prompt's KV writing time of one layer. [June2025] (commit 8c117d6) adds
// that time for all layers. The labels of the printed tables differ as well.
//
// # Tables
//
// [Models] and [GPUs] are the tool's own tables: 12 models and 14 GPUs, wrong
// entries included (both H100 rows carry peaks with sparsity and the name of
// an A100). They serve this package only. A model or device of the catalog
// is brought in by [FromCatalog] and [GPUFromCatalog], with a warning that
// says what the method cannot express.
//
// # The method
//
// With h hidden size, L layers, V vocabulary, n heads, k key/value heads,
// d head size, I feed-forward width, b batch, t tensor parallelism, s prompt
// and g generated tokens, one layer costs the sum of four roofline terms
// max(FLOPs/F, bytes/B), an all-reduce term and the KV traffic; F is 0.9 of
// the fp16 peak and B 0.9 of the memory bandwidth. A step is layers + reading
// the embedding table + the output head. TTFT is a step of s tokens, total
// latency is TTFT + g times a decode step at the final length.
//
// # What is known to be wrong with it
//
//   - Linear weights cost 4 bytes a parameter on top of the 2 bytes of the
//     matrix itself: decode comes out about three times too slow.
//   - A mixture of experts is stored with its active experts only, and read as
//     2K+1 experts whatever the batch.
//   - Decode attention sees 1+g tokens, never the prompt; its FLOPs miss the
//     batch and its score matrix is quadratic.
//   - No causal mask, no fused attention; the prompt's KV writing time is added
//     to every decode step.
//   - "Activation" memory is the largest single tensor, weights included,
//     times the batch; KV heads are cut below one per GPU.
//   - The output head runs for every prompt position, costs no weight
//     traffic in decode and is missing from parameters and FLOPs.
//   - One all-reduce term a layer of 6bTh bytes at the bandwidth of both
//     directions together.
//   - Pipeline stages divide latency but not weights, and pass data for free.
//   - Gigabytes are 1e9 bytes, nothing is reserved; the efficiencies, the
//     activation and KV formats and the int8 peak have no effect.
//   - A prompt of one token is taken for a decode step.
//   - The printed breakdown does not sum to TTFT: embedding and head are
//     not in it.
package llmprofiler
