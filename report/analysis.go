package report

import (
	"fmt"
	"strconv"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/cost"
	"github.com/llmprof/llmprof/deploy"
	"github.com/llmprof/llmprof/stat"
	"github.com/llmprof/llmprof/unit"
)

// Head opens every document.
type Head struct {
	// Schema is "llmprof/<kind>".
	Schema string `json:"schema"`
	// Version is "major.minor" of the schema.
	Version string `json:"version"`
	// Tool is the version of llmprof that made the document.
	Tool string `json:"tool"`
}

// NewHead opens a document of the given kind, made by version tool.
func NewHead(kind, tool string) Head { return Head{"llmprof/" + kind, "1.0", tool} }

// AnalysisDocument is the JSON of one theoretical analysis. Amounts are those
// of one device unless a key says otherwise.
type AnalysisDocument struct {
	Head
	Model string `json:"model"`
	// ModelOrigin is where the architecture was found, ModelRevision which
	// state of it, where the origin has states.
	ModelOrigin   string        `json:"model_origin,omitempty"`
	ModelRevision string        `json:"model_revision,omitempty"`
	GPU           string        `json:"gpu"`
	Deploy        deploy.Config `json:"deploy"`
	Request       RequestKeys   `json:"request"`
	// Method is "roofline" or "llm-profiler".
	Method string `json:"method"`
	// Basis is the basis of every figure.
	Basis stat.Basis `json:"basis"`
	Fits  bool       `json:"fits"`
	// Reasons are codes; Messages say the same in words.
	Reasons  []string       `json:"reasons"`
	Messages []string       `json:"messages,omitempty"`
	Params   ParamsKeys     `json:"params"`
	FLOPs    FLOPsKeys      `json:"flops"`
	Memory   MemoryKeys     `json:"memory"`
	Latency  LatencyKeys    `json:"latency"`
	Ops      []OpKeys       `json:"ops"`
	Rates    *RateKeys      `json:"rates,omitempty"`
	Settings *cost.Settings `json:"settings,omitempty"`
	// SmallestTP is the smallest tensor parallel size that fits, where the
	// asked one does not.
	SmallestTP int `json:"smallest_tensor_parallel_size,omitempty"`
	// Reference holds the figures of the llm-profiler method in its own keys
	// and units.
	Reference any      `json:"reference,omitempty"`
	Warnings  []string `json:"warnings,omitempty"`
}

// RequestKeys echo what was asked.
type RequestKeys struct {
	BatchSize    int `json:"batch_size"`
	InputLen     int `json:"input_len"`
	OutputLen    int `json:"output_len"`
	CachedPrefix int `json:"cached_prefix,omitempty"`
}

// ParamsKeys count the parameters of the whole model.
type ParamsKeys struct {
	Total  int64 `json:"total"`
	Active int64 `json:"active"`
	// PerLayer counts one layer of the kind that occurs most: attention, ffn,
	// norms, total.
	PerLayer  map[string]int64 `json:"per_layer"`
	Embedding int64            `json:"embedding"`
	Head      int64            `json:"head"`
}

// FLOPsKeys count the matrix work of the whole model.
type FLOPsKeys struct {
	// Prefill and DecodeStep are in FLOPs.
	Prefill    float64 `json:"prefill"`
	DecodeStep float64 `json:"decode_step"`
}

// MemoryKeys are bytes and counts of the fullest device.
type MemoryKeys struct {
	Weights     int64 `json:"weights_bytes"`
	KVCache     int64 `json:"kv_cache_bytes"`
	Activations int64 `json:"activations_bytes"`
	Reserve     int64 `json:"reserve_bytes"`
	Total       int64 `json:"total_bytes"`
	Device      int64 `json:"device_bytes"`
	Usable      int64 `json:"usable_bytes"`
	KVPerToken  int64 `json:"kv_bytes_per_token,omitempty"`
	MaxBatch    int   `json:"max_batch"`
	MaxTokens   int64 `json:"max_tokens"`
}

