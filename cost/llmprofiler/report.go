package llmprofiler

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// Report writes the text that the tool prints, in the labels of the result's
// version. The tool starts with a blank line; that one is left out, so that
// the text begins with the first title and ends with a newline.
func Report(w io.Writer, r Result) error {
	var b strings.Builder
	for i, s := range r.sections() {
		if i > 0 {
			b.WriteByte('\n')
		}
		dashes := strings.Repeat("-", 28)
		if i < 2 {
			dashes = dashes[:26]
		}
		b.WriteString(dashes + " " + s.title + " " + dashes + "\n")
		b.WriteString(s.body.pretty(0) + "\n")
		if s.sum != nil {
			b.WriteString(s.sum.line() + "\n")
		}
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write llm-profiler report: %w", err)
	}
	return nil
}

// section is a titled dictionary, sometimes followed by a total.
type section struct {
	title     string
	body, sum table
}

func (r Result) sections() []section {
	m := r.Memory
	first, each := "prefill_latency", "decode_latency"
	if r.Input.Version == June2025 {
		first, each = "TTFT", "TTOT"
	}
	prefill, decode := r.latencyTables(first, each)
	return []section{
		{title: "LLM main infer config", body: r.configTable()},
		{title: "LLM infer performance analysis", body: table{
			{"weight_memory_per_gpu", memoryText(m.Weights)},
			{"consume_memory_per_gpu", memoryText(m.Consumed)},
			{"prefill_flops", numberText(r.PrefillFLOPs)},
			{"decode_flops_per_step", numberText(r.DecodeFLOPs)},
			{"TTFT", r.TTFT},
			{"TTOT", r.TTOT},
			{"kv_cache_latency", latencyText(r.KVCacheLatency)},
			{"total_infer_latency", latencyText(r.Total)},
			{"support_max_batch_total_tokens", m.MaxBatchTotalTokens},
		}},
		{title: "LLM Params per_layer analysis", body: table{
			{"qkvo_proj", numberText(r.ParamsPerLayer.QKVOProj)},
			{"mlp", numberText(r.ParamsPerLayer.MLP)},
			{"rmsnorm", numberText(r.ParamsPerLayer.RMSNorm)},
			{"input_embedding", numberText(r.ParamsEmbedding)},
			{"output_embedding", numberText(r.ParamsEmbedding)},
		}, sum: table{{"params_model", numberText(r.ParamsModel)}}},
		{title: "LLM Prefill Flops per_layer analysis", body: table{
			{"attention_kernel", numberText(r.PrefillFLOPsPerLayer.AttentionKernel)},
			{"qkvo_proj", numberText(r.PrefillFLOPsPerLayer.QKVOProj)},
			{"mlp", numberText(r.PrefillFLOPsPerLayer.MLP)},
			{"rmsnorm", numberText(r.PrefillFLOPsPerLayer.RMSNorm)},
			{"positional_embedding", numberText(r.PrefillFLOPsPerLayer.PositionalEmbedding)},
			{"input_embedding", numberText(r.PrefillFLOPsPerLayer.InputEmbedding)},
		}, sum: table{{"prefill flops_model", numberText(r.PrefillFLOPs)}}},
		{title: "LLM Memory analysis (Prefill)", body: table{
			{"weight_memory_per_gpu", memoryText(m.Weights)},
			{"prefill_max_bs", memoryText(m.PrefillMaxBatch)},
			{"prefill_act_per_gpu", memoryText(m.PrefillActivations)},
		}},
		{title: "LLM Memory analysis (Decode)", body: table{
			{"decode_act_per_gpu", memoryText(m.DecodeActivations)},
			{"kv_cache_memory_per_gpu", memoryText(m.KVCache)},
			{"consume_memory_per_gpu", memoryText(m.Consumed)},
			{"decode_max_bs", memoryText(m.DecodeMaxBatch)},
			{"max_batch_total_tokens", memoryText(m.MaxBatchTotalTokens)},
		}},
		{title: "LLM Latency analysis (Prefill)", body: prefill.latencies()},
		{title: "LLM Latency analysis (Decode)", body: decode.latencies()},
	}
}

