package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/llmprof/llmprof/mock"
)

// mockReplica are the flags of llmprof mock that say which engine it imitates:
// those of llmprof simulate, and its own.
type mockReplica struct {
	simulatedFlags
	simulate bool
	speed    float64
	log      string

	own   []string // the flags that go with --simulate only
	model string
}

// register adds the flags to the command. Those for the longest sequence, the
// seats and the block size also serve the fixed schedule.
func (f *mockReplica) register(a *app, cmd *cobra.Command) {
	flags := cmd.Flags()
	before := map[string]bool{"max-model-len": true, "max-num-seqs": true, "block-size": true}
	flags.VisitAll(func(flag *pflag.Flag) { before[flag.Name] = true })
	f.simulatedFlags.register(a, cmd)
	f.replica.maxSeqs.least = 0 // no limit, for a fixed schedule
	flags.BoolVar(&f.simulate, "simulate", false, "answer when vLLM's scheduler and a step timer say, instead of on a fixed schedule")
	flags.Float64Var(&f.speed, "speed", 1, "how many times faster than the engine's the time passes")
	flags.StringVar(&f.log, "iteration-log", "", "append a line for each step to this `file`, as vLLM logs them")
	for _, name := range onlyOf("sglang") {
		_ = flags.MarkHidden(name) // it is there; check refuses it
	}
	flags.VisitAll(func(flag *pflag.Flag) {
		if !before[flag.Name] && flag.Name != "simulate" {
			f.own = append(f.own, flag.Name)
		}
	})
	onlyOnCommandLine(flags, "max-model-len", "max-num-seqs", "block-size", "speed", "iteration-log")
}

// check refuses flags that do not go together.
func (f *mockReplica) check(args []string) error {
	if len(args) > 0 {
		f.model = args[0]
	}
	if !f.simulate {
		if f.model != "" {
			return usage("", "mock %s: a model goes with --simulate", f.model)
		}
		return refuse(f.own, f.given, "goes with --simulate")
	}
	if err := refuse([]string{"ttft", "ttft-per-token", "gap", "gap-per-request", "kv-blocks", "tokens-per-chunk"}, f.given, "has no effect with --simulate"); err != nil {
		return err
	}
	engine, err := f.replica.engineName()
	switch {
	case err != nil:
		return err
	case engine != "vllm":
		return usage("", "--simulate imitates vLLM, not %s", engine)
	case f.replica.dp.values[0] != 1:
		return usage("", "--data-parallel-size is %d: the mock imitates one replica", f.replica.dp.values[0])
	case !(f.speed > 0):
		return usage("", "--speed is %g: want more than 0", f.speed)
	}
	return nil
}

// simulatedMock turns the options into those of a server that imitates the engine.
// The returned file, which may be nil, is closed after the server.
func (a *app) simulatedMock(ctx context.Context, o mock.Options, f *mockReplica) (mock.Options, *os.File, error) {
	if o.NoPrefixCache {
		if err := f.replica.flags.Set("no-enable-prefix-caching", "true"); err != nil {
			return o, nil, usage("", "--no-prefix-cache: %w", err)
		}
	}
	r, err := f.launch(ctx, a, f.model, 0)
	if err != nil {
		return o, nil, err
	}
	a.warn(r.warnings...)
	s := &mock.Simulation{
		Scheduler: *r.replica.VLLM, Timer: r.replica.Timer, Between: r.replica.Between, Before: r.replica.Before,
		Speed: f.speed, Release: r.release,
	}
	if f.model != "" && !f.given("served-model-name") {
		o.Model = f.model
	}
	a.saySimulated(&r, s)
	// The limits of a fixed schedule give way to those of the scheduler.
	o.Simulation, o.Timer, o.MaxNumSeqs, o.KVBlocks = s, nil, mock.Unlimited, mock.Unlimited
	if err := o.Validate(); err != nil {
		return o, nil, usage(hintOf(err), "--simulate: %w", err)
	}
	if f.log == "" {
		return o, nil, nil
	}
	file, err := os.OpenFile(f.log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return o, nil, fileError("write", f.log, err)
	}
	s.IterationLog = file
	return o, file, nil
}

// saySimulated tells which engine is imitated.
func (a *app) saySimulated(r *simulated, s *mock.Simulation) {
	a.log().Info(fmt.Sprintf("KV cache: %d blocks of %d = %d tokens (%s: %s)", r.kv.Blocks, r.kv.BlockSize, r.kv.Tokens, r.kv.Basis, r.kv.Origin))
	c := &s.Scheduler
	async := "no async scheduling"
	if c.Async {
		async = "async scheduling"
	}
	text := fmt.Sprintf("simulated: vLLM %s, %d tokens a step, %d requests at once, up to %d tokens each, %s, %s; steps timed by the %s (%s)",
		s.Release, c.MaxBatchedTokens, c.MaxSeqs, c.MaxModelLen, c.Policy, async, r.steps.Source, r.steps.Basis)
	if s.Between > 0 || s.Before > 0 {
		text += fmt.Sprintf("; the host takes %v between steps, with their mean delay, and %v before them", s.Between.Round(time.Microsecond), s.Before.Round(time.Microsecond))
	}
	a.log().Info(text)
}
