package report

import (
	"cmp"

	"github.com/llmprof/llmprof/deploy"
	"github.com/llmprof/llmprof/load"
	"github.com/llmprof/llmprof/measure/serving"
	"github.com/llmprof/llmprof/profile"
)

// WorkloadDocument is the JSON of workload profiles.
type WorkloadDocument struct {
	Head
	Place   string           `json:"place,omitempty"`
	Results []WorkloadResult `json:"results"`
	Files   []string         `json:"files,omitempty"`
	// Profiles are the lengths of the .llmprof files in bytes after the last
	// cell: what stands behind is of a cell that was not finished.
	Profiles map[string]int64 `json:"profile_bytes,omitempty"`
	// Asked is how it was measured, so that what is added is measured alike.
	Asked map[string]any `json:"asked"`
}

// WorkloadResult is one cell. Its first keys are those of the schedule
// planner's profiling result, with times in milliseconds; null is what was not
// measured, which NotMeasured names.
type WorkloadResult struct {
	Config WorkloadConfig `json:"config"`
	// PrefillLatencies are TTFTs, DecodeLatencies mean times of a token,
	// TotalLatencies times to the last token: each request's, in milliseconds. Of
	// a mixed cell they are those of both sides together.
	PrefillLatencies []float64 `json:"prefill_latencies"`
	DecodeLatencies  []float64 `json:"decode_latencies"`
	TotalLatencies   []float64 `json:"total_latencies"`
	// TokensPerSecond are new tokens of prompts and those put out, and
	// RequestsPerSecond requests, over the whole of the counted runs.
	TokensPerSecond   *float64 `json:"tokens_per_second"`
	RequestsPerSecond *float64 `json:"requests_per_second"`
	// PartTokensPerSecond are those computed in the measured parts of the runs over
	// their time: of a prefill new tokens of prompts until the last first token, of
	// a decode tokens out while all requests decode, of both together both.
	PartTokensPerSecond *float64 `json:"measured_tokens_per_second"`
	// GPUMemoryUsage and CPUMemoryUsage are the most in use, in 10^6 bytes.
	GPUMemoryUsage *float64 `json:"gpu_memory_usage"`
	CPUMemoryUsage *float64 `json:"cpu_memory_usage"`
	NumPrefill     int      `json:"num_prefill_requests"`
	NumDecode      int      `json:"num_decode_requests"`
	// AvgBatchSize is requests, AvgTokensPerBatch tokens of a step.
	AvgBatchSize      *float64 `json:"avg_batch_size"`
	AvgTokensPerBatch *float64 `json:"avg_tokens_per_batch"`
	// Timestamp is in seconds since 1970.
	Timestamp float64 `json:"timestamp"`
	ModelName string  `json:"model_name"`

	ProfilingType string `json:"profiling_type"`
	// Failure says why the cell was not measured, Hint what helps.
	Failure string `json:"failure,omitempty"`
	Hint    string `json:"hint,omitempty"`
	// Engine is the deployment that ran, as the engine itself told it.
	Engine deploy.Config `json:"engine"`
	// TTFT to E2EL describe the latencies, ITL single gaps between tokens.
	TTFT load.Figure `json:"ttft_ms"`
	TPOT load.Figure `json:"tpot_ms"`
	ITL  load.Figure `json:"itl_ms"`
	E2EL load.Figure `json:"e2el_ms"`
	// Alone are the sides of a mixed cell measured by themselves, Before the decodes
	// of the mixed runs just before the prefills come. Slowdown is the mean of the
	// prefills over that alone, and of the decodes over that before.
	Alone    *WorkloadSides `json:"alone,omitempty"`
	Before   *load.Figure   `json:"decode_before_ms,omitempty"`
	Slowdown *WorkloadRatio `json:"slowdown,omitempty"`
	// PrefixTokens is the proof that the cached prefixes were found.
	PrefixTokens WorkloadProof `json:"cached_prefix"`
	// KVCacheUsage is the largest share in use, 0..1.
	KVCacheUsage *float64 `json:"kv_cache_usage"`
	// Power is the mean of all devices together in watts.
	Power       *float64          `json:"power_w"`
	Metrics     SchedulingMetrics `json:"scheduling_metrics"`
	NotMeasured []serving.Missing `json:"not_measured"`
	Warnings    []string          `json:"warnings,omitempty"`
}

