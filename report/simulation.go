package report

import (
	"fmt"

	"github.com/llmprof/llmprof/deploy"
	"github.com/llmprof/llmprof/load"
	"github.com/llmprof/llmprof/sim/fleet"
)

// SimulationDocument is the JSON of a simulated run. Its whole, steady and
// workload are those of [BenchDocument], so that a run and its simulation can be
// compared field by field.
type SimulationDocument struct {
	Head
	Model    string        `json:"model,omitempty"`
	GPU      string        `json:"gpu,omitempty"`
	Engine   string        `json:"engine"`
	Release  string        `json:"engine_version"`
	Steps    StepSource    `json:"step_times"`
	KV       SimulatedPool `json:"kv_cache"`
	Choices  []Setting     `json:"settings,omitempty"`
	Workload BenchWorkload `json:"workload"`
	Routing  string        `json:"router,omitempty"`
	// Whole is the whole run, Steady the part in which the load was steady.
	Whole  load.Summary `json:"whole"`
	Steady load.Summary `json:"steady"`
	// Queue is the time of a request in the queues of engines.
	Queue load.Figure `json:"queue_ms"`
	// TTFT splits the time to the first token.
	TTFT       TTFTSplit          `json:"ttft_split"`
	Outcomes   map[string]int     `json:"outcomes"`
	Saturation SimulatedDrift     `json:"saturation"`
	Little     LittlesLaw         `json:"littles_law"`
	Replicas   []SimulatedReplica `json:"replicas"`
	// Energy and Cost are null where no power and no price was given.
	Energy  *SimulatedEnergy `json:"energy"`
	Cost    *SimulatedCost   `json:"cost"`
	Classes []SimulatedClass `json:"classes,omitempty"`
	// Partial says why the run ended early.
	Partial string `json:"partial,omitempty"`
	// Elapsed is the simulated time in seconds.
	Elapsed  float64  `json:"elapsed_s"`
	Files    []string `json:"files,omitempty"`
	Warnings []string `json:"warnings,omitempty"`
}

// StepSource says where the times of steps come from.
type StepSource struct {
	// Basis is theoretical, fitted or measured; Source names the datasheet, the
	// predictor or the profile.
	Basis  string `json:"basis"`
	Source string `json:"source"`
	// Between and Before are the host's times beside the steps, in milliseconds.
	// Delay is by how much a step is delayed in the mean, which passes between
	// steps too.
	Between float64 `json:"between_steps_ms"`
	Before  float64 `json:"before_requests_ms"`
	Delay   float64 `json:"mean_delay_ms,omitempty"`
}

// SimulatedPool is the KV cache of a replica.
type SimulatedPool struct {
	// Blocks is the count as the engine gives it.
	Blocks    int   `json:"blocks"`
	BlockSize int   `json:"block_size"`
	Tokens    int64 `json:"tokens"`
	// Basis is theoretical, measured or assumed, Origin says how it comes about.
	Basis  string `json:"basis"`
	Origin string `json:"origin"`
}

// Setting is a setting of the engine with where its value comes from.
type Setting struct {
	Name   string `json:"name"`
	Value  string `json:"value"`
	Source string `json:"source"`
}

// TTFTSplit is the parts of the time to the first token.
type TTFTSplit struct {
	Queue  load.Figure `json:"queue_ms"`
	Host   load.Figure `json:"host_ms"`
	Own    load.Figure `json:"own_prefill_ms"`
	Others load.Figure `json:"others_ms"`
	// Transfer is the KV's way to where it is decoded; nil where that is the same
	// replica.
	Transfer *load.Figure `json:"kv_transfer_ms,omitempty"`
}

// SimulatedDrift says whether requests piled up: by how many a second those under
// way grew, and the share of the requests that were left over, 0..1.
type SimulatedDrift struct {
	Verdict string  `json:"verdict"`
	Why     string  `json:"why"`
	Drift   float64 `json:"open_growth_per_s"` // requests/s
	Excess  float64 `json:"excess_share"`      // 0..1
}

