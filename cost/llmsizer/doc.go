// Package llmsizer reproduces the memory calculators of the tool
// AMD-melliott/llm-sizer, mistakes included, so that they can be judged by
// measurement and a user who knows that tool can compare. It was written from
// its formulas, not from its code; for a prediction use package cost instead.
//
//	result, err := llmsizer.Calculate(llmsizer.Input{
//		Version: llmsizer.AppLate,
//		Model:   llmsizer.Model{Params: 8.19e9, Layers: 36, Heads: 32, KVHeads: 8, Hidden: 4096, Intermediate: 12288},
//		GPU:     llmsizer.GPU{MemoryGB: 80, BandwidthGBps: 3350, FP16TFLOPS: 989},
//		Weights: catalog.FP16, KV: catalog.FP16, Batch: 1, Tokens: 1024,
//	})
//
// The package holds no tables: the figures of model and GPU come from the
// caller. Sizes are in GB of 1e9 bytes, as the tool has them.
//
// # Versions
//
// Four calculators differ. With w weights, k KV cache, a activations, N GPUs,
// b batch, u users, s tokens of a sequence, L layers and h hidden size:
//
//   - [ScriptV1], of one GPU: w = P·bytes/N; k = 2·L·h·s·b·bytes/N;
//     a = 16·b·s·h; overhead 8 % of their sum.
//   - [ScriptV2], of one GPU: the same parts; overhead 14 GB, 5 % and
//     0.2 %·log2(b) of their sum; across GPUs 15 % of w/N for each further one.
//   - [AppEarly], of all GPUs: w = P·bits/8; k = 2·L·h·bytes·b·s·u;
//     a = 4·b·s·h·L/N; overhead 8 %; 2 % of all for each further GPU.
//   - [AppLate], of all GPUs: k counts KV heads; a = 2·b·s·I/N with I the
//     feed-forward width or 4h; overhead 1.5 GB, 5 % and 0.5 GB for each
//     further GPU; 1 % of w for each further GPU. What it adds for pictures
//     is not reproduced.
//
// The app also tells how full the GPUs are and how fast they generate.
//
// [Split] is the rule by which the profiler of the same tool cuts a measured
// total into parts.
//
// # What is known to be wrong with it
//
//   - All but [AppLate] count a KV head for every query head: up to 8 times
//     too much. [AppLate] does the same where KV heads are not known.
//   - Activations of the scripts are not divided by the GPUs, those of the app
//     are although the sizes are sums over them.
//   - Constants (8 %, 14 GB, 1.5 GB) stand for what nobody measured.
//   - Scales of quantised weights, and parts that are not quantised, are missing.
//   - An engine fills the device with its KV pool, so a total measured there
//     says nothing about any of these totals.
//   - The speed has a factor log2(b+1)/5, which leaves a batch of one a fifth
//     of the roofline, and reads the bytes of 16-bit weights in every format.
//   - [Split] guesses parts by fixed shares where it knows no architecture, and
//     calls the engine's idle KV pool overhead.
package llmsizer
