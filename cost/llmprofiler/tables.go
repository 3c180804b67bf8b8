package llmprofiler

import (
	"errors"
	"fmt"
	"strings"

	"github.com/llmprof/llmprof/catalog"
)

// Model is a decoder as the method sees it. Sizes count elements.
type Model struct {
	// Name is the table's spelling, e.g. "llama2-70B".
	Name string
	// Type is the model_type; "qwen3" adds the query and key norms.
	Type       string
	NumLayers  int
	HiddenSize int
	NumHeads   int
	NumKVHeads int
	HeadDim    int
	// IntermediateSize is the feed-forward width; of one expert in a mixture.
	IntermediateSize int
	// NumExperts is 0 for a dense model.
	NumExperts int
	// ExpertsPerToken is the number of experts that a token visits.
	ExpertsPerToken int
	VocabSize       int
	// MaxSeqLen is the longest prompt plus generation in tokens.
	MaxSeqLen int
	// Notes are warnings that go with every result of the model.
	Notes []string
}

// GPU is an accelerator as the method sees it.
type GPU struct {
	// Name is the name under which the GPU is found.
	Name string
	// Label is the name that the report prints; the table has the wrong one
	// for both H100s.
	Label string
	// MemoryGB is the device memory in units of 1e9 bytes.
	MemoryGB float64
	// HBMGBps is the bandwidth of the device memory in GB/s.
	HBMGBps float64
	// IntraNodeGBps is the link inside a node in GB/s, both directions
	// together; 0 if there is none.
	IntraNodeGBps float64
	// FP16TFLOPS is the fp16 peak in TFLOP/s.
	FP16TFLOPS float64
	// MessageLatency is the least time of one message inside a node in s.
	MessageLatency float64
	// Notes are warnings that go with every result of the GPU.
	Notes []string
}

// messageLatency is the table's least message time in s for all but one GPU.
const messageLatency = 8e-6

// UnknownError says that a name is in neither of the method's tables.
type UnknownError struct {
	// Kind is "model" or "gpu".
	Kind string
	// Name is what was asked for.
	Name string
	// Known are the names of the table.
	Known []string
}

// Error names the thing that was not found.
func (e *UnknownError) Error() string {
	return fmt.Sprintf("%s %q is not in the llm-profiler table", e.Kind, e.Name)
}

// Hint lists what is known.
func (e *UnknownError) Hint() string { return "known: " + strings.Join(e.Known, ", ") }

// Models returns the 12 models of the reference's table.
func Models() []Model {
	dense := func(name, kind string, layers, hidden, heads, kvHeads, width, vocab, maxLen int) Model {
		return Model{
			Name: name, Type: kind, NumLayers: layers, HiddenSize: hidden, NumHeads: heads, NumKVHeads: kvHeads,
			HeadDim: hidden / heads, IntermediateSize: width, VocabSize: vocab, MaxSeqLen: maxLen,
		}
	}
	qwen3 := func(name string, layers, hidden, heads, kvHeads, width, experts int) Model {
		m := dense(name, "qwen3", layers, hidden, heads, kvHeads, width, 151936, 40960)
		m.HeadDim = 128
		if experts > 0 {
			m.Type, m.NumExperts, m.ExpertsPerToken = "qwen3_moe", experts, 8
		}
		return m
	}
	return []Model{
		dense("llama-7B", "llama", 32, 4096, 32, 32, 11008, 32000, 2048),
		dense("llama-13B", "llama", 40, 5120, 40, 40, 13824, 32000, 2048),
		dense("llama-30B", "llama", 60, 6656, 52, 52, 17920, 32000, 2048),
		dense("llama-65B", "llama", 80, 8192, 64, 64, 22016, 32000, 2048),
		dense("llama2-13B", "llama", 40, 5120, 40, 40, 13824, 32000, 4096),
		dense("llama2-70B", "llama2", 80, 8192, 64, 8, 28672, 32000, 4096),
		dense("internlm-20B", "internlm", 60, 5120, 40, 40, 13824, 103168, 16384),
		dense("internlm2-20b-chat", "internlm2", 48, 6144, 48, 8, 16384, 92544, 32768),
		qwen3("Qwen3-8B", 36, 4096, 32, 8, 12288, 0),
		qwen3("Qwen3-32B", 64, 5120, 64, 8, 25600, 0),
		qwen3("Qwen3-30B-A3B", 48, 2048, 32, 4, 768, 128),
		qwen3("Qwen3-235B-A22B", 94, 4096, 64, 4, 1536, 128),
	}
}