// WorkloadConfig is how the cell was measured, in the schedule planner's keys: what
// was asked for, and where nothing was, what the engine says; null where it says
// nothing.
type WorkloadConfig struct {
	C                    int      `json:"C"`
	M                    int      `json:"M"`
	B                    int      `json:"B"`
	BlockSize            int      `json:"block_size"`
	NumWarmup            int      `json:"num_warmup_runs"`
	NumMeasurements      int      `json:"num_measurement_runs"`
	MaxModelLen          *int     `json:"max_model_len"`
	ChunkedPrefill       *bool    `json:"enable_chunked_prefill"`
	MaxNumBatchedTokens  *int     `json:"max_num_batched_tokens"`
	MaxNumSeqs           *int     `json:"max_num_seqs"`
	MaxNumPartialPrefill *int     `json:"max_num_partial_prefills"`
	SchedulingPolicy     *string  `json:"scheduling_policy"`
	GPUMemoryUtilization *float64 `json:"gpu_memory_utilization"` // share, 0..1
	SaveResults          bool     `json:"save_results"`
	ResultsFile          string   `json:"results_file"`
}

// WorkloadSides are latencies of both sides in milliseconds.
type WorkloadSides struct {
	TTFT load.Figure `json:"ttft_ms"`
	TPOT load.Figure `json:"tpot_ms"`
}

// WorkloadRatio are ratios of mean latencies; nil where not known.
type WorkloadRatio struct {
	Prefill *float64 `json:"prefill"` // a ratio
	Decode  *float64 `json:"decode"`  // a ratio
}

// WorkloadProof is what of the prefixes was found in the cache, in tokens of all
// counted runs.
type WorkloadProof struct {
	Asked int    `json:"asked_tokens"`
	Found *int   `json:"found_tokens"`
	By    string `json:"by,omitempty"`
}

// SchedulingMetrics are lists with an entry a step or a run, or one of all runs, in
// the keys of the schedule planner's analysis. Times are in milliseconds, memory in 10^6 bytes,
// shares 0..1; nil is not measured.
type SchedulingMetrics struct {
	PrefillCompute    []float64 `json:"prefill_compute_time"`   // steps, ms
	DecodeCompute     []float64 `json:"decode_compute_time"`    // steps, ms; of a mixed cell those without a prompt
	Overhead          []float64 `json:"scheduling_overhead"`    // ms
	Allocation        []float64 `json:"memory_allocation_time"` // ms
	GPUMemory         []float64 `json:"gpu_memory_usage"`       // most of all runs, 10^6 bytes
	CPUMemory         []float64 `json:"cpu_memory_usage"`       // most of all runs, 10^6 bytes
	GPUUtilization    []float64 `json:"gpu_utilization"`        // mean of all runs, %
	BatchEfficiency   []float64 `json:"batch_efficiency"`       // steps, share of what could be computed
	BudgetUse         []float64 `json:"budget_use"`             // steps, share of max_num_batched_tokens
	CacheHitRate      []float64 `json:"cache_hit_rate"`         // runs, share
	Preemptions       *float64  `json:"preemption_count"`       // count
	Swaps             *float64  `json:"swap_count"`             // count
	Waiting           []float64 `json:"waiting_queue_size"`     // runs, largest
	Running           []float64 `json:"running_queue_size"`     // steps; without a log runs, largest
	Swapped           []float64 `json:"swapped_queue_size"`     // requests
	TokensPerSecond   []float64 `json:"tokens_per_second"`      // runs
	RequestsPerSecond []float64 `json:"requests_per_second"`    // runs
}

// WorkloadRun is what a cell was measured with.
type WorkloadRun struct {
	Model string
	// Asked is the deployment that was asked for, Ran what the engine says.
	Asked, Ran         deploy.Config
	MaxPartialPrefills int
	Warmup, Runs       int
	OnCPU              bool // memory is that of the engine's processes
	ResultsFile        string
}

