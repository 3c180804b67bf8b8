// Package measure runs one experiment on an engine: it takes a list of tasks
// through a session of package engine and turns what comes back into points of
// a profile.
//
// A task that cannot be measured ends as a failure with its reason, and the run
// goes on; an engine that dies is started again and the task that killed it is
// marked. Samples that scatter are repeated, and flagged where they still do.
// Every finished task is handed on at once and as a whole, so that a run which
// is interrupted, killed or out of time keeps what it has, and [Remaining] says
// what a resumed run still has to do.
//
//	tasks := measure.Grid{BatchSizes: …, InputLens: …, OutputLen: 32}.Tasks(3, 5)
//	outcome, err := measure.Run(ctx, start, tasks, measure.Options{Write: writer.Write})
//
// Cheap tasks come first and the dearest last, so that an early end costs the
// fewest points.
package measure