// LatencyKeys are milliseconds; the op maps sum to TTFT and TPOT. TPOT is
// null where a request generates one token.
type LatencyKeys struct {
	TTFT      float64            `json:"ttft_ms"`
	TPOT      *float64           `json:"tpot_ms"`
	FirstTPOT *float64           `json:"first_tpot_ms,omitempty"`
	LastTPOT  *float64           `json:"last_tpot_ms,omitempty"`
	E2E       float64            `json:"e2e_ms"`
	Prefill   map[string]float64 `json:"prefill_ms"`
	Decode    map[string]float64 `json:"decode_ms"`
}

// OpKeys is one operator; flops, bytes and time_ms are those of all count
// occurrences together.
type OpKeys struct {
	Stage     string  `json:"stage"`
	Name      string  `json:"name"`
	Count     int     `json:"count"`
	FLOPs     float64 `json:"flops"`
	Bytes     float64 `json:"bytes"`
	Message   float64 `json:"message_bytes,omitempty"`
	Time      float64 `json:"time_ms"`
	Compute   float64 `json:"compute_ms"`
	Memory    float64 `json:"memory_ms"`
	Network   float64 `json:"network_ms"`
	Launch    float64 `json:"launch_ms"`
	Bound     string  `json:"bound"`
	Intensity float64 `json:"intensity"`
	// MFU and MBU are achieved over peak compute and bandwidth, 0..1.
	MFU float64 `json:"mfu"`
	MBU float64 `json:"mbu"`
}

// RateKeys are throughputs of one data-parallel replica and utilisations
// (0..1) of its devices.
type RateKeys struct {
	PrefillTokens float64  `json:"prefill_tok_s"`
	DecodeTokens  *float64 `json:"decode_tok_s"`
	// PipelinedTokens counts output tokens with one batch in flight for each
	// pipeline stage; null without a pipeline.
	PipelinedTokens *float64 `json:"decode_tok_s_pipelined,omitempty"`
	Requests        float64  `json:"requests_s"`
	// OutputPerGPU counts output tokens per second and device, TotalPerGPU
	// prompt and output tokens.
	OutputPerGPU float64 `json:"output_tok_s_gpu"`
	TotalPerGPU  float64 `json:"total_tok_s_gpu"`
	// PrefillBubble is the share of the stages' time that they wait.
	PrefillBubble float64  `json:"prefill_bubble,omitempty"`
	PrefillMFU    float64  `json:"prefill_mfu"`
	PrefillMBU    float64  `json:"prefill_mbu"`
	DecodeMFU     *float64 `json:"decode_mfu"`
	DecodeMBU     *float64 `json:"decode_mbu"`
}

