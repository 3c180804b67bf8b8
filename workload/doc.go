// Package workload says what load an engine gets, and knows nothing of how it
// is served: requests, when they arrive, how long they are, and what their
// prompts have in common.
//
// A load is made beforehand. A [Spec] names the arrivals, the lengths, shared
// prefixes and sessions, and one seed; [Build] makes a [Schedule] from it, the
// same one every time:
//
//	s, err := workload.Build(workload.Spec{
//		Seed:     7,
//		Arrivals: workload.Poisson{Rate: 3},
//		Lengths: workload.Independent{
//			Input:  workload.LogNormal{Median: 512, Sigma: 0.8, Low: 16, High: 4096},
//			Output: workload.Fixed(128),
//		},
//		Count: 1000,
//	})
//
// Each concern draws from a random stream of its own, so that adding prefixes
// leaves the arrivals alone, and the lengths too. [Write] saves a schedule as
// JSON Lines and [Read] reads it back; the load generator sends it and the
// simulator replays the same one.
//
// # Arrivals
//
// [Constant], [Poisson], [Gamma], [Weibull], [Ramp], [Rates], [Burst] and
// [Trace] know all times beforehand. Times are never sums of rounded gaps: the k-th request of a
// constant load is due at k/rate. [Closed] keeps a number of requests open:
// when one ends, the next becomes due, so its time is a [Dependency]. With
// [Sessions] every arrival is the first turn of a conversation, and each later
// turn waits for the answer to the one before.
//
// # Prompts
//
// Prompts are made of tokens drawn from seeds ([Tokens]). A prompt begins with
// the spans of its Prefix, which other prompts may share, and goes on with
// tokens of its own, so that no cache helps where none is meant to. A schedule
// made from another seed shares no tokens with this one.
//
// # Classes
//
// A [Class] is a part of the traffic with a priority and with targets of its own
// ([SLO]). Each request, or each session, is of one. A client may give a request
// up after a time: [Request].Timeout.
//
// # Texts
//
// [ReadSpec] reads the description of a load in YAML, [ParseLength] a distribution
// of lengths such as "normal:512:256", and [ParseSLOs] targets such as
// "ttft:500 itl:p99<40ms".
//
// # Recorded traffic
//
// Package format/trace reads recorded traffic into requests; [Replay] makes
// them a schedule, slower or faster or only the first of them.
package workload
