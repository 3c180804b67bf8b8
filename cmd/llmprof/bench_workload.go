package main

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/format/trace"
	"github.com/llmprof/llmprof/workload"
)

// benchSchedule makes the load of a run.
func (a *app) benchSchedule(f *benchFlags) (*workload.Schedule, error) {
	if f.schedule != "" {
		file, err := a.openInput(f.schedule)
		if err != nil {
			return nil, err
		}
		s, err := workload.Read(f.schedule, file)
		return s, errors.Join(err, file.Close())
	}
	rate, err := parseRate(f.rate)
	if err != nil {
		return nil, err
	}
	lengths, recorded, err := a.benchLengths(f)
	if err != nil {
		return nil, err
	}
	if recorded == nil {
		return f.schedules(lengths, rate, f.seed)
	}
	limit := f.limit
	if f.given("num-prompts") {
		limit = f.prompts
	}
	s, err := workload.Replay(recorded.Requests, workload.Replaying{Seed: f.seed, Speed: f.speed, Limit: limit, Name: f.path})
	return s, scheduleError(err)
}

// schedules makes a schedule at a rate.
func (f *benchFlags) schedules(lengths workload.Lengths, rate float64, seed uint64) (*workload.Schedule, error) {
	s, err := workload.Build(f.spec(f.arrivals(rate, f.concurrency), lengths, seed))
	return s, scheduleError(err)
}

// scheduleError makes the faults of a load a mistake of its flags.
func scheduleError(err error) error {
	if err == nil {
		return nil
	}
	return usage("--help says what each flag takes", "the load cannot be made: %w", err)
}

// parseRate reads a rate; +Inf for "inf".
func parseRate(text string) (float64, error) {
	rate, err := strconv.ParseFloat(text, 64)
	if err != nil || !(rate > 0) {
		return 0, usage("for example --request-rate 4, or inf for all at once", "--request-rate %q: want requests a second, more than 0", text)
	}
	return rate, nil
}

// The names of data that no other tool has.
const (
	datasetRandom  = "random"
	datasetTrace   = "trace"
	datasetLengths = "lengths"
)

// dataset is what --dataset-name means.
type dataset struct {
	name string
	// timed says that the file's times count, and not its lengths alone.
	timed bool
	// kind is what the file must be; empty for any kind.
	kind trace.Kind
}

// datasets are those that can be named. ShareGPT, BurstGPT and custom are sent
// at the asked rate, as vllm bench serve does.
func datasets() []dataset {
	return []dataset{
		{name: datasetRandom},
		{name: datasetTrace, timed: true},
		{name: datasetLengths},
		{name: "sharegpt", kind: trace.ShareGPT},
		{name: "burstgpt", kind: trace.BurstGPT},
		{name: "azure", timed: true, kind: trace.Azure},
		{name: "mooncake", timed: true, kind: trace.Mooncake},
		{name: "custom"},
	}
}

// datasetNames lists their names.
func datasetNames() []string {
	var names []string
	for _, d := range datasets() {
		names = append(names, d.name)
	}
	return names
}

// data is the dataset that is meant. A rate that is given takes the place of a
// trace's times.
func (f *workloadFlags) data() (dataset, error) {
	name := f.dataset
	if f.path != "" && !f.given("dataset-name") {
		name = datasetTrace
	}
	known := datasets()
	i := slices.IndexFunc(known, func(d dataset) bool { return d.name == name })
	if i < 0 {
		return dataset{}, unknownDataset(name)
	}
	d := known[i]
	if d.name != datasetRandom && f.path == "" && f.schedule == "" {
		return d, usage("for example --dataset-path azure.csv", "--dataset-name %s wants --dataset-path FILE", name)
	}
	d.timed = d.timed && !f.given("request-rate") && !f.ramped()
	return d, nil
}

// unknownDataset names what there is.
func unknownDataset(name string) error {
	switch strings.ReplaceAll(strings.ToLower(name), "-", "_") {
	case "hf", "sonnet", "random_mm", "random_rerank", "custom_mm", "custom_image", "custom_audio", "spec_bench", "speed_bench", "blazedit":
		return usage("--dataset-name random makes prompts of any length; --dataset-path takes the lengths of a file that you have",
			"--dataset-name %s sends texts or images of a data set, which llmprof does not fetch: its prompts are random tokens", name)
	case "prefix_repetition", "generated_shared_prefix":
		return usage("--random-prefix-len, --num-prefixes and --prefix-share make prompts with common beginnings",
			"--dataset-name %s is made with flags of its own here", name)
	}
	var known []string
	for _, d := range datasets() {
		known = append(known, d.name)
	}
	return usage("did you mean "+strings.Join(catalog.Nearest(name, known, 2), ", ")+"?", "unknown --dataset-name %q: want one of %s", name, strings.Join(known, ", "))
}

// benchLengths are how long prompts and answers are, or the whole trace where
// its times count too.
func (a *app) benchLengths(f *benchFlags) (workload.Lengths, *trace.Trace, error) {
	data, err := f.data()
	if err != nil {
		return nil, nil, err
	}
	if data.name == datasetRandom {
		lengths, err := f.randomLengths()
		return lengths, nil, err
	}
	t, err := a.readTrace(f.path)
	if err != nil {
		return nil, nil, err
	}
	switch {
	case data.kind != "" && t.Kind != data.kind:
		return nil, nil, usage("leave --dataset-name out, or give lengths: both read every kind", "--dataset-name %s: %s is of the kind %s", data.name, f.path, t.Kind)
	case data.timed && !t.Timed:
		return nil, nil, usage("--request-rate says how often requests come, inf that all come at once", "%s holds lengths and no times", f.path)
	case data.timed:
		return nil, t, nil
	}
	pairs := t.Pairs()
	if f.limit > 0 && f.limit < len(pairs) {
		pairs = pairs[:f.limit]
	}
	return workload.Empirical{Rows: pairs}, nil, nil
}

func (f *benchFlags) randomLengths() (workload.Lengths, error) {
	of := func(n int) (workload.Length, error) {
		if f.ratio == 0 {
			return workload.Fixed(n), nil
		}
		return workload.AroundRatio(n, f.ratio)
	}
	input, err := of(f.input.values[0])
	if err != nil {
		return nil, usage("", "--random-range-ratio: %w", err)
	}
	output, err := of(f.output.values[0])
	if err != nil {
		return nil, usage("", "--random-range-ratio: %w", err)
	}
	return workload.Independent{Input: input, Output: output}, nil
}
