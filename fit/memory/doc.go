// Package memory judges memory calculators by measured profiles: how far off
// is each, in which part, on which kind of run, and what would mend it.
//
//	report := memory.Judge(measured, []memory.Calculator{
//		memory.Ours(cat, cost.Settings{}),
//		memory.Sizer(llmsizer.AppLate),
//		expectations, // a user's CSV, see ParseExpectations
//	}, memory.Options{Catalog: cat})
//
// A [Measured] is one profiled run, a [Calculator] says what it expects of
// such a run, and [Judge] compares the two. Every difference is measured −
// calculated: negative means that the calculator overestimates. Both
// percentages are given, of the measured and of the calculated size.
//
// # What is compared with what
//
// An engine that allocates its KV pool up front fills the device whatever the
// run needs, so its total says nothing about the need. Of such a profile are
// compared: weights; the KV cache that was in use with the calculated cache of
// the batch; activations; the pool with the calculated capacity; and as total
// the sum of those parts. Of other engines the measured total is compared as
// it stands. Each [Comparison] says in words what was compared, and each
// [Verdict] what was not and why.
//
// All sizes are sums over the GPUs of the run. The figures of a calculator
// for one GPU are multiplied.
//
// # What is left out
//
// A profile with faults, with parts that exceed its total, or without the
// total that would be compared is listed in [Report.Unusable] with the reason
// and enters no mean. A calculator that does not know the model of a run is
// listed in [Summary.Missed]: models are matched by id and by nothing else.
//
// # What follows
//
// A [Summary] holds, for each calculator, means by model size, weight format,
// batch and number of GPUs, the bias of each part, the [Issue] list with the
// documented thresholds, and [Recommendation] values. A recommendation states
// a number and the profiles behind it; whatever rests on fewer than three
// profiles is marked as such.
package memory