// Analysis builds the document of a roofline analysis; tool is the version
// that made it.
func Analysis(a *cost.Analysis, tool string) AnalysisDocument {
	r, m := a.Request, a.Memory
	d := AnalysisDocument{
		Head:  NewHead("analysis", tool),
		Model: a.Model.Name, GPU: a.Device.Name, Deploy: a.Config,
		Request: RequestKeys{r.Batch, r.Input, r.Output, r.CachedPrefix},
		Method:  "roofline", Basis: stat.Theoretical, Fits: a.Fits, Reasons: []string{},
		Params: Params(a.Model),
		FLOPs:  FLOPsKeys{float64(a.Prefill.FLOPs), float64(a.Decode.FLOPs)},
		Memory: MemoryKeys{
			int64(m.Weights), int64(m.KVCache), int64(m.Activations), int64(m.Reserve), int64(m.Total()),
			int64(m.Device), int64(m.Usable), int64(m.KVPerToken), a.MaxBatch, a.MaxTokens,
		},
		Latency: LatencyKeys{
			TTFT: a.TTFT.Milliseconds(), E2E: a.E2E.Milliseconds(),
			Prefill: byOp(a.Prefill.Ops), Decode: byOp(a.Decode.Ops),
		},
		Ops:        append(opKeys("prefill", a.Prefill.Ops, a.Settings), opKeys("decode", a.Decode.Ops, a.Settings)...),
		Settings:   &a.Settings,
		SmallestTP: a.SmallestTP,
		Warnings:   a.Warnings,
	}
	for _, reason := range a.Reasons {
		d.Reasons = append(d.Reasons, reason.Code)
		d.Messages = append(d.Messages, reason.Message)
	}
	devices := float64(a.Config.TensorParallel * a.Config.PipelineParallel)
	d.Rates = &RateKeys{
		PrefillTokens: a.PrefillTokensPerSecond, Requests: a.RequestsPerSecond,
		OutputPerGPU: a.RequestsPerSecond * float64(r.Output) / devices,
		TotalPerGPU:  a.RequestsPerSecond * float64(r.Input+r.Output) / devices,
		PrefillMFU:   a.Prefill.MFU, PrefillMBU: a.Prefill.MBU, PrefillBubble: a.Prefill.Bubble,
	}
	if a.PipelinedTokensPerSecond > 0 {
		d.Rates.PipelinedTokens = &a.PipelinedTokensPerSecond
	}
	if a.TPOT > 0 {
		ms := func(s unit.Seconds) *float64 { v := s.Milliseconds(); return &v }
		d.Latency.TPOT, d.Latency.FirstTPOT, d.Latency.LastTPOT = ms(a.TPOT), ms(a.FirstTPOT), ms(a.LastTPOT)
		d.Rates.DecodeTokens = &a.DecodeTokensPerSecond
		d.Rates.DecodeMFU, d.Rates.DecodeMBU = &a.Decode.MFU, &a.Decode.MBU
	}
	return d
}

// Params counts the parameters of a model for a document.
func Params(m *catalog.Model) ParamsKeys {
	p := m.Params()
	kinds := m.Layers(0, m.NumLayers)
	most := kinds[0]
	for _, k := range kinds {
		if k.Count > most.Count {
			most = k
		}
	}
	one := m.LayerParams(most)
	return ParamsKeys{
		Total: p.Total, Active: p.Active, Embedding: p.Embedding, Head: p.Head,
		PerLayer: map[string]int64{"attention": one.Attention, "ffn": one.FFN, "norms": one.Norms, "total": one.Total()},
	}
}

// byOp sums milliseconds by operator name.
func byOp(ops []cost.Op) map[string]float64 {
	sums := map[string]float64{}
	for _, op := range ops {
		sums[op.Name] += float64(op.Count) * op.Time.Milliseconds()
	}
	return sums
}

func opKeys(stage string, ops []cost.Op, s cost.Settings) []OpKeys {
	keys := make([]OpKeys, 0, len(ops))
	for _, op := range ops {
		n := float64(op.Count)
		keys = append(keys, OpKeys{
			Stage: stage, Name: op.Name, Count: op.Count,
			FLOPs: n * float64(op.FLOPs), Bytes: n * float64(op.Bytes), Message: n * float64(op.Message),
			Time: n * op.Time.Milliseconds(), Compute: n * op.Compute.Milliseconds(), Memory: n * op.Memory.Milliseconds(),
			Network: n * op.Network.Milliseconds(), Launch: n * op.Launch.Milliseconds(),
			Bound: string(op.Bound), Intensity: op.Intensity(),
			MFU: float64(op.Compute/op.Time) * s.EffCompute, MBU: float64(op.Memory/op.Time) * s.EffHBM,
		})
	}
	return keys
}

// AnalysisTables shows one analysis to people: memory, latency, and where the
// time goes; perOp adds every operator.
func AnalysisTables(a *cost.Analysis, perOp bool) []Table {
	tables := []Table{summary(a), memoryTable(a), latencyTable(a), shares(a)}
	if perOp {
		tables = append(tables, OpTables(Analysis(a, ""))...)
	}
	return tables
}

