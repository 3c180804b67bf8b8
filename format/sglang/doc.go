// Package sglang reads what SGLang prints and writes: the output of
// sglang.bench_one_batch, the results of sglang.bench_serving, and the lines of
// a server's log.
//
// SGLang writes "GB" and means GiB (2^30 bytes). bench_one_batch's warm-up
// prints the same lines as the measurement: they count only after the line that
// begins with "Benchmark". Its result file has the rows of the forward-time
// predictor and is read by package stepbench.
//
//	var bench sglang.Bench
//	for line := range lines {
//		row, ok := bench.Line(line)
//		…
//	}
package sglang