// GPUs returns the 14 GPUs of the reference's table with the figures that it
// uses, wrong ones included.
func GPUs() []GPU {
	gpu := func(name string, memory, hbm, link, fp16 float64) GPU {
		return GPU{
			Name: name, Label: name, MemoryGB: memory, HBMGBps: hbm, IntraNodeGBps: link, FP16TFLOPS: fp16,
			MessageLatency: messageLatency,
		}
	}
	table := []GPU{
		gpu("t4-pcie-15gb", 15, 300, 32, 65),
		gpu("v100-pcie-32gb", 32, 900, 32, 112),
		gpu("v100-sxm-32gb", 32, 900, 300, 112),
		gpu("br104p", 32, 819, 192, 512),
		gpu("a100-pcie-40gb", 40, 1555, 64, 312),
		gpu("a100-sxm-40gb", 40, 1555, 600, 312),
		gpu("a100-pcie-80gb", 80, 1935, 64, 312),
		gpu("a100-sxm-80gb", 80, 2039, 600, 312),
		gpu("910b-64gb", 64, 460, 392, 376),
		gpu("h100-sxm-80gb", 80, 3430, 900, 1979),
		gpu("h100-pcie-80gb", 80, 2048, 128, 1513),
		gpu("a30-pcie-24gb", 24, 933, 64, 165),
		gpu("a30-sxm-24gb", 24, 933, 200, 165),
		gpu("a40-pcie-48gb", 44.98, 696, 64, 149.7),
	}
	for i := range table {
		switch table[i].Name {
		case "910b-64gb":
			table[i].MessageLatency = 9e-6
		case "h100-sxm-80gb", "h100-pcie-80gb":
			table[i].Label = "a100-sxm-80gb"
		}
	}
	return table
}

// LookupModel finds a model of the table by name; case, blanks, underscores
// and a leading hub organisation make no difference. The error is an
// [*UnknownError].
func LookupModel(name string) (Model, error) {
	key := hyphenate(name)
	if i := strings.LastIndexByte(key, '/'); i >= 0 {
		key = key[i+1:]
	}
	switch key {
	case "llama-2-13b", "llama-2-13b-hf":
		key = "llama2-13b"
	case "llama-2-70b", "llama-2-70b-hf":
		key = "llama2-70b"
	case "internlm2-chat-20b":
		key = "internlm2-20b-chat"
	}
	var known []string
	for _, m := range Models() {
		if strings.EqualFold(m.Name, key) {
			return m, nil
		}
		known = append(known, m.Name)
	}
	return Model{}, &UnknownError{Kind: "model", Name: name, Known: known}
}

// LookupGPU finds a GPU of the table by name or by a common spelling: "A100"
// and "a100_sxm" mean a100-sxm-80gb, "NVIDIA-H100-80GB-HBM3" h100-sxm-80gb.
// The error is an [*UnknownError].
func LookupGPU(name string) (GPU, error) {
	key := strings.TrimPrefix(hyphenate(name), "nvidia-")
	for _, memory := range []string{"-hbm2", "-hbm2e", "-hbm3"} {
		key = strings.TrimSuffix(key, memory)
	}
	switch key {
	case "t4", "tesla-t4", "t4-pcie":
		key = "t4-pcie-15gb"
	case "v100", "v100-sxm", "v100-sxm2-32gb", "tesla-v100-sxm2-32gb":
		key = "v100-sxm-32gb"
	case "v100-pcie", "tesla-v100-pcie-32gb":
		key = "v100-pcie-32gb"
	case "a100", "a100-sxm", "a100-80gb", "a100-sxm4-80gb":
		key = "a100-sxm-80gb"
	case "a100-40gb", "a100-sxm4-40gb":
		key = "a100-sxm-40gb"
	case "a100-pcie", "a100-80gb-pcie":
		key = "a100-pcie-80gb"
	case "h100", "h100-sxm", "h100-80gb", "h100-sxm5-80gb":
		key = "h100-sxm-80gb"
	case "h100-pcie":
		key = "h100-pcie-80gb"
	case "a30", "a30-pcie":
		key = "a30-pcie-24gb"
	case "a30-sxm":
		key = "a30-sxm-24gb"
	case "a40", "a40-pcie":
		key = "a40-pcie-48gb"
	case "910b", "ascend-910b":
		key = "910b-64gb"
	}
	var known []string
	for _, g := range GPUs() {
		if g.Name == key {
			return g, nil
		}
		known = append(known, g.Name)
	}
	return GPU{}, &UnknownError{Kind: "gpu", Name: name, Known: known}
}