// LittlesLaw holds the run against it: the mean number of open requests as it was
// counted, and their rate times their mean time; the error is relative to the
// former.
type LittlesLaw struct {
	Open     float64 `json:"open_requests"`   // requests
	RateTime float64 `json:"rate_times_time"` // requests
	Error    float64 `json:"relative_error"`  // share of Open
}

// SimulatedEnergy is the energy of all devices.
type SimulatedEnergy struct {
	Joules            float64  `json:"energy_j"`
	PerThousandTokens *float64 `json:"energy_j_per_1k_output_tokens"` // joules
	PerGood           *float64 `json:"energy_j_per_good_request"`     // joules
	Basis             string   `json:"basis"`
}

// SimulatedCost is the cost of all devices, in the currency of the price.
type SimulatedCost struct {
	Total             float64  `json:"cost"`                      // units of the currency
	PerThousandTokens *float64 `json:"cost_per_1k_output_tokens"` // units of the currency
	PerGood           *float64 `json:"cost_per_good_request"`     // units of the currency
}

// SimulatedReplica is what one replica did from the first send to the end of the
// run; shares are 0..1.
type SimulatedReplica struct {
	Role          string   `json:"role"` // whole, prefill or decode
	Steps         int64    `json:"steps"`
	Busy          float64  `json:"busy_share"` // 0..1
	PrefillTokens int64    `json:"prefill_tokens"`
	DecodeTokens  int64    `json:"decode_tokens"`
	Preemptions   int64    `json:"preemptions"`
	Evictions     int64    `json:"evicted_blocks"`
	PrefixQueries int64    `json:"prefix_queries_tokens"`
	PrefixHits    int64    `json:"prefix_hits_tokens"`
	HitRate       *float64 `json:"prefix_hit_rate"` // 0..1
	// ResumedQueries are those of PrefixQueries that preempted requests made, and
	// ResumedHits what they found of their own; vLLM's counters leave both out.
	ResumedQueries   int64   `json:"prefix_queries_resumed_tokens,omitempty"`
	ResumedHits      int64   `json:"prefix_hits_resumed_tokens,omitempty"`
	Waiting          Level   `json:"waiting_requests"`
	Running          Level   `json:"running_requests"`
	KVUsage          Level   `json:"kv_usage"`
	TokensPerStep    float64 `json:"tokens_per_step"` // tokens
	RequestsAssigned int     `json:"requests"`
	// Unbound are the settings that made no difference.
	Unbound []IdleSetting `json:"settings_without_effect,omitempty"`
}

// IdleSetting is a setting that made no difference, and why. A switch turned, or
// a number within the bounds, would have given the same.
type IdleSetting struct {
	Name string `json:"name"`
	Why  string `json:"why"`
	// From and To bound a number, in its own unit; nil for no bound.
	From *float64 `json:"from,omitempty"` // unit of the setting
	To   *float64 `json:"to,omitempty"`   // unit of the setting
}

// Level is a quantity over time, in the unit of its key.
type Level struct {
	Mean float64 `json:"mean"` // unit of the key
	P99  float64 `json:"p99"`  // unit of the key
	Max  float64 `json:"max"`  // unit of the key
}

// SimulatedClass is one class of requests.
type SimulatedClass struct {
	Name     string       `json:"name"`
	Requests int          `json:"requests"`
	Targets  []string     `json:"slo,omitempty"`
	Summary  load.Summary `json:"whole"`
	Queue    load.Figure  `json:"queue_ms"`
}