// Workload builds the document of a cell.
func Workload(r *serving.Result, run WorkloadRun) WorkloadResult {
	d := WorkloadResult{
		Config: workloadConfig(r, run), ModelName: run.Model, ProfilingType: r.Cell.Type, Engine: run.Ran, Failure: r.Failure, Hint: r.Hint,
		Timestamp: float64(r.Started.UnixMilli()) / 1e3, NotMeasured: r.Missing, Warnings: r.Warnings,
		PrefillLatencies: []float64{}, DecodeLatencies: []float64{}, TotalLatencies: []float64{},
	}
	if d.NotMeasured == nil {
		d.NotMeasured = []serving.Missing{}
	}
	phase := r.Measured()
	if r.Failure != "" || phase == nil {
		return d
	}
	var prefill, decode *serving.Side
	if r.Cell.Type != profile.Decode {
		prefill = r.Side(phase, profile.Prefill)
		d.NumPrefill = len(prefill.Records)
		d.PrefillLatencies = milliseconds(prefill.Latencies)
	}
	if r.Cell.Type != profile.Prefill {
		decode = r.Side(phase, profile.Decode)
		d.NumDecode = len(decode.Records)
		d.DecodeLatencies, d.ITL = milliseconds(decode.Latencies), load.NewFigure(milliseconds(decode.Gaps))
	}
	d.TTFT, d.TPOT = sideFigure(prefill), sideFigure(decode)
	for _, s := range []*serving.Side{prefill, decode} {
		if s != nil {
			d.TotalLatencies = append(d.TotalLatencies, milliseconds(s.E2EL)...)
		}
	}
	d.E2EL = load.NewFigure(append([]float64(nil), d.TotalLatencies...))
	if r.Cell.Type == profile.Mixed {
		aloneP, aloneD := r.Side(r.Prefill, profile.Prefill), r.Side(r.Decode, profile.Decode)
		d.Alone = &WorkloadSides{sideFigure(aloneP), sideFigure(aloneD)}
		d.Before = new(load.NewFigure(milliseconds(decode.Before)))
		d.Slowdown = &WorkloadRatio{serving.Slowdown(prefill, aloneP), serving.Slowdown(decode, aloneD)}
	}
	d.PrefixTokens.Asked, d.PrefixTokens.Found, d.PrefixTokens.By = r.Proof()
	d.KVCacheUsage = r.KVUsage()
	d.rates(phase, prefill, decode)
	d.steps(prefill, decode)
	d.devices(phase.Devices(), run.OnCPU)
	d.Metrics.Preemptions = r.Preemptions()
	return d
}

func workloadConfig(r *serving.Result, run WorkloadRun) WorkloadConfig {
	some := func(n int) *int {
		if n == 0 {
			return nil
		}
		return &n
	}
	c := WorkloadConfig{
		C: r.Cell.NewTokens, M: r.Cell.CachedBlocks, B: r.Cell.Requests, BlockSize: r.Cell.BlockSize, NumWarmup: run.Warmup, NumMeasurements: run.Runs,
		MaxModelLen: some(cmp.Or(run.Asked.MaxModelLen, run.Ran.MaxModelLen)), ChunkedPrefill: run.Asked.ChunkedPrefill,
		MaxNumBatchedTokens: some(cmp.Or(run.Asked.MaxNumBatchedTokens, run.Ran.MaxNumBatchedTokens)), MaxNumSeqs: some(cmp.Or(run.Asked.MaxNumSeqs, run.Ran.MaxNumSeqs)), MaxNumPartialPrefill: some(run.MaxPartialPrefills),
		SaveResults: run.ResultsFile != "", ResultsFile: run.ResultsFile,
	}
	if c.ChunkedPrefill == nil {
		c.ChunkedPrefill = run.Ran.ChunkedPrefill
	}
	if p := cmp.Or(run.Asked.SchedulingPolicy, run.Ran.SchedulingPolicy); p != "" {
		c.SchedulingPolicy = &p
	}
	if u := cmp.Or(run.Asked.GPUMemoryUtilization, run.Ran.GPUMemoryUtilization); u > 0 {
		c.GPUMemoryUtilization = &u
	}
	return c
}