func hyphenate(s string) string {
	return strings.Map(func(r rune) rune {
		if r == ' ' || r == '_' {
			return '-'
		}
		return r
	}, strings.ToLower(strings.TrimSpace(s)))
}

// FromCatalog makes a model of the catalog one of the method's. What the
// method has no term for is left out and said in the notes: latent attention
// counts as ordinary attention with heads of size ⌊h/n⌋, sliding and linear
// attention as full, a plain feed-forward block as a gated one, and the
// shared expert of a mixture not at all. The error is that of
// [catalog.Model.Validate].
func FromCatalog(m *catalog.Model) (Model, error) {
	if m == nil {
		return Model{}, errors.New("llm-profiler model: no catalog entry given")
	}
	if err := m.Validate(); err != nil {
		return Model{}, fmt.Errorf("llm-profiler model from the catalog: %w", err)
	}
	out := Model{
		Name: m.Name, Type: m.Type, NumLayers: m.NumLayers, HiddenSize: m.HiddenSize, NumHeads: m.NumHeads,
		NumKVHeads: m.NumKVHeads, HeadDim: m.HeadDim, IntermediateSize: m.IntermediateSize,
		VocabSize: m.VocabSize, MaxSeqLen: m.MaxSeqLen,
	}
	note := func(format string, a ...any) { out.Notes = append(out.Notes, fmt.Sprintf(format, a...)) }
	note("model %s is not in the reference's table: its sizes come from the catalog, KV heads and experts read correctly where the reference would miss them", m.Name)
	if m.MLA != nil {
		out.NumKVHeads, out.HeadDim = m.NumHeads, max(m.HiddenSize/m.NumHeads, 1)
		note("latent attention is not known to this method: counted as %d full heads of size %d", out.NumHeads, out.HeadDim)
	}
	if moe := m.MoE; moe != nil {
		out.IntermediateSize, out.NumExperts, out.ExpertsPerToken = moe.IntermediateSize, moe.NumExperts, moe.ExpertsPerToken
		if moe.DenseLayers > 0 || moe.Every > 1 {
			note("dense layers among the mixture-of-experts layers are counted as mixtures")
		}
		if moe.SharedIntermediateSize > 0 {
			note("the shared expert is not counted")
		}
	}
	if m.PlainFFN {
		note("the feed-forward block of two matrices is counted as one of three")
	}
	for _, layer := range m.Layers(0, m.NumLayers) {
		if layer.Attention != catalog.FullAttention {
			note("%s attention is counted as full attention", layer.Attention)
		}
	}
	return out, nil
}

// GPUFromCatalog makes a device of the catalog one of the method's, in the
// method's units: memory in 1e9 bytes, the link with both directions
// together, the dense fp16 (or else bf16) peak. A device without a link gets
// none and serves tp 1 only; a link without a known latency gets the table's
// 8 µs.
func GPUFromCatalog(d *catalog.Device) (GPU, error) {
	if d == nil {
		return GPU{}, errors.New("llm-profiler gpu: no catalog entry given")
	}
	if err := d.Validate(); err != nil {
		return GPU{}, fmt.Errorf("llm-profiler gpu from the catalog: %w", err)
	}
	peak, ok := d.Peak(catalog.FP16)
	if !ok {
		if peak, ok = d.Peak(catalog.BF16); !ok {
			return GPU{}, fmt.Errorf("llm-profiler gpu %s: no fp16 or bf16 peak in the catalog", d.Name)
		}
	}
	g := GPU{
		Name: d.Name, Label: d.Name, MemoryGB: d.Memory.Value / 1e9, HBMGBps: d.Bandwidth.Value / 1e9,
		IntraNodeGBps: 2 * d.Link.Bandwidth.Value / 1e9, FP16TFLOPS: float64(peak) / 1e12,
		MessageLatency: d.Link.Alpha.Value,
		Notes:          []string{"gpu " + d.Name + " is not in the reference's table: its figures come from the catalog (dense peak, link of both directions together)"},
	}
	if !d.Link.Alpha.Known() {
		g.MessageLatency = messageLatency
	}
	return g, nil
}
