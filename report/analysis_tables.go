package report

import (
	"fmt"
	"strconv"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/cost"
	"github.com/llmprof/llmprof/deploy"
	"github.com/llmprof/llmprof/unit"
)

// AnalysisTables shows one analysis to people: memory, latency, and where the
// time goes; perOp adds every operator.
func AnalysisTables(a *cost.Analysis, perOp bool, engine *EngineKV) []Table {
	tables := []Table{summary(a, engine), memoryTable(a), latencyTable(a), shares(a)}
	if perOp {
		tables = append(tables, OpTables(Analysis(a, ""))...)
	}
	return tables
}

func summary(a *cost.Analysis, engine *EngineKV) Table {
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
		row("fits", fmt.Sprintf("yes · up to %d such requests, a KV cache of %d tokens beside %s", a.MaxBatch, a.MaxTokens, besideText(a)))
		if engine != nil {
			row("", fmt.Sprintf("%s %s would have one of %d tokens beside %d tokens a step, with %g of the memory", engine.Engine, engine.Release, engine.Tokens, engine.StepTokens, engine.Utilization))
		}
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

// besideText says which prefill the memory has room for beside the KV cache.
func besideText(a *cost.Analysis) string {
	if n := a.Config.MaxNumBatchedTokens; n > 0 {
		return fmt.Sprintf("%d tokens a step", n)
	}
	return "all their prompts in one step"
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
	if a.Config.PipelineParallel > 1 {
		t.Notes = append(t.Notes, fmt.Sprintf("Pipeline: the stages wait for each other %s of the prefill.", percent(a.Prefill.Bubble, 1)))
		if a.PipelinedTokensPerSecond > 0 {
			t.Notes = append(t.Notes, fmt.Sprintf("With one batch in flight for each stage: %.0f tok/s.", a.PipelinedTokensPerSecond))
		}
	}
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
		Notes: []string{"Amounts are those of all occurrences together, on one rank of every pipeline stage."},
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
