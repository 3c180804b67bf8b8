package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/llmprof/llmprof/fit"
	"github.com/llmprof/llmprof/load"
	"github.com/llmprof/llmprof/report"
	"github.com/llmprof/llmprof/sim/fleet"
	"github.com/llmprof/llmprof/sim/launch"
	"github.com/llmprof/llmprof/workload"
)

// simulateFlags are those of llmprof simulate.
type simulateFlags struct {
	scenarios    []string
	load         loadFlags
	served       simulatedFlags
	slo, goodput string
	strict       bool
	fleet        fleetFlags
	requestsCSV  string
	stepsCSV     string
	chromeTrace  string
}

// registerLoad adds the flags of a simulated load.
func (f *simulateFlags) registerLoad(a *app, cmd *cobra.Command) {
	f.load.register(a, cmd)
	f.served.register(a, cmd)
	f.fleet.register(a, cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.slo, "slo", "", "limits, as 'ttft:500 tpot:50' in ms for each request, or 'ttft:p99<500ms' for a quantile")
	flags.StringVar(&f.goodput, "goodput", "", "the same for each request, as vllm bench serve has it")
	flags.BoolVar(&f.strict, "strict", false, "exit with 1 if a limit is missed: one on a quantile, or by any request")
	flags.StringVar(&f.requestsCSV, "requests-csv", "", "write what became of every request to this `file`")
	flags.StringVar(&f.stepsCSV, "steps-csv", "", "write every step of the engine to this `file`")
	flags.StringVar(&f.chromeTrace, "chrome-trace", "", "write requests and steps on a time axis to this `file`, for chrome://tracing or Perfetto")
	onlyOnCommandLine(flags, "slo", "goodput", "strict", "requests-csv", "steps-csv", "chrome-trace")
}

// simulate serves a load on paper.
func (a *app) simulate(ctx context.Context, args []string, f *simulateFlags) error {
	model := ""
	if len(args) > 0 {
		model = args[0]
	}
	if err := f.fleet.check(); err != nil {
		return err
	}
	if engine, err := f.served.replica.engineName(); err == nil && engine != "vllm" && f.fleet.prefill > 0 {
		return usage("give --replicas instead", "--prefill-replicas: only vLLM's scheduler moves KV between replicas, and the engine is %s", engine)
	}
	if err := f.fleet.checkRanks(f.served.replica.dp.values[0]); err != nil {
		return err
	}
	if err := writable(f.requestsCSV, f.stepsCSV, f.chromeTrace); err != nil {
		return err
	}
	limits, err := parseLimits(f.slo, f.goodput, f.load.given)
	if err != nil {
		return err
	}
	if f.load.asked() || model != "" || len(f.served.gpus) > 0 {
		if err := f.served.check(model); err != nil {
			return err
		}
	}
	if model != "" {
		if err := f.served.place(ctx, a, model); err != nil {
			return err
		}
	}
	if !f.load.asked() {
		return usage("for example --request-rate 4 --input-len 512 --output-len 128, --trace FILE or --workload FILE", "simulate: which load is meant is not said")
	}
	schedule, err := f.load.schedule(ctx, a)
	if err != nil {
		return err
	}
	for _, w := range schedule.Warnings {
		a.warn(w.Error())
	}
	if f.strict && !limited(schedule, limits) {
		return usage("for example --slo 'ttft:500 tpot:50'", "--strict has no use without limits")
	}
	served, err := f.served.launch(ctx, a, model, usualLength(schedule))
	if err != nil {
		return err
	}
	if f.served.replica.policy == "priority" && onePriority(schedule) {
		served.warnings = append(served.warnings, "--scheduling-policy priority has nothing to order: all requests have the same priority")
	}
	return a.serve(ctx, f, schedule, &served, limits)
}

// onePriority reports whether no request goes before another.
func onePriority(s *workload.Schedule) bool {
	for i := range s.Requests {
		if s.Requests[i].Priority != s.Requests[0].Priority {
			return false
		}
	}
	return true
}

// usualLength is the mean length of a prompt with its answer, in tokens.
func usualLength(s *workload.Schedule) int {
	return (s.InputTokens() + s.OutputTokens()) / max(len(s.Requests), 1)
}

// parseLimits reads --slo and --goodput.
func parseLimits(slo, goodput string, given func(string) bool) (load.SLOs, error) {
	const hint = "for example --slo 'ttft:500 tpot:50'"
	var all load.SLOs
	for _, c := range []struct{ flag, text string }{{"slo", slo}, {"goodput", goodput}} {
		limits, err := load.ParseSLOs(c.text)
		if err == nil && len(limits) == 0 && given(c.flag) {
			err = errors.New("it is empty: want limits")
		}
		if err != nil {
			return nil, usage(strings.Replace(hint, "slo", c.flag, 1), "--%s: %w", c.flag, err)
		}
		all = append(all, limits...)
	}
	return all, nil
}