func summary(a *cost.Analysis) Table {
	p := a.Model.Params()
	c := a.Config
	t := Table{Columns: []Column{{Left: true}, {Left: true}}}
	row := func(name, text string) { t.Rows = append(t.Rows, []Cell{Say(name), Say(text)}) }
	params := unit.Count(float64(p.Total)) + " parameters"
	if p.Active != p.Total {
		params += ", " + unit.Count(float64(p.Active)) + " active"
	}
	row("model", a.Model.Name+" · "+params)
	row("gpu", fmt.Sprintf("%s · %v · %v · %v dense %s", a.Device.Name, a.Device.MemoryBytes(), unit.BytesPerSecond(a.Device.Bandwidth.Value), unit.FLOPsPerSecond(peakOf(a)), c.DType))
	row("deploy", deployText(c))
	row("request", requestText(a))
	if a.Fits {
		row("fits", fmt.Sprintf("yes · up to %d such requests, a KV cache of %d tokens", a.MaxBatch, a.MaxTokens))
	}
	for _, reason := range a.Reasons {
		row("fits", "no · "+reason.Message)
	}
	switch {
	case a.SmallestTP > 0:
		row("", fmt.Sprintf("the smallest tensor parallel size that fits is %d", a.SmallestTP))
	case !a.Fits && !a.Memory.Fits():
		row("", "no larger tensor parallel size fits")
	}
	if !a.Fits && a.MaxBatch > 0 && c.MaxNumBatchedTokens == 0 {
		row("", "--max-num-batched-tokens cuts the prefill into steps, which need less memory")
	}
	row("basis", "theoretical: datasheet peaks with assumed efficiencies "+efficiencies(a.Settings))
	return t
}

func requestText(a *cost.Analysis) string {
	r := a.Request
	text := fmt.Sprintf("batch %d · %d input + %d output tokens", r.Batch, r.Input, r.Output)
	if a.Config.DataParallel > 1 {
		text += " on each replica"
	}
	if r.CachedPrefix > 0 {
		text += fmt.Sprintf(" · %d of them cached", r.CachedPrefix)
	}
	if a.Prefill.Passes > 1 {
		text += fmt.Sprintf(" · prefill in %d steps", a.Prefill.Passes)
	}
	return text
}

// peakOf is the dense rate of the format that activations are multiplied in,
// or of the format that stands in for it.
func peakOf(a *cost.Analysis) float64 {
	for _, t := range []catalog.DType{a.Config.DType, catalog.FP16, catalog.BF16, catalog.FP32} {
		if q, ok := a.Device.Peak(t); ok {
			return float64(q)
		}
	}
	return 0
}

func deployText(c deploy.Config) string {
	text := fmt.Sprintf("TP %d", c.TensorParallel)
	if c.PipelineParallel > 1 {
		text += fmt.Sprintf(" · PP %d", c.PipelineParallel)
	}
	if c.DataParallel > 1 {
		text += fmt.Sprintf(" · DP %d", c.DataParallel)
	}
	if c.ExpertParallel > 1 {
		text += fmt.Sprintf(" · EP %d", c.ExpertParallel)
	}
	weights := c.Quantization
	if weights == "none" {
		weights = string(c.DType)
	}
	return text + fmt.Sprintf(" · weights %s · KV cache %s", weights, c.KVCacheDType)
}

func efficiencies(s cost.Settings) string {
	return fmt.Sprintf("compute %g, memory %g, network %g, launch %g µs", s.EffCompute, s.EffHBM, s.EffNet, float64(s.Launch)*1e6)
}

func memoryTable(a *cost.Analysis) Table {
	m := a.Memory
	t := Table{Title: "Memory per GPU", Columns: []Column{{Left: true}, {Name: ""}, {Name: ""}}}
	row := func(name string, b unit.Bytes) {
		t.Rows = append(t.Rows, []Cell{Say(name), Say(b.String()), Say(percent(float64(b), float64(m.Device)))})
	}
	row("weights", m.Weights)
	row("KV cache", m.KVCache)
	row("activations", m.Activations)
	row("reserve", m.Reserve)
	row("total", m.Total())
	row(fmt.Sprintf("usable (%g)", a.Config.GPUMemoryUtilization), m.Usable)
	return t
}

