// Package memory measures what an engine holds of a device's memory while it
// runs, and says what for.
//
// An [Experiment] samples the devices from before the engine starts until after
// it has ended. Each task that it runs becomes an [Observation] with three
// moments that are what they say:
//
//   - the baseline, read before the engine was started;
//   - post-warm-up, read when the engine itself said that it is warm: a line of
//     its log, an event of a probe, the answer to its warm-up requests;
//   - the peak of each device, the largest reading while it ran.
//
// A moment that was not read is absent. [Observation.Breakdown] then splits the
// peak: first into what the engine states of itself, in its log or through its
// metrics, then into what the architecture implies, and names the remainder as
// such. The parts sum to the measured peak by construction, and a sum of stated
// parts that exceeds it is a fault that is shown and not hidden, but for
// activations of a larger step than the run's, which are what the others leave.
//
// Engines on a CPU have no device of their own: there "used" is the resident
// memory of the engine's processes, whose baseline is 0, and of a KV cache that
// was set aside only what was touched counts.
//
//	e, err := memory.Open(ctx, memory.Options{Start: start, Source: source})
//	o, err := e.Run(ctx, engine.StepTask{BatchSize: 8, InputLen: 512, OutputLen: 512}, 10, 30)
//	b := o.Breakdown(expected)
package memory