// Simulation builds the document of a run. What the run does not know, such as
// the model's name, the caller adds.
func Simulation(r *fleet.Result, limits load.SLOs, tool string) SimulationDocument {
	s := r.Load.Schedule()
	d := SimulationDocument{
		Head: NewHead("simulation", tool), Elapsed: r.Elapsed.Seconds(), Outcomes: map[string]int{},
		Workload: BenchWorkload{
			Pattern: s.Pattern, Spec: s.Spec, Seed: s.Seed, Requests: len(s.Requests), InputTokens: s.InputTokens(), OutputTokens: s.OutputTokens(),
		},
	}
	d.Whole, d.Steady = r.Summaries(limits)
	split := r.Waterfall()
	d.TTFT = TTFTSplit{Queue: split.Queue, Host: split.Host, Own: split.Own, Others: split.Others}
	if split.Transfer.N > 0 {
		d.TTFT.Transfer = &split.Transfer
	}
	d.Queue = split.Queue
	drift := r.Saturation()
	d.Saturation = SimulatedDrift{drift.Verdict, drift.Why, drift.Drift, drift.Excess}
	d.Little = LittlesLaw(r.Little())
	assigned := make([]int, len(r.Replicas))
	for i := range r.Records {
		rec := &r.Records[i]
		d.Outcomes[rec.Outcome.String()]++
		if rec.Sent >= 0 {
			assigned[rec.Replica]++
			if rec.Producer >= 0 {
				assigned[rec.Producer]++
			}
		}
	}
	for i := range r.Replicas {
		d.Replicas = append(d.Replicas, simulatedReplica(r, i, assigned[i], d.Whole.Duration))
	}
	usage := r.Usage(limits)
	if e := usage.Energy; e != nil {
		d.Energy = &SimulatedEnergy{e.Total, e.PerThousandTokens, e.PerGood, string(e.Basis)}
	}
	if c := usage.Cost; c != nil {
		d.Cost = &SimulatedCost{c.Total, c.PerThousandTokens, c.PerGood}
	}
	for i, c := range r.Classes(limits) {
		class := SimulatedClass{Name: c.Name, Requests: c.Requests, Summary: c.Summary, Queue: c.Queue}
		for _, t := range s.Classes[i].Targets {
			class.Targets = append(class.Targets, t.String())
		}
		d.Classes = append(d.Classes, class)
	}
	d.Warnings = append(d.Warnings, unjudged(d.Classes)...)
	if n := d.Whole.TTFT.N; n > 0 && n < 100 {
		d.Warnings = append(d.Warnings, tooFew(n)+" for a p99")
	}
	return d
}

// tooFew says of a number of requests that it is too small.
func tooFew(n int) string {
	if n == 1 {
		return "1 request is too few"
	}
	return fmt.Sprintf("%d requests are too few", n)
}

// Settings are an engine's choices as the document has them.
func Settings(choices []deploy.Choice) []Setting {
	var all []Setting
	for _, c := range choices {
		all = append(all, Setting(c))
	}
	return all
}

// simulatedReplica describes a replica over the span of a run, in seconds.
func simulatedReplica(r *fleet.Result, i, assigned int, span float64) SimulatedReplica {
	p := &r.Replicas[i]
	out := SimulatedReplica{
		Role: p.Role.String(), Steps: p.Steps, PrefillTokens: p.PrefillTokens, DecodeTokens: p.DecodeTokens, Preemptions: p.Preemptions, Evictions: p.Evictions,
		PrefixQueries: p.QueriedTokens, PrefixHits: p.HitTokens, ResumedQueries: p.ResumedQueries, ResumedHits: p.ResumedTokens, RequestsAssigned: assigned,
		Waiting: Level{p.Waiting.Mean, p.Waiting.P99, float64(p.Waiting.Max)}, Running: Level{p.Running.Mean, p.Running.P99, float64(p.Running.Max)},
	}
	for _, k := range p.Unbound {
		out.Unbound = append(out.Unbound, IdleSetting{Name: k.Name, Why: k.Why, From: k.From, To: k.To})
	}
	if span > 0 {
		out.Busy = p.Busy.Seconds() / span
	}
	if p.Steps > 0 {
		out.TokensPerStep = float64(p.PrefillTokens+p.DecodeTokens) / float64(p.Steps)
	}
	if p.QueriedTokens > 0 {
		out.HitRate = new(float64(p.HitTokens) / float64(p.QueriedTokens))
	}
	if u := float64(p.UsableBlocks); u > 0 {
		out.KVUsage = Level{p.UsedBlocks.Mean / u, p.UsedBlocks.P99 / u, float64(p.UsedBlocks.Max) / u}
	}
	return out
}