func latencyTable(a *cost.Analysis) Table {
	t := Table{
		Title:   "Latency",
		Columns: []Column{{Left: true}, {Name: "time"}, {Name: "tok/s"}, {Name: "MFU"}, {Name: "MBU"}},
	}
	t.Rows = append(t.Rows, []Cell{
		Say("TTFT (prefill)"), Say(a.TTFT.String()), Fixed(a.PrefillTokensPerSecond, 0),
		Say(percent(a.Prefill.MFU, 1)), Say(percent(a.Prefill.MBU, 1)),
	})
	if a.TPOT > 0 {
		t.Rows = append(t.Rows,
			[]Cell{
				Say("TPOT (mean decode step)"), Say(a.TPOT.String()), Fixed(a.DecodeTokensPerSecond, 0),
				Say(percent(a.Decode.MFU, 1)), Say(percent(a.Decode.MBU, 1)),
			},
			[]Cell{Say("  first .. last step"), Say(a.FirstTPOT.String() + " .. " + a.LastTPOT.String()), Say(""), Say(""), Say("")})
	}
	t.Rows = append(t.Rows, []Cell{Say("E2E"), Say(a.E2E.String()), Say(""), Say(""), Say("")})
	return t
}

// shares says where the time goes, the longest operator first by stage.
func shares(a *cost.Analysis) Table {
	t := Table{
		Title: "Where the time goes",
		Columns: []Column{
			{Name: "operator", Left: true},
			{Name: "prefill"},
			{Name: "share"},
			{Name: "bound", Left: true},
			{Name: "decode"},
			{Name: "share"},
			{Name: "bound", Left: true},
		},
	}
	type part struct {
		time  unit.Seconds
		bound cost.Bound
		most  unit.Seconds
	}
	gather := func(ops []cost.Op) map[string]part {
		parts := map[string]part{}
		for _, op := range ops {
			p := parts[op.Name]
			time := unit.Seconds(op.Count) * op.Time
			p.time += time
			if time >= p.most {
				p.most, p.bound = time, op.Bound
			}
			parts[op.Name] = p
		}
		return parts
	}
	prefill, decode := gather(a.Prefill.Ops), gather(a.Decode.Ops)
	var names []string
	seen := map[string]bool{}
	for _, ops := range [][]cost.Op{a.Prefill.Ops, a.Decode.Ops} {
		for _, op := range ops {
			if !seen[op.Name] {
				seen[op.Name] = true
				names = append(names, op.Name)
			}
		}
	}
	cells := func(parts map[string]part, name string, total unit.Seconds) []Cell {
		p, ok := parts[name]
		if !ok {
			return []Cell{Missing(), Missing(), Say("")}
		}
		return []Cell{Say(p.time.String()), Say(percent(float64(p.time), float64(total))), Say(string(p.bound))}
	}
	for _, name := range names {
		row := []Cell{Say(name)}
		row = append(row, cells(prefill, name, a.TTFT)...)
		t.Rows = append(t.Rows, append(row, cells(decode, name, a.TPOT)...))
	}
	return t
}

// OpTables lists every operator of an analysis, one table a stage.
func OpTables(d AnalysisDocument) []Table {
	titles := map[string]string{"prefill": "Operators of the prefill", "decode": "Operators of the mean decode step"}
	var tables []Table
	for _, stage := range []string{"prefill", "decode"} {
		t := opTable(d.Ops, stage)
		if len(t.Rows) > 0 {
			t.Title = titles[stage]
			tables = append(tables, t)
		}
	}
	return tables
}