func (r Result) configTable() table {
	in, m, g := r.Input, r.Input.Model, r.Input.GPU
	name := m.Name
	if in.Version == Seed {
		name = strings.ToLower(name)
	}
	plain := func(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
	return table{
		{"inference_config", table{
			{"model_name", name},
			{"num_attention_heads", m.NumHeads},
			{"num_kv_heads", m.NumKVHeads},
			{"head_dim", m.HeadDim},
			{"hidden_size", m.HiddenSize},
			{"intermediate_size", m.IntermediateSize},
			{"vocab_size", m.VocabSize},
			{"max_seq_len", m.MaxSeqLen},
			{"bs", in.Batch},
			{"seq_len", in.InputLen},
			{"tp_size", in.TP},
			{"pp_size", in.PP},
			{"generate_len", in.OutputLen},
		}},
		{"gpu_config", table{
			{"name", g.Label},
			{"memory_GPU_in_GB", plain(g.MemoryGB) + " GB"},
			{"gpu_hbm_bandwidth", plain(g.HBMGBps) + " GB/s"},
			{"gpu_intra_node_bandwidth", plain(g.IntraNodeGBps) + " GB/s"},
			{"gpu_fp16_TFLOPS", plain(g.FP16TFLOPS) + " TFLOPS"},
		}},
	}
}

// latencies replaces seconds by their text.
func (t table) latencies() table {
	out := make(table, 0, len(t))
	for _, e := range t {
		seconds, _ := e.value.(float64)
		out = append(out, entry{e.key, latencyText(seconds)})
	}
	return out
}

// pretty prints one entry a line, its brace standing in the given column.
func (t table) pretty(column int) string {
	var b strings.Builder
	b.WriteString("{   ")
	for i, e := range t {
		if i > 0 {
			b.WriteString(",\n" + strings.Repeat(" ", column+4))
		}
		key := literal(e.key) + ": "
		b.WriteString(key)
		if inner, ok := e.value.(table); ok {
			b.WriteString(inner.pretty(column + 4 + len(key)))
		} else {
			b.WriteString(literal(e.value))
		}
	}
	b.WriteByte('}')
	return b.String()
}

// line prints a short table on one line.
func (t table) line() string {
	var entries []string
	for _, e := range t {
		entries = append(entries, literal(e.key)+": "+literal(e.value))
	}
	return "{" + strings.Join(entries, ", ") + "}"
}

// literal prints a text or number as Python does.
func literal(v any) string {
	switch v := v.(type) {
	case string:
		return quote(v)
	case float64:
		return pythonFloat(v)
	}
	return fmt.Sprint(v)
}

func quote(s string) string {
	mark := "'"
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		mark = `"`
	}
	var b strings.Builder
	b.WriteString(mark)
	for _, r := range s {
		switch {
		case r == '\\' || string(r) == mark:
			b.WriteString(`\` + string(r))
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case r < ' ' || r == 0x7f:
			fmt.Fprintf(&b, `\x%02x`, r)
		case strconv.IsPrint(r):
			b.WriteRune(r)
		case r < 0x100:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\U%08x`, r)
		}
	}
	b.WriteString(mark)
	return b.String()
}

// pythonFloat is the shortest text that reads back as v, with at least one
// decimal, in exponent form below 1e-4 and from 1e16.
func pythonFloat(v float64) string {
	if abs := math.Abs(v); abs != 0 && (abs < 1e-4 || abs >= 1e16) {
		return strconv.FormatFloat(v, 'e', -1, 64)
	}
	s := strconv.FormatFloat(v, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// rounded is v with two decimals, in the shortest form.
func rounded(v float64) string {
	r, err := strconv.ParseFloat(strconv.FormatFloat(v, 'f', 2, 64), 64)
	if err != nil {
		r = v
	}
	return pythonFloat(r)
}

// numberText scales a count by powers of 1000 up to T; what is below 1000,
// negative numbers included, stays as it is.
func numberText[N number](v N) string {
	switch x := float64(v); {
	case x >= 1e12:
		return rounded(x/1e12) + " T"
	case x >= 1e9:
		return rounded(x/1e9) + " G"
	case x >= 1e6:
		return rounded(x/1e6) + " M"
	case x >= 1e3:
		return rounded(x/1e3) + " K"
	}
	return literal(v)
}

// memoryText is a number of bytes; the tool uses it for counts as well.
func memoryText[N number](v N) string { return numberText(v) + "B" }

// latencyText scales seconds from µs to days.
func latencyText(s float64) string {
	const (
		minute = 60.0
		hour   = 60 * minute
		day    = 24 * hour
	)
	switch {
	case s >= day:
		return rounded(s/day) + " days"
	case s >= hour:
		return rounded(s/hour) + " hours"
	case s >= minute:
		return rounded(s/minute) + " minutes"
	case s > 1:
		return rounded(s) + " s"
	case s > 0.001:
		return rounded(s/0.001) + " ms"
	}
	return rounded(s/0.000001) + " us"
}
