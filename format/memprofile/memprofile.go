// Package memprofile is the memory profile: what an engine took of the memory
// of its devices, measured while it served a benchmark, and split into parts.
//
// A [Document] is one profile, a JSON file. Its keys are a superset of the
// profile v2.0 of LLM Sizer, including those that its guide documents but its
// files lack, so that every documented query works:
//
//	jq '.memory.total_gb, .latency_stats.mean_latency_ms' profile.json
//	jq '.memory_breakdown | {weights, kv_cache, activations, overhead, confidence}' profile.json
//
// Whoever measures fills in bytes and seconds, each where it belongs, and
// leaves nil what was not measured: the points of MemoryMeasurements, the
// Parts of MemoryBreakdown, KVCache, LatencyStats. [Document.Fill] derives
// the rest from them: sizes in GB of 1e9 bytes, differences, aliases, and in
// [Document.Faults] what cannot be true, such as parts that exceed the total.
// [Write] fills, holds the result to the JSON Schema of [Schema], and writes:
//
//	d := &memprofile.Document{}
//	d.SetTime(now)
//	d.MemoryMeasurements.Peak = &memprofile.MemoryPoint{TotalBytes: &peak}
//	d.MemoryBreakdown.Parts = []memprofile.Part{{Name: memprofile.PartWeights, Bytes: &weights, Confidence: memprofile.High}}
//	err := memprofile.Write(file, d)
//
// [Read] takes ours and all generations of LLM Sizer's. There a GB is 1e9
// bytes or 2^30, by the kind of device and by the figure; all become bytes,
// and the warnings say how. An overhead that was left over from subtracting
// one from the other is computed again.
//
// Beside the profiles stand three tables. [ReadBatch] and [WriteBatch] are
// the results of a batch; [WriteValidation] and [WriteProfileRows] compare
// profiles with a calculator; [ReadMeasuredCSV] reads any of them.
package memprofile