// serve runs the simulation and writes what came of it.
func (a *app) serve(ctx context.Context, f *simulateFlags, schedule *workload.Schedule, served *simulated, limits load.SLOs) error {
	l, err := fleet.NewLoadContext(ctx, schedule)
	if err != nil {
		return usage("", "%w", err)
	}
	steps := stepLog{csv: f.stepsCSV, trace: f.chromeTrace}
	config, err := f.fleet.config(served, schedule.Seed)
	if err != nil {
		return err
	}
	meter := a.newMeter()
	config.Step, config.Progress = steps.hook(), simulationProgress(meter)
	result, err := fleet.Run(ctx, l, config)
	meter.end()
	if result == nil {
		return simulationError(ctx, err)
	}
	served.withoutEffect(result)
	document := report.Simulation(result, limits, version())
	if err != nil {
		document.Partial = strings.TrimPrefix(err.Error(), "simulation: ")
	}
	served.describe(&document)
	if len(config.Replicas) > 1 {
		document.Routing = f.fleet.routed
	}
	document.Warnings = append(document.Warnings, served.warnings...)
	document.Warnings = append(document.Warnings, served.refused(result)...)
	if served.watched != nil {
		if text := served.watched.warning(); text != "" {
			document.Warnings = append(document.Warnings, text)
		}
	}
	for _, out := range []struct {
		name  string
		write func(name string) error
	}{
		{f.requestsCSV, func(name string) error { return writeRequestsCSV(name, result) }},
		{f.stepsCSV, func(string) error { return steps.writeCSV() }},
		{f.chromeTrace, func(string) error { return steps.writeTrace(result) }},
	} {
		if out.name == "" {
			continue
		}
		if err := out.write(out.name); err != nil {
			return err
		}
		document.Files = append(document.Files, out.name)
	}
	if a.people() {
		a.warn(document.Warnings...)
	}
	if err != nil {
		err = simulationError(ctx, err)
	}
	if err := errors.Join(a.write(document, report.SimulationTables(document)...), err); err != nil {
		return err
	}
	return f.verdict(&document)
}

// verdict ends a run that served nothing, and with --strict one that missed a
// limit.
func (f *simulateFlags) verdict(d *report.SimulationDocument) error {
	if d.Whole.Completed == 0 {
		return &verdictError{fmt.Sprintf("none of %d requests is completed", d.Workload.Requests)}
	}
	if missed := report.MissedLimits(d); f.strict && len(missed) > 0 {
		return &verdictError{"limits are missed: " + strings.Join(missed, "; ")}
	}
	return nil
}

// limited reports whether the run or one of its classes has limits.
func limited(s *workload.Schedule, limits load.SLOs) bool {
	return len(limits) > 0 || slices.ContainsFunc(s.Classes, func(c workload.Class) bool { return len(c.Targets) > 0 })
}

// simulationProgress shows how far a simulation is.
func simulationProgress(m *meter) func(fleet.Progress) error {
	began := time.Now()
	return func(p fleet.Progress) error {
		now := time.Now()
		if now.Sub(began) > m.interval {
			m.line(fmt.Sprintf("simulated %v: %d of %d requests sent, %d ended", p.At.Round(time.Second), p.Sent, p.Requests, p.Ended), false, now)
		}
		return nil
	}
}

// simulationError tells an interrupted run from one that could not go on. A
// deployment that stands still is an answer, and no mistake of who asks.
func simulationError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return err
	}
	if _, ok := errors.AsType[*fleet.StallError](err); ok {
		return &codedError{codeNo, err, hintOf(err)}
	}
	if _, ok := errors.AsType[*fit.NotMeasuredError](err); ok {
		return usage("steps of a load hold prompts and answers: the log of a server tells their times (llmprof import, llmprof train), and so does the datasheet of --gpu", "%w", err)
	}
	return usage(hintOf(err), "%w", err)
}

// describe says what was simulated.
func (s *simulated) describe(d *report.SimulationDocument) {
	if s.model != nil {
		d.Model, d.GPU = s.model.Name, s.device.Name
	}
	d.Engine, d.Release = s.engine, s.release
	d.Steps, d.KV, d.Choices = s.steps, s.kv, report.Settings(s.choices)
}

// withoutEffect narrows the settings without effect of a run's replicas to those
// that are so in truth.
func (s *simulated) withoutEffect(r *fleet.Result) {
	longest := 1
	for _, q := range r.Load.Schedule().Requests {
		longest = max(longest, q.InputLen+q.OutputLen)
	}
	for i := range r.Replicas {
		one := &r.Replicas[i]
		switch {
		case s.idle != nil:
			one.Unbound = s.idle.Narrow(one.Unbound, launch.Extent{Step: one.MostTokens, Request: longest, Running: int(one.Running.Max)})
		case s.idlePool != nil:
			one.Unbound = s.idlePool.Narrow(one.Unbound)
		}
	}
}

// refused warns of requests that the engine does not take, and names what the
// first of them is too long for.
func (s *simulated) refused(r *fleet.Result) []string {
	refused := func(q fleet.Record) bool { return q.Outcome == fleet.Unservable }
	first := slices.IndexFunc(r.Records, refused)
	if first < 0 {
		return nil
	}
	n := 0
	for _, q := range r.Records {
		if refused(q) {
			n++
		}
	}
	name, most := s.longest()
	return []string{fmt.Sprintf("%d of %d requests are refused, the first of them request %d with a prompt of %d tokens: it leaves no room for a token within %s, %d",
		n, len(r.Records), first, r.Load.Schedule().Requests[first].InputLen, name, most)}
}

// longest is the setting that bounds a request with its answer, and its value in
// tokens. SGLang bounds it by its pool as well.
func (s *simulated) longest() (setting string, tokens int64) {
	if s.replica.VLLM != nil {
		return "max_model_len", int64(s.replica.VLLM.MaxModelLen)
	}
	if n := int64(s.deploy.MaxModelLen); n <= s.kv.Tokens {
		return "context_length", n
	}
	return "max_total_num_tokens", s.kv.Tokens
}
