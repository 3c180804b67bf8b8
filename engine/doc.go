// Package engine owns the contract between whoever measures and the engines
// that are measured: what a [Driver] can do, how it is started on a [Place],
// what a [Session] answers, and the line protocol of the probes that run inside
// an engine's own process.
//
// A driver knows one engine and nothing of grids, files or fits. It is started
// with a [Setup], tells its [Facts], and then runs tasks until it is closed:
//
//	session, err := driver.Start(ctx, place, setup)
//	…
//	defer session.Close()
//	err = session.Run(ctx, tasks, func(r engine.Result) error { … })
//
// A task that fails ends with a [Result] that says why; a session that fails
// ends with an error, mostly a [*DiedError], after which the measurer starts
// another and goes on with the rest.
//
// Drivers live in subpackages, one an engine. Where their processes run is the
// place's business: the same driver works on this machine, in a container, in
// a pod and over ssh.
package engine