// milliseconds are times in seconds in another unit.
func milliseconds(seconds []float64) []float64 {
	out := make([]float64, len(seconds))
	for i, s := range seconds {
		out[i] = s * 1e3
	}
	return out
}

func sideFigure(s *serving.Side) load.Figure {
	if s == nil {
		return load.Figure{}
	}
	return load.NewFigure(milliseconds(s.Latencies))
}

// rates fills in what is counted over time.
func (d *WorkloadResult) rates(p *serving.Phase, prefill, decode *serving.Side) {
	tokens, part, whole, requests, all := 0, 0.0, 0.0, 0, 0
	for _, s := range []*serving.Side{prefill, decode} {
		if s != nil {
			tokens, part = tokens+s.Tokens, s.Seconds
			requests += len(s.Records)
		}
	}
	c := d.Config
	for i := range p.Runs {
		run := &p.Runs[i]
		took := run.Elapsed.Seconds()
		whole += took
		if n := len(run.Prefill) + len(run.Decode); took > 0 {
			d.Metrics.RequestsPerSecond = append(d.Metrics.RequestsPerSecond, float64(n)/took)
			out := 0
			for j := range run.Prefill {
				out += c.C + run.Prefill[j].Output.Tokens
			}
			for j := range run.Decode {
				out += c.C + run.Decode[j].Output.Tokens
			}
			d.Metrics.TokensPerSecond = append(d.Metrics.TokensPerSecond, float64(out)/took)
			all += out
		}
		if s := run.Server; s != nil {
			if s.HitRate != nil {
				d.Metrics.CacheHitRate = append(d.Metrics.CacheHitRate, *s.HitRate)
			}
			if s.Waiting != nil {
				d.Metrics.Waiting = append(d.Metrics.Waiting, s.Waiting.Max)
			}
			if s.Running != nil && len(run.Steps) == 0 {
				d.Metrics.Running = append(d.Metrics.Running, s.Running.Max)
			}
		}
	}
	if part > 0 {
		d.PartTokensPerSecond = new(float64(tokens) / part)
	}
	if whole > 0 {
		d.TokensPerSecond, d.RequestsPerSecond = new(float64(all)/whole), new(float64(requests)/whole)
	}
}

// steps fills in what the engine tells of its steps.
func (d *WorkloadResult) steps(prefill, decode *serving.Side) {
	m := &d.Metrics
	requests, tokens, n := 0, 0, 0
	for _, s := range []*serving.Side{prefill, decode} {
		if s == nil {
			continue
		}
		if s.Type == profile.Decode && prefill != nil { // the measured steps are the same
			for _, step := range s.Pure {
				m.DecodeCompute = append(m.DecodeCompute, step.Seconds*1e3)
			}
			continue
		}
		for _, step := range s.Steps {
			requests += step.Totals.PrefillRequests + step.Totals.DecodeRequests
			tokens += step.Tokens()
			n++
			m.Running = append(m.Running, float64(step.Totals.PrefillRequests+step.Totals.DecodeRequests))
			if step.Totals.PrefillTokens > 0 {
				m.PrefillCompute = append(m.PrefillCompute, step.Seconds*1e3)
			} else {
				m.DecodeCompute = append(m.DecodeCompute, step.Seconds*1e3)
			}
		}
		m.BatchEfficiency, m.BudgetUse = append(m.BatchEfficiency, s.Efficiency...), append(m.BudgetUse, s.BudgetUse...)
	}
	if n > 0 {
		d.AvgBatchSize, d.AvgTokensPerBatch = new(float64(requests)/float64(n)), new(float64(tokens)/float64(n))
	}
}

// devices fills in what a sampler read.
func (d *WorkloadResult) devices(s *serving.Devices, cpu bool) {
	if s == nil {
		return
	}
	if s.Memory != nil {
		mb := float64(*s.Memory) / 1e6
		if cpu {
			d.CPUMemoryUsage, d.Metrics.CPUMemory = &mb, []float64{mb}
		} else {
			d.GPUMemoryUsage, d.Metrics.GPUMemory = &mb, []float64{mb}
		}
	}
	d.Power = s.Power
	if s.Utilization != nil && !cpu {
		d.Metrics.GPUUtilization = []float64{*s.Utilization * 100}
	}
}