// opTable lists the operators of one stage.
func opTable(ops []OpKeys, stage string) Table {
	t := Table{
		Columns: []Column{
			{Name: "operator", Key: "name", Left: true},
			{Name: "count"},
			{Name: "FLOP", Key: "flops"},
			{Name: "bytes"},
			{Name: "FLOP/B", Key: "intensity"},
			{Name: "compute", Key: "compute_ms"},
			{Name: "memory", Key: "memory_ms"},
			{Name: "network", Key: "network_ms"},
			{Name: "launch", Key: "launch_ms"},
			{Name: "time", Key: "time_ms"},
			{Name: "MFU", Key: "mfu"},
			{Name: "MBU", Key: "mbu"},
			{Name: "bound", Left: true},
			{Key: "stage", Left: true, Idle: idle("")},
		},
		Notes: []string{"Amounts are those of all occurrences together on one device."},
	}
	time := func(ms float64) Cell {
		if ms == 0 {
			return Shown("–", 0.0)
		}
		return Shown(unit.Seconds(ms/1e3).String(), ms)
	}
	for _, op := range ops {
		if op.Stage != stage {
			continue
		}
		t.Rows = append(t.Rows, []Cell{
			Say(op.Name), Whole(op.Count),
			Shown(unit.FLOPs(op.FLOPs).String(), op.FLOPs), Shown(unit.Bytes(op.Bytes).String(), op.Bytes),
			Shown(strconv.FormatFloat(op.Intensity, 'f', 2, 64), op.Intensity),
			time(op.Compute), time(op.Memory), time(op.Network), time(op.Launch), time(op.Time),
			Shown(percent(op.MFU, 1), op.MFU), Shown(percent(op.MBU, 1), op.MBU), Say(op.Bound), Shown("", op.Stage),
		})
	}
	return t
}

// Sweep shows one row for each analysis.
func Sweep(documents []AnalysisDocument) Table {
	t := Table{Columns: []Column{
		{Name: "model", Left: true},
		{Name: "gpu", Left: true},
		{Name: "TP", Key: "tensor_parallel_size"},
		{Name: "PP", Key: "pipeline_parallel_size", Idle: idle("1")},
		{Name: "DP", Key: "data_parallel_size", Idle: idle("1")},
		{Name: "EP", Key: "expert_parallel_size", Idle: idle("1")},
		{Name: "batch", Key: "batch_size"},
		{Name: "input", Key: "input_len"},
		{Name: "output", Key: "output_len"},
		{Name: "TTFT ms", Key: "ttft_ms"},
		{Name: "TPOT ms", Key: "tpot_ms"},
		{Name: "E2E ms", Key: "e2e_ms"},
		{Name: "tok/s/gpu", Key: "output_tok_s_gpu"},
		{Name: "memory GiB", Key: "total_bytes"},
		{Name: "max batch", Key: "max_batch"},
		{Name: "fits", Left: true},
	}}
	for _, d := range documents {
		tpot, rate := Missing(), Missing()
		if d.Latency.TPOT != nil {
			tpot = Fixed(*d.Latency.TPOT, 3)
		}
		if d.Rates != nil {
			rate = Fixed(d.Rates.OutputPerGPU, 0)
		}
		fits := Shown("yes", true)
		if !d.Fits {
			fits = Shown("no: "+d.Reasons[0], false)
		}
		t.Rows = append(t.Rows, []Cell{
			Say(d.Model), Say(d.GPU),
			Whole(d.Deploy.TensorParallel), Whole(max(d.Deploy.PipelineParallel, 1)), Whole(max(d.Deploy.DataParallel, 1)), Whole(max(d.Deploy.ExpertParallel, 1)),
			Whole(d.Request.BatchSize), Whole(d.Request.InputLen), Whole(d.Request.OutputLen),
			Fixed(d.Latency.TTFT, 2), tpot, Fixed(d.Latency.E2E, 1), rate,
			Shown(strconv.FormatFloat(unit.Bytes(d.Memory.Total).GiB(), 'f', 2, 64), d.Memory.Total),
			Whole(d.Memory.MaxBatch), fits,
		})
	}
	return t
}

// percent prints part of whole with one decimal.
func percent(part, whole float64) string {
	if whole == 0 {
		return "–"
	}
	return strconv.FormatFloat(part/whole*100, 'f', 1, 64) + " %"
}

// ResultsDocument holds several results of one kind.
type ResultsDocument[T any] struct {
	Head
	Results []T `json:"results"`
}

// Results wraps several results into one document of the given kind.
func Results[T any](kind, tool string, results []T) ResultsDocument[T] {
	return ResultsDocument[T]{NewHead(kind, tool), results}
}
